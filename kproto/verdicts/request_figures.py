"""Computes a summary's figures of requests: counts, controllers, refusals, zombies, slow and silent brokers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey, api_name
from kproto.capture.model import Endpoint
from kproto.error_codes import error_name
from kproto.tables.arrays import rows_of
from kproto.tables.schemas import NO_EPOCH
from kproto.verdicts.epochs import Epochs, broker_name, refusal_reason
from kproto.verdicts.stale import by_clock, epochs_in, learn_epochs, plain_times
from kproto.verdicts.states import FULL, INCREMENTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.verdicts.epochs import ControllerEpoch

REQUEST_COLUMNS: Final = (
    "ts", "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch",
    "is_kraft_controller", "type", "broker_id", "server_ip", "server_port", "n_partitions", "body_id", "latency_us",
    "unmatched_reason", "decode_error", "response_frame_id", "capture",
)  # fmt: skip
"""The columns of ``requests`` from which the figures are computed."""

_ZOOKEEPER: Final = "ZooKeeper controller"
_TAKEOVER: Final = "KRaft controller takes over"
_DUAL_WRITE: Final = "dual write"
_MOMENTS: Final = ("refused_ts", "era")
_FIGURES: Final = (
    ("ts", "count"), ("ts", "min"), ("ts", "max"), ("n_partitions", "sum"), ("response_frame_id", "count"),
)  # fmt: skip


class RequestKind(NamedTuple):
    """What the figures tell apart of requests to one address; they differ in times, bodies and latencies alone.

    Attributes:
        broker_epoch: The epoch in refused requests; None for others, which may differ in it.
        reason: Why the broker refused them; empty where it did not, or the error says it all.
        is_zombie: Whether another controller had replaced the sender.
        phase: The phase of a migration that they are in; empty where they are in none.
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
    reason: str = ""
    is_zombie: bool = False
    phase: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """The receiving broker's address."""
        return self.server_ip, self.server_port

    @property
    def target(self) -> object:
        """The receiving broker, see ``target_of``."""
        return target_of(self.broker_id, self.server_ip, self.server_port)

    @property
    def sender(self) -> tuple[int, int, bool]:
        """The controller's id, its epoch and its kind, of requests that can be read."""
        assert self.controller_id is not None
        assert self.controller_epoch is not None
        return self.controller_id, self.controller_epoch, bool(self.is_kraft_controller)


@dataclass(slots=True)
class RequestSpan:
    """Some requests: their number, the times of the first and the last in us since 1970, and what was with them.

    Attributes:
        partitions: Their partitions, None if no request has a number of them.
        answered: The number of requests with a response.
        newer: The controller that had replaced the sender at the first of them, as far as it is known.
        kinds: The kinds that were summed up by ``RequestFigures``.
    """

    count: int = 0
    first: int = 0
    last: int = 0
    partitions: int | None = None
    answered: int = 0
    newer: ControllerEpoch | None = None
    kinds: set[RequestKind] = field(default_factory=set)

    def merge(self, other: RequestSpan) -> None:
        """Add other requests."""
        newer = [(span.first, span.newer) for span in (self, other) if span.newer is not None]
        self.newer = min(newer)[1] if newer else None
        if other.count:
            self.first = min(self.first, other.first) if self.count else other.first
            self.last = max(self.last, other.last)
        self.count += other.count
        self.partitions = (self.partitions or 0) + (other.partitions or 0)
        self.answered += other.answered

    def row(self, counted: str = "requests") -> dict[str, Any]:
        """The number and the times, for a summary."""
        return {counted: self.count, "first": moment(self.first), "last": moment(self.last)}


_KEYS: Final = RequestKind._fields[:-3]
"""The columns that tell requests apart before they are judged."""


def target_of(broker_id: int | None, ip: str, port: int) -> object:
    """Return a receiving broker: its id, or its address where the id is not known."""
    if broker_id is not None:
        return broker_id
    return str(Endpoint(ip, port))


