"""Parquet files as Spark DataFrames: Spark reads paths itself, pyarrow in Spark's tasks reads what a URI names.

So a store needs no jars of Hadoop's, and one set of credentials: that of pyarrow.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from kproto.tables.places import RemotePath, place_of
from kproto.tables.schemas import description
from kproto.tables.stored import opened_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kproto.tables.places import Place

_BATCH_ROWS: Final = 1 << 16
_DATE: Final = "date="


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's; its columns' descriptions are their comments."""
    found = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    for field, known in zip(found.fields, schema, strict=True):
        if text := description(known):
            field.metadata = {"comment": text}
    return found


def parquet_rows(
    spark: SparkSession, schema: pa.Schema, files: Sequence[Place], base: Place | None = None
) -> DataFrame:
    """The rows of Parquet files.

    Args:
        spark: The session.
        schema: Their columns; ``date`` may stand in the names of their directories.
        files: The files.
        base: The directory below which the names of directories are columns, such as ``date=2026-11-21``.
    """
    names = list(map(str, files))
    if not names:
        return spark.createDataFrame([], spark_schema(schema))
    if not isinstance(files[0], RemotePath):
        read_files = spark.read if base is None else spark.read.option("basePath", str(base))
        return read_files.schema(spark_schema(schema)).parquet(*names)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows(names[number], schema)

    numbers = spark.range(0, len(names), 1, numPartitions=len(names))
    return numbers.mapInArrow(read, spark_schema(schema))


def _rows(file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with opened_parquet(place_of(file)) as opened:
        there = opened.schema_arrow.names
        for batch in opened.iter_batches(_BATCH_ROWS, columns=[name for name in schema.names if name in there]):
            columns = [batch.column(f.name).cast(f.type) if f.name in there else _day(file, batch, f) for f in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _day(file: str, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return the day in the name of a file's directory, for each row."""
    day = file.rpartition(f"/{_DATE}")[2].partition("/")[0]
    return pa.repeat(pa.scalar(datetime.date.fromisoformat(day), field.type), batch.num_rows)
