"""``kproto audit``: text, JSON, Parquet and exit codes."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from conftest import DATA

from kproto.cli import main
from kproto.cli.audit import command
from kproto.errors import ConfigurationError
from kproto.tables.auditing import AUDIT

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CAPTURE = str(DATA / "captures" / "ibp-2.6-a.pcap.gz")
REFUSES = 'import sys; [print(\'{"ok": false, "error": "bad"}\', flush=True) for _ in sys.stdin]'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments], prog_name="kproto")


def test_agreement_is_said_and_ends_with_zero(tmp_path: Path) -> None:
    found = run(CAPTURE, "--write", str(tmp_path / "audit.parquet"))
    assert found.exit_code == 0
    assert "561 frames, no frame read in two ways (cython, construct)" in found.output
    written = pq.read_table(tmp_path / "audit.parquet")
    assert written.schema.equals(AUDIT)
    assert sum(written["frames"].to_pylist()) == 561


def test_mismatches_are_listed_and_end_with_one(tmp_path: Path) -> None:
    program = tmp_path / "oracle.py"
    program.write_text(REFUSES)
    oracle = f"{sys.executable} {program}"
    found = run(CAPTURE, "--oracle", oracle)
    assert found.exit_code == 1
    assert "561 frames read in two ways (cython, construct, kafka)" in found.output
    assert "the first 20 of 561" in found.output
    told = run(CAPTURE, "--oracle", oracle, "--sample", "0.1", "--format", "json")
    assert told.exit_code == 1
    answer = json.loads(told.output)
    assert answer["frames"] == len(answer["mismatches"]) == sum(row["frames"] for row in answer["counts"]) < 200
    assert {row["error_kafka"] for row in answer["mismatches"]} == {"bad"}


@pytest.mark.parametrize("looking", [True, False], ids=["terminal", "pipe"])
def test_a_program_that_is_slow_to_answer_is_named_on_a_terminal(
    looking: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kproto.tables.kafka_decoder._PATIENCE_SECONDS", 0.0)
    shown = io.StringIO()
    shown.isatty = lambda: looking  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", shown)
    program = tmp_path / "oracle.py"
    program.write_text("import sys, time\nsys.stdin.readline()\ntime.sleep(0.5)\n")
    with pytest.raises(ConfigurationError, match="instead of an answer"):
        command.main([CAPTURE, "--oracle", f"{sys.executable} {program}"], standalone_mode=False)
    assert ("waiting for the first answer of --oracle" in shown.getvalue()) == looking


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.pcap").write_text("no capture")
    astray = run(CAPTURE, "--write", str(tmp_path / "nowhere" / "audit.parquet"))
    assert astray.exit_code == 2
    assert astray.stderr.startswith("kproto: there is no directory ")
    assert astray.stderr.endswith("nowhere for audit.parquet; make it, or name another file\n")
    alone = run(str(tmp_path / "notes.pcap"))
    assert alone.exit_code == 2
    assert "notes.pcap" in alone.output
    beside = run(CAPTURE, str(tmp_path / "notes.pcap"))
    assert beside.exit_code == 0
    assert "warning: " in beside.output


def test_pieces_of_a_capture_that_were_not_read_are_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap.gz"
    cut.write_bytes((DATA / "captures" / "ibp-2.6-a.pcap.gz").read_bytes()[:20_000])
    found = run(str(cut))
    assert found.exit_code == 0
    assert found.stderr.startswith("warning: cut.pcap.gz: the compressed file is cut off, at byte ")
    assert len(found.stderr.splitlines()) == 1
    (reason,) = json.loads(run(str(cut), "--format", "json").stdout)["bad_inputs"]
    assert "cut.pcap.gz: the compressed file is cut off, at byte " in reason


def test_a_disk_that_is_full_is_named_and_nothing_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "full.parquet").symlink_to("/dev/full")
    found = run(CAPTURE, "--write", str(tmp_path / "full.parquet"))
    assert found.exit_code == 2
    assert found.stderr == f"kproto: {tmp_path}/full.parquet: no space left on device\n"
    assert (tmp_path / "full.parquet").is_char_device()
