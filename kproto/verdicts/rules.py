"""Applies the rules of ``catalogue`` to the facts of captures: what ``kproto doctor`` finds.

Each rule is one function that yields findings; ``docs/verdicts.md`` has the definitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey, api_name
from kproto.capture.summary import not_read_text
from kproto.error_codes import ErrorCode, error_name
from kproto.verdicts.catalogue import LIMITS, RULES, SEVERITIES
from kproto.verdicts.epochs import broker_name
from kproto.verdicts.facts import Facts, Partition
from kproto.verdicts.flaps import flapping
from kproto.verdicts.request_figures import moment
from kproto.verdicts.states import NO_LEADER, Incarnation, Sighting, State
from kproto.verdicts.told import Body, Request
from kproto.verdicts.updates import Behind, Late, brokers_behind, late_updates, missed_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kproto.verdicts.catalogue import Severity

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_TWO: Final = 2
_INCREMENTAL: Final = 1
_FULL: Final = 2
"""The type of a KRaft controller's LeaderAndIsr that holds all partitions of a broker."""
_FEW_ANSWERS: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule.

    Attributes:
        rule: The rule's id.
        severity: The severity.
        text: A sentence.
        first, last: The times at which it began and was last seen, us since 1970.
        count: The number of times it was seen.
        broker: The broker that it is about; its address where no id is known; None: none.
        topic, partition: The partition, or the topic alone.
        cannot_tell: The data that the captures lack, so that the finding is uncertain; empty: it is certain.
    """

    rule: str
    severity: Severity
    text: str
    first: int
    last: int
    count: int = 1
    broker: Any = None
    topic: str | None = None
    partition: int | None = None
    cannot_tell: str = field(default="")

    @property
    def key(self) -> tuple[str, str | None, str | None, int | None]:
        """The key of the finding in a baseline: its rule and its subject."""
        return self.rule, None if self.broker is None else str(self.broker), self.topic, self.partition

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; times are ISO 8601 in UTC."""
        times = {"first": moment(self.first), "last": moment(self.last)}
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {"rule": self.rule, "name": RULES[self.rule].name} | plain | times

    def _repr_html_(self) -> str:
        from kproto.notebook import table_html

        shown = {name: value for name, value in self.to_json().items() if value not in (None, "")}
        return table_html(list(shown), [list(shown.values())], 1)


class _Doctor:
    """The facts, the limits, and questions that several rules ask."""

    def __init__(self, facts: Facts, limits: Mapping[str, float]) -> None:
        self.facts = facts
        self._limits = limits

    def us(self, limit: str) -> int:
        """A limit in seconds, as us."""
        return int(self._limits[limit] * _SECOND)

    def limit(self, name: str) -> float:
        return self._limits[name]

    def finding(
        self,
        rule: str,
        text: str,
        first: int,
        last: int | None = None,
        *,
        about: Any = None,
        lacks: str = "",
        **more: Any,
    ) -> Finding:
        """Make a finding.

        Args:
            rule: The rule.
            text: A sentence.
            first, last: The times at which it began and was last seen; ``last`` None: it lasts.
            about: The broker whose requests the finding misses, if that is not ``broker``.
            lacks: The data that the captures lack, so that the finding is uncertain.
            more: Fields of the finding.
        """
        last = self.facts.end if last is None else last
        since = self.facts.incomplete_since.get(more.get("broker") if about is None else about)
        if rule in _BY_ABSENCE and since is not None and since <= last + self.us("told"):
            lacks = "bytes of its connection are missing in the capture"
        if not lacks:
            return Finding(rule, RULES[rule].severity, text, first, last, **more)
        text = f"cannot tell ({lacks}): {text[0].lower()}{text[1:]}"
        return Finding(rule, "note", text, first, last, cannot_tell=lacks, **more)


_BY_ABSENCE: Final = {"KP006", "KP014", "KP015", "KP030", "KP031", "KP032", "KP040", "KP041", "KP042", "KP051"}
"""Rules that rest on the absence of a request."""


# ---- controllers ----


