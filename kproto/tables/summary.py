"""What the tables of a capture say in short: the one summary, for ``kproto summary`` and ``kproto analyze``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import api_name
from kproto.error_codes import error_name
from kproto.tables.changes import PartitionHistory
from kproto.tables.deletions import Deletions
from kproto.tables.epochs import Epochs
from kproto.tables.latencies import Latencies
from kproto.tables.migration import Migration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SUMMARY_COLUMNS", "summarize"]

SUMMARY_COLUMNS: Final = {
    "requests": (
        "ts", "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch", "is_kraft",
        "type", "target_broker", "server_ip", "server_port", "n_partitions", "body_id", "latency_us",
        "unmatched_reason", "decode_error", "response_frame_id",
    ),
    "partition_errors": ("frame_id", "error_code"),
    "responses": ("frame_id", "api_key", "n_partition_errors"),
    "partition_states": (
        "body_id", "api_key", "topic", "topic_id", "partition", "controller_epoch", "leader", "leader_epoch",
        "partition_epoch", "isr", "delete_partition",
    ),
    "brokers": ("broker_id", "host", "port"),
    "captures": (
        "capture", "file", "format", "packets", "first_ts", "last_ts", "connections", "kafka_connections",
        "tls_connections", "gaps", "gap_bytes", "cut_packets", "ip_fragments", "bad_checksums", "unmatched_responses",
        "bad_inputs",
    ),
    "bad_inputs": ("file", "reason", "offset", "bytes_skipped"),
}  # fmt: skip
"""The columns that a summary reads, by table."""

_MOST_CHANGED: Final = 10
_REFUSED_STATES: Final = 4_000_000
"""Rows of states kept though every request with their body was refused so far; the oldest go first."""


class _Request(NamedTuple):
    """A row of ``requests``, in the order of ``SUMMARY_COLUMNS``; ``ts`` in microseconds."""

    ts: int
    api_key: int
    api_version: int
    error_code: int | None
    controller_id: int | None
    controller_epoch: int | None
    broker_epoch: int | None
    is_kraft: bool | None
    type: int | None
    target_broker: int | None
    server_ip: str
    server_port: int
    n_partitions: int | None
    body_id: bytes | None
    latency_us: int | None
    unmatched_reason: str | None
    decode_error: str | None
    response_frame_id: bytes | None

    @property
    def accepted(self) -> bool:
        """Whether the broker may have done what it says: it did not refuse the whole request."""
        return not self.error_code

    @property
    def address(self) -> tuple[str, int]:
        """Where it was sent."""
        return self.server_ip, self.server_port


@dataclass(slots=True)
class _Span:
    """How many requests, and when the first and the last passed, in us since 1970."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, ts: int) -> None:
        self.first = min(self.first, ts) if self.count else ts
        self.last = max(self.last, ts)
        self.count += 1

    def row(self, counted: str = "requests") -> dict[str, Any]:
        return {counted: self.count, "first": _moment(self.first), "last": _moment(self.last)}


@dataclass(slots=True)
class _Broker:
    """What one address was sent, and how it answered."""

    latencies: Latencies = field(default_factory=Latencies)
    requests: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    broker_id: int | None = None


