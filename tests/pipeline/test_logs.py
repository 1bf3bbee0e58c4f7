"""Tables of logs are those of the whole log, however rotation cut it, and in whatever runs its files come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq
import pytest
from conftest import few
from state_runs import logs_of
from tasks_here import TasksHere

from kproto.logs import LogReading
from kproto.pipeline import OutputDirectory, analyze
from kproto.tables import Filters, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

IN_UTC = Filters(logs=LogReading("UTC"))
NAMES = ["state-change.log.2026-11-26-14", "state-change.log.2026-11-26-15", "state-change.log"]


def counted(requests: Any, captures: Any) -> tuple[list[tuple[Any, ...]], int]:
    columns = requests.select(["frame_id", "body_id", "response_frame_id", "n_partitions"]).to_pylist()
    return sorted(tuple(row.values()) for row in columns), sum(captures["packets"].to_pylist())


def analyzed(files: Sequence[Path], out: OutputDirectory) -> tuple[list[tuple[Any, ...]], int]:
    analyze(cast("SparkSession", TasksHere()), list(map(str, files)), out, filters=IN_UTC)
    return counted(pq.read_table(out.path / "requests"), pq.read_table(out.path / "captures"))


@pytest.fixture
def cut(tmp_path: Path) -> tuple[list[Path], tuple[list[tuple[Any, ...]], int]]:
    """A log that rotation cut within requests, and the tables of the whole."""
    lines = logs_of("ibp-3.9-a", "INFO")["broker-1/state-change.log"].splitlines(keepends=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "state-change.log").write_bytes(b"".join(lines))
    tables = read(tmp_path / "whole", filters=IN_UTC)
    within = [number for number, line in enumerate(lines) if b"Follower " in line and b"Follower " in lines[number - 1]]
    ends = [0, within[len(within) // 3], within[2 * len(within) // 3], len(lines)]
    files = []
    for name, begin, end in zip(NAMES, ends, ends[1:], strict=False):
        files.append(tmp_path / name)
        files[-1].write_bytes(b"".join(lines[begin:end]))
    return files, counted(tables["requests"], tables["captures"])


@pytest.mark.parametrize("order", few([[[2, 0, 1]], [[0], [1], [2]], [[2], [0, 1]], [[1], [2, 0]]], 2))
def test_files_of_a_log_make_the_tables_of_the_whole(
    order: list[list[int]], cut: tuple[list[Path], tuple[list[tuple[Any, ...]], int]], tmp_path: Path
) -> None:
    files, whole = cut
    out = OutputDirectory(tmp_path / "out")
    for run in order:
        found = analyzed([files[number] for number in run], out)
    assert found == whole


def test_a_log_that_is_rotated_between_runs_is_the_whole(
    cut: tuple[list[Path], tuple[list[tuple[Any, ...]], int]], tmp_path: Path
) -> None:
    """Its file is renamed, and a new one begins within a request."""
    (first, second, last), whole = cut
    data, later, out = second.read_bytes(), last.read_bytes(), OutputDirectory(tmp_path / "out")
    last.write_bytes(data[: len(data) // 2])  # while it is being written
    second.unlink()
    analyzed([first, last], out)
    last.write_bytes(data)
    analyzed([first, last], out)
    last.rename(second)
    last.write_bytes(later)
    assert analyzed([first, second, last], out) == whole


def test_what_a_rotated_log_told_stays_when_it_is_deleted(
    cut: tuple[list[Path], tuple[list[tuple[Any, ...]], int]], tmp_path: Path
) -> None:
    """Its lines were told under a name that the next file has now."""
    files, (whole, _lines) = cut
    told = [file.read_bytes() for file in files]
    log, out = tmp_path / "host" / "state-change.log", OutputDirectory(tmp_path / "out")
    log.parent.mkdir()
    for data in told:
        if log.exists():
            log.replace(f"{log}.1")
        log.write_bytes(data)
        found, _ = analyzed(list(log.parent.iterdir()), out)
    assert {*whole} <= {*found}


def test_logs_that_stand_in_others_count_once(
    cut: tuple[list[Path], tuple[list[tuple[Any, ...]], int]], tmp_path: Path
) -> None:
    files, whole = cut
    data = b"".join(file.read_bytes() for file in files)
    (tmp_path / "tail.txt").write_bytes(data[len(data) // 2 :])
    found = analyzed(
        [tmp_path / "tail.txt", tmp_path / "whole" / "state-change.log"], OutputDirectory(tmp_path / "out")
    )
    assert found == whole


def test_of_a_request_that_is_being_written_no_state_stays_but_those_of_the_whole(
    cut: tuple[list[Path], tuple[list[tuple[Any, ...]], int]], tmp_path: Path
) -> None:
    (first, second, last), _whole = cut
    begun, rest = first.read_bytes(), second.read_bytes() + last.read_bytes()
    log, out = tmp_path / "host" / "state-change.log", OutputDirectory(tmp_path / "out")
    log.parent.mkdir()
    for data in (begun, begun + rest):
        log.write_bytes(data)
        analyzed([log], out)
    once = OutputDirectory(tmp_path / "once")
    analyzed([log], once)
    bodies = [
        {name: set(pq.read_table(each.path / name)["body_id"].to_pylist()) for name in ("partition_states", "bodies")}
        for each in (out, once)
    ]
    assert bodies[0] == bodies[1]
