"""The connection states of a client's nodes: connected or not, back-off, and the address to try."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.clock import FOREVER
from channel.errors import IllegalState
from channel.logs import get_logger

from .backoff import ExponentialBackoff, Randomness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.errors import AuthenticationFailed

__all__ = ["ClusterConnectionStates", "ConnectionState"]

_log = get_logger(__name__)


class ConnectionState(Enum):
    """The state of a client's connection."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"

    @property
    def is_disconnected(self) -> bool:
        """Whether the node is neither connected nor connecting."""
        return self is ConnectionState.DISCONNECTED or self is ConnectionState.AUTHENTICATION_FAILED

    @property
    def is_connected(self) -> bool:
        """Whether the connection is established."""
        return self is ConnectionState.READY or self is ConnectionState.CHECKING_API_VERSIONS


_READY: Final = ConnectionState.READY


class _NodeState:
    """The state of one node. Times are in ms of the client's clock."""

    __slots__ = (
        "addresses", "attempt", "authentication_error", "failed_attempts", "failed_connects", "host", "last_address",
        "last_attempt", "next_address", "reconnect_backoff", "setup_timeout", "state", "throttled_until",
    )  # fmt: skip

    def __init__(self, host: str, now: int, reconnect_backoff: int, setup_timeout: int) -> None:
        self.host = host
        self.state = ConnectionState.CONNECTING
        self.last_attempt = now
        self.failed_attempts = 0
        self.failed_connects = 0
        self.reconnect_backoff = reconnect_backoff
        self.setup_timeout = setup_timeout
        self.throttled_until = 0
        self.authentication_error: AuthenticationFailed | None = None
        self.addresses: Sequence[str] = ()
        self.next_address = 0
        self.last_address: str | None = None
        self.attempt = object()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        # The address tried last may be the reason of the new look-up: begin with the next address, if there is one.
        self.next_address = int(len(addresses) > 1 and addresses[0] == self.last_address)

    def address(self) -> str | None:
        if not self.addresses:
            return None
        self.last_address = self.addresses[self.next_address]
        return self.last_address

    def move_to_next_address(self) -> None:
        if self.addresses:
            self.next_address += 1
            if self.next_address == len(self.addresses):
                self.addresses = ()


