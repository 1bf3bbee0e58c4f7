"""Tells what happened in a cluster, in order: controllers, brokers, elections, topics, reassignments, clocks and gaps.

Events are read from the facts, whether they are good or bad; the doctor's rules judge the same facts. Times are us
since 1970.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kproto.api import ApiKey
from kproto.error_codes import error_name
from kproto.text import counted, pasted
from kproto.verdicts.catalogue import LIMITS
from kproto.verdicts.epochs import broker_name, the_broker
from kproto.verdicts.facts import SHUTDOWN, named, was_named_before
from kproto.verdicts.states import FIRST_EPOCHS, NO_LEADER, micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.states import Incarnation, State

SOURCE: Final = "CAPTURE"
"""The word that stands for the captures or tables in an event's command."""

_SECOND: Final = 1_000_000
_AT_ONCE: Final = _SECOND
"""Changes of several partitions within this time, in us, are one event."""

_NAMES_TARGETS: Final = 3
"""The version of LeaderAndIsr that names added and removed replicas first."""

Kind = Literal[
    "controller", "broker left", "broker back", "broker new", "registered again", "no leader", "leader again",
    "unclean election", "topic created", "topic deleted", "reassignment begins", "reassignment ends", "clock", "gap",
    "connection failed", "resigned", "deletion waits", "reassignment taken up", "no quorum leader",
    "quorum leader again", "asked",
]  # fmt: skip


class ClusterEvent(NamedTuple):
    """Something that happened.

    Attributes:
        ts: When.
        kind: What, in a word or two.
        text: A sentence.
        command: The command that shows it; ``SOURCE`` stands for the captures.
        broker: The broker that it is about; its address where no id is known; None: none.
        topic, partition: The partition, or the topic alone.
    """

    ts: int
    kind: Kind
    text: str
    command: str
    broker: Any = None
    topic: str | None = None
    partition: int | None = None


def command_for(command: str, sources: Sequence[str]) -> str:
    """Return an event's command with the captures or tables in place of ``SOURCE``, to paste into a shell."""
    words = ((sources if word == SOURCE else (word,)) for word in shlex.split(command))
    return pasted(word for some in words for word in some)


def events(facts: Facts) -> list[ClusterEvent]:
    """Return what happened in a cluster, in the order of time."""
    found = [
        *_controllers(facts), *_brokers(facts), *_partitions(facts), *_topics(facts), *_reassignments(facts),
        *_clocks(facts), *_gaps(facts), *_of_controllers(facts), *_of_kraft(facts),
    ]  # fmt: skip
    return sorted(found, key=lambda event: (event.ts, event.kind, event.text))


def _query(question: str, *options: str) -> str:
    return shlex.join(["kproto", "query", SOURCE, question, *options])


def _controllers(facts: Facts) -> Iterator[ClusterEvent]:
    former: int | None = None
    why = {row[:2]: row[-1] for row in facts.rows("quorum_epochs")}
    for epoch, controller, since in sorted(facts.controllers, key=lambda one: (one.since, one.epoch)):
        name = f"Controller {controller} with epoch {epoch}"
        text = f"{name} is the first in the capture" if former is None else f"{name} takes over from {former}"
        text += f": {why[epoch, controller]}" if why.get((epoch, controller)) else ""
        yield ClusterEvent(since, "controller", text, _query("controllers"))
        former = controller


def _brokers(facts: Facts) -> Iterator[ClusterEvent]:
    """Brokers that leave the live brokers and come back, and those that register again without it."""
    back: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for broker, absences in facts.absences.items():
        show = _query("restarts", "--broker", str(broker))
        for since, until in absences:
            how = facts.how_it_left(broker, since)
            left = f"Broker {broker} leaves the live brokers{'; how, cannot be told' if how is None else f': {how}'}"
            yield ClusterEvent(since, "broker left", left, show, broker)
            if until is not None:
                text = f"Broker {broker} is back after {(until - since) / _SECOND:.1f} s"
                yield ClusterEvent(until, "broker back", text, show, broker)
                back[broker].append((since, until))
    known = facts.live_changes[0][1] if facts.live_changes else frozenset()
    first_named = _first_named(facts)
    for ts, live in facts.live_changes[1:]:
        for broker in live - known:
            back[broker].append((ts - SHUTDOWN, ts))  # it had left before the first list, or is new
            show = _query("restarts", "--broker", str(broker))
            if first_named.get(broker, ts) < ts:
                text = f"Broker {broker} is back; it had left before the first list of live brokers in the capture"
                yield ClusterEvent(ts, "broker back", text, show, broker)
            else:
                text = f"Broker {broker} is among the live brokers for the first time"
                yield ClusterEvent(ts, "broker new", text, show, broker)
        known |= live
    for broker, some in facts.lives_of.items():
        options = ("--broker", str(broker)) if isinstance(broker, int) else ()
        away = sorted(back[broker], reverse=True)
        known_until = 0  # it came back by then, as events above tell
        for life in (life for life in some if life.former is not None):
            while away and away[-1][0] <= life.first:
                known_until = max(known_until, away.pop()[1] + SHUTDOWN)
            if life.first <= known_until:
                continue
            text = f"{the_broker(broker)} registers again with broker epoch {life.epoch}: {life.shown_by}"
            yield ClusterEvent(life.first, "registered again", text, _query("restarts", *options), broker)


