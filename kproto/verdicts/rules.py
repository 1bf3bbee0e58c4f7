"""Applies the rules of ``catalogue`` to the facts of captures: what ``kproto doctor`` finds.

Each rule is one function that yields findings; ``docs/verdicts.md`` has the definitions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise, zip_longest
from operator import attrgetter, itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey, api_name
from kproto.capture.summary import not_read_text
from kproto.error_codes import ErrorCode, error_name
from kproto.text import counted, ranges
from kproto.verdicts import kraft
from kproto.verdicts.catalogue import RULES
from kproto.verdicts.doctor import MINUTE, NOT_COMPARED, SECOND, Doctor, Finding
from kproto.verdicts.epochs import the_broker
from kproto.verdicts.facts import Facts, Partition, named, was_named_before
from kproto.verdicts.flaps import flapping
from kproto.verdicts.listeners import broken_listeners
from kproto.verdicts.request_figures import Latencies, moment
from kproto.verdicts.states import (
    FOREVER,
    FULL,
    INCREMENTAL,
    NO_LEADER,
    Incarnation,
    Request,
    Sighting,
    State,
    Stretch,
    first_within,
    most_within,
)
from kproto.verdicts.updates import brokers_behind, late_updates, missed_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_TWO: Final = 2
_FEW_ANSWERS: Final = 20


# ---- controllers ----


def _stale(doctor: Doctor) -> Iterator[Finding]:
    """Zombies, accepted and refused, and requests for an earlier registration."""
    facts = doctor.facts
    found: dict[tuple[str, str, Any], list[Request]] = defaultdict(list)
    newest = facts.epochs.newest_controller(facts.end + 1)
    for request in facts.requests:
        if request.controller_id is None or request.api_key == ApiKey.FETCH:
            continue
        code, epoch = request.error_code, request.controller_epoch
        if (newest is None or epoch >= newest.epoch) and code not in _STALE_CODES:
            continue
        asked = request.ts, (request.server_ip, request.server_port), epoch, request.broker_epoch
        for stale in facts.epochs.stale(*asked, code, is_kraft_controller=bool(request.is_kraft_controller)):
            rule, which = "KP036", "for an earlier registration"
            if stale.zombie:
                rule = "KP002" if code else "KP001"
                which = f"of controller {request.controller_id} with epoch {epoch}, which had been replaced"
            if rule == "KP001" and (
                code is None
                or not facts.has_one_clock  # the order of two places' times is unknown
                or stale.newer is None
                or request.ts - stale.newer.since <= doctor.us("failover")
            ):
                continue
            found[rule, which, request.broker_id].append(request)
    for (rule, which, _broker), requests in found.items():
        yield doctor.of_requests(rule, requests, "accepted" if rule == "KP001" else "refused", f" {which}")


_NOT_IN_CAPTURE: Final = (
    "the response is not in the capture: a later request was answered",
    "too much was waiting for its response: kproto gave it up",
)
"""Values of ``requests.unmatched_reason`` where the request may have an answer that the capture lacks."""

_STALE_CODES: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


def _rivals(doctor: Doctor) -> Iterator[Finding]:
    for epoch, senders in doctor.facts.epochs.rivals().items():
        names = " and ".join(str(sender) for sender in sorted(senders))
        times = sorted(senders.values())
        yield doctor.finding("KP003", f"Controllers {names} both had epoch {epoch}", times[1], count=len(senders))


def _went_back(doctor: Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    for back in facts.epochs.went_back():
        replaced = facts.epochs.superseded_by(back.lower, back.at)
        if replaced is None or back.at - replaced.since <= doctor.us("failover"):
            continue
        broker = facts.servers[back.broker]
        text = f"{the_broker(broker)} accepted controller epoch {back.lower} after {back.higher}"
        yield doctor.finding("KP004", text, back.at, back.at, broker=broker)


def _migration(doctor: Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    accepted = [request for request in facts.requests if request.error_code == 0 and request.controller_id is not None]
    kraft = [request for request in accepted if request.is_kraft_controller]
    if not kraft:
        return
    takeover = kraft[0].ts
    lowest = kraft[0].controller_epoch
    back = [r for r in accepted if not r.is_kraft_controller and r.ts > takeover and r.controller_epoch > lowest]
    if back:
        name = f"Controller {back[0].controller_id} of ZooKeeper, with epoch {back[0].controller_epoch},"
        yield doctor.finding("KP007", f"{name} took over from KRaft", back[0].ts, back[-1].ts, count=len(back))
    everything = [request for request in kraft if request.type != INCREMENTAL]
    updates = [request for request in everything if request.api_key == ApiKey.UPDATE_METADATA]
    updated = {request.broker_id for request in updates if request.n_partitions or request.type == FULL}
    led = {request.broker_id for request in kraft if request.api_key == ApiKey.LEADER_AND_ISR}
    replicas = {broker for life in facts.present.values() for broker in life.newest.state.replicas}
    until = min((request.ts for request in back), default=facts.end)
    asked = (request for request in accepted if request.ts < takeover or request.is_kraft_controller)
    brokers = {request.broker_id for request in asked if request.api_key != ApiKey.FETCH}
    unknown = ""
    if accepted[0].is_kraft_controller:  # whom it had told before the captures is unknown
        if 2 * len(updated) <= len(brokers):
            return
        unknown = "the captures begin with the KRaft controller"
    for broker in sorted(brokers, key=str):
        gone = facts.dead_since(broker)
        shown = min(until, facts.recorded_until(broker)) - takeover
        if (gone is not None and gone <= takeover) or shown < doctor.us("told"):
            continue
        lacks = ["metadata"] if broker not in updated else []
        if broker in replicas and broker not in led:
            lacks.append("LeaderAndIsr")
        if lacks and (broker in facts.alive or not facts.is_kraft_controller):
            text = f"{the_broker(broker)} got no {' and no '.join(lacks)} from the KRaft controller"
            yield doctor.finding("KP006", text, takeover, broker=broker, lacks=unknown)


# ---- leaders and replicas ----


def _states(doctor: Doctor) -> Iterator[Finding]:
    """Findings about how long a partition had no leader, lacked replicas, or was being reassigned."""
    for place, life in doctor.facts.told_lives:
        yield from _conditions(doctor, place, life)
        yield from _not_alive(doctor, place, life)


def _conditions(doctor: Doctor, place: Partition, life: Incarnation) -> Iterator[Finding]:
    newest, name = life.newest.state, named(place)
    without = life.stretches(lambda state: state.leader == NO_LEADER)
    text = f"{name} has no leader" + (f"; its ISR is {_ids(newest.isr)}" if newest.isr else "")
    yield from _lasting(doctor, place, life, "KP010", without, text, f"{name} had no leader")
    stretches = life.stretches(lambda state: bool(state.isr and _lacking(state)))
    text = f"{name} lacks replicas {_ids(_lacking(newest))} in its ISR {_ids(newest.isr)}"
    former = f"{name} lacked replicas in its ISR"
    count = len(newest.replicas)
    is_larger = count > doctor.facts.fewest_replicas.get(place[0], count)
    is_unknown = is_larger and all(step.state.adding_replicas is None for step in life.steps)
    lacks = "a reassignment from before the capture may add them" if is_unknown else ""
    yield from _lasting(doctor, place, life, "KP020", stretches, text, former, lacks=lacks)
    stretches = life.stretches(lambda state: bool(state.adding_replicas))
    text = f"{name} is being reassigned; it adds replicas {_ids(newest.adding_replicas or ())}"
    yield from _lasting(doctor, place, life, "KP024", stretches, text, f"{name} was being reassigned")
    least = int(doctor.limits["min-isr"])
    if least:
        short = life.stretches(lambda state: 0 < len(state.isr) < least)
        text = f"{name} has {len(newest.isr)} in-sync replicas, fewer than {least}"
        former = f"{name} had fewer than {least} in-sync replicas"
        yield from _lasting(doctor, place, life, "KP021", short, text, former)


def _lacking(state: State) -> set[int]:
    """The replicas that a state's ISR lacks, and that no reassignment adds."""
    return set(state.replicas).difference(state.isr, state.adding_replicas or ())


