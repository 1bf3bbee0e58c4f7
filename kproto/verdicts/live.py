"""Folds the events of a growing capture into snapshots of what flows now, for ``kproto top``.

Memory is bounded: counts of the last seconds, the latest changes, and the newest requests, which the rules of
``doctor`` are applied to. Times are those of the capture.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from kproto.api import CONTROL_APIS, api_name
from kproto.capture import CapturePoint, Exchange
from kproto.capture.summary import LOSSES
from kproto.tables.bodies import prefix_fields
from kproto.tables.filters import Filters
from kproto.verdicts.request_figures import Latencies
from kproto.verdicts.timeline import Entry, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kproto.capture import CaptureSummary, Connection, Endpoint, Frame
    from kproto.tables.bodies import RequestPrefix
    from kproto.types import BrokerId
    from kproto.verdicts.doctor import Finding

_NS: Final = 1_000_000_000
_MOST_IN_FLIGHT: Final = 10_000
"""The most unanswered requests that are kept; beyond it the oldest count as lost."""

_MOST_CHANGES: Final = 50
_MOST_EXAMINED: Final = 5_000
_MOST_EXAMINED_BYTES: Final = 32 << 20
"""The most requests, and bytes of their bodies, that the rules are applied to at a time: the newest."""

_MOST_ACCEPTED: Final = 256
_MOST_FINDINGS: Final = 1_000
_DAMAGE: Final = (*LOSSES, "without_handshake", "bad_input_count")
_SHORT: Final = 16
_MOST_CODES: Final = 1024
"""The most bytes of an answer whose error code is remembered, and the most such answers."""

_SHARE: Final = 0.004
"""The share of a core that changes may cost while a capture is followed, and that findings may cost."""

_BURST_S: Final = 0.25
"""The time of a core, in s, that changes may take at once after a quiet time."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The requests of an API, or to a broker, in the last seconds.

    Attributes:
        name: The API's name, the broker's id, or its address where no id is known.
        requests: The number of requests that were answered, or given up as unanswered.
        per_second: The same a second.
        errors: The number of them that were refused, are unanswered or cannot be read.
        in_flight: Requests that wait for their answer now.
        median_us, p99_us: From request to answer, None without answers.
        broker_epoch: The broker's epoch in the last request that it did not refuse; None where none has any.
        is_down: Whether the newest live brokers, as the rules were last applied, lack the broker.
    """

    name: str
    requests: int
    per_second: float
    errors: int
    in_flight: int
    median_us: int | None
    p99_us: int | None
    broker_epoch: int | None = None
    is_down: bool = False


@dataclass(slots=True)
class Change:
    """A change, and the brokers that were told it.

    Attributes:
        entry: The first request with it.
        brokers: Ids of the brokers, or addresses where no id is known, in the order in which they were told.
    """

    entry: Entry
    brokers: dict[BrokerId | str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The requests of the last seconds, and the state of the cluster so far.

    Attributes:
        time_ns: The time in the capture, ns since the epoch; 0 before the first request.
        seconds: The number of seconds that the rates cover.
        total: Requests since the begin.
        controller: The sender of the accepted request with the highest controller epoch.
        all: The flow of all requests.
        apis, brokers: The flows, the busiest first.
        changes: The newest first.
        findings: Of the rules of ``doctor``, the worst first.
        not_compared: Requests whose changes were not looked for, since there were too many.
    """

    time_ns: int
    seconds: float
    total: int
    controller: RequestPrefix | None
    all: Flow
    apis: tuple[Flow, ...]
    brokers: tuple[Flow, ...]
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    not_compared: int


class _Counts:
    """Requests that were answered, or given up, in some time, and those that are in flight."""

    __slots__ = ("errors", "in_flight", "latencies", "requests")

    def __init__(self, parts: Iterable[_Counts] = ()) -> None:
        self.requests = self.errors = self.in_flight = 0
        self.latencies: list[int] = []
        for part in parts:
            self.add(part)

    def add(self, other: _Counts) -> None:
        self.requests += other.requests
        self.errors += other.errors
        self.in_flight += other.in_flight
        self.latencies += other.latencies


_Second: TypeAlias = "dict[tuple[int, Endpoint], _Counts]"