def _first_named(facts: Facts) -> dict[int, int]:
    """When a partition was first told to have a replica on each broker: such a broker was there before.

    That of a partition that is older than the captures was there before them, unless a reassignment adds it.
    """
    found: dict[int, int] = {}
    for _partition, life in facts.told_lives:
        first = life.steps[0].state
        if max(first.epochs) > 0:  # -1: a log does not tell it
            found |= dict.fromkeys(set(first.replicas).difference(first.adding_replicas or ()), 0)
        for sighting in life.sightings:
            for broker in sighting.state.replicas:
                found[broker] = min(sighting.ts, found.get(broker, sighting.ts))
    return found


def _partitions(facts: Facts) -> Iterator[ClusterEvent]:
    """Partitions that lose their leader and get one again, several at once; and unclean elections."""
    lost: list[tuple[int, Partition]] = []
    again: list[tuple[int, Partition]] = []
    for partition, life in facts.told_lives:
        for election in life.unclean_elections:
            state = election.state
            text = (
                f"Broker {state.leader} is elected leader of {named(partition)} (leader epoch {state.leader_epoch}) "
                "without having been in sync"
            )
            show = _query("leader", "--partition", named(partition))
            yield ClusterEvent(election.ts, "unclean election", text, show, state.leader, *partition)
        first = life.steps[0]
        for since, until in life.stretches(lambda state: state.leader == NO_LEADER):
            if since > first.ts or first.state.epochs == FIRST_EPOCHS:  # else it had none before the capture
                lost.append((since, partition))
            if until is not None and life.deleted != until:
                again.append((until, partition))
    kinds: tuple[tuple[Kind, list[tuple[int, Partition]], str], ...] = (
        ("no leader", lost, "no leader"), ("leader again", again, "a leader again"),
    )  # fmt: skip
    for kind, changes, what in kinds:
        for ts, some in _at_once(sorted(changes)):
            one = some[0] if len(some) == 1 else (None, None)
            options = ("--partition", named(some[0])) if len(some) == 1 else ()
            has = "has" if len(some) == 1 else "have"
            yield ClusterEvent(ts, kind, f"{_several(some)} {has} {what}", _query("offline", *options), None, *one)


def _topics(facts: Facts) -> Iterator[ClusterEvent]:
    created: dict[str, list[int]] = defaultdict(list)
    deleted: dict[str, list[tuple[int, tuple[Partition, Incarnation]]]] = defaultdict(list)
    for (topic, _number), life in facts.told_lives:
        first = life.steps[0]
        if first.state.epochs == FIRST_EPOCHS and (first.state.is_new or _is_told_anew(facts, life)):
            created[topic].append(first.ts)
    for partition, lives in facts.incarnations.items():
        for life in lives:  # of a partition that was last told before the capture, the deletion is all that is known
            if life.deleted is not None:
                deleted[partition[0]].append((life.deleted, (partition, life)))
    for topic, times in created.items():
        for ts, some in _at_once((ts, None) for ts in sorted(times)):
            text = f"Topic {topic} gets {counted(len(some), 'new partition')}"
            yield ClusterEvent(ts, "topic created", text, _query("leader", "--topic", topic), None, topic)
    for topic, ends in deleted.items():
        for ts, ended in _at_once(sorted(ends, key=lambda end: end[0])):
            text = f"Topic {topic} is deleted, {counted(len({partition for partition, _life in ended}), 'partition')}"
            show = shlex.join(["kproto", "inspect", SOURCE, "--deletes", "--topic", topic])
            yield ClusterEvent(ts, "topic deleted", text + _who_accepted(facts, ended), show, None, topic)


