"""Makes the schedule of a fleet's events from its seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .fleet import Event, random_of
from .plants import PLANTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fleet import Kind, PlannedFleet

_LEAST_STEP_US: Final = 160_000_000
"""Between events at least, where faults are planted: they last up to two minutes."""

_AWAY: Final = 5
"""A broker that stops comes back after at most this many further events."""

_HOUR_NS: Final = 3_600 * 1_000_000_000
_US: Final = 1000
_KNUTH: Final = 2_654_435_761
_SCATTER: Final = 1 << 16
"""Multiplicative hashing scatters events by up to a quarter of the time between them."""


def events(fleet: PlannedFleet) -> Iterator[Event]:
    """Yield the events of a fleet, ordered by time: the first controller, and then all others mixed."""
    kinds = _kinds(fleet)
    plants = _planted(fleet, kinds) if fleet.plants else {}
    step_us = int(fleet.hours * _HOUR_NS) // max(len(kinds) - 1, 1) // _US
    if plants:
        step_us = max(step_us, _LEAST_STEP_US)
    for number, kind in enumerate(kinds):
        jitter = (number * _KNUTH + fleet.seed) % _SCATTER * (step_us // 4) // _SCATTER if number else 0
        yield Event(number, kind, fleet.start_ns + (step_us * number + jitter) * _US, plants.get(number, -1))


def _kinds(fleet: PlannedFleet) -> list[Kind]:
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
    kinds += ["restart"] * len(returns)
    if fleet.migration:
        kinds.insert(max(len(kinds) // 2, 1), "migration")
    return kinds


def _planted(fleet: PlannedFleet, kinds: list[Kind]) -> dict[int, int]:
    """Put the stages of each planted fault among the events, and two quiet events at the end.

    Returns:
        Event -> the number of its plant.
    """
    random = random_of(fleet.seed, "plants")
    mixed = [[(kind, -1)] for kind in kinds]
    first = kinds.index("migration") + 1 if fleet.migration else 1
    early = [number for number, name in enumerate(fleet.plants) if not PLANTS[name].is_last]
    late = [number for number, name in enumerate(fleet.plants) if PLANTS[name].is_last]
    for number in early:
        needs_zookeeper = PLANTS[fleet.plants[number]].needs_zookeeper
        places = range(1, first) if needs_zookeeper and fleet.migration else range(1, len(mixed) + 1)
        stages: list[tuple[Kind, int]] = [("plant", number)] * PLANTS[fleet.plants[number]].stages
        mixed.insert(random.choice(places), stages)
    random.shuffle(late)
    late.sort(key=lambda number: PLANTS[fleet.plants[number]].tells_all, reverse=True)
    mixed += [[("plant", number)] * PLANTS[fleet.plants[number]].stages for number in late]
    mixed += [[("isr_change", -1)]] * 2
    stages = [stage for group in mixed for stage in group]
    kinds[:] = [kind for kind, _plant in stages]
    return {place: plant for place, (_kind, plant) in enumerate(stages) if plant >= 0}
