"""The doctor finds every planted fault of generated fleets, and nothing but what the truth requires or allows."""

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fixed_draws import IS_EXPLORED
from fleet_faults import LOSS, Score, fits, fleet_of, found_in, score

import kproto.tables
from kproto.generate import PlannedFleet, findings_truth, write_captures
from kproto.generate.plants import PLANTS
from kproto.tables.resolved import resolved_tables
from kproto.verdicts import rules
from kproto.verdicts.doctor import Doctor
from kproto.verdicts.facts import Facts
from kproto.verdicts.found import judged_table
from kproto.verdicts.rules import findings

FEW = 3
"""Fleets of fresh seeds; ``tests/fleet_faults.py --seeds 300`` takes more."""


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        pytest.param(name, protocol, marks=[pytest.mark.slow] * (protocol == "2.4" and "3.9" in plant.protocols))
        for name, plant in PLANTS.items()
        for protocol in ("3.9", "2.4")
        if protocol in plant.protocols
    ],
)
def test_each_planted_fault_is_found_and_nothing_else(name: str, protocol: str) -> None:
    fleet = PlannedFleet(
        seed=2, brokers=6, topics=20, partitions=60, isr_changes=160 if name == "slow-broker" else 15, elections=4,
        batch=5, protocol=protocol, plants=(name,),
    )  # fmt: skip
    result = Score()
    result.add(fleet, "whole", found_in(fleet))
    assert result.required
    assert (result.missing, result.wrong) == ([], [])
    assert result.found == result.required


@pytest.mark.parametrize("seed", [809_810, 809_811, 809_812])
def test_a_broker_that_is_not_alive_is_found_beside_a_migration_and_its_end(seed: int) -> None:
    fleet = fleet_of(seed)
    result = Score()
    result.add(fleet, "whole", found_in(fleet))
    assert (result.missing, result.wrong) == ([], [])


@pytest.mark.slow
@pytest.mark.hypothesis
def test_fleets_of_any_seed_are_judged_right_whole_split_rotated_and_with_losses() -> None:
    first = secrets.randbelow(1_000_000) if IS_EXPLORED else 715_423
    print(f"seeds {first} to {first + FEW - 1}: PYTHONPATH=tests python tests/fleet_faults.py --first {first}")
    scores = score(range(first, first + FEW))
    for way in ("whole", "split", "rotated"):
        assert (scores[way].missing, scores[way].wrong) == ([], []), way
        assert scores[way].found == scores[way].required, way
    lossy = scores["lossy"]
    assert lossy.found >= 0.9 * lossy.required


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, dict[str, pa.Table]]:
    """A broker that is behind, since when in us, and the tables."""
    fleet = PlannedFleet(seed=2, brokers=6, topics=20, partitions=60, isr_changes=15, plants=("behind",))
    (planted,) = findings_truth(fleet).planted
    path = tmp_path_factory.mktemp("behind")
    write_captures(fleet, path)
    broker = planted.required[0].broker_id
    assert broker is not None
    return broker, planted.time_ns // 1000, resolved_tables(kproto.tables.read(path))


