"""Decides which brokers missed a metadata update, got it late, or are behind at the end. See ``docs/verdicts.md``.

Times are us since 1970.
"""

from __future__ import annotations

from bisect import bisect_right
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.verdicts.states import FIRST_EPOCHS, NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.verdicts.doctor import Doctor
    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.states import Body, Incarnation, Sighting, State

_TWO: Final = 2


def missed_updates(doctor: Doctor) -> Iterator[tuple[int, Body]]:
    """Yield the updates that brokers missed, each with the broker.

    A broker missed an update that names it among its live brokers and that more than half of the others accepted, if
    one connection to it was in use before and after, and within the limit told it was sent neither this update nor, for
    each partition in it, this state or a newer one. In so long a time of a new controller only changes count: any
    other state may have been told before the captures. Where bytes are missing, the captures may lack that request: see
    ``Facts.may_hide``.
    """
    facts, limit = doctor.facts, doctor.us("told")
    for body in _updates(facts):
        live = (body.live or frozenset()) & facts.spans.keys()
        if len(body.told) < _TWO or 2 * len(body.told) < len(live):  # of these one is not among the others
            continue
        for broker in sorted(live - body.sent):
            until = body.first + limit
            if facts.spans[broker].covers(body.first - 1, until) and not _covered(facts, body, broker, until, limit):
                yield broker, body


def late_updates(doctor: Doctor) -> Iterator[tuple[Any, int, int]]:
    """Yield the updates that reached a broker late: the broker, how late in us, and when.

    That is: more than the limit late-ms and late-factor times the usual delay after the first broker, to a broker that
    was told something before and did not come or go since, while no other request to it was in flight that the update
    waited for (it had not answered one within the limit queued), and without newer states that it got before. In the
    first time of a controller only changes count, see ``missed_updates``.
    """
    facts, least, factor = doctor.facts, int(doctor.limits["late-ms"] * 1000), doctor.limits["late-factor"]
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
                and not facts.was_busy(broker, first, doctor.us("queued"))
                and not _covered(facts, body, broker, first - 1, doctor.us("told"))
            ):
                yield broker, delay, first


def brokers_behind(doctor: Doctor) -> Iterator[tuple[int, Partition, Sighting, Sighting | None, int]]:
    """Yield the partitions whose newest state a living broker was never sent, for longer than the limit told.

    Each is the broker, the partition, its newest state, the last that the broker was sent (None: none), and since when.
    The time begins with the first state that the broker lacks, so that a partition which changes all the time counts
    too, or when the broker joined. The change is in the capture: the state before it was told too, or LeaderAndIsr
    calls the partition new, or most others were told at once that had not come back within the limit settled; and most
    others were told. The broker's newest connection began before, or one was in use before and that long after, or
    it accepted requests as late as that over another one and was registered all the time: a broker that comes back
    gets everything. Partitions that are deleted do not count, or may be (``Facts.left_out``), nor a broker whose newest
    registration no request names: it reads KRaft's log. Where bytes are missing, see ``Facts.may_hide``.
    """
    facts, limit, settled = doctor.facts, doctor.us("told"), doctor.us("settled")
    by_log = {life.broker for life in facts.lives if life.until is None and not life.requests}
    brokers = [broker for broker in sorted(facts.alive) if broker in facts.spans and broker not in by_log]
    unsent: dict[tuple[int, ...], list[int]] = {}
    for partition, life in facts.present.items():
        newest = life.newest
        updates = [sighting for sighting in life.sightings if sighting.body.api_key == ApiKey.UPDATE_METADATA]
        bodies = [sighting.body for sighting in updates if sighting.state.latest >= newest.state.epochs]
        if not bodies or partition in facts.left_out:
            continue
        key = tuple(map(id, bodies))
        lacking = unsent.get(key)
        if lacking is None:
            told = {broker for body in bodies for broker in body.told}
            sent = told.union(*(body.sent for body in bodies))
            known = sum(broker in told for broker in brokers)
            lacking = [broker for broker in brokers if broker not in sent and 2 * known >= len(brokers) - 1]
            unsent[key] = lacking
        for broker in lacking:
            had = [s for s in updates if broker in s.body.told or broker in s.body.sent]
            last = max(had, key=lambda s: s.state.epochs, default=None)
            epochs = None if last is None else last.state.epochs
            change = _change_after(facts, life, epochs, limit)
            if change is None:
                later = [s for s in updates if epochs is None or s.state.epochs > epochs]
                change = _told_to_most(facts, later, len(brokers) - 1, limit, settled)
            if change is None:
                continue
            since = max(change, facts.joined(broker))
            span = facts.spans[broker]
            if facts.recorded_until(broker) - since > limit and (
                span.began_before(change)
                or span.covers(change, change + limit)
                or facts.stayed_registered(broker, change, change + limit)
            ):
                yield broker, partition, newest, last, since


