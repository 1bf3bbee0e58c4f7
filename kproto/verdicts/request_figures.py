"""Computes a summary's figures of requests: counts, controllers, refusals, zombies, slow and silent brokers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey, api_name
from kproto.capture.model import Endpoint
from kproto.error_codes import error_name
from kproto.tables.arrays import array_of, rows_of
from kproto.verdicts.epochs import Epochs, broker_name
from kproto.verdicts.latencies import Latencies
from kproto.verdicts.migration import Migration
from kproto.verdicts.stale import epochs_in, learn_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.verdicts.epochs import ControllerEpoch

REQUEST_COLUMNS: Final = (
    "ts", "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch",
    "is_kraft_controller", "type", "broker_id", "server_ip", "server_port", "n_partitions", "body_id", "latency_us",
    "unmatched_reason", "decode_error", "response_frame_id",
)  # fmt: skip
"""The columns of ``requests`` from which the figures are computed."""

_KEYS: Final = (
    "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch", "is_kraft_controller",
    "type", "broker_id", "server_ip", "server_port", "unmatched_reason", "decode_error",
)  # fmt: skip
_MOMENTS: Final = ("refused_ts", "era")
_FIGURES: Final = (
    ("ts", "count"), ("ts", "min"), ("ts", "max"), ("n_partitions", "sum"), ("response_frame_id", "count"),
)  # fmt: skip


class RequestGroup(NamedTuple):
    """Requests to one address that differ in their times, bodies and latencies alone.

    All were sent while the same controller epoch was the newest, and the broker either had or had not been sent all
    partitions before each of them.

    Attributes:
        broker_epoch: The epoch in refused requests; None for others, which may differ in it.
        requests: Their number.
        first, last: The times of the first and the last in us since 1970; equal for refused requests.
        partitions: Their partitions, None if no request has a number of them.
        answered: The number of requests with a response.
    """

    api_key: int
    api_version: int
    error_code: int | None
    controller_id: int | None
    controller_epoch: int | None
    broker_epoch: int | None
    is_kraft_controller: bool | None
    type: int | None
    broker_id: int | None
    server_ip: str
    server_port: int
    unmatched_reason: str | None
    decode_error: str | None
    requests: int
    first: int
    last: int
    partitions: int | None
    answered: int

    @property
    def address(self) -> tuple[str, int]:
        """The receiving broker's address."""
        return self.server_ip, self.server_port

    @property
    def target(self) -> object:
        """The receiving broker, see ``target_of``."""
        return target_of(self.broker_id, self.server_ip, self.server_port)


def target_of(broker_id: int | None, ip: str, port: int) -> object:
    """Return a receiving broker: its id, or its address where the id is not known."""
    if broker_id is not None:
        return broker_id
    return str(Endpoint(ip, port))


def group_requests(rows: pa.Table, seen: Epochs) -> Iterator[RequestGroup]:
    """Yield the groups of requests, in the order of their first requests.

    Args:
        rows: Of ``requests`` in the order of time, ``ts`` in us since 1970.
        seen: The epochs that were seen in all captures.
    """
    if not rows.num_rows:
        return
    refused = pc.not_equal(pc.fill_null(rows["error_code"], 0), 0)
    epoch = rows.column_names.index("broker_epoch")
    rows = rows.set_column(epoch, "broker_epoch", pc.if_else(refused, rows["broker_epoch"], None))
    rows = rows.append_column("refused_ts", pc.if_else(refused, rows["ts"], None))
    rows = rows.append_column("era", _eras(rows["ts"].combine_chunks(), seen.turns()))
    rows = rows.append_column("row", array_of(range(rows.num_rows), pa.int64()))
    grouped = rows.group_by([*_KEYS, *_MOMENTS], use_threads=False).aggregate([*_FIGURES, ("row", "min")])
    grouped = grouped.sort_by("row_min")  # groups come in no certain order
    names = (*_KEYS, *("_".join(figure) for figure in _FIGURES))
    yield from map(RequestGroup._make, rows_of(grouped, names))