def _stale(doctor: _Doctor) -> Iterator[Finding]:
    """Zombies, accepted and refused, and requests for an earlier registration."""
    facts = doctor.facts
    accepted: dict[Any, list[Request]] = defaultdict(list)
    refused: dict[Any, list[Request]] = defaultdict(list)
    earlier: dict[Any, list[Request]] = defaultdict(list)
    newest = facts.epochs.newest_controller(facts.end + 1)
    for request in facts.requests:
        if request.controller_id is None:
            continue
        code = request.error_code
        if (newest is None or request.controller_epoch >= newest.epoch) and code not in _STALE_CODES:
            continue
        asked = request.ts, (request.server_ip, request.server_port), request.controller_epoch, request.broker_epoch
        for stale in facts.epochs.stale(*asked, code, is_kraft_controller=bool(request.is_kraft_controller)):
            key = (request.broker_id, request.controller_id, request.controller_epoch)
            if not stale.zombie:
                earlier[request.broker_id].append(request)
            elif code:
                refused[key].append(request)
            elif code == 0 and stale.newer is not None and request.ts - stale.newer.since > doctor.us("failover"):
                accepted[key].append(request)
    for rule, groups, verb in (("KP001", accepted, "accepted"), ("KP002", refused, "refused")):
        for (broker, controller, epoch), requests in groups.items():
            text = (
                f"{_the(broker)} {verb} {_counted(len(requests), 'request')} of controller {controller} "
                f"with epoch {epoch}, which had been replaced"
            )
            yield doctor.finding(rule, text, requests[0].ts, requests[-1].ts, count=len(requests), broker=broker)
    for broker, requests in earlier.items():
        text = f"{_the(broker)} refused {_counted(len(requests), 'request')} for an earlier registration"
        yield doctor.finding("KP036", text, requests[0].ts, requests[-1].ts, count=len(requests), broker=broker)


_STALE_CODES: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


def _rivals(doctor: _Doctor) -> Iterator[Finding]:
    for epoch, senders in doctor.facts.epochs.rivals().items():
        names = " and ".join(str(sender) for sender in sorted(senders))
        times = sorted(senders.values())
        yield doctor.finding("KP003", f"Controllers {names} both had epoch {epoch}", times[1], count=len(senders))


