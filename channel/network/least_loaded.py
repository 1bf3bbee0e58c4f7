"""The choice of the least loaded node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from channel.clock import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from channel.types import Node

    from .connection_states import ClusterConnectionStates

__all__ = ["LeastLoaded", "least_loaded"]


class LeastLoaded(NamedTuple):
    """The result of the choice.

    Attributes:
        node: The chosen node, None if there is none.
        connection_ready: Whether any connection is ready, even if it cannot take another request now.
    """

    node: Node | None
    connection_ready: bool


def least_loaded(
    nodes: Iterable[Node],
    states: ClusterConnectionStates,
    channel_ready: Callable[[str], bool],
    can_send: Callable[[str], bool],
    in_flight: Callable[[str], int],
    now: int,
) -> LeastLoaded:
    """Choose the ready node with the fewest requests in flight, else one connecting, else the one tried longest ago."""
    connection_ready = False
    ready: Node | None = None
    preparing: Node | None = None
    connectable: Node | None = None
    fewest = FOREVER
    for node in nodes:
        key = node.key
        if states.is_ready(key, now) and channel_ready(key):
            connection_ready = True
        if can_send(key):
            count = in_flight(key)
            if count == 0:
                return LeastLoaded(node, True)
            if count < fewest:
                fewest, ready = count, node
        elif states.is_preparing(key):
            preparing = node
        elif states.can_connect(key, now) and (
            connectable is None or states.last_attempt_ms(key) < states.last_attempt_ms(connectable.key)
        ):
            connectable = node
    return LeastLoaded(ready or preparing or connectable, connection_ready)
