"""Defines the tables that are derived from the stored ones: by functions over Arrow tables, or in SQL.

``kproto.query`` runs the SQL with DuckDB, ``kproto.pipeline`` with Spark; a test holds the two equal. In the text a
name in braces stands for a stored table or for a derived table above it. Only functions that both engines have, or
that ``kproto.query`` defines for DuckDB under Spark's name, may be used.

Partition states are ordered by their epochs, never by clock: clocks only date them. A request that its broker refused
as a whole says nothing about partitions. Topics are distinguished by their ids where the version has ids; a state
without id is one of the topic whose id was told last before it, or first after it with no deletion between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from kproto.tables.schemas import INTS, PARTITION_STATES, TIME, column, described
from kproto.tables.stored import Reader
from kproto.verdicts.found import (
    BEHIND,
    BROKER_LIVES,
    BROKERS_DOWN,
    EVENTS,
    FINDINGS,
    LEADER_FLAPS,
    MISSED_UPDATES,
    REASSIGNMENTS,
    Judged,
    behind_table,
    down_table,
    events_table,
    findings_table,
    flaps_table,
    lives_table,
    missed_table,
    reassignments_table,
)
from kproto.verdicts.stale import STALE_REQUESTS, stale_requests
from kproto.verdicts.states import BEGINS_SQL, BEING_DELETED, ISR_CHANGE_SQL, STATE_ORDER


class Derived(NamedTuple):
    """A derived table.

    Attributes:
        schema: Its columns, described.
        sql: The query; a name in braces is a table. Empty where a function makes the table.
        compute: Makes the table from stored ones.
        judge: Makes the table from the facts of clusters, see ``facts_of_clusters``.
    """

    schema: pa.Schema
    sql: str = ""
    compute: Callable[[Reader], pa.Table] | None = None
    judge: Callable[[Iterable[Judged]], pa.Table] | None = None


_PARTITION: Final = (
    column("cluster", pa.string(), "Cluster, as declared or as found, see the table clusters."),
    column("topic", pa.string(), "Topic."),
    column("topic_id", pa.binary(), "Topic id; null where the version has none."),
    column("partition", pa.int32(), "Partition."),
    column("incarnation", pa.int32(), "Number of the topic among those of its name that no topic id tells apart."),
)

_LIFE: Final = "cluster, topic, topic_id, partition, incarnation"
_IN_ORDER: Final = f"PARTITION BY {_LIFE} ORDER BY {', '.join(STATE_ORDER)}, ts"
"""The order of a partition's states: by their epochs, from its creation to its deletion."""

