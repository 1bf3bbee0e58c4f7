"""Defines questions about a cluster's control traffic as queries over the tables' views."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from kproto.error_codes import ErrorCode
from kproto.errors import ConfigurationError
from kproto.query.hints import absent, comparison, down, explained_by_duckdb, strangers
from kproto.tables.arrays import with_column
from kproto.verdicts.epochs import partition_error_meaning

if TYPE_CHECKING:
    from kproto.tables.filters import Filters


class Question(NamedTuple):
    """A question with a name.

    Attributes:
        text: The question in words.
        sql: The query, over the views of ``open_tables``.
        order: The SQL order of the answer's rows, before that by all columns.
        time: The column that ``since`` and ``until`` look at; empty if the answer has no time.
        until: The column with the end of a row's validity, for questions that can be asked of a moment.
        compares: Whether the answer compares brokers with each other, over all captures of a cluster.
        between: Whether the question is of the time between two moments: two parameters of the query.
    """

    text: str
    sql: str
    order: str = ""
    time: str = ""
    until: str = ""
    compares: bool = False
    between: bool = False


class Answer(NamedTuple):
    """Rows with their columns' names. Times are ``datetime`` in UTC, ids ``bytes``.

    Attributes:
        columns: Names.
        rows: Values.
        note: A remark on the answer: the reason for no rows, or the captures that were compared; else empty.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    note: str = ""

    def _repr_html_(self) -> str:
        from kproto.notebook import table_html

        return table_html(self.columns, self.rows, len(self.rows))


_STALE: Final = ErrorCode.STALE_CONTROLLER_EPOCH
_MEANING: Final = (
    f"CASE WHEN scope = 'partition' AND error_code = {_STALE:d} "
    f"THEN '{partition_error_meaning(_STALE).replace(chr(39), chr(39) * 2)}' END"
)
"""SQL of the explanation of an error."""

_AT: Final = """
        SELECT * FROM spans, asked WHERE valid_from <= {time} AND coalesce(valid_to > {time}, true)
        QUALIFY row_number() OVER (
            PARTITION BY cluster, topic, partition ORDER BY valid_from DESC, leader_epoch DESC, partition_epoch DESC
        ) = 1"""
"""SQL of the state of each partition at a time."""

_NEW: Final = """
        SELECT DISTINCT c.cluster, c.topic, c.partition FROM changes c
        WHERE leader_epoch = 0 AND partition_epoch = 0 AND (cluster, topic, partition) IN (
            SELECT (q.cluster, topic, partition) FROM partition_states s JOIN requests q USING (body_id)
            WHERE q.api_key IN (1, 4) AND leader_epoch = 0 AND partition_epoch = 0 AND coalesce(is_new, true)
              AND coalesce(type, 0) <> 2
        )"""
"""SQL of the partitions that were created. The first state has epochs of 0; KRaft's log calls it new, or LeaderAndIsr,
as all but version 0 do: a broker that comes back is told first states of old ones too, and in a migration KRaft's
controller calls all partitions of a broker new in its full requests."""

_DIFF: Final = """
    WITH asked AS (
        SELECT CAST(? AS timestamptz) AS since, CAST(? AS timestamptz) AS until
    ), former AS ({former}
    ), newer AS ({newer}
    ), known AS ({new}
        UNION SELECT cluster, topic, partition FROM changes, asked WHERE ts <= since
    )
    SELECT coalesce(n.cluster, f.cluster) AS cluster, coalesce(n.topic, f.topic) AS topic,
           coalesce(n.partition, f.partition) AS partition,
           CASE WHEN n.topic IS NULL THEN {gone}
                WHEN f.topic IS NULL THEN CASE WHEN k.topic IS NULL THEN 'first seen' ELSE 'created' END
                WHEN {is_another} THEN 'deleted and created'
                ELSE 'changed' END AS change,
           f.leader AS former_leader, n.leader, f.leader_epoch AS former_leader_epoch, n.leader_epoch,
           f.isr AS former_isr, n.isr, f.replicas AS former_replicas, n.replicas
    FROM former f
    FULL JOIN newer n ON n.cluster = f.cluster AND n.topic = f.topic AND n.partition = f.partition
    LEFT JOIN known k ON k.cluster = n.cluster AND k.topic = n.topic AND k.partition = n.partition
    WHERE (f.topic IS NULL) <> (n.topic IS NULL) OR {is_another}
       OR n.leader <> f.leader OR n.leader_epoch <> f.leader_epoch OR n.replicas <> f.replicas
       OR list_sort(n.isr) <> list_sort(f.isr)
"""
"""SQL of the partitions that differ at two times."""

