"""inspect, summary, query, doctor, report and the tables give one answer to one question, on captures and fleets.

Of tables that Spark made, ``tests/pipeline/test_same_answers.py`` asks the same questions on the same captures.
"""

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows
from fleet_faults import fleet_of
from table_truth import CAPTURES

import kproto.tables
from kproto.generate import write_captures
from kproto.report.facts import report_facts
from kproto.verdicts.facts import Facts

pytestmark = pytest.mark.usefixtures("read_once")

Row = dict[str, Any]

BEING_DELETED = -2
STALE_BROKER_EPOCH = 77
STALE_CONTROLLER_EPOCH = 11
FLEETS = ("a fresh fleet", "another fresh fleet")
"""Of a seed that is printed with a failure; KPROTO_FLEET_SEED repeats it. The tests' ids do not tell it: processes that
share a run must have the same."""


def rows(command: str, path: Path, *more: str) -> list[Row]:
    """The JSON lines that a command prints about a capture."""
    return kproto_rows(command, path, *more)


def count(path: Path, sql: str) -> int:
    ((number,),) = (row.values() for row in rows("query", path, "--sql", sql))
    return int(number)


@pytest.fixture(
    scope="module",
    params=[*CAPTURES, FLEETS[0], pytest.param(FLEETS[1], marks=pytest.mark.slow)],
    ids=lambda param: str(getattr(param, "name", param)),
)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param not in FLEETS:
        found: Path = request.param
        return found
    seed = int(os.environ.get("KPROTO_FLEET_SEED") or secrets.randbelow(1_000_000))
    print(f"KPROTO_FLEET_SEED={seed}")
    (written,) = write_captures(fleet_of(seed), tmp_path_factory.mktemp("fleet")).files
    return written


@pytest.fixture(scope="module")
def summary(path: Path) -> Row:
    (found,) = rows("summary", path)
    return found


@pytest.fixture(scope="module")
def shown(path: Path) -> list[Row]:
    return [row for row in rows("inspect", path) if row["record"] == "exchange"]


@pytest.fixture(scope="module")
def doctor(path: Path) -> list[Row]:
    return rows("doctor", path)


@pytest.fixture(scope="module")
def report(path: Path) -> Row:
    return report_facts(kproto.tables.read(path))


@pytest.fixture(scope="module")
def facts(path: Path) -> Facts:
    return Facts([kproto.tables.read(path)])


def newest_shown(shown: list[Row]) -> dict[tuple[str, int], Row]:
    """The newest state of each partition that exists at the end, by what inspect shows of accepted requests."""
    found: dict[tuple[str, int], Row] = {}
    gone: set[tuple[str, int]] = set()
    for row in sorted(shown, key=lambda row: float(row["time"])):
        if row["api"] == "StopReplica" or row["outcome"] in ("refused", "unreadable") or row["request"] is None:
            continue
        for topic, state in _states(row["request"]):
            place = topic, state["partitionIndex"]
            epochs = _epochs(state)
            if state["leader"] == BEING_DELETED:
                found.pop(place, None)
                gone.add(place)
            elif place not in gone or epochs == (0, 0):
                gone.discard(place)
                if place not in found or epochs >= _epochs(found[place]):
                    found[place] = state
    return found


def _states(request: Row) -> Iterator[tuple[str, Row]]:
    for topic in request.get("topicStates") or ():
        for state in topic["partitionStates"]:
            yield topic["topicName"], state
    for state in request.get("ungroupedPartitionStates") or ():
        yield state["topicName"], state


def _epochs(state: Row) -> tuple[int, int]:
    return int(state["leaderEpoch"]), int(state.get("zkVersion", state.get("partitionEpoch", -1)))


def test_the_leaders_at_the_end_are_the_same_everywhere(
    path: Path, shown: list[Row], report: Row, facts: Facts
) -> None:
    """Who leads which partition under which leader epoch; a deleted topic has no leader.

    The requests of another program contradict each other on purpose, several ids of one topic among them.
    """
    if path.name.startswith("external"):
        return
    last = [row for row in rows("query", path, "leader") if row["valid_to"] is None]
    found = {(row["topic"], row["partition"]): (row["leader"], row["leader_epoch"]) for row in last}
    assert len(found) == len(last)
    newest = newest_shown(shown)
    assert found == {place: (state["leader"], state["leaderEpoch"]) for place, state in newest.items()}
    assert found == {
        place: (life.newest.state.leader, life.newest.state.leader_epoch) for place, life in facts.present.items()
    }
    line = report["timeline"]
    drawn: dict[int, tuple[int, int]] = {}
    for place, leader, epoch in zip(*(line["states"][name] for name in ("row", "leader", "leader_epoch")), strict=True):
        drawn[place] = leader, epoch  # in the order of epochs
    parts = line["partitions"]
    assert found == {
        (line["topics"][parts["topic"][place]], parts["partition"][place]): state
        for place, state in drawn.items()
        if parts["deleted"][place] is None
    }


