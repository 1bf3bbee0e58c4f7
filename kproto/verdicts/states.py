"""Decides how the states of a partition follow one another: their order, their end, a new beginning, what changes.

All who compare states ask here: folds call the functions, queries take the same rules as SQL, which DuckDB and Spark
both run. See ``docs/verdicts.md``. Times are us since 1970.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kproto.tables.bodies import RequestPartition
    from kproto.verdicts.told import Body

BEING_DELETED: Final = -2
"""The leader in UpdateMetadata of a topic that is being deleted."""

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

STATE_ORDER: Final = ("leader_epoch", "partition_epoch")
"""The order of a partition's states from its creation to its deletion; clocks only date them."""

FIRST_EPOCHS: Final = (0, 0)
"""The epochs of a new partition's first state, in ``STATE_ORDER``."""

BEGINS_SQL: Final = " AND ".join(f"s.{name} = {epoch}" for name, epoch in zip(STATE_ORDER, FIRST_EPOCHS, strict=True))
"""Whether a state ``s`` that was told after a deletion begins the next incarnation, see ``Incarnation.fits``."""

_ISR_CHANGES: Final = {(True, False): "shrink", (False, True): "expand", (True, True): "swap"}
"""The kind of change of an ISR, by whether brokers left and whether brokers came."""

ISR_CHANGES: Final = tuple(_ISR_CHANGES.values())

ISR_CHANGE_SQL: Final = " ".join(
    (
        "CASE",
        *(
            f"WHEN (size(removed) > 0) = {left} AND (size(added) > 0) = {came} THEN '{kind}'"
            for (left, came), kind in _ISR_CHANGES.items()
        ),
        "END",
    )
)
"""The kind of change from the brokers ``removed`` and ``added``, as ``isr_change`` decides it; null: none."""


def deletes(state: RequestPartition) -> bool:
    """Whether a request says with this state that the partition is deleted: its log, or its whole topic."""
    return state.delete or state.leader == BEING_DELETED


class State(NamedTuple):
    """A partition's state in LeaderAndIsr or UpdateMetadata."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] | None
    is_new: bool
    recovering: bool | None

    @property
    def epochs(self) -> tuple[int, int]:
        """The order of states: leader epoch, then partition epoch."""
        return self.leader_epoch, self.partition_epoch


class Sighting(NamedTuple):
    """A state in a body that a broker accepted, and when the first broker did."""

    ts: int
    body: Body
    state: State


class Incarnation:
    """A topic's partition from its creation to its deletion.

    Attributes:
        topic_id: Of the topic; None where no version has one.
        sightings: Its states in the order in which brokers were first told.
        deleted: The time of the first UpdateMetadata that marks the topic as being deleted; None: there is none.
    """

    def __init__(self, topic_id: bytes | None) -> None:
        self.topic_id = topic_id
        self.sightings: list[Sighting] = []
        self.deleted: int | None = None

    def fits(self, topic_id: bytes | None, epochs: tuple[int, int], ts: int) -> bool:
        """Whether a state that was first told at a time may belong to this incarnation of its partition.

        While a deletion waits, the partition may still be told with higher epochs; a new topic begins with epochs of 0.
        """
        if self.topic_id is not None and topic_id is not None:
            return self.topic_id == topic_id
        return self.deleted is None or ts <= self.deleted or epochs != FIRST_EPOCHS

    @cached_property
    def steps(self) -> list[Sighting]:
        """The distinct states in the order of their epochs, with the time of their first request, the newest last."""
        first: dict[tuple[Any, ...], Sighting] = {}
        for sighting in self.sightings:
            state = sighting.state
            first.setdefault((state.epochs, state.leader, frozenset(state.isr)), sighting)
        return sorted(first.values(), key=lambda sighting: (sighting.state.epochs, sighting.ts))

    @property
    def newest(self) -> Sighting:
        """The newest state."""
        return self.steps[-1]

    def since(self, holds: Any) -> int:
        """The time since which the newest states without a break hold something."""
        since = self.newest.ts
        for sighting in reversed(self.steps):
            if not holds(sighting.state):
                break
            since = sighting.ts
        return since


def incarnation_of(lives: list[Incarnation], topic_id: bytes | None, epochs: tuple[int, int], ts: int) -> Incarnation:
    """Return the incarnation of a partition that a state belongs to: the newest that fits, else a new one.

    Args:
        lives: Those that earlier states told of, in order; a new one is added.
        topic_id: With which the state was told; None where the version has none.
        epochs: Of the state, in ``STATE_ORDER``.
        ts: When the first broker was told of it; states come in this order.
    """
    for life in reversed(lives):
        if life.fits(topic_id, epochs, ts):
            life.topic_id = life.topic_id or topic_id
            return life
    lives.append(Incarnation(topic_id))
    return lives[-1]


def end_incarnation(lives: list[Incarnation], topic_id: bytes | None, ts: int) -> None:
    """Note that brokers were told at a time that the topic is being deleted; ``lives`` as in ``incarnation_of``."""
    if not lives:
        lives.append(Incarnation(topic_id))
    if lives[-1].deleted is None:
        lives[-1].deleted = ts


def isr_change(old: AbstractSet[int], new: AbstractSet[int]) -> str | None:
    """The kind of change from one ISR to the next: one of ``ISR_CHANGES``; None where only the order differs."""
    return _ISR_CHANGES.get((bool(old - new), bool(new - old)))
