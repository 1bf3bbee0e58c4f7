"""``kproto analyze`` as people call it: filters, formats, and one line for what is wrong."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow.parquet as pq
import pytest
from commands import run_kproto
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from table_truth import CAPTURES, expected_states, truth_rows

from kproto.cli.analyze import _explained
from kproto.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = next(path for path in CAPTURES if path.name.startswith("ibp-2.8-a"))
TOPIC = max((state["topic"] for row in truth_rows("ibp-2.8-a") for state in expected_states(row)), key=len)

run = partial(run_kproto, "analyze")


@pytest.mark.spark
@pytest.mark.parametrize("options", [["--controller", "0"], ["--errors"], ["--partition", "Z-3"], ["--ports", "19093"]])
def test_filters_select_the_requests_that_inspect_shows(
    spark: SparkSession, options: list[str], tmp_path: Path
) -> None:
    result = run(CAPTURE, "--out", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    inspected = run_kproto("inspect", CAPTURE, "--format", "json", *options)
    shown = sorted(json.loads(line)["correlation_id"] for line in inspected.stdout.splitlines())
    found = pq.read_table(tmp_path / "out" / "requests", columns=["correlation_id"])["correlation_id"].to_pylist()
    assert sorted(found) == shown != []


@pytest.mark.spark
def test_follow_adds_what_arrives_until_ctrl_c(tmp_path: Path) -> None:
    folder, out = tmp_path / "recordings", tmp_path / "tables"
    folder.mkdir()
    (folder / "first.pcap.gz").write_bytes(CAPTURE.read_bytes())
    command = [
        sys.executable,
        "-m",
        "kproto",
        "analyze",
        "--follow",
        str(folder),
        "--out",
        str(out),
        "--master",
        "local[1]",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as following:
        assert following.stdout is not None
        try:
            assert following.stdout.readline().startswith("1 capture, ")
            other = next(path for path in CAPTURES if path.name.startswith("ibp-0.9.0-a"))
            (folder / "second.pcap.gz.part").write_bytes(other.read_bytes())
            (folder / "second.pcap.gz.part").rename(folder / "second.pcap.gz")
            assert following.stdout.readline().startswith("2 captures, ")
        finally:
            following.send_signal(signal.SIGINT)
        assert following.wait(120) == 0
    assert len(pq.read_table(out / "captures")) == 2


def refused(*arguments: object) -> str:
    """The one line that explains why nothing was done."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("kproto")
    return line


@pytest.mark.spark
def test_the_summary_is_plain_text_in_a_pipe(spark: SparkSession, tmp_path: Path) -> None:
    result = run(CAPTURE, "--out", tmp_path / "out", "--api", "LeaderAndIsr", "--broker", 1)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "\n\nControllers\n  controller  epoch" in result.stdout
    titles = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles[0] == "Captures"
    assert titles[-1] == "Tables"
    requests = pq.read_table(tmp_path / "out" / "requests").to_pylist()
    logged = [row for row in truth_rows("ibp-2.8-a") if row["api_key"] == 4 and row["broker"] == 1]
    assert len(requests) >= len(logged) > 10
    assert {(row["api_key"], row["broker_id"]) for row in requests} == {(4, 1)}
    answers = {row["response_frame_id"] for row in requests} - {None}
    frames = pq.read_table(tmp_path / "out" / "frames").to_pylist()
    assert {frame["frame_id"] for frame in frames} == {row["frame_id"] for row in requests} | answers
    bodies = pq.read_table(tmp_path / "out" / "bodies").to_pylist()
    assert {body["body_id"] for body in bodies} == {frame["body_id"] for frame in frames}


@pytest.mark.spark
def test_bad_inputs_are_warned_of_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    (recorded / "good.pcap").write_bytes(gzip.decompress(CAPTURE.read_bytes())[:-3])
    (recorded / "garbage.pcap").write_bytes(b"\x01" * 5000)
    (recorded / "empty.pcapng").touch()
    out = tmp_path / "out"
    result = run(recorded, "--out", out)
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"warning: {recorded / 'empty.pcapng'}: an empty file; nothing was recorded in it; skipped")
    assert f"with 2 more bad inputs in 3 files; all stand in the table bad_inputs: kproto query {out}" in line
    bad = pq.read_table(out / "bad_inputs").to_pylist()
    assert {row["file"] for row in bad} == {"good.pcap", "garbage.pcap", "empty.pcapng"}
    again = run(recorded, "--out", out)
    assert again.stderr.splitlines() == [line]
    assert f"in {out}: 1 capture, " in result.stdout
    assert "; nothing was new" in again.stdout


