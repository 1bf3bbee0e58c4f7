"""Decides which brokers missed a metadata update, got it late, or are behind at the end. See ``docs/verdicts.md``.

Times are us since 1970.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey
from kproto.verdicts.states import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.states import Sighting
    from kproto.verdicts.told import Body

_TWO: Final = 2


class Missed(NamedTuple):
    """An update that a broker missed: alive and connected, it got neither the update nor newer states in its place."""

    broker: int
    body: Body


class Late(NamedTuple):
    """An update that reached a broker late, by ``delay`` us."""

    broker: Any
    delay: int
    ts: int


class Behind(NamedTuple):
    """A partition whose newest state a live broker was never sent; ``told`` is the last one that it was sent."""

    broker: int
    partition: Partition
    newest: Sighting
    told: Sighting | None


def missed_updates(facts: Facts, limit: int) -> Iterator[Missed]:
    """Yield the updates that brokers missed.

    A broker missed an update that names it among its live brokers and that more than half of the others accepted, if
    one connection to it was in use before and after, and within ``limit`` us it was sent neither this update nor, for
    each partition in it, this state or a newer one.
    """
    for body in _updates(facts):
        others = (body.live or frozenset()) & facts.spans.keys()
        if len(body.told) < _TWO or 2 * len(body.told) < len(others):
            continue
        for broker in sorted(others - body.sent.keys()):
            until = body.first + limit
            if facts.spans[broker].covers(body.first - 1, until) and not _covered(facts, body, broker, until):
                yield Missed(broker, body)


def late_updates(facts: Facts, least: int, factor: float) -> Iterator[Late]:
    """Yield the updates that reached a broker late.

    That is: more than ``least`` us and ``factor`` times the usual delay after the first broker, to a broker that was
    told something before and did not come or go since, while no other request to it was in flight that the update
    waited for, and without newer states that it got before.
    """
    for body in _updates(facts):
        delays = sorted(first - body.first for first, _last in body.told.values())
        if len(delays) < _TWO:
            continue
        usual = median(delays[: max(1, len(delays) // 2)])
        for broker, (first, _last) in body.told.items():
            delay = first - body.first
            if (
                delay > max(least, factor * usual)
                and _stayed(facts, broker, body.first - 1, first)
                and not facts.was_busy(broker, first)
                and not _covered(facts, body, broker, first - 1)
            ):
                yield Late(broker, delay, first)


def brokers_behind(facts: Facts, limit: int) -> Iterator[Behind]:
    """Yield the partitions whose newest state is older than ``limit`` us and was never sent to a living broker.

    The broker's newest connection began before the state, or an earlier one was in use before it and ``limit`` us
    after it: a broker that comes back gets everything. Partitions that are deleted do not count.
    """
    brokers = [broker for broker in sorted(facts.alive) if broker in facts.spans]
    lacking: dict[tuple[int, ...], list[int]] = {}
    for partition, life in facts.present.items():
        newest = life.newest
        if facts.end - newest.ts <= limit:
            continue
        updates = [sighting for sighting in life.sightings if sighting.body.api_key == ApiKey.UPDATE_METADATA]
        bodies = [sighting.body for sighting in updates if sighting.state.epochs >= newest.state.epochs]
        key = (newest.ts, *map(id, bodies))
        if key not in lacking:
            sent = {broker for body in bodies for broker in (*body.told, *body.sent)}
            lacking[key] = [
                broker
                for broker in brokers
                if bodies
                and broker not in sent
                and (
                    facts.spans[broker].began_before(newest.ts)
                    or facts.spans[broker].covers(newest.ts, newest.ts + limit)
                )
            ]
        for broker in lacking[key]:
            told = [sighting for sighting in updates if broker in sighting.body.told]
            yield Behind(broker, partition, newest, max(told, key=lambda s: s.state.epochs, default=None))


def _updates(facts: Facts) -> Iterator[Body]:
    return (body for body in facts.bodies if body.api_key == ApiKey.UPDATE_METADATA and body.states)


def _stayed(facts: Facts, broker: Any, begin: int, end: int) -> bool:
    """Whether a broker was connected before a time, and did not come or go from then until another time."""
    since = facts.spans[broker].last_before(begin)
    return since is not None and not any(since <= event <= end for event in facts.life_events.get(broker, ()))


def _covered(facts: Facts, body: Body, broker: Any, until: int) -> bool:
    """Whether a broker had been sent all states of an update by then, or newer ones by other updates."""
    for topic, number, _topic_id, state in body.states:
        lives = facts.incarnations.get((topic, number))
        if not lives or state.leader < NO_LEADER:
            continue
        life = lives[-1]
        if life.deleted is not None and life.deleted <= until:
            continue
        told = facts.told_of(
            sighting.body
            for sighting in life.sightings
            if sighting.body.api_key == ApiKey.UPDATE_METADATA
            and sighting.state.epochs >= state.epochs
            and sighting.body is not body
        ).get(broker)
        if told is None or told > until:
            return False
    return True