def _went_back(doctor: _Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    names = {(request.server_ip, request.server_port): request.broker_id for request in facts.requests}
    for back in facts.epochs.went_back():
        replaced = facts.epochs.superseded_by(back.lower, back.at)
        if replaced is None or back.at - replaced.since <= doctor.us("failover"):
            continue
        broker = names[back.broker]
        text = f"{_the(broker)} accepted controller epoch {back.lower} after {back.higher}"
        yield doctor.finding("KP004", text, back.at, back.at, broker=broker)


def _migration(doctor: _Doctor) -> Iterator[Finding]:
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
    zookeeper = {request.broker_id for request in accepted if not request.is_kraft_controller and request.ts < takeover}
    if not zookeeper:
        return
    everything = [request for request in kraft if request.type != _INCREMENTAL]
    updates = [request for request in everything if request.api_key == ApiKey.UPDATE_METADATA]
    updated = {request.broker_id for request in updates if request.n_partitions or request.type == _FULL}
    led = {request.broker_id for request in kraft if request.api_key == ApiKey.LEADER_AND_ISR}
    replicas = {broker for life in facts.present.values() for broker in life.newest.state.replicas}
    until = min((request.ts for request in back), default=facts.end)
    for broker in sorted(zookeeper, key=str):
        gone = facts.dead_since(broker)
        if (gone is not None and gone <= takeover) or until - takeover < doctor.us("told"):
            continue
        lacks = ["metadata"] if broker not in updated else []
        if broker in replicas and broker not in led:
            lacks.append("LeaderAndIsr")
        if lacks and (broker in facts.alive or not facts.is_kraft_controller):
            text = f"{_the(broker)} got no {' and no '.join(lacks)} from the KRaft controller"
            yield doctor.finding("KP006", text, takeover, broker=broker)


# ---- leaders and replicas ----


def _states(doctor: _Doctor) -> Iterator[Finding]:
    """Findings about the newest state of each partition."""
    facts, end = doctor.facts, doctor.facts.end
    least = doctor.limit("min-isr")
    for (topic, number), life in facts.present.items():
        newest = life.newest.state
        of: dict[str, Any] = {"topic": topic, "partition": number}
        name = f"{topic}-{number}"
        if newest.leader == NO_LEADER:
            since = life.since(lambda state: state.leader == NO_LEADER)
            text = f"{name} has no leader; its ISR is {_ids(newest.isr)}"
            if end - since > doctor.us("offline"):
                yield doctor.finding("KP010", text, since, **of)
            else:
                yield Finding("KP010", "note", f"{text}; for {(end - since) / _SECOND:.0f} s so far", since, end, **of)
        lacking = set(newest.replicas) - set(newest.isr) - _adding(life)
        if lacking:
            since = life.since(lambda state: set(state.replicas) > set(state.isr))
            if end - since > doctor.us("under-replicated"):
                text = f"{name} lacks replicas {_ids(lacking)} in its ISR {_ids(newest.isr)}"
                yield doctor.finding("KP020", text, since, **of)
        if least and len(newest.isr) < least:
            since = life.since(lambda state: len(state.isr) < least)
            text = f"{name} has {len(newest.isr)} in-sync replicas, fewer than {int(least)}"
            yield doctor.finding("KP021", text, since, **of)
        if not facts.is_kraft_controller and newest.leader != NO_LEADER:
            for broker in {newest.leader, *newest.isr}:
                gone = facts.dead_since(broker)
                if gone is not None and end - max(gone, life.newest.ts) > doctor.us("not-alive"):
                    role = "leader" if broker == newest.leader else "ISR"
                    text = f"The {role} of {name} names broker {broker}, which is not alive"
                    yield doctor.finding("KP023", text, max(gone, life.newest.ts), broker=broker, **of)


def _adding(life: Incarnation) -> set[int]:
    """The replicas that a reassignment adds, by the newest LeaderAndIsr."""
    told = [step.state.adding_replicas for step in life.steps if step.state.adding_replicas is not None]
    return set(told[-1]) if told else set()


def _elections(doctor: _Doctor) -> Iterator[Finding]:
    """Unclean elections, and leader epochs that were used twice or went back."""
    for (topic, number), lives in doctor.facts.incarnations.items():
        of: dict[str, Any] = {"topic": topic, "partition": number}
        name = f"{topic}-{number}"
        for life in lives:
            steps = life.steps
            if len(steps) < _TWO:
                continue
            yield from _unclean(doctor, name, of, life)
            leaders: dict[int, dict[int, int]] = defaultdict(dict)
            for sighting in life.sightings:
                state = sighting.state
                if _was_applied(doctor.facts, sighting.body, (topic, number)):
                    leaders[state.leader_epoch].setdefault(state.leader, sighting.ts)
            for epoch, of_epoch in leaders.items():
                if len(of_epoch) > 1:
                    text = f"Leader epoch {epoch} of {name} was used for the leaders {_ids(of_epoch)}"
                    yield doctor.finding("KP013", text, max(of_epoch.values()), **of)
            yield from _back(doctor, name, of, life)


def _was_applied(facts: Facts, body: Body, partition: tuple[str, int]) -> bool:
    return any(facts.accepted(body, broker, partition) for broker in body.told)


def _unclean(doctor: _Doctor, name: str, of: dict[str, Any], life: Incarnation) -> Iterator[Finding]:
    found: dict[int, int] = {}
    recovering: bool | None = None
    by_epoch: dict[int, State] = {}
    for sighting in life.steps:
        state = sighting.state
        if state.recovering is not None:
            if state.recovering and recovering is False and state.leader != NO_LEADER:
                found.setdefault(state.leader_epoch, sighting.ts)
            recovering = state.recovering
        before = by_epoch.get(state.partition_epoch - 1)
        if (
            before is not None
            and state.leader not in (NO_LEADER, before.leader)
            and before.leader_epoch < state.leader_epoch
            and before.isr
            and state.leader not in before.isr
        ):
            found.setdefault(state.leader_epoch, sighting.ts)
        by_epoch[state.partition_epoch] = state
    for epoch, ts in found.items():
        states = (step.state for step in life.steps if step.state.leader_epoch == epoch)
        leader = next(state.leader for state in states if state.leader != NO_LEADER)
        text = f"Broker {leader} was elected leader of {name} (leader epoch {epoch}) without having been in sync"
        yield doctor.finding("KP011", text, ts, ts, **of)


def _back(doctor: _Doctor, name: str, of: dict[str, Any], life: Incarnation) -> Iterator[Finding]:
    """Brokers that accepted a lower leader epoch after a higher one.

    Both in requests of one API, or the lower one in UpdateMetadata after LeaderAndIsr: LeaderAndIsr goes first in each
    batch, but it may be refused or wait for another capture point, so that the opposite proves nothing.
    """
    if len({sighting.state.leader_epoch for sighting in life.sightings}) < _TWO:
        return
    partition = of["topic"], of["partition"]
    found: dict[Any, tuple[int, int, int]] = {}
    times = [sighting.ts for sighting in life.sightings]
    highest = list(accumulate((sighting.state.leader_epoch for sighting in life.sightings), max))
    for low in life.sightings:
        earlier = bisect_left(times, max((last for _first, last in low.body.told.values()), default=0))
        if not earlier or highest[earlier - 1] <= low.state.leader_epoch:
            continue  # no higher epoch was told before the last broker was told this one
        for high in life.sightings[:earlier]:
            if low.body.api_key != ApiKey.LEADER_AND_ISR or high.body.api_key == ApiKey.LEADER_AND_ISR:
                if high.state.leader_epoch <= low.state.leader_epoch:
                    continue
                for broker, (_first, last) in low.body.told.items():
                    since = high.body.told.get(broker)
                    if since is None or since[0] >= last:
                        continue
                    if doctor.facts.accepted(low.body, broker, partition) and doctor.facts.accepted(
                        high.body, broker, partition
                    ):
                        found.setdefault(broker, (high.state.leader_epoch, low.state.leader_epoch, last))
    for broker, (higher, lower, ts) in found.items():
        text = f"{_the(broker)} was told leader epoch {lower} of {name} after {higher}"
        yield doctor.finding("KP012", text, ts, ts, broker=broker, **of)


def _leadership(doctor: _Doctor) -> Iterator[Finding]:
    """Two leaders at one time, and leaders that were named to clients and not told."""
    for partition, lives in doctor.facts.incarnations.items():
        for life in lives:
            if len({sighting.state.leader_epoch for sighting in life.sightings}) < _TWO:
                continue
            told = [s for s in life.sightings if s.body.api_key == ApiKey.LEADER_AND_ISR]
            for before, after in _reigns(life):
                when = doctor.facts.told_of(s.body for s in told if s.state.leader_epoch >= after.state.leader_epoch)
                if before is not None and after.state.leader != NO_LEADER:
                    yield from _two_leaders(doctor, partition, told, when, before, after)
                    yield from _named_not_told(doctor, partition, life, when, after)


def _two_leaders(
    doctor: _Doctor,
    partition: Partition,
    told: list[Sighting],
    when: dict[Any, int],
    before: Sighting,
    after: Sighting,
) -> Iterator[Finding]:
    """The former leader, if a request made it leader and no request named the next leader to it."""
    facts, limit = doctor.facts, doctor.us("told")
    former, leader, epoch = before.state.leader, after.state.leader, after.state.leader_epoch
    took = when.get(leader)
    if leader == former or took is None or former not in facts.spans:
        return
    led = (s.body for s in told if s.state.leader == former and s.state.leader_epoch < epoch)
    if not any(facts.accepted(body, former, partition) for body in led):
        return
    heard = [ts for ts in (when.get(former), facts.stopped(partition).get(former)) if ts is not None]
    since = min((ts for ts in heard if ts >= before.ts), default=None)
    if since is not None and since - took <= limit:
        return
    if facts.spans[former].covers(after.ts, took + limit) and not doctor.facts.is_settling([former], took + limit):
        name = f"{partition[0]}-{partition[1]}"
        text = f"Brokers {former} and {leader} both led {name}: {former} was not told of leader epoch {epoch}"
        yield doctor.finding("KP014", text, took, since, about=former, topic=partition[0], partition=partition[1])


def _named_not_told(
    doctor: _Doctor, partition: Partition, life: Incarnation, when: dict[Any, int], after: Sighting
) -> Iterator[Finding]:
    """The leader, if UpdateMetadata names it to clients and LeaderAndIsr has not told it."""
    limit = doctor.us("told")
    leader, epoch = after.state.leader, after.state.leader_epoch
    updates = (s for s in life.sightings if s.body.api_key == ApiKey.UPDATE_METADATA)
    at = min((s.ts for s in updates if (s.state.leader, s.state.leader_epoch) == (leader, epoch)), default=None)
    heard = when.get(leader)
    if at is None or (heard is not None and heard - at <= limit) or leader not in doctor.facts.spans:
        return
    if doctor.facts.spans[leader].covers(at, at + limit) and not doctor.facts.is_settling([leader], at + limit):
        name = f"{partition[0]}-{partition[1]}"
        text = f"Broker {leader} was named leader of {name} (leader epoch {epoch}) and not told to lead"
        text += "" if heard is None else f" for {(heard - at) / _SECOND:.0f} s"
        yield doctor.finding("KP015", text, at, heard, broker=leader, topic=partition[0], partition=partition[1])


def _reigns(life: Incarnation) -> Iterator[tuple[Sighting | None, Sighting]]:
    """The first state of each leader epoch, with the last of the one before."""
    before: Sighting | None = None
    for step in life.steps:
        if before is None or before.state.leader_epoch != step.state.leader_epoch:
            yield before, step
        before = step


def _flaps(doctor: _Doctor) -> Iterator[Finding]:
    window = int(doctor.limit("flap-minutes") * _MINUTE)
    for what, (topic, number), most, times, _leaders in flapping(doctor.facts, window, doctor.limit("flaps")):
        rule = "KP016" if what == "leader" else "KP022"
        text = f"The {what} of {topic}-{number} changed {most} times within {window // _MINUTE} minutes"
        yield doctor.finding(rule, text, times[0], times[-1], count=most, topic=topic, partition=number)


# ---- brokers ----


def _behind(doctor: _Doctor) -> Iterator[Finding]:
    behind: dict[int, list[Behind]] = defaultdict(list)
    for one in brokers_behind(doctor.facts, doctor.us("told")):
        behind[one.broker].append(one)
    for broker, some in behind.items():
        names = _named([f"{topic}-{number}" for _broker, (topic, number), _newest, _told in some])
        text = f"Broker {broker} was never told the newest state of {names}"
        yield doctor.finding("KP030", text, min(one.newest.ts for one in some), count=len(some), broker=broker)


def _updates(doctor: _Doctor) -> Iterator[Finding]:
    """Updates that a broker missed, or got late."""
    missed: dict[int, list[int]] = defaultdict(list)
    for broker, body in missed_updates(doctor.facts, doctor.us("told")):
        missed[broker].append(body.first)
    for broker, times in missed.items():
        text = f"Broker {broker} missed {_counted(len(times), 'metadata update')} that most others got"
        yield doctor.finding("KP031", text, min(times), max(times), count=len(times), broker=broker)
    late: dict[Any, list[Late]] = defaultdict(list)
    for one in late_updates(doctor.facts, int(doctor.limit("late-ms") * 1000), doctor.limit("late-factor")):
        late[one.broker].append(one)
    for broker, some in late.items():
        worst = max(some, key=lambda one: one.delay)
        updates = _counted(len(some), "metadata update")
        text = f"{_the(broker)} was told {updates} late, by up to {worst.delay / _SECOND:.1f} s"
        yield doctor.finding("KP032", text, min(one.ts for one in some), worst.ts, count=len(some), broker=broker)


def _answers(doctor: _Doctor) -> Iterator[Finding]:
    """Unanswered, refused and unreadable requests, and those that were sent again."""
    facts = doctor.facts
    unanswered: dict[Any, list[Request]] = defaultdict(list)
    refused: dict[Any, list[Request]] = defaultdict(list)
    unreadable: dict[Any, list[Request]] = defaultdict(list)
    again: dict[Any, list[Request]] = defaultdict(list)
    open_ones: dict[tuple[Any, ...], bytes] = {}
    for request in facts.requests:
        broker = request.broker_id
        key = (broker, request.body_id, request.broker_epoch)
        if request.body_id is not None and open_ones.get(key, request.conn_id) != request.conn_id:
            again[broker].append(request)
            del open_ones[key]
        if request.decode_error is not None:
            unreadable[broker].append(request)
        elif request.response_frame_id is None:
            unanswered[broker].append(request)
            if request.body_id is not None:
                open_ones[key] = request.conn_id
        elif request.error_code and request.error_code not in _STALE_CODES:
            refused[broker].append(request)
    texts = (
        ("KP033", unanswered, "left {} unanswered"),
        ("KP050", refused, "refused {}: {why}"),
        ("KP052", again, "was sent {} again over a newer connection"),
        ("KP053", unreadable, "has {} whose bytes cannot be read: {why}"),
    )
    for rule, groups, text in texts:
        for broker, requests in groups.items():
            codes = Counter(r.error_code for r in requests if r.error_code)
            why = requests[0].decode_error
            if rule == "KP050":
                why = ", ".join(error_name(code) for code, _n in codes.most_common())
            said = f"{_the(broker)} {text.format(_counted(len(requests), 'request'), why=why)}"
            yield doctor.finding(rule, said, requests[0].ts, requests[-1].ts, count=len(requests), broker=broker)


def _slow(doctor: _Doctor) -> Iterator[Finding]:
    latencies: dict[Any, list[int]] = defaultdict(list)
    for request in doctor.facts.requests:
        if request.latency_us is not None:
            latencies[request.broker_id].append(request.latency_us)
    figures = {}
    for broker, values in latencies.items():
        values.sort()
        figures[broker] = len(values), values[len(values) // 2], values[-(len(values) // 100) - 1]
    factor, least = doctor.limit("slow-factor"), doctor.limit("slow-answers")
    for broker, (count, middle, p99) in figures.items():
        peers = [f for other, f in figures.items() if other != broker and f[0] >= _FEW_ANSWERS]
        if count < least or len(peers) < _TWO or p99 < doctor.limit("slow-ms") * 1000:
            continue
        if p99 > factor * median(f[2] for f in peers) and middle > factor * median(f[1] for f in peers):
            text = (
                f"{_the(broker)} answers slowly: half of its answers took over {middle / 1000:.1f} ms, one in a "
                f"hundred over {p99 / 1000:.1f} ms"
            )
            yield doctor.finding("KP034", text, doctor.facts.begin, count=count, broker=broker)


def _registrations(doctor: _Doctor) -> Iterator[Finding]:
    of: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for broker, former, epoch, ts in doctor.facts.registrations:
        of[broker].append((ts, former, epoch))
    for broker, rows in of.items():
        ts, former, epoch = rows[-1]
        times = _counted(len(rows), "time")
        text = f"{_the(broker)} registered again {times}, last with broker epoch {epoch} after {former}"
        yield doctor.finding("KP035", text, rows[0][0], ts, count=len(rows), broker=broker)


# ---- topics ----


def _deletions(doctor: _Doctor) -> Iterator[Finding]:
    facts = doctor.facts
    removed: dict[tuple[str, int], dict[Any, int]] = defaultdict(dict)
    for body in facts.bodies:
        if body.api_key == ApiKey.LEADER_AND_ISR and body.request.is_kraft_controller and body.request.type == _FULL:
            kept = {(topic, number) for topic, number, _id, _state in body.states}
            for partition in facts.incarnations.keys() - kept:  # a migrating broker moves aside what is not in it
                for broker, (_first, last) in body.told.items():
                    removed[partition][broker] = max(last, removed[partition].get(broker, last))
        if body.api_key == ApiKey.STOP_REPLICA:
            for topic, number, _id, delete in body.states:
                if not delete:
                    continue
                for broker, (_first, last) in body.told.items():
                    if facts.accepted(body, broker, (topic, number)):
                        removed[topic, number][broker] = max(last, removed[topic, number].get(broker, last))
    yield from _cancelled(doctor, removed)
    found: dict[tuple[str, str, Any], list[int]] = defaultdict(list)
    unsure: set[tuple[str, Any]] = set()
    for (topic, number), lives in facts.incarnations.items():
        for place, life in enumerate(lives):
            later = lives[place + 1] if place + 1 < len(lives) and lives[place + 1].sightings else None
            if not life.sightings or (life.deleted is None and later is None):
                continue
            deleted = life.deleted if life.deleted is not None else later.sightings[0].ts if later else facts.end
            for broker in life.newest.state.replicas:
                gone = removed[topic, number].get(broker)
                if gone is not None and gone >= life.sightings[0].ts and (later is None or gone >= deleted - _MINUTE):
                    continue
                returned = _returned(doctor, broker, deleted)
                rule = "KP042" if later is not None else "KP041" if returned else "KP040"
                found[rule, topic, broker].append(deleted)
                if (topic, number, broker) in facts.unanswered_deletions:
                    unsure.add((topic, broker))
    verbs = {
        "KP040": "has not accepted the deletion of {}",
        "KP041": "never got the deletion of {} and is back: its log stays",
        "KP042": "never accepted the deletion of {}, whose name is used again",
    }
    for (rule, topic, broker), times in found.items():
        if facts.end - min(times) <= doctor.us("told"):
            continue
        text = f"Broker {broker} {verbs[rule].format(topic)}"
        lacks = "the capture has no answer to a deletion that was sent" if (topic, broker) in unsure else ""
        yield doctor.finding(rule, text, min(times), count=len(times), broker=broker, topic=topic, lacks=lacks)


def _cancelled(doctor: _Doctor, removed: Mapping[tuple[str, int], Mapping[Any, int]]) -> Iterator[Finding]:
    """Living brokers that hosted a partition, are none of its replicas any more and never accepted to delete it."""
    facts = doctor.facts
    for (topic, number), life in facts.present.items():
        hosts: dict[Any, int] = {}
        for sighting in life.sightings:
            if sighting.body.api_key == ApiKey.LEADER_AND_ISR:
                for broker, (_first, last) in sighting.body.told.items():
                    if broker in sighting.state.replicas and facts.accepted(sighting.body, broker, (topic, number)):
                        hosts[broker] = max(last, hosts.get(broker, last))
        for broker in (hosts.keys() & facts.alive).difference(life.newest.state.replicas):
            since = life.since(lambda state, broker=broker: broker not in state.replicas)
            if removed.get((topic, number), {}).get(broker, 0) < hosts[broker] and facts.end - since > doctor.us(
                "told"
            ):
                text = f"Broker {broker} is no replica of {topic}-{number} any more and never deleted it: its log stays"
                yield doctor.finding("KP041", text, since, broker=broker, topic=topic, partition=number)


def _returned(doctor: _Doctor, broker: int, ts: int) -> bool:
    """Whether a broker took part again after a deletion that it did not get."""
    return any(
        request.ts > ts and request.error_code == 0 and doctor.facts.end - request.ts > doctor.us("told")
        for request in doctor.facts.requests
        if request.broker_id == broker
    )


def _partition_errors(doctor: _Doctor) -> Iterator[Finding]:
    """Partition errors that were never put right, and topic ids that differ."""
    facts = doctor.facts
    if not facts.partition_errors:
        return
    open_ones: dict[tuple[Any, str, int], tuple[Request, int]] = {}
    differ: dict[tuple[Any, str, int], list[int]] = defaultdict(list)
    bodies = {body.request.body_id: body for body in facts.bodies}
    for request in facts.requests:
        if request.error_code != 0 or request.api_key == ApiKey.UPDATE_METADATA:
            continue
        errors = facts.partition_errors.get(request.frame_id, {})
        broker = request.broker_id
        if open_ones and request.body_id in bodies:
            for topic, number, _id, _state in bodies[request.body_id].states:
                if (topic, number) not in errors:
                    open_ones.pop((broker, topic, number), None)
        for (topic, number), code in errors.items():
            if code == ErrorCode.INCONSISTENT_TOPIC_ID:
                differ[broker, topic, number].append(request.ts)
            elif code not in _HARMLESS:
                open_ones[broker, topic, number] = request, code
            else:
                open_ones.pop((broker, topic, number), None)
    for (broker, topic, number), times in differ.items():
        text = f"{_the(broker)} has {topic}-{number} with another topic id"
        yield doctor.finding(
            "KP043", text, times[0], times[-1], count=len(times), broker=broker, topic=topic, partition=number
        )
    for (broker, topic, number), (request, code) in open_ones.items():
        text = (
            f"{_the(broker)} refused {topic}-{number} in {api_name(request.api_key)} with {error_name(code)}, "
            "and accepted it in no later request"
        )
        yield doctor.finding("KP051", text, request.ts, request.ts, broker=broker, topic=topic, partition=number)


_HARMLESS: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)


# ---- captures ----


def _losses(doctor: _Doctor) -> Iterator[Finding]:
    for row in doctor.facts.captures:
        if row["partial_starts"]:
            text = f"{row['file']} begins inside a request or response of {_counted(row['partial_starts'], 'stream')}"
            yield doctor.finding("KP060", text, doctor.facts.begin, doctor.facts.begin, count=row["partial_starts"])
        if row["gaps"] or row["cut_packets"] or row["ip_fragments"] or row["bad_checksums"]:
            text = f"{row['file']} lacks {row['gap_bytes']:,} bytes in {_counted(row['gaps'], 'gap')}"
            yield doctor.finding("KP061", text, doctor.facts.begin, count=row["gaps"])
        if row["without_handshake"]:
            text = (
                f"{row['file']} lacks the beginning of {row['without_handshake']:,} of "
                f"{_counted(row['kafka_connections'], 'Kafka connection')}: what passed on them before is not in it"
            )
            begin = doctor.facts.begin
            yield doctor.finding("KP062", text, begin, begin, count=row["without_handshake"])
        if row["not_read"]:
            packets = {found["protocol"]: found["packets"] for found in row["not_read"]}
            text = f"{row['file']}: {not_read_text(packets)}; requests in them are missing here"
            yield doctor.finding("KP064", text, doctor.facts.begin, count=sum(packets.values()))
        if unusable := row["bad_inputs"] - row["bad_checksums"]:
            text = f"{row['file']}: {_counted(unusable, 'piece')} of the file could not be used"
            yield doctor.finding("KP065", text, doctor.facts.begin, count=unusable)
        if row["untimed_packets"]:
            text = (
                f"{row['file']}: {_counted(row['untimed_packets'], 'packet')} "
                f"{'has' if row['untimed_packets'] == 1 else 'have'} no time: the order of requests is known, when "
                "they passed is not"
            )
            yield doctor.finding("KP066", text, doctor.facts.begin, count=row["untimed_packets"])


def _clocks(doctor: _Doctor) -> Iterator[Finding]:
    clocks = doctor.facts.clocks
    files = {row["capture"]: row["file"] for row in reversed(doctor.facts.captures)}
    references = Counter(clocks[name].reference for name in files if name in clocks)
    reference = max(references, key=lambda name: (references[name], name), default="")
    for row in doctor.facts.captures:
        clock = clocks.get(row["capture"])
        if clock is None:
            continue
        ahead = max((clock.ahead(ts) for ts in (clock.anchor_us, doctor.facts.end)), key=abs)
        if abs(ahead) >= _SECOND:
            drift = f", and gains {clock.drift_ppm:+.0f} us a second" if clock.drift_ppm else ""
            text = (
                f"The clock of {row['file']} is {abs(ahead) / _SECOND:.1f} s {'ahead of' if ahead > 0 else 'behind'} "
                f"that of {files.get(clock.reference, 'another host')}{drift}; this is taken off its times"
            )
            yield doctor.finding("KP063", text, doctor.facts.begin)
        elif clock.reference != reference:
            text = f"The clock of {row['file']} cannot be compared with that of others: they share too few requests"
            yield doctor.finding("KP063", text, doctor.facts.begin)


_RULES: Final[tuple[Callable[[_Doctor], Iterator[Finding]], ...]] = (
    _stale, _rivals, _went_back, _migration, _states, _elections, _leadership, _flaps, _behind, _updates, _answers,
    _slow, _registrations, _deletions, _partition_errors, _losses, _clocks,
)  # fmt: skip


def findings(facts: Facts, limits: Mapping[str, float] | None = None) -> list[Finding]:
    """Apply all rules to the facts; the worst findings first, then the earliest.

    Args:
        facts: Of the captures of one cluster.
        limits: Limits by name that differ from their default.
    """
    doctor = _Doctor(facts, {name: limit.default for name, limit in LIMITS.items()} | dict(limits or {}))
    found = [finding for rule in _RULES for finding in rule(doctor)] if facts.requests else []
    return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.rule, f.first, f.text))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _ids(brokers: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, sorted(brokers))) + "]"


def _the(broker: Any) -> str:
    """A broker's name at the begin of a sentence."""
    name = broker_name(broker)
    return name[:1].upper() + name[1:]


def _named(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