def _lasting(
    doctor: Doctor,
    place: Partition,
    life: Incarnation,
    rule: str,
    stretches: list[Stretch],
    text: str,
    former: str,
    *,
    lacks: str = "",
    broker: int | None = None,
) -> Iterator[Finding]:
    """A finding about a condition that lasts, or lasted, for longer than a limit; with a limit of 0 it has to last.

    Of trouble that lasts for less so far, a note.

    Args:
        doctor: The doctor.
        place, life: The partition.
        rule: Its id; the last of its limits is that of the length.
        stretches: When the condition held.
        text: A sentence, where it lasts.
        former: A clause, where it ended.
        lacks, broker: See ``Doctor.finding``.
    """
    end, most = doctor.facts.end, doctor.us(RULES[rule].limits[-1])
    long = [s for s in stretches if s.length(end) > most and (most or s.until is None)]
    if long and (doctor.facts.blind or place in doctor.facts.left_out):
        sure = _sure(doctor.facts, place, life, long, most)
        long, lacks = sure or long, lacks if sure else "requests that may have ended it are not in the capture"
    if any(stretch.until for stretch in long):
        queued = doctor.us("queued")
        sure = [s for s in long if s.until is None or doctor.facts.decided(s.until, queued) - s.since > most]
        long, lacks = sure or long, lacks if sure else "the request that ended it may have waited for its broker"
    now = [s for s in stretches[-1:] if s.until is None]
    if not long:
        if now and RULES[rule].severity == "trouble":
            so_far = f"{text}; for {now[0].length(end) / SECOND:.0f} s so far"
            yield Finding(rule, "note", so_far, now[0].since, end, 1, broker, *place)
        return
    long += [s for s in now if s is not long[-1]]
    total = sum(stretch.length(end) for stretch in long)
    last = long[-1]
    if last.until is None:
        said = text + (f"; and {_time_text(total - last.length(end))} before" if len(long) > 1 else "")
    else:
        times = f", {counted(len(long), 'time')}, at most for {_time_text(max(s.length(end) for s in long))}"
        said = f"{former} for {_time_text(total)}{times if len(long) > 1 else ''}, until {moment(last.until)}"
    more: dict[str, Any] = {"count": len(long), "lacks": lacks, "broker": broker, "place": place}
    yield doctor.finding(rule, said, long[0].since, last.until, **more)


