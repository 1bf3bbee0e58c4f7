"""What is relational, in Spark SQL: from the scan and the decoded bodies to the tables; no Python for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kproto.api import CONTROL_APIS
from kproto.tables import FRAMES, TABLES, BrokerDirectory
from kproto.tables.stored import current_run

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kproto.pipeline.queries import Queries
    from kproto.tables import Filters

__all__ = ["DATED", "Relations", "as_table", "read_files", "read_table", "spark_schema"]

DATED: Final = [name for name, schema in TABLES.items() if "ts" in schema.names]
"""Tables partitioned by the day of ``ts``."""


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def as_table(frame: DataFrame, name: str) -> DataFrame:
    """A relation with exactly the columns of a table, and ``date`` where the table is partitioned by it."""
    wanted = spark_schema(TABLES[name])
    columns = [F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted]
    if "date" in frame.columns and "date" not in wanted.names:
        columns.append(F.col("date"))
    return frame.select(*columns)


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
    return read_files(spark, current_run(tables) / name, name)


def read_files(spark: SparkSession, files: Path, name: str) -> DataFrame:
    """The files of a table, in the directory that holds these files alone."""
    schema = spark_schema(TABLES[name])
    if name in DATED and "date" not in schema.names:
        schema.add("date", "date")
    return spark.read.schema(schema).parquet(str(files))


class Relations:
    """The tables as queries over two relations, both computed once and kept by the caller.

    ``kproto.tables.relations`` computes the same in one process; a test holds the two equal.

    Args:
        sql: To ask with.
        scan: Of the schema ``kproto.tables.SCAN``.
        decoded: Of the schema ``kproto.tables.DECODED``.
        filters: Which requests to keep.
    """

    def __init__(self, sql: Queries, scan: DataFrame, decoded: DataFrame, filters: Filters) -> None:
        self._sql = sql
        self._filters = filters
        self._scan = scan
        self._state = _part(decoded, "state")
        sql.add(scan=scan, state=self._state, **{name: _part(decoded, name) for name in ("head", "error", "broker")})

    def requests(self) -> DataFrame:
        """The table ``requests``: the wanted ones."""
        every = self._sql(
            """
            SELECT q.frame_id, q.capture, q.conn_id, q.ts, q.api_key, q.api_version, q.correlation_id, q.client_id,
                   h.controller_id, h.controller_epoch, q.broker_epoch, h.is_kraft, h.type,
                   coalesce(try_element_at(filter(b.history, c -> c.since_ns <= q.ts_ns), -1).broker_id,
                            get(b.history, 0).broker_id) AS target_broker,
                   q.flow.dst_ip AS server_ip, q.flow.dst_port AS server_port,
                   h.n_topics, h.n_partitions, q.body_id, q.frame_len,
                   r.frame_id AS response_frame_id,
                   unix_micros(r.ts) - unix_micros(q.ts_last) AS latency_us,
                   rh.error_code,
                   if(r.frame_id IS NULL, n.unmatched_reason, NULL) AS unmatched_reason,
                   coalesce(q.error, h.decode_error, 'response: ' || coalesce(r.error, rh.decode_error))
                       AS decode_error,
                   q.ts_ns, q.date
            FROM {scan} q
            LEFT JOIN {head} h ON h.body_id = q.body_id
            LEFT JOIN {scan} r ON r.request_frame_id = q.frame_id AND r.direction = 'resp'
            LEFT JOIN {head} rh ON rh.body_id = r.body_id
            LEFT JOIN {scan} n ON n.request_frame_id = q.frame_id AND n.frame_id IS NULL
            LEFT JOIN {brokers} b
                   ON b.capture = q.capture AND b.ip = q.flow.dst_ip AND b.port = q.flow.dst_port
            WHERE q.direction = 'req'
            """,
            brokers=F.broadcast(self._broker_ids()),
        )
        for condition in self._conditions():
            every = every.where(condition)
        if self._filters.by_partition:
            named = self._state.where(self._partition_condition()).select("body_id").distinct()
            every = every.join(named, "body_id", "left_semi")
        return as_table(self._with_errors(every), "requests")

    def _with_errors(self, requests: DataFrame) -> DataFrame:
        """Those of some requests that failed as the filters ask for."""
        if not self._filters.errors:
            return requests
        failed = F.coalesce(F.col("error_code") != 0, F.lit(False)) | F.col("decode_error").isNotNull()
        if self._filters.errors == "request":
            return requests.where(failed)
        in_partition = self.partition_errors(requests).select("frame_id").distinct()
        named = requests.join(in_partition, "frame_id", "left_semi")
        if self._filters.errors == "partition":
            return named
        return requests.where(failed).unionByName(named.where(~failed))

    def responses(self, requests: DataFrame) -> DataFrame:
        """The table ``responses``: those that answer ``requests``."""
        return as_table(
            self._sql(
                """
                SELECT q.frame_id, r.frame_id AS response_frame_id, r.conn_id, r.ts, r.correlation_id, r.api_key,
                       r.api_version, h.error_code, h.n_partition_errors, r.date
                FROM {scan} r
                JOIN {requests} q ON q.response_frame_id = r.frame_id
                LEFT JOIN {head} h ON h.body_id = r.body_id
                WHERE r.direction = 'resp'
                """,
                requests=requests,
            ),
            "responses",
        )

    def partition_errors(self, requests: DataFrame) -> DataFrame:
        """The table ``partition_errors``. Responses that name topics by id get the names from their requests."""
        errors = self._sql(
            """
            WITH answers AS (
                SELECT q.frame_id, q.response_frame_id, q.body_id AS request_body, r.body_id AS response_body
                FROM {requests} q JOIN {scan} r ON r.frame_id = q.response_frame_id
            ), found AS (
                SELECT a.frame_id, a.response_frame_id, a.request_body, e.*
                FROM answers a JOIN {error} e ON e.body_id = a.response_body
            ), names AS (
                SELECT s.body_id, s.topic_id, min(s.topic) AS topic
                FROM {state} s LEFT SEMI JOIN found f ON f.request_body = s.body_id
                GROUP BY s.body_id, s.topic_id
            )
            SELECT f.frame_id, f.response_frame_id, coalesce(f.topic, n.topic) AS topic, f.topic_id, f.partition,
                   f.error_code
            FROM found f LEFT JOIN names n ON n.body_id = f.request_body AND n.topic_id = f.topic_id
            """,
            requests=requests,
        )
        if self._filters.by_partition:
            errors = errors.where(self._partition_condition())
        return as_table(errors, "partition_errors")

    def partition_states(self, requests: DataFrame) -> DataFrame:
        """The table ``partition_states``: of the bodies of ``requests``, each once."""
        states = self._state
        if self._filters.by_partition:
            states = states.where(self._partition_condition())
        if self._filters.by_request:
            states = states.join(requests.select("body_id").distinct(), "body_id", "left_semi")
        return as_table(states, "partition_states")

    def frames(self, requests: DataFrame) -> DataFrame:
        """The table ``frames``: of ``requests`` and their responses."""
        frames = self._scan.where("frame_id IS NOT NULL").select(*FRAMES.names)
        if self._filters.by_request:
            kept = requests.select(F.explode(F.array("frame_id", "response_frame_id")).alias("frame_id"))
            frames = frames.join(kept, "frame_id", "left_semi")
        return as_table(frames, "frames")

    def bodies(self, bodies: DataFrame, frames: DataFrame) -> DataFrame:
        """The table ``bodies``: those of ``frames``."""
        if self._filters.by_request:
            bodies = bodies.join(frames.select("body_id").distinct(), "body_id", "left_semi")
        return as_table(bodies, "bodies")

    def brokers(self) -> DataFrame:
        """The table ``brokers``: the listeners that UpdateMetadata lists, and since when."""
        found = self._sql(
            """
            WITH sets AS (
                SELECT q.capture, h.brokers_id, min(q.ts) AS since
                FROM {scan} q JOIN {head} h ON h.body_id = q.body_id
                WHERE h.brokers_id IS NOT NULL
                GROUP BY q.capture, h.brokers_id
            ), listeners AS (SELECT DISTINCT brokers_id, broker_id, host, port FROM {broker})
            SELECT s.capture, l.broker_id, l.host, l.port, min(s.since) AS first_ts
            FROM sets s JOIN listeners l ON l.brokers_id = s.brokers_id
            GROUP BY s.capture, l.broker_id, l.host, l.port
            """
        )
        return as_table(found, "brokers")

    def captures(self) -> DataFrame:
        """The table ``captures``."""
        return as_table(self._scan.where("facts IS NOT NULL").select("capture", "file", "facts.*"), "captures")

    def bad_inputs(self) -> DataFrame:
        """The table ``bad_inputs``."""
        return as_table(self._scan.where("bad_input IS NOT NULL").select("file", "bad_input.*"), "bad_inputs")

    def _broker_ids(self) -> DataFrame:
        """The broker ids of each address that was sent to: few rows, so the driver asks a ``BrokerDirectory``."""
        directory = BrokerDirectory(self._filters.broker_ids)
        listeners: dict[bytes, list[tuple[int, str, int]]] = {}
        for row in self._sql("SELECT DISTINCT brokers_id, broker_id, host, port FROM {broker}").collect():
            listeners.setdefault(bytes(row.brokers_id), []).append((row.broker_id, row.host, row.port))
        for row in self._listed().collect():
            directory.learn_listeners(row.ts_ns, row.capture, listeners.get(bytes(row.brokers_id), ()))
        for row in self._shared_replicas().collect():
            for common in row.common:
                directory.learn_replicas(row.capture, (row.ip, row.port), common)
        addresses = self._sql("""
            SELECT DISTINCT capture, flow.dst_ip AS ip, flow.dst_port AS port FROM {scan} WHERE direction = 'req'
        """).collect()
        rows = [
            (row.capture, row.ip, row.port, directory.history_of((row.ip, row.port), row.capture)) for row in addresses
        ]
        schema = "capture string, ip string, port int, history array<struct<since_ns: bigint, broker_id: int>>"
        return self._sql.spark.createDataFrame(rows, schema)

    def _listed(self) -> DataFrame:
        """When the set of live brokers that UpdateMetadata lists became another, in the order of time."""
        return self._sql(
            """
            WITH listed AS (
                SELECT q.capture, q.ts_ns, h.brokers_id,
                       lag(h.brokers_id) OVER (PARTITION BY q.capture ORDER BY q.ts_ns) AS before
                FROM {scan} q JOIN {head} h ON h.body_id = q.body_id
                WHERE h.brokers_id IS NOT NULL AND q.direction = 'req'
            )
            SELECT capture, ts_ns, brokers_id FROM listed
            WHERE before IS NULL OR before <> brokers_id
            ORDER BY ts_ns
            """
        )

    def _shared_replicas(self) -> DataFrame:
        """For each address the sets of replicas that the partitions of a LeaderAndIsr to it have in common."""
        return self._sql("""
            SELECT q.capture, q.flow.dst_ip AS ip, q.flow.dst_port AS port,
                   collect_set(array_sort(h.common_replicas)) AS common
            FROM {scan} q JOIN {head} h ON h.body_id = q.body_id
            WHERE q.direction = 'req' AND h.common_replicas IS NOT NULL
            GROUP BY ALL
        """)

    def _conditions(self) -> list[Column]:
        """What the scan lets pass for the brokers that it names, or cannot know."""
        filters = self._filters
        found = [F.col("api_key").isin(sorted(filters.apis or CONTROL_APIS))]
        if filters.since_ns is not None:
            found.append(F.col("ts_ns") >= filters.since_ns)
        if filters.until_ns is not None:
            found.append(F.col("ts_ns") < filters.until_ns)
        if filters.brokers:
            found.append(F.col("target_broker").isin(sorted(filters.brokers)))
        if filters.controllers:
            found.append(F.col("controller_id").isin(sorted(filters.controllers)))
        return found

    def _partition_condition(self) -> Column:
        condition = F.lit(False)
        for pattern in self._filters.topic_patterns:
            condition = condition | F.col("topic").rlike(pattern)
        for topic, partition in sorted(self._filters.partitions):
            condition = condition | ((F.col("topic") == topic) & (F.col("partition") == partition))
        return condition


def _part(decoded: DataFrame, name: str) -> DataFrame:
    return decoded.where(F.col(name).isNotNull()).select("body_id", f"{name}.*")