_DIFF_OF_ONE: Final = _DIFF.format(
    former=_AT.format(time="since"),
    newer=_AT.format(time="until"),
    new=_NEW,
    gone="'deleted'",
    is_another="n.incarnation <> f.incarnation OR n.topic_id <> f.topic_id",
)
_DIFF_OF_TWO: Final = _DIFF.format(
    former=_AT.format(time="since"),
    newer="SELECT * FROM other_states",
    new="SELECT * FROM other_new",
    gone="CASE WHEN (f.cluster, f.topic, f.partition) IN (SELECT (cluster, topic, partition) FROM other_deleted) "
    "THEN 'deleted' ELSE 'not seen' END",
    is_another="n.topic_id <> f.topic_id",
)
"""The same of two captures: incarnations are counted in each, and of what the second does not show nothing is known."""

_OF_OTHER: Final = {
    "other_states": f"WITH asked AS (SELECT CAST(? AS timestamptz) AS until) {_AT.format(time='until')}",
    "other_new": f"{_NEW} AND ts <= ?",
    "other_deleted": "SELECT DISTINCT cluster, topic, partition FROM changes WHERE deleted_ts <= ?",
}
"""SQL of what is taken from the second capture, up to a time."""

_DECIDED: Final = """
        LEFT JOIN (
            SELECT cluster, controller_epoch, list(DISTINCT controller_id) AS ids,
                   CASE WHEN bool_and(is_kraft_controller) THEN min(ts) END AS kraft_since
            FROM requests WHERE controller_id IS NOT NULL AND coalesce(error_code, 0) = 0
            GROUP BY cluster, controller_epoch
        ) c ON c.cluster = s.cluster AND c.controller_epoch = s.controller_epoch
"""
"""Joins states with the controllers of their epoch: another may tell them again. Null: no request of it is there."""

_DECIDER: Final = f"""
CASE WHEN len(c.ids) = 1 THEN CASE WHEN coalesce(valid_from >= c.kraft_since, true) THEN c.ids[1] END
     WHEN list_contains(c.ids, s.controller_id) AND (s.cluster, topic, partition, valid_from) NOT IN (
         SELECT (cluster, topic, partition, ts) FROM changes n
         WHERE former_leader IS NULL AND (partition_epoch > 0 OR (cluster, topic, partition) NOT IN (FROM ({_NEW})))
     ) THEN s.controller_id END
""".strip()  # noqa: S608
"""The controller that decided a state. One epoch may have two: after a migration, as KRaft's epochs begin anew, or by a
fault. Each tells all states when it takes over, so that the first known one may be the other's, unless it is new. What
brokers were told before KRaft's controller led has the epoch of one of ZooKeeper's that is not shown."""


def _decided(asks: str, columns: str, where: str = "true", rows: str = "spans") -> Question:
    """A question about states of partitions, from when to when, that controllers decided."""
    times = "valid_from", "valid_to"
    sql = f"SELECT s.cluster, topic, partition, {columns}, valid_from, valid_to FROM {rows} s {_DECIDED} WHERE {where}"  # noqa: S608
    return Question(asks, sql, "cluster, topic, partition, valid_from, leader_epoch", *times)


