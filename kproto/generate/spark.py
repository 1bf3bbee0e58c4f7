"""A fleet's frames as a Spark DataFrame, made on the executors: the one module of this package that knows Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from .events import Schedule
from .frames import frames
from .schemas import FRAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .fleet import Fleet

__all__ = ["spark_frames"]


def spark_frames(spark: SparkSession, fleet: Fleet, *, partitions: int | None = None) -> DataFrame:
    """The frames of a fleet, with the columns of ``kproto.generate.schemas.FRAMES``; nothing is made before it is used.

    Each task follows the fleet's history to its own events: that costs about a microsecond for each partition that
    changes, so that a few tasks a core are better than many.

    Args:
        spark: The session.
        fleet: The fleet.
        partitions: Into how many tasks the events are cut, which changes no row; None leaves it to Spark.
    """
    events = spark.range(0, len(Schedule(fleet)), 1, partitions)
    return events.mapInArrow(partial(_generate, fleet), from_arrow_schema(FRAMES, prefer_timestamp_ntz=False))


def _generate(fleet: Fleet, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from frames(fleet, [number for batch in batches for number in batch["id"].to_pylist()])
