"""Computes a summary's figures of requests: counts, controllers, refusals, zombies, slow and silent brokers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kproto.api import api_name
from kproto.error_codes import error_name
from kproto.tables.epochs import broker_name, refusal_reason
from kproto.tables.latencies import Latencies
from kproto.tables.migration import Migration
from kproto.tables.sightings import Sightings, sightings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.tables.epochs import ControllerEpoch

__all__ = ["REQUEST_COLUMNS", "Request", "RequestFigures", "moment", "plain_times"]

REQUEST_COLUMNS: Final = (
    "ts", "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch", "is_kraft",
    "type", "target_broker", "server_ip", "server_port", "n_partitions", "body_id", "latency_us",
    "unmatched_reason", "decode_error", "response_frame_id",
)  # fmt: skip
"""The columns of ``requests`` from which the figures are computed."""


class Request(NamedTuple):
    """A row of ``requests``, in the order of ``REQUEST_COLUMNS``; ``ts`` in microseconds."""

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
        """Whether the broker may have acted on the request: it did not refuse all of it."""
        return not self.error_code

    @property
    def address(self) -> tuple[str, int]:
        """The receiving broker's address."""
        return self.server_ip, self.server_port

    @property
    def target(self) -> object:
        """The receiving broker: its id, or its address where the id is not known."""
        if self.target_broker is not None:
            return self.target_broker
        host = f"[{self.server_ip}]" if ":" in self.server_ip else self.server_ip
        return f"{host}:{self.server_port}"