_OF_KRAFT: Final = "SELECT 1 FROM quorum_epochs UNION ALL SELECT 1 FROM broker_states LIMIT 1"

QUESTIONS: Final = {
    "leader": _decided(
        "Who led a partition, from when to when, and which controller decided so?",
        f"leader, leader_epoch, {_DECIDER} AS controller_id, s.controller_epoch",
        rows="leadership",
    ),
    "offline": _decided(
        "Which partitions had no leader, from when to when?",
        f"leader_epoch, {_DECIDER} AS controller_id, s.controller_epoch, isr",
        "leader = -1",
    ),
    "under-replicated": _decided(
        "Which partitions lacked in-sync replicas, which of them, from when to when?",
        "list_sort(array_except(replicas, isr)) AS missing, len(isr) AS isr_size, leader, leader_epoch, "
        f"{_DECIDER} AS controller_id",
        "len(array_except(replicas, isr)) > 0",
    ),
    "off-preferred": _decided(
        "Which partitions were led by another than the first of their replicas, from when to when?",
        "leader, replicas[1] AS preferred_leader, list_contains(isr, replicas[1]) AS is_preferred_in_sync, "
        f"leader_epoch, {_DECIDER} AS controller_id, replicas, isr",
        "leader >= 0 AND leader <> replicas[1]",
    ),
    "findings": Question(
        "What do the rules of kproto doctor find, the worst first?",
        "SELECT cluster, rule, severity, text, first_ts, last_ts, count, TRY_CAST(broker AS int) AS broker, "
        "topic, partition, cannot_tell FROM findings",
        "list_position(['trouble', 'warning', 'note'], severity), rule, first_ts, text",
        "first_ts",
    ),
    "behind": Question(
        "Which brokers were never sent the newest state of a partition?",
        "SELECT * FROM behind",
        time="last_request",
        compares=True,
    ),
    "restarts": Question(
        "When did each broker register, with which broker epoch, and what shows it?",
        "SELECT cluster, broker, address, mode, broker_epoch, valid_from, valid_to, left_ts, left_how, "
        "last_request, requests, shown_by FROM broker_lives",
        "cluster, broker, address, valid_from",
        "valid_from",
        "valid_to",
    ),
    "controllers": Question(
        "Which controller was active in which epoch, from when to when?",
        """
        WITH seen AS (
            SELECT cluster, controller_id, controller_epoch, is_kraft_controller AS is_kraft, api_key = 1 AS is_log,
                   min(ts) AS first_ts, max(ts) AS last_request, count(*) AS requests
            FROM requests WHERE controller_id IS NOT NULL AND controller_epoch >= 0
            GROUP BY cluster, controller_id, controller_epoch, is_kraft, is_log
        ), hybrid AS (  -- KRaft's controller tells ZooKeeper's brokers under a ZooKeeper epoch
            SELECT s.cluster, s.controller_id, s.controller_epoch AS zookeeper_epoch, s.last_request, s.requests,
                   e.controller_epoch
            FROM seen s JOIN quorum_epochs e ON e.cluster = s.cluster AND e.controller_id = s.controller_id
            WHERE s.is_kraft AND NOT s.is_log AND coalesce(s.last_request >= e.valid_from, true)
            QUALIFY row_number() OVER (PARTITION BY s.cluster, s.controller_epoch ORDER BY
                                       coalesce(e.valid_to < s.first_ts, false), e.controller_epoch) = 1
        ), ruled AS (
            SELECT coalesce(s.cluster, e.cluster) AS cluster,
                   coalesce(e.controller_id, s.controller_id) AS controller_id,
                   coalesce(e.controller_epoch, s.controller_epoch) AS controller_epoch,
                   CASE WHEN coalesce(s.is_kraft, true) THEN 'KRaft' ELSE 'ZooKeeper' END AS mode,
                   CASE WHEN e.log_offset IS NULL THEN coalesce(s.first_ts, e.led_ts) ELSE e.valid_from END
                       AS valid_from, e.valid_to,
                   greatest(s.last_request, h.last_request) AS last_request,
                   coalesce(s.requests, 0) + coalesce(h.requests, 0) AS requests,
                   coalesce(e.why, 'took over from ZooKeeper; tells its brokers as epoch ' || h.zookeeper_epoch,
                            CASE WHEN e.log_offset IS NULL AND s.is_log
                                 THEN 'led before that: the record of its election is not shown' END) AS why
            FROM (
                SELECT s.* FROM seen s ANTI JOIN hybrid h
                  ON h.cluster = s.cluster AND h.zookeeper_epoch = s.controller_epoch AND s.is_kraft AND NOT s.is_log
            ) s FULL JOIN quorum_epochs e
              ON e.cluster = s.cluster AND e.controller_id = s.controller_id AND e.controller_epoch = s.controller_epoch
                 AND s.is_log
            LEFT JOIN (
                SELECT cluster, controller_epoch, max(zookeeper_epoch) AS zookeeper_epoch,
                       max(last_request) AS last_request, sum(requests)::BIGINT AS requests
                FROM hybrid GROUP BY cluster, controller_epoch
            ) h ON h.cluster = e.cluster AND h.controller_epoch = e.controller_epoch
        )
        SELECT cluster, controller_id, controller_epoch, mode, valid_from,
               least(valid_to, lead(valid_from) OVER (
                   PARTITION BY cluster ORDER BY mode = 'KRaft', controller_epoch, valid_from
               )) AS valid_to, last_request, requests, why
        FROM ruled
        """,
        "cluster, mode = 'KRaft', controller_epoch, valid_from",
        "valid_from",
        "valid_to",
    ),
    "brokers": Question(
        "What was each broker to KRaft's controller, from when to when, and why: fenced, shut down, unregistered?",
        "SELECT cluster, broker_id AS broker, state, broker_epoch, valid_from, valid_to, why, evidence "
        "FROM broker_states",
        "cluster, broker, valid_from, state",
        "valid_from",
        "valid_to",
    ),
    "elections": Question(
        "How did each leader of KRaft's quorum come: after how long, who asked for votes, and why?",
        """
        SELECT cluster, controller_epoch, controller_id, valid_from,
               CAST(epoch_us(led_ts) - epoch_us(served_ts) AS bigint) AS without_leader_us, candidates, granting_voters,
               failed_elections, late_ts, why
        FROM quorum_epochs
        """,
        time="valid_from",
    ),
    "quorum-members": Question(
        "Who votes in KRaft's quorum and who only follows it, since when, by whom told, and what did each last fetch?",
        """
        SELECT cluster, node_id, role, valid_from, valid_to, told_by, log_offset, last_offset, fetched_ts
        FROM quorum_members
        """,
        "cluster, role DESC, node_id, valid_from",
        "valid_from",
        "valid_to",
    ),
    "quorum-outages": Question(
        "When did KRaft's quorum have no leader that answered, and who asked in vain?",
        "SELECT cluster, valid_from, valid_to, last_ts, votes, elections, refused, nodes FROM quorum_outages",
        time="valid_from",
        until="valid_to",
    ),
    "metadata-lag": Question(
        "How long after KRaft's controller wrote it was each broker told of the metadata, and when had it applied it?",
        """
        WITH timed AS (
            SELECT cluster, node_id AS broker, epoch_us(told_ts) - min(epoch_us(told_ts)) OVER (
                       PARTITION BY cluster, controller_epoch, log_offset
                   ) AS told_us, epoch_us(applied_ts) - epoch_us(committed_ts) AS applied_us, applied_ts, committed_ts,
                   node_id IN (SELECT broker_id FROM broker_states) AS is_broker
            FROM metadata_deliveries
        ), worst AS (
            SELECT cluster, broker_id, max(lag_us) AS worst_lag_us, max_by(ts, lag_us) AS worst_ts
            FROM broker_progress GROUP BY cluster, broker_id
        )
        SELECT t.cluster, broker, count(*) AS batches, CAST(quantile_disc(told_us, 0.5) AS bigint) AS told_p50_us,
               max(told_us) AS told_max_us, CAST(quantile_disc(applied_us, 0.5) AS bigint) AS applied_p50_us,
               max(applied_us) AS applied_max_us,
               count(*) FILTER (committed_ts IS NOT NULL AND applied_ts IS NULL) AS not_applied,
               any_value(w.worst_lag_us) AS worst_lag_us, any_value(w.worst_ts) AS worst_ts
        FROM timed t LEFT JOIN worst w ON w.cluster = t.cluster AND w.broker_id = t.broker
        WHERE is_broker GROUP BY t.cluster, broker
        """,
    ),
    "asked": Question(
        "Who asked KRaft's controller for which change, from where, and which record came of it?",
        "SELECT cluster, ts, client_id, client_address, principal, topic, partition, what, error_code, log_offset, "
        "records, note FROM admin_changes",
        "cluster, ts, topic, partition, what",
        "ts",
    ),
    "diff": Question(
        "What is different about each partition at two times?",
        _DIFF_OF_ONE,
        between=True,
    ),
    "missed": Question(
        "Which metadata updates did a broker never get that most others got, and is it down since?",
        "SELECT * FROM missed_updates",
        "first_ts, cluster, broker",
        "first_ts",
        compares=True,
    ),
    "isr": Question(
        "When did in-sync replicas leave and come back, and who asked for it?",
        """
        SELECT cluster, ts, e.topic, e.partition, kind, removed, added, isr_size, under_replicated, leader,
               CASE WHEN r.broker IS NOT NULL THEN 'broker ' || r.broker
                    WHEN e.leader_epoch > former_leader_epoch AND e.partition_epoch = former_partition_epoch + 1
                    THEN 'controller' END AS asked_by
        FROM isr_events e LEFT JOIN (SELECT DISTINCT * FROM isr_requests) r
          ON r.partition = e.partition AND r.leader_epoch = e.leader_epoch AND r.partition_epoch = e.partition_epoch
         AND coalesce(r.topic = e.topic, r.topic_id = e.topic_id)
        """,
        "ts, cluster, topic, partition",
        "ts",
    ),
    "flaps": Question(
        "Which partitions changed their leader again and again?",
        "SELECT * FROM leader_flaps",
        "changes DESC, cluster, topic, partition",
        "first_ts",
        compares=True,
    ),
    "stale": Question(
        "Which requests came from a replaced controller, or were meant for an earlier registration of a broker?",
        "SELECT s.cluster, s.ts, s.broker_id AS broker, s.controller_id, q.api_key, s.reason, s.seen_epoch, "
        "s.known_epoch, s.error_code FROM stale_requests s JOIN requests q ON q.frame_id = s.frame_id",
        "ts, cluster, broker, reason",
        "ts",
    ),
    "lag": Question(
        "How long after the first broker did each broker get a metadata update, and which took longest?",
        """
        WITH figures AS (
            SELECT cluster, broker_id AS broker, count(delivered_ts) AS updates,
                   CAST(quantile_disc(lag_us, 0.5) AS bigint) AS p50_us,
                   CAST(quantile_disc(lag_us, 0.99) AS bigint) AS p99_us, max(lag_us) AS max_us,
                   (SELECT count(*) FROM missed_updates m WHERE m.cluster = p.cluster AND m.broker = p.broker_id)
                       AS missed,
                   min_by(change_id, (-lag_us, delivered_ts, change_id)) AS body_id
            FROM propagation p GROUP BY cluster, broker_id
        ), worst AS (
            SELECT f.cluster, f.broker, min(q.ts) AS worst_ts, any_value(q.controller_id) AS worst_controller_id,
                   any_value(q.controller_epoch) AS worst_controller_epoch
            FROM figures f JOIN requests q
              ON q.cluster = f.cluster AND q.broker_id = f.broker AND q.body_id = f.body_id
            GROUP BY f.cluster, f.broker
        ), named AS (
            SELECT body_id, count(*) AS worst_partitions, min_by(topic, (topic, partition)) AS worst_topic,
                   min_by(partition, (topic, partition)) AS worst_partition,
                   min_by(leader_epoch, (topic, partition)) AS worst_leader_epoch
            FROM partition_states WHERE body_id IN (SELECT body_id FROM figures) GROUP BY body_id
        )
        SELECT f.* EXCLUDE (body_id), worst_ts, worst_topic, worst_partition,
               coalesce(worst_partitions, 0) AS worst_partitions, worst_leader_epoch, worst_controller_id,
               worst_controller_epoch
        FROM figures f JOIN worst w ON w.cluster = f.cluster AND w.broker = f.broker
        LEFT JOIN named n ON n.body_id = f.body_id
        """,
        compares=True,
    ),
    "worst": Question(
        "Which brokers were the worst in each week, which begins on Monday?",
        """
        WITH days AS (
            SELECT CAST(date_trunc('week', date) AS date) AS week, * FROM broker_days
            WHERE broker_id IS NOT NULL
        ), weeks AS (
            SELECT week, cluster, broker_id AS broker, round(sum(offline_minutes), 1) AS offline_partition_minutes,
                   round(sum(out_of_isr_minutes), 1) AS out_of_isr_partition_minutes,
                   CAST(sum(leader_changes) AS bigint) AS leader_changes,
                   CAST(sum(isr_shrinks) AS bigint) AS isr_shrinks,
                   CAST(sum(refusals) AS bigint) AS refusals, CAST(sum(updates) AS bigint) AS updates
            FROM days GROUP BY ALL
        ), lags AS (
            SELECT week, cluster, broker_id AS broker, unnest(map_entries(lag_us_log)) AS entry FROM days
        ), buckets AS (
            SELECT week, cluster, broker, entry.key AS bucket, sum(entry.value) AS n FROM lags GROUP BY ALL
        ), ranked AS (
            SELECT b.*, sum(n) OVER (PARTITION BY week, cluster, broker ORDER BY bucket) AS until,
                   sum(n) OVER (PARTITION BY week, cluster, broker) AS every
            FROM buckets b
        ), quantiles AS (
            SELECT week, cluster, broker, min(bucket) FILTER (2 * until >= every) AS p50,
                   min(bucket) FILTER (100 * until >= 99 * every) AS p99
            FROM ranked GROUP BY ALL
        )
        SELECT row_number() OVER (
                   PARTITION BY week, cluster
                   ORDER BY offline_partition_minutes DESC, out_of_isr_partition_minutes DESC,
                            p99 DESC NULLS LAST, leader_changes DESC, refusals DESC, broker
               ) AS place, w.*, CAST(2 ** ((p50 + 0.5) / 8) AS bigint) AS p50_us,
               CAST(2 ** ((p99 + 0.5) / 8) AS bigint) AS p99_us
        FROM weeks w LEFT JOIN quantiles q USING (week, cluster, broker)
        """,
        "place, week, cluster",
        "week",
    ),
    "errors": Question(
        "Which errors did brokers answer, and how often?",
        f"SELECT api_key, api_version, scope, error_code, n, first_ts, last_ts, {_MEANING} AS meaning FROM errors",  # noqa: S608  # our own text
        "n DESC, api_key, api_version, scope, error_code",
        "first_ts",
    ),
    "events": Question(
        "What happened, in order, and which command shows it?",
        "SELECT cluster, ts, event, text, TRY_CAST(broker AS int) AS broker, topic, partition, command FROM events",
        "ts, cluster, event, text",
        "ts",
    ),
    "reassignments": Question(
        "Which partitions got other replicas, from when to when?",
        "SELECT * FROM reassignments",
        "valid_from, cluster, topic, partition",
        "valid_from",
        "valid_to",
    ),
}
"""The questions by name."""


