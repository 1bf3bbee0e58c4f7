"""Rehearsals: steps that a fleet takes, and for each the time until every broker got the controller's update.

>>> Step.of("kill 101,105-107"), Step.of("slow 3 0.5")
(Step(action='kill', brokers='101,105-107', seconds=0.0), Step(action='slow', brokers='3', seconds=0.5))
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from channel.clock import SYSTEM_CLOCK
from channel.locks import guards, new_lock
from kproto.api import CONTROL_APIS, api_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from channel.broker.fleet import Fleet
    from channel.broker.hooks import RequestContext
    from channel.broker.metadata_cache import MetadataSnapshot

ACTIONS: Final = ("kill", "restart", "bounce", "leave", "pause", "resume", "slow", "wait", "new-controller")
"""kill: as kill -9. restart: brokers that are down start. bounce: down and up at once. leave: a controlled shutdown.
new-controller: wait for a new controller, whatever its cause."""

_GOES: Final = frozenset({"kill", "leave"})
_COMES: Final = frozenset({"restart", "bounce"})
_WITHOUT_BROKERS: Final = frozenset({"wait", "new-controller"})
_LOOK_S: Final = 0.02
_LONGEST_S: Final = 86_400.0


class Step(NamedTuple):
    """One step of a rehearsal.

    Attributes:
        action: One of ``ACTIONS``.
        brokers: Broker ids with commas and ranges, ``101,105-107``; ``random:3`` for three brokers that are up;
            ``controller`` for the broker of the fleet that is the active controller.
        seconds: For ``slow`` the delay before each request, for ``wait`` the time to wait.
    """

    action: str
    brokers: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a step from a line: the action, the brokers, and the seconds if the action takes any.

        Raises:
            ValueError: The line is no step; the text gives the reason.
        """
        action, *rest = text.split() or [""]
        if not action:
            raise ValueError("an empty line is no step; write: ACTION BROKERS")
        if action not in ACTIONS:
            raise ValueError(_no_action(action))
        takes_seconds = action in ("slow", "wait")
        takes_brokers = action not in _WITHOUT_BROKERS
        if len(rest) != takes_brokers + takes_seconds:
            form = f"{action}{' BROKERS' if takes_brokers else ''}{' SECONDS' if takes_seconds else ''}"
            raise ValueError(f"{text.strip()!r} is no step; write: {form}")
        seconds = 0.0
        if takes_seconds:
            try:
                seconds = float(rest.pop())
            except ValueError:
                raise ValueError(f"{text.strip()!r}: the seconds are no number") from None
            if not 0 <= seconds <= _LONGEST_S:
                raise ValueError(f"{text.strip()!r}: the seconds must be 0 to {_LONGEST_S:g}")
        return cls(action, "".join(rest), seconds)

    def broker_ids(self, fleet: Fleet, chance: random.Random) -> list[int]:
        """Return the brokers of the step.

        Raises:
            ValueError: The brokers are not written as ids, ranges, ``random:N`` or ``controller``, fewer than N brokers
                are up, or no broker of the fleet is the active controller.
            BrokerNotAvailable: The fleet has no such broker.
        """
        if self.brokers == "controller":
            if fleet.controller_id is None:
                raise ValueError("no broker of the fleet leads the cluster")
            return [fleet.controller_id]
        kind, _, number = self.brokers.partition(":")
        try:
            if kind == "random":
                return _sample(fleet, number, chance)
            ids = [i for part in self.brokers.split(",") for i in _span(part, fleet)]
        except ValueError as e:
            raise ValueError(
                f"{self.brokers!r} names no brokers ({e}); write 101,105-107, random:3 or controller"
            ) from None
        return list(dict.fromkeys(ids))


def _no_action(action: str) -> str:
    return f"no action {action!r}; there are: {', '.join(ACTIONS)}"


def _span(text: str, fleet: Fleet) -> Iterator[int]:
    """Yield the ids of a broker or a range, up to the first id that the fleet does not have."""
    first, dash, end = text.partition("-")
    begin, last = _number(first), _number(end if dash else first)
    if last < begin:
        raise ValueError(f"{text} is empty")
    for broker_id in range(begin, last + 1):
        yield fleet[broker_id].id


def _sample(fleet: Fleet, number: str, chance: random.Random) -> list[int]:
    """Choose this number of brokers among those that are up."""
    up, count = [m.id for m in fleet if m.is_up], _number(number)
    if count > len(up):
        raise ValueError(f"only {len(up)} are up")
    return sorted(chance.sample(up, count))


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is no number")
    return int(text)


