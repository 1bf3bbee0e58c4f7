"""Makes the schedule of a fleet's events from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, overload

from .fleet import Fleet, random_of

__all__ = ["Event", "Kind", "Schedule"]

Kind: TypeAlias = Literal[
    "first_controller", "failover", "stop", "restart", "election", "isr_change", "zombie", "deletion"
]

_AWAY: Final = 5
"""A broker that stops comes back after at most this many further events."""

_HOUR_NS: Final = 3_600 * 1_000_000_000
_US: Final = 1000
_KNUTH: Final = 2_654_435_761
_SCATTER: Final = 1 << 16
"""Multiplicative hashing scatters events by up to a quarter of the time between them."""


class Event(NamedTuple):
    """One event in a fleet's history.

    Attributes:
        number: Counts the fleet's events from 0.
        kind: The kind of the event.
        time_ns: When it happens, ns since 1970, a whole number of microseconds.
    """

    number: int
    kind: Kind
    time_ns: int


class Schedule(Sequence[Event]):
    """The events of a fleet, ordered by time: the first controller, and then all others mixed.

    Args:
        fleet: The fleet.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._kinds = _kinds(fleet)
        self._start_ns = fleet.start_ns
        self._seed = fleet.seed
        self._step_us = int(fleet.hours * _HOUR_NS) // max(len(self._kinds) - 1, 1) // _US

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, number: int) -> Event: ...
    @overload
    def __getitem__(self, number: slice) -> list[Event]: ...
    def __getitem__(self, number: int | slice) -> Event | list[Event]:
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        number = range(len(self))[number]
        jitter = (number * _KNUTH + self._seed) % _SCATTER * (self._step_us // 4) // _SCATTER if number else 0
        return Event(number, self._kinds[number], self._start_ns + (self._step_us * number + jitter) * _US)


def _kinds(fleet: Fleet) -> list[Kind]:
    counts: dict[Kind, int] = {
        "failover": fleet.failovers,
        "stop": fleet.restarts,
        "election": fleet.elections,
        "isr_change": fleet.isr_changes,
        "zombie": fleet.zombies,
        "deletion": min(fleet.deletions, fleet.topics),
    }
    mixed: list[Kind] = [kind for kind, count in counts.items() for _ in range(count)]
    random = random_of(fleet.seed, "events")
    random.shuffle(mixed)
    if fleet.failovers:  # the first of them stands before every zombie: until then no controller is a former one
        first = next(at for at, kind in enumerate(mixed) if kind in ("failover", "zombie"))
        failover = mixed.index("failover")
        mixed[first], mixed[failover] = mixed[failover], mixed[first]
    kinds: list[Kind] = ["first_controller"]
    returns: list[int] = []  # after how many events each stopped broker comes back
    for kind in mixed:
        kinds.append(kind)
        returns = [left - 1 for left in returns]
        if kind == "stop":
            returns.append(random.randint(1, _AWAY))
        kinds += ["restart"] * returns.count(0)
        returns = [left for left in returns if left > 0]
    return kinds + ["restart"] * len(returns)