def ask(
    tables: duckdb.DuckDBPyConnection,
    question: str,
    filters: Filters | None = None,
    *,
    at_ns: int | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    other: duckdb.DuckDBPyConnection | None = None,
    limit: int | None = None,
) -> Answer:
    """Answer a question.

    Args:
        tables: The result of ``open_tables``.
        question: One of ``QUESTIONS``.
        filters: Topics, partitions, brokers, controllers, APIs and times to which the answer is restricted.
        at_ns: Only rows that were valid at this time, in ns since 1970, of questions with periods (``leader``).
        from_ns, to_ns: The two times that ``diff`` compares; ``to_ns`` None: the end of the captures.
        other: Other tables of the same cluster, with whose state at ``to_ns`` ``diff`` compares that of ``tables`` at
            ``from_ns``, or at their end.
        limit: The largest number of rows to give.

    Raises:
        ConfigurationError: There is no such question, or its answer has no column for one of the filters; a time that
            the question needs is missing, or it takes none.
    """
    found = QUESTIONS.get(question)
    if found is None:
        raise ConfigurationError(f"there is no question {question!r}; try {', '.join(QUESTIONS)}")
    if other is not None:
        if not found.between:
            raise ConfigurationError(f"--with does not apply to the question {question!r}; try diff")
        found = found._replace(sql=_DIFF_OF_TWO)
    times = _times(question, found, from_ns, to_ns, is_of_two=other is not None)
    if other is not None:
        _take_other(tables, other, times[1])
    columns = ask_sql(tables, f"SELECT * FROM ({found.sql}) LIMIT 0", times).columns  # noqa: S608  # our own text
    conditions, values = _conditions(question, found, columns, filters, at_ns)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    bound = f"LIMIT {int(limit)}" if limit is not None else ""
    order = ", ".join(filter(None, (found.order, *columns)))  # the same tables give the same order
    answer = ask_sql(tables, f"SELECT * FROM ({found.sql}) {where} ORDER BY {order} {bound}", times + values)  # noqa: S608
    notes = [strangers(tables)] if other is not None else []
    notes += absent(tables, filters) if filters is not None and not answer.rows else ()
    if found.compares:
        notes.append(comparison(tables))
    if question == "missed":
        notes.append(down(tables))
    if question == "restarts" and not answer.rows and not any(notes):
        notes.append("no accepted request carries a broker epoch: LeaderAndIsr does from version 2 on")
    if "KRaft" in found.text and not answer.rows and not tables.execute(_OF_KRAFT).fetchall():
        notes.append("nothing here is of KRaft; name a copy of __cluster_metadata-0, or a capture of its listeners")
    if question == "isr" and answer.rows and not tables.execute("SELECT 1 FROM isr_requests LIMIT 1").fetchall():
        notes.append(
            "who asked is in AlterPartition, which tables and standard input do not give, nor Kafka before 2.7"
        )
    return answer._replace(note="; ".join(filter(None, notes)))


