"""A client's connections to its nodes: making them, and choosing the node for a request."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from channel.errors import IllegalState
from channel.logs import get_logger

from .least_loaded import LeastLoaded, least_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.types import Node

    from .backoff import Randomness
    from .channel import Channel
    from .connection_states import ClusterConnectionStates
    from .resolution import Resolution
    from .selector import Selector
    from .updater import MetadataUpdater

__all__ = ["NodeConnections"]

_log = get_logger(__name__)


class NodeConnections:
    """The connections of a client, not its requests.

    Args:
        selector: Moves the bytes.
        metadata: Keeps the nodes.
        states: The connection state of each node.
        resolution: Looks host names up.
        max_in_flight: Most unanswered requests on one connection.
        checks_versions: Whether nodes are asked for their versions.
        send_buffer, receive_buffer: Buffer sizes of new sockets in bytes, -1 for the system's.
        randomness: The source of jitter.
    """

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        states: ClusterConnectionStates,
        resolution: Resolution,
        max_in_flight: int,
        *,
        checks_versions: bool,
        send_buffer: int = -1,
        receive_buffer: int = -1,
        randomness: Randomness | None = None,
    ) -> None:
        self.states = states
        self._selector = selector
        self._metadata = metadata
        self._resolution = resolution
        self._max_in_flight = max_in_flight
        self._checks_versions = checks_versions
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer
        self._random = randomness or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._lookups: deque[tuple[Node, object, Sequence[str] | OSError]] = deque()
        self._starting = False

    # ---- questions ---------------------------------------------------------------------------------------------------

    def channel(self, node_id: str) -> Channel | None:
        """Return the node's channel, even while it is being closed; None if there is none."""
        return self._selector.channels.get(node_id) or self._selector.closing_channel(node_id)

    def sendable(self, node_id: str, now: int) -> Channel | None:
        """The node's channel, if it can take another request now."""
        if not self.states.is_ready(node_id, now):
            return None
        channel = self._selector.channels.get(node_id)
        if channel is None:
            return None
        connection = channel.connection
        in_flight = connection.in_flight
        if not connection.usable or connection.outgoing is not None or channel.broken:
            return None  # the last frame has not gone out, even if its request was answered meanwhile
        if in_flight.requests and not in_flight.can_send_more(self._max_in_flight):
            return None
        if connection.reader.waiting or connection.reader.bytes_read:
            asked = len(in_flight)  # read first: another thread may take answers meanwhile, but sends nothing
            if connection.reader.arrived > asked:
                _log.warning("node %s answered a request that was not sent yet; closing the connection", node_id)
                self._selector.writer.give_up(channel)
                return None
        return channel

    def can_send(self, node_id: str, now: int) -> bool:
        """Whether the node can take another request now."""
        return self.sendable(node_id, now) is not None

    def in_flight(self, node_id: str) -> int:
        """How many requests the node has not answered."""
        channel = self.channel(node_id)
        return 0 if channel is None else len(channel.connection.in_flight)

    def least_loaded(self, now: int) -> LeastLoaded:
        """Choose the ready node with the fewest requests in flight, else one connecting, else one to connect to.

        Raises:
            IllegalState: There are no nodes.
        """
        nodes = self._metadata.nodes()
        if not nodes:
            raise IllegalState("there are no nodes to choose from")
        offset = self._random.randrange(len(nodes))
        return least_loaded(
            [*nodes[offset:], *nodes[:offset]],
            self.states,
            self._selector.is_channel_ready,
            lambda node_id: self.can_send(node_id, now),
            self.in_flight,
            now,
        )

    # ---- connecting --------------------------------------------------------------------------------------------------

    def connect(self, node: Node, now: int) -> None:
        """Begin to connect, if the node's back-off allows it; looks its host's name up first if need be."""
        if not self.states.can_connect(node.key, now):
            return
        self.states.connecting(node.key, now, node.host)
        if self.states.current_address(node.key) is not None:
            self._begin(node, now)
            return
        attempt = self.states.attempt(node.key)
        self._starting = True
        try:
            self._resolution.start(node.host, self._looked_up(node, attempt))
        finally:
            self._starting = False
        self.go_on(now)

    def _looked_up(self, node: Node, attempt: object) -> Callable[[Sequence[str] | OSError], None]:
        def done(result: Sequence[str] | OSError) -> None:
            self._lookups.append((node, attempt, result))
            if not self._starting:
                self._selector.wakeup()

        return done

    def go_on(self, now: int) -> None:
        """Go on with nodes whose host has been looked up, unless their attempt was given up meanwhile."""
        while self._lookups:
            node, attempt, result = self._lookups.popleft()
            if attempt is None or self.states.attempt(node.key) is not attempt:
                continue
            if isinstance(result, OSError):
                self._failed(node, result, now)
            else:
                self.states.resolved(node.key, result)
                self._begin(node, now)

    def _begin(self, node: Node, now: int) -> None:
        address = self.states.current_address(node.key)
        assert address is not None
        _log.debug("connecting to node %s at %s", node, address)
        try:
            self._selector.connect(
                node.key,
                (address, node.port),
                self._send_buffer,
                self._receive_buffer,
                host=node.host,
                listener=node.listener,
                checks_versions=self._checks_versions,
            )
        except OSError as e:
            self._failed(node, e, now)

    def _failed(self, node: Node, error: OSError, now: int) -> None:
        _log.warning("could not connect to node %s: %s", node, error)
        self.states.disconnected(node.key, now)
        self._metadata.handle_server_disconnect(now, node.key, None)