def _sure(facts: Facts, place: Partition, life: Incarnation, long: list[Stretch], most: int) -> list[Stretch]:
    """The times at which a condition of a partition held for over ``most`` us before the captures may lack its end.

    A state that is told again later has not changed meanwhile. A controller that takes over tells all states again: of
    one that it did not tell, the captures lack the end, or what it told.
    """
    last: dict[tuple[int, int], int] = {}
    for sighting in life.sightings:
        last[sighting.state.epochs] = max(sighting.ts, last.get(sighting.state.epochs, 0))
    told = [(last[step.state.epochs], after and after.ts) for step, after in zip_longest(life.steps, life.steps[1:])]
    unsure = []  # from a time on at which nobody shows what all are told, until a state is told again
    for since, until in told:
        blind = first_within(facts.blind, since, FOREVER if until is None else until - 1)
        if until is None and place in facts.left_out:
            unsure.append(Stretch(since, None))
        elif blind is not None:
            unsure.append(Stretch(max(since, blind.since), until))
    first: dict[int, int] = {}
    for unseen in _overlap(long, unsure, facts.end):
        first.setdefault(bisect_right(long, unseen.since, key=attrgetter("since")), unseen.since)
    return [s for n, s in enumerate(long, 1) if n not in first or 0 < most < first[n] - s.since]


def _time_text(us: int) -> str:
    """A length of time in the largest unit that it has two of."""
    for unit, name in ((3600 * SECOND, "h"), (MINUTE, "min")):
        if us >= _TWO * unit:
            return f"{us / unit:.1f} {name}"
    return f"{us / SECOND:.1f} s"


def _not_alive(doctor: Doctor, place: Partition, life: Incarnation) -> Iterator[Finding]:
    """Brokers that the leader or the ISR name while they are not alive."""
    facts, name = doctor.facts, named(place)
    for broker in sorted({broker for step in life.steps for broker in (step.state.leader, *step.state.isr)}):
        absences = facts.not_alive(broker) if broker != NO_LEADER else []
        if not absences:
            continue
        holds = life.stretches(
            lambda state, broker=broker: state.leader != NO_LEADER and broker in (state.leader, *state.isr)  # type: ignore[misc]
        )
        both = _overlap(holds, absences, facts.end)
        role = "leader" if broker == life.newest.state.leader else "ISR"
        text = f"The {role} of {name} names broker {broker}, which is not alive"
        former = f"The leader or the ISR of {name} named broker {broker}, which was not alive,"
        yield from _lasting(doctor, place, life, "KP023", both, text, former, broker=broker)


def _overlap(some: list[Stretch], others: list[Stretch], end: int) -> list[Stretch]:
    """The times at which two conditions both held; each list is in order."""
    found = []
    mine, theirs = 0, 0
    while mine < len(some) and theirs < len(others):
        one, other = some[mine], others[theirs]
        since = max(one.since, other.since)
        untils = [stretch.until for stretch in (one, other) if stretch.until is not None]
        until = min(untils, default=None)
        if (end if until is None else until) > since:
            found.append(Stretch(since, until))
        if one.until is not None and one.until == until:
            mine += 1
        else:
            theirs += 1
    return found


def _elections(doctor: Doctor) -> Iterator[Finding]:
    """Unclean elections, and leader epochs that were used twice or went back."""
    for place, life in doctor.facts.told_lives:
        name = named(place)
        for election in life.unclean_elections:
            of = f"{name} (leader epoch {election.state.leader_epoch})"
            text = f"Broker {election.state.leader} was elected leader of {of} without having been in sync"
            yield doctor.finding("KP011", text, election.ts, election.ts, place=place)
        if len(life.steps) < _TWO:
            continue
        leaders: dict[int, dict[int, int]] = defaultdict(dict)
        for sighting in life.sightings:
            state = sighting.state
            if any(doctor.facts.accepted(sighting.body, broker, place) for broker in sighting.body.told):
                leaders[state.leader_epoch].setdefault(state.leader, sighting.ts)
        for epoch, of_epoch in leaders.items():
            if len(of_epoch) > 1:
                text = f"Leader epoch {epoch} of {name} was used for the leaders {_ids(of_epoch)}"
                yield doctor.finding("KP013", text, max(of_epoch.values()), place=place)
        yield from _back(doctor, place, life)


def _back(doctor: Doctor, place: Partition, life: Incarnation) -> Iterator[Finding]:
    """Brokers that accepted a lower leader epoch after a higher one.

    Both in requests of one API, or the lower one in UpdateMetadata after LeaderAndIsr: LeaderAndIsr goes first in each
    batch, but it may be refused or wait for another capture point, so that the opposite proves nothing.
    """
    if not _goes_back(life):
        return
    told: dict[Any, list[tuple[int, int, bool, int]]] = defaultdict(list)
    for sighting in life.sightings:
        is_leadership = sighting.body.api_key == ApiKey.LEADER_AND_ISR
        for broker, (first, last) in sighting.body.told.items():
            if doctor.facts.accepted(sighting.body, broker, place):
                told[broker].append((first, sighting.state.leader_epoch, is_leadership, last))
    for broker, rows in told.items():
        rows.sort()
        firsts = [first for first, _epoch, _is_leadership, _last in rows]
        highest = list(accumulate((epoch for _first, epoch, _is_leadership, _last in rows), max))
        led = list(accumulate((epoch if is_led else -1 for _first, epoch, is_led, _last in rows), max))
        for _first, lower, is_leadership, last in rows:
            earlier = bisect_left(firsts, last)
            higher = (led if is_leadership else highest)[earlier - 1] if earlier else -1
            if higher > lower:
                text = f"{the_broker(broker)} was told leader epoch {lower} of {named(place)} after {higher}"
                yield doctor.finding("KP012", text, last, last, broker=broker, place=place)
                break


