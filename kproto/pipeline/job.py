"""Captures -> tables on disk: each capture is read once, each distinct body decoded once."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import functions as F

import kproto
from kproto import tables
from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture import capture_points
from kproto.errors import CaptureError
from kproto.pipeline.queries import Queries
from kproto.pipeline.relations import DATED, Relations, read_files, spark_schema
from kproto.tables.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kproto.capture import CapturePoint
    from kproto.pipeline.output import OutputDirectory

__all__ = ["Run", "analyze"]

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
        captures_read: How many captures were read, counting each time.
        bodies_decoded: How many bodies were decoded: as many as there are distinct ones.
        bad_inputs: Pieces of captures that could not be used; without an offset: captures that gave nothing.
        seconds: Wall time.
    """

    inputs: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    captures_read: int = 0
    bodies_decoded: int = 0
    bad_inputs: list[BadInput] = field(default_factory=list)
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
    with out.writing():
        on_step("reading captures")
        captures_read = spark.sparkContext.accumulator(0)
        scan = _scan(spark, captures, filters, captures_read.add).persist()
        try:
            _check(scan, run)
            on_step("decoding distinct bodies")
            bodies = _bodies(scan)
            decoded_bodies = spark.sparkContext.accumulator(0)
            decoded = _decoded(spark, bodies, decoded_bodies.add).persist()
            try:
                decoded.count()  # all of it, before several queries ask for it at once
                with Queries(spark) as sql:
                    _write(spark, Relations(sql, scan, decoded, filters), bodies, out.run, run, on_step)
            finally:
                decoded.unpersist()
                run.bodies_decoded = decoded_bodies.value
        finally:
            scan.unpersist()
            run.captures_read = captures_read.value
        run.seconds = time.monotonic() - started
        out.publish(_manifest(run))
    return run


def _scan(
    spark: SparkSession, captures: Sequence[str], filters: Filters, on_capture: Callable[[int], object]
) -> DataFrame:
    """A capture point is read by one task; small ones share a task."""
    points = capture_points(str(Path(path).absolute()) for path in captures)
    shares = _shares(points, spark.sparkContext.defaultParallelism)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            yield from tables.scan(
                (point for n in batch.column(0).to_pylist() for point in shares[n]),
                ports=filters.ports,
                apis=filters.apis or CONTROL_APIS,
                since_ns=filters.since_ns,
                until_ns=filters.until_ns,
                always={ApiKey.UPDATE_METADATA},
                on_capture=on_capture,
            )

    one_each = spark.range(0, len(shares), 1, numPartitions=len(shares))
    return one_each.mapInArrow(read, spark_schema(tables.SCAN))


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


def _check(scan: DataFrame, run: Run) -> None:
    """Fill in what could not be read; stop where there is nothing to go on with."""
    facts = scan.agg(
        F.count("frame_id").alias("frames"),
        F.count_distinct("frame_id").alias("distinct"),
        F.collect_list(F.when(F.col("bad_input").isNotNull(), F.struct("file", "bad_input.*"))).alias("bad"),
    ).first()
    assert facts is not None
    run.bad_inputs = [BadInput(*row) for row in sorted(facts.bad, key=lambda row: (row.file, row.offset or -1))]
    if facts.frames == 0:
        reasons = [bad.reason for bad in run.bad_inputs if bad.offset is None]
        raise CaptureError(
            "; ".join(reasons[:3]) if reasons else "no control request in these captures passes the filters"
        )
    if facts.frames != facts.distinct:
        raise CaptureError("the same capture was given twice, under different names; name it once")


def _bodies(scan: DataFrame) -> DataFrame:
    """Each distinct body once. Which one is found on header columns alone, so that payloads are not moved around."""
    first = (
        scan.where("payload IS NOT NULL")
        .groupBy("body_id")
        .agg(F.min(F.struct("ts_ns", "frame_id")).alias("first"))
        .select("first.frame_id")
    )
    return scan.where("payload IS NOT NULL").join(first, "frame_id", "left_semi").select(*tables.BODIES.names)


def _decoded(spark: SparkSession, bodies: DataFrame, on_body: Callable[[int], object]) -> DataFrame:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from tables.decode(batches, on_body=on_body)

    spread = bodies.repartition(spark.sparkContext.defaultParallelism, "body_id")
    return spread.mapInArrow(read, spark_schema(tables.DECODED))


def _write(
    spark: SparkSession,
    relations: Relations,
    bodies: DataFrame,
    directory: Path,
    run: Run,
    on_step: Callable[[str], object],
) -> None:
    def write(name: str, frame: DataFrame) -> DataFrame:
        on_step(f"writing {name}")
        return _write_table(spark, name, frame, directory / name, run)

    requests = write("requests", relations.requests())
    if run.rows["requests"] == 0:
        raise CaptureError("no control request in these captures passes the filters")
    write("responses", relations.responses(requests))
    write("partition_errors", relations.partition_errors(requests))
    write("partition_states", relations.partition_states(requests))
    frames = write("frames", relations.frames(requests))
    write("bodies", relations.bodies(bodies, frames))
    write("brokers", relations.brokers())
    write("captures", relations.captures())
    write("bad_inputs", relations.bad_inputs())


def _write_table(spark: SparkSession, name: str, frame: DataFrame, path: Path, run: Run) -> DataFrame:
    """Write a table, count its rows and give it back as it lies on disk."""
    writer = frame.write.option("compression", "zstd")
    if name in DATED:
        writer = writer.partitionBy("date")
    writer.parquet(str(path))
    if not any(path.rglob("*.parquet")):
        # Nothing in it, and with partitions Spark then writes no file: readers would find no schema.
        frame.limit(0).coalesce(1).write.mode("overwrite").parquet(str(path))
    run.rows[name] = sum(pq.read_metadata(file).num_rows for file in path.rglob("*.parquet"))
    return read_files(spark, path, name)


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
