"""The stored tables, and those that follow from them, as Spark DataFrames."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from kproto.errors import ConfigurationError
from kproto.pipeline.parquet import parquet_rows, spark_schema
from kproto.tables.arrays import table_of
from kproto.tables.places import place_of
from kproto.tables.resolved import Survey, resolved_reader
from kproto.tables.schemas import METADATA_TABLES, TABLES
from kproto.tables.stored import current_tables, reader_of
from kproto.tables.writing import DATED
from kproto.verdicts.derived import VIEWS
from kproto.verdicts.found import facts_of_clusters
from kproto.verdicts.history import CHANGES, TOLD, folded
from kproto.verdicts.stale import EPOCH_COLUMNS, STALE_COLUMNS, STALE_REQUESTS, known_epochs, stale_rows
from kproto.verdicts.states import BEING_DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kproto.tables.places import Place
    from kproto.tables.resolved import Resolution
    from kproto.verdicts.derived import Derived
    from kproto.verdicts.stale import KnownEpochs

_OF_STATES: Final = (
    "changes", "leadership", "isr_events", "stale_requests", "spans", "partition_states_by_broker",
)  # fmt: skip
"""The derived tables that follow from requests and partition states alone."""


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
    stored = reader_of(current_tables(place_of(tables)))
    if judge is not None:
        clusters = facts_of_clusters(resolved_reader(stored))
        return spark.createDataFrame(judge(clusters), spark_schema(VIEWS[name].schema))
    frames = {each: read_table(spark, tables, each) for each in TABLES}
    resolution = Survey(stored).resolution()
    if resolution.changes_rows:
        frames["requests"] = _resolved(frames["requests"], resolution)
    return _derived(spark, frames, name, resolution.small("clocks"))


def _resolved(requests: DataFrame, resolution: Resolution) -> DataFrame:
    """Return resolved rows of ``requests``."""

    def resolve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from resolution.requests(pa.Table.from_batches([batch])).to_batches()

    return requests.mapInArrow(resolve, requests.schema)


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

    return _derived(requests.sparkSession, {"requests": requests, "partition_states": states}, name)


def _derived(
    spark: SparkSession, frames: Mapping[str, DataFrame], name: str, clocks: pa.Table | None = None
) -> DataFrame:
    """A derived table of the stored ones that it needs, by name."""
    known = dict(frames)

    def sql(text: str) -> DataFrame:
        # Spark makes views for a query and drops them: to drop the view of a cached relation itself drops its cache.
        return spark.sql(text, args=None, **{name: frame.where("true") for name, frame in known.items()})

    for each, derived in VIEWS.items():
        if derived.sql and _needs(derived) <= known.keys():
            frame = sql(derived.sql)
        elif each == "changes":
            frame = _changes(sql(_TOLD))
        elif each == name:
            frame = _stale_requests(frames["requests"], clocks)
        else:
            continue
        if each == name:
            break
        known[each] = frame
    return frame.select(
        *(F.col(field.name).cast(field.dataType).alias(field.name) for field in spark_schema(VIEWS[name].schema))
    )


def _needs(derived: Derived) -> set[str]:
    """The tables that a query names."""
    return {name for _text, name, _form, _conversion in Formatter().parse(derived.sql) if name}


_TOLD: Final = f"""
    WITH sent AS (
        SELECT cluster, body_id, min(struct(ts, frame_id, controller_id)) AS first FROM {{requests}}
        WHERE api_key IN (1, 4, 6) AND body_id IS NOT NULL AND coalesce(error_code, 0) = 0 GROUP BY cluster, body_id
    ), told AS (
        SELECT q.cluster, q.first, s.api_key, {", ".join(f"s.{name}" for name in TOLD.names)}
        FROM {{partition_states}} s JOIN sent q ON q.body_id = s.body_id WHERE s.leader IS NOT NULL
    ), deleted AS (
        SELECT DISTINCT cluster, topic, partition FROM told WHERE leader = {BEING_DELETED}
    ), reduced AS (
        SELECT t.cluster, {", ".join(f"t.{name}" for name in TOLD.names if name != "replicas")},
               min(struct(first.ts, first.frame_id, first.controller_id, replicas)) AS first
        FROM told t LEFT JOIN deleted d
          ON d.cluster <=> t.cluster AND d.topic = t.topic AND d.partition = t.partition
        GROUP BY t.cluster, {", ".join(f"t.{name}" for name in TOLD.names if name != "replicas")},
                 CASE WHEN d.topic IS NOT NULL THEN first.ts END
    )
    SELECT cluster, {", ".join(name for name in TOLD.names if name != "replicas")}, first.ts, first.frame_id,
           first.controller_id, first.replicas
    FROM reduced
"""  # noqa: S608  # our own names
"""The distinct states, each with the request that told it first; of deleted partitions once a time."""


def _changes(told: DataFrame) -> DataFrame:
    """The history: tasks fold it, each that of some partitions."""
    groups = int(told.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    place = F.pmod(F.hash("cluster", "topic", "partition"), F.lit(groups))
    return told.groupBy(place).applyInArrow(_folded, spark_schema(CHANGES))


def _folded(told: pa.Table) -> pa.Table:
    told = told.sort_by([("ts", "ascending"), ("frame_id", "ascending")])
    found = [CHANGES.empty_table()]
    for cluster in pc.unique(told["cluster"]).to_pylist():
        some = told.filter(pc.equal(told["cluster"], cluster))
        found.append(folded(cluster, some, some, pa.array(range(some.num_rows), pa.int64())))
    return pa.concat_tables(found)


def _stale_requests(requests: DataFrame, clocks: pa.Table | None) -> DataFrame:
    """The stale requests: tasks judge them by the epochs in all captures, which the driver collects before."""
    micros = F.unix_micros("ts")
    sent = requests.where("controller_id IS NOT NULL").groupBy(*EPOCH_COLUMNS, "capture")
    known = known_epochs([sent.agg(F.min(micros).alias("first"), F.max(micros).alias("last")).toArrow()], clocks)

    return requests.select(*STALE_COLUMNS).mapInArrow(
        lambda batches: _stale(batches, known, clocks), spark_schema(STALE_REQUESTS)
    )


def _stale(batches: Iterable[pa.RecordBatch], known: KnownEpochs, clocks: pa.Table | None) -> Iterator[pa.RecordBatch]:
    """Yield those of each batch by themselves: a partition may hold more than memory does."""
    for batch in batches:
        yield from table_of(stale_rows(pa.Table.from_batches([batch]), known, clocks), STALE_REQUESTS).to_batches()
