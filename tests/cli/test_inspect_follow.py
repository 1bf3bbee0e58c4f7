"""``kproto inspect --follow``: a file's requests as they come, through rotation, until Ctrl-C."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packets as make
import pytest
from click.testing import Result
from commands import run_kproto
from conftest import DATA

from kproto.capture import growing


def talk(number: int) -> list[make.Packet]:
    return (
        make.Talk(client=("10.0.1.1", 50_000 + number), server=("10.0.0.2", 9092))
        .open()
        .ask(make.request(6, 8, number, make.UPDATE_METADATA_8))
        .answer(make.response(6, 8, number, b"\0\0\0"))
        .packets
    )


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def follow(path: Path, *steps: Callable[[], object], options: tuple[str, ...] = ()) -> Result:
        """Run the command; it takes one of the steps wherever it would wait, and Ctrl-C after the last."""
        rest = iter(steps)

        def wait(_seconds: float) -> None:
            step = next(rest, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(growing.time, "sleep", wait)
        return run_kproto("inspect", "--follow", path, *options)

    return follow


def add(path: Path, data: bytes) -> Callable[[], object]:
    def step() -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def numbers(result: Result) -> list[Any]:
    return [json.loads(line)["correlation_id"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_each_request_is_one_object_a_line_whatever_pieces_the_file_grows_by(
    form: str, tmp_path: Path, follow: Callable[..., Result]
) -> None:
    data = {"pcap": make.pcap, "pcapng": make.pcapng}[form]([p for n in (1, 2, 3) for p in talk(n)])
    path = tmp_path / f"control.{form}"
    path.write_bytes(b"")
    pieces = [add(path, data[at : at + 97]) for at in range(0, len(data), 97)]
    result = follow(path, *pieces, options=("--format", "json"))
    assert result.exit_code == 130
    assert numbers(result) == [1, 2, 3]


def test_a_request_log_is_followed(tmp_path: Path, follow: Callable[..., Result]) -> None:
    found = next(file for file in sorted((DATA / "request_log").rglob("*.log*")) if file.stat().st_size > 1000)
    data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    whole = tmp_path / "whole.log"
    whole.write_bytes(data)
    path = tmp_path / "kafka-request.log"
    path.write_bytes(data[: len(data) // 2])
    result = follow(path, add(path, data[len(data) // 2 :]), options=("--format", "json"))
    expected = run_kproto("inspect", whole, "--format", "json")
    assert result.exit_code == 130
    assert numbers(result)
    assert sorted(numbers(result)) == sorted(numbers(expected))


def test_rotation_and_truncation_are_told_and_read_through(tmp_path: Path, follow: Callable[..., Result]) -> None:
    path = tmp_path / "control.pcap"
    path.write_bytes(make.pcap(talk(1)))

    def rotate() -> None:
        os.rename(path, tmp_path / "control.pcap.1")  # noqa: PTH104
        path.write_bytes(make.pcap(talk(2)))

    result = follow(path, rotate, lambda: path.write_bytes(make.pcap(talk(3))), options=("--format", "json"))
    assert result.exit_code == 130
    assert numbers(result) == [1, 2, 3]
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: {path} is a new file now, as after a rotation; reading goes on in it",
        f"note: {path} was written anew; reading goes on at its beginning",
    ]


def test_a_request_whose_packets_two_files_share_is_whole(tmp_path: Path, follow: Callable[..., Result]) -> None:
    path = tmp_path / "control.pcap"
    packets = talk(1)
    path.write_bytes(make.pcap(packets[:4]))

    def rotate() -> None:
        path.unlink()
        path.write_bytes(make.pcap(packets[4:]))

    result = follow(path, rotate)
    assert "UpdateMetadata" in result.stdout
    assert "1 of 1 requests shown: 1 UpdateMetadata; 1 ok" in result.stderr


@pytest.mark.parametrize("captures", [["DIR"], ["a.pcap", "a.pcap.1"]])
def test_only_one_file_is_followed(captures: list[str], tmp_path: Path) -> None:
    for name in "a.pcap", "a.pcap.1":
        (tmp_path / name).write_bytes(make.pcap(talk(1)))
    paths = [str(tmp_path / name) if name != "DIR" else str(tmp_path) for name in captures]
    result = run_kproto("inspect", "--follow", *paths)
    assert result.exit_code == 2
    assert "--follow takes one file" in result.stderr


def test_ctrl_c_ends_with_the_totals_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "control.pcap"
    path.write_bytes(make.pcap(talk(1)))
    arguments = [sys.executable, "-m", "kproto", "inspect", "--follow", str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout
        assert process.stderr
        assert b"UpdateMetadata" in process.stdout.readline()
        add(path, make.pcap(talk(2))[24:])()
        assert b"UpdateMetadata" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()
        assert process.wait(timeout=120) == 130
    assert told.startswith("2 of 2 requests shown: 2 UpdateMetadata; 2 ok")
