"""Decides how the states of a partition follow one another: their order, their end, a new beginning, what changes.

All who compare states ask here: folds call the functions, queries take the same rules as SQL, which DuckDB and Spark
both run. See ``docs/verdicts.md``. Times are us since 1970.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kproto.tables.bodies import RequestPartition

__all__ = [
    "BEGINS_SQL",
    "BEING_DELETED",
    "FIRST_EPOCHS",
    "ISR_CHANGES",
    "ISR_CHANGE_SQL",
    "NO_LEADER",
    "STATE_ORDER",
    "begins_again",
    "deletes",
    "isr_change",
]

BEING_DELETED: Final = -2
"""The leader in UpdateMetadata of a topic that is being deleted."""

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

STATE_ORDER: Final = ("leader_epoch", "partition_epoch")
"""The order of a partition's states from its creation to its deletion; clocks only date them."""

FIRST_EPOCHS: Final = (0, 0)
"""The epochs of a new partition's first state, in ``STATE_ORDER``."""

BEGINS_SQL: Final = " AND ".join(f"s.{name} = {epoch}" for name, epoch in zip(STATE_ORDER, FIRST_EPOCHS, strict=True))
"""Whether a state ``s`` that was told after a deletion begins the next incarnation, as ``begins_again`` decides it."""

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


def begins_again(epochs: tuple[int, int], ts: int, deleted: int | None) -> bool:
    """Whether a state begins the next incarnation of a partition that no topic id tells apart from the former.

    While a deletion waits, the partition may still be told with higher epochs; a new topic begins with epochs of 0.

    Args:
        epochs: Of the state, in ``STATE_ORDER``.
        ts: When a broker was first told of it.
        deleted: When a broker was first told of the deletion of the incarnation before; None: it goes on.
    """
    return deleted is not None and ts > deleted and epochs == FIRST_EPOCHS


def isr_change(old: AbstractSet[int], new: AbstractSet[int]) -> str | None:
    """The kind of change from one ISR to the next: one of ``ISR_CHANGES``; None where only the order differs."""
    return _ISR_CHANGES.get((bool(old - new), bool(new - old)))