def told_over_another_connection(behind: tuple[int, int, dict[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables as if the broker's connection had been closed while it was idle."""
    broker, since, tables = behind
    requests = tables["requests"]
    later = pc.and_(pc.equal(requests["broker_id"], broker), pc.greater(requests["ts"].cast(pa.int64()), since))
    assert pc.any(later).as_py()
    place = requests.column_names.index("conn_id")
    other = pc.if_else(later, pa.scalar(bytes(16), requests["conn_id"].type), requests["conn_id"])
    return {**tables, "requests": requests.set_column(place, requests.schema.field(place), other)}


def test_a_broker_that_kept_its_registration_is_behind_over_a_new_connection_too(
    behind: tuple[int, int, dict[str, pa.Table]],
) -> None:
    tables = told_over_another_connection(behind)
    assert [f.broker for f in findings(Facts([tables])) if f.rule == "KP030"] == [behind[0]]
    requests = tables["requests"]
    place = requests.column_names.index("broker_epoch")
    unknown = requests.set_column(place, requests.schema.field(place), pa.nulls(len(requests), pa.int64()))
    assert not [f for f in findings(Facts([{**tables, "requests": unknown}])) if f.rule == "KP030"]


def test_where_packets_are_missing_it_is_unknown_who_is_behind(
    behind: tuple[int, int, dict[str, pa.Table]],
) -> None:
    """Dropped packets leave holes in a connection that lasts: one without a hole shows all that passed."""
    broker, since, tables = behind
    captures = tables["captures"]
    place = captures.column_names.index("dropped_packets")
    dropped = captures.set_column(place, captures.schema.field(place), pa.array([1] * len(captures), pa.int64()))
    apart = told_over_another_connection(behind)
    requests = tables["requests"].filter(pc.equal(tables["requests"]["broker_id"], broker))
    early = max(ts for ts in requests["ts"].cast(pa.int64()).to_pylist() if ts < since - 15_000_000)
    for name, some, lacking, count in (
        ("whole", tables, captures, 1),
        ("dropped packets, one connection", tables, dropped, 1),
        ("dropped packets, two connections", apart, dropped, 0),
        ("a hole before", tables, with_a_hole(behind, early - 1), 1),
        ("a hole then", tables, with_a_hole(behind, since - 1), 0),
        ("a hole that is not listed", tables, with_a_hole(behind, early - 1, gaps=2), 0),
    ):
        facts = Facts([{**some, "captures": lacking}])
        (found,) = [f for f in findings(facts) if f.rule == "KP030"]
        assert (found.broker, not found.cannot_tell) == (broker, bool(count)), name
        assert judged_table("behind", [("", facts)]).num_rows == count, name


@pytest.mark.parametrize(
    ("partitions", "named"),
    [
        ([("orders", n) for n in range(50)], "orders[0-49]"),
        ([("orders", 3)], "orders-3"),
        (
            [("a", 0), ("b", 2), ("b", 1), ("a", 7), ("c", 5), ("d", 1), ("e", 1)],
            "a[0,7], b[1-2], c-5 and 2 topics more",
        ),
        ([("orders", n) for n in range(0, 100, 2)], "orders[0,2,4,6,8,10,12,14,...]"),
    ],
)
def test_partitions_that_a_broker_was_not_told_are_named_as_ranges(
    partitions: list[tuple[str, int]],
    named: str,
    behind: tuple[int, int, dict[str, pa.Table]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(doctor: Doctor) -> list[tuple[Any, ...]]:
        sighting: Any = None
        return [(behind[0], partition, sighting, None, doctor.facts.begin) for partition in partitions]

    monkeypatch.setattr(rules, "brokers_behind", of)
    (found,) = [f for f in findings(Facts([behind[2]])) if f.rule == "KP030"]
    assert found.text == f"Broker {behind[0]} was never told the newest state of {named}"


def with_a_hole(behind: tuple[int, int, dict[str, pa.Table]], ts: int, gaps: int = 1) -> pa.Table:
    """The captures as if bytes of the broker's connection were missing after a time in us."""
    broker, _since, tables = behind
    requests = [row for row in tables["requests"].to_pylist() if row["broker_id"] == broker]
    request = max(
        (row for row in requests if row["ts"].timestamp() * 1e6 < ts + 10), key=lambda row: row["ts"].timestamp()
    )
    at = {name: request[name] for name in ("conn_id", "server_ip", "server_port")}
    loss = {**at, "direction": "request", "kind": "gap", "ts": datetime.fromtimestamp(ts / 1e6, UTC), "bytes": 100}
    (row,) = tables["captures"].to_pylist()
    return pa.Table.from_pylist([row | {"gaps": gaps, "losses": [loss]}], tables["captures"].schema)


def test_a_healthy_fleet_has_no_findings_but_of_its_own_history() -> None:
    fleet = PlannedFleet(
        seed=8, brokers=6, topics=10, partitions=30, elections=0, isr_changes=4, migration=True, restarts=2
    )
    truth = findings_truth(fleet)
    for finding in found_in(fleet):
        if finding.severity != "note" and finding.rule != "KP034":  # one broker of a fleet without faults is slow
            assert any(fits(wanted, finding) for wanted in truth.required + truth.allowed + truth.under_min_isr)


def test_seeds_choose_all_faults() -> None:
    assert {name for seed in range(200) for name in fleet_of(seed).plants} == set(PLANTS)


@pytest.mark.parametrize(
    ("seed", "plants", "loss"),
    [
        # the connection of a broker that was behind broke afterwards
        (73533, ("isr-or-leader-not-alive", "behind", "no-leader"), 0.0),
        # a connection broke before an update that came late
        (85182, ("sent-again", "told-late", "controller-epoch-went-back", "unanswered"), 0.0),
        # a broker that a migration left behind was told a single partition later
        (
            85089,
            ("two-controllers-in-one-epoch", "migration-broker-left-behind", "partition-error-not-put-right"),
            0.0,
        ),
        # a controller told everybody everything after a broker was behind
        (61164, ("behind", "dual-write-ended"), 0.0),
        # bytes were missing just after the update that a broker seemed to have missed
        (136, ("unanswered", "leader-flapping", "registered-again", "two-leaders"), LOSS),
        # the connection of a broker that was behind had broken before, and the next one began later
        (715423, ("behind", "unclean-election", "unanswered", "registered-again"), 0.0),
        # a deletion's answer was the last packet of its connection, and is missing
        (61348, ("behind",), LOSS),
    ],
)
def test_fleets_that_were_judged_wrong_are_judged_right(seed: int, plants: tuple[str, ...], loss: float) -> None:
    fleet = replace(fleet_of(seed, plants), capture_loss=loss)
    result = Score()
    result.add(fleet, "whole", found_in(fleet))
    assert (result.missing, result.wrong) == ([], [])
