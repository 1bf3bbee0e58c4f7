"""The rules of KRaft: what real runs show, and where each rule begins and ends."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from commands import kproto_rows
from conftest import few
from kraft_runs import HEALTHY, NODES, RUNS, capture, metadata
from lines_run import lines_run

from kproto.tables import read
from kproto.tables.resolved import resolved_reader
from kproto.tables.stored import reader_of
from kproto.verdicts import kraft
from kproto.verdicts.catalogue import RULES
from kproto.verdicts.doctor import Doctor, Finding
from kproto.verdicts.events import events
from kproto.verdicts.facts import Facts
from kproto.verdicts.found import facts_of_clusters
from kproto.verdicts.rules import findings

S = 1_000_000
KRAFT_RULES = {rule for rule in RULES if rule >= "KP070"}


@cache
def facts(run: str) -> Facts:
    ((_cluster, found),) = facts_of_clusters(resolved_reader(reader_of(read(str(capture(run))))))
    return found


def found(run: str, **limits: float) -> dict[str, list[Finding]]:
    kept: dict[str, list[Finding]] = {}
    for finding in findings(facts(run), limits):
        kept.setdefault(finding.rule, []).append(finding)
    return kept


def test_the_run_with_faults_shows_them_and_nothing_else() -> None:
    rules = found("kraft-4.1-b")
    assert set(rules) == {"KP035", "KP070", "KP073", "KP075", "KP077"}
    assert [finding.broker for finding in rules["KP070"]] == [2, 2]
    (outage,) = rules["KP073"]
    assert outage.severity == "trouble"
    assert 9 * S < outage.last - outage.first < 12 * S
    (twice,) = rules["KP077"]
    assert twice.broker == 2
    assert "refused while those with 198 were accepted" in twice.text


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_runs_with_kills_and_shutdowns_alone_show_none_of_these_faults(run: str) -> None:
    assert not KRAFT_RULES & set(found(run))


@pytest.mark.parametrize("node", few([None, *NODES[HEALTHY]]))
def test_a_healthy_run_shows_nothing_above_a_note(node: int | None) -> None:
    files = metadata(HEALTHY, node)
    for places in ([files], [files, capture(HEALTHY)]):
        rows = kproto_rows("doctor", *places)
        assert {(row["rule"], row["severity"]) for row in rows} == {("KP035", "note")}


def test_the_capture_of_a_healthy_run_shows_nothing_above_a_note() -> None:
    assert {finding.severity for some in found(HEALTHY).values() for finding in some} == {"note"}


def test_a_second_process_with_the_id_of_a_broker_that_runs_is_refused() -> None:
    (refused,) = found("kraft-4.1-r")["KP078"]
    assert (refused.broker, refused.count, refused.severity) == (0, 16, "warning")
    assert "would listen at 127.0.0.1:19198" in refused.text


@pytest.mark.parametrize(
    ("error", "count", "former", "is_found"),
    [(101, 9, 60, True), (101, 9, 49, False), (101, 2, 60, False), (104, 3, 0, True), (77, 99, 60, False)],
)
def test_refused_registrations(error: int, count: int, former: int, is_found: bool) -> None:
    """A broker that is started again is refused as a duplicate until the session of its former process ends."""
    asked = [(7, "another", "10.0.0.7", ["a:9092"], error, 50 * S, 60 * S, count)]
    heartbeats = [(7, 100, 0, former * S, 60, 0), (7, 200, 61 * S, 90 * S, 30, 0)]
    rules = [one.rule for one in shown(broker_registrations=asked, broker_heartbeats=heartbeats)]
    assert rules == (["KP078"] if is_found else [])


def test_limits_move_the_border() -> None:
    assert "KP073" not in found("kraft-4.1-b", quorum=11)
    assert len(found("kraft-4.1-b", quorum=3)["KP073"]) == 2
    assert "KP076" in found("kraft-4.1-b", **{"refused-fetches": 100})


def test_events_tell_why_the_controller_changed_and_who_asked() -> None:
    listed = events(facts("kraft-4.1-b"))
    controllers = [event.text for event in listed if event.kind == "controller"]
    assert controllers[0] == "Controller 1002 with epoch 1 is the first in the capture"
    assert controllers[1].startswith("Controller 1001 with epoch 3 takes over from 1002: controller 1002 fell silent")
    assert len(controllers) == 4
    asked = [event.text for event in listed if event.kind == "asked" and event.partition == 1]
    assert asked[-1] == "capacity-bot at 127.0.0.1 (User:ANONYMOUS) asks of orders-1: cancel the reassignment"
    left = [event.text for event in listed if event.kind == "broker left" and event.broker == 2]
    assert all("session timed out: no heartbeat for 6.4 s, though alive" in text for text in left)
    assert sum(event.kind == "no quorum leader" for event in listed) == 3


# ---- rules on rows, where no real run has the fault


def shown(**tables: list[tuple[Any, ...]]) -> list[Finding]:
    facts: Any = SimpleNamespace(rows=lambda name: tables.get(name, []))
    return [finding for rule in kraft.RULES for finding in rule(Doctor(facts))]


def state(state_of: str, begin: int, end: int | None, why: str, evidence: str = "") -> tuple[Any, ...]:
    return ("c", 7, 100, True, begin * S, None if end is None else end * S, why, state_of, evidence)


@pytest.mark.parametrize(("last", "error", "is_found"), [(121, 0, True), (119, 0, False), (121, 41, False)])
def test_a_broker_that_never_unfences(last: int, error: int, is_found: bool) -> None:
    states = [state("fenced", 0, None, "registered with a new incarnation id", "starting: 9 heartbeats")]
    heartbeats = [(7, 100, 1 * S, last * S, 60, error)]
    rules = [one.rule for one in shown(broker_states=states, broker_heartbeats=heartbeats)]
    assert rules == (["KP071"] if is_found else [])


def test_a_broker_that_unfences_late_and_one_whose_log_alone_is_there() -> None:
    first = "registered with a new incarnation id"
    late = [
        state("fenced", 0, 60, first),
        state("fenced", 60, 200, "registered again"),
        state("unfenced", 200, None, ""),
    ]
    assert [(one.rule, one.first, one.last) for one in shown(broker_states=late)] == [("KP071", 0, 200 * S)]
    assert not shown(broker_states=[state("fenced", 0, None, first)])  # whether it lives, a log does not tell
    assert not shown(broker_states=[state("fenced", 0, 200, first)])  # the log has a gap there
    (gone,) = shown(broker_states=[state("fenced", 0, 200, first), state("unregistered", 200, None, "unregistered")])
    assert gone.text == "Broker 7 has not been unfenced 200 s after it registered"


@pytest.mark.parametrize(("lag", "late", "is_found"), [(31, 3, True), (29, 9, False), (60, 1, False)])
def test_metadata_lag_is_one_that_lasts(lag: int, late: int, is_found: bool) -> None:
    rules = [one.rule for one in shown(broker_progress=[(7, 100 * S, lag * S, late)])]
    assert rules == (["KP072"] if is_found else [])  # one late heartbeat is that of a pause which ended


@pytest.mark.parametrize(("epochs", "step", "is_found"), [(5, 10, True), (4, 10, False), (5, 200, False)])
def test_elections_without_a_winner(epochs: int, step: int, is_found: bool) -> None:
    votes = [(e * step * S, e * step * S, 2, 52, 1000 + e % 2, 3 + e, False) for e in range(epochs)]
    led = [(2, 1000, 0, None, None, None), (3 + epochs, 1001, 9999 * S, None, None, None)]
    assert [one.rule for one in shown(quorum_requests=votes, quorum_epochs=led)] == (["KP074"] if is_found else [])


def test_pre_votes_and_elections_with_a_winner_are_none_in_vain() -> None:
    votes = [(e * S, e * S, 2, 52, 1000, 3 + e, e % 2 == 0) for e in range(12)]
    led = [(3 + e, 1000, e * S, None, None, None) for e in range(1, 12, 2)]
    assert not shown(quorum_requests=votes, quorum_epochs=led)


def test_stale_heartbeats_after_a_restart_are_no_second_process() -> None:
    before, after = (7, 100, 0, 10 * S, 9, 77), (7, 200, 11 * S, 60 * S, 40, 0)
    assert not shown(broker_heartbeats=[before, after])
    assert [one.rule for one in shown(broker_heartbeats=[before, (7, 200, 9 * S, 60 * S, 40, 0)])] == ["KP077"]


def test_work_grows_with_the_number_of_registrations_alone() -> None:
    def heartbeats(count: int) -> list[tuple[Any, ...]]:
        stale = [(7, number, number * S, (2 * count + number) * S, 9, 77) for number in range(count)]
        return stale + [(7, count + number, number * S, (2 * count + number) * S, 9, 0) for number in range(count)]

    def refused(count: int) -> list[tuple[Any, ...]]:
        return [(7, "c", "10.0.0.7", [], 101, number * S, number * S, 9) for number in range(9 * count, 10 * count)]

    work = [
        lines_run(lambda n=n: shown(broker_heartbeats=heartbeats(n), broker_registrations=refused(n)))  # type: ignore[misc]
        for n in (50, 100, 200)
    ]
    assert work[2] - work[1] <= 2.1 * (work[1] - work[0])
