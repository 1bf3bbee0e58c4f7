"""Decides how the states of a partition follow one another: their order, their end, a new beginning, what changes.

All who compare states ask here. See ``docs/verdicts.md``. Times are us since 1970.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from kproto.tables.bodies import RequestPartition

BEING_DELETED: Final = -2
"""The leader in UpdateMetadata of a topic that is being deleted."""

NO_LEADER: Final = -1
"""The leader of a partition that has none."""


def micros(moment: Any) -> int:
    """Return a time of a table, a datetime or us since 1970, in us."""
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1e6)


def most_within(times: Sequence[int], window: float) -> int:
    """The most of ascending times that lie within a window."""
    return max((bisect_left(times, ts + window) - place for place, ts in enumerate(times)), default=0)


def often_within(times: Sequence[int], window: float, least: float) -> list[int]:
    """Those of ascending times of which at least ``least`` lie within a window."""
    found: list[int] = []
    ahead = 0
    for place, ts in enumerate(times):
        beyond = bisect_left(times, ts + window)
        if beyond - place >= least:
            found += times[max(ahead, place) : beyond]
            ahead = beyond
    return found


INCREMENTAL: Final = 1
"""The type of a KRaft controller's request that holds some partitions, those that have changed."""

FULL: Final = 2
"""The type of a KRaft controller's request that holds all partitions of a broker."""

STATE_ORDER: Final = ("leader_epoch", "partition_epoch")
"""The order of a partition's states from its creation to its deletion; clocks only date them."""

FIRST_EPOCHS: Final = (0, 0)
"""The epochs of a new partition's first state, in ``STATE_ORDER``."""

_UNTOLD: Final = 1 << 31
FOREVER: Final = 1 << 62
"""A time after all others."""


def deletes(state: RequestPartition) -> bool:
    """Whether a request says with this state that the partition is deleted: its log, or its whole topic."""
    return state.delete or state.leader == BEING_DELETED


class State(NamedTuple):
    """A partition's state in LeaderAndIsr or UpdateMetadata.

    ISR and replicas are empty, and the partition epoch is -1, where a log does not tell them: nothing follows from it.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] | None
    removing_replicas: tuple[int, ...]
    is_new: bool
    recovering: bool | None
    unclean: bool | None = None

    @property
    def epochs(self) -> tuple[int, int]:
        """The order of states: leader epoch, then partition epoch."""
        return self.leader_epoch, self.partition_epoch

    @property
    def latest(self) -> tuple[int, int]:
        """The highest epochs that it may have: its own, unless a log does not tell the partition epoch."""
        return self.leader_epoch, _UNTOLD if self.partition_epoch < 0 else self.partition_epoch


class Request(NamedTuple):
    """A row of ``requests``, ``ts`` in us since 1970; ``broker_id`` is the address as text where no id is known."""

    ts: int
    frame_id: bytes
    capture: str
    conn_id: bytes
    api_key: int
    api_version: int
    correlation_id: int
    controller_id: int | None
    controller_epoch: int
    broker_epoch: int | None
    is_kraft_controller: bool | None
    type: int | None
    live_brokers_id: bytes | None
    broker_id: Any
    server_ip: str
    server_port: int
    n_partitions: int | None
    body_id: bytes | None
    response_frame_id: bytes | None
    latency_us: int | None
    error_code: int | None
    unmatched_reason: str | None
    decode_error: str | None

    @property
    def reign(self) -> tuple[bool, int]:
        """The order of controllers: whether KRaft's log has it, where epochs are counted anew; and the epoch."""
        return self.api_key == ApiKey.FETCH, self.controller_epoch

    @property
    def is_logged(self) -> bool:
        """Whether a state-change log tells of it, which names no port."""
        return not self.server_port


class Body:
    """A distinct request body that some broker accepted.

    Attributes:
        api_key: The API.
        states: Its partitions' states; of StopReplica, whether the log is to be deleted.
        told: For each broker that accepted it, when it did first and last.
        unsure: The brokers that it was sent to at some time without their accepting it.
        first, last: When a broker first accepted it, and when one did last.
    """

    __slots__ = ("api_key", "first", "last", "live", "request", "states", "told", "unsure")

    def __init__(self, request: Request, live: frozenset[int] | None) -> None:
        self.api_key: int = request.api_key
        self.request = request
        self.live = live
        self.first: int = 0
        self.last: int = 0
        self.states: list[tuple[str, int, bytes | None, Any]] = []
        self.told: dict[Any, tuple[int, int]] = {}
        self.unsure: AbstractSet[Any] = frozenset()

    @property
    def sent(self) -> AbstractSet[Any]:
        """The brokers that it was sent to, whether they accepted it or not."""
        return self.told.keys() | self.unsure


class Sighting(NamedTuple):
    """A state in a body that a broker accepted, and when the first broker did."""

    ts: int
    body: Body
    state: State


