"""Tables on disk as Spark DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from kproto.tables import TABLES
from kproto.tables.stored import current_run
from kproto.tables.writing import DATED

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["read_table", "spark_schema"]


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def read_table(spark: SparkSession, tables: Path, name: str) -> DataFrame:
    """A table on disk.

    Its schema is known, so no file is opened to find it.

    Args:
        spark: The session.
        tables: The directory that ``kproto analyze`` wrote.
        name: One of ``kproto.tables.TABLES``.

    Raises:
        ConfigurationError: There are no tables in that directory.
    """
    schema = spark_schema(TABLES[name])
    if name in DATED and "date" not in schema.names:
        schema.add("date", "date")
    return spark.read.schema(schema).parquet(str(current_run(tables) / name))
