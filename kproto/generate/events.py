"""The events of a fleet's history."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal[
    "first_controller", "failover", "stop", "restart", "election", "isr_change", "zombie", "deletion", "migration",
    "plant",
]  # fmt: skip


class Event(NamedTuple):
    """One event in a fleet's history.

    Attributes:
        number: Counts the fleet's events from 0.
        kind: The kind of the event.
        time_ns: When it happens, ns since 1970, a whole number of microseconds.
        plant: The planted fault of which it is a stage, by its number in the fleet.
    """

    number: int
    kind: Kind
    time_ns: int
    plant: int = -1