def group_requests(rows: pa.Table, seen: Epochs) -> Iterator[tuple[RequestKind, RequestSpan]]:
    """Yield requests in groups, in the order of their first ones.

    All of a group were sent while the same controller epoch was the newest, and the broker either had or had not been
    sent all partitions before each of them; the first and the last of refused requests are one.

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
    rows = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    grouped = rows.group_by([*_KEYS, *_MOMENTS], use_threads=False).aggregate([*_FIGURES, ("row", "min")])
    grouped = grouped.sort_by("row_min")  # groups come in no certain order
    names = (*_KEYS, *("_".join(figure) for figure in _FIGURES))
    for row in rows_of(grouped, names):
        yield RequestKind(*row[: len(_KEYS)]), RequestSpan(*row[len(_KEYS) :])


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
    run_ends, numbers = pa.array(ends, pa.int32()), pa.array(range(len(ends)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(run_ends, numbers))


_MOST_VALUES: Final = 20_000
"""The most distinct latencies of a broker that are counted; beyond it those so far are counted to three digits."""


class Latencies:
    """A count of latencies in microseconds by value: quantiles in bounded memory."""

    def __init__(self, latencies_us: Iterable[int] = ()) -> None:
        self._counts: Counter[int] = Counter()
        self.count: int = 0
        self.max_us: int | None = None
        self.add(latencies_us)

    def add(self, latencies_us: Iterable[int]) -> None:
        """Count some latencies."""
        self._add(Counter(latencies_us))

    def merge(self, other: Latencies) -> None:
        """Add the counts of another broker or process."""
        self._add(other._counts)
        self.max_us = max((us for us in (self.max_us, other.max_us) if us is not None), default=None)

    def _add(self, counts: Counter[int]) -> None:
        self._counts.update(counts)
        self.count += counts.total()
        self.max_us = max((*counts, *(() if self.max_us is None else (self.max_us,))), default=None)
        if len(self._counts) > _MOST_VALUES:
            fine, self._counts = self._counts, Counter()
            for latency, count in fine.items():
                self._counts[latency - latency % 10 ** max(len(str(latency)) - 3, 0)] += count

    def quantiles_us(self, *parts: float) -> list[int | None]:
        """Return the quantiles (nearest rank) for ascending fractions such as 0.5 and 0.99."""
        found: list[int | None] = []
        passed = 0
        values = iter(sorted(self._counts.items()))
        latency: int | None = None
        for part in parts:
            while passed < ceil(part * self.count):
                latency, count = next(values)
                passed += count
            found.append(latency)
        return found


_Spans = dict[Any, RequestSpan]


def _judged(kind: RequestKind, first: int, seen: Epochs) -> tuple[RequestKind, ControllerEpoch | None]:
    """Judge requests; return their kind, and the controller that had replaced their sender."""
    epoch, is_kraft = kind.controller_epoch, bool(kind.is_kraft_controller)
    if epoch in (None, NO_EPOCH) or kind.api_key == ApiKey.FETCH:  # a change of KRaft's log, which nobody refuses
        return kind._replace(type=None), None
    asked = kind.address, epoch, kind.broker_epoch, kind.error_code
    stale = list(seen.stale(first, *asked, is_kraft_controller=is_kraft))
    reason = refusal_reason(kind.error_code, stale, broker_name(kind.target))
    zombie = next((found for found in stale if found.zombie), None)
    phase = "" if kind.error_code else _phase_of(kind, first, seen)
    kind = kind._replace(type=None, reason=reason, is_zombie=zombie is not None, phase=phase)
    return kind, None if zombie is None else zombie.newer


def _phase_of(kind: RequestKind, first: int, seen: Epochs) -> str:
    """The phase of a migration in which a broker got requests.

    A KRaft controller that takes over sends each broker all topics in an UpdateMetadata without type, then a full
    LeaderAndIsr and a full UpdateMetadata; from then on it sends changes alone.
    """
    if not kind.is_kraft_controller:
        return _ZOOKEEPER
    if kind.type == FULL and kind.api_key == ApiKey.UPDATE_METADATA:
        return _TAKEOVER
    had_full = seen.had_full_update(kind.address, first)
    return _DUAL_WRITE if kind.type == INCREMENTAL or had_full else _TAKEOVER


class RequestFigures:
    """The summary's figures of requests, from pieces of the ``requests`` table.

    Args:
        known: Epochs seen in all captures; None: the pieces come in the order of time, and each adds its own.
    """

    def __init__(self, known: Epochs | None = None) -> None:
        self._spans: dict[RequestKind, RequestSpan] = {}
        self._latencies: dict[tuple[str, int], Latencies] = defaultdict(Latencies)
        self._brokers: dict[tuple[str, int], tuple[int, int]] = {}
        self._known = known
        self._seen: dict[str, Epochs] = defaultdict(Epochs)  # by the point of a clock

    def forget_epochs(self) -> None:
        """Forget the epochs, which are many: no piece is added any more."""
        self._known = None
        self._seen.clear()

    def add(self, table: pa.Table, clocks: pa.Table | None = None) -> pa.Table:
        """Add a piece of the table.

        Args:
            table: The piece.
            clocks: See ``by_clock``.

        Returns:
            Its accepted requests whose body could be read, in the order of time; ``ts`` in us since 1970.
        """
        rows = plain_times(table.select(REQUEST_COLUMNS), "ts").sort_by("ts")
        for point, some in by_clock(rows, clocks):
            seen = self._known or self._seen[point]
            if self._known is None:
                learn_epochs(seen, epochs_in([some]))
            for kind, span in group_requests(some, seen):
                judged, span.newer = _judged(kind, span.first, seen)
                self._spans.setdefault(judged, RequestSpan()).merge(span)
        self._add_brokers(rows)
        accepted = pc.equal(pc.fill_null(rows["error_code"], 0), 0)
        readable = pc.and_(pc.is_valid(rows["controller_id"]), pc.is_valid(rows["body_id"]))
        return rows.filter(pc.and_(accepted, readable))

    def _add_brokers(self, rows: pa.Table) -> None:
        """Add the latencies of the brokers' answers, and the ids that were known last."""
        address = ["server_ip", "server_port"]
        answered = rows.filter(pc.is_valid(rows["latency_us"])).group_by(address, use_threads=False)
        for ip, port, latencies_us in rows_of(answered.aggregate([("latency_us", "list")])):
            self._latencies[ip, port].add(latencies_us)
        known = rows.filter(pc.is_valid(rows["broker_id"])).group_by(address, use_threads=False)
        for ip, port, broker_id, ts in rows_of(known.aggregate([("broker_id", "last"), ("ts", "last")])):
            self._brokers[ip, port] = ts, broker_id

    def merge(self, other: RequestFigures) -> None:
        """Add the figures of other requests."""
        for kind, span in other._spans.items():
            self._spans.setdefault(kind, RequestSpan()).merge(span)
        for address, latencies in other._latencies.items():
            self._latencies[address].merge(latencies)
        for address, known in other._brokers.items():
            self._brokers[address] = max(known, self._brokers.get(address, known), key=itemgetter(0))

    def _by(self, key: Callable[[RequestKind], Any]) -> _Spans:
        """Sum up the requests by a key of their kinds; those with the key None are left out."""
        found: _Spans = defaultdict(RequestSpan)
        for kind, span in self._spans.items():
            of = key(kind)
            if of is not None:
                found[of].merge(span)
                found[of].kinds.add(kind)
        return found

    def rows(self) -> dict[str, Any]:
        """The figures as sections of the summary."""
        controllers = self._by(
            lambda kind: (
                None
                if kind.controller_id is None or kind.controller_epoch in (None, NO_EPOCH)  # its leader is unknown
                else kind.sender
            )
        )
        zombies = self._by(lambda kind: kind.sender if kind.is_zombie else None)
        unreadable = self._by(
            lambda kind: (kind.api_key, kind.api_version, kind.decode_error) if kind.decode_error else None
        )
        slowest = self._slowest()
        return {
            "requests": self._request_rows(),
            "controllers": [
                {
                    "controller_id": controller_id,
                    "controller_epoch": epoch,
                    "is_kraft_controller": is_kraft_controller,
                    "mode": "KRaft" if is_kraft_controller else "ZooKeeper",
                    "brokers": len({kind.address for kind in span.kinds}),
                    **span.row(),
                }
                for (controller_id, epoch, is_kraft_controller), span in sorted(
                    controllers.items(), key=lambda item: (item[0][1], item[1].first)
                )
            ],
            "migration": self._migration(),
            "refusals": self._refusal_rows(),
            "zombies": [
                {
                    "controller_id": sender[0],
                    "controller_epoch": sender[1],
                    "superseded_by": None
                    if span.newer is None
                    else {"controller_id": span.newer.controller_id, "controller_epoch": span.newer.epoch},
                    **span.row(),
                    "refused": sum(self._spans[kind].count for kind in span.kinds if kind.error_code),
                }
                for sender, span in sorted(zombies.items(), key=itemgetter(0))
            ],
            "slowest": slowest,
            "silent": [row for row in slowest if row["unanswered"]],
            "unanswered": [
                {"reason": reason, "count": span.count - span.answered}
                for reason, span in sorted(self._by(lambda kind: kind.unmatched_reason or "unknown").items())
                if span.count > span.answered
            ],
            "unreadable": [
                {"api": api_name(api), "api_key": api, "api_version": version, "reason": reason, "count": span.count}
                for (api, version, reason), span in sorted(unreadable.items(), key=itemgetter(0))
            ],
        }

    def _request_rows(self) -> list[dict[str, Any]]:
        every = self._by(lambda kind: (kind.api_key, kind.api_version, kind.error_code))
        return [
            {
                "api": api_name(key[0]),
                "api_key": key[0],
                "api_version": key[1],
                "error_code": key[2],
                "error": None if key[2] is None else error_name(key[2]),
                "count": span.count,
                "partitions": span.partitions or 0,
                "unanswered": span.count - span.answered,
                "unreadable": sum(self._spans[kind].count for kind in span.kinds if kind.decode_error),
            }
            for key, span in sorted(every.items(), key=lambda item: (item[0][:2], item[0][2] is None, item[0][2] or 0))
        ]

    def _migration(self) -> dict[str, Any] | None:
        """The migration from ZooKeeper to KRaft with its phases; None where no KRaft controller sent a request."""
        phases = self._by(lambda kind: kind.phase or None)
        senders = {kind.sender for span in phases.values() for kind in span.kinds}
        if not any(is_kraft for _controller, _epoch, is_kraft in senders):
            return None
        ids = [
            [
                {"controller_id": controller, "controller_epoch": epoch}
                for controller, epoch, of in sorted(senders, key=itemgetter(1, 0))
                if of == is_kraft
            ]
            for is_kraft in (False, True)
        ]
        return {
            "zookeeper_controllers": ids[0],
            "kraft_controllers": ids[1],
            "phases": [
                {
                    "phase": name,
                    "requests": span.count,
                    "brokers": len({kind.target for kind in span.kinds}),
                    **span.row(),
                }
                for name in (_ZOOKEEPER, _TAKEOVER, _DUAL_WRITE)
                if (span := phases.get(name))
            ],
        }

    def _slowest(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for (ip, port), span in self._by(lambda kind: kind.address).items():
            latencies = self._latencies[ip, port]
            median, p99 = latencies.quantiles_us(0.5, 0.99)
            rows.append(
                {
                    "broker_id": self._brokers.get((ip, port), (0, None))[1],
                    "ip": ip,
                    "port": port,
                    "requests": span.count,
                    "answered": latencies.count,
                    "unanswered": span.count - span.answered,
                    "median_ms": _ms(median),
                    "p99_ms": _ms(p99),
                    "max_ms": _ms(latencies.max_us),
                }
            )
        rows.sort(key=lambda row: (row["p99_ms"] is not None, -(row["p99_ms"] or 0), row["ip"], row["port"]))
        return rows

    def _refusal_rows(self) -> list[dict[str, Any]]:
        refusals = self._by(
            lambda kind: (
                kind.api_key, kind.error_code, *kind.sender[:2], kind.broker_id, *kind.address, kind.broker_epoch,
                kind.reason,
            )
            if kind.error_code and kind.controller_id is not None and kind.api_key != ApiKey.FETCH
            else None
        )  # fmt: skip
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
                refusals.items(), key=lambda item: (item[1].first, item[0][0], str(item[0]))
            )
        ]


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
