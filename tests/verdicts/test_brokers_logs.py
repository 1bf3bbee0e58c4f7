"""The answers about real captures are those of the brokers' own logs: leaders, ISRs, deletions, restarts, refusals."""

import json
import math
from collections import Counter, defaultdict
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows
from conftest import DATA, read_jsonl
from table_truth import WITH_TRUTH, expected_errors, expected_states, name_of

Row = dict[str, Any]

BEING_DELETED = -2
REAL = [path for path in WITH_TRUTH if "external" not in path.name]
"""Captures of a real controller: another program's requests contradict each other on purpose."""


@cache
def answer(path: Path, question: str) -> list[Row]:
    return kproto_rows("query", path, question)


@cache
def summary(path: Path) -> Row:
    return kproto_rows("summary", path)[0]


@cache
def logged(path: Path) -> list[Row]:
    """The control requests of a capture that brokers logged, in order of time.

    The steps say when a capture began, which is when its program said so: packets of 0.2 s before are in it.
    """
    name = name_of(path)
    steps = json.loads((DATA / "captures" / f"{name}.steps.json").read_text())["steps"]
    begin = math.inf if "-cut" in name else steps[0]["t"] - 0.2
    rows = read_jsonl(DATA / "captures" / f"{name}.truth.jsonl.gz")
    found = [
        row
        for row in rows
        if row["api_key"] in (4, 5, 6) and (row["in_capture"] or row["time"] - row["total_time_ms"] / 1000 > begin)
    ]
    return sorted(found, key=lambda row: row["time"])


@cache
def accepted(path: Path) -> list[tuple[Row, Row]]:
    """Each accepted request with each of its partition states; topics that were deleted are another one after that."""
    rows = [row for row in logged(path) if not row["response"]["errorCode"] and row["api_key"] != 5]
    return [(row, state) for row in rows for state in expected_states(row)]


@cache
def incarnations(path: Path) -> dict[tuple[str, int, int], list[tuple[float, Row]]]:
    """The states of each partition by (topic, partition, incarnation), with the time of the log."""
    number: Counter[tuple[str, int]] = Counter()
    gone: set[tuple[str, int]] = set()
    found: dict[tuple[str, int, int], list[tuple[float, Row]]] = defaultdict(list)
    for row, state in accepted(path):
        key = state["topic"], state["partition"]
        if state["leader"] == BEING_DELETED:
            gone.add(key)
            continue
        if key in gone and not (state["leader_epoch"] or state["partition_epoch"]):
            gone.discard(key)
            number[key] += 1
        found[*key, number[key]].append((row["time"], state))
    return found


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_leaders_are_those_that_brokers_were_told(path: Path) -> None:
    told = {
        (topic, partition, state["leader_epoch"], state["leader"])
        for (topic, partition, _), states in incarnations(path).items()
        for _time, state in states
    }
    rows = answer(path, "leader")
    found = {(row["topic"], row["partition"], row["leader_epoch"], row["leader"]) for row in rows}
    assert found == told
    assert len({row[:3] for row in found}) == len(found)


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_the_leader_at_the_end_is_the_one_of_the_highest_epoch(path: Path) -> None:
    newest: dict[tuple[str, int], tuple[int, int]] = {}
    for (topic, partition, _), states in incarnations(path).items():  # later incarnations come later
        newest[topic, partition] = max((state["leader_epoch"], state["leader"]) for _time, state in states)
    gone = deleted(path)
    wanted = {key: leader for key, (_epoch, leader) in newest.items() if key not in gone}
    rows = [row for row in answer(path, "leader") if row["valid_to"] is None]
    assert {(row["topic"], row["partition"]): row["leader"] for row in rows} == wanted


def deleted(path: Path) -> set[tuple[str, int]]:
    """The partitions that are deleted when the capture ends."""
    gone: set[tuple[str, int]] = set()
    for _row, state in accepted(path):
        change = gone.add if state["leader"] == BEING_DELETED else gone.discard
        change((state["topic"], state["partition"]))
    return gone


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_nobody_leads_a_topic_after_its_deletion(path: Path) -> None:
    """Requests of one batch go to several brokers at one time: times of the log are compared with 1 s to spare."""
    gone: dict[tuple[str, int], float] = {}
    for row, state in accepted(path):
        if state["leader"] == BEING_DELETED:
            gone.setdefault((state["topic"], state["partition"]), row["time"])
    again = {key[:2] for key in incarnations(path) if key[2]}
    for row in answer(path, "leader"):
        ended = gone.get((row["topic"], row["partition"]))
        if ended is not None and (row["topic"], row["partition"]) not in again:
            assert row["valid_to"] is not None
            assert seconds(row["valid_to"]) < ended + 1, row


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_changes_of_isrs_are_those_that_brokers_were_told(path: Path) -> None:
    wanted: Counter[tuple[Any, ...]] = Counter()
    for (topic, partition, _), states in incarnations(path).items():
        by_epoch = {
            (state["leader_epoch"], state["partition_epoch"]): frozenset(state["isr"]) for _time, state in states
        }
        isrs = [by_epoch[epoch] for epoch in sorted(by_epoch)]
        for before, after in pairwise(isrs):
            if before != after:
                change = tuple(sorted(before - after)), tuple(sorted(after - before)), len(after)
                wanted[topic, partition, *change] += 1
    found = Counter(
        (row["topic"], row["partition"], tuple(sorted(row["removed"])), tuple(sorted(row["added"])), row["isr_size"])
        for row in answer(path, "isr")
    )
    assert found == wanted


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_deletions_are_those_that_brokers_carried_out(path: Path) -> None:
    stopped: dict[str, set[int]] = defaultdict(set)
    brokers: dict[str, set[int]] = defaultdict(set)
    for row in logged(path):
        if row["api_key"] == 5 and not row["response"]["errorCode"]:
            for state in expected_states(row):
                if state["delete_partition"]:
                    stopped[state["topic"]].add(state["partition"])
                    brokers[state["topic"]].add(row["broker"])
    found = {row["topic"]: row for row in summary(path)["deletions"]}
    assert {topic: set(row["partitions"]) for topic, row in found.items()} == stopped
    assert {topic: set(row["brokers"]) for topic, row in found.items()} == brokers
    whole = {topic for topic, _partition in deleted(path)}
    assert {topic for topic, row in found.items() if row["whole_topic"]} >= whole & found.keys()


