"""In the JSON of every command a broker's id is ``broker_id``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kraft_runs
import pytest
from commands import run_kproto
from conftest import DATA

from kproto.cli import COMMANDS, main
from kproto.generate import PlannedFleet, findings_truth
from kproto.query import QUESTIONS
from kproto.verdicts.doctor import Finding

CAPTURES = [DATA / "captures" / "ibp-3.9-a.pcap.gz", DATA / "captures" / "external-controller-a.pcap.gz"]
ASKED = ["inspect", "doctor", "summary", "check"]
OTHERS = {"metadata", "replay", "analyze", "decode", "generate"}
"""Commands whose JSON has no broker's id, or Kafka's own names, or which need a cluster."""


def keys(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def printed(*arguments: str) -> list[tuple[str, Any]]:
    result = run_kproto(*arguments, "--format", "json")
    assert result.exit_code in (0, 1), result.stderr
    return [pair for line in result.stdout.splitlines() for pair in keys(json.loads(line))]


def has_json(name: str) -> bool:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [option for option in command.params if "--format" in option.opts]
    return any(isinstance(option.type, click.Choice) and "json" in option.type.choices for option in options)


def test_every_command_with_json_is_asked() -> None:
    assert {name for name in COMMANDS if has_json(name)} == {*ASKED, "query", *OTHERS}


@pytest.mark.parametrize("command", ASKED)
def test_a_commands_json_has_broker_id(command: str) -> None:
    found = [pair for path in CAPTURES for pair in printed(command, str(path))]
    assert "broker" not in {key for key, _value in found}
    assert command == "check" or any(key == "broker_id" and isinstance(value, int) for key, value in found)


@pytest.mark.slow
@pytest.mark.parametrize("path", [CAPTURES[1], kraft_runs.capture("kraft-4.1-b")], ids=["ZooKeeper", "KRaft"])
@pytest.mark.usefixtures("read_once")
def test_an_answers_json_has_broker_id(path: Path) -> None:
    named = set()
    for question in QUESTIONS:
        more = ["--from", "2020-01-01"] if question == "diff" else []
        found = {key for key, _value in printed("query", str(path), question, *more)}
        assert "broker" not in found, question
        named |= found
    assert "broker_id" in named


def test_an_answers_table_for_a_spreadsheet_has_broker_id() -> None:
    result = run_kproto("query", CAPTURES[0], "restarts", "--format", "csv")
    assert result.stdout.splitlines()[0].startswith("cluster,broker_id,address")


def test_a_query_of_ones_own_keeps_its_names() -> None:
    assert ("broker", 1) in printed("query", str(CAPTURES[0]), "--sql", "SELECT 1 AS broker")


def test_findings_and_what_was_planted_have_broker_id() -> None:
    assert Finding("KP035", "note", "", 0, 0, broker=7).to_json()["broker_id"] == 7
    fleet = PlannedFleet(seed=2, brokers=6, topics=20, partitions=60, plants=("behind",))
    found = [*keys(findings_truth(fleet).to_json())]
    assert "broker" not in {key for key, _value in found}
    assert any(key == "broker_id" and value is not None for key, value in found)