def _goes_back(life: Incarnation) -> bool:
    """Whether a higher leader epoch was told before some broker was told a lower one last."""
    times = [sighting.ts for sighting in life.sightings]
    highest = list(accumulate((sighting.state.leader_epoch for sighting in life.sightings), max))
    if highest[-1] == min(sighting.state.leader_epoch for sighting in life.sightings):
        return False
    for low in life.sightings:
        earlier = bisect_left(times, low.body.last)
        if earlier and highest[earlier - 1] > low.state.leader_epoch:
            return True
    return False


def _leadership(doctor: Doctor) -> Iterator[Finding]:
    """Two leaders at one time, and leaders that were named to clients and not told."""
    facts = doctor.facts
    for place, life in facts.told_lives:
        steps = pairwise(life.steps)
        elections = [each for each in steps if each[0].state.leader_epoch != each[1].state.leader_epoch]
        if not elections:
            continue
        told = cache(life.told)
        led: dict[Any, int] = {}  # for each broker, the lowest leader epoch under which it accepted to lead
        clients: dict[tuple[int, int], int] = {}  # when UpdateMetadata first named a leader with its epoch
        for sighting in life.sightings:
            (leader, epoch, *_more), body = sighting.state, sighting.body
            if body.api_key == ApiKey.UPDATE_METADATA:
                clients.setdefault((leader, epoch), sighting.ts)
            elif epoch < led.get(leader, FOREVER) and facts.accepted(body, leader, place):
                led[leader] = epoch
        for before, after in reversed(elections):
            (former, *_), (leader, epoch, *_) = before.state, after.state
            if leader == NO_LEADER:
                continue
            heard, first = told(leader, False).first((epoch, 0)), clients.get((leader, epoch))
            if heard is not None and former != leader and led.get(former, epoch) < epoch:
                yield from _two_leaders(doctor, place, before, after, heard, told(former, False).first((epoch, 0)))
            # It may have been told before the capture, where that does not show it with an earlier leader.
            if first is not None and any(told(leader, of).has_lower((epoch, 0)) for of in (False, True)):
                yield from _named_not_told(doctor, place, before, after, first, heard)


def _two_leaders(
    doctor: Doctor, place: Partition, before: Sighting, after: Sighting, took: int, heard: int | None
) -> Iterator[Finding]:
    """The former leader, if a request made it leader and no request named the next leader to it."""
    facts, limit = doctor.facts, doctor.us("told")
    former, leader, epoch = before.state.leader, after.state.leader, after.state.leader_epoch
    times = heard, facts.removals.stopped.get(place, {}).get(former)
    since = min((ts for ts in times if ts is not None and ts >= before.ts), default=None)
    if former not in facts.spans or (since is not None and since - took <= limit):
        return
    settled = not facts.shows_alive(took) or facts.is_settling([former], took + limit, doctor.us("settled"))
    if facts.spans[former].covers(after.ts, took + limit) and not settled:
        text = f"Brokers {former} and {leader} both led {named(place)}: {former} was not told of leader epoch {epoch}"
        yield doctor.finding("KP014", text, took, since, about=former, since=before.ts, place=place)


def _named_not_told(
    doctor: Doctor, place: Partition, before: Sighting, after: Sighting, at: int, heard: int | None
) -> Iterator[Finding]:
    """The leader, if UpdateMetadata names it to clients and LeaderAndIsr has not told it."""
    facts, limit = doctor.facts, doctor.us("told")
    leader, epoch = after.state.leader, after.state.leader_epoch
    is_told = (heard is not None and heard - at <= limit) or (leader, *place) in facts.elsewhere
    if is_told or leader not in facts.spans:
        return
    settled = not facts.shows_alive(at) or facts.is_settling([leader], at + limit, doctor.us("settled"))
    if facts.spans[leader].covers(at, at + limit) and not settled:
        text = f"Broker {leader} was named leader of {named(place)} (leader epoch {epoch}) and not told to lead"
        text += "" if heard is None else f" for {(heard - at) / SECOND:.0f} s"
        yield doctor.finding("KP015", text, at, heard, broker=leader, since=before.ts, place=place)


def _flaps(doctor: Doctor) -> Iterator[Finding]:
    window = int(doctor.limits["flap-minutes"] * MINUTE)
    for what, place, most, times, _leaders in flapping(doctor):
        rule = "KP016" if what == "leader" else "KP022"
        text = f"The {what} of {named(place)} changed {most} times within {window // MINUTE} minutes"
        yield doctor.finding(rule, text, times[0], times[-1], count=most, place=place)


# ---- brokers ----


