"""Computes leaders and in-sync replicas of each partition over time, by column."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kproto.json_form import uuid_to_json
from kproto.query import ask_sql
from kproto.report.requests import columns_of
from kproto.verdicts.states import STATE_ORDER

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    import duckdb

    from kproto.report.requests import RequestIndex


def timeline(
    sql: duckdb.DuckDBPyConnection,
    clusters: Mapping[str, int],
    requests: RequestIndex,
    most_partitions: int,
    most_states: int,
    cut: list[str],
) -> dict[str, Any]:
    """Return the states of the partitions that changed most.

    Args:
        sql: The tables, with the view ``changes``.
        clusters: Places of clusters by their names.
        requests: Numbers the requests that first sent the states.
        most_partitions, most_states: The largest numbers of partitions and states to give.
        cut: Takes a sentence about what was left out.

    Returns:
        ``topics``, ``topic_ids`` and ``brokers`` (lists of brokers), which the others name by place; ``partitions``,
        with the time at which they were ``deleted`` or null; ``states`` sorted by partition and epochs, where ``row``
        is the place of the partition. Of all partitions, shown or not: how many there are, and which are without
        leader or lack in-sync replicas at the end.
    """
    sql.execute(_ENDS)
    sql.execute(_KEPT, [most_partitions, most_states])
    partitions = columns_of(ask_sql(sql, _PARTITIONS))
    names_of_rows = list(zip(partitions["topic"], partitions["partition"], strict=True))
    partitions["cluster"] = [clusters[name] for name in partitions["cluster"]]
    topics, topic_ids = (_numbered(partitions[name]) for name in ("topic", "topic_id"))
    partitions |= {
        "topic": [*map(topics.get, partitions["topic"])],
        "topic_id": [*map(topic_ids.get, partitions["topic_id"])],
    }
    states = columns_of(ask_sql(sql, _KEPT_STATES))
    lists = [[tuple(ids or ()) for ids in states[name]] for name in ("isr", "replicas")]
    brokers = _numbered(chain.from_iterable(zip(*lists, strict=True)))
    states |= {"isr": [*map(brokers.get, lists[0])], "replicas": [*map(brokers.get, lists[1])]}
    told = zip(states["row"], states["request"], strict=True)
    states["request"] = [requests.place(frame_id, *names_of_rows[row]) for row, frame_id in told]
    ((in_all, topics_in_all, leaderless, short, names),) = ask_sql(sql, _IN_ALL).rows
    if len(partitions["topic"]) < in_all:
        cut.append(
            f"The timeline shows {len(partitions['topic']):,} of {in_all:,} partitions: those in trouble at the end, "
            "and those that changed most. kproto query DIR leader tells of the others; kproto report --partitions N "
            "shows more."
        )
    return {
        "topics": [*topics],
        "topic_ids": [None if uuid is None else uuid_to_json(uuid) for uuid in topic_ids],
        "brokers": [*brokers],
        "partitions": partitions,
        "states": states,
        "all_partitions": in_all,
        "all_topics": topics_in_all,
        "leaderless": leaderless,
        "leaderless_names": names or [],
        "under_replicated": short,
    }


_EPOCHS: Final = ", ".join(STATE_ORDER)

_ENDS: Final = f"""
    CREATE OR REPLACE TEMP TABLE ends AS
    WITH last_states AS (
        SELECT cluster, topic, topic_id, partition, count(*) AS states, min(ts) AS first_ts,
               max_by({{'leader': leader, 'missing': len(replicas) - len(isr), 'deleted_ts': deleted_ts}},
                      (incarnation, {_EPOCHS}, ts)) AS state
        FROM changes GROUP BY ALL
    )
    SELECT cluster, topic, topic_id, partition, states, first_ts, state.deleted_ts AS deleted_ts,
           state.deleted_ts IS NULL AND state.leader = -1 AS leaderless,
           state.deleted_ts IS NULL AND state.leader <> -1 AND state.missing > 0 AS short
    FROM last_states
"""  # noqa: S608  # our own names
"""The last state of each partition."""

_KEPT: Final = """
    CREATE OR REPLACE TEMP TABLE kept_partitions AS
    WITH ranked AS (
        SELECT *, row_number() OVER worst AS rank, sum(states) OVER worst AS total
        FROM ends
        WINDOW worst AS (
            ORDER BY leaderless DESC, short DESC, states DESC, cluster, topic, partition, first_ts, topic_id
        )
    )
    SELECT row_number() OVER (ORDER BY cluster, topic, partition, first_ts, topic_id) - 1 AS row, *
    FROM ranked WHERE rank <= ? AND total <= ?
"""

_PARTITIONS: Final = """
    SELECT cluster, topic, topic_id, partition, epoch_us(deleted_ts) AS deleted FROM kept_partitions ORDER BY row
"""

_KEPT_STATES: Final = f"""
    SELECT p.row, epoch_us(c.ts) AS ts, c.leader, c.leader_epoch, c.controller_epoch, c.partition_epoch,
           c.controller_id AS controller, c.isr, c.replicas, c.frame_id AS request
    FROM changes c
    JOIN kept_partitions p ON p.cluster = c.cluster AND p.topic = c.topic AND p.partition = c.partition
                          AND p.topic_id IS NOT DISTINCT FROM c.topic_id
    ORDER BY p.row, c.incarnation, {_EPOCHS}, c.ts, c.frame_id
"""  # noqa: S608  # our own names

_IN_ALL: Final = """
    SELECT count(*), count(DISTINCT row(cluster, topic)), count_if(leaderless), count_if(short),
           list(topic || '-' || partition ORDER BY topic, partition) FILTER (leaderless)[:3]
    FROM ends
"""


def _numbered(values: Iterable[Hashable]) -> dict[Any, int]:
    """Return distinct values, each with its place in their order."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}