class ClusterConnectionStates:
    """The states of all nodes that a client has tried to reach, by node id.

    Methods that need a node's entry raise ``IllegalState`` if there is none.
    """

    def __init__(
        self,
        reconnect_backoff_ms: int,
        reconnect_backoff_max_ms: int,
        setup_timeout_ms: int,
        setup_timeout_max_ms: int,
        randomness: Randomness | None = None,
    ) -> None:
        self._reconnect = ExponentialBackoff(reconnect_backoff_ms, 2, reconnect_backoff_max_ms, 0.2, randomness)
        self._setup = ExponentialBackoff(setup_timeout_ms, 2, setup_timeout_max_ms, 0.2, randomness)
        self._nodes: dict[str, _NodeState] = {}
        self.connecting_nodes: set[str] = set()
        self._earliest_timeout = FOREVER  # no attempt has taken too long before

    def _node(self, node_id: str) -> _NodeState:
        try:
            return self._nodes[node_id]
        except KeyError:
            raise IllegalState(f"nothing is known of a connection to node {node_id}") from None

    # ---- questions ---------------------------------------------------------------------------------------------------

    def can_connect(self, node_id: str, now: int) -> bool:
        """Whether an attempt may begin: the node has no entry, or is disconnected and its back-off is over."""
        node = self._nodes.get(node_id)
        return node is None or (node.state.is_disconnected and now - node.last_attempt >= node.reconnect_backoff)

    def connection_delay(self, node_id: str, now: int) -> int:
        """Return the ms that a caller should wait before the next check; ``FOREVER`` if the node is connected."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0
        if node.state is ConnectionState.CONNECTING:
            return node.setup_timeout
        if node.state.is_disconnected:
            return max(0, node.reconnect_backoff - (now - node.last_attempt))
        return FOREVER

    def poll_delay_ms(self, node_id: str, now: int) -> int:
        """Return the rest of a connected node's throttle, else ``connection_delay``."""
        throttled = self.throttle_delay_ms(node_id, now)
        return throttled if throttled and self.is_connected(node_id) else self.connection_delay(node_id, now)

    def throttle_delay_ms(self, node_id: str, now: int) -> int:
        """Return the ms for which nothing may be sent to the node."""
        node = self._nodes.get(node_id)
        return 0 if node is None else max(0, node.throttled_until - now)

    def state(self, node_id: str) -> ConnectionState:
        """Return the state of a node's connection."""
        return self._node(node_id).state

    def known(self, node_id: str) -> bool:
        """Whether the node has an entry."""
        return node_id in self._nodes

    def is_ready(self, node_id: str, now: int) -> bool:
        """Whether the node is ready, and not throttled."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is _READY and node.throttled_until <= now

    def is_connected(self, node_id: str) -> bool:
        """Whether the node is ready, or being asked for its versions."""
        node = self._nodes.get(node_id)
        return node is not None and node.state.is_connected

    def is_disconnected(self, node_id: str) -> bool:
        """Whether the node has an entry, and is neither connected nor connecting."""
        node = self._nodes.get(node_id)
        return node is not None and node.state.is_disconnected

    def is_preparing(self, node_id: str) -> bool:
        """Whether the node is connecting, or being asked for its versions."""
        node = self._nodes.get(node_id)
        return node is not None and node.state in (ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS)

    def authentication_error(self, node_id: str) -> AuthenticationFailed | None:
        """Return the error of the last authentication, None once the node is ready."""
        node = self._nodes.get(node_id)
        return None if node is None else node.authentication_error

    def last_attempt_ms(self, node_id: str) -> int:
        """Return the time at which the last attempt began or the connection ended; 0 if never."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.last_attempt

    def setup_timeout_ms(self, node_id: str) -> int:
        """Return the time limit of the present or next attempt."""
        return self._node(node_id).setup_timeout

    def timed_out_connections(self, now: int) -> list[str]:
        """List the nodes whose attempts have taken longer than their limit."""
        if now <= self._earliest_timeout:
            return []
        ends = {n: self._nodes[n].last_attempt + self._nodes[n].setup_timeout for n in self.connecting_nodes}
        self._earliest_timeout = min((end for end in ends.values() if end >= now), default=FOREVER)
        return [node_id for node_id, end in ends.items() if now > end]

    def remaining_ms(self, now: int) -> int:
        """Return the ms until an attempt may exceed its limit."""
        return max(0, self._earliest_timeout - now + 1)

    def current_address(self, node_id: str) -> str | None:
        """The address to try; None if the host's name must be resolved first."""
        return self._node(node_id).address()

    def attempt(self, node_id: str) -> object:
        """Return an object that identifies the present attempt to connect, None without one."""
        node = self._nodes.get(node_id)
        return None if node is None or node.state is not ConnectionState.CONNECTING else node.attempt

    # ---- changes -----------------------------------------------------------------------------------------------------

    def connecting(self, node_id: str, now: int, host: str) -> None:
        """Note that an attempt begins. A node that moved to another host gets a new entry."""
        node = self._nodes.get(node_id)
        if node is not None and node.host == host:
            node.last_attempt = now
            node.state = ConnectionState.CONNECTING
            node.move_to_next_address()
            node.attempt = object()
        else:
            if node is not None:
                _log.info("node %s moved from host %s to %s", node_id, node.host, host)
            self._nodes[node_id] = _NodeState(host, now, self._reconnect.backoff(0), self._setup.backoff(0))
        self.connecting_nodes.add(node_id)
        self._earliest_timeout = min(self._earliest_timeout, now + self._nodes[node_id].setup_timeout)

    def resolved(self, node_id: str, addresses: Sequence[str]) -> None:
        """Take the addresses of the host's name."""
        self._node(node_id).set_addresses(addresses)

    def disconnected(self, node_id: str, now: int) -> None:
        """Note that the connection ended, or an attempt failed."""
        node = self._node(node_id)
        node.last_attempt = now
        self._back_off(node)
        if node.state is ConnectionState.CONNECTING:
            node.failed_connects += 1
            node.setup_timeout = self._setup.backoff(node.failed_connects)
        else:
            self._reset_setup_timeout(node)
            if node.state.is_connected:
                node.addresses = ()  # the host may have another address now
        self.connecting_nodes.discard(node_id)
        node.state = ConnectionState.DISCONNECTED

    def authentication_failed(self, node_id: str, now: int, error: AuthenticationFailed) -> None:
        """Note that the connection ended by a failed authentication."""
        node = self._node(node_id)
        node.authentication_error = error
        node.state = ConnectionState.AUTHENTICATION_FAILED
        node.last_attempt = now
        self.connecting_nodes.discard(node_id)
        self._back_off(node)

    def checking_api_versions(self, node_id: str) -> None:
        """Note that the node is connected, and is asked for its versions."""
        node = self._node(node_id)
        node.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_setup_timeout(node)
        self.connecting_nodes.discard(node_id)

    def ready(self, node_id: str) -> None:
        """Note that requests may be sent; earlier failures are forgotten."""
        node = self._node(node_id)
        node.state = ConnectionState.READY
        node.authentication_error = None
        node.failed_attempts = 0
        node.reconnect_backoff = self._reconnect.backoff(0)
        self._reset_setup_timeout(node)
        self.connecting_nodes.discard(node_id)

    def throttle(self, node_id: str, until: int) -> None:
        """Send nothing to the node before this time; an earlier time than the present limit has no effect."""
        node = self._node(node_id)
        node.throttled_until = max(node.throttled_until, until)

    def remove(self, node_id: str) -> None:
        """Forget the node and its back-off."""
        self._nodes.pop(node_id, None)
        self.connecting_nodes.discard(node_id)

    def _back_off(self, node: _NodeState) -> None:
        node.reconnect_backoff = self._reconnect.backoff(node.failed_attempts)
        node.failed_attempts += 1

    def _reset_setup_timeout(self, node: _NodeState) -> None:
        node.failed_connects = 0
        node.setup_timeout = self._setup.backoff(0)