def _change_after(facts: Facts, life: Incarnation, epochs: tuple[int, int] | None, limit: int) -> int | None:
    """The time of the first state above some epochs that is a change in the captures; None: there is none.

    Args:
        facts: The facts.
        life: The partition.
        epochs: Those that a broker has; None: it was told nothing.
        limit: See ``_is_change``.
    """
    if epochs is not None:
        return life.steps[bisect_right(life.steps, epochs, key=lambda step: step.state.epochs)].ts
    return next((step.ts for step in life.steps if _is_change(facts, life, step.state, step.ts, limit)), None)


def _told_to_most(facts: Facts, later: list[Sighting], others: int, limit: int, settled: int) -> int | None:
    """The time at which most brokers were told a state at once, though none of them had just come; None: they were not.

    Args:
        facts: The facts.
        later: UpdateMetadata of states that a broker lacks, in the order of time.
        others: The number of other brokers.
        limit: The time in us within which they were told, and for which the captures know the controller before that.
        settled: How long ago, in us, a broker came at the latest.
    """
    begin = later[0].ts
    told = {
        broker
        for sighting in later
        for broker, (first, _last) in sighting.body.told.items()
        if first - begin <= limit and not facts.is_settling((broker,), first, settled)
    }
    is_broadcast = len(told) >= _TWO and _TWO * len(told) >= others and not facts.is_from_new(later[0].body, limit)
    return begin if is_broadcast else None


def _updates(facts: Facts) -> Iterator[Body]:
    return (body for body in facts.bodies if body.api_key == ApiKey.UPDATE_METADATA and body.states)


def _stayed(facts: Facts, broker: Any, begin: int, end: int) -> bool:
    """Whether a broker was connected before a time, and did not come or go from then until another time."""
    since = facts.spans[broker].last_before(begin)
    return since is not None and not any(since <= event <= end for event in facts.life_events.get(broker, ()))


def _covered(facts: Facts, body: Body, broker: Any, until: int, early: int) -> bool:
    """Whether a broker had been sent all states of an update by then, or newer ones by other updates.

    In the first ``early`` us of a controller, a state that is no change counts as sent before the captures, unless the
    broker was told a lower one.
    """
    may_be_older = facts.is_from_new(body, early)
    for topic, number, _topic_id, state in body.states:
        lives = facts.incarnations.get((topic, number))
        if not lives or state.leader < NO_LEADER:
            continue
        life = lives[-1]
        if life.deleted is not None and life.deleted <= until:
            continue
        told = facts.told(life, broker)
        first = told.first(state.epochs)
        is_late = first is None or first > until
        if is_late and (
            told.has_lower(state.epochs) or not may_be_older or _is_change(facts, life, state, body.first, early)
        ):
            return False
    return True


def _is_change(facts: Facts, life: Incarnation, state: State, ts: int, limit: int) -> bool:
    """Whether a state that was first told at a time has another before it in the captures, or is that of a birth.

    In the first ``limit`` us of the captures nothing is known to be: others may be told late what a broker had before.
    """
    if ts - facts.begin < limit or not life.sightings:
        return False
    first = life.steps[0]
    if first.state.epochs == state.epochs == FIRST_EPOCHS:
        return first.state.is_new
    return first.state.epochs < state.epochs and first.ts < ts
