"""Defines the tables that are derived from the stored ones: by functions over Arrow tables, or in SQL.

``kproto.query`` runs the SQL with DuckDB, ``kproto.pipeline`` with Spark; a test holds the two equal. In the text a
name in braces stands for a stored table or for a derived table above it. Only functions that both engines have, or
that ``kproto.query`` defines for DuckDB under Spark's name, may be used.

What happened to partitions is selected from ``changes``, which ``history`` folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from kproto.tables.schemas import INTS, PARTITION_STATES, TIME, column, described
from kproto.tables.stored import Reader
from kproto.verdicts.found import JUDGED, Judged, judged_table
from kproto.verdicts.history import CHANGES, PARTITION, STATES, changes
from kproto.verdicts.stale import CLUSTER, STALE_REQUESTS, stale_requests


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


_LIFE: Final = ", ".join(field.name for field in PARTITION)

_MAY_BE_OLDER: Final = """
coalesce(former_leader_epoch IS NULL AND partition_epoch > leader_epoch AND controller_epoch > 1, false)
""".strip()
"""Whether the first known state of a partition may be a change after its leader's election, by another controller.

Both epochs grow with each election, the partition's with each other change too. Epoch 1 is the first controller's.
"""

# A leader that brokers are told of after the next one, or after the deletion, began before that.
_LEADERSHIP: Final = Derived(
    described(
        "Who led each partition, from when to when.",
        *PARTITION,
        column("leader", pa.int32(), "Leader; -1 none."),
        column("leader_epoch", pa.int32(), "Leader epoch."),
        column("controller_epoch", pa.int32(), "Epoch of the controller that decided it; null: cannot be told."),
        column("controller_id", pa.int32(), "Controller that first told of it."),
        column("valid_from", TIME, "When a broker was first told (UTC, us); the leader may be older than the capture."),
        column("valid_to", TIME, "When a broker was first told of the next leader, or of the deletion; null: still."),
        column("changes_seen", pa.int64(), "Distinct states (ISR, partition epoch) told under this leader epoch."),
    ),
    f"""
    WITH reigns AS (
        SELECT {_LIFE}, leader, leader_epoch,
               min_by(controller_epoch, (coalesce(partition_epoch, -1), ts, frame_id)) AS controller_epoch,
               min_by({_MAY_BE_OLDER}, (coalesce(partition_epoch, -1), ts, frame_id)) AS may_be_older,
               min_by(controller_id, (ts, frame_id)) AS controller_id,
               min(ts) AS ts, count(*) AS changes_seen, min(deleted_ts) AS deleted_ts
        FROM {{changes}}
        GROUP BY {_LIFE}, leader, leader_epoch
    ), dated AS (
        SELECT *, least(deleted_ts, min(ts) OVER (
            PARTITION BY {_LIFE} ORDER BY leader_epoch, ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        )) AS valid_from
        FROM reigns
    )
    SELECT {_LIFE}, leader, leader_epoch,
           CASE WHEN NOT may_be_older AND controller_epoch >= 0 THEN controller_epoch END AS controller_epoch,
           controller_id, valid_from,
           coalesce(lead(valid_from) OVER (PARTITION BY {_LIFE} ORDER BY leader_epoch, ts), deleted_ts) AS valid_to,
           changes_seen
    FROM dated
    """,  # noqa: S608  # our own names
)

_ISR_EVENTS: Final = Derived(
    described(
        "Changes of a partition's in-sync replicas.",
        *PARTITION,
        column("ts", TIME, "When a broker was first told of the new ISR (UTC, us)."),
        column("kind", pa.string(), "shrink, expand, or swap: some left while others came."),
        column("removed", INTS, "Brokers that left the ISR."),
        column("added", INTS, "Brokers that came into the ISR."),
        column("isr_size", pa.int32(), "Brokers in the new ISR."),
        column(
            "under_replicated", pa.bool_(), "Whether the new ISR lacks an assigned replica; null: those are unknown."
        ),
        column("leader", pa.int32(), "Leader then; -1 none."),
        column("leader_epoch", pa.int32(), "Leader epoch then."),
        column("former_leader_epoch", pa.int32(), "Leader epoch before."),
        column("partition_epoch", pa.int32(), "Partition epoch then."),
        column("former_partition_epoch", pa.int32(), "Partition epoch before; other states may lie between the two."),
    ),
    f"""
    SELECT {_LIFE}, ts, isr_change AS kind, removed, added, CAST(size(isr) AS int) AS isr_size,
           CASE WHEN size(replicas) > 0 THEN size(array_except(replicas, isr)) > 0 END AS under_replicated, leader,
           leader_epoch, former_leader_epoch, partition_epoch, former_partition_epoch
    FROM {{changes}}
    WHERE isr_change IS NOT NULL
    """,  # noqa: S608  # our own names
)

_DELIVERIES: Final = Derived(
    described(
        "Who was told what, and when: each distinct body with each broker that it was sent to.",
        CLUSTER,
        column("body_id", pa.binary(), "The body. Joins requests and partition_states."),
        column("api_key", pa.int16(), "4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata."),
        column("broker_id", pa.int32(), "Broker; null where nothing tells it."),
        column("address", pa.string(), "IP and port of a broker whose id is not known; null: it is."),
        column("requests", pa.int64(), "Requests with this body to this broker."),
        column("first_ts", TIME, "When the first of them passed (UTC, us)."),
        column("last_ts", TIME, "When the last of them passed (UTC, us)."),
        column("accepted_ts", TIME, "When the first that the broker accepted passed (UTC, us); null: none."),
        column("acked_ts", TIME, "When its first response without error passed (UTC, us); null: none."),
        column("refused", pa.int64(), "Requests that the broker refused as a whole."),
        column("error_code", pa.int16(), "The highest error code with which it did; null: none."),
        column("unanswered", pa.int64(), "Requests without response."),
    ),
    """
    WITH sent AS (
        SELECT q.cluster, q.body_id, q.api_key, q.broker_id, q.ts, q.error_code, q.response_frame_id,
               CASE WHEN q.broker_id IS NULL THEN concat(q.server_ip, ':', q.server_port) END AS address,
               CASE WHEN r.error_code = 0 THEN r.ts END AS acked_ts
        FROM {requests} q LEFT JOIN {responses} r ON r.frame_id = q.frame_id
        WHERE q.api_key IN (4, 5, 6) AND q.body_id IS NOT NULL
    )
    SELECT cluster, body_id, api_key, broker_id, address, count(*) AS requests, min(ts) AS first_ts, max(ts) AS last_ts,
           min(CASE WHEN error_code = 0 THEN ts END) AS accepted_ts, min(acked_ts) AS acked_ts,
           count(CASE WHEN error_code <> 0 THEN 1 END) AS refused,
           max(CASE WHEN error_code <> 0 THEN error_code END) AS error_code,
           count(CASE WHEN response_frame_id IS NULL THEN 1 END) AS unanswered
    FROM sent GROUP BY cluster, body_id, api_key, broker_id, address
    """,
)

_PROPAGATION: Final = Derived(
    described(
        "How each UpdateMetadata reached each broker.",
        CLUSTER,
        column("change_id", pa.binary(), "The update: its body. Joins requests.body_id and partition_states.body_id."),
        column("first_ts", TIME, "When the first broker was sent it (UTC, us)."),
        column("broker_id", pa.int32(), "Broker."),
        column("delivered_ts", TIME, "When this broker was first sent it (UTC, us)."),
        column("acked_ts", TIME, "When its first response without error passed (UTC, us); null: none."),
        column("lag_us", pa.int64(), "From first_ts to delivered_ts, in us."),
    ),
    """
    SELECT cluster, body_id AS change_id, min(first_ts) OVER body AS first_ts, broker_id, first_ts AS delivered_ts,
           acked_ts, unix_micros(first_ts) - unix_micros(min(first_ts) OVER body) AS lag_us
    FROM {deliveries} WHERE api_key = 6 AND broker_id IS NOT NULL
    WINDOW body AS (PARTITION BY cluster, body_id)
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
    "changes": Derived(CHANGES, compute=changes),
    "leadership": _LEADERSHIP,
    "isr_events": _ISR_EVENTS,
    "stale_requests": Derived(STALE_REQUESTS, compute=stale_requests),
    "propagation": _PROPAGATION,
    "errors": _ERRORS,
}
"""The derived tables by name; each uses only stored tables, the deliveries, and those above it."""

_BY_BROKER: Final = Derived(
    described(
        "The partitions of each request, and so of each broker: partition_states joined with requests.",
        column("frame_id", pa.binary(), "The request's frame. Joins requests."),
        CLUSTER,
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
        *STATES,
        column("valid_from", TIME, "When a broker was first told of the state (UTC, us)."),
        column("valid_to", TIME, "When a broker was first told of the next, or of the deletion; null: it lasts."),
    ),
    f"""
    SELECT {", ".join(STATES.names)}, ts AS valid_from, valid_to FROM {{changes}}
    WHERE valid_to IS NULL OR valid_to > ts
    """,  # noqa: S608  # our own names
)

VIEWS: Final = (
    {"deliveries": _DELIVERIES}
    | DERIVED
    | {
        "spans": _SPANS,
        "partition_states_by_broker": _BY_BROKER,
    }
    | {name: Derived(schema, judge=partial(judged_table, name)) for name, (schema, _rows) in JUDGED.items()}
)
"""The derived tables, verdicts over all captures of a cluster, and a table that repeats stored rows: as large as if no
two requests shared a body."""