@pytest.mark.parametrize("path", WITH_TRUTH, ids=name_of)
def test_errors_are_those_that_brokers_answered(path: Path) -> None:
    wanted: Counter[tuple[int, int, str, int]] = Counter()
    for row in logged(path):
        key = row["api_key"], row["version"]
        if row["response"]["errorCode"]:
            wanted[*key, "request", row["response"]["errorCode"]] += 1
        for error in expected_errors(row):
            wanted[*key, "partition", error["error_code"]] += 1
    rows = answer(path, "errors")
    assert {(row["api_key"], row["api_version"], row["scope"], row["error_code"]): row["n"] for row in rows} == wanted


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_the_leader_at_a_time_is_the_one_told_last_before(path: Path) -> None:
    """At times at which brokers heard nothing for half a second: log and packets tell the time differently."""
    quiet, heard = [], 0.0
    for begin, end in sorted((row["time"] - row["total_time_ms"] / 1000, row["time"]) for row in logged(path)):
        if heard and begin - heard > 1:
            quiet.append((heard + begin) / 2)
        heard = max(heard, end)
    assert len(quiet) > 3
    rows = [
        (seconds(row["valid_from"]), seconds(row["valid_to"]) if row["valid_to"] else math.inf, row)
        for row in answer(path, "leader")
    ]
    for moment in quiet:
        wanted: dict[tuple[str, int], tuple[int, int]] = {}
        leaving: set[tuple[str, int]] = set()  # deleted, or waiting for the deletion at a broker that is down
        for row, state in accepted(path):
            key = state["topic"], state["partition"]
            if row["time"] < moment:
                if state["leader"] == BEING_DELETED:
                    leaving.add(key)
                elif not state["leader_epoch"] and not state["partition_epoch"]:
                    leaving.discard(key)
                wanted[key] = max(wanted.get(key, (-1, -1)), (state["leader_epoch"], state["leader"]))
        found = {
            (row["topic"], row["partition"]): (row["leader_epoch"], row["leader"])
            for begin, end, row in rows
            if begin <= moment < end
        }
        assert found.keys() <= wanted.keys()
        assert {key: found.get(key) for key in wanted.keys() - leaving} == {
            key: wanted[key] for key in wanted.keys() - leaving
        }, moment


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_restarts_are_the_broker_epochs_that_brokers_accepted(path: Path) -> None:
    wanted: dict[int, list[int]] = defaultdict(list)
    for row in logged(path):
        epoch = row["request"].get("brokerEpoch", -1)
        if not row["response"]["errorCode"] and epoch >= 0 and epoch not in wanted[row["broker"]]:
            wanted[row["broker"]].append(epoch)
    found: dict[int, list[int]] = defaultdict(list)
    rows = answer(path, "restarts")
    for row in rows:
        found[row["broker_id"]].append(row["broker_epoch"])
    assert found == {broker: epochs for broker, epochs in wanted.items() if epochs}
    for before, after in pairwise(rows):
        if before["broker_id"] == after["broker_id"]:
            assert before["last_request"] < before["valid_to"] == after["valid_from"]
        else:
            assert before["valid_to"] is None


@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_leaders_asked_for_changes_of_isrs_under_their_leader_epoch_and_the_controller_made_the_others(
    path: Path,
) -> None:
    """From inter-broker protocol 2.8 on in these captures; in a migration the KRaft controller is asked elsewhere."""
    rows = answer(path, "isr")
    asked = {row["asked_by"] for row in rows}
    if path.name.startswith(("ibp-2.8", "ibp-3.2", "ibp-3.9-a.", "ibp-3.9-big")):
        assert None not in asked
        assert {row["asked_by"] for row in rows if row["kind"] == "expand"} <= {
            f"broker {row['leader']}" for row in rows
        }
    for row in rows:
        if row["asked_by"] not in (None, "controller"):
            assert row["asked_by"] == f"broker {row['leader']}"


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
