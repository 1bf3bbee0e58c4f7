"""Reads the facts that a report's page shows into one object that is ready for JSON.

The page draws and describes the facts; each mark in it names a request by its index in ``requests``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import kproto
from kproto.api import CONTROL_APIS, api_name
from kproto.capture.summary import LOSSES
from kproto.error_codes import error_name
from kproto.query import ask, ask_sql
from kproto.query.hints import explained_by_duckdb
from kproto.query.views import open_tables
from kproto.report.requests import SERVER, RequestIndex
from kproto.report.timeline import timeline
from kproto.verdicts.catalogue import RULES, SEVERITIES
from kproto.verdicts.epochs import partition_error_meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import pyarrow as pa

    from kproto.tables.places import Place

Row = dict[str, Any]

PERCENTILES: Final = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9, 100)
"""The percentiles of a broker's lag."""

_BINS: Final = 240
"""The number of intervals of equal length that a capture's time is divided into, to count requests."""

_SECTIONS: Final = {
    "controllers": "controllers",
    **dict.fromkeys(("leaders", "replicas", "topics"), "timeline"),
    "brokers": "brokers",
    "requests": "errors",
    "capture": "captures",
}
_UPDATES: Final = ("KP030", "KP031", "KP032")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a page's size. The page says which rows were left out.

    Attributes:
        partitions: Partitions in the timeline; those that changed most are kept.
        states: Their states in all.
        rows: Rows of each table, the first of its order.
        body_bytes: JSON of request and response bodies.
    """

    partitions: int = 50_000
    states: int = 500_000
    rows: int = 1_000
    body_bytes: int = 8 << 20


def report_facts(
    tables: Place | str | Mapping[str, pa.Table],
    limits: Limits | None = None,
    cluster: str | None = None,
    broker_ids: Mapping[tuple[str, int], int] | None = None,
) -> dict[str, Any]:
    """Read the facts for the page from tables.

    Args:
        tables: The directory that ``kproto analyze`` wrote, or its URI; or Arrow tables as in ``kproto.tables.read``.
        limits: Bounds of the page's size.
        cluster, broker_ids: See ``open_tables``.

    Returns:
        Lists of columns and rows. Times are us since 1970, latencies us; a request is its place in ``requests``,
        -1 for none; a capture is its place in ``captures``, a cluster its place in ``clusters``.

    Raises:
        ConfigurationError: There are no tables in that directory, or they cannot be read.
    """
    limits = limits or Limits()
    cut: list[str] = []
    with explained_by_duckdb(), open_tables(tables, cluster, broker_ids) as sql:
        sql.execute("CREATE TEMP TABLE kept_changes AS SELECT * FROM changes")  # views and several figures read it
        sql.execute("CREATE OR REPLACE TEMP VIEW changes AS SELECT * FROM kept_changes")
        requests = RequestIndex(sql)
        figures = _Figures(sql, requests, limits.rows, cut)
        senders = figures.controllers()
        # In the order in which bodies are kept, should there be more than fit.
        facts: dict[str, Any] = {
            "captures": figures.captures,
            "clusters": figures.clusters,
            "controllers": senders,
            "quorum": figures.quorum(),
            "stale": figures.stale(senders),
            "errors": figures.errors(),
            "brokers": figures.responders(),
            "lag": figures.lag(),
            "weeks": figures.weeks(),
            "rates": figures.rates(),
            "losses": figures.losses(),
            "timeline": timeline(sql, figures.places, requests, limits.partitions, limits.states, cut),
            "findings": figures.findings(),
            "events": figures.events(),
            "flaps": figures.flaps(),
            "requests": requests.rows(figures.files, limits.body_bytes, cut),
        }
    codes = {row["error_code"] for row in (*facts["errors"], *facts["stale"])}
    return {
        "kproto": kproto.__version__,
        "apis": {key: api_name(key) for key in CONTROL_APIS},
        "error_names": {code: error_name(code) for code in sorted(codes | set(facts["requests"]["error_code"]), key=str)
                        if code is not None},
        "cut": cut,
        **facts,
    }  # fmt: skip


class _Figures:
    """The figures of tables.

    Attributes:
        captures: The capture points by name, with their files and the times of the first and last control request.
        clusters: The clusters by name, with the times of the first and last control request to each.
        places, files: Places of clusters and of captures by their names, which stand for these in all rows.

    Args:
        sql: The tables.
        requests: Takes the requests that rows are about.
        most: The largest number of rows to give.
        cut: Takes a sentence about what was left out.
    """

    def __init__(self, sql: duckdb.DuckDBPyConnection, requests: RequestIndex, most: int, cut: list[str]) -> None:
        self._sql, self._requests, self._most, self._cut = sql, requests, most, cut
        self.captures = self._plain(
            """
            WITH spans AS (
                SELECT capture, count(*) AS requests, epoch_us(min(ts)) AS first, epoch_us(max(ts)) AS last
                FROM requests GROUP BY capture
            )
            SELECT c.capture AS name, list(DISTINCT c.file ORDER BY c.file) AS files,
                   string_agg(DISTINCT c.format, ', ') AS format, sum(c.packets)::bigint AS packets,
                   sum(c.kafka_connections)::bigint AS connections, coalesce(s.requests, 0) AS requests, s.first, s.last
            FROM captures c LEFT JOIN spans s ON s.capture = c.capture
            GROUP BY c.capture, s.requests, s.first, s.last ORDER BY c.capture
            """
        )
        self.clusters = self._plain(
            """
            SELECT cluster AS name, count(*) AS requests, epoch_us(min(ts)) AS first, epoch_us(max(ts)) AS last
            FROM requests GROUP BY cluster ORDER BY cluster <> 'default', cluster
            """
        )
        self.places = {row["name"]: place for place, row in enumerate(self.clusters)}
        self.files = {row["name"]: place for place, row in enumerate(self.captures)}

    def findings(self) -> list[Row]:
        """Return the findings, the worst first; those of one rule and broker are one.

        Returns:
            Each with ``rule``, ``severity`` (bad, warning or note), ``text``, ``section`` (the section of the page that
            shows it) and ``rows`` (which rows of the timeline to choose: "troubled", "changed", or empty for all).
        """
        rows = ask_sql(self._sql, "SELECT severity, rule, broker, text FROM findings").rows
        rows.sort(key=lambda row: (SEVERITIES.index(row[0]), row[1], row[2] or ""))
        found = []
        for (severity, rule, _broker), some in groupby(rows, key=lambda row: row[:3]):
            texts = [row[3] for row in some]
            more = f"; and {len(texts) - 1:,} more" if len(texts) > 1 else ""
            section = "lag" if rule in _UPDATES else _SECTIONS[RULES[rule].subject]
            chosen = "" if section != "timeline" else "changed" if rule in ("KP016", "KP022") else "troubled"
            mark = "bad" if severity == "trouble" else severity
            found.append(
                {"rule": rule, "severity": mark, "text": f"{texts[0]}{more}.", "section": section, "rows": chosen}
            )
        return found

    def controllers(self) -> list[Row]:
        """Return each controller with each of its epochs, ordered by their first requests.

        ``stale`` adds how many of its requests were ``zombies``, how many of these were ``fenced``, and the ``newer``
        controller epoch that they came after.
        """
        return self._rows(
            """
            SELECT cluster, controller_id, controller_epoch, is_kraft_controller, count(*) AS requests,
                   count(DISTINCT coalesce(broker_id::varchar, server_ip || ' ' || server_port)) AS brokers,
                   count_if(error_code <> 0) AS refused, epoch_us(min(ts)) AS first, epoch_us(max(ts)) AS last
            FROM requests WHERE controller_id IS NOT NULL
            GROUP BY ALL ORDER BY controller_epoch, first, controller_id, cluster
            """
        )

    def stale(self, senders: list[Row]) -> list[Row]:
        """Return requests of controllers that were replaced, and requests for an earlier registration of their broker.

        Args:
            senders: The rows of ``controllers``.
        """
        rows = self._rows(
            """
            SELECT s.cluster, epoch_us(s.ts) AS ts, s.broker_id, s.controller_id, q.controller_epoch, q.api_key,
                   s.zombie, s.seen_epoch, s.known_epoch, s.error_code, s.frame_id
            FROM stale_requests s JOIN requests q ON q.frame_id = s.frame_id
            ORDER BY s.ts, s.frame_id, s.reason
            """
        )
        found = {(row["cluster"], row["controller_id"], row["controller_epoch"]): row for row in senders}
        for sender in senders:
            sender |= {"zombies": 0, "fenced": 0, "newer": None}
        for row in rows:
            of = found.get((row["cluster"], row["controller_id"], row["controller_epoch"]))
            if of is not None and row["zombie"]:
                of["zombies"] += 1
                of["fenced"] += bool(row["error_code"])
                epochs = (of["newer"], row["known_epoch"])
                of["newer"] = max((epoch for epoch in epochs if epoch is not None), default=None)
        return self._linked(self._first(rows, "stale requests", "stale"))

    def errors(self) -> list[Row]:
        """Count errors of requests and of partitions, bodies that cannot be read, and requests without response."""
        rows = self._rows(
            """
            WITH found AS (
                SELECT cluster, api_key, api_version, 'request' AS scope, error_code, NULL AS reason, broker_id,
                       ts, frame_id, NULL AS topic, NULL AS partition
                FROM requests WHERE error_code <> 0
                UNION ALL
                SELECT q.cluster, q.api_key, q.api_version, 'partition', e.error_code, NULL, q.broker_id, q.ts,
                       q.frame_id, e.topic, e.partition
                FROM partition_errors e JOIN requests q ON q.frame_id = e.frame_id
                UNION ALL
                SELECT cluster, api_key, api_version, 'unreadable', NULL, decode_error, broker_id, ts, frame_id,
                       NULL, NULL
                FROM requests WHERE decode_error IS NOT NULL
                UNION ALL
                SELECT cluster, api_key, api_version, 'unanswered', NULL, unmatched_reason, broker_id, ts, frame_id,
                       NULL, NULL
                FROM requests WHERE response_frame_id IS NULL
            )
            SELECT cluster, api_key, api_version, scope, error_code, reason, count(*) AS n,
                   epoch_us(min(ts)) AS first, epoch_us(max(ts)) AS last,
                   list_slice(list(DISTINCT broker_id ORDER BY broker_id), 1, 20) AS brokers,
                   count(DISTINCT broker_id) AS brokers_in_all,
                   min_by(frame_id, (ts, frame_id)) AS frame_id, min_by(topic, (ts, frame_id)) AS topic,
                   min_by(partition, (ts, frame_id)) AS partition
            FROM found GROUP BY ALL ORDER BY n DESC, first, cluster, api_key, api_version, scope, error_code, reason
            """
        )
        for row in rows:
            if row["scope"] == "partition":
                row["reason"] = partition_error_meaning(row["error_code"]) or None
        return self._linked(self._first(rows, "kinds of errors", "errors"))

    def responders(self) -> list[Row]:
        """Return how each broker answers, the slowest first; since the time ``silent`` it has answered no request."""
        rows = self._rows(
            f"""
            WITH sent AS (
                SELECT *, max(CASE WHEN response_frame_id IS NOT NULL THEN ts END) OVER broker AS answered_ts,
                       frame_id IN (SELECT frame_id FROM stale_requests WHERE NOT zombie) AS early
                FROM requests WINDOW broker AS (PARTITION BY cluster, broker_id, server_ip, server_port)
            )
            SELECT cluster, broker_id, {SERVER} AS address, count(*) AS requests, count(latency_us) AS answered,
                   count_if(response_frame_id IS NULL) AS unanswered,
                   count_if(error_code <> 0) AS refused, count_if(early) AS earlier_starts,
                   CAST(quantile_disc(latency_us, 0.5) AS bigint) AS p50_us,
                   CAST(quantile_disc(latency_us, 0.99) AS bigint) AS p99_us, max(latency_us) AS max_us,
                   epoch_us(max(ts)) AS last, epoch_us(any_value(answered_ts)) AS answered_last,
                   epoch_us(min(CASE WHEN ts > answered_ts OR answered_ts IS NULL THEN ts END)) AS silent,
                   max_by(frame_id, (latency_us, frame_id)) FILTER (latency_us IS NOT NULL) AS frame_id,
                   min_by(frame_id, (ts, frame_id)) FILTER (response_frame_id IS NULL) AS unanswered_frame_id
            FROM sent GROUP BY cluster, broker_id, server_ip, server_port
            ORDER BY silent IS NULL, p99_us DESC NULLS LAST, broker_id, address, cluster
            """  # noqa: S608  # our own names
        )
        for row in rows:
            row["unanswered_request"] = self._requests.place(row.pop("unanswered_frame_id"))
        return self._linked(rows)

    def lag(self) -> Row:
        """Return each broker's delay behind the first broker of its cluster that was sent the same metadata update.

        Returns:
            ``percentiles``, and ``brokers`` with the lag at each of them, the slowest first.
        """
        parts = [percentile / 100 for percentile in PERCENTILES]
        rows = self._rows(
            f"""
            WITH figures AS (
                SELECT cluster, broker_id, count(delivered_ts) AS updates,
                       (SELECT count(*) FROM missed_updates m WHERE m.cluster = p.cluster AND m.broker = p.broker_id)
                           AS missing,
                       quantile_disc(lag_us, {parts}) AS lag_us,
                       max_by({{'id': change_id, 'ts': delivered_ts}}, (lag_us, first_ts)) FILTER (lag_us IS NOT NULL)
                           AS slowest
                FROM propagation p GROUP BY cluster, broker_id
            ), frames AS (
                SELECT f.cluster, f.broker_id, min(q.frame_id) AS frame_id
                FROM figures f JOIN requests q ON q.cluster = f.cluster AND q.broker_id = f.broker_id
                                              AND q.body_id = f.slowest.id AND q.ts = f.slowest.ts
                GROUP BY f.cluster, f.broker_id
            )
            SELECT f.cluster, f.broker_id, f.updates, f.missing, f.lag_us, r.frame_id
            FROM figures f
            LEFT JOIN frames r ON r.cluster = f.cluster AND r.broker_id = f.broker_id
            ORDER BY f.lag_us[-3] DESC NULLS LAST, f.missing DESC, f.broker_id, f.cluster
            """  # noqa: S608  # our own numbers
        )
        return {"percentiles": PERCENTILES, "brokers": self._linked(rows)}

    def quorum(self) -> Row:
        """Return when KRaft's quorum had no leader that answered, and when brokers had not applied what was committed.

        Returns:
            ``outages``: first and last (us), whether it ``lasts``, the votes asked for, the fetches refused, the nodes
            that asked; ``lag``: of each broker first and last of ten seconds' worst lag over a second, and that lag.
        """
        outages = self._rows(
            """
            SELECT cluster, epoch_us(valid_from) AS first, epoch_us(coalesce(valid_to, last_ts)) AS last,
                   valid_to IS NULL AS lasts, votes, refused, nodes
            FROM quorum_outages WHERE cluster IN (SELECT cluster FROM requests) ORDER BY cluster, first
            """
        )
        lag = self._rows(
            """
            SELECT cluster, broker_id, epoch_us(ts) - lag_us AS first, epoch_us(ts) AS last, lag_us
            FROM broker_progress WHERE lag_us > 1000000 AND cluster IN (SELECT cluster FROM requests)
            ORDER BY cluster, broker_id, last
            """
        )
        return {"outages": self._first(outages, "times without a leader of the quorum", "quorum-outages"),
                "lag": self._first(lag, "times of metadata lag", "metadata-lag")}  # fmt: skip

    def flaps(self) -> list[Row]:
        """Return partitions whose leader changed again and again, the most frequent first."""
        query = """
            SELECT topic, partition, epoch_us(first_ts) AS first, epoch_us(last_ts) AS last, changes, leaders
            FROM leader_flaps ORDER BY changes DESC, cluster, topic, partition
        """
        return self._first(self._plain(query), "flapping partitions", "flaps")

    def events(self) -> list[Row]:
        """Return what happened, in order."""
        query = "SELECT epoch_us(ts) AS ts, event, text, command FROM events ORDER BY ts, cluster, event, text"
        return self._first(self._plain(query), "events", "events")

    def weeks(self) -> list[Row]:
        """Return the worst brokers of each week, the first of each week first; nothing where all is of one day."""
        if ask_sql(self._sql, "SELECT count(DISTINCT CAST(ts AS date)) FROM requests").rows[0][0] < 2:
            return []
        found = ask(self._sql, "worst")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        return self._first([row | {"week": row["week"].isoformat()} for row in rows], "brokers by week", "worst")

    def rates(self) -> Row:
        """Count the requests in each interval of a cluster's time.

        Returns:
            ``bins`` in a cluster, from its first to its last request; ``counts`` of those that are not empty.
        """
        rows = self._rows(
            f"""
            WITH spans AS (
                SELECT cluster, epoch_us(min(ts)) AS first, epoch_us(max(ts)) - epoch_us(min(ts)) + 1 AS us
                FROM requests GROUP BY cluster
            )
            SELECT q.cluster, CAST(floor((epoch_us(q.ts) - s.first)::double * {_BINS} / s.us) AS int) AS bin, q.api_key,
                   count(*) AS requests, count_if(q.error_code <> 0) AS refused
            FROM requests q JOIN spans s ON s.cluster = q.cluster GROUP BY ALL ORDER BY ALL
            """  # noqa: S608  # our own numbers
        )
        return {"bins": _BINS, "counts": rows}

    def losses(self) -> Row:
        """Return the losses of the captures: ``counts`` by capture, of captures with losses, and ``bad_inputs``."""
        names = (*LOSSES, "tls_connections")
        counts = self._rows(
            f"SELECT capture, file, {', '.join(names)} FROM captures WHERE {' + '.join(names)} > 0 "  # noqa: S608  # our own names
            "ORDER BY capture, file"
        )
        bad = self._plain(
            'SELECT file, reason, "offset", bytes_skipped FROM bad_inputs ORDER BY file, "offset" NULLS FIRST, reason'
        )
        return {"counts": counts, "bad_inputs": self._first(bad, "pieces that could not be used", "")}

    def _plain(self, query: str) -> list[Row]:
        found = ask_sql(self._sql, query)
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def _rows(self, query: str) -> list[Row]:
        """Return the rows of a query, each cluster's or capture's name replaced by its place."""
        places = {"cluster": self.places, "capture": self.files}
        return [
            {name: places[name][value] if name in places else value for name, value in row.items()}
            for row in self._plain(query)
        ]

    def _linked(self, rows: list[Row]) -> list[Row]:
        """Return the rows with each request's frame replaced by the request's index."""
        for row in rows:
            topic, partition = row.get("topic"), row.get("partition")
            row["request"] = self._requests.place(row.pop("frame_id"), topic, 0 if partition is None else partition)
        return rows

    def _first(self, rows: list[Row], noun: str, question: str) -> list[Row]:
        if len(rows) > self._most:
            more = f"; kproto query DIR {question} shows all" if question else ""
            self._cut.append(f"The page has the first {self._most:,} of {len(rows):,} {noun}{more}.")
        return rows[: self._most]