def ask_sql(tables: duckdb.DuckDBPyConnection, sql: str, values: list[Any] | None = None) -> Answer:
    """Run a query in DuckDB's SQL over the tables' views.

    Raises:
        ConfigurationError: DuckDB refuses the query, in DuckDB's words; or the text holds no query.
    """
    with explained_by_duckdb(""):
        if not tables.extract_statements(sql):
            raise ConfigurationError("this SQL asks nothing; try: SELECT count(*) FROM requests")
        return _interruptible(tables, sql, values or [])


def _interruptible(tables: duckdb.DuckDBPyConnection, sql: str, values: list[Any]) -> Answer:
    """Ask in a thread of its own, so that Ctrl-C ends it: in the main thread DuckDB may look for signals too late."""
    asked: Future[Answer] = Future()

    def ask() -> None:
        if asked.set_running_or_notify_cancel():
            try:
                relation = tables.execute(sql, values)
                asked.set_result(Answer([column[0] for column in relation.description or ()], relation.fetchall()))
            except BaseException as e:  # noqa: BLE001  # raised where it is waited for
                asked.set_exception(e)

    try:
        threading.Thread(target=ask, name="kproto-query").start()
        while not wait([asked], 0.1).done:  # a wait without an end sleeps on where another thread gets the signal
            pass
        return asked.result()
    except KeyboardInterrupt:
        while not asked.cancel() and not wait([asked], 0.05).done:  # DuckDB forgets an interrupt before a query begins
            tables.interrupt()
        raise


