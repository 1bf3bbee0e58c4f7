"""Tables that Spark made give the answers of the captures: to every question, and of the doctor."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from commands import kproto_rows
from fleet_faults import fleet_of
from table_truth import CAPTURES, name_of

from kproto.generate import write_captures
from kproto.pipeline import OutputDirectory, analyze
from kproto.query import QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def answers(source: Path, *words: str) -> list[str]:
    """The JSON lines that a command gives about a source, sorted."""
    command, *rest = words
    return sorted(json.dumps(_plain(row), sort_keys=True) for row in kproto_rows(command, source, *rest))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """An answer without who asked for a change, which stored tables do not hold, and without the name of its source."""
    return {name: value for name, value in row.items() if name not in ("asked_by", "evidence", "command")}


def same(capture: Path, spark: SparkSession, tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "tables")
    analyze(spark, [str(capture)], out)
    assert answers(out.path, "doctor") == answers(capture, "doctor")
    for question in QUESTIONS:
        words = ["query", question, *(["--from", "2020-01-01T00:00:00Z"] if question == "diff" else [])]
        assert answers(out.path, *words) == answers(capture, *words), question


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_of_a_capture(capture: Path, spark: SparkSession, tmp_path: Path) -> None:
    same(capture, spark, tmp_path)


def test_of_a_fresh_fleet(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("KPROTO_FLEET_SEED") or secrets.randbelow(1_000_000))
    print(f"KPROTO_FLEET_SEED={seed}")
    (tmp_path / "fleet").mkdir()
    (written,) = write_captures(fleet_of(seed), tmp_path / "fleet").files
    same(written, spark, tmp_path)
