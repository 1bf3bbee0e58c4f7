"""Computes the number of ISR changes that makes a capture of a wanted size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kproto.errors import ConfigurationError

from .bodies import shared_body
from .cluster import Cluster
from .schedule import events

if TYPE_CHECKING:
    from .content import Content
    from .fleet import PlannedFleet

_EXCHANGE_BYTES: Final = 300
"""About how many bytes an exchange takes beside the request's body: the response, headers and acknowledgements."""

_SEGMENT_OVERHEAD: Final = 1.05
"""Headers of full segments and acknowledgements."""

_SAMPLES: Final = 100
"""The number of ISR changes of a fleet whose bytes are counted."""

_NEAR: Final = 0.05
_ROUNDS: Final = 8
"""Another number of changes mixes the events in another order, and those behind a deletion tell less: what comes within
five per cent, or the best of eight, is taken."""


def sized(fleet: PlannedFleet, wanted_bytes: int) -> PlannedFleet:
    """Return the fleet with the number of ISR changes that makes its capture about ``wanted_bytes`` large.

    One topic is not deleted: of none no change would tell.

    Raises:
        ConfigurationError: The other events alone make a larger capture.
    """
    fleet = replace(fleet, deletions=min(fleet.deletions, fleet.topics - 1))
    tried: dict[float, PlannedFleet] = {}
    number = _SAMPLES
    for _ in range(_ROUNDS):
        changed = replace(fleet, isr_changes=number)
        others, change = _counted(changed)
        if others > wanted_bytes:
            raise ConfigurationError(
                f"elections and takeovers of this fleet alone take about {others / 1e6:.0f} MB; try a larger --size, "
                "or fewer --brokers, --partitions, --failovers or --elections"
            )
        tried[abs((others + number * change) / wanted_bytes - 1)] = changed
        if min(tried) < _NEAR:
            break
        number = max(int((wanted_bytes - others) / change), 1)
    return tried[min(tried)]


def _counted(fleet: PlannedFleet) -> tuple[int, float]:
    """About how many bytes an ISR change takes, by some of them, and before it those of all other events."""
    cluster, apart = Cluster(fleet), -(-fleet.isr_changes // _SAMPLES)
    others = seen = 0
    changes = []
    for event in events(fleet):
        if event.kind == "isr_change":
            seen += 1
            if seen % apart == 0:
                changes.append(sum(map(_bytes, cluster.apply(event))))
        elif event.kind != "plant":
            others += sum(map(_bytes, cluster.apply(event)))
    return others, max(sum(changes) / max(len(changes), 1), 1)


def _bytes(content: Content) -> int:
    body = sum(map(len, shared_body(content).pieces(0)))
    return len(content.recipients) * int(body * _SEGMENT_OVERHEAD + _EXCHANGE_BYTES)
