"""Stored tables as Spark DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kproto.errors import ConfigurationError
from kproto.pipeline.parquet import parquet_rows
from kproto.tables.places import place_of
from kproto.tables.schemas import METADATA_TABLES, TABLES
from kproto.tables.stored import current_tables
from kproto.tables.writing import DATED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kproto.tables.places import Place


def read_table(spark: SparkSession, tables: Place | str, name: str) -> DataFrame:
    """A stored table.

    Its schema is known, so no file is opened to find it.

    Args:
        spark: The session.
        tables: The directory that ``kproto analyze`` wrote, or its URI.
        name: One of ``kproto.tables.TABLES``, or of a metadata log's tables.

    Raises:
        ConfigurationError: There is no such table, or there are no tables in that directory.
    """
    stored_tables = TABLES | METADATA_TABLES
    if name not in stored_tables:
        raise ConfigurationError(
            f"there is no stored table {name!r}; try {', '.join(stored_tables)}; derived_table gives the others"
        )
    schema = stored_tables[name]
    if name in DATED and "date" not in schema.names:
        schema = schema.append(pa.field("date", pa.date32()))
    stored = current_tables(place_of(tables))
    return parquet_rows(spark, schema, stored.files(name), stored.run / name)