def _eras(times: pa.Array, turns: list[int]) -> pa.Array:
    """Number the stretches of ascending times between the turns."""
    ends: list[int] = []
    for turn in turns[bisect_left(turns, times[0].as_py()) :]:
        end = bisect_left(times, turn, key=lambda time: time.as_py())
        if end == len(times):
            break
        if end and end != (ends[-1] if ends else 0):
            ends.append(end)
    ends.append(len(times))
    run_ends, numbers = array_of(ends, pa.int32()), array_of(range(len(ends)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(run_ends, numbers))


@dataclass(slots=True)
class _Span:
    """A number of requests, and the times of the first and the last in us since 1970."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, count: int, first: int, last: int) -> None:
        if count:
            self.first = min(self.first, first) if self.count else first
            self.last = max(self.last, last)
            self.count += count

    def merge(self, other: _Span) -> None:
        self.add(other.count, other.first, other.last)

    def row(self, counted: str = "requests") -> dict[str, Any]:
        return {counted: self.count, "first": moment(self.first), "last": moment(self.last)}


@dataclass(slots=True)
class _BrokerFigures:
    """The requests to one address and their answers."""

    latencies: Latencies = field(default_factory=Latencies)
    requests: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    broker_id: int | None = None
    broker_since: int = 0

    def merge(self, other: _BrokerFigures) -> None:
        self.latencies.merge(other.latencies)
        self.requests += other.requests
        self.unanswered.update(other.unanswered)
        if other.broker_id is not None and other.broker_since >= self.broker_since:
            self.broker_id, self.broker_since = other.broker_id, other.broker_since


@dataclass(slots=True)
class _Zombie:
    """The requests of a controller that was replaced; ``newer`` is the epoch that was known at the first of them."""

    newer: ControllerEpoch | None = None
    span: _Span = field(default_factory=_Span)
    refused: int = 0

    def add(self, newer: ControllerEpoch | None, count: int, first: int, last: int, refused: int) -> None:
        known = (self.newer is None, self.span.first, self.newer)
        if newer is not None and (known[0] or (False, first, newer) < known):
            self.newer = newer
        self.span.add(count, first, last)
        self.refused += refused

    def merge(self, other: _Zombie) -> None:
        self.add(other.newer, other.span.count, other.span.first, other.span.last, other.refused)


class RequestFigures:
    """The summary's figures of requests, from pieces of the ``requests`` table.

    Args:
        known: Epochs seen in all captures; None: the pieces come in the order of time, and each adds its own.
    """

    def __init__(self, known: Epochs | None = None) -> None:
        self._requests: dict[tuple[int, int, int | None], Counter[str]] = defaultdict(Counter)
        self._controllers: dict[tuple[int, int, bool], tuple[_Span, set[tuple[str, int]]]] = {}
        self._brokers: dict[tuple[str, int], _BrokerFigures] = defaultdict(_BrokerFigures)
        self._refusals: dict[tuple[Any, ...], _Span] = defaultdict(_Span)
        self._zombies: dict[tuple[int, int, bool], _Zombie] = {}
        self._unreadable: Counter[tuple[int, int, str]] = Counter()
        self._learns = known is None
        self._seen = known or Epochs()
        self._migration = Migration()

    def forget_epochs(self) -> None:
        """Forget the epochs, which are many: no piece is added any more."""
        self._seen = Epochs()

    def add(self, table: pa.Table) -> pa.Table:
        """Add a piece of the table.

        Returns:
            Its accepted requests whose body could be read, in the order of time; ``ts`` in us since 1970.
        """
        rows = plain_times(table.select(REQUEST_COLUMNS), "ts").sort_by("ts")
        if self._learns:
            learn_epochs(self._seen, epochs_in([rows]))
        for group in group_requests(rows, self._seen):
            self._add_group(group)
        self._add_brokers(rows)
        accepted = pc.equal(pc.fill_null(rows["error_code"], 0), 0)
        readable = pc.and_(pc.is_valid(rows["controller_id"]), pc.is_valid(rows["body_id"]))
        return rows.filter(pc.and_(accepted, readable))

    def _add_brokers(self, rows: pa.Table) -> None:
        """Add the latencies of the brokers' answers, and the ids that were known last."""
        address = ["server_ip", "server_port"]
        answered = rows.filter(pc.is_valid(rows["latency_us"])).group_by(address, use_threads=False)
        for ip, port, latencies_us in rows_of(answered.aggregate([("latency_us", "list")])):
            self._brokers[ip, port].latencies.add(latencies_us)
        known = rows.filter(pc.is_valid(rows["broker_id"])).group_by(address, use_threads=False)
        for ip, port, broker_id, ts in rows_of(known.aggregate([("broker_id", "last"), ("ts", "last")])):
            broker = self._brokers[ip, port]
            broker.broker_id, broker.broker_since = broker_id, ts

    def _add_group(self, group: RequestGroup) -> None:
        unanswered = group.requests - group.answered
        counts = self._requests[group.api_key, group.api_version, group.error_code]
        counts["count"] += group.requests
        counts["partitions"] += group.partitions or 0
        counts["unanswered"] += unanswered
        broker = self._brokers[group.address]
        broker.requests += group.requests
        if unanswered:
            broker.unanswered[group.unmatched_reason or "unknown"] += unanswered
        if group.decode_error is not None:
            counts["unreadable"] += group.requests
            self._unreadable[group.api_key, group.api_version, group.decode_error] += group.requests
        if group.controller_id is not None:
            self._add_readable(group)

    def _add_readable(self, group: RequestGroup) -> None:
        assert group.controller_id is not None
        assert group.controller_epoch is not None
        sender = (group.controller_id, group.controller_epoch, bool(group.is_kraft_controller))
        times = group.requests, group.first, group.last
        span, addresses = self._controllers.setdefault(sender, (_Span(), set()))
        span.add(*times)
        addresses.add(group.address)
        if group.api_key == ApiKey.FETCH:  # a batch of KRaft's log, which nobody refuses
            return
        epochs = group.controller_epoch, group.broker_epoch
        if group.error_code:
            reason = self._seen.refusal_reason(
                group.first, group.address, broker_name(group.target), *epochs, group.error_code,
                is_kraft_controller=bool(group.is_kraft_controller),
            )  # fmt: skip
            key = (group.api_key, group.error_code, *sender[:2], group.broker_id, *group.address,
                   group.broker_epoch, reason)  # fmt: skip
            self._refusals[key].add(*times)
        for stale in self._seen.stale(
            group.first, group.address, *epochs, group.error_code, is_kraft_controller=bool(group.is_kraft_controller)
        ):
            if stale.zombie:
                refused = group.requests if group.error_code else 0
                self._zombies.setdefault(sender, _Zombie()).add(stale.newer, *times, refused)
        if not group.error_code:
            self._migration.add(
                *times, group.api_key, *sender[:2], group.target, is_kraft_controller=sender[2],
                update_type=group.type or 0, had_full=self._seen.had_full_update(group.address, group.first),
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
            self._zombies.setdefault(sender, _Zombie()).merge(zombie)
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
                    "is_kraft_controller": is_kraft_controller,
                    "mode": "KRaft" if is_kraft_controller else "ZooKeeper",
                    "brokers": len(addresses),
                    **span.row(),
                }
                for (controller_id, epoch, is_kraft_controller), (span, addresses) in sorted(
                    self._controllers.items(), key=lambda item: (item[0][1], item[1][0].first)
                )
            ],
            "migration": self._migration.row(moment),
            "refusals": self._refusal_rows(),
            "zombies": [
                {
                    "controller_id": sender[0],
                    "controller_epoch": sender[1],
                    "superseded_by": None
                    if zombie.newer is None
                    else {"controller_id": zombie.newer.controller_id, "controller_epoch": zombie.newer.epoch},
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
    """Format a time in us since 1970 as ISO 8601 in UTC; a time beyond the calendar as seconds since 1970.

    0 is the time of packets that have none: ``no time``.
    """
    if not us:
        return "no time"
    seconds, micros = divmod(us, 1_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{seconds}.{micros:06d}"
