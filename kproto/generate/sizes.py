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

_EXCHANGE_BYTES: Final = 420
"""About how many bytes an exchange takes beside the request's body: the response, headers and acknowledgements."""

_SEGMENT_OVERHEAD: Final = 1.055
"""Headers of full segments and acknowledgements."""


def sized(fleet: PlannedFleet, wanted_bytes: int) -> PlannedFleet:
    """Return the fleet with the number of ISR changes that makes its capture about ``wanted_bytes`` large.

    Raises:
        ConfigurationError: The other events alone make a larger capture.
    """
    cluster = Cluster(fleet)
    planned = events(replace(fleet, isr_changes=1))
    start = sum(map(_bytes, cluster.apply(next(planned))))
    change = sum(map(_bytes, cluster.apply(next(event for event in planned if event.kind == "isr_change"))))
    told = fleet.replication / fleet.brokers  # of LeaderAndIsr, beside the UpdateMetadata to all
    restart = int(2 * start * told)
    others = start * (1 + fleet.failovers) + restart * fleet.restarts
    others += change * fleet.zombies + int(change * (1 + told)) * fleet.elections
    if others > wanted_bytes:
        raise ConfigurationError(
            f"elections and takeovers of this fleet alone take about {others / 1e6:.0f} MB; try a larger --size, or "
            "fewer --brokers, --partitions, --failovers or --elections"
        )
    return replace(fleet, isr_changes=max((wanted_bytes - others) // change, 1))


def _bytes(content: Content) -> int:
    body = sum(map(len, shared_body(content).pieces(0)))
    return len(content.recipients) * int(body * _SEGMENT_OVERHEAD + _EXCHANGE_BYTES)