_CHANGES: Final = Derived(
    described(
        "Each distinct state of a partition, when a controller first told any broker of it.",
        *_PARTITION,
        column("controller_epoch", pa.int32(), "Epoch of the controller that decided the state."),
        column("leader_epoch", pa.int32(), "Leader epoch."),
        column("partition_epoch", pa.int32(), "Partition epoch (ZooKeeper version)."),
        column("leader", pa.int32(), "Leader; -1 none."),
        column("isr", INTS, "In-sync replicas."),
        column("replicas", INTS, "All replicas."),
        column("ts", TIME, "When the first request with this state passed (UTC, us)."),
        column("controller_id", pa.int32(), "Controller that sent that request."),
        column("frame_id", pa.binary(), "That request's frame. Joins requests."),
        column("deleted_ts", TIME, "When a broker was first told of the deletion of the topic (UTC, us); null: none."),
    ),
    f"""
    WITH sent AS (
        SELECT cluster, body_id, min(ts) AS ts, min_by(controller_id, (ts, frame_id)) AS controller_id,
               min_by(frame_id, (ts, frame_id)) AS frame_id
        FROM {{requests}}
        WHERE api_key IN (1, 4, 6) AND body_id IS NOT NULL AND coalesce(error_code, 0) = 0
        GROUP BY cluster, body_id
    ), told AS (
        SELECT q.cluster, s.topic, nullif(s.topic_id, unhex('00000000000000000000000000000000')) AS told_id,
               s.partition, s.controller_epoch, s.leader_epoch, s.partition_epoch, s.leader, s.isr, s.replicas,
               q.ts, q.controller_id, q.frame_id
        FROM {{partition_states}} s JOIN sent q ON q.body_id = s.body_id
        WHERE s.leader IS NOT NULL
    ), ids AS (
        SELECT cluster, topic, topic_id, ts, lead(ts) OVER (PARTITION BY cluster, topic ORDER BY ts) AS next_ts,
               row_number() OVER (PARTITION BY cluster, topic ORDER BY ts) AS number
        FROM (
            SELECT t.cluster, t.topic, t.told_id AS topic_id, min(t.ts) AS ts
            FROM told t JOIN (SELECT DISTINCT cluster, topic FROM told WHERE told_id IS NULL) p
              ON p.cluster = t.cluster AND p.topic = t.topic
            WHERE t.told_id IS NOT NULL AND t.leader <> {BEING_DELETED}
            GROUP BY t.cluster, t.topic, t.told_id
        ) known
    ), named AS (
        SELECT i.cluster, i.topic, i.topic_id, i.next_ts, CASE WHEN i.number > 1 THEN i.ts ELSE max(d.ts) END AS since
        FROM ids i LEFT JOIN told d
          ON d.cluster = i.cluster AND d.topic = i.topic AND d.told_id IS NULL AND d.leader = {BEING_DELETED}
         AND d.ts < i.ts
        GROUP BY i.cluster, i.topic, i.topic_id, i.ts, i.next_ts, i.number
    ), states AS (
        SELECT t.*, told_id AS topic_id FROM told t WHERE told_id IS NOT NULL
        UNION ALL
        SELECT t.*, n.topic_id
        FROM told t LEFT JOIN named n
          ON n.cluster = t.cluster AND n.topic = t.topic
         AND (n.since IS NULL OR t.ts > n.since) AND (n.next_ts IS NULL OR t.ts <= n.next_ts)
        WHERE t.told_id IS NULL
    ), deletions AS (
        SELECT DISTINCT cluster, topic, topic_id, partition, ts FROM states WHERE leader = {BEING_DELETED}
    ), births AS (
        SELECT DISTINCT cluster, topic, partition, ts FROM (
            SELECT d.cluster, d.topic, d.partition, min(s.ts) AS ts
            FROM deletions d JOIN states s ON s.cluster = d.cluster AND s.topic = d.topic AND s.partition = d.partition
            WHERE s.ts > d.ts AND s.topic_id IS NULL AND s.leader <> {BEING_DELETED} AND {BEGINS_SQL}
            GROUP BY d.cluster, d.topic, d.partition, d.ts
        ) first
    ), lives AS (
        SELECT b.*, lead(ts) OVER (PARTITION BY cluster, topic, partition ORDER BY ts) AS next_ts,
               CAST(row_number() OVER (PARTITION BY cluster, topic, partition ORDER BY ts) AS int) AS incarnation
        FROM births b
    ), lived AS (
        SELECT s.*, coalesce(l.incarnation, 0) AS incarnation
        FROM states s LEFT JOIN lives l
          ON l.cluster = s.cluster AND l.topic = s.topic AND l.partition = s.partition AND s.topic_id IS NULL
         AND s.ts >= l.ts AND (l.next_ts IS NULL OR s.ts < l.next_ts)
        WHERE s.leader <> {BEING_DELETED}
    ), ends AS (
        SELECT d.cluster, d.topic, d.topic_id, d.partition, coalesce(l.incarnation, 0) AS incarnation,
               min(d.ts) AS deleted_ts
        FROM deletions d LEFT JOIN lives l
          ON l.cluster = d.cluster AND l.topic = d.topic AND l.partition = d.partition AND d.topic_id IS NULL
         AND d.ts >= l.ts AND (l.next_ts IS NULL OR d.ts < l.next_ts)
        GROUP BY d.cluster, d.topic, d.topic_id, d.partition, coalesce(l.incarnation, 0)
    ), first AS (
        SELECT {_LIFE}, controller_epoch, leader_epoch, partition_epoch,
               leader, isr, min_by(replicas, (ts, frame_id)) AS replicas, min(ts) AS ts,
               min_by(controller_id, (ts, frame_id)) AS controller_id, min_by(frame_id, (ts, frame_id)) AS frame_id
        FROM lived
        GROUP BY {_LIFE}, controller_epoch, leader_epoch, partition_epoch, leader, isr
    )
    SELECT f.cluster, f.topic, f.topic_id, f.partition, f.incarnation, f.controller_epoch, f.leader_epoch,
           f.partition_epoch, f.leader, f.isr, f.replicas, f.ts, f.controller_id, f.frame_id, e.deleted_ts
    FROM first f LEFT JOIN ends e
      ON e.cluster = f.cluster AND e.topic = f.topic AND e.topic_id IS NOT DISTINCT FROM f.topic_id
     AND e.partition = f.partition AND e.incarnation = f.incarnation
    """,  # noqa: S608  # our own numbers
)

