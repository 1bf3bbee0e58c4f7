"""Generates a fleet's frames on Spark's executors: the only module of this package that imports Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from .frames import FRAMES, frames
from .schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .fleet import PlannedFleet


def spark_frames(spark: SparkSession, fleet: PlannedFleet, *, partitions: int | None = None) -> DataFrame:
    """Return a fleet's frames as a lazy DataFrame with the columns of ``kproto.generate.frames.FRAMES``.

    Each task replays the fleet's history up to its own events: that costs about a microsecond for each partition that
    changes, so that a few tasks a core are better than many.

    Args:
        spark: The session.
        fleet: The fleet.
        partitions: The number of tasks that share the events, which changes no row; None leaves it to Spark.
    """
    events = spark.range(0, len(Schedule(fleet)), 1, partitions)
    return events.mapInArrow(partial(_generate, fleet), from_arrow_schema(FRAMES, prefer_timestamp_ntz=False))


def _generate(fleet: PlannedFleet, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from frames(fleet, [number for batch in batches for number in batch["id"].to_pylist()])
