"""Captures -> staged pieces on Spark: small capture points share a task, large ones are read in parts and stitched."""

from __future__ import annotations

import heapq
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from kproto import tables
from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture import CapturePoint
from kproto.capture.splits import SplitError
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.splitting import SPLIT, plan, scan_parts
from kproto.pipeline.stages import gather
from kproto.pipeline.staging import aside
from kproto.pipeline.stitching import CarriedConnections, Counts, stitch
from kproto.pipeline.tasks import (
    RECEIPT,
    GrowingPoint,
    JoinedParts,
    Packed,
    gather_carried,
    gather_pieces,
    receipt,
    results,
    task_each,
    task_numbers,
    write_parts,
)
from kproto.tables.files import file_size
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.scanning import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kproto.pipeline.splitting import Part
    from kproto.pipeline.stages import StagedPart
    from kproto.pipeline.tasks import CarriedPart
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

_TASK_BYTES: Final = 64 << 20
"""Small captures share a task until they reach this."""

_TASKS_FOR_EACH_WORKER: Final = 16
"""The most tasks for each worker to which captures are dealt that are read whole: each task stages the bodies that it
finds, and captures from many hosts hold the same ones."""

_BUCKETS_FOR_EACH_WORKER: Final = 2
"""The tasks for each worker to which the connections of large captures are dealt."""


def scan_options(filters: Filters) -> dict[str, Any]:
    """The APIs that a scan for tables reads: UpdateMetadata always, since it names the brokers.

    Logs need their zone by name: each worker has a zone of its own.
    """
    return {
        "ports": filters.ports,
        "apis": filters.apis or CONTROL_APIS,
        "since_ns": filters.since_ns,
        "until_ns": filters.until_ns,
        "always": {ApiKey.UPDATE_METADATA},
        "logs": replace(filters.logs, zone_required=True),
    }


def gather_captures(
    spark: SparkSession,
    points: Sequence[CapturePoint],
    directory: Place,
    filters: Filters,
    split_bytes: int,
    cluster: str = DEFAULT_CLUSTER,
) -> list[StagedPart]:
    """Stage captures.

    A file that cannot be read in parts, for it holds damage where a part ends, is read whole.

    Args:
        spark: The session. Its executors open the captures by the names given here.
        points: The captures.
        directory: Where the pieces go; every worker sees it.
        filters: The requests to keep.
        split_bytes: About how large a part of a large capture shall be; 0 reads each capture point by one task.
        cluster: The declared cluster of the captures.
    """
    whole, parts = plan(points, split_bytes)
    pieces: list[StagedPart] = []
    if parts:
        large = _points_of(parts, points)
        joined = _gather_parts(spark, parts, large, directory, filters, cluster)
        if joined is None:
            whole += large.values()
        else:
            found, counts, _files = joined
            pieces += [*found, gather(counts.rows(large), directory, filters, cluster)]
    if whole:
        workers = parallelism(spark)
        shares = shares_of(whole, workers, _TASKS_FOR_EACH_WORKER * workers)
        reads = [partial(tables.scan, share, **scan_options(filters)) for share in shares]
        pieces += gather_pieces(spark, reads, directory, filters, cluster)
    return pieces


def gather_growing(
    spark: SparkSession,
    growing: Sequence[GrowingPoint],
    directory: Place,
    filters: Filters,
    split_bytes: int,
    cluster: str = DEFAULT_CLUSTER,
) -> tuple[list[StagedPart], list[CarriedPart]] | None:
    """Stage capture points whose next files may come later; None if one of them cannot be read.

    Args:
        spark: The session.
        growing: The capture points.
        directory: Where the pieces go; what is open is staged in directories of its own.
        filters: The requests to keep.
        split_bytes: See ``gather_captures``.
        cluster: The declared cluster of the captures.

    Returns:
        Pieces of the files that were read in parts, of several capture points each; and the capture points.
    """
    pieces: list[StagedPart] = []
    read = [CapturePoint(each.point.name, each.files) for each in growing]
    _small, parts = plan(read, split_bytes, grows=True)
    if parts:
        large = _points_of(parts, read)
        states = {each.point.name: each.state for each in growing if each.point.name in large}
        joined = _gather_parts(spark, parts, large, directory, filters, cluster, states)
        if joined is not None:
            pieces, counts, files = joined
            of_large = {name: JoinedParts(files, n, counts.of(name)) for n, name in enumerate(states)}
            growing = [each._replace(parts=of_large.get(each.point.name)) for each in growing]
    carried = gather_carried(spark, growing, directory, filters, scan_options(filters), cluster)
    return None if carried is None else (pieces, carried)