class _Figures:
    """The summary's figures, from pieces of tables."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, int, int | None], Counter[str]] = defaultdict(Counter)
        self._controllers: dict[tuple[int, int, bool], tuple[_Span, set[tuple[str, int]]]] = {}
        self._brokers: dict[tuple[str, int], _Broker] = defaultdict(_Broker)
        self._listeners: set[tuple[int, str, int]] = set()
        self._refusals: dict[tuple[Any, ...], _Span] = defaultdict(_Span)
        self._zombies: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._unreadable: Counter[tuple[int, int, str]] = Counter()
        self._partition_errors: Counter[tuple[int, int]] = Counter()
        self._captures: list[dict[str, Any]] = []
        self._bad_inputs: list[dict[str, Any]] = []
        self._epochs = Epochs()
        self._migration = Migration()
        self._history = PartitionHistory()
        self._deletions = Deletions()
        self._accepted: set[bytes] = set()
        self._refused_states: dict[bytes, pa.Table] = {}

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """Take a piece of the tables, of which any may be missing."""
        if "requests" in tables:
            self._add_requests(tables["requests"])
        if "partition_errors" in tables:
            self._add_partition_errors(tables["partition_errors"], tables["responses"])
        if "partition_states" in tables:
            self._add_states(tables["partition_states"])
        if "brokers" in tables:
            columns = (tables["brokers"][name].to_pylist() for name in SUMMARY_COLUMNS["brokers"])
            self._listeners.update(zip(*columns, strict=True))
        if "captures" in tables:
            rows = tables["captures"].select(SUMMARY_COLUMNS["captures"])
            self._captures += _plain_times(rows, "first_ts", "last_ts").to_pylist()
        if "bad_inputs" in tables:
            self._bad_inputs += tables["bad_inputs"].select(SUMMARY_COLUMNS["bad_inputs"]).to_pylist()

    # ---- requests ----

    def _add_requests(self, table: pa.Table) -> None:
        rows = _plain_times(table.select(SUMMARY_COLUMNS["requests"]), "ts").sort_by("ts")
        for request in map(_Request._make, zip(*(column.to_pylist() for column in rows.columns), strict=True)):
            self._add_request(request)

    def _add_request(self, request: _Request) -> None:
        counts = self._requests[request.api_key, request.api_version, request.error_code]
        counts["count"] += 1
        counts["partitions"] += request.n_partitions or 0
        counts["unanswered"] += request.response_frame_id is None
        counts["unreadable"] += request.decode_error is not None
        broker = self._brokers[request.address]
        broker.requests += 1
        if request.target_broker is not None:
            broker.broker_id = request.target_broker
        if request.latency_us is not None:
            broker.latencies.add([request.latency_us])
        if request.response_frame_id is None:
            broker.unanswered[request.unmatched_reason or "unknown"] += 1
        if request.decode_error is not None:
            self._unreadable[request.api_key, request.api_version, request.decode_error] += 1
        if request.controller_id is not None:
            self._add_readable(request)

    def _add_readable(self, request: _Request) -> None:
        assert request.controller_id is not None
        assert request.controller_epoch is not None
        sender = (request.controller_id, request.controller_epoch, bool(request.is_kraft))
        span, addresses = self._controllers.setdefault(sender, (_Span(), set()))
        span.add(request.ts)
        addresses.add(request.address)
        target = _target(request)
        if request.error_code:
            reason = self._epochs.reason(request.error_code, target, request.controller_epoch, request.broker_epoch)
            key = (request.api_key, request.error_code, *sender[:2], request.target_broker, *request.address,
                   request.broker_epoch, reason)  # fmt: skip
            self._refusals[key].add(request.ts)
        self._epochs.note(
            request.ts * 1000,
            target,
            request.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            request.error_code,
        )
        newer = self._epochs.superseded_by(request.controller_epoch)
        if newer is not None:
            zombie = self._zombies.setdefault(sender, {"span": _Span(), "refused": 0, "newer": newer})
            zombie["span"].add(request.ts)
            zombie["refused"] += bool(request.error_code)
        if request.accepted:
            self._migration.add(
                request.ts, request.api_key, request.controller_id, request.controller_epoch, target,
                is_kraft=bool(request.is_kraft), update_type=request.type or 0,
            )  # fmt: skip
        if request.accepted and request.body_id is not None:
            self._deletions.add_request(request.api_key, request.body_id, target, request.ts)
            if request.body_id not in self._accepted:
                self._accepted.add(request.body_id)
                if (states := self._refused_states.pop(request.body_id, None)) is not None:
                    self._add_accepted_states(states)

    # ---- partitions ----

    def _add_partition_errors(self, errors: pa.Table, responses: pa.Table) -> None:
        position = pc.index_in(errors["frame_id"], value_set=responses["frame_id"].combine_chunks())
        apis = responses["api_key"].take(position)
        self._partition_errors.update(zip(apis.to_pylist(), errors["error_code"].to_pylist(), strict=True))

    def _add_states(self, table: pa.Table) -> None:
        states = table.select(SUMMARY_COLUMNS["partition_states"])
        if not states.num_rows:
            return
        accepted = pa.array(self._accepted, pa.binary())
        is_accepted = pc.is_in(states["body_id"], value_set=accepted)
        self._add_accepted_states(states.filter(is_accepted))
        refused = states.filter(pc.invert(is_accepted))
        for body_id in pc.unique(refused["body_id"]).to_pylist():
            self._refused_states[body_id] = refused.filter(pc.equal(refused["body_id"], body_id))
        rows = sum(held.num_rows for held in self._refused_states.values())
        while rows > _REFUSED_STATES:
            rows -= self._refused_states.pop(next(iter(self._refused_states))).num_rows

    def _add_accepted_states(self, states: pa.Table) -> None:
        self._history.add(states)
        self._deletions.add_states(states)

    # ---- the whole ----

    def rows(self) -> dict[str, Any]:
        """The summary as plain values, ready for JSON."""
        totals, most_changed = self._history.changes(_MOST_CHANGED)
        captures = sorted(self._captures, key=lambda row: (row["first_ts"] or 0, row["capture"]))
        slowest = self._slowest()
        return {
            "captures": [_capture_row(row) for row in captures],
            "requests": [
                {
                    "api": api_name(api_key),
                    "api_key": api_key,
                    "api_version": version,
                    "error_code": error,
                    "error": None if error is None else error_name(error),
                    **{name: counts[name] for name in ("count", "partitions", "unanswered", "unreadable")},
                }
                for (api_key, version, error), counts in sorted(
                    self._requests.items(), key=lambda item: (item[0][:2], item[0][2] is None, item[0][2] or 0)
                )
            ],
            "controllers": [
                {
                    "controller_id": controller_id,
                    "controller_epoch": epoch,
                    "is_kraft": is_kraft,
                    "mode": "KRaft" if is_kraft else "ZooKeeper",
                    "brokers": len(addresses),
                    **span.row(),
                }
                for (controller_id, epoch, is_kraft), (span, addresses) in sorted(
                    self._controllers.items(), key=lambda item: (item[0][1], item[1][0].first)
                )
            ],
            "migration": self._migration.row(_moment),
            "brokers": [
                {"broker_id": broker, "host": host, "port": port} for broker, host, port in sorted(self._listeners)
            ],
            "changes": totals,
            "most_changed": most_changed,
            "deletions": self._deletions.rows(_moment),
            "refusals": self._refusal_rows(),
            "partition_errors": [
                {"api": api_name(api), "api_key": api, "error_code": error, "error": error_name(error), "count": count}
                for (api, error), count in sorted(self._partition_errors.items())
            ],
            "zombies": [
                {
                    "controller_id": sender[0],
                    "controller_epoch": sender[1],
                    "superseded_by": {"controller_id": z["newer"].controller_id, "controller_epoch": z["newer"].epoch},
                    **z["span"].row(),
                    "refused": z["refused"],
                }
                for sender, z in sorted(self._zombies.items())
            ],
            "slowest": slowest,
            "silent": [row for row in slowest if row["unanswered"]],
            "unanswered": self._unanswered_rows(),
            "unreadable": [
                {"api": api_name(api), "api_key": api, "api_version": version, "reason": reason, "count": count}
                for (api, version, reason), count in sorted(self._unreadable.items())
            ],
            "gaps": [
                {"file": row["file"], **{name: row[name] for name in _LOSSES}}
                for row in captures
                if any(row[name] for name in _LOSSES)
            ],
            "bad_inputs": sorted(self._bad_inputs, key=lambda row: (row["file"], row["offset"] or -1, row["reason"])),
        }

    def _slowest(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for (ip, port), broker in self._brokers.items():
            median, p99 = broker.latencies.quantiles_us(0.5, 0.99)
            rows.append(
                {
                    "broker_id": broker.broker_id,
                    "ip": ip,
                    "port": port,
                    "requests": broker.requests,
                    "answered": broker.latencies.count,
                    "unanswered": broker.unanswered.total(),
                    "median_ms": _ms(median),
                    "p99_ms": _ms(p99),
                    "max_ms": _ms(broker.latencies.max_us),
                }
            )
        rows.sort(key=lambda row: (row["p99_ms"] is not None, -(row["p99_ms"] or 0), row["ip"], row["port"]))
        return rows

    def _refusal_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "api": api_name(api),
                "api_key": api,
                "error_code": error,
                "error": error_name(error),
                "controller_id": controller,
                "controller_epoch": epoch,
                "broker_id": broker,
                "ip": ip,
                "port": port,
                "broker_epoch": broker_epoch,
                "reason": reason,
                **span.row("count"),
            }
            for (api, error, controller, epoch, broker, ip, port, broker_epoch, reason), span in sorted(
                self._refusals.items(), key=lambda item: (item[1].first, item[0][0], str(item[0]))
            )
        ]

    def _unanswered_rows(self) -> list[dict[str, Any]]:
        reasons: Counter[str] = Counter()
        for broker in self._brokers.values():
            reasons.update(broker.unanswered)
        return [{"reason": reason, "count": count} for reason, count in sorted(reasons.items())]


_LOSSES: Final = ("gaps", "gap_bytes", "cut_packets", "ip_fragments", "bad_checksums", "unmatched_responses")


def summarize(pieces: Iterable[Mapping[str, pa.Table]]) -> dict[str, Any]:
    """Sum up tables.

    Args:
        pieces: The tables by name in one or many pieces, in the order of time, as ``chunks`` gives them. Of each table
            the columns of ``SUMMARY_COLUMNS`` count.

    Returns:
        One object, ready for JSON: ``captures``; ``requests`` by API, version and error; ``controllers`` and
        ``migration``; ``brokers`` and where they listen; ``changes`` of leaders and ISRs in all, and the partitions
        ``most_changed``; ``deletions``; ``refusals`` of whole requests with their reason, ``partition_errors`` and
        ``zombies``; the ``slowest`` addresses first, the ``silent`` of them, ``unanswered`` requests by reason;
        ``unreadable`` requests, ``gaps`` and ``bad_inputs``. Times are ISO 8601 in UTC, latencies in ms.
    """
    figures = _Figures()
    for piece in pieces:
        figures.add(piece)
    return figures.rows()


def _target(request: _Request) -> object:
    """The receiving broker: its id, or its address where the id is not known."""
    if request.target_broker is not None:
        return request.target_broker
    ip, port = request.address
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _capture_row(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in ("first_ts", "last_ts")}
    times = {"first": row["first_ts"], "last": row["last_ts"]}
    return plain | {name: None if us is None else _moment(us) for name, us in times.items()}


def _plain_times(table: pa.Table, *names: str) -> pa.Table:
    """The same with times as microseconds since 1970: plain numbers are made without time zones."""
    for name in names:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.int64()))
    return table


def _ms(us: int | None) -> float | None:
    return None if us is None else us / 1000


def _moment(us: int) -> str:
    """A time in us since 1970 as ISO 8601 in UTC; one beyond the calendar as seconds since 1970."""
    seconds, micros = divmod(us, 1_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{seconds}.{micros:06d}"
