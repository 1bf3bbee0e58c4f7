"""Brokers' registrations and heartbeats, as captures show them, and what they tell of why a broker was fenced.

A controller fences a broker whose heartbeats stay away for the session's timeout, which asks for it, or which shuts
down. The record says only that it did; the heartbeats before and after say why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.metadata_log.folding import BrokerSpan

ALIVE: Final = "though alive"
"""Words of the evidence of a broker that was fenced while its process lived."""

SHUT_DOWN: Final = "its heartbeats asked to shut down"
"""The evidence of a controlled shutdown, of which no record tells where the broker led no partition."""

_S: Final = 1_000_000_000
_SLOT_NS: Final = 10 * _S
_LATE: Final = 2.5
"""A heartbeat that comes after this many of the usual intervals is late."""


@dataclass(slots=True)
class RegistrationRun:
    """Registrations of one process of a broker that were answered alike; a process that is refused tries again.

    Attributes:
        broker_id, incarnation_id: The broker and its process.
        cluster_id: The cluster to which its storage belongs.
        address: Where the requests came from.
        listeners: The addresses that it would have, ``host:port``.
        error_code: Of the answers; None: they are missing.
        broker_epoch: Of the last answer; None: there is none, or it is an error.
        first_ns, last_ns: When the first and the last were sent.
        count: Their number.
    """

    broker_id: int
    incarnation_id: bytes
    cluster_id: str
    address: str
    listeners: tuple[str, ...]
    error_code: int | None
    broker_epoch: int | None
    first_ns: int
    last_ns: int
    count: int = 1


@dataclass(slots=True)
class HeartbeatRun:
    """Heartbeats of a broker, one after the other, that asked for the same and were answered alike: such are equal.

    Attributes:
        broker_id, broker_epoch: The broker, and the epoch that it named.
        wants_fence, wants_shutdown: What it asked for.
        error_code: Of the answers; None: they are missing.
        is_fenced, is_caught_up: What the answers said; None: they are missing, or errors, which leave these open.
        times_ns: When each was sent, ascending.
        offsets: The offset that it had applied, of each.
        longest_gap_ns: The longest time before one of them since the heartbeat of this epoch before it.
    """

    broker_id: int
    broker_epoch: int
    wants_fence: bool
    wants_shutdown: bool
    error_code: int | None
    is_fenced: bool | None
    is_caught_up: bool | None
    times_ns: list[int] = field(compare=False)
    offsets: list[int] = field(compare=False)
    longest_gap_ns: int = field(default=0, compare=False)


class Progress(NamedTuple):
    """How far a broker had applied the log at a time.

    Attributes:
        broker_id: The broker.
        time_ns: When its heartbeat said so.
        committed: The high watermark that answers to fetches had named by then; None: none had.
        applied: The offset that it had applied.
        lag_ns: For how long the offset after that one was committed by then, and the process sent heartbeats; 0: it was
            not.
        late: Heartbeats of the same ten seconds that were behind by over a second.
    """

    broker_id: int
    time_ns: int
    committed: int | None
    applied: int
    lag_ns: int
    late: int


@dataclass(slots=True)
class Heartbeats:
    """The heartbeats of all brokers of a cluster.

    Attributes:
        runs: By broker and broker epoch.
        registrations: By broker, process, address and answer.
    """

    runs: dict[tuple[int, int], list[HeartbeatRun]] = field(default_factory=dict)
    registrations: dict[tuple[int, bytes, str, int | None], RegistrationRun] = field(default_factory=dict)
    _by_epoch: dict[tuple[int, int], list[tuple[int, HeartbeatRun]]] = field(default_factory=dict)

    def add(self, request: Any, answer: Any, time_ns: int) -> None:
        """Add a heartbeat; ``answer`` None: it is missing."""
        refused = answer is None or answer.error_code != 0
        run = HeartbeatRun(
            request.broker_id, request.broker_epoch, request.want_fence, request.want_shut_down,
            None if answer is None else answer.error_code, None if refused else answer.is_fenced,
            None if refused else answer.is_caught_up, [time_ns], [request.current_metadata_offset],
        )  # fmt: skip
        runs = self.runs.setdefault((run.broker_id, run.broker_epoch), [])
        if runs:
            run.longest_gap_ns = max(0, time_ns - runs[-1].times_ns[-1])
        if runs and runs[-1] == run:
            last = runs[-1]
            last.times_ns.append(time_ns)
            last.offsets += run.offsets
            last.longest_gap_ns = max(last.longest_gap_ns, run.longest_gap_ns)
        else:
            runs.append(run)

    def add_registration(self, request: Any, answer: Any, address: str, time_ns: int) -> None:
        """Add a BrokerRegistration from an address; ``answer`` None: it is missing."""
        error = None if answer is None else answer.error_code
        key = request.broker_id, bytes(request.incarnation_id), address, error
        known = self.registrations.get(key)
        if known is None:
            listeners = tuple(f"{one.host}:{one.port}" for one in request.listeners)
            known = self.registrations[key] = RegistrationRun(
                *key[:2], request.cluster_id, address, listeners, error, None, time_ns, time_ns, 0
            )
        known.count += 1
        known.first_ns, known.last_ns = min(known.first_ns, time_ns), max(known.last_ns, time_ns)
        if error == 0:
            known.broker_epoch = answer.broker_epoch

    def finish(self) -> None:
        """Put the heartbeats in the order of time; several captures come one after the other."""
        for key, runs in self.runs.items():
            beats = ((time_ns, run) for run in runs for time_ns in run.times_ns)
            self._by_epoch[key] = sorted(beats, key=lambda one: one[0])

    def between(self, broker_id: int, broker_epoch: int, from_ns: int, until_ns: int | None) -> list[HeartbeatRun]:
        """Return the run of each heartbeat of a broker's epoch within a time."""
        listed = self._by_epoch.get((broker_id, broker_epoch), [])
        begin = bisect_left(listed, from_ns, key=lambda one: one[0])
        end = len(listed) if until_ns is None else bisect_left(listed, until_ns, key=lambda one: one[0])
        return [run for _time, run in listed[begin:end]]

    def evidence(self, span: BrokerSpan, from_ns: int, until_ns: int | None, *, is_shown: bool = True) -> str | None:
        """Say in a clause what heartbeats tell of a broker's state; None: nothing.

        Args:
            span: The state.
            from_ns, until_ns: When it began and ended, by the capture's clock; None: it lasts.
            is_shown: Whether captures show what the controller was asked when it began, so that silence is silence.
        """
        if span.state == "fenced" and span.why.startswith("registered"):
            return self._unfencing(span, from_ns, until_ns)
        if span.state == "fenced":
            return self._fencing(span, from_ns, is_shown=is_shown)
        if span.state == "in controlled shutdown":
            runs = self.between(span.broker_id, span.broker_epoch, from_ns - 2 * _S, until_ns)
            return SHUT_DOWN if any(run.wants_shutdown for run in runs) else None
        return None

    def progress(self, committed: list[tuple[int, int]]) -> Iterator[Progress]:
        """Yield how far each broker had applied the log, thinned to its worst heartbeat of each ten seconds.

        Args:
            committed: (time in ns, high watermark), both ascending.
        """
        marks = [mark for _time, mark in committed]
        times = [time_ns for time_ns, _mark in committed]
        beats: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for (broker_id, _epoch), runs in self.runs.items():
            began = min(run.times_ns[0] for run in runs)
            beats[broker_id] += (
                (time_ns, offset, began)
                for run in runs
                for time_ns, offset in zip(run.times_ns, run.offsets, strict=True)
                if offset >= 0
            )
        for broker_id, of_broker in sorted(beats.items()):
            for _slot, some in groupby(sorted(of_broker), key=lambda beat: beat[0] // _SLOT_NS):
                rows = []
                for time_ns, offset, began in some:
                    now = bisect_right(times, time_ns) - 1
                    beyond = bisect_right(marks, offset + 1)  # the first mark that commits the next offset
                    lag = max(0, time_ns - max(began, times[beyond])) if 0 <= beyond <= now else 0
                    rows.append(Progress(broker_id, time_ns, marks[now] if now >= 0 else None, offset, lag, 0))
                late = sum(row.lag_ns > _S for row in rows)
                yield max(rows, key=lambda row: row.lag_ns)._replace(late=late)

    def _fencing(self, span: BrokerSpan, from_ns: int, *, is_shown: bool) -> str | None:
        listed = self._by_epoch.get((span.broker_id, span.broker_epoch), [])
        place = bisect_right(listed, from_ns, key=lambda one: one[0])
        if not place:
            return None
        time_ns, last = listed[place - 1]
        gap = from_ns - time_ns
        if last.wants_shutdown:
            return SHUT_DOWN
        if last.wants_fence:
            return "its heartbeats asked to be fenced"
        if not is_shown:
            return None
        gaps = [b[0] - a[0] for a, b in pairwise(listed[max(0, place - 20) : place])]
        if gaps and gap < _LATE * median(gaps):
            return f"its heartbeats went on, the last {gap / _S:.1f} s before: cannot tell why"
        silence = f"session timed out: no heartbeat for {gap / _S:.1f} s"
        after = (listed[later] for later in range(place, len(listed)))
        accepted = next((beat for beat, run in after if run.error_code != ErrorCode.STALE_BROKER_EPOCH), None)
        if accepted is not None:
            return f"{silence}, {ALIVE}: its heartbeats went on {(accepted - from_ns) / _S:.1f} s later"
        if place < len(listed):
            return f"{silence}, {ALIVE}: it came back {(listed[place][0] - from_ns) / _S:.1f} s later, replaced"
        return f"{silence}, and none came after"

    def _unfencing(self, span: BrokerSpan, from_ns: int, until_ns: int | None) -> str | None:
        runs = self.between(span.broker_id, span.broker_epoch, from_ns, until_ns)
        if not runs:
            return None
        count = f"{len(runs)} heartbeat{'s' * (len(runs) != 1)}"
        wanting = sum(run.wants_fence for run in runs)
        last = runs[-1]
        if until_ns is not None:
            return f"{count} until it was unfenced, {wanting} asked to stay fenced"
        if last.offsets[-1] < span.broker_epoch:
            return f"catching up: {count}, applied offset {last.offsets[-1]}, below its registration's"
        if last.wants_fence:
            return f"starting: {count}, still asks to stay fenced"
        return f"{count}, asks to be unfenced"
