"""A client's connections to its nodes: which are ready, which may be begun, and which to take."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from channel.errors import IllegalState
from channel.logs import get_logger

from .least_loaded import LeastLoaded, least_loaded

if TYPE_CHECKING:
    from channel.clock import Clock
    from channel.errors import AuthenticationFailed
    from channel.types import Node

    from .backoff import Randomness
    from .connection_states import ClusterConnectionStates
    from .in_flight import InFlightRequests
    from .metadata import MetadataUpdater
    from .selector import Selector

__all__ = ["NodeConnections"]

_log = get_logger(__name__)


class NodeConnections:
    """The part of a ``NetworkClient`` that knows connections, not requests.

    Args:
        selector: Moves the bytes.
        metadata: Keeps the nodes.
        states: What is known of each node.
        in_flight: What each node has not answered yet.
        send_buffer, receive_buffer: Of new sockets in bytes, -1 as the system has it.
        clock, randomness: Where time and spread come from.
    """

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        states: ClusterConnectionStates,
        in_flight: InFlightRequests,
        send_buffer: int,
        receive_buffer: int,
        clock: Clock,
        randomness: Randomness | None,
    ) -> None:
        self.clock = clock
        self._selector = selector
        self._metadata = metadata
        self._states = states
        self._in_flight = in_flight
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer
        self._random = randomness or random.Random()  # noqa: S311 - spreads load, keeps no secret

    def ready(self, node: Node) -> bool:
        """Whether a request can be sent to the node now; begins to connect if that is allowed.

        Raises:
            ValueError: No node.
        """
        if node.is_empty:
            raise ValueError(f"cannot connect to {node}: it has no host or port")
        if self.is_ready(node):
            return True
        now = self.clock.milliseconds()
        if self._states.can_connect(node.key, now):
            self._initiate_connect(node, now)
        return False

    def is_ready(self, node: Node) -> bool:
        """Whether a request can be sent to the node now."""
        now = self.clock.milliseconds()
        return not self._metadata.is_update_due(now) and self._can_send(node.key, now)

    def _can_send(self, node_id: str, now: int) -> bool:
        return (
            self._states.is_ready(node_id, now)
            and self._selector.is_channel_ready(node_id)
            and self._in_flight.can_send_more(node_id)
        )

    def connection_delay(self, node: Node) -> int:
        """How many ms to wait before looking at the node again."""
        return self._states.connection_delay(node.key, self.clock.milliseconds())

    def poll_delay_ms(self, node: Node) -> int:
        """As ``connection_delay``, or what is left of a throttle."""
        return self._states.poll_delay_ms(node.key, self.clock.milliseconds())

    def connection_failed(self, node: Node) -> bool:
        """Whether the last connection has ended or could not be made."""
        return self._states.is_disconnected(node.key)

    def authentication_error(self, node: Node) -> AuthenticationFailed | None:
        """Why the last authentication failed, until the node becomes ready."""
        return self._states.authentication_error(node.key)

    def has_ready_nodes(self) -> bool:
        """Whether any node is ready and not throttled."""
        return self._states.has_ready_nodes(self.clock.milliseconds())

    def least_loaded_node(self) -> LeastLoaded:
        """The node to ask if any will do: ready and least busy, else on its way, else one that may be connected to.

        Raises:
            IllegalState: There are no nodes.
        """
        nodes, now = self._metadata.nodes(), self.clock.milliseconds()
        if not nodes:
            raise IllegalState("there are no nodes to choose from")
        offset = self._random.randrange(len(nodes))
        return least_loaded(
            [*nodes[offset:], *nodes[:offset]],
            self._states,
            self._selector.is_channel_ready,
            lambda node_id: self._can_send(node_id, now),
            self._in_flight.count,
            now,
        )

    def _initiate_connect(self, node: Node, now: int) -> None:
        try:
            self._states.connecting(node.key, now, node.host)
            address = self._states.current_address(node.key)
            _log.debug("connecting to node %s at %s", node, address)
            self._selector.connect(node.key, (address, node.port), self._send_buffer, self._receive_buffer)
        except OSError as e:
            _log.warning("could not connect to node %s: %s", node, e)
            self._states.disconnected(node.key, now)
            self._metadata.handle_server_disconnect(now, node.key, None)
