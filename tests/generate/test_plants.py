"""Planted faults are in the capture, and the truth says of each what must be found."""

from pathlib import Path

import pytest

from kproto import capture
from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.generate import PlannedFleet, findings_truth, write_captures
from kproto.generate.plants import PLANTS, chosen
from kproto.generate.truth import Truth
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.facts import Facts

OF_THE_STATES = {"no-leader": "KP010", "under-replicated": "KP020", "slow-broker": "KP034"}
"""Plants whose findings follow from the history's states and answers."""


def planted(name: str, seed: int) -> PlannedFleet:
    return PlannedFleet(seed=seed, brokers=6, topics=20, partitions=60, isr_changes=150, elections=3, plants=(name,))


def rules(truth: Truth) -> set[str]:
    return {finding.rule for finding in truth.required}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_each_fault_can_be_planted_and_its_capture_is_readable(tmp_path: Path, name: str) -> None:
    fleet = planted(name, 1)
    truth = findings_truth(fleet)
    if name in OF_THE_STATES:
        assert OF_THE_STATES[name] in rules(truth)
    else:
        (fault,) = truth.planted
        assert fault.name == name
        assert fault.required
        assert set(fault.required) <= set(truth.required)
    (path,) = write_captures(fleet, tmp_path).files
    summary = capture.CaptureSummary()
    assert all(exchange.error is None for exchange in capture.exchanges(path, summary=summary))
    assert not summary.gaps
    assert not summary.bad_inputs


@pytest.mark.slow
def test_nearly_every_seed_has_a_place_for_each_fault() -> None:
    for name in PLANTS.keys() - OF_THE_STATES.keys():
        assert sum(bool(findings_truth(planted(name, seed)).planted) for seed in range(4)) >= 3, name


def test_the_same_faults_are_required_whatever_is_lost() -> None:
    whole = PlannedFleet(plants=chosen(6, 3, "3.9"), topics=30, seed=3)
    lossy = PlannedFleet(plants=chosen(6, 3, "3.9"), topics=30, seed=3, capture_loss=0.01)
    assert [fault.required for fault in findings_truth(whole).planted] == [
        fault.required for fault in findings_truth(lossy).planted
    ]


def test_a_broker_that_missed_an_update_was_sent_everything_but_that(tmp_path: Path) -> None:
    fleet = planted("missed-update", 4)
    (fault,) = findings_truth(fleet).planted
    (finding,) = fault.required
    (path,) = write_captures(fleet, tmp_path).files
    during = [
        exchange
        for exchange in capture.exchanges(path)
        if exchange.api_key == ApiKey.UPDATE_METADATA and 0 <= exchange.time_ns - fault.time_ns < 30_000_000_000
    ]
    told = {exchange.server.ip for exchange in during}
    assert len(told) == fleet.brokers - 1
    assert fleet.address(finding.broker_id or 0).ip not in told


def test_a_migration_names_the_kraft_controller_and_sends_everything_in_full(tmp_path: Path) -> None:
    fleet = PlannedFleet(brokers=4, topics=5, partitions=20, migration=True)
    (path,) = write_captures(fleet, tmp_path).files
    requests = [exchange.request_message for exchange in capture.exchanges(path)]
    kraft = [request for request in requests if getattr(request, "is_kraft_controller", False)]
    assert 0 < len(kraft) < len(requests)
    types = [request.type for request in kraft if request.api_key == ApiKey.UPDATE_METADATA]
    assert types[:4] == [0] * 4
    assert {0, 1, 2} == set(types)


@pytest.mark.parametrize("wrong", [{"plants": ("behind",)}, {"migration": True}])
def test_faults_need_requests_to_all_brokers(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="bodies of the kind fleet"):
        PlannedFleet(bodies="distinct", **wrong)  # type: ignore[arg-type]


def test_a_seed_chooses_faults_that_its_protocol_shows() -> None:
    for seed in range(20):
        names = chosen(len(PLANTS), seed, "2.4")
        assert len(set(names)) == len(names)
        assert all("2.4" in PLANTS[name].protocols for name in names)


def test_a_broker_that_stops_is_in_a_controlled_shutdown(tmp_path: Path) -> None:
    """It gives its partitions away while it is alive, those that it leads too."""
    write_captures(
        PlannedFleet(seed=9, brokers=3, topics=1, partitions=3, replication=2, restarts=4, elections=2, isr_changes=2),
        tmp_path,
    )
    facts = Facts(resolved_pieces([str(tmp_path)]))
    left = {facts.how_it_left(broker, absence.since) for broker, some in facts.absences.items() for absence in some}
    assert left == {"a controlled shutdown", None}  # None: of a broker without replicas in sync nothing tells