class Told:
    """What a broker was told of a partition: the highest epochs of each state, and when it was first told."""

    def __init__(self, states: Iterable[tuple[tuple[int, int], int]]) -> None:
        told = sorted(states)
        self._epochs = [epochs for epochs, _ts in told]
        self._firsts = list(accumulate((ts for _epochs, ts in reversed(told)), min))[::-1]

    def first(self, epochs: tuple[int, int]) -> int | None:
        """When it was first told a state with these epochs or higher ones; None: never."""
        place = bisect_left(self._epochs, epochs)
        return self._firsts[place] if place < len(self._firsts) else None

    def has_lower(self, epochs: tuple[int, int]) -> bool:
        """Whether it was told a state with lower epochs."""
        return bool(self._epochs) and self._epochs[0] < epochs


class Incarnation:
    """A topic's partition from its creation to its deletion.

    Attributes:
        topic_id: The first id that it was told with; None where no version has one.
        ids: All ids that it was told with: a tool that writes ZooKeeper may change the id of a living topic.
        sightings: Its states in the order in which brokers were first told.
        deleted: The time of the first UpdateMetadata that marks the topic as being deleted; None: there is none.
    """

    def __init__(self, topic_id: bytes | None) -> None:
        self.topic_id: bytes | None = None
        self.ids: set[bytes] = set()
        self.sightings: list[Sighting] = []
        self.deleted: int | None = None
        self.learn(topic_id)

    def learn(self, topic_id: bytes | None) -> None:
        """Add an id."""
        if topic_id is not None:
            self.topic_id = self.topic_id or topic_id
            self.ids.add(topic_id)

    def fits(self, topic_id: bytes | None, epochs: tuple[int, int], ts: int, *, is_new: bool | None = None) -> bool:
        """Whether a state that was first told at a time may belong to this incarnation of its partition.

        A new incarnation needs evidence: the deletion of this one, or a first state that LeaderAndIsr calls new.
        Another topic id alone is none. While a deletion waits, the partition may still be told with higher epochs; a
        new topic begins with epochs of 0.

        Args:
            topic_id, epochs, ts: See ``incarnation_of``.
            is_new: Whether LeaderAndIsr calls the replica new; None: not known, so that another id suffices.
        """
        if topic_id is not None and topic_id in self.ids:
            return True
        ended = self.deleted is not None and ts > self.deleted
        if topic_id is None or not self.ids:
            return not ended or epochs != FIRST_EPOCHS
        return not ended and is_new is not None and not (is_new and epochs == FIRST_EPOCHS)

    @cached_property
    def steps(self) -> list[Sighting]:
        """The distinct states in the order of their epochs, with the time of their first request, the newest last.

        What UpdateMetadata does not say of a state comes from LeaderAndIsr.
        """
        first: dict[tuple[Any, ...], Sighting] = {}
        for sighting in self.sightings:
            state = sighting.state
            key = state.epochs, state.leader, frozenset(state.isr)
            known = first.setdefault(key, sighting)
            if known is not sighting and (state.recovering is not None or state.adding_replicas is not None):
                of = known.state
                is_other = bool(of.replicas and state.replicas) and set(of.replicas) != set(state.replicas)
                takes = of.adding_replicas is None and not is_other
                both = of._replace(
                    adding_replicas=(state if takes else of).adding_replicas,
                    removing_replicas=of.removing_replicas or state.removing_replicas,
                    recovering=state.recovering if of.recovering is None else of.recovering,
                    is_new=of.is_new or state.is_new,
                    unclean=of.unclean or state.unclean,
                )
                first[key] = known._replace(state=both)
        steps = sorted(first.values(), key=lambda sighting: (sighting.state.epochs, sighting.ts))
        steps = steps if all(step.state.isr and step.state.replicas for step in steps) else _completed(steps)
        is_reassigned = any(step.state.adding_replicas or step.state.removing_replicas for step in steps)
        return _reassigned(steps) if is_reassigned else steps

    @property
    def newest(self) -> Sighting:
        """The newest state."""
        return self.steps[-1]

    @property
    def last_alive(self) -> int:
        """When it was told last before any deletion: while one waits, its states go on to change."""
        return max((s.ts for s in self.sightings if self.deleted is None or s.ts < self.deleted), default=0)

    def told(self, broker: Any, by_updates: bool) -> Told:  # a key of caches
        """What a broker was told of the partition by UpdateMetadata, or by other requests."""
        return Told(
            (sighting.state.latest, sighting.body.told[broker][0])
            for sighting in self.sightings
            if broker in sighting.body.told and (sighting.body.api_key == ApiKey.UPDATE_METADATA) == by_updates
        )

    def leader_at(self, ts: int) -> int | None:
        """The leader that the newest state told by a time names; None: none was told."""
        place = bisect_right(self.steps, ts, key=lambda step: step.ts)
        return self.steps[place - 1].state.leader if place else None

    @cached_property
    def unclean_elections(self) -> list[Sighting]:
        """The first state of each leader that was not in sync before, by its leader epoch.

        A metadata log says so, and LeaderAndIsr from version 6 on, where a partition begins to recover; else the leader
        is not in the ISR of the state whose partition epoch is one less.
        """
        found: dict[int, Sighting] = {}
        recovering: bool | None = None
        by_epoch: dict[int, State] = {}
        for sighting in self.steps:
            state = sighting.state
            if state.unclean:
                found.setdefault(state.leader_epoch, sighting)
            if state.recovering is not None:
                if state.recovering and recovering is False and state.leader != NO_LEADER:
                    found.setdefault(state.leader_epoch, sighting)
                recovering = state.recovering
            before = by_epoch.get(state.partition_epoch - 1)
            if (
                before is not None
                and state.unclean is None
                and state.leader not in (NO_LEADER, before.leader)
                and before.leader_epoch < state.leader_epoch
                and before.isr
                and state.leader not in before.isr
            ):
                found.setdefault(state.leader_epoch, sighting)
            by_epoch[state.partition_epoch] = state
        return list(found.values())

    def stretches(self, holds: Callable[[State], bool]) -> list[Stretch]:
        """The times during which the states hold something, in order."""
        found: list[Stretch] = []
        since: int | None = None
        now = 0
        for step in self.steps:
            now = max(now, step.ts)  # clocks only date the states
            if holds(step.state):
                since = now if since is None else since
            elif since is not None:
                found.append(Stretch(since, now))
                since = None
        if since is not None:
            found.append(Stretch(since, None if self.deleted is None else max(since, self.deleted)))
        return found


