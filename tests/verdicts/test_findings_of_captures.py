"""The findings that wake people are, for every real capture, those that are written down beside it."""

import json
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from conftest import DATA, read_jsonl
from table_truth import expected_states

import kproto.tables
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

CAPTURES = DATA / "captures"
WRITTEN: dict[str, list[list[Any]]] = json.loads((CAPTURES / "findings.json").read_text())
WITH_LOGS = [name for name in WRITTEN if (CAPTURES / f"{name}.truth.jsonl.gz").exists() and name.startswith("ibp-")]


@cache
def found(name: str) -> list[Finding]:
    return findings(Facts([kproto.tables.read(CAPTURES / f"{name}.pcap.gz")]))


def test_every_capture_has_its_findings_written_down() -> None:
    there = {
        str(path.relative_to(CAPTURES)).removesuffix(".pcap.gz")
        for folder in (CAPTURES, CAPTURES / "bugs")
        for path in folder.glob("*.pcap.gz")
    }
    assert there == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_written_findings_come_and_nothing_else(name: str) -> None:
    alarms = [[f.rule, f.broker, f.topic, f.partition] for f in found(name) if f.severity != "note"]
    assert sorted(alarms, key=str) == sorted(WRITTEN[name], key=str)


@pytest.mark.parametrize("name", WITH_LOGS)
def test_unclean_elections_are_those_of_the_brokers_logs(name: str) -> None:
    """A leader outside the ISR of the state whose partition epoch is one less."""
    states: dict[tuple[str, int, bytes | None], dict[int, Any]] = {}
    for row in read_jsonl(CAPTURES / f"{name}.truth.jsonl.gz"):
        if row["api_key"] in (4, 6) and not row["response"]["errorCode"]:
            for state in expected_states(row):
                if state["leader"] != -2:
                    key = state["topic"], state["partition"], None
                    states.setdefault(key, {})[state["partition_epoch"]] = state
    unclean = set()
    for (topic, partition, _), by_epoch in states.items():
        for epoch, state in by_epoch.items():
            before = by_epoch.get(epoch - 1)
            if before and state["leader"] >= 0 and state["leader"] not in before["isr"]:
                unclean.add((topic, partition))
    assert {(f.topic, f.partition) for f in found(name) if f.rule == "KP011"} == unclean


@pytest.mark.parametrize("name", [name for name in WITH_LOGS if name.startswith(("ibp-2.", "ibp-3."))])
def test_restarts_are_those_of_the_brokers_logs(name: str) -> None:
    """Each logged broker epoch above the one before, in one mode, is another registration."""
    epochs: dict[tuple[int, bool], list[int]] = {}
    for row in read_jsonl(CAPTURES / f"{name}.truth.jsonl.gz"):
        epoch = row["request"].get("brokerEpoch", -1)
        if row["in_capture"] and row["api_key"] in (4, 5, 6) and epoch >= 0 and not row["response"]["errorCode"]:
            seen = epochs.setdefault((row["broker"], row["request"].get("isKRaftController", False)), [])
            if epoch not in seen:
                seen.append(epoch)
    wanted: dict[int, int] = {}
    for (broker, _mode), seen in epochs.items():
        if len(seen) > 1:
            wanted[broker] = wanted.get(broker, 0) + len(seen) - 1
    assert {f.broker: f.count for f in found(name) if f.rule == "KP035"} == wanted


@pytest.mark.parametrize(
    ("broken", "repaired", "rule"),
    [("KAFKA-9212-2.3.1", "KAFKA-9212-2.4.1", "KP012"), ("KAFKA-13972-3.2.0", "KAFKA-13972-3.9.1", "KP041")],
)
def test_bugs_of_kafka_are_found_in_the_broken_release_and_not_in_the_repaired_one(
    broken: str, repaired: str, rule: str
) -> None:
    assert {f.rule for f in found(f"bugs/{broken}") if f.severity != "note"} == {rule}
    assert [f for f in found(f"bugs/{repaired}") if f.severity != "note"] == []


def test_what_rests_on_absence_cannot_be_told_where_the_recorder_dropped_packets() -> None:
    tables = kproto.tables.read(CAPTURES / "bugs/KAFKA-13972-3.2.0.pcap.gz")
    captures = tables["captures"].to_pylist()
    dropped = pa.Table.from_pylist([row | {"dropped_packets": 3} for row in captures], tables["captures"].schema)
    (stray, *_more) = [f for f in findings(Facts([tables])) if f.rule == "KP041"]
    requests = tables["requests"].to_pylist()
    for row in requests:  # over one connection that lasts, nothing passes unseen
        if row["ts"].timestamp() * 1e6 > stray.first + 1_000_000:
            row["conn_id"] = bytes(reversed(row["conn_id"]))
    apart = pa.Table.from_pylist(requests, tables["requests"].schema)
    found = findings(Facts([tables | {"captures": dropped, "requests": apart}]))
    strays = [f for f in found if f.rule == "KP041"]
    assert strays
    assert {(f.severity, bool(f.cannot_tell)) for f in strays} == {("note", True)}
    assert [
        f.text
        for f in found
        if f.rule == "KP061" and "had dropped 3 packets by then" in f.text and f.severity == "warning"
    ]
