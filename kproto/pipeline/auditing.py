"""``kproto.tables.auditing`` on Spark: each capture point is audited by one task."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from kproto.capture import CapturePoint
from kproto.tables.auditing import AUDIT, audit
from kproto.tables.points import points_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def audit_table(
    spark: SparkSession,
    captures: Iterable[str | os.PathLike[str]],
    *,
    ports: Collection[int] | None = None,
    sample: float = 1.0,
) -> DataFrame:
    """Read every control frame of captures with both codecs; nothing is read before the table is used.

    Args:
        spark: The session.
        captures: Files, directories, patterns or URIs that the executors see by the same names.
        ports, sample: See ``kproto.tables.auditing.audit``.

    Returns:
        The table ``audit``, with the columns of ``kproto.tables.auditing.AUDIT``.

    Raises:
        CaptureError: A directory holds no capture.
    """
    points = [(point.name, list(point.files)) for point in points_of([os.fspath(path) for path in captures])]
    rows = spark.createDataFrame(points, "name string, files array<string>").repartition(max(len(points), 1))
    read = partial(_audit, ports=ports, sample=sample)
    return rows.mapInArrow(read, from_arrow_schema(AUDIT, prefer_timestamp_ntz=False))


def _audit(
    batches: Iterable[pa.RecordBatch], *, ports: Collection[int] | None, sample: float
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        points = [CapturePoint(row["name"], tuple(row["files"])) for row in batch.to_pylist()]
        yield from audit(points, ports=ports, sample=sample)