def _reassigned(steps: list[Sighting]) -> list[Sighting]:
    """Add to states that UpdateMetadata alone tells what a reassignment changes: it goes on with the same replicas.

    With others it has ended; whether another has begun is unknown where none was under way.
    """
    found = steps[:1]
    for step in steps[1:]:
        before, state = found[-1].state, step.state
        if state.adding_replicas is None and before.adding_replicas is not None:
            goes_on = set(state.replicas) == set(before.replicas)
            adding, removing = (before.adding_replicas, before.removing_replicas) if goes_on else ((), ())
            if goes_on or before.adding_replicas or before.removing_replicas:
                state = state._replace(adding_replicas=adding, removing_replicas=removing)
        found.append(step._replace(state=state))
    return found


def _completed(steps: list[Sighting]) -> list[Sighting]:
    """Join states that a log told in part with those of the same epochs; replicas stay until others are told.

    Before the first that are told, those were the replicas which no reassignment adds.
    """
    told = {(step.state.epochs, step.state.leader): step.state.isr for step in steps if step.state.isr}
    first = next((step.state for step in steps if step.state.replicas), steps[0].state)
    replicas = tuple(broker for broker in first.replicas if broker not in (first.adding_replicas or ()))
    found: list[Sighting] = []
    for step in steps:
        state = step.state
        replicas = state.replicas or replicas
        isr = state.isr or told.get((state.epochs, state.leader), ())
        before = found[-1].state if found else None
        if before is not None and (before.epochs, before.leader, set(before.isr)) == (
            state.epochs,
            state.leader,
            set(isr),
        ):
            continue
        found.append(step._replace(state=state._replace(isr=isr, replicas=replicas)))
    return found


class Stretch(NamedTuple):
    """The time during which a condition held; ``until`` None: it lasts."""

    since: int
    until: int | None

    def length(self, end: int) -> int:
        """Its length in us; ``end`` is that of the capture."""
        return (end if self.until is None else self.until) - self.since

    def meets(self, first: int, last: int) -> bool:
        """Whether it held at some time between two."""
        return self.since <= last and (self.until is None or first <= self.until)


def first_within(stretches: Sequence[Stretch], first: int, last: int) -> Stretch | None:
    """The first of stretches in order that ends after a time and began by another; None: there is none."""
    place = bisect_right(stretches, first, key=lambda each: FOREVER if each.until is None else each.until)
    return stretches[place] if place < len(stretches) and stretches[place].since <= last else None


class Incarnations(list[Incarnation]):
    """The incarnations of one partition, in order; each is found by its topic ids."""

    def __init__(self) -> None:
        super().__init__()
        self._by_id: dict[bytes, Incarnation] = {}

    def of(
        self, topic_id: bytes | None, epochs: tuple[int, int], ts: int, *, is_new: bool | None = None
    ) -> Incarnation:
        """Return the incarnation that a state belongs to: the newest if it fits, else a new one.

        Args:
            topic_id: With which the state was told; None where the version has none.
            epochs: Of the state, in ``STATE_ORDER``.
            ts: When the first broker was told of it; states come in this order.
            is_new: See ``Incarnation.fits``.
        """
        life = self._by_id.get(topic_id) if topic_id is not None else None
        if life is None and self and self[-1].fits(topic_id, epochs, ts, is_new=is_new):
            life = self[-1]
        if life is None:
            life = Incarnation(topic_id)
            self.append(life)
        life.learn(topic_id)
        if topic_id is not None:
            self._by_id[topic_id] = life
        return life

    def end(self, topic_id: bytes | None, ts: int) -> None:
        """Note that brokers were told at a time that the topic is being deleted."""
        life = self._by_id.get(topic_id) if topic_id is not None else None
        if life is None:
            if not self:
                self.append(Incarnation(topic_id))
            life = self[-1]
        if life.deleted is None:
            life.deleted = ts
