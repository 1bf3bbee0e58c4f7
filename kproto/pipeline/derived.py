"""The tables that follow from the stored ones, as Spark DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kproto.errors import ConfigurationError
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.queries import Queries
from kproto.pipeline.stored import read_table
from kproto.tables import TABLES
from kproto.tables.derived import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kproto.tables.places import Place

__all__ = ["derived_table"]


def derived_table(spark: SparkSession, tables: Place | str, name: str) -> DataFrame:
    """A derived table: who led, when the ISR changed, who was stale. Nothing is computed before it is asked for.

    Args:
        spark: The session; it keeps no view of this.
        tables: The directory that ``kproto analyze`` wrote, or its URI.
        name: One of ``kproto.tables.derived.VIEWS``.

    Raises:
        ConfigurationError: There is no such table, or there are no tables in that directory.
    """
    if name not in VIEWS:
        raise ConfigurationError(f"there is no derived table {name!r}; try {', '.join(VIEWS)}")
    with Queries(spark) as sql:
        sql.add(**{stored: read_table(spark, tables, stored) for stored in TABLES})
        for known, derived in VIEWS.items():
            frame = sql(derived.sql)
            if known == name:
                break
            sql.add(**{known: frame})
    wanted = spark_schema(VIEWS[name].schema)
    return frame.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted))