def assert_changes_agree(path: Path, summary: Row) -> None:
    kinds = Counter(row["kind"] for row in rows("query", path, "isr"))
    leaders = """
        SELECT leader FROM leadership
        QUALIFY lag(leader) OVER (
            PARTITION BY cluster, topic, topic_id, partition, incarnation ORDER BY leader_epoch, valid_from
        ) <> leader
    """
    asked = {
        "leader_changes": count(path, f"SELECT count(*) FROM ({leaders})"),
        "leader_lost": count(path, f"SELECT count(*) FROM ({leaders}) WHERE leader = -1"),
        "isr_shrinks": kinds["shrink"], "isr_expands": kinds["expand"], "isr_swaps": kinds["swap"],
    }  # fmt: skip
    assert {kind: summary["changes"][kind] for kind in asked} == asked


def test_changes_are_counted_the_same_everywhere(path: Path, summary: Row) -> None:
    assert_changes_agree(path, summary)


def test_changes_of_a_topic_that_was_created_again_without_an_id_are_counted_the_same(tmp_path: Path) -> None:
    fleet = replace(fleet_of(1), protocol="2.4", plants=("name-used-again-over-stray",), migration=False)
    (path,) = write_captures(fleet, tmp_path).files
    assert count(path, "SELECT count(*) FROM changes WHERE incarnation > 0")
    (summary,) = rows("summary", path)
    assert_changes_agree(path, summary)


def test_findings_are_the_same_everywhere(path: Path, doctor: list[Row]) -> None:
    about = ("rule", "severity", "text", "topic", "partition", "count")
    asked = Counter(tuple(row[name] for name in about) for row in rows("query", path, "findings"))
    assert asked == Counter(tuple(row[name] for name in about) for row in doctor)


def test_a_stale_epoch_of_a_partition_is_said_to_be_no_zombie_in_the_same_words(
    path: Path, summary: Row, shown: list[Row], report: Row
) -> None:
    words = "the leader epoch is not newer than the broker's (no zombie)"
    for answered in (
        summary["partition_errors"],
        [row for row in rows("query", path, "errors") if row["scope"] == "partition"],
    ):
        assert {row["meaning"] for row in answered if row["error_code"] == STALE_CONTROLLER_EPOCH} <= {words}
    said = [row for row in report["errors"] if row["scope"] == "partition"]
    assert {row["reason"] for row in said if row["error_code"] == STALE_CONTROLLER_EPOCH} <= {words}
    for row in shown:
        codes = {error["error_code"] for error in row["partition_errors"] or ()}
        if codes == {STALE_CONTROLLER_EPOCH} and row["outcome"] != "refused":
            assert re.search(r"leader epochs? .*not newer than .* \(no zombie\)", row["reason"]), row["reason"]


def test_isrs_at_the_end_are_the_same_everywhere(path: Path, shown: list[Row], facts: Facts) -> None:
    lacking = {
        (row["topic"], row["partition"]): set(row["missing"])
        for row in rows("query", path, "under-replicated")
        if row["valid_to"] is None
    }
    assert lacking == {
        place: set(state["replicas"]) - set(state["isr"])
        for place, state in newest_shown(shown).items()
        if set(state["replicas"]) - set(state["isr"])
    }
    assert lacking == {
        place: set(life.newest.state.replicas) - set(life.newest.state.isr)
        for place, life in facts.present.items()
        if set(life.newest.state.replicas) - set(life.newest.state.isr)
    }


def test_deletions_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row], facts: Facts) -> None:
    told = {
        topic
        for row in shown
        if row["api"] == "UpdateMetadata" and row["outcome"] not in ("refused", "unreadable")
        for topic, state in _states(row["request"])
        if state["leader"] == BEING_DELETED
    }
    assert {row["topic"] for row in summary["deletions"] if row["whole_topic"]} == told
    assert told == {topic for (topic, _), lives in facts.incarnations.items() if any(life.deleted for life in lives)}
    ended = {
        row["topic"]
        for row in rows("query", path, "--sql", "SELECT DISTINCT topic FROM changes WHERE deleted_ts IS NOT NULL")
    }
    states = {topic for (topic, _), lives in facts.incarnations.items() if any(life.sightings for life in lives)}
    assert ended == told & states