_LEADERSHIP: Final = Derived(
    described(
        "Who led each partition, from when to when.",
        *_PARTITION,
        column("leader", pa.int32(), "Leader; -1 none."),
        column("leader_epoch", pa.int32(), "Leader epoch."),
        column("controller_epoch", pa.int32(), "Epoch of the controller that decided it."),
        column("controller_id", pa.int32(), "Controller that first told of it."),
        column("valid_from", TIME, "When a broker was first told (UTC, us); the leader may be older than the capture."),
        column("valid_to", TIME, "When a broker was first told of the next leader, or of the deletion; null: still."),
        column("changes_seen", pa.int64(), "Distinct states (ISR, partition epoch) told under this leader epoch."),
    ),
    f"""
    WITH reigns AS (
        SELECT {_LIFE}, leader, leader_epoch,
               min(controller_epoch) AS controller_epoch, min_by(controller_id, (ts, frame_id)) AS controller_id,
               min(ts) AS ts, count(*) AS changes_seen, min(deleted_ts) AS deleted_ts
        FROM {{changes}}
        GROUP BY {_LIFE}, leader, leader_epoch
    )
    SELECT {_LIFE}, leader, leader_epoch, controller_epoch, controller_id, ts AS valid_from,
           least(lead(ts) OVER (PARTITION BY {_LIFE} ORDER BY leader_epoch, ts), deleted_ts) AS valid_to, changes_seen
    FROM reigns
    """,  # noqa: S608  # our own names
)

_ISR_EVENTS: Final = Derived(
    described(
        "Changes of a partition's in-sync replicas.",
        *_PARTITION,
        column("ts", TIME, "When a broker was first told of the new ISR (UTC, us)."),
        column("kind", pa.string(), "shrink, expand, or swap: some left while others came."),
        column("removed", INTS, "Brokers that left the ISR."),
        column("added", INTS, "Brokers that came into the ISR."),
        column("isr_size", pa.int32(), "Brokers in the new ISR."),
        column("under_replicated", pa.bool_(), "Whether the new ISR lacks an assigned replica."),
        column("leader", pa.int32(), "Leader then; -1 none."),
        column("leader_epoch", pa.int32(), "Leader epoch then."),
        column("former_leader_epoch", pa.int32(), "Leader epoch before."),
        column("partition_epoch", pa.int32(), "Partition epoch then."),
        column("former_partition_epoch", pa.int32(), "Partition epoch before; other states may lie between the two."),
    ),
    f"""
    WITH ordered AS (
        SELECT c.*, lag(isr) OVER ({_IN_ORDER}) AS before, lag(leader_epoch) OVER ({_IN_ORDER}) AS former_leader_epoch,
               lag(partition_epoch) OVER ({_IN_ORDER}) AS former_partition_epoch
        FROM {{changes}} c
    ), compared AS (
        SELECT o.*, array_except(before, isr) AS removed, array_except(isr, before) AS added
        FROM ordered o WHERE before IS NOT NULL
    ), named AS (
        SELECT c.*, {ISR_CHANGE_SQL} AS kind FROM compared c
    )
    SELECT {_LIFE}, ts, kind, removed, added, CAST(size(isr) AS int) AS isr_size,
           size(array_except(replicas, isr)) > 0 AS under_replicated, leader, leader_epoch, former_leader_epoch,
           partition_epoch, former_partition_epoch
    FROM named
    WHERE kind IS NOT NULL
    """,  # noqa: S608  # our own names
)

_STALE_REQUESTS: Final = Derived(STALE_REQUESTS, compute=stale_requests)

_PROPAGATION: Final = Derived(
    described(
        "How each UpdateMetadata reached each broker.",
        column("cluster", pa.string(), "Cluster, as declared or as found, see the table clusters."),
        column("change_id", pa.binary(), "The update: its body. Joins requests.body_id and partition_states.body_id."),
        column("first_ts", TIME, "When the first broker was sent it (UTC, us)."),
        column("broker_id", pa.int32(), "Broker."),
        column("delivered_ts", TIME, "When this broker was first sent it (UTC, us)."),
        column("acked_ts", TIME, "When its first response without error passed (UTC, us); null: none."),
        column("lag_us", pa.int64(), "From first_ts to delivered_ts, in us."),
    ),
    """
    WITH updates AS (
        SELECT q.cluster, q.body_id, q.broker_id, q.ts, CASE WHEN r.error_code = 0 THEN r.ts END AS acked_ts
        FROM {requests} q LEFT JOIN {responses} r ON r.frame_id = q.frame_id
        WHERE q.api_key = 6 AND q.body_id IS NOT NULL AND q.broker_id IS NOT NULL
    ), deliveries AS (
        SELECT cluster, body_id, broker_id, min(ts) AS delivered_ts, min(acked_ts) AS acked_ts
        FROM updates GROUP BY cluster, body_id, broker_id
    ), bodies AS (
        SELECT cluster, body_id, min(delivered_ts) AS first_ts FROM deliveries GROUP BY cluster, body_id
    )
    SELECT b.cluster, b.body_id AS change_id, b.first_ts, d.broker_id, d.delivered_ts, d.acked_ts,
           unix_micros(d.delivered_ts) - unix_micros(b.first_ts) AS lag_us
    FROM bodies b JOIN deliveries d ON d.cluster = b.cluster AND d.body_id = b.body_id
    """,
)

