"""What the tables say in short: computed in Spark from the tables on disk, small enough to print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproto.pipeline.queries import Queries
from kproto.pipeline.relations import read_table
from kproto.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["summarize"]

_ASKED: Final = """
    SELECT q.*, f.capture, f.flow.dst_ip AS ip, f.flow.dst_port AS port
    FROM {requests} q JOIN {frames} f ON f.frame_id = q.frame_id
"""

_CHANGES: Final = """
    WITH accepted AS (
        SELECT DISTINCT f.capture, q.body_id FROM {requests} q JOIN {frames} f ON f.frame_id = q.frame_id
        WHERE q.api_key <> 5 AND coalesce(q.error_code, 0) = 0
    ), states AS (
        SELECT DISTINCT a.capture, s.topic, s.topic_id, s.partition, s.controller_epoch, s.leader_epoch,
               s.partition_epoch, s.leader, array_sort(s.isr) AS isr
        FROM {partition_states} s JOIN accepted a ON a.body_id = s.body_id
        WHERE s.leader <> -2
    ), steps AS (
        SELECT capture, topic, partition, leader, isr, lag(leader) OVER w AS leader_before,
               lag(isr) OVER w AS isr_before
        FROM states
        WINDOW w AS (PARTITION BY capture, topic, topic_id, partition
                     ORDER BY controller_epoch, leader_epoch, partition_epoch)
    )
    SELECT capture, topic, partition,
           count_if(leader <> leader_before) AS leader_changes,
           count_if(leader = -1 AND leader_before <> -1) AS leader_lost,
           count_if(isr <> isr_before AND array_except(isr, isr_before) = array()) AS isr_shrinks,
           count_if(isr <> isr_before AND array_except(isr_before, isr) = array()) AS isr_expands,
           count_if(array_except(isr, isr_before) <> array() AND array_except(isr_before, isr) <> array()) AS isr_swaps
    FROM steps GROUP BY capture, topic, partition
"""
"""How each partition's states differ from the ones before: in the order of their epochs, as clocks differ and requests
are sent again. What a broker refused did not happen; leader -2 is a topic on its way out."""

_QUERIES: Final = {
    "requests": """
        SELECT api_key, api_version, error_code,
               CASE WHEN decode_error IS NOT NULL THEN 'unreadable'
                    WHEN response_frame_id IS NULL THEN 'unanswered' ELSE 'answered' END AS outcome,
               count(*) AS requests, sum(n_partitions) AS partitions
        FROM {asked} GROUP BY ALL ORDER BY api_key, api_version, outcome, error_code
    """,
    "controllers": """
        SELECT capture, controller_id, controller_epoch, is_kraft,
               count(*) AS requests, count(DISTINCT ip, port) AS brokers, min(ts) AS first, max(ts) AS last
        FROM {asked} WHERE controller_id IS NOT NULL
        GROUP BY ALL ORDER BY capture, controller_epoch, first
    """,
    "partition_errors": """
        SELECT r.api_key, e.error_code, count(*) AS partitions
        FROM {partition_errors} e JOIN {responses} r ON r.frame_id = e.frame_id
        GROUP BY ALL ORDER BY api_key, error_code
    """,
    "totals": """
        SELECT count(*) AS partitions, count_if(leader_changes > 0) AS partitions_moved,
               sum(leader_changes) AS leader_changes, sum(leader_lost) AS leader_lost,
               sum(isr_shrinks) AS isr_shrinks, sum(isr_expands) AS isr_expands, sum(isr_swaps) AS isr_swaps
        FROM {changes}
    """,
    "restless": """
        SELECT * FROM {changes} WHERE leader_changes > 0
        ORDER BY leader_changes DESC, isr_shrinks DESC, capture, topic, partition LIMIT 10
    """,
    "brokers": """
        SELECT capture, target_broker AS broker, ip, port,
               count(latency_us) AS answered, count(*) - count(latency_us) AS unanswered,
               percentile_approx(latency_us, 0.5) AS median_us, percentile_approx(latency_us, 0.99) AS p99_us,
               max(latency_us) AS max_us
        FROM {asked} GROUP BY capture, target_broker, ip, port
        ORDER BY p99_us DESC NULLS LAST, capture, broker LIMIT 10
    """,
    "unanswered": """
        SELECT unmatched_reason AS reason, count(*) AS requests FROM {asked}
        WHERE response_frame_id IS NULL GROUP BY ALL ORDER BY requests DESC, reason
    """,
    "unreadable": """
        SELECT capture, api_key, api_version, decode_error AS reason, count(*) AS requests
        FROM {asked} WHERE decode_error IS NOT NULL
        GROUP BY ALL ORDER BY requests DESC, capture, api_key, api_version, reason LIMIT 10
    """,
}
"""Question -> query over the tables, ``asked`` and ``changes``."""


def summarize(spark: SparkSession, tables: Path) -> dict[str, list[dict[str, Any]]]:
    """Ask the tables in a directory.

    Returns:
        Question -> rows, in order: ``requests`` by api, version and outcome; ``controllers`` by capture and epoch;
        ``partition_errors``; ``totals`` of leader and ISR changes and the most ``restless`` partitions; the slowest
        ``brokers`` by their 99th percentile; why requests are ``unanswered`` and ``unreadable``. Times are aware
        ``datetime``, latencies in us.
    """
    with Queries(spark) as sql:
        sql.add(**{name: read_table(spark, tables, name) for name in TABLES})
        kept = []
        try:
            for name, text in (("asked", _ASKED), ("changes", _CHANGES)):
                kept.append(sql(text).persist())  # asked more than once
                sql.add(**{name: kept[-1]})
            return {question: sql(text).toArrow().to_pylist() for question, text in _QUERIES.items()}
        finally:
            for frame in kept:
                frame.unpersist()