@dataclass(slots=True)
class _Span:
    """A number of requests, and the times of the first and the last in us since 1970."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, ts: int) -> None:
        self.first = min(self.first, ts) if self.count else ts
        self.last = max(self.last, ts)
        self.count += 1

    def merge(self, other: _Span) -> None:
        if other.count:
            self.first = min(self.first, other.first) if self.count else other.first
            self.last = max(self.last, other.last)
            self.count += other.count

    def row(self, counted: str = "requests") -> dict[str, Any]:
        return {counted: self.count, "first": moment(self.first), "last": moment(self.last)}


@dataclass(slots=True)
class _Broker:
    """The requests to one address and their answers."""

    latencies: Latencies = field(default_factory=Latencies)
    requests: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    broker_id: int | None = None
    broker_since: int = 0

    def merge(self, other: _Broker) -> None:
        self.latencies.merge(other.latencies)
        self.requests += other.requests
        self.unanswered.update(other.unanswered)
        if other.broker_id is not None and other.broker_since >= self.broker_since:
            self.broker_id, self.broker_since = other.broker_id, other.broker_since


@dataclass(slots=True)
class _Zombie:
    """The requests of a controller after a newer one was seen."""

    newer: ControllerEpoch
    span: _Span = field(default_factory=_Span)
    refused: int = 0

    def merge(self, other: _Zombie) -> None:
        if other.span.count and (not self.span.count or other.span.first < self.span.first):
            self.newer = other.newer
        self.span.merge(other.span)
        self.refused += other.refused


class RequestFigures:
    """The summary's figures of requests, from pieces of the ``requests`` table.

    Args:
        known: Epochs seen in all captures; None: the pieces come in the order of time, and each adds its own.
    """

    def __init__(self, known: Sightings | None = None) -> None:
        self._requests: dict[tuple[int, int, int | None], Counter[str]] = defaultdict(Counter)
        self._controllers: dict[tuple[int, int, bool], tuple[_Span, set[tuple[str, int]]]] = {}
        self._brokers: dict[tuple[str, int], _Broker] = defaultdict(_Broker)
        self._refusals: dict[tuple[Any, ...], _Span] = defaultdict(_Span)
        self._zombies: dict[tuple[int, int, bool], _Zombie] = {}
        self._unreadable: Counter[tuple[int, int, str]] = Counter()
        self._learns = known is None
        self._seen = known or Sightings()
        self._migration = Migration()

    def add(self, table: pa.Table) -> Iterator[tuple[bytes, Request]]:
        """Add a piece of the table; yield its accepted requests whose body could be read, each with the body's id."""
        rows = plain_times(table.select(REQUEST_COLUMNS), "ts").sort_by("ts")
        if self._learns:
            self._seen.learn(sightings([rows]))
        for request in map(Request._make, zip(*(column.to_pylist() for column in rows.columns), strict=True)):
            self._add_request(request)
            if request.controller_id is not None and request.accepted and request.body_id is not None:
                yield request.body_id, request

    def _add_request(self, request: Request) -> None:
        counts = self._requests[request.api_key, request.api_version, request.error_code]
        counts["count"] += 1
        counts["partitions"] += request.n_partitions or 0
        counts["unanswered"] += request.response_frame_id is None
        counts["unreadable"] += request.decode_error is not None
        broker = self._brokers[request.address]
        broker.requests += 1
        if request.target_broker is not None:
            broker.broker_id, broker.broker_since = request.target_broker, request.ts
        if request.latency_us is not None:
            broker.latencies.add([request.latency_us])
        if request.response_frame_id is None:
            broker.unanswered[request.unmatched_reason or "unknown"] += 1
        if request.decode_error is not None:
            self._unreadable[request.api_key, request.api_version, request.decode_error] += 1
        if request.controller_id is not None:
            self._add_readable(request)

    def _add_readable(self, request: Request) -> None:
        assert request.controller_id is not None
        assert request.controller_epoch is not None
        sender = (request.controller_id, request.controller_epoch, bool(request.is_kraft))
        span, addresses = self._controllers.setdefault(sender, (_Span(), set()))
        span.add(request.ts)
        addresses.add(request.address)
        target = request.target
        if request.error_code:
            reason = refusal_reason(
                request.error_code,
                broker_name(target),
                request.controller_epoch,
                request.broker_epoch,
                self._seen.superseded_by(request.controller_epoch, request.ts),
                self._seen.broker_epochs(request.address, request.ts),
            )
            key = (request.api_key, request.error_code, *sender[:2], request.target_broker, *request.address,
                   request.broker_epoch, reason)  # fmt: skip
            self._refusals[key].add(request.ts)
        newer = self._seen.superseded_by(request.controller_epoch, request.ts)
        if newer is not None:
            zombie = self._zombies.setdefault(sender, _Zombie(newer))
            zombie.span.add(request.ts)
            zombie.refused += bool(request.error_code)
        if request.accepted:
            self._migration.add(
                request.ts, request.api_key, request.controller_id, request.controller_epoch, target,
                is_kraft=bool(request.is_kraft), update_type=request.type or 0,
                had_full=self._seen.had_full_update(request.address, request.ts),
            )  # fmt: skip

    def merge(self, other: RequestFigures) -> None:
        """Add the figures of other requests."""
        for key, counts in other._requests.items():
            self._requests[key].update(counts)
        for sender, (span, addresses) in other._controllers.items():
            own_span, own_addresses = self._controllers.setdefault(sender, (_Span(), set()))
            own_span.merge(span)
            own_addresses |= addresses
        for address, broker in other._brokers.items():
            self._brokers[address].merge(broker)
        for refusal, span in other._refusals.items():
            self._refusals[refusal].merge(span)
        for sender, zombie in other._zombies.items():
            self._zombies.setdefault(sender, _Zombie(zombie.newer)).merge(zombie)
        self._unreadable.update(other._unreadable)
        self._migration.merge(other._migration)

    def rows(self) -> dict[str, Any]:
        """The figures as sections of the summary."""
        slowest = self._slowest()
        return {
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
            "migration": self._migration.row(moment),
            "refusals": self._refusal_rows(),
            "zombies": [
                {
                    "controller_id": sender[0],
                    "controller_epoch": sender[1],
                    "superseded_by": {
                        "controller_id": zombie.newer.controller_id,
                        "controller_epoch": zombie.newer.epoch,
                    },
                    **zombie.span.row(),
                    "refused": zombie.refused,
                }
                for sender, zombie in sorted(self._zombies.items())
            ],
            "slowest": slowest,
            "silent": [row for row in slowest if row["unanswered"]],
            "unanswered": self._unanswered_rows(),
            "unreadable": [
                {"api": api_name(api), "api_key": api, "api_version": version, "reason": reason, "count": count}
                for (api, version, reason), count in sorted(self._unreadable.items())
            ],
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


def plain_times(table: pa.Table, *names: str) -> pa.Table:
    """Return the table with times as microseconds since 1970."""
    for name in names:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.int64()))
    return table


def _ms(us: int | None) -> float | None:
    return None if us is None else us / 1000


def moment(us: int) -> str:
    """Format a time in us since 1970 as ISO 8601 in UTC; a time beyond the calendar as seconds since 1970."""
    seconds, micros = divmod(us, 1_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{seconds}.{micros:06d}"
