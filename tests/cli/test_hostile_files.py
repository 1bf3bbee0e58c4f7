"""Baselines, settings and summaries are data: whatever a file holds, or is, the answer is one line and no traceback."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from commands import run_kproto
from conftest import DATA
from packets import pcap, read_pcap
from tasks_here import TasksHere

from kproto.cli import main
from kproto.pipeline import OutputDirectory, analyze
from kproto.pipeline.locks import _owner_in
from kproto.tables.stored import SUMMARY, current_tables

EVIL = "a\x1b[31m\u202e\x9b2J\nERROR forged"
DEEP = b"[" * 100_000
ANY = [b"", b"\xff\xfe\x00", DEEP, b"1" * 5_000, b"null", b"{}", b'"text"', b"[1]", json.dumps({EVIL: EVIL}).encode()]


def is_refused(result: Result) -> bool:
    """Whether a command ended with one line of an error that is fit for a terminal."""
    lines = result.stderr.splitlines()
    text = lines[-1] if lines else ""
    ended = result.exit_code != 0 and (result.exception is None or isinstance(result.exception, SystemExit))
    return ended and "Traceback" not in result.stderr and text.isprintable() and len(text) < 1_000


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    link, packets = read_pcap(DATA / "captures" / "ibp-2.8-a.pcap.gz")
    path = tmp_path_factory.mktemp("capture") / "control.pcap"
    path.write_bytes(pcap(packets[:200], link))
    return str(path)


FINDING = {"cluster": None, "rule": "KP011", "broker_id": 1, "topic": "a", "partition": 0}


def no_files(folder: Path) -> Iterator[Path]:
    """A pipe that nobody writes to, a directory, a link to itself, a device without an end."""
    pipe, link = folder / "pipe", folder / "link"
    os.mkfifo(pipe)
    link.symlink_to(link)
    yield from (pipe, folder, link, Path("/dev/zero"), folder / "missing")


@pytest.mark.parametrize(
    "content",
    [
        *(each for each in ANY if each), b'{"rule": 1}', *(
            json.dumps(FINDING | change).encode()
            for change in ({"topic": [1]}, {"topic": {}}, {"rule": [[]]}, {"partition": 1.5}, {"cluster": [1]})
        ),
    ],
)  # fmt: skip
def test_a_baseline_of_other_values_is_refused(content: bytes, capture: str, tmp_path: Path) -> None:
    baseline = tmp_path / "known.jsonl"
    baseline.write_bytes(content)
    result = run_kproto("doctor", capture, "--baseline", baseline)
    assert is_refused(result)
    assert "is no baseline" in result.stderr
    assert baseline.read_bytes() == content


def test_a_topic_with_a_line_separator_ends_no_line_of_a_baseline(capture: str, tmp_path: Path) -> None:
    baseline = tmp_path / "known.jsonl"
    baseline.write_text(json.dumps(FINDING | {"topic": "a\u2028b\x85c"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert run_kproto("doctor", capture, "--baseline", baseline).exit_code == 0


def test_what_is_no_file_is_no_baseline_and_no_settings(capture: str, tmp_path: Path) -> None:
    for path in no_files(tmp_path):
        assert is_refused(run_kproto("doctor", capture, "--baseline", path)), path
        assert is_refused(CliRunner(env={"KPROTO_CONFIG": str(path)}).invoke(main, ["doctor", capture])), path


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe", b"a = " + DEEP, b"timeout = " + b"1" * 5_000, b"timeout = " + b"1" * 400, b"timeout = {}",
        b"timeout = [1]", b"timeout = 1979-05-27", b"[metadata]\nbootstrap = [[1]]", b"[metadata]\nbootstrap = [{}]",
        b'[metadata]\nsecurity = ["a"]', b'[metadata]\ntimeout = "\\u001b[2J"', b"[[metadata]]\n", b"metadata = 1",
        b'["\\u001b[2J"]\n', b'[metadata]\n"\\u001b[2J" = 1',
    ],
)  # fmt: skip
def test_settings_of_other_values_are_refused(content: bytes, tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_bytes(content)
    result = CliRunner(env={"KPROTO_CONFIG": str(settings)}).invoke(main, ["metadata", "--bootstrap", "127.0.0.1:1"])
    assert is_refused(result), result.output
    assert settings.read_bytes() == content


@pytest.fixture(scope="module")
def tables(capture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables") / "out"
    analyze(TasksHere(), [capture], OutputDirectory(out))  # type: ignore[arg-type]
    return out


def changed(honest: dict[str, Any], *path: Any, to: Any) -> bytes:
    found = json.loads(json.dumps(honest))
    at = found
    for each in path[:-1]:
        at = at[each]
    at[path[-1]] = to
    return json.dumps(found).encode()


def test_a_summary_of_other_values_is_computed_anew_or_refused(tables: Path, capture: str) -> None:
    file = Path(str(current_tables(tables).run)) / SUMMARY
    honest = file.read_bytes()
    summary = json.loads(honest)
    again = ["analyze", capture, "--out", str(tables)]
    shown = run_kproto(*again)
    assert shown.exit_code == 0, shown.output
    try:
        for content in (*ANY, changed(summary, "captures", to=5), changed(summary, "more", to=5)):
            file.write_bytes(content)
            result = run_kproto(*again)
            assert (result.exit_code, result.stdout) == (0, shown.stdout)
        for path, value in [
            (("captures", 0, "first"), EVIL), (("requests", 0, "api"), EVIL), (("brokers", 0, "host"), EVIL * 10_000),
        ]:  # fmt: skip
            file.write_bytes(changed(summary, *path, to=value))
            result = run_kproto(*again)
            assert all(line.isprintable() and not line.startswith("ERROR") for line in result.output.split("\n"))
        for path, value in [
            (("captures", 0), 5), (("captures", 0, "format"), None), (("requests", 0, "count"), {}),
            (("brokers", 0, "port"), []), (("slowest", 0, "median_ms"), "slow"), (("controllers", 0), {}),
        ]:  # fmt: skip
            file.write_bytes(changed(summary, *path, to=value))
            for form in ("text", "json"):
                result = run_kproto(*again, "--format", form)
                assert result.exit_code == 0 or is_refused(result), (path, result.output)
    finally:
        file.write_bytes(honest)


@pytest.mark.parametrize(
    "facts", [{"seconds": float("nan")}, {"seconds": 10**400}, {"seconds": "1"}, {"bodies_decoded": -1}, {"inputs": 5}]
)
def test_a_manifest_of_other_values_is_refused(facts: dict[str, Any], tables: Path, capture: str) -> None:
    manifest = tables / "_kproto.json"
    honest = manifest.read_text()
    try:
        manifest.write_text(json.dumps(json.loads(honest) | facts))
        result = run_kproto("analyze", capture, "--out", tables)
        assert is_refused(result) or "inputs" in facts, result.output
    finally:
        manifest.write_text(honest)


@pytest.mark.parametrize("content", [DEEP, b"", b"\xff", b"[]", b'{"pid": "1"}', b'{"pid": ' + b"1" * 5_000 + b"}"])
def test_a_lock_of_other_values_names_no_writer(content: bytes) -> None:
    with suppress(ValueError, RecursionError):  # both are taken for a lock that is being written
        assert _owner_in(content) == {}
