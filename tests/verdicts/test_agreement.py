"""inspect, summary, query, doctor and the tables give one answer to one question, on captures and generated fleets."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from fleet_faults import fleet_of
from table_truth import CAPTURES

from kproto.cli import main
from kproto.generate import write_captures

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]

STALE_BROKER_EPOCH = 77
FLEETS = ("a fresh fleet", "another fresh fleet")
"""Of a seed that is printed with a failure; KPROTO_FLEET_SEED repeats it. The tests' ids do not tell it: processes that
share a run must have the same."""


def rows(command: str, path: Path, *more: str) -> list[Row]:
    """The JSON lines that a command prints about a capture."""
    result = CliRunner().invoke(main, [command, str(path), *more, "--format", "json"], prog_name="kproto")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def count(path: Path, sql: str) -> int:
    ((number,),) = (row.values() for row in rows("query", path, "--sql", sql))
    return int(number)


@pytest.fixture(scope="module", params=[*CAPTURES, *FLEETS], ids=lambda param: str(getattr(param, "name", param)))
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


def test_zombies_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row], doctor: list[Row]) -> None:
    stale = [row for row in rows("query", path, "stale") if row["reason"] == "controller_epoch_regressed"]
    zombies = summary["zombies"]
    assert sum(row["requests"] for row in zombies) == len(stale)
    refused = sum(bool(row["error_code"]) for row in stale)
    assert sum(row["refused"] for row in zombies) == refused
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
    told = {row["broker"] for row in doctor if row["rule"] == "KP031"}
    assert told <= {row["broker"] for row in rows("query", path, "missed")}


def test_unanswered_requests_are_the_same_everywhere(path: Path, summary: Row, shown: list[Row]) -> None:
    unanswered = sum(row["response"] is None for row in shown)
    assert unanswered == sum(row["unanswered"] for row in summary["requests"])


def test_leaderless_partitions_are_the_same_everywhere(path: Path, doctor: list[Row]) -> None:
    last = [row for row in rows("query", path, "leader") if row["valid_to"] is None and row["leader"] == -1]
    leaderless = {(row["topic"], row["partition"]) for row in last}
    assert {(row["topic"], row["partition"]) for row in doctor if row["rule"] == "KP010"} <= leaderless


def _summed(some: list[Row], key: str, number: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in some:
        found[row[key]] += row[number]
    return found
