"""State-change logs of KRaft's brokers tell the leaders that the metadata log of the same run holds, and no other."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from state_runs import files_of, logs_of

import kproto.tables
from kproto.cli import main
from kproto.tables.resolved import resolved_tables

if TYPE_CHECKING:
    from pathlib import Path

RUNS = ["kraft-3.9.1", "kraft-4.1.0"]


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[list[Any]], Path]:
    """Topic id, partition, leader epoch, partition epoch, leader and ISR of each record; the brokers' logs."""
    for name, data in logs_of(request.param, "INFO").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return json.loads(files_of(request.param)["truth.json"]), tmp_path


def test_leaders_are_those_of_the_metadata_log_and_no_isr_is_wrong(run: tuple[list[list[Any]], Path]) -> None:
    truth, folder = run
    leaders: dict[Any, set[int]] = defaultdict(set)
    isrs: dict[Any, list[int]] = {}
    for row in resolved_tables(kproto.tables.read(folder))["partition_states"].to_pylist():
        key = row["topic_id"], row["partition"], row["leader_epoch"]
        leaders[key].add(row["leader"])
        if row["isr"] is not None:
            assert isrs.setdefault((*key, row["partition_epoch"]), sorted(row["isr"])) == sorted(row["isr"])
    keys = [(urlsafe_b64decode(row[0] + "=="), *row[1:3]) for row in truth]
    assert dict(leaders) == {key: {row[4]} for key, row in zip(keys, truth, strict=True)}
    told = {(*key, row[3]): row[5] for key, row in zip(keys, truth, strict=True)}
    assert isrs.items() <= told.items()
    assert len(isrs) > len(told) / 2


def test_no_controller_is_invented(run: tuple[list[list[Any]], Path]) -> None:
    _truth, folder = run
    for words in (["query", str(folder), "controllers"], ["query", str(folder), "restarts"]):
        result = CliRunner().invoke(main, [*words, "--format", "json", "--log-zone", "UTC"])
        assert (result.exit_code, result.stdout.strip()) == (0, ""), result.stderr
    summary = json.loads(CliRunner().invoke(main, ["summary", str(folder), "--format", "json"]).stdout)
    assert (summary["controllers"], summary["zombies"], summary["migration"]) == ([], [], None)
    warned = CliRunner().invoke(main, ["doctor", str(folder), "--format", "json"]).stdout
    rules = {
        row["rule"] for row in map(json.loads, warned.splitlines()) if row.get("severity") in ("warning", "trouble")
    }
    assert rules <= {"KP010", "KP016", "KP022"}  # brokers were killed all the time