def _who_accepted(facts: Facts, ended: Sequence[tuple[Partition, Incarnation]]) -> str:
    """What to add to a deletion about the brokers that hold the partitions; nothing where that is not known."""
    shown = [(partition, life) for partition, life in ended if life.sightings]
    if len(shown) < len(ended) or any(life.newest.body.api_key == ApiKey.FETCH for _partition, life in shown):
        return ""  # in KRaft brokers delete what the log tells them to delete
    lacking = {
        broker
        for partition, life in shown
        for broker in life.newest.state.replicas
        if (facts.removals.last(partition, broker) or 0) < life.sightings[0].ts
    }
    if not lacking:
        return "; all holders accepted it"
    first = min(life.deleted or 0 for _partition, life in shown)
    since = min(life.last_alive for _partition, life in shown)
    last = max(first + _AT_ONCE, facts.end - _AT_ONCE)  # it may only just have been decided
    told, settled = (int(LIMITS[name].default * _SECOND) for name in ("told", "settled"))
    lacking = {
        broker
        for broker in lacking
        if not facts.may_hide(broker, first, last, _AT_ONCE, since)
        and (broker not in facts.spans or facts.spans[broker].began_before(last))  # it may only just be back
        and (
            not facts.took_part(broker, facts.back_since(broker, first, told), facts.end)
            or facts.shows_removal(broker, first, told, settled)
        )
    }
    if not lacking or not all(was_named_before(life) for _partition, life in shown):
        return ""
    return f"; brokers {sorted(lacking)} have not accepted it"


def _is_told_anew(facts: Facts, life: Incarnation) -> bool:
    """Whether a first state of LeaderAndIsr 0, which does not call replicas new, is that of a new partition.

    A broker that comes back is told its partitions too, but by an UpdateMetadata for it alone first.
    """
    first = life.steps[0].body
    if not any(s.body.api_key == ApiKey.LEADER_AND_ISR and s.body.request.api_version == 0 for s in life.sightings):
        return False
    is_for_all = first.live is None or 2 * len(first.told) >= len(first.live)
    return is_for_all and first.first - facts.shown_since > _AT_ONCE


def _reassignments(facts: Facts) -> Iterator[ClusterEvent]:
    for row in reassignments(facts):
        place = row.topic, row.partition
        show = _query("reassignments", "--partition", named(place))
        adds = f"adds replicas {sorted(row.added)}" if row.added else "begins"
        removes = f", removes {sorted(row.removed)}" if row.removed else ""
        text = f"A reassignment of {named(place)} {adds}{removes}"
        yield ClusterEvent(row.begin, "reassignment begins", text, show, None, *place)
        if row.end is not None and row.end > row.begin:
            text = f"The reassignment of {named(place)} ends after {(row.end - row.begin) / _SECOND:.1f} s"
            yield ClusterEvent(row.end, "reassignment ends", text, show, None, *place)


class Reassignment(NamedTuple):
    """A change of a partition's replicas; ``end`` None: new replicas are still being added."""

    topic: str
    partition: int
    begin: int
    end: int | None
    added: frozenset[int]
    removed: frozenset[int]
    replicas: tuple[int, ...]


def reassignments(facts: Facts) -> Iterator[Reassignment]:
    """Yield the changes of partitions' replicas, one for each partition and target.

    LeaderAndIsr names the replicas that are added and removed from version 3 on, and with them the target, however far
    the reassignment has come. Before, each change of the replicas counts; they come first and others go then, so that
    of one that does both the captures lack the parts. Where a version names them, a change whose begin is not in the
    captures is none: its target is unknown, as where UpdateMetadata alone tells of it and others may yet go.
    """
    for (topic, number), life in facts.told_lives:
        requests = (sighting.body.request for sighting in life.sightings)
        is_named = any(r.api_key == ApiKey.LEADER_AND_ISR and r.api_version >= _NAMES_TARGETS for r in requests)
        is_known = not is_named
        under_way: Reassignment | None = None
        before: State | None = None
        now = 0
        for step in life.steps:
            state = step.state
            now = max(now, step.ts)  # clocks only date the states
            former = under_way
            if state.adding_replicas is not None:
                added, removed = frozenset(state.adding_replicas), frozenset(state.removing_replicas)
                target = tuple(broker for broker in state.replicas if broker not in removed)
                under_way = Reassignment(topic, number, now, None, added, removed, target) if added or removed else None
            if former is not None and under_way is not None and former[4:] == under_way[4:]:
                under_way = former
            elif former is not None:
                yield former._replace(end=now)
            elif under_way is None and before is not None and is_known:
                old, new = frozenset(before.replicas), frozenset(state.replicas)
                if is_named and state.adding_replicas is None and old < new:
                    continue
                if old != new and (is_named or old < new or new < old):
                    yield Reassignment(topic, number, now, now, new - old, old - new, state.replicas)
            is_known = is_known or state.adding_replicas is not None
            before = state
        if under_way is not None:
            yield under_way if life.deleted is None else under_way._replace(end=max(under_way.begin, life.deleted))