@dataclass(slots=True)
class StepReport:
    """The report of one step; times in seconds since the step began.

    Attributes:
        step: The step as it was written.
        broker_ids: The brokers that took the step.
        heard: The number of brokers that got the controller's update: an UpdateMetadata without the brokers that went
            down, with the brokers that came up, or from the new controller.
        listening: The number of brokers that should get the update: brokers that are up and not paused.
        heard_p50_s, heard_p99_s, heard_all_s: When half, 99 % and all of those brokers had the update; None if they
            had not, or if the step causes no update.
        settled_s: The time at which the last control request was answered; None if there was none.
        is_complete: Whether all brokers got the update, and the controller's requests ended, within the time limit.
        requests: The number of control requests, by API.
        request_bytes: The bytes of control requests, headers included, by API.
    """

    step: str
    broker_ids: list[int]
    heard: int = 0
    listening: int = 0
    heard_p50_s: float | None = None
    heard_p99_s: float | None = None
    heard_all_s: float | None = None
    settled_s: float | None = None
    is_complete: bool = False
    requests: dict[str, int] = field(default_factory=dict)
    request_bytes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as an object for ``json``."""
        return asdict(self)


def _sign_of(fleet: Fleet, step: Step, broker_ids: list[int]) -> Callable[[MetadataSnapshot], bool] | None:
    """Return a check of a broker's metadata for the step's update; None for steps that cause no update."""
    if step.action in _GOES:
        gone = frozenset(broker_ids)
        if any(m.is_up and m.broker.is_led_by_kraft for m in fleet):
            return _sign_of_kraft(fleet, gone)
        return lambda snapshot: gone.isdisjoint(snapshot.alive_brokers)
    if step.action in _COMES:
        return lambda snapshot: all(i in snapshot.alive_brokers for i in broker_ids)
    if step.action == "new-controller":
        former = {m.broker.metadata.snapshot.controller for m in fleet if m.is_up}
        return lambda snapshot: snapshot.controller not in former
    return None


def _sign_of_kraft(fleet: Fleet, gone: frozenset[int]) -> Callable[[MetadataSnapshot], bool] | None:
    """Return a check for other leaders of the partitions that the brokers lead; None if they lead none.

    A KRaft controller's updates go on naming a broker that it has fenced among the live brokers.
    """
    snapshot = next(m.broker.metadata.snapshot for m in fleet if m.is_up and m.broker.is_led_by_kraft)
    led = [
        (topic, index)
        for topic, partitions in snapshot.partitions.items()
        for index, state in partitions.items()
        if state.leader in gone
    ]

    def has_other_leaders(now: MetadataSnapshot) -> bool:
        states = [now.partition(*each) for each in led]
        return all(state is None or state.leader not in gone for state in states)

    return has_other_leaders if led else None


class _Watch:
    """Counts the control requests of one step, and notes when each broker has its update."""

    def __init__(self, fleet: Fleet, step: Step, broker_ids: list[int]) -> None:
        self._fleet = fleet
        self._has_heard = _sign_of(fleet, step, broker_ids)
        self.began_ns = self.last_ns = SYSTEM_CLOCK.nanoseconds()
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._heard_ns: dict[int, int] = {}
        self._lock = new_lock("fleet steps")

    def answered(self, broker_id: int, context: RequestContext) -> None:
        """Count a request; on the network thread."""
        if context.api_key not in CONTROL_APIS:
            return
        now, name = SYSTEM_CLOCK.nanoseconds(), api_name(context.api_key)
        with self._lock:
            self.last_ns = now
            self.requests[name] += 1
            self.bytes[name] += context.size
            if self._has_heard is None:
                return
            if self._has_heard(self._fleet[broker_id].broker.metadata.snapshot):
                self._heard_ns.setdefault(broker_id, now)
            else:
                self._heard_ns.pop(broker_id, None)

    def report(self, event: StepReport, quiet_ns: int) -> StepReport:
        """Write the present state into the report."""
        with self._lock:
            listening = [m.id for m in self._fleet if m.is_up and not m.is_paused]
            event.requests, event.request_bytes = dict(self.requests), dict(self.bytes)
            event.settled_s = (self.last_ns - self.began_ns) / 1e9 if self.requests else None
            is_quiet = SYSTEM_CLOCK.nanoseconds() - self.last_ns >= quiet_ns
            if self._has_heard is None:
                event.is_complete = is_quiet
                return event
            heard = sorted(self._heard_ns[i] - self.began_ns for i in listening if i in self._heard_ns)
        event.heard, event.listening = len(heard), len(listening)
        event.heard_p50_s = _share(heard, len(listening), 0.5)
        event.heard_p99_s = _share(heard, len(listening), 0.99)
        event.heard_all_s = _share(heard, len(listening), 1.0)
        event.is_complete = is_quiet and event.heard == event.listening
        return event


guards(_Watch, "_lock", "_has_heard", "_heard_ns", "began_ns", "bytes", "last_ns", "requests")


def _share(heard_ns: list[int], listening: int, share: float) -> float | None:
    """Return the time in seconds after which this share of the listening brokers had the update; None if it has not."""
    rank = -int(-share * listening // 1)
    return heard_ns[rank - 1] / 1e9 if 0 < rank <= len(heard_ns) else None


def rehearse(
    fleet: Fleet, steps: Iterable[Step], *, quiet_s: float = 1.0, timeout_s: float = 60.0, seed: int | None = None
) -> Iterator[StepReport]:
    """Take the steps one after the other, each once the controller has completed the previous step.

    Args:
        fleet: A fleet that has started.
        quiet_s: The time without control requests after which a step is over, if every broker has its update.
        timeout_s: The time limit of a step; ZooKeeper notices a kill only after its session timeout.
        seed: Decides the brokers of ``random:N``; None for different brokers each time.

    Yields:
        The report of each step, as soon as it is over.

    Raises:
        ValueError, ChannelError: A step cannot be taken.
    """
    chance = random.Random(seed)  # noqa: S311 - a rehearsal, no secret
    for step in steps:
        if step.action not in ACTIONS:
            raise ValueError(_no_action(step.action))
        broker_ids = [] if step.action in _WITHOUT_BROKERS else step.broker_ids(fleet, chance)
        if step.action == "restart":
            broker_ids = [i for i in broker_ids if not fleet[i].is_up]
        watch = _Watch(fleet, step, broker_ids)
        fleet.on_answered = watch.answered
        try:
            _take(fleet, step, broker_ids)
            event = StepReport(" ".join(str(part) for part in step if part), broker_ids)
            deadline = SYSTEM_CLOCK.nanoseconds() + int(timeout_s * 1e9)
            while not watch.report(event, int(quiet_s * 1e9)).is_complete:
                if SYSTEM_CLOCK.nanoseconds() >= deadline:
                    break
                SYSTEM_CLOCK.sleep(_LOOK_S * 1000)
        finally:
            fleet.on_answered = None
        yield event


def _take(fleet: Fleet, step: Step, broker_ids: list[int]) -> None:
    if step.action == "wait":
        SYSTEM_CLOCK.sleep(step.seconds * 1000)
    elif step.action == "leave":
        fleet.shut_down(*broker_ids)
    for broker_id in broker_ids:
        match step.action:
            case "kill":
                fleet.kill(broker_id)
            case "restart" | "bounce":
                fleet.restart(broker_id)
            case "pause":
                fleet.pause(broker_id)
            case "resume":
                fleet.resume(broker_id)
            case "slow":
                fleet.slow(broker_id, step.seconds)


def report_table(events: Iterable[StepReport]) -> Iterator[str]:
    """Yield the lines of a readable table: a line for each event."""
    yield (
        f"{'step':<24} {'heard':>9} {'p50 s':>8} {'p99 s':>8} {'all s':>8} {'settled s':>9}  "
        f"{'LeaderAndIsr':>12} {'StopReplica':>11} {'UpdateMetadata':>14} {'bytes':>11}"
    )
    for event in events:
        times = (event.heard_p50_s, event.heard_p99_s, event.heard_all_s)
        shown = [f"{'-' if t is None else format(t, '.3f'):>8}" for t in times]
        settled = "-" if event.settled_s is None else f"{event.settled_s:.3f}"
        counts = [event.requests.get(name, 0) for name in map(api_name, sorted(CONTROL_APIS))]
        yield (
            f"{event.step:<24} {f'{event.heard}/{event.listening}':>9} {' '.join(shown)} {settled:>9}  "
            f"{counts[0]:>12,} {counts[1]:>11,} {counts[2]:>14,} {sum(event.request_bytes.values()):>11,}"
        )