def _times(name: str, question: Question, from_ns: int | None, to_ns: int | None, *, is_of_two: bool) -> list[Any]:
    """The values of the two parameters of a question of the time between two moments; none of others."""
    if not question.between:
        if from_ns is not None or to_ns is not None:
            raise ConfigurationError(f"--from and --to do not apply to the question {name!r}; try --since and --until")
        return []
    if from_ns is None and not is_of_two:
        raise ConfigurationError(
            f"the question {name!r} compares two times; name the first with --from TIME, or another capture --with it"
        )
    if from_ns is not None and to_ns is not None and to_ns < from_ns:
        raise ConfigurationError("--to is before --from; exchange them")
    return [datetime.max.replace(tzinfo=UTC) if time is None else _moment(time) for time in (from_ns, to_ns)]


def _take_other(tables: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection, until: datetime) -> None:
    """Give tables what ``diff`` compares them with. Where both have one cluster it has one name."""
    with explained_by_duckdb(""):
        of = "SELECT DISTINCT cluster FROM changes"
        names = [[name for (name,) in each.execute(of).fetchall()] for each in (tables, other)]
        found = {name: other.sql(sql, params=[until]).to_arrow_table() for name, sql in _OF_OTHER.items()}
    for name, rows in found.items():
        if len(names[0]) == len(names[1]) == 1:
            rows = with_column(rows, "cluster", pa.array(names[0] * rows.num_rows, pa.string()))
        tables.register(name, rows)


