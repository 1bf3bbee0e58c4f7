"""Recordings -> staged pieces on Spark: small ones share a task."""

from __future__ import annotations

import heapq
import pickle
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql import functions as F

from kproto.capture import CapturePoint
from kproto.pipeline.stages import gather
from kproto.pipeline.tasks import for_each, results
from kproto.tables.files import file_size
from kproto.tables.places import write_whole
from kproto.tables.recordings import PartRead, PartToRead, read_parts
from kproto.tables.scanning import Selection, scan_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kproto.pipeline.stages import StagedPart
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

T = TypeVar("T")

_TASK_BYTES: Final = 64 << 20
"""Small captures share a task until they reach this."""

_TASKS_FOR_EACH_WORKER: Final = 16
"""The most tasks for each worker to which captures are dealt that are read whole: each task stages the bodies that it
finds, and captures from many hosts hold the same ones."""


def selection_of(filters: Filters) -> Selection:
    """What tasks read. Logs need their zone by name: each worker has a zone of its own."""
    return Selection(**scan_options(filters) | {"logs": replace(filters.logs, zone_required=True)})


def gather_parts(
    spark: SparkSession,
    parts: Iterable[tuple[PartToRead, ...]],
    directory: Place,
    filters: Filters,
    cluster: str,
) -> tuple[list[StagedPart], list[PartRead]]:
    """Stage parts of recordings, as ``read_together`` groups them, small ones together.

    Every worker opens the files by the names given here, and sees the directory where the pieces go.

    Returns:
        The pieces, and what is known of each part.
    """
    workers = parallelism(spark)
    sizes = {each: sum(part.size - part.begin for part in each) for each in parts}
    shares = [pickle.dumps(share) for share in dealt(sizes, workers, _TASKS_FOR_EACH_WORKER * workers)]

    def store(edges: bytes) -> str:
        place = directory / f"edges-{uuid.uuid4().hex}"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, edges)
        return str(place)

    def run(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            found: list[PartRead] = []
            share = pickle.loads(shares[number])  # noqa: S301  # our own
            batches = read_parts(share, selection_of(filters), found.append, store)
            yield gather(batches, directory, filters, cluster), found

    staged = results(for_each(spark, len(shares), run))
    return [piece for piece, _found in staged], [read for _piece, found in staged for read in found]


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that the executors run at once, by Spark's own default."""
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(10_000).select(F.spark_partition_id().alias("part")).agg(F.max("part").alias("last"))
    return int(parts.collect()[0]["last"]) + 1


def shares_of(points: Sequence[CapturePoint], workers: int) -> list[list[CapturePoint]]:
    """Deal captures to tasks, see ``dealt``."""
    return dealt({point: sum(map(file_size, point.files)) for point in points}, workers)


def dealt(sizes: Mapping[T, int], workers: int, most: int | None = None) -> list[list[T]]:
    """Deal things to tasks, each to the one with the least so far: no worker idle, no task with many large ones.

    Args:
        sizes: The things and their sizes.
        workers: The number of tasks that run at once.
        most: The most tasks.
    """
    tasks = -(-sum(sizes.values()) // _TASK_BYTES)
    count = min(len(sizes), max(workers, tasks if most is None else min(tasks, most)))
    shares: list[list[T]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for thing in sorted(sizes, key=sizes.__getitem__, reverse=True):
        size, number = least[0]
        shares[number].append(thing)
        heapq.heapreplace(least, (size + sizes[thing], number))
    return [shares[number] for _size, number in sorted(least, key=lambda share: (-share[0], share[1]))]
