"""What happened in real captures is what was done to the cluster then, by the program that did it."""

import json
import shlex
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows, run_kproto
from conftest import DATA
from table_truth import CAPTURES, name_of
from windows import Window

import kproto.tables
from kproto.query import ask, open_tables
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.events import ClusterEvent, command_for, events
from kproto.verdicts.facts import Facts

STEPS = [path for path in CAPTURES if name_of(path).startswith("ibp-") and "lossy" not in name_of(path)]
SOON = 15_000_000
"""A broker's session ends within this time, and it registers within this time."""


@cache
def facts_of(path: Path) -> Facts:
    return Facts(resolved_pieces([str(path)]))


def happened(path: Path) -> list[ClusterEvent]:
    return events(facts_of(path))


def done(path: Path) -> list[tuple[int, str, dict[str, Any]]]:
    steps = json.loads((path.parent / f"{name_of(path)}.steps.json").read_text(encoding="utf-8"))["steps"]
    return [(round(step["t"] * 1e6), step["step"], step) for step in steps]


@pytest.mark.parametrize("path", STEPS, ids=name_of)
def test_brokers_leave_and_come_back_as_they_were_killed_shut_down_and_started(path: Path) -> None:
    facts, found = facts_of(path), happened(path)
    for ts, step, of in done(path):
        if not facts.begin < ts < facts.end - SOON or facts.is_kraft_controller:
            continue
        near = [e for e in found if e.broker == of.get("broker") and -SOON < e.ts - ts < SOON]
        if step == "kill -9":
            assert any(e.kind == "broker left" and "killed" in e.text for e in near), step
        elif step.startswith("controlled shutdown"):
            assert any(e.kind == "broker left" and e.text.endswith("a controlled shutdown") for e in near), step
        elif step == "broker started again":
            assert any(e.kind in ("broker back", "registered again") for e in near), step


@pytest.mark.parametrize("path", STEPS, ids=name_of)
def test_topics_are_created_and_deleted_as_they_were(path: Path) -> None:
    facts, found = facts_of(path), happened(path)
    for ts, step, of in done(path):
        if facts.begin + 1_000_000 < ts < facts.end - SOON and not facts.is_kraft_controller:
            kinds = {event.kind for event in found if event.topic == of.get("name")}
            if step == "create topic":
                assert "topic created" in kinds, of["name"]
            elif step == "delete topic":
                assert "topic deleted" in kinds, of["name"]


def test_a_kraft_controller_that_takes_over_creates_nothing(tmp_path: Path) -> None:
    """Its full requests call every partition of a broker new, where a capture shows them first too."""
    window = Window.of(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-migration-a"))
    tables = kproto.tables.read(window.since(window.at(0.374)).write(tmp_path / "window.pcap"))
    found = events(Facts([tables]))
    takeover = min(event.ts for event in found if event.kind == "controller" and "3000" in event.text)
    assert {event.topic for event in found if event.kind == "topic created"} == {"wTAS3KkhGfTdydJTP", "3-Ohcf-6R"}
    with open_tables(tables) as sql:
        answer = ask(sql, "diff", from_ns=(takeover - 1000) * 1000, to_ns=(takeover + 1_000_000) * 1000)
    assert len(answer.rows) > 50
    assert "created" not in {row[answer.columns.index("change")] for row in answer.rows}


@pytest.mark.slow
def test_each_event_has_a_command_that_runs() -> None:
    path = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-big-a")
    commands = {event.kind: event.command for event in happened(path)}
    assert len(commands) > 5
    for command in commands.values():
        words = shlex.split(command_for(command, [str(path)]))
        result = run_kproto(*words[1:])
        assert result.exit_code == 0, (words, result.output)


@pytest.mark.slow
def test_query_events_controllers_and_reassignments_answer_from_a_capture() -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))

    rows = partial(kproto_rows, "query", path)
    every = rows("events")
    assert every == sorted(every, key=lambda row: row["ts"])
    assert path in every[0]["command"]
    assert {row["broker_id"] for row in rows("events", "--broker", "1")} == {1}
    assert [(row["controller_epoch"], row["controller_id"]) for row in rows("controllers")] == [(1, 2), (2, 0), (3, 2)]
    moved = rows("reassignments", "--topic", "jyf*")
    assert {(row["partition"], tuple(row["added"]), tuple(row["removed"])) for row in moved} == {
        (0, (2,), (0,)), (1, (0,), ()), (2, (), (2,)),
    }  # fmt: skip
    left = {row["broker_epoch"]: row["left_how"] for row in rows("restarts", "--broker", "0")}
    assert left[401] == "a controlled shutdown"
    assert (left[64] or "").startswith("killed")


def test_the_doctor_begins_with_what_happened() -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-big-a"))
    lines = run_kproto("doctor", path, "--events").stdout.splitlines()
    assert "Controller" in lines[0]
    assert lines[1].strip().startswith(f"kproto query {path} controllers")
    assert DATA.name in path
    result = run_kproto("doctor", path, "--events", "--format", "json")
    assert "query CAPTURE events" in result.stderr