def test_what_cannot_be_read_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in "ab":
        (tmp_path / host).mkdir()
    (tmp_path / "a" / "control.pcap").write_bytes(gzip.decompress(CAPTURE.read_bytes()))
    empty, gone, out = tmp_path / "b" / "control.pcap", tmp_path / "gone", tmp_path / "out"
    empty.touch()
    for named in ([tmp_path / "a", empty], [empty.parent]):
        assert run(*named, "--out", out).stderr == f"kproto: {empty}: an empty file; nothing was recorded in it\n"
    assert f"{gone} is none" in run("--follow", gone, "--out", out).stderr

    def refuse(name: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr("kproto.tables.files.open_file", refuse)
    assert run(empty, "--out", out).stderr.startswith(f"kproto: {empty}: permission denied; ")


@pytest.mark.spark
def test_a_topic_is_chosen_in_requests_and_states_and_the_summary_is_json(spark: SparkSession, tmp_path: Path) -> None:
    named = ("--cluster", "east", "--capture-point", "broker-1")
    result = run(CAPTURE, "--out", tmp_path / "out", "--topic", TOPIC[:-3] + "*", "--format", "json", *named)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    named_rows = [row for row in truth_rows("ibp-2.8-a") if TOPIC in {state["topic"] for state in expected_states(row)}]
    assert summary["tables"]["requests"] >= len(named_rows) > 0
    assert [row["capture"] for row in summary["captures"]] == ["east/broker-1"]
    assert {row["api"] for row in summary["requests"]} == {"LeaderAndIsr", "StopReplica", "UpdateMetadata"}
    assert {row["error"] for row in summary["requests"]} <= {"NONE", None}
    states = pq.read_table(tmp_path / "out" / "partition_states").to_pylist()
    assert {state["topic"] for state in states} == {TOPIC}


@pytest.mark.spark
def test_filters_that_nothing_passes_are_told_and_leave_no_tables(spark: SparkSession, tmp_path: Path) -> None:
    line = refused(CAPTURE, "--out", tmp_path / "out", "--until", "2020-01-01")
    assert "passes the filters" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_a_capture_without_control_traffic_says_what_to_try(spark: SparkSession, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    assert "a capture without packets; was the capture filter right?" in refused(empty, "--out", tmp_path / "out")


def test_wrong_input_is_told_before_spark_starts(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no capture")
    out = tmp_path / "out"
    assert "no such file" in refused(tmp_path / "absent.pcap", "--out", out)
    assert "not a capture" in refused(CAPTURE, text, "--out", out)
    unread = tmp_path / "unread"
    unread.mkdir()
    (unread / "garbage.pcap").write_bytes(b"\x01" * 5000)
    assert "garbage.pcap: not a capture" in refused(unread, "--out", out)
    assert "is a file" in refused(CAPTURE, "--out", text)
    assert "/proc/x: tables cannot be written there: no such file" in refused(CAPTURE, "--out", "/proc/x")
    assert "a file URI names no other host" in refused(CAPTURE, "--out", "file://host/tables")
    assert "pyarrow knows no such scheme" in refused(CAPTURE, "--out", "carrier-pigeon://coop/tables")
    assert not Path("carrier-pigeon:").exists()
    assert "holds something else (notes.txt, unread)" in refused(CAPTURE, "--out", tmp_path.as_uri())
    assert "holds something else (notes.txt, unread)" in refused(CAPTURE, "--out", tmp_path)
    assert "standard input" in refused("-", "--out", out)
    assert "is the directory of --out; name a file with --report" in refused(CAPTURE, "--out", out, "--report", out)
    assert "try kproto inspect --api Metadata" in refused(CAPTURE, "--out", out, "--api", "Metadata")
    assert not out.exists()


@pytest.mark.parametrize(("package", "extra"), [("pyspark", "pipeline"), ("pyarrow", "tables")])
def test_a_missing_package_names_the_extra(package: str, extra: str, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from kproto.cli import main\n"
        f"main(['analyze', {str(CAPTURE)!r}, '--out', {str(tmp_path / 'out')!r}])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2
    assert result.stderr == f"kproto: this needs {package}, which is not installed; try: {install_command(extra)}\n"


def test_help_needs_neither_spark_nor_java() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from kproto.cli import main\nmain(['analyze', '--help'])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0
    assert "Examples:" in result.stdout


@pytest.mark.parametrize("error", [Py4JError("a JavaError of two\n\tat lines"), PySparkException("a SparkException")])
def test_a_failure_inside_spark_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(click.ClickException, match=r"^Spark failed: a \w+( of two)?; --log FILE keeps") as told,
        _explained(Path("tables")),
    ):
        raise error
    assert told.value.__cause__ is error


def test_a_failure_that_came_of_ctrl_c_is_ctrl_c() -> None:
    failure = Py4JError("the connection is gone")
    failure.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), _explained(Path("tables")):
        raise failure


def test_a_full_disk_is_told_with_the_directory_and_what_to_try() -> None:
    inside = PySparkException("OSError: [Errno 28] Error writing bytes to file. Detail: No space left on device")
    for error in (inside, OSError(errno.ENOSPC, "Error writing bytes to file")):
        with (
            pytest.raises(click.ClickException, match=r"^tables: no space left on device.*df -h.*--out"),
            _explained(Path("tables")),
        ):
            raise error
    with pytest.raises(PermissionError), _explained(Path("tables")):
        raise PermissionError(errno.EACCES, "Permission denied")