def _behind(doctor: Doctor) -> Iterator[Finding]:
    behind: dict[int, list[tuple[Partition, int]]] = defaultdict(list)
    for broker, partition, _newest, _told, since in brokers_behind(doctor):
        behind[broker].append((partition, since))
    for broker, some in behind.items():
        text = f"Broker {broker} was never told the newest state of {_partitions(place for place, _since in some)}"
        yield doctor.finding("KP030", text, min(since for _, since in some), count=len(some), broker=broker)


def _updates(doctor: Doctor) -> Iterator[Finding]:
    """Updates that a broker missed, or got late."""
    missed: dict[int, list[int]] = defaultdict(list)
    for broker, body in missed_updates(doctor):
        missed[broker].append(body.first)
    for broker, every in missed.items():
        certain = [ts for ts in every if not doctor.facts.may_hide(broker, ts, ts, doctor.us("told"))]
        times = certain or every
        text = f"Broker {broker} missed {counted(len(times), 'metadata update')} that most others got"
        of: dict[str, Any] = {"count": len(times), "broker": broker}
        yield doctor.finding("KP031", text, min(times), max(times), is_shown=bool(certain), **of)
    late: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for broker, delay, ts in late_updates(doctor):
        late[broker].append((delay, ts))
    for broker, some in late.items():
        worst, at = max(some, key=itemgetter(0))
        updates = counted(len(some), "metadata update")
        text = f"{the_broker(broker)} was told {updates} late, by up to {worst / SECOND:.1f} s"
        yield doctor.finding("KP032", text, min(ts for _, ts in some), at, count=len(some), broker=broker)


_ANSWERED: Final = {
    "KP033": ("left", " unanswered"),
    "KP050": ("refused", ": "),
    "KP052": ("was sent", " again over a newer connection"),
    "KP053": ("has", " whose bytes cannot be read: "),
}
"""What a broker did with requests, before and behind their number."""


def _answers(doctor: Doctor) -> Iterator[Finding]:
    """Unanswered, refused and unreadable requests, and those that were sent again."""
    facts = doctor.facts
    found: dict[tuple[str, str, Any], list[Request]] = defaultdict(list)  # by rule, what is lacking, and broker
    open_ones: dict[tuple[Any, ...], bytes] = {}
    for request in facts.requests:
        broker = request.broker_id
        key = (broker, request.body_id, request.broker_epoch)
        if request.body_id is not None and open_ones.get(key, request.conn_id) != request.conn_id:
            found["KP052", "", broker].append(request)
            del open_ones[key]
        if request.decode_error is not None:
            found["KP053", "", broker].append(request)
        elif request.response_frame_id is None:
            lacks = "the captures lack the answers" if request.unmatched_reason in _NOT_IN_CAPTURE else ""
            found["KP033", lacks, broker].append(request)
            if request.body_id is not None and not lacks:
                open_ones[key] = request.conn_id
        elif request.error_code and request.error_code not in _STALE_CODES:
            found["KP050", "", broker].append(request)
    for (rule, lacks, _broker), requests in sorted(found.items(), key=lambda of: of[0][1]):
        verb, rest = _ANSWERED[rule]
        if rule == "KP050":
            codes = Counter(r.error_code for r in requests)
            rest += ", ".join(error_name(code) for code, _n in codes.most_common() if code)
        elif rule == "KP053":
            rest += str(requests[0].decode_error)
        yield doctor.of_requests(rule, requests, verb, rest, lacks)
    yield from _not_answering(doctor)


def _not_answering(doctor: Doctor) -> Iterator[Finding]:
    """Brokers that answered nothing for long, though updates list them as alive and they were sent requests.

    At least two: a controller sends again after its request timeout, so that a single request shows nothing.
    """
    facts, limit = doctor.facts, doctor.us("silent")
    open_ones: dict[Any, list[int]] = defaultdict(list)  # by broker: the times of requests without answer
    found: list[tuple[Any, list[int], int | None]] = []
    for request in facts.requests:
        if request.response_frame_id is not None:
            if times := open_ones.pop(request.broker_id, []):
                found.append((request.broker_id, times, request.ts))
        elif request.unmatched_reason not in _NOT_IN_CAPTURE:
            open_ones[request.broker_id].append(request.ts)
    found += [(broker, times, None) for broker, times in open_ones.items()]
    for broker, times, until in found:
        first, count = times[0], len(times)
        end = facts.recorded_until(broker) if until is None else until
        gone = facts.gone_between(broker, first, end)
        lasted = end if gone is None else gone
        if count >= _TWO and lasted - first > limit:
            so_far = " so far" if until is None and gone is None else ""
            text = (
                f"{the_broker(broker)} answered none of {counted(count, 'request')} for {_time_text(lasted - first)}"
                f"{so_far}, though it was listed as alive"
            )
            yield doctor.finding("KP037", text, first, lasted, count=count, broker=broker)


