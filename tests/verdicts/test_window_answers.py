"""What questions, the report, the summary and top say of a capture does not depend on its window.

The rules of the doctor are held to the same relations in ``test_windows.py``. A fact is known by what it is about,
without its time; facts that need a state before them are asked for only where the window has one.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from table_truth import CAPTURES, name_of
from windows import Window

import kproto.tables
from kproto.capture import CaptureReader, CaptureSummary
from kproto.errors import CaptureError
from kproto.query import ask, open_tables
from kproto.report.facts import report_facts
from kproto.tables.resolved import resolved_tables
from kproto.verdicts.live import LiveFold
from kproto.verdicts.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterable

SECOND_US = 1_000_000
SLOWER = 120
# An external program's requests contradict each other on purpose.
REAL = [path for path in CAPTURES if not name_of(path).startswith("external")]
few = settings(max_examples=4 if settings.default.derandomize else 15)
some_captures = st.sampled_from(REAL)
some_part = st.integers(1, 99).map(lambda percent: percent / 100)

ABOUT: Final = {
    "leader": ("topic", "partition", "leader", "leader_epoch"),
    "isr": ("topic", "partition", "kind", "removed", "added", "isr_size", "under_replicated", "leader"),
    "restarts": ("broker", "broker_epoch"),
    "controllers": ("controller_id", "controller_epoch", "mode"),
    "stale": ("controller_id", "controller_epoch", "broker"),
    "flaps": ("topic", "partition"),
    "behind": ("broker", "topic", "partition"),
}
"""What a row of each question is about. ``isr`` needs the state before."""

NEEDS_A_STATE_BEFORE: Final = "isr"


class Said(NamedTuple):
    """What surfaces say: by surface each fact with its times in us."""

    facts: dict[str, dict[tuple[Any, ...], list[int]]]
    known: dict[tuple[str, int], int]
    """When each partition is first told."""


def _flat(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _us(value: Any) -> int:
    return int(value.timestamp() * SECOND_US) if isinstance(value, datetime) else int(value)


def said_of(window: Window) -> Said | None:
    """What all surfaces say; None: the window has no control request."""
    with TemporaryDirectory() as directory:
        path = window.write(Path(directory) / "window.pcap")
        try:
            tables = kproto.tables.read(path)
        except CaptureError:
            return None
    facts: dict[str, dict[tuple[Any, ...], list[int]]] = {}
    with open_tables(tables) as sql:
        for question, names in ABOUT.items():
            answer = ask(sql, question)
            of = facts.setdefault(question, {})
            for values in answer.rows:
                row = dict(zip(answer.columns, values, strict=True))
                time = next((row[name] for name in ("valid_from", "ts", "first_ts") if row.get(name)), 0)
                of.setdefault(tuple(_flat(row[name]) for name in names), []).append(_us(time))
    line = report_facts(tables)["timeline"]
    states, partitions = line["states"], line["partitions"]
    drawn = facts.setdefault("report", {})
    known: dict[tuple[str, int], int] = {}
    for place, leader, epoch, ts in zip(*(states[n] for n in ("row", "leader", "leader_epoch", "ts")), strict=True):
        partition = line["topics"][partitions["topic"][place]], partitions["partition"][place]
        drawn.setdefault((*partition, leader, epoch), []).append(ts)
        known[partition] = min(ts, known.get(partition, ts))
    summary = summarize(iter([resolved_tables(tables)]))
    facts["summary"] = {(row["controller_id"], row["controller_epoch"]): [] for row in summary["zombies"]}
    return Said(facts, known)


@cache
def whole(path: Path) -> tuple[Window, Said]:
    window = Window.of(path)
    said = said_of(window)
    assert said is not None
    return window, said


def new_in(part: Said, every: Said) -> list[tuple[str, tuple[Any, ...]]]:
    return [(surface, fact) for surface, of in part.facts.items() for fact in of if fact not in every.facts[surface]]


def lost_in(part: Said, every: Said, since_us: int, until_us: int) -> Iterable[tuple[str, tuple[Any, ...]]]:
    for surface, of in every.facts.items():
        for fact, times in of.items():
            inside = [ts for ts in times if since_us <= ts <= until_us]
            if surface == NEEDS_A_STATE_BEFORE:
                inside = [ts for ts in inside if part.known.get((fact[0], fact[1]), ts) < ts]
            if inside and fact not in part.facts[surface]:
                yield surface, fact


@few
@given(some_captures, some_part)
def test_a_capture_that_begins_later_says_nothing_new_and_loses_nothing(path: Path, part: float) -> None:
    window, every = whole(path)
    begin = window.at(part)
    said = said_of(window.since(begin))
    if said is not None:
        assert new_in(said, every) == []
        assert list(lost_in(said, every, begin // 1000 + 2 * SECOND_US, 1 << 62)) == []


@few
@given(some_captures, some_part)
def test_a_capture_that_ends_earlier_says_nothing_new_and_loses_nothing(path: Path, part: float) -> None:
    window, every = whole(path)
    end = window.at(part)
    said = said_of(window.until(end))
    if said is not None:
        assert new_in(said, every) == []
        # an answer may take seconds, and without it a request is not known to be accepted
        assert list(lost_in(said, every, 0, end // 1000 - 10 * SECOND_US)) == []


@pytest.mark.parametrize("path", REAL[::5], ids=name_of)
def test_slower_time_changes_no_answer_but_times(path: Path) -> None:
    window, every = whole(path)
    said = said_of(window.slower(SLOWER))
    assert said is not None
    for surface in set(ABOUT) - {"flaps", "behind"} | {"report", "summary"}:  # flaps and behind have limits in seconds
        assert said.facts[surface].keys() == every.facts[surface].keys(), surface


@few
@given(some_captures, st.integers(0, 1 << 32))
def test_lost_packets_add_no_leader_and_no_restart(path: Path, seed: int) -> None:
    window, every = whole(path)
    said = said_of(window.losing(0.001, Random(seed)))
    assert said is not None
    assert [found for found in new_in(said, every) if found[0] != NEEDS_A_STATE_BEFORE] == []


@few
@given(some_captures, some_part)
@example(next(path for path in CAPTURES if path.name == "ibp-2.4-IV1-a.pcap.gz"), 0.01)
def test_top_finds_what_the_doctor_finds_at_each_time(path: Path, part: float) -> None:
    window, _every = whole(path)
    with TemporaryDirectory() as directory:
        written = window.until(window.at(part)).write(Path(directory) / "window.pcap")
        try:
            tables = kproto.tables.read(written)
        except CaptureError:
            return
        data = written.read_bytes()
    with open_tables(tables) as sql:
        doctor = {_text_of(row[1], row[3]) for row in ask(sql, "findings").rows}
    summary = CaptureSummary()
    reader = CaptureReader(summary=summary)
    reader.begin_file(written.name)
    fold = LiveFold(3600, {"": summary}, thrifty=False)
    for at in range(0, len(data), len(data) // 3 + 1):
        fold.add(reader.feed(data[at : at + len(data) // 3 + 1]))
        fold.snapshot()
    fold.add(reader.end())
    assert {_text_of(finding.rule, finding.text) for finding in fold.snapshot().findings} == doctor


def _text_of(rule: str, text: str) -> tuple[str, str]:
    """A finding; of one about the capture its rule alone: other APIs tell of more connections that they are Kafka's."""
    return rule, "" if rule.startswith("KP06") else text