@pytest.mark.slow
def test_the_report_says_what_the_others_say(path: Path, summary: Row, doctor: list[Row], report: Row) -> None:
    stale = rows("query", path, "stale")
    assert len(report["stale"]) == len(stale)
    answered = rows("query", path, "errors")
    in_report = [row for row in report["errors"] if row["scope"] in ("request", "partition")]
    assert sum(row["n"] for row in in_report) == sum(row["n"] for row in answered)
    assert {row["rule"] for row in report["findings"]} >= {
        row["rule"] for row in doctor if row["severity"] == "trouble"
    }


def test_refused_requests_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row]) -> None:
    by_code = Counter(row["error_code"] for row in shown if row["outcome"] == "refused")
    assert by_code == Counter(
        {code: number for code, number in _summed(summary["refusals"], "error_code", "count").items() if code}
    )
    answered = _summed([row for row in rows("query", path, "errors") if row["scope"] == "request"], "error_code", "n")
    assert by_code == answered
    assert by_code.total() == count(path, "SELECT count(*) FROM requests WHERE error_code <> 0")


def test_errors_of_partitions_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row]) -> None:
    by_code = Counter(error["error_code"] for row in shown for error in row["partition_errors"] or ())
    assert by_code == _summed(summary["partition_errors"], "error_code", "count")
    assert by_code == _summed(
        [row for row in rows("query", path, "errors") if row["scope"] == "partition"], "error_code", "n"
    )


def test_zombies_are_the_same_everywhere(
    path: Path, summary: Row, shown: list[Row], doctor: list[Row], report: Row
) -> None:
    stale = [row for row in rows("query", path, "stale") if row["reason"] == "controller_epoch_regressed"]
    sent = Counter((row["controller_id"], row["seen_epoch"]) for row in stale)
    fenced = Counter((row["controller_id"], row["seen_epoch"]) for row in stale if row["error_code"])
    for zombies, number, part in (
        (summary["zombies"], "requests", "refused"),
        (report["controllers"], "zombies", "fenced"),
    ):
        senders = {(row["controller_id"], row["controller_epoch"]): row for row in zombies if row[number]}
        assert {sender: row[number] for sender, row in senders.items()} == sent
        assert {sender: row[part] for sender, row in senders.items() if row[part]} == fenced
    refused = fenced.total()
    assert sum(row["count"] for row in doctor if row["rule"] == "KP002") == refused
    said = sum("(zombie)" in (row.get("reason") or "") for row in shown)
    both = sum(row["error_code"] == STALE_BROKER_EPOCH for row in stale)  # the reason of these is the broker epoch
    assert said == refused - both
    assert len(stale) == count(path, "SELECT count(*) FROM stale_requests WHERE reason = 'controller_epoch_regressed'")


def test_requests_for_an_earlier_registration_are_the_same_everywhere(
    path: Path, summary: Row, doctor: list[Row]
) -> None:
    meant = sum(row["count"] for row in summary["refusals"] if row["error_code"] == STALE_BROKER_EPOCH)
    stale = [row for row in rows("query", path, "stale") if row["reason"] != "controller_epoch_regressed"]
    assert sum(row["error_code"] == STALE_BROKER_EPOCH for row in stale) == meant
    assert sum(row["count"] for row in doctor if row["rule"] == "KP036") <= meant


def test_brokers_that_missed_updates_are_the_same_everywhere(path: Path, doctor: list[Row]) -> None:
    told = [row for row in doctor if row["rule"] == "KP031"]
    missed = {row["broker_id"] for row in rows("query", path, "missed")}
    assert {row["broker_id"] for row in told if not row["cannot_tell"]} <= missed <= {row["broker_id"] for row in told}


def test_unanswered_requests_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row]) -> None:
    unanswered = sum(row["response"] is None for row in shown)
    assert unanswered == sum(row["unanswered"] for row in summary["requests"])


def test_leaderless_partitions_are_the_same_everywhere(path: Path, doctor: list[Row], report: Row) -> None:
    last = [row for row in rows("query", path, "offline") if row["valid_to"] is None]
    leaderless = {(row["topic"], row["partition"]) for row in last}
    lasting = [row for row in doctor if row["rule"] == "KP010" and " has no leader" in row["text"]]
    assert {(row["topic"], row["partition"]) for row in lasting} == leaderless
    assert report["timeline"]["leaderless"] == len(leaderless)


def _summed(some: list[Row], key: str, number: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in some:
        found[row[key]] += row[number]
    return found
