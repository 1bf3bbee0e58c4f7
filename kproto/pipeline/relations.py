"""What is relational, in Spark SQL: from the scan and the decoded bodies to the tables; no Python for a row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from kproto.tables import FRAMES, TABLES

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kproto.pipeline.queries import Queries
    from kproto.pipeline.selection import Selection

__all__ = ["DATED", "Relations", "as_table", "read_table", "spark_schema"]

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
    """A table on disk. Its schema is known, so no file is opened to find it."""
    schema = spark_schema(TABLES[name])
    if name in DATED and "date" not in schema.names:
        schema.add("date", "date")
    return spark.read.schema(schema).parquet(str(tables / name))


class Relations:
    """The tables as queries over two relations, both computed once and kept by the caller.

    Args:
        sql: To ask with.
        scan: Of the schema ``kproto.tables.SCAN``.
        decoded: Of the schema ``kproto.tables.DECODED``.
        selection: Which requests to keep.
    """

    def __init__(self, sql: Queries, scan: DataFrame, decoded: DataFrame, selection: Selection) -> None:
        self._sql = sql
        self._selection = selection
        self._scan = scan
        self._state = _part(decoded, "state")
        sql.add(scan=scan, state=self._state, **{name: _part(decoded, name) for name in ("head", "error", "broker")})

    def requests(self) -> DataFrame:
        """The table ``requests``: the selected ones."""
        every = self._sql(
            """
            SELECT q.frame_id, q.conn_id, q.ts, q.api_key, q.api_version, q.correlation_id, q.client_id,
                   h.controller_id, h.controller_epoch, q.broker_epoch, h.is_kraft, h.type,
                   coalesce(try_element_at(filter(b.claims, c -> c.since <= unix_micros(q.ts)), -1).broker_id,
                            get(b.claims, 0).broker_id) AS target_broker,
                   h.n_topics, h.n_partitions, q.body_id, q.frame_len,
                   r.frame_id AS response_frame_id,
                   unix_micros(r.ts) - unix_micros(q.ts_last) AS latency_us,
                   rh.error_code,
                   if(r.frame_id IS NULL, n.unmatched_reason, NULL) AS unmatched_reason,
                   coalesce(q.error, h.decode_error, 'response: ' || coalesce(r.error, rh.decode_error))
                       AS decode_error,
                   coalesce(rh.n_partition_errors, 0) AS n_partition_errors,
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
            brokers=F.broadcast(self._brokers()),
        )
        for condition in self._conditions():
            every = every.where(condition)
        if self._selection.by_partition:
            named = self._state.where(self._partition_condition()).select("body_id").distinct()
            every = every.join(named, "body_id", "left_semi")
        return as_table(every, "requests")

    def responses(self, requests: DataFrame) -> DataFrame:
        """The table ``responses``: those that answer ``requests``."""
        return as_table(
            self._sql(
                """
                SELECT r.*, h.error_code, h.n_partition_errors
                FROM {scan} r
                LEFT SEMI JOIN {requests} q ON q.response_frame_id = r.frame_id
                LEFT JOIN {head} h ON h.body_id = r.body_id
                WHERE r.direction = 'resp'
                """,
                requests=requests,
            ),
            "responses",
        )

    def partition_errors(self, requests: DataFrame) -> DataFrame:
        """The table ``partition_errors``. Answers that name topics by id get the names from their requests."""
        return as_table(
            self._sql(
                """
                WITH answers AS (
                    SELECT q.response_frame_id AS frame_id, q.body_id AS asked, r.body_id AS answered
                    FROM {requests} q JOIN {scan} r ON r.frame_id = q.response_frame_id
                ), found AS (
                    SELECT a.frame_id, a.asked, e.* FROM answers a JOIN {error} e ON e.body_id = a.answered
                ), names AS (
                    SELECT s.body_id, s.topic_id, min(s.topic) AS topic
                    FROM {state} s LEFT SEMI JOIN found f ON f.asked = s.body_id
                    GROUP BY s.body_id, s.topic_id
                )
                SELECT f.frame_id, coalesce(f.topic, n.topic) AS topic, f.topic_id, f.partition, f.error_code
                FROM found f LEFT JOIN names n ON n.body_id = f.asked AND n.topic_id = f.topic_id
                """,
                requests=requests,
            ),
            "partition_errors",
        )

    def partition_states(self, requests: DataFrame) -> DataFrame:
        """The table ``partition_states``: of the bodies of ``requests``, each once."""
        states = self._state
        if self._selection.by_partition:
            states = states.where(self._partition_condition())
        if self._selection.by_request:
            states = states.join(requests.select("body_id").distinct(), "body_id", "left_semi")
        return as_table(states, "partition_states")

    def frames(self, requests: DataFrame) -> DataFrame:
        """The table ``frames``: of ``requests`` and their answers."""
        frames = self._scan.where("frame_id IS NOT NULL").select(*FRAMES.names)
        if self._selection.by_request:
            kept = requests.select(F.explode(F.array("frame_id", "response_frame_id")).alias("frame_id"))
            frames = frames.join(kept, "frame_id", "left_semi")
        return as_table(frames, "frames")

    def bodies(self, bodies: DataFrame, frames: DataFrame) -> DataFrame:
        """The table ``bodies``: those of ``frames``."""
        if self._selection.by_request:
            bodies = bodies.join(frames.select("body_id").distinct(), "body_id", "left_semi")
        return as_table(bodies, "bodies")

    def _brokers(self) -> DataFrame:
        """Who listens at each address that was sent to, since when: few rows, so the driver puts them in order.

        What the user told comes first; then what live brokers are said to be there; then, as brokers may advertise
        names where captures show addresses, the port, if it is one broker's alone.
        """
        addresses = self._sql("""
            SELECT DISTINCT capture, flow.dst_ip AS ip, flow.dst_port AS port FROM {scan} WHERE direction = 'req'
        """).collect()
        at_address: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
        at_port: dict[tuple[str, int], set[int]] = defaultdict(set)
        for capture, ip, port, broker, since in self._claims().collect():
            if ip is None:
                at_port[capture, port].add(broker)
            else:
                at_address[capture, ip, port].append((since, broker))
        rows = []
        for capture, ip, port in addresses:
            told = self._selection.broker_ids.get((ip, port))
            alone = at_port.get((capture, port), ())
            if told is not None:
                claims = [(0, told)]
            elif (capture, ip, port) in at_address:
                claims = sorted(at_address[capture, ip, port])
            else:
                claims = [(0, broker) for broker in alone] if len(alone) == 1 else []
            rows.append((capture, ip, port, claims))
        schema = "capture string, ip string, port int, claims array<struct<since: bigint, broker_id: int>>"
        return self._sql.spark.createDataFrame(rows, schema)

    def _claims(self) -> DataFrame:
        """Which broker was said to listen where, since when, by the capture that shows it."""
        return self._sql(
            """
            WITH sets AS (
                SELECT q.capture, h.brokers_id, min(unix_micros(q.ts)) AS since
                FROM {scan} q JOIN {head} h ON h.body_id = q.body_id
                WHERE h.brokers_id IS NOT NULL
                GROUP BY q.capture, h.brokers_id
            )
            SELECT s.capture, m.ip, m.port, m.broker_id, min(s.since) AS since
            FROM sets s JOIN {broker} m ON m.brokers_id = s.brokers_id
            GROUP BY s.capture, m.ip, m.port, m.broker_id
            """
        )

    def _conditions(self) -> list[Column]:
        """What the scan lets pass for the brokers that it names, or cannot know."""
        found = [F.col("api_key").isin(sorted(self._selection.apis))]
        if self._selection.since_ns is not None:
            found.append(F.col("ts_ns") >= self._selection.since_ns)
        if self._selection.until_ns is not None:
            found.append(F.col("ts_ns") < self._selection.until_ns)
        if self._selection.brokers:
            found.append(F.col("target_broker").isin(sorted(self._selection.brokers)))
        if self._selection.errors:
            found.append(
                (F.col("error_code") != 0) | (F.col("n_partition_errors") > 0) | F.col("decode_error").isNotNull()
            )
        return found

    def _partition_condition(self) -> Column:
        condition = F.lit(False)
        for pattern in self._selection.topic_patterns:
            condition = condition | F.col("topic").rlike(pattern)
        for topic, partition in sorted(self._selection.partitions):
            condition = condition | ((F.col("topic") == topic) & (F.col("partition") == partition))
        return condition


def _part(decoded: DataFrame, name: str) -> DataFrame:
    return decoded.where(F.col(name).isNotNull()).select("body_id", f"{name}.*")