class LiveFold:
    """Takes the events of a ``CaptureReader``, or of several merged by time, and gives snapshots.

    Args:
        window_s: The number of seconds that rates and latencies cover.
        summaries: The readers' summaries by the name of the capture point; their losses make findings uncertain.
        thrifty: Whether to skip changes and postpone findings where they cost too much of a core.
        broker_ids: Broker ids of addresses, which no traffic has to tell.
    """

    def __init__(
        self,
        window_s: int,
        summaries: Mapping[str, CaptureSummary],
        *,
        thrifty: bool = True,
        broker_ids: Mapping[tuple[str, int], BrokerId] | None = None,
    ) -> None:
        self._broker_ids = dict(broker_ids or {})
        self._window_s = window_s
        self._summaries = summaries
        self._thrifty = thrifty
        self._timeline = Timeline(Filters(broker_ids=self._broker_ids), [attrgetter("is_change")], follow=True)
        self._seconds: dict[int, _Second] = {}
        self._in_flight: dict[Frame, None] = {}
        self._ids: dict[Endpoint, BrokerId] = {}
        self._epochs: dict[Endpoint, int] = {}
        self._accepted: dict[Connection, Frame] = {}
        self._codes: dict[tuple[object, ...], int | None] = {}
        self._controller: RequestPrefix | None = None
        self._changes: OrderedDict[tuple[int | None, bytes, str], Change] = OrderedDict()
        self._examined: deque[Exchange] = deque()
        self._examined_bytes = self._unexamined = 0
        self._examined_damage: list[int] = []
        self._findings: list[tuple[str, Finding]] = []
        self._down: frozenset[str] = frozenset()
        self._examine_at = 0.0
        self._budget_s = _BURST_S
        self._budget_at = time.monotonic()
        self._first_ns = self._last_ns = 0
        self._total = self._not_compared = 0

    def add(self, events: Iterable[Frame | Exchange]) -> int:
        """Take frames and exchanges in the order in which the reader gives them.

        Returns:
            The number of requests among them that were answered or given up.
        """
        before = self._total
        for event in events:
            if isinstance(event, Exchange):
                if event.request is not None:
                    self._add(event, event.request)
            elif event.direction == "request":
                self._in_flight[event] = None
                if len(self._in_flight) > _MOST_IN_FLIGHT:
                    del self._in_flight[next(iter(self._in_flight))]
        return self._total - before

    def _add(self, exchange: Exchange, request: Frame) -> None:
        self._in_flight.pop(request, None)
        response, api, connection = exchange.response, request.api_key, request.connection
        assert api is not None
        self._total += 1
        moment = request.time_ns if response is None else response.time_ns
        self._first_ns = self._first_ns or moment
        if moment > self._last_ns:
            self._last_ns = moment
        code = None if response is None else self._error_code(exchange, response)
        second = self._seconds.get(moment // _NS)
        if second is None:
            second = self._seconds[moment // _NS] = defaultdict(_Counts)
            oldest = self._last_ns // _NS - self._window_s
            for other in [other for other in self._seconds if other < oldest]:  # no window holds it any more
                del self._seconds[other]
        counts = second[api, connection.server]
        counts.requests += 1
        if code != 0:
            counts.errors += 1
        if response is not None:
            counts.latencies.append((response.time_ns - request.time_ns) // 1000)
        if code == 0 and api in CONTROL_APIS:
            self._accepted.pop(connection, None)  # the newest comes last
            self._accepted[connection] = request
            if len(self._accepted) > _MOST_ACCEPTED:
                self._learn()
        if self._thrifty and self._budget_s <= 0:
            self._not_compared += 1
        else:
            self._compare(exchange)
        self._examined.append(exchange)
        self._examined_bytes += request.length
        self._unexamined += 1
        while len(self._examined) > 1 and (
            len(self._examined) > _MOST_EXAMINED or self._examined_bytes > _MOST_EXAMINED_BYTES
        ):
            if not self._thrifty and self._unexamined >= len(self._examined):
                self._examine()
            self._examined_bytes -= self._examined.popleft().frame.length

    def _error_code(self, exchange: Exchange, response: Frame) -> int | None:
        """Return the error code of an answer, None where it cannot be read; equal short answers are decoded once."""
        if response.length > _SHORT:
            return getattr(exchange.response_message, "error_code", None)
        key = response.api_key, response.api_version, response.body_at, response.status, response.start[4:]
        if key not in self._codes:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            self._codes[key] = getattr(exchange.response_message, "error_code", None)
        return self._codes[key]

    def _learn(self) -> None:
        """Note the epochs of the newest accepted request of each connection: those of a controller only grow."""
        for connection, request in self._accepted.items():
            sender = prefix_fields(request)
            if sender is None:
                continue
            if self._controller is None or sender.controller_epoch >= self._controller.controller_epoch:
                self._controller = sender
            if sender.broker_epoch is not None and sender.broker_epoch >= 0:
                self._epochs[connection.server] = sender.broker_epoch
        self._accepted.clear()

    def _compare(self, exchange: Exchange) -> None:
        """Look for the changes that a request made, and take the time from the budget."""
        began = time.thread_time() if self._thrifty else 0.0
        for entry in self._timeline.entries((exchange,)):
            if entry.body is not None:
                key = entry.exchange.api_key, entry.body.key, entry.verdict.outcome
                change = self._changes.get(key)
                if change is None:
                    change = self._changes[key] = Change(entry)
                    if len(self._changes) > _MOST_CHANGES:
                        self._changes.popitem(last=False)
                change.brokers[entry.target] = None
            if entry.broker_id is not None:
                self._ids[exchange.server] = entry.broker_id
        if self._thrifty:
            self._budget_s -= time.thread_time() - began

    def snapshot(self, time_ns: int = 0) -> Snapshot:
        """Return what flows at a time.

        Args:
            time_ns: The time in the capture; at least that of the newest answer.
        """
        self._learn()
        now = time.monotonic()
        self._budget_s = min(self._budget_s + (now - self._budget_at) * _SHARE, _BURST_S)
        self._budget_at = now
        is_news = self._unexamined or (self._examined and self._damage() != self._examined_damage)
        if is_news and (not self._thrifty or now >= self._examine_at):
            began = time.thread_time()
            self._examine()
            self._examine_at = now + (time.thread_time() - began) / _SHARE
        time_ns = max(time_ns, self._last_ns)
        first = max((time_ns // _NS - self._window_s + 1) * _NS, self._first_ns)
        seconds = max((time_ns - first) / _NS, 1.0)
        groups: dict[int | Endpoint | None, _Counts] = defaultdict(_Counts, {None: _Counts()})
        for number, second in self._seconds.items():
            if number >= first // _NS:
                for (api, server), counts in second.items():
                    for key in (None, api, server):
                        groups[key].add(counts)
        for request in self._in_flight:
            for key in (None, request.api_key, request.connection.server):
                groups[key].in_flight += 1
        return Snapshot(
            time_ns if self._total else 0,
            seconds,
            self._total,
            self._controller,
            _flow("all", groups[None], seconds),
            _busiest(
                _flow(api_name(key), group, seconds)
                for key, group in groups.items()
                if isinstance(key, int) and group.requests
            ),
            self._brokers({key: group for key, group in groups.items() if isinstance(key, tuple)}, seconds),
            tuple(reversed(self._changes.values())),
            tuple(finding for _, finding in self._findings),
            self._not_compared,
        )

    def _brokers(self, groups: Mapping[Endpoint, _Counts], seconds: float) -> tuple[Flow, ...]:
        """The flows of the brokers that requests were sent to in the window; those of one id are one."""
        servers: dict[str, set[Endpoint]] = {}
        for server in {*groups, *self._epochs}:
            servers.setdefault(str(self._ids.get(server, server)), set()).add(server)
        return _busiest(
            _flow(
                name,
                _Counts(groups[key] for key in keys if key in groups),
                seconds,
                max((self._epochs.get(key, -1) for key in keys), default=-1),
                is_down=name in self._down,
            )
            for name, keys in servers.items()
        )

    def _examine(self) -> None:
        """Apply the rules of ``doctor`` to the newest requests.

        A finding that began before them stays; one that began among them, and that the rules do not find any more, was
        refuted by what came later. Beyond the most findings, the least severe and the oldest go.
        """
        from kproto.tables.brokers import BrokerDirectory
        from kproto.tables.reading import TableReader
        from kproto.tables.resolved import by_cluster, resolved_tables
        from kproto.tables.scanning import ScanRows
        from kproto.verdicts.facts import Facts
        from kproto.verdicts.rules import findings

        rows = ScanRows(limit=1 << 62)
        rows.begin_capture()
        for exchange in self._examined:
            assert exchange.request is not None
            rows.add_frame(exchange.request)
            if exchange.response is None:
                rows.add_unanswered(exchange.request)
            else:
                rows.add_frame(exchange.response)
        names = {exchange.connection.capture: exchange.frame.file for exchange in self._examined}
        for name, file in names.items():
            rows.add_summary(self._summaries[name], CapturePoint(name, (file,)), None)
        tables = TableReader(Filters(), BrokerDirectory(self._broker_ids)).tables(list(rows.take()), last=True)
        clusters = by_cluster(iter([resolved_tables(tables, broker_ids=self._broker_ids)]))
        begin = min((exchange.frame.time_ns for exchange in self._examined), default=0) // 1000
        found: list[tuple[str, Finding]] = []
        down: set[str] = set()
        for cluster, pieces in clusters:
            facts = Facts(pieces)
            found += [(cluster, finding) for finding in findings(facts)]
            if len(clusters) == 1:  # flows are known by the broker's id alone
                down = {str(broker) for broker, absences in facts.absences.items() if absences[-1].until is None}
        self._down = frozenset(down)
        again = {(cluster, finding.key) for cluster, finding in found}
        found += [(cluster, f) for cluster, f in self._findings if f.first < begin and (cluster, f.key) not in again]
        found.sort(key=lambda of: (of[1].rank, -of[1].last))
        self._findings = sorted(found[:_MOST_FINDINGS], key=lambda of: (of[1].rank, of[1].rule))
        self._unexamined = 0
        self._examined_damage = self._damage()

    def _damage(self) -> list[int]:
        """The counts of what captures lack, which go on after the last request: a connection may end without one."""
        return [getattr(summary, name) for summary in self._summaries.values() for name in _DAMAGE]


def _flow(name: str, counts: _Counts, seconds: float, broker_epoch: int = -1, *, is_down: bool = False) -> Flow:
    """Return the flow of some requests."""
    middle, most = Latencies(counts.latencies).quantiles_us(0.5, 0.99)
    return Flow(
        name, counts.requests, counts.requests / seconds, counts.errors, counts.in_flight, middle, most,
        None if broker_epoch < 0 else broker_epoch, is_down,
    )  # fmt: skip


def _busiest(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    return tuple(sorted(flows, key=lambda flow: (-flow.requests, len(flow.name), flow.name)))
