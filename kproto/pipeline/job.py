"""Captures -> tables on disk: each capture is read once, the states of each distinct body are written once."""

from __future__ import annotations

import heapq
import json
import shutil
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.parquet as pq

import kproto
from kproto import tables
from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture import capture_points
from kproto.errors import CaptureError
from kproto.pipeline.tasks import count_changes, gather_pieces, make_tables
from kproto.tables.filters import Filters
from kproto.tables.reading import why_nothing
from kproto.tables.stages import SMALL_TABLES, learn, small_table
from kproto.tables.stored import SUMMARY
from kproto.tables.summary import Figures
from kproto.tables.writing import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kproto.capture import CapturePoint
    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.stages import Made, Piece

__all__ = ["BadInput", "Run", "analyze"]

_TASK_BYTES: Final = 64 << 20
"""Small captures share a task until they reach this."""


class BadInput(NamedTuple):
    """A piece of a capture that could not be used.

    Attributes:
        file: The capture.
        reason: What is wrong.
        offset: Where, in bytes of the unpacked file or of the stream that the reason names; None: nowhere is anything.
        bytes_skipped: How much was passed over.
    """

    file: str
    reason: str
    offset: int | None
    bytes_skipped: int | None


@dataclass(slots=True)
class Run:
    """What a run did.

    Attributes:
        inputs: The captures.
        rows: Table -> rows written.
        captures_read: How many captures were read.
        bodies_decoded: Distinct bodies, whose states were each written once.
        bad_inputs: Pieces of captures that could not be used; without an offset: captures that gave nothing.
        summary: As ``kproto.tables.summarize`` gives it.
        seconds: Wall time.
    """

    inputs: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    captures_read: int = 0
    bodies_decoded: int = 0
    bad_inputs: list[BadInput] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def analyze(
    spark: SparkSession,
    captures: Sequence[str],
    out: OutputDirectory,
    *,
    filters: Filters | None = None,
    on_step: Callable[[str], object] = lambda _step: None,
) -> Run:
    """Make the tables of some captures.

    Args:
        spark: Where to compute. Its executors see the captures and ``out`` under the same paths.
        captures: Files.
        out: Where the tables go.
        filters: Which requests to keep; None keeps all control requests.
        on_step: Told what is being done, in a few words.

    Raises:
        CaptureError: None of the captures holds a wanted control request; says why.
        ConfigurationError: ``out`` cannot be written to.
    """
    started = time.monotonic()
    filters = filters or Filters()
    run = Run(list(captures))
    points = capture_points(str(Path(path).absolute()) for path in captures)
    with out.writing():
        work = out.run / "tasks"
        on_step("reading captures")
        shares = _shares(points, spark.sparkContext.defaultParallelism)
        pieces = gather_pieces(spark, [partial(_scan, share, filters) for share in shares], work, filters)
        run.captures_read = len(points)
        _check(pieces, run)
        on_step("writing tables")
        made = make_tables(spark, [piece.path for piece in pieces], work, learn(pieces, filters), filters)
        _take_over(made, out.run, run)
        _write_small(pieces, out.run, run)
        on_step("summing up")
        run.summary = _summary(spark, made, out.run)
        shutil.rmtree(work)
        run.seconds = time.monotonic() - started
        (out.run / SUMMARY).write_text(json.dumps(run.summary, ensure_ascii=False) + "\n", encoding="utf-8")
        out.publish(_manifest(run))
    return run


def _scan(points: Sequence[CapturePoint], filters: Filters) -> Iterator[pa.RecordBatch]:
    return tables.scan(
        points,
        ports=filters.ports,
        apis=filters.apis or CONTROL_APIS,
        since_ns=filters.since_ns,
        until_ns=filters.until_ns,
        always={ApiKey.UPDATE_METADATA},
    )


def _shares(points: Sequence[CapturePoint], workers: int) -> list[list[CapturePoint]]:
    """Deal captures to tasks, each to the one with the least so far: no worker idle, no task with many large files."""
    sizes = {point: sum(Path(path).stat().st_size for path in point.files) for point in points}
    count = min(len(points), max(workers, -(-sum(sizes.values()) // _TASK_BYTES)))
    shares: list[tuple[int, list[CapturePoint]]] = [(0, []) for _ in range(count)]
    for point in sorted(points, key=sizes.__getitem__, reverse=True):
        size, share = shares[0]
        share.append(point)
        heapq.heapreplace(shares, (size + sizes[point], share))
    return [share for _size, share in sorted(shares, key=lambda item: item[0], reverse=True)]


def _check(pieces: Sequence[Piece], run: Run) -> None:
    """Fill in what could not be read; stop where there is nothing to go on with."""
    bad = small_table([piece.path for piece in pieces], "bad_inputs").to_pylist()
    run.bad_inputs = sorted((BadInput(**row) for row in bad), key=lambda row: (row.file, row.offset or -1))
    if not any(piece.rows["requests"] for piece in pieces):
        raise CaptureError(why_nothing(bad))


def _take_over(made: Sequence[Made], directory: Path, run: Run) -> None:
    """Move the files that tasks made into the tables' directories, and count their rows."""
    run.rows = dict.fromkeys(tables.TABLES, 0)
    for each in made:
        run.bodies_decoded += each.bodies
        for file, rows in each.files.items():
            place = directory / file
            place.parent.mkdir(parents=True, exist_ok=True)
            (Path(each.path) / file).rename(place)
            run.rows[file.partition("/")[0]] += rows
    if not run.rows["requests"]:
        raise CaptureError(why_nothing([bad._asdict() for bad in run.bad_inputs]))
    for name, schema in tables.TABLES.items():
        if not run.rows[name] and name not in SMALL_TABLES:  # readers find its columns
            write_table(directory / name / "part-empty.zstd.parquet", name, schema.empty_table())


def _write_small(pieces: Sequence[Piece], directory: Path, run: Run) -> None:
    for name in SMALL_TABLES:
        table = small_table([piece.path for piece in pieces], name)
        write_table(directory / name / "part-0.zstd.parquet", name, table)
        run.rows[name] = table.num_rows


def _summary(spark: SparkSession, made: Sequence[Made], directory: Path) -> dict[str, Any]:
    """The tasks' figures, merged."""
    figures = Figures()
    for each in made:
        figures.merge(each.figures)
    for changes in count_changes(spark, [each.path for each in made]):
        figures.add_changes(changes)
    few = {name: pq.read_table(directory / name) for name in SMALL_TABLES}
    for _accepted in figures.add(few):
        pass
    return figures.rows()


def _manifest(run: Run) -> dict[str, Any]:
    return {
        "kproto": kproto.__version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": run.inputs,
        "tables": run.rows,
        "bodies_decoded": run.bodies_decoded,
        "bad_inputs": [bad._asdict() for bad in run.bad_inputs],
        "seconds": round(run.seconds, 3),
    }
