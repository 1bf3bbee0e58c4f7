"""The tables that follow from the stored ones, as Spark DataFrames."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.queries import Queries
from kproto.pipeline.stored import read_table
from kproto.tables import TABLES
from kproto.tables.places import place_of
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.stored import current_tables, reader_of
from kproto.verdicts.clusters import CLUSTERS, UPDATE_COLUMNS, clusters_of, declared_clusters
from kproto.verdicts.derived import VIEWS
from kproto.verdicts.found import facts_of_clusters
from kproto.verdicts.stale import EPOCH_COLUMNS, STALE_COLUMNS, STALE_REQUESTS, epochs_by_capture, stale_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kproto.tables.places import Place
    from kproto.verdicts.derived import Derived

_OF_STATES: Final = (
    "changes", "leadership", "isr_events", "stale_requests", "spans", "partition_states_by_broker",
)  # fmt: skip
"""The derived tables that follow from requests and partition states alone."""


def derived_table(spark: SparkSession, tables: Place | str, name: str) -> DataFrame:
    """A derived table: who led, when the ISR changed, who was stale. Nothing is computed before it is asked for.

    Args:
        spark: The session; it keeps no view of this.
        tables: The directory that ``kproto analyze`` wrote, or its URI.
        name: One of ``kproto.verdicts.derived.VIEWS``.

    Raises:
        ConfigurationError: There is no such table, or there are no tables in that directory.
    """
    if name not in VIEWS:
        raise ConfigurationError(f"there is no derived table {name!r}; try {', '.join(VIEWS)}")
    judge = VIEWS[name].judge
    if judge is not None:
        clusters = facts_of_clusters(reader_of(current_tables(place_of(tables))))
        return spark.createDataFrame(judge(clusters), spark_schema(VIEWS[name].schema))
    frames = {stored: read_table(spark, tables, stored) for stored in TABLES}
    return _derived(spark, frames, name, lambda: declared_clusters(reader_of(current_tables(place_of(tables)))))


def verdicts_of(name: str, requests: DataFrame, states: DataFrame) -> DataFrame:
    """A derived table of requests and partition states in the user's own session, lazily.

    Whoever asks several of them keeps the two in Spark's cache, since each reads the captures again. Of
    ``stale_requests`` the epochs in all requests are computed at once.

    Args:
        name: ``changes``, ``leadership``, ``isr_events``, ``stale_requests``, ``spans`` or
            ``partition_states_by_broker``.
        requests: From ``requests_of``, or rows of the table ``requests``.
        states: From ``states_of``, or rows of the table ``partition_states``.

    Raises:
        ConfigurationError: There is no such table, or it needs more than requests and states.
    """
    if name not in _OF_STATES:
        raise ConfigurationError(f"verdicts_of has no table {name!r}; try {', '.join(_OF_STATES)}")

    def declared() -> dict[str, str]:
        rows = requests.where(F.col("cluster") != DEFAULT_CLUSTER).select("capture", "cluster").distinct()
        return {row["capture"]: row["cluster"] for row in rows.collect()}

    return _derived(requests.sparkSession, {"requests": requests, "partition_states": states}, name, declared)


def _derived(
    spark: SparkSession, frames: Mapping[str, DataFrame], name: str, declared: Callable[[], dict[str, str]]
) -> DataFrame:
    """A derived table of stored ones.

    Args:
        spark: The session.
        frames: The stored tables that it needs, by name.
        name: The table.
        declared: Returns the declared clusters of captures.
    """
    have = set(frames)
    with Queries(spark) as sql:
        sql.add(**frames)
        for known, derived in VIEWS.items():
            if derived.sql and _needs(derived) <= have:
                frame = sql(derived.sql)
            elif known == name:
                frame = _stale_requests(frames["requests"], declared())
            else:
                continue
            if known == name:
                break
            sql.add(**{known: frame})
            have.add(known)
    return frame.select(
        *(F.col(field.name).cast(field.dataType).alias(field.name) for field in spark_schema(VIEWS[name].schema))
    )


def _needs(derived: Derived) -> set[str]:
    """The tables that a query names."""
    return {name for _text, name, _form, _conversion in Formatter().parse(derived.sql) if name}


def _stale_requests(requests: DataFrame, declared: dict[str, str]) -> DataFrame:
    """The stale requests: tasks judge them by the epochs in all captures, which the driver collects before."""
    micros = F.unix_micros("ts")
    known = requests.where("controller_id IS NOT NULL").groupBy(*EPOCH_COLUMNS)
    found = known.agg(F.min(micros).alias("first"), F.max(micros).alias("last")).toArrow()
    captures = sorted(set(found["capture"].to_pylist()))
    updates = CLUSTERS.empty_table()
    if len(captures) > 1:
        accepted = f"api_key = {ApiKey.UPDATE_METADATA:d} AND coalesce(error_code, 0) = 0 AND n_partitions > 0"
        updates = requests.where(accepted).select(*UPDATE_COLUMNS).distinct().toArrow()
    epochs = epochs_by_capture(found, clusters_of(captures, updates, declared))

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in stale_rows((pa.Table.from_batches([batch]) for batch in batches), epochs):
            yield from table.to_batches()

    return requests.select(*STALE_COLUMNS).mapInArrow(judge, spark_schema(STALE_REQUESTS))