def _points_of(parts: Iterable[Part], points: Iterable[CapturePoint]) -> dict[str, CapturePoint]:
    names = {part.capture for part in parts}
    return {point.name: point for point in points if point.name in names}


def _gather_parts(
    spark: SparkSession,
    parts: Sequence[Part],
    points: Mapping[str, CapturePoint],
    directory: Place,
    filters: Filters,
    cluster: str,
    states: Mapping[str, str | None] | None = None,
) -> tuple[list[StagedPart], Counts, list[str]] | None:
    """Stage capture points in parts; None if they cannot be read so.

    Returns:
        The pieces; the counts; and, where the capture points grow and ``states`` names the files of their states behind
        the former files, a file of each task with their connections behind the last part, in the order of ``states``.
    """

    def stage(
        batches: Iterable[pa.RecordBatch], counts: Counts, carried: CarriedConnections | None
    ) -> Iterator[pa.RecordBatch]:
        piece = gather(batches, directory, filters, cluster)
        place = None
        if states and carried:
            place = directory / f"connections-{uuid.uuid4().hex}"
            kept = dict(carried.freeze())
            write_parts(place, [kept.get(capture, b"") for capture in states])
        yield receipt((piece, counts, place and str(place)))

    # At a URI each reader would fetch whole batches to read its rows of them: there bodies move with their rows.
    bodies = directory if isinstance(directory, Path) else None
    options = scan_options(filters)
    try:
        joined = results(joined_parts(spark, parts, points, options, stage, RECEIPT, bodies, states))
    except PySparkException as e:
        if SplitError.__name__ not in str(e):
            raise
        return None
    total = Counts()
    for _piece, counts, _file in joined:
        total.merge(counts)
    return [piece for piece, _counts, _file in joined], total, [file for _piece, _counts, file in joined]


def joined_parts(
    spark: SparkSession,
    parts: Sequence[Part],
    points: Mapping[str, CapturePoint],
    options: Mapping[str, Any],
    use: Callable[[Iterable[pa.RecordBatch], Counts, CarriedConnections | None], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    bodies: Path | None = None,
    states: Mapping[str, str | None] | None = None,
) -> DataFrame:
    """Read parts of captures, join the connections that several parts hold, and use the rows in the same task.

    Args:
        spark: The session.
        parts: The parts.
        points: Their capture points by name.
        options: The arguments of ``Selection``.
        use: Called in each task with its joined rows, of the schema ``SCAN``, and with counts, and the connections of
            capture points that grow, which are complete after the rows.
        schema: Of the batches that ``use`` yields.
        bodies: Where tasks put bodies aside for the tasks that join them, so that only the rows that name their places
            pass through Spark; every worker must see it. None: bodies pass through Spark too.
        states: The capture points, if they grow, and the files of their states behind the former files.
    """
    buckets = max(1, min(_BUCKETS_FOR_EACH_WORKER * parallelism(spark), len(parts)))
    packed = Packed(parts)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen = (packed[n] for n in task_numbers(numbers))
        rows = scan_parts(chosen, Selection(**options), buckets=buckets)
        yield from rows if bodies is None else aside(rows, bodies)

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts, selection = Counts(), Selection(**options)
        carried = None if states is None else CarriedConnections(states, selection)
        yield from use(stitch(batches, points, selection, counts, carried), counts, carried)

    rows = task_each(spark, len(parts)).mapInArrow(read, spark_schema(SPLIT))
    by_connection = rows.repartitionById(buckets, "bucket").sortWithinPartitions("bucket", "key", "part", "item")
    return by_connection.mapInArrow(join, spark_schema(schema))


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that the executors run at once, by Spark's own default."""
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(10_000).select(F.spark_partition_id().alias("part")).agg(F.max("part").alias("last"))
    return int(parts.collect()[0]["last"]) + 1


def shares_of(points: Sequence[CapturePoint], workers: int, most: int | None = None) -> list[list[CapturePoint]]:
    """Deal captures to tasks, each to the one with the least so far: no worker idle, no task with many large files.

    Args:
        points: The captures.
        workers: The number of tasks that run at once.
        most: The most tasks.
    """
    sizes = {point: sum(map(file_size, point.files)) for point in points}
    tasks = -(-sum(sizes.values()) // _TASK_BYTES)
    count = min(len(points), max(workers, tasks if most is None else min(tasks, most)))
    shares: list[list[CapturePoint]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for point in sorted(points, key=sizes.__getitem__, reverse=True):
        size, number = least[0]
        shares[number].append(point)
        heapq.heapreplace(least, (size + sizes[point], number))
    return [shares[number] for _size, number in sorted(least, key=lambda share: (-share[0], share[1]))]