_ERRORS: Final = Derived(
    described(
        "Errors that brokers answered, counted.",
        column("api_key", pa.int16(), "4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata."),
        column("api_version", pa.int16(), "Version of the request."),
        column("scope", pa.string(), "request: the whole request was refused; partition: some partitions were."),
        column("error_code", pa.int16(), "The error."),
        column("n", pa.int64(), "Requests, or partitions."),
        column("first_ts", TIME, "When the first such request passed (UTC, us)."),
        column("last_ts", TIME, "When the last such request passed (UTC, us)."),
    ),
    """
    WITH found AS (
        SELECT api_key, api_version, 'request' AS scope, error_code, ts FROM {requests} WHERE error_code <> 0
        UNION ALL
        SELECT q.api_key, q.api_version, 'partition', e.error_code, q.ts
        FROM {partition_errors} e JOIN {requests} q ON q.frame_id = e.frame_id
    )
    SELECT api_key, api_version, scope, error_code, count(*) AS n, min(ts) AS first_ts, max(ts) AS last_ts
    FROM found
    GROUP BY api_key, api_version, scope, error_code
    """,
)

DERIVED: Final = {
    "changes": _CHANGES,
    "leadership": _LEADERSHIP,
    "isr_events": _ISR_EVENTS,
    "stale_requests": _STALE_REQUESTS,
    "propagation": _PROPAGATION,
    "errors": _ERRORS,
}
"""The derived tables by name; each uses only stored tables and those above it."""

_BY_BROKER: Final = Derived(
    described(
        "The partitions of each request, and so of each broker: partition_states joined with requests.",
        column("frame_id", pa.binary(), "The request's frame. Joins requests."),
        column("cluster", pa.string(), "Cluster, as declared or as found, see the table clusters."),
        column("ts", TIME, "When the request passed (UTC, us)."),
        column("broker_id", pa.int32(), "Receiving broker; null where nothing tells it."),
        column("error_code", pa.int16(), "The broker's answer to the whole request; null: none."),
        *PARTITION_STATES,
    ),
    f"""
    SELECT q.frame_id, q.cluster, q.ts, q.broker_id, q.error_code,
           {", ".join(f"s.{name}" for name in PARTITION_STATES.names)}
    FROM {{requests}} q JOIN {{partition_states}} s ON s.body_id = q.body_id
    """,  # noqa: S608  # our own names
)

_SPANS: Final = Derived(
    described(
        "Each state of a partition, from when to when; without those told of a topic after its deletion.",
        *_CHANGES.schema,
        column("valid_from", TIME, "When a broker was first told of the state (UTC, us)."),
        column("valid_to", TIME, "When a broker was first told of the next, or of the deletion; null: it lasts."),
    ),
    f"""
    SELECT * FROM (
        SELECT c.*, ts AS valid_from, least(lead(ts) OVER ({_IN_ORDER}), deleted_ts) AS valid_to FROM {{changes}} c
    ) held
    WHERE valid_to IS NULL OR valid_to > valid_from
    """,  # noqa: S608  # our own names
)

VIEWS: Final = DERIVED | {
    "spans": _SPANS,
    "partition_states_by_broker": _BY_BROKER,
    "findings": Derived(FINDINGS, judge=findings_table),
    "missed_updates": Derived(MISSED_UPDATES, judge=missed_table),
    "leader_flaps": Derived(LEADER_FLAPS, judge=flaps_table),
    "behind": Derived(BEHIND, judge=behind_table),
    "broker_lives": Derived(BROKER_LIVES, judge=lives_table),
    "brokers_down": Derived(BROKERS_DOWN, judge=down_table),
    "events": Derived(EVENTS, judge=events_table),
    "reassignments": Derived(REASSIGNMENTS, judge=reassignments_table),
}
"""The derived tables, verdicts over all captures of a cluster, and a table that repeats stored rows: as large as if no
two requests shared a body."""