def _conditions(
    name: str, question: Question, columns: list[str], filters: Filters | None, at_ns: int | None
) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []

    def restrict(option: str, column: str, condition: str, *given: Any) -> None:
        if column not in columns:
            raise ConfigurationError(f"{option} does not apply to the question {name!r}, whose answer has no {column}")
        conditions.append(condition)
        values.extend(given)

    if at_ns is not None:
        moment = _moment(at_ns)
        restrict("--at", question.until or "period", f"{question.time} <= ?", moment)
        conditions.append(f"coalesce({question.until} > ?, true)")
        values.append(moment)
    if filters is None:
        return conditions, values
    if filters.topics or filters.partitions:
        chosen = ["topic GLOB ?"] * len(filters.topics) + ["(topic = ? AND partition = ?)"] * len(filters.partitions)
        pairs = [part for partition in sorted(filters.partitions) for part in partition]
        restrict("--topic", "topic", f"({' OR '.join(chosen)})", *filters.topics, *pairs)
    for option, column, wanted in (
        ("--broker", "broker", filters.brokers),
        ("--controller", "controller_id", filters.controllers),
        ("--api", "api_key", filters.apis),
    ):
        if wanted:
            restrict(option, column, f"{column} IN ({', '.join('?' * len(wanted))})", *sorted(wanted))
    if filters.since_ns is not None:
        restrict("--since", question.time or "time", f"{question.time} >= ?", _moment(filters.since_ns))
    if filters.until_ns is not None:
        restrict("--until", question.time or "time", f"{question.time} < ?", _moment(filters.until_ns))
    return conditions, values


def _moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).replace(microsecond=time_ns // 1000 % 1_000_000)