def _clocks(facts: Facts) -> Iterator[ClusterEvent]:
    files = {row["capture"]: facts.file_of(row) for row in facts.captures}
    for name, clock in facts.clocks.items():
        ahead = clock.ahead(facts.begin)
        if abs(ahead) >= _SECOND and name in files:
            side = "ahead of" if ahead > 0 else "behind"
            reference = files.get(clock.reference, "another host")
            text = f"The clock of {files[name]} is {abs(ahead) / _SECOND:.1f} s {side} that of {reference}"
            yield ClusterEvent(facts.begin, "clock", text, f"kproto summary {SOURCE}")


def _of_kraft(facts: Facts) -> Iterator[ClusterEvent]:
    """The quorum without a leader, and administrators' requests."""
    show = _query("quorum-outages")
    for begin, end, *_more in facts.rows("quorum_outages"):
        since = micros(begin)
        yield ClusterEvent(since, "no quorum leader", "No leader of the quorum answers from here on", show)
        if end is not None:
            again = f"A leader of the quorum answers again after {(micros(end) - since) / _SECOND:.1f} s"
            yield ClusterEvent(micros(end), "quorum leader again", again, show)
    for asked, client, address, principal, topic, partition, change, error in facts.rows("admin_changes"):
        ts, who = micros(asked), f"{client or 'a client'} at {address}" + (f" ({principal})" if principal else "")
        what = change + (": no answer" if error is None else f": {error_name(error)}" if error else "")
        if topic is None:
            yield ClusterEvent(ts, "asked", f"{who} asks: {what}", _query("asked"))
            continue
        name = facts.shown("topic", topic)
        place = name if partition is None else named((name, partition))
        option = "--topic" if partition is None else "--partition"
        text = f"{who} asks of {place}: {what.replace(topic, name)}"
        yield ClusterEvent(ts, "asked", text, _query("asked", option, place), None, name, partition)


def _gaps(facts: Facts) -> Iterator[ClusterEvent]:
    for broker, holes in facts.holes.items():
        first = min(holes, key=lambda hole: hole.since)
        how_long = "from here on" if first.until is None else f"for {(first.until - first.since) / _SECOND:.1f} s"
        what = "Records of the metadata log" if broker == ":0" else f"Bytes of the connection to {broker_name(broker)}"
        text = f"{what} are missing {how_long}"
        yield ClusterEvent(first.since, "gap", text, f"kproto summary {SOURCE}", broker)


def _of_controllers(facts: Facts) -> Iterator[ClusterEvent]:
    """What only logs of controllers tell."""
    for event in facts.controller_events:
        controller, broker, topic, partition = (
            event[name] for name in ("controller_id", "broker_id", "topic", "partition")
        )
        ts, seconds = event["ts"], (event["last_ts"] - event["ts"]) / _SECOND
        match event["kind"]:
            case "connection failed":
                often = f", {event['times']:,} times within {seconds:.1f} s" if event["times"] > 1 else ""
                text = f"Controller {controller} cannot reach broker {broker}{often}"
                yield ClusterEvent(ts, "connection failed", text, _query("restarts", "--broker", str(broker)), broker)
            case "resigned":
                yield ClusterEvent(
                    ts, "resigned", f"Controller {controller} resigns", _query("controllers"), controller
                )
            case "deletion waits":
                text = f"The deletion of topic {topic} waits: a replica is offline, or could not be deleted"
                show = shlex.join(["kproto", "inspect", SOURCE, "--api", "StopReplica", "--topic", topic])
                yield ClusterEvent(ts, "deletion waits", text, show, None, topic)
            case "reassignment taken up":
                place = topic, partition
                show = _query("reassignments", "--partition", named(place))
                text = f"Controller {controller} takes up a reassignment of {named(place)}"
                yield ClusterEvent(ts, "reassignment taken up", text, show, None, *place)


def _at_once(changes: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, list[Any]]]:
    """Yield what changed at once, each time with the first; changes come in the order of time."""
    some: list[Any] = []
    begin = last = 0
    for ts, change in changes:
        if some and ts - last > _AT_ONCE:
            yield begin, some
            some = []
        begin, last = (begin if some else ts), ts
        some.append(change)
    if some:
        yield begin, some


def _several(partitions: list[Partition]) -> str:
    if len(partitions) == 1:
        return named(partitions[0])
    return f"{counted(len(partitions), 'partition')}, {named(partitions[0])} among them,"
