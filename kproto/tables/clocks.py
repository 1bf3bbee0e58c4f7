"""Estimates by how much the clocks of capture points differ, from what passed at several of them.

The capture points of one host have one clock, see ``hosts``. The reference is that of the host with the most
connections of controllers, and with the most updates where several have as many; hosts that share nothing with it, such
as those of another cluster, have their own. Evidence, the first that is there:

1. exchanges that two points saw: their packets are the same, so the difference of their times is that of the clocks;
2. bodies that a controller sends to many brokers in one batch (UpdateMetadata, LeaderAndIsr): three or more of the
   differences of their first times agree, and more than by chance, whatever the queue of one broker does to the others.
   The densest stretch of the differences counts, and of those that came one soon after the other one;
3. of a log, whose lines at INFO show no body whole: leaders that it and another point tell of, likewise. Clocks that
   then seem less than a second apart are taken as equal, as a broker's lines are written when it has done what it was
   told.

Clocks that run at different speeds are told from each other in captures of an hour or more. Where too little passed at
two points, their clocks cannot be compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of, with_column
from kproto.tables.schemas import column, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kproto.capture import Exchange

CLOCKS: Final = described(
    "The clock of each capture point, against that of the point with the most connections of controllers.",
    column("capture", pa.string(), "Capture point."),
    column("reference", pa.string(), "The point with whose clock it was compared; others cannot be compared."),
    column("offset_us", pa.int64(), "By how many us it is ahead at anchor_us; negative: behind; 0: no difference."),
    column("drift_ppm", pa.float64(), "By how many us it gains in each second; 0 where captures are short."),
    column("anchor_us", pa.int64(), "The time by this clock at which offset_us holds, us since 1970."),
    column("shared", pa.int64(), "Updates and exchanges on which the estimate rests."),
)

BATCH_US: Final = 1_000_000
"""A body that a capture point sees again within this time belongs to one batch."""

_EXACT_US: Final = 4_000
"""What came at once differs by no more: the densest stretch of this width tells a clock."""

_QUEUE_US: Final = 100_000
"""What came this soon after another may have waited for the same, and been as late by that; it counts once."""

_NEAR_US: Final = 30_000
"""What came at about the same time differs by no more."""

_EQUAL_US: Final = 30_000
"""Clocks that differ by less are taken as equal: a controller sends a batch to one broker after the other."""

_EQUAL_IN_LOGS_US: Final = 1_000_000
"""Clocks that are told from what logs say of leaders are taken as equal where they differ by less."""

LED: Final = ("body_id", "topic", "partition", "leader", "leader_epoch")
"""The columns of ``partition_states`` that tell of leaders."""

_LEAST: Final = 3
_LONG_US: Final = 3600 * 1_000_000
"""Only captures that share a longer time show how fast a clock runs."""

_SET_US: Final = 1_000_000
"""A clock was set meanwhile where before or behind all that agrees other differences agree that are larger by more."""

_MOST: Final = 2000
"""The most shared bodies that are compared."""

_CHANCE: Final = 1.5
"""A clock gains time only if more differences agree then, by more than this many times the root of their number."""

_STEP_PPM: Final = 5
_MOST_PPM: Final = 200


class PointClock(NamedTuple):
    """The clock of a capture point: a row of ``CLOCKS``."""

    capture: str
    reference: str
    offset_us: int = 0
    drift_ppm: float = 0.0
    anchor_us: int = 0
    shared: int = 0

    @property
    def differs(self) -> bool:
        """Whether times by this clock are corrected."""
        return bool(self.offset_us or self.drift_ppm)

    def ahead(self, ts: int) -> int:
        """By how many us it is ahead at a time by this clock."""
        return self.offset_us + round(self.drift_ppm * (ts - self.anchor_us) / 1_000_000)

    def move(self, exchange: Exchange) -> None:
        """Date an exchange's frames, which this clock has dated, by the reference."""
        for frame in (exchange.request, exchange.response) if self.differs else ():
            if frame is not None:
                ahead_ns = 1000 * self.ahead(frame.time_ns // 1000)
                frame.time_ns -= ahead_ns
                frame.time_last_ns -= ahead_ns

    def common(self, times: Any) -> Any:
        """Return times by this clock, int64 us since 1970, by the reference."""
        if self.drift_ppm:
            gained = pc.multiply(pc.subtract(times, self.anchor_us).cast(pa.float64()), self.drift_ppm / 1_000_000)
            times = pc.subtract(times, pc.round(gained).cast(pa.int64()))
        return pc.subtract(times, self.offset_us)


class ClockEvidence:
    """What several capture points saw, from pieces of ``requests``."""

    def __init__(self) -> None:
        self._bodies: list[pa.Table] = []
        self._connections: list[pa.Table] = []

    def add(self, requests: pa.Table) -> None:
        """Add rows of ``requests``."""
        control = requests.filter(pc.is_valid(requests["controller_id"]))
        self._connections.append(control.group_by(["capture", "conn_id"], use_threads=False).aggregate([]))
        times = control["ts"].cast(pa.int64())
        control = control.select(["capture", "api_key", "body_id"]).append_column("first", times)
        is_batch = pc.and_(
            pc.is_in(control["api_key"], value_set=pa.array([4, 6], pa.int16())), pc.is_valid(control["body_id"])
        )
        assert (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA) == (4, 6)
        spans = control.filter(is_batch).group_by(["capture", "body_id"], use_threads=False)
        self._bodies.append(spans.aggregate([("first", "min"), ("first", "max")]))

    def clocks(
        self,
        hosts: Mapping[str, str],
        sightings: Mapping[bytes, Mapping[str, int]],
        states: Callable[[], Iterable[pa.Table]] | None = None,
    ) -> dict[str, PointClock]:
        """Return the clock of each capture point.

        Args:
            hosts: For each capture point the one that stands for its host, which has one clock; see ``hosts``.
            sightings: When capture points saw an exchange that several saw.
            states: Returns ``partition_states`` with the columns ``LED``; asked only of logs whose clocks nothing else
                tells. None: no capture point is a log.
        """
        names = sorted(set(hosts.values()))
        if len(names) < 2:
            return {name: PointClock(name, hosts[name]) for name in sorted(hosts)}
        shown = {(hosts[capture], connection) for table in self._connections for capture, connection in rows_of(table)}
        connections = Counter(host for host, _connection in shown)
        spans: dict[str, dict[bytes, tuple[int, int]]] = {name: {} for name in names}
        for capture, body, first, last in (row for table in self._bodies for row in rows_of(table)):
            of = spans[hosts[capture]]
            known = of.get(body, (first, last))
            of[body] = min(first, known[0]), max(last, known[1])
        seen = {
            name: {body: first for body, (first, last) in of.items() if last - first < BATCH_US}
            for name, of in spans.items()
        }
        same: dict[str, dict[bytes, int]] = defaultdict(dict)
        for exchange, times in sightings.items():
            for capture in sorted(times):
                same[hosts[capture]].setdefault(exchange, times[capture])
        found = compared(names, connections, seen, same)
        if states is not None and len({clock.reference for clock in found.values()}) > 1:
            found = compared(names, connections, seen, same, _first_led(spans, states()))
        return {name: found[hosts[name]]._replace(capture=name) for name in sorted(hosts)}


def compared(
    names: Sequence[str],
    connections: Mapping[str, int],
    bodies: Mapping[str, Mapping[bytes, int]],
    exchanges: Mapping[str, Mapping[bytes, int]],
    leaders: Mapping[str, Mapping[bytes, int]] | None = None,
) -> dict[str, PointClock]:
    """Compare the clocks of capture points.

    Args:
        names: The capture points.
        connections: How many connections of controllers each shows.
        bodies: When each saw a body that it saw in one batch alone, us since 1970.
        exchanges: When each saw an exchange that others saw too.
        leaders: When each was first told of a leader, where logs tell of leaders.
    """

    def rank(name: str) -> tuple[object, ...]:  # names decide only where all that was seen is equal
        seen = bodies.get(name, {})
        return -connections.get(name, 0), -len(seen), sorted(seen), name

    kinds = ((exchanges, 1, _EQUAL_US), (bodies, _LEAST, _EQUAL_US)), ((leaders or {}, _LEAST, _EQUAL_IN_LOGS_US),)
    left = dict.fromkeys(sorted(names, key=rank))
    found: dict[str, PointClock] = {}
    while left:
        reference = next(iter(left))
        del left[reference]
        group = [PointClock(reference, reference)]
        # All are compared with the reference first; those that share nothing with it, with points that were compared.
        for evidence in kinds:
            for known in group:
                for name in list(left):
                    clock = _against(name, known, evidence)
                    if clock is not None:
                        found[name] = clock
                        del left[name]
                        if clock.reference == reference:
                            group.append(clock)
        found[reference] = group[0]
    return {name: found[name] for name in sorted(found)}


def _first_led(
    spans: Mapping[str, Mapping[bytes, tuple[int, int]]], states: Iterable[pa.Table]
) -> dict[str, dict[bytes, int]]:
    """Return when each host was first told of each leader."""
    bodies: dict[bytes, set[tuple[Any, ...]]] = defaultdict(set)
    for table in states:
        for body, *told in rows_of(table.filter(pc.is_valid(table["leader"])), LED):
            bodies[body].add(tuple(told))
    found: dict[str, dict[Any, int]] = {}
    for name, of in spans.items():
        first = found[name] = {}
        for body, (ts, _last) in of.items():
            for leader in bodies.get(body, ()):
                first[leader] = min(ts, first.get(leader, ts))
    return found


def _against(
    name: str, known: PointClock, evidence: Iterable[tuple[Mapping[str, Mapping[Any, int]], int, int]]
) -> PointClock | None:
    """Compare a clock with one that is known; None: they share too little.

    Args:
        name: Its capture point.
        known: The other clock.
        evidence: When each capture point saw what others saw too; how many of these must agree; and the least
            difference that counts, in us.
    """
    for seen, few, least in evidence:
        here, there = seen.get(name, {}), seen.get(known.capture, {})
        both = {(here[key], there[key]) for key in here.keys() & there}  # what came at once on both sides counts once
        shared = sorted((ours, ours - (theirs - known.ahead(theirs))) for ours, theirs in both)
        if shared:
            clock = _fitted(name, _sample(shared), few, least)
            if clock is not None:
                return clock if clock.reference else clock._replace(reference=known.reference)
    return None


def _sample(shared: list[tuple[int, int]]) -> list[tuple[int, int]]:
    step = len(shared) / _MOST
    return shared if step <= 1 else [shared[int(at * step)] for at in range(_MOST)]


def _fitted(name: str, shared: list[tuple[int, int]], few: int, least: int) -> PointClock | None:
    """Return the clock on which most of the times and differences agree, its own if it was set; None: too few do."""
    anchor = shared[0][0]
    drift = _drift(shared) if shared[-1][0] - anchor >= _LONG_US else 0.0

    def straight(ts: int, difference: int) -> int:
        return difference - round(drift * (ts - anchor) / 1_000_000)

    differences = sorted(straight(ts, difference) for ts, difference in shared)
    exact = densest(differences, _EXACT_US)
    agreed = [one for one in differences if abs(one - exact[0]) <= _NEAR_US]
    near = [one for one in differences if abs(one) <= _NEAR_US]
    if 2 * len(near) >= len(agreed):
        agreed, exact = near, densest(near, _EXACT_US)  # no other difference is as probable as none

    def separate(some: Sequence[int]) -> int:
        times = sorted(ts for ts, difference in shared if some[0] <= straight(ts, difference) <= some[-1])
        return 1 + sum(ts - before > _QUEUE_US for before, ts in pairwise(times))

    count = separate(agreed)
    is_chance = count < few or count**2 < separate(differences)
    if is_chance and len(near) < len(differences):  # else all that there is agrees that there is none
        return None
    offset = round(median(exact))
    if _was_set([(ts, straight(ts, difference) - offset) for ts, difference in shared]):
        return PointClock(name, name)
    if abs(offset) < least and not drift:
        offset = 0
    return PointClock(name, "", offset, drift, anchor if drift else 0, len(exact))


def _was_set(shared: list[tuple[int, int]]) -> bool:
    """Whether for seconds before or behind all times at which clocks agree their differences agree on another one."""
    agreed = [ts for ts, difference in shared if abs(difference) <= 2 * _NEAR_US]
    for side in ([one for one in shared if one[0] < agreed[0]], [one for one in shared if one[0] > agreed[-1]]):
        dense = densest(sorted(difference for _ts, difference in side), 2 * _NEAR_US)
        if len(dense) >= _LEAST and min(map(abs, (dense[0], dense[-1]))) > _SET_US:
            times = [ts for ts, difference in side if dense[0] <= difference <= dense[-1]]
            if times[-1] - times[0] > 5 * _SET_US:
                return True
    return False


def densest(differences: Sequence[int], width: int) -> Sequence[int]:
    """Return the most of sorted differences that lie within a width; of several stretches the one nearest to 0."""
    best = (0, 0, 0)
    begin = end = 0
    for end in range(1, len(differences) + 1):
        while differences[end - 1] - differences[begin] > width:
            begin += 1
        count = end - begin
        if count > best[0] or (count == best[0] and abs(differences[begin]) < abs(differences[best[1]])):
            best = (count, begin, end)
    return differences[best[1] : best[2]]


def _drift(shared: list[tuple[int, int]]) -> float:
    """Return by how many us a clock gains in each second: where most differences agree once that is taken off."""
    anchor = shared[0][0]

    def agreeing(ppm: float) -> list[tuple[int, int]]:
        straight = sorted((difference - ppm * (ts - anchor) / 1_000_000, ts, difference) for ts, difference in shared)
        dense = densest([round(one) for one, _ts, _difference in straight], 2 * _NEAR_US)
        if not dense:
            return []
        return [(ts, difference) for one, ts, difference in straight if dense[0] <= round(one) <= dense[-1]]

    steps = range(0, _MOST_PPM + 1, _STEP_PPM)
    best = max((sign * ppm for ppm in steps for sign in (1, -1)), key=lambda ppm: (len(agreeing(ppm)), -abs(ppm)))
    found = float(best)
    for _ in range(3):
        found = _slope(agreeing(found), found)
    span = shared[-1][0] - anchor
    gained = abs(found) * span / 1_000_000
    count = len(agreeing(found))
    more = count - len(agreeing(0.0))  # by chance some slope fits a few of any differences
    return found if gained >= _EQUAL_US and more > _CHANCE * count**0.5 else 0.0


def _slope(points: list[tuple[int, int]], otherwise: float) -> float:
    """Return the slope of the line through points, in us for each second."""
    if len(points) < _LEAST or len({x for x, _y in points}) < 2:
        return otherwise
    return 1_000_000 * linear_regression(*zip(*points, strict=True)).slope


def on_common_clock(
    rows: pa.Table, captures: pa.ChunkedArray, clocks: Mapping[str, PointClock], names: Iterable[str]
) -> pa.Table:
    """Return rows, each of a capture point, with their times by the reference.

    Args:
        rows, captures, clocks: The rows, their capture points, and these points' clocks.
        names: The columns with times: timestamps in us, or, if the name ends in ``_ns``, integers in ns.
    """
    shown = pc.unique(captures).drop_null().to_pylist()
    differing = [clocks[name] for name in shown if name in clocks and clocks[name].differs]
    for name in names if differing else ():
        if name not in rows.schema.names:
            continue
        kind = rows.schema.field(name).type
        is_ns = name.endswith("_ns")
        whole = rows[name].cast(pa.int64())
        times = pc.divide(whole, 1000) if is_ns else whole
        common = times
        for clock in differing:
            common = pc.if_else(pc.equal(captures, clock.capture), clock.common(times), common)
        if is_ns:
            common = pc.add(pc.multiply(common, 1000), pc.subtract(whole, pc.multiply(times, 1000)))
        rows = with_column(rows, name, common.cast(kind))
    return rows