def _slow(doctor: Doctor) -> Iterator[Finding]:
    latencies: dict[Any, list[int]] = defaultdict(list)
    for request in doctor.facts.requests:
        if request.latency_us is not None:
            latencies[request.broker_id].append(request.latency_us)
    figures = {}
    for broker, values in latencies.items():
        middle, p99 = (us or 0 for us in Latencies(values).quantiles_us(0.5, 0.99))
        figures[broker] = len(values), middle, p99
    factor, least = doctor.limits["slow-factor"], doctor.limits["slow-answers"]
    for broker, (count, middle, p99) in figures.items():
        peers = [f for other, f in figures.items() if other != broker and f[0] >= _FEW_ANSWERS]
        if count < least or len(peers) < _TWO or p99 < doctor.limits["slow-ms"] * 1000:
            continue
        if p99 > factor * median(f[2] for f in peers) and middle > factor * median(f[1] for f in peers):
            text = (
                f"{the_broker(broker)} answers slowly: half of its answers took over {middle / 1000:.1f} ms, one in a "
                f"hundred over {p99 / 1000:.1f} ms"
            )
            yield doctor.finding("KP034", text, doctor.facts.begin, count=count, broker=broker)


def _registrations(doctor: Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    of: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    for broker, former, epoch, ts in facts.registrations:
        of[broker].append((ts, f"with broker epoch {epoch} after {former}"))
    for broker, stretches in facts.absences.items():
        if broker in of or broker in facts.with_broker_epochs or facts.told_by_kraft:
            continue
        back = [(s.until, "after the live brokers lacked it") for s in stretches if s.until is not None]
        if back:
            of[broker] = back
    for broker, rows in of.items():
        times = [ts for ts, _shown in rows]
        ts, shown = rows[-1]
        often = "" if len(rows) == 1 else f" {len(rows)} times, last"
        text = f"{the_broker(broker)} registered again{often} at {moment(ts)} {shown}"
        yield doctor.finding("KP035", text, times[0], ts, count=len(rows), broker=broker)
        yield from _storm(doctor, "KP038", times, f"{the_broker(broker)} registered", broker)
    unseen = sorted(broker for broker in facts.spans.keys() - facts.with_broker_epochs if isinstance(broker, int))
    if unseen:
        are_logged = all(request.is_logged for request in facts.requests if request.broker_id in unseen)
        text = f"Whether brokers {_ids(unseen)} were started again and stayed among the live brokers"
        lacks = "these logs tell" if are_logged else "requests before inter-broker protocol 2.2 have"
        yield doctor.finding("KP035", text, facts.begin, lacks=f"{lacks} no broker epochs")


def _controllers(doctor: Doctor) -> Iterator[Finding]:
    """Controllers that replaced each other again and again."""
    times = sorted(since for _epoch, _controller, since in doctor.facts.controllers)[1:]
    yield from _storm(doctor, "KP008", times, "The controller was replaced")


def _storm(doctor: Doctor, rule: str, times: Sequence[int], text: str, broker: Any = None) -> Iterator[Finding]:
    """A finding about events that came too often within ``flap-minutes``; their times are ascending."""
    window = int(doctor.limits["flap-minutes"] * MINUTE)
    most = most_within(times, window)
    if most >= doctor.limits[RULES[rule].limits[0]]:
        said = f"{text} {most} times within {window / MINUTE:g} minutes, {len(times)} times in all"
        yield doctor.finding(rule, said, times[0], times[-1], count=most, broker=broker)


# ---- topics ----


def _deletions(doctor: Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    removals = facts.removals
    yield from _cancelled(doctor)
    found: dict[tuple[str, str, Any], list[tuple[int, int]]] = defaultdict(list)  # each with its last state's time
    unsure: dict[tuple[str, Any], str] = {}
    errors: dict[tuple[str, Any], int] = {}
    settled = doctor.us("settled")
    for (topic, number), lives in facts.incarnations.items():
        for life, after in zip_longest(lives, lives[1:]):
            later = after if after and after.sightings else None
            if not life.sightings or (life.deleted is None and later is None):
                continue
            if life.newest.body.api_key == ApiKey.FETCH:  # in KRaft brokers delete what the log tells them to delete
                continue
            if later is None and not was_named_before(life):
                continue
            deleted = life.deleted if life.deleted is not None else later.sightings[0].ts if later else facts.end
            for broker in life.newest.state.replicas:
                gone = removals.last((topic, number), broker)
                if gone is not None and gone >= life.sightings[0].ts and (later is None or gone >= deleted - settled):
                    continue
                error = removals.refused.get(((topic, number), broker))
                since = facts.back_since(broker, deleted, doctor.us("told"))
                returned = error is None and facts.took_part(
                    broker, since, facts.recorded_until(broker) - doctor.us("told")
                )
                rule = "KP042" if later is not None else "KP041" if returned else "KP040"
                found[rule, topic, broker].append((deleted, life.last_alive))
                if error is not None:
                    errors[topic, broker] = error
                if (topic, number, broker) in facts.unanswered_deletions:
                    unsure[topic, broker] = "the capture has no answer to a deletion that was sent"
                elif returned and not facts.shows_removal(broker, deleted, doctor.us("told"), doctor.us("settled")):
                    unsure[topic, broker] = _UNSHOWN
    verbs = {
        "KP040": "has not accepted the deletion of {}",
        "KP041": "never got the deletion of {} and is back: its log stays",
        "KP042": "never accepted the deletion of {}, whose name is used again",
    }
    asked = {request.broker_id for request in facts.requests} if found else ()
    for (rule, topic, broker), deletions in found.items():
        first, since = map(min, zip(*deletions, strict=True))
        if facts.recorded_until(broker) - first <= doctor.us("told"):
            continue
        text = f"Broker {broker} {verbs[rule].format(topic)}"
        if rule == "KP040" and (topic, broker) in errors:
            text = f"Broker {broker} refused the deletion of {topic} with {error_name(errors[topic, broker])}"
        lacks = unsure.get((topic, broker), "")
        dead = facts.dead_since(broker)
        if broker not in asked and (dead is None or dead > first):
            lacks = "the capture has no request to that broker"
        of: dict[str, Any] = {"broker": broker, "topic": topic}
        yield doctor.finding(rule, text, first, since=since, count=len(deletions), lacks=lacks, **of)


_UNSHOWN: Final = "the capture lacks the connection on which it may have been told"


def _cancelled(doctor: Doctor) -> Iterator[Finding]:
    """Living brokers that hosted a partition, are none of its replicas any more and never accepted to delete it."""
    facts = doctor.facts
    for place, life in facts.present.items():
        hosts: dict[Any, int] = {}
        for sighting in life.sightings:
            if sighting.body.api_key == ApiKey.LEADER_AND_ISR:
                for broker, (_first, last) in sighting.body.told.items():
                    if broker in sighting.state.replicas and facts.accepted(sighting.body, broker, place):
                        hosts[broker] = max(last, hosts.get(broker, last))
        replicas = life.newest.state.replicas
        for broker in (hosts.keys() & facts.alive).difference(replicas) if replicas else ():
            since = life.stretches(lambda state, broker=broker: broker not in state.replicas)[-1].since  # type: ignore[misc]
            gone = facts.removals.last(place, broker)
            if (gone is None or gone < hosts[broker]) and facts.recorded_until(broker) - since > doctor.us("told"):
                text = f"Broker {broker} no longer holds a replica of {named(place)}, and never deleted its log"
                is_shown = facts.shows_removal(broker, since, doctor.us("told"), doctor.us("settled"))
                lacks = "" if is_shown else _UNSHOWN
                of: dict[str, Any] = {"lacks": lacks, "broker": broker, "place": place}
                yield doctor.finding("KP041", text, since, since=hosts[broker], **of)


def _partition_errors(doctor: Doctor) -> Iterator[Finding]:
    """Partition errors that were never put right, and topic ids that differ."""
    facts = doctor.facts
    if not facts.partition_errors:
        return
    open_ones: dict[Any, dict[Partition, tuple[Request, int]]] = defaultdict(dict)
    differ: dict[tuple[Any, Partition], list[int]] = defaultdict(list)
    bodies = {body.request.body_id: body for body in facts.bodies}
    for request in facts.requests:
        if request.error_code != 0 or request.api_key == ApiKey.UPDATE_METADATA:
            continue
        errors = facts.partition_errors.get(request.frame_id, {})
        broker = request.broker_id
        mine = open_ones[broker]
        if mine and request.body_id in bodies:
            for topic, number, _id, _state in bodies[request.body_id].states:
                if (topic, number) not in errors:
                    mine.pop((topic, number), None)
        for place, code in errors.items():
            if code == ErrorCode.INCONSISTENT_TOPIC_ID:
                differ[broker, place].append(request.ts)
            elif code not in _HARMLESS:
                mine[place] = request, code
            else:
                mine.pop(place, None)
    for (broker, place), times in differ.items():
        text = f"{the_broker(broker)} has {named(place)} with another topic id"
        yield doctor.finding("KP043", text, times[0], times[-1], count=len(times), broker=broker, place=place)
    for broker, mine in open_ones.items():
        for place, (request, code) in mine.items():
            text = (
                f"{the_broker(broker)} refused {named(place)} in {api_name(request.api_key)} with "
                f"{error_name(code)}, and accepted it in no later request"
            )
            lacks = (
                "" if facts.recorded_until(broker) - request.ts > doctor.us("told") else "the capture ends soon after"
            )
            yield doctor.finding("KP051", text, request.ts, request.ts, lacks=lacks, broker=broker, place=place)


_HARMLESS: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)


# ---- captures ----


def _losses(doctor: Doctor) -> Iterator[Finding]:
    facts, begin = doctor.facts, doctor.facts.begin
    for row in facts.captures:
        file = facts.file_of(row)
        if count := row["partial_starts"]:
            text = f"{file} begins inside a request or response of {counted(count, 'stream')}"
            yield doctor.finding("KP060", text, begin, begin, count=count)
        dropped = row["dropped_packets"] or 0
        if row["gaps"] or row["cut_packets"] or row["ip_fragments"] or row["bad_checksums"] or dropped:
            gaps = f" lacks {row['gap_bytes']:,} bytes in {counted(row['gaps'], 'gap')}"
            by_then = f" its recorder had dropped {counted(dropped, 'packet')} by then"
            text = file + (f"{gaps};{by_then}" if dropped and row["gaps"] else f":{by_then}" if dropped else gaps)
            yield doctor.finding("KP061", text, begin, count=row["gaps"] + dropped)
        if count := row["without_handshake"]:
            connections = counted(row["kafka_connections"], "Kafka connection")
            text = f"{file} lacks the beginning of {count:,} of {connections}: what passed on them before is not in it"
            yield doctor.finding("KP062", text, begin, begin, count=count)
        if row["not_read"]:
            packets = {found["protocol"]: found["packets"] for found in row["not_read"]}
            text = f"{file}: {not_read_text(packets)}; requests in them are missing here"
            yield doctor.finding("KP064", text, begin, count=sum(packets.values()))
        if count := (row["bad_inputs"] or 0) - (row["bad_checksums"] or 0):
            reasons = Counter(bad["reason"] for bad in facts.bad_inputs if bad["file"] == row["file"])
            why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
            text = f"{file}: {counted(count, 'piece')} of the file could not be used{why}"
            yield doctor.finding("KP065", text, begin, count=count)
        if count := row["untimed_packets"]:
            has = "has" if count == 1 else "have"
            known = "the order of requests is known, when they passed is not"
            text = f"{file}: {counted(count, 'packet')} {has} no time: {known}"
            yield doctor.finding("KP066", text, begin, count=count)


def _clocks(doctor: Doctor) -> Iterator[Finding]:
    facts, clocks = doctor.facts, doctor.facts.clocks
    files = {row["capture"]: facts.file_of(row) for row in reversed(facts.captures)}
    references = Counter(clocks[name].reference for name in files if name in clocks)
    reference = max(references, key=lambda name: (references[name], name), default="")
    for row in facts.captures:
        clock = clocks.get(row["capture"])
        if clock is None:
            continue
        its_clock = f"The clock of {facts.file_of(row)}"
        ahead = max((clock.ahead(ts) for ts in (clock.anchor_us, facts.end)), key=abs)
        if abs(ahead) >= SECOND:
            drift = f", and gains {clock.drift_ppm:+.0f} us a second" if clock.drift_ppm else ""
            text = (
                f"{its_clock} is {abs(ahead) / SECOND:.1f} s {'ahead of' if ahead > 0 else 'behind'} "
                f"that of {files.get(clock.reference, 'another host')}{drift}; kproto corrects its times by that"
            )
            yield doctor.finding("KP063", text, facts.begin)
        elif clock.reference != reference:
            why = "it was set meanwhile, or they share too few requests"
            yield doctor.finding("KP063", f"{its_clock} cannot be compared with that of others: {why}", facts.begin)


_RULES: Final[tuple[Callable[[Doctor], Iterator[Finding]], ...]] = (
    _stale, _rivals, _went_back, _migration, _states, _elections, _leadership, _flaps, _behind, _updates, _answers,
    _slow, _registrations, _controllers, _deletions, _partition_errors, _losses, _clocks, broken_listeners,
    *kraft.RULES,
)  # fmt: skip


def findings(facts: Facts, limits: Mapping[str, float] | None = None) -> list[Finding]:
    """Apply all rules to the facts; the worst findings first, then the earliest.

    Args:
        facts: Of the captures of one cluster.
        limits: Limits by name that differ from their default.
    """
    found = _found_in_all(facts, limits) if facts.fits else _found(facts, limits)
    unread = sum(request.decode_error is not None for request in facts.requests)
    lacks = {finding.cannot_tell for finding in found if "absence" in RULES[finding.rule].rests_on}
    if lacks - {"", NOT_COMPARED} or 2 * unread > len(facts.requests):
        found = [replace(f, severity="warning") if f.rule in _DAMAGE and f.severity == "note" else f for f in found]
    return sorted(found, key=lambda f: (f.rank, f.rule, f.first, f.text))


def _found(facts: Facts, limits: Mapping[str, float] | None) -> list[Finding]:
    doctor = Doctor(facts, limits)
    return [finding for rule in _RULES for finding in rule(doctor)] if facts.requests else []


def _found_in_all(facts: Facts, limits: Mapping[str, float] | None) -> list[Finding]:
    """Return the findings that hold whichever brokers stand behind addresses, which are named then."""
    kept: dict[tuple[Any, ...], Finding] = {}
    for number, fit in enumerate(facts.fits):
        found: dict[tuple[Any, ...], Finding] = {}
        addresses = {broker: address for address, broker in fit.items()}
        for finding in _found(facts.if_brokers_are(fit), limits):
            address = addresses.get(finding.broker)
            if address is not None:
                text = re.sub(rf"\b[Bb]roker {finding.broker}\b", address, finding.text)
                finding = replace(finding, broker=address, text=text)
            found.setdefault((finding.severity, *finding.key), finding)
        kept = {key: finding for key, finding in kept.items() if key in found} if number else found
    return list(kept.values())


_DAMAGE: Final = frozenset({"KP061", "KP065"})
"""Rules that find damaged input: they warn where another finding becomes uncertain by it."""


def _ids(brokers: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, sorted(brokers))) + "]"


_MOST_NAMED: Final = 3
_MOST_RANGES: Final = 8


def _partitions(partitions: Iterable[Partition]) -> str:
    """Name partitions by topic, as ranges: those of the first topics."""
    of_topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        of_topics[topic].append(number)
    named = [_of_topic(topic, of_topics[topic]) for topic in list(of_topics)[:_MOST_NAMED]]
    left = len(of_topics) - len(named)
    return ", ".join(named) + (f" and {counted(left, 'topic')} more" if left else "")


def _of_topic(topic: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{topic}-{numbers[0]}"
    parts = ranges(numbers).split(",")
    return f"{topic}[{','.join(parts[:_MOST_RANGES])}{',...' if len(parts) > _MOST_RANGES else ''}]"
