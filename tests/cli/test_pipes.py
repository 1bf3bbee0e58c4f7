"""Pipes beside files: nothing of what comes through one is looked at, and lost, before it is read."""

import gzip
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from commands import run_kproto
from conftest import DATA, few

LOGS = tuple(DATA / "request_log" / f"broker-{n}-kafka-request.log.gz" for n in (0, 1))
CAPTURE = DATA / "captures" / "ibp-2.8-a.pcap.gz"


@contextmanager
def piped(file: Path) -> Iterator[str]:
    """The unpacked bytes of a file as they come through ``<(zcat FILE)``."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as into:
            into.write(gzip.decompress(file.read_bytes()))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield f"/dev/fd/{reader}"
        finally:
            os.close(reader)
        done.result(timeout=60)


def rows(command: tuple[str, ...], files: tuple[object, ...]) -> list[str]:
    """What a command prints of files, none of which it names."""
    first, *others = command
    result = run_kproto(first, *files, *others, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return sorted(line for line in result.stdout.splitlines() if '"record":"capture"' not in line)


@pytest.mark.parametrize("files", few([LOGS, [CAPTURE, LOGS[0]]]), ids=["logs", "a capture and a log"])
@pytest.mark.parametrize("command", [("inspect",), ("query", "leader")], ids=" ".join)
def test_a_pipe_beside_files_loses_nothing(command: tuple[str, ...], files: tuple[Path, ...]) -> None:
    whole = rows(command, files)
    assert whole
    for pipes in ((0,), (1,), (0, 1)):
        with ExitStack() as opened:
            named = [opened.enter_context(piped(file)) if n in pipes else file for n, file in enumerate(files)]
            assert rows(command, tuple(named)) == whole, pipes


def test_what_is_read_several_times_is_no_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    result = run_kproto("analyze", f"/dev/fd/{reader}", LOGS[0], "--log-zone", "UTC", "--out", tmp_path / "tables")
    os.close(reader)
    assert result.exit_code == 2
    assert result.stderr == (
        f"kproto: /dev/fd/{reader}: a pipe can be read only once; save what comes in a file, and name that\n"
    )
    assert not (tmp_path / "tables").exists()
