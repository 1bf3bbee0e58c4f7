"""A network client for many nodes: connects, sends requests, matches responses, times out, backs off.

Nothing blocks but ``poll``; ``node_client`` has the functions that wait for one node.
"""

from __future__ import annotations

import math
import random
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.errors import ClientClosed, CorrelationIdMismatch, IllegalState, NoUsableVersion
from channel.logs import bounded, get_logger
from kproto import __version__
from kproto.api import CONTROL_APIS, ApiKey
from kproto.codec import message_class
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import DecodeError, FieldNotInVersion, UnsupportedVersion
from kproto.node_versions import NodeApiVersions

from .backoff import ExponentialBackoff
from .channel import ChannelState, Disconnection
from .frames import Send
from .request import (
    Callback,
    ClientId,
    ClientRequest,
    ClientResponse,
    CorrelationIds,
    MessageRequest,
    RequestBuilder,
    RequestFramer,
    parse_response,
)
from .sockets import NameResolution

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from channel.errors import AuthenticationFailed
    from channel.types import Node

    from .channel import Channel, Receive
    from .selector import Selector
    from .transport import Bytes

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
        randomness: random.Random | None = None,
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

    def state(self, node_id: str) -> ConnectionState:
        """Return the state of a node's connection."""
        return self._node(node_id).state

    def is_ready(self, node_id: str, now: int) -> bool:
        """Whether the node is ready, and not throttled."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is _READY and node.throttled_until <= now

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
        node = self._node(node_id)
        if not node.addresses:
            return None
        node.last_address = node.addresses[node.next_address]
        return node.last_address

    def has_untried_address(self, node_id: str) -> bool:
        """Whether the last look-up of the host gave addresses that were not tried since."""
        node = self._nodes.get(node_id)
        return node is not None and node.next_address + 1 < len(node.addresses)

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
            if node.addresses:
                node.next_address += 1
                if node.next_address == len(node.addresses):
                    node.addresses = ()
            node.attempt = object()
        else:
            if node is not None:
                _log.info("node %s moved from host %s to %s", node_id, node.host, host)
            self._nodes[node_id] = _NodeState(host, now, self._reconnect.backoff(0), self._setup.backoff(0))
        self.connecting_nodes.add(node_id)
        self._earliest_timeout = min(self._earliest_timeout, now + self._nodes[node_id].setup_timeout)

    def resolved(self, node_id: str, addresses: Sequence[str]) -> None:
        """Take the addresses of the host's name."""
        node = self._node(node_id)
        node.addresses = addresses
        # The address tried last may be the reason of the new look-up: begin with the next address, if there is one.
        node.next_address = int(len(addresses) > 1 and addresses[0] == node.last_address)

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


class LeastLoaded(NamedTuple):
    """The result of the choice.

    Attributes:
        node: The chosen node, None if there is none.
        connection_ready: Whether any connection is ready, even if it cannot take another request now.
    """

    node: Node | None
    connection_ready: bool


class MetadataUpdater:
    """Keeps a client's list of nodes: a fixed list without requests, unless a subclass updates it.

    Times are in ms of the client's clock.
    """

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = tuple(nodes)

    def attach(self, client: NetworkClient) -> None:
        """Use this client for requests; called once, as the client is made."""

    def nodes(self) -> Sequence[Node]:
        """The nodes to choose from."""
        return self._nodes

    def is_update_due(self, now: int) -> bool:
        """Whether an update should go out before any other request."""
        return False

    def maybe_update(self, now: int) -> int:
        """Begin an update if one is due; returns the ms until the next may begin, ``FOREVER`` for never."""
        return FOREVER

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Note that a connection ended, or could not be made."""

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """Note that a request of the updater will get no response, or got one that cannot be read."""

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """Take the response to a request of the updater."""

    def close(self) -> None:
        """Release all resources."""


SOFTWARE_NAME: Final = "kproto"


class VersionsUnavailable(Exception):
    """A node does not tell its API versions; asking again is of no use. Never leaves the client."""


class VersionDiscovery:
    """The API versions that nodes have announced, and the nodes that are still to be asked.

    Args:
        known: The API versions of nodes, by node; shared between clients if given.
    """

    def __init__(self, known: dict[str, NodeApiVersions] | None = None) -> None:
        self.known = {} if known is None else known
        self.pending: dict[str, int] = {}

    def ask(self, node_id: str, version: int = ApiKey.API_VERSIONS.info.max_version) -> None:
        """Note that the node is to be asked by an ApiVersions request of this version."""
        self.pending[node_id] = version

    def forget(self, node_id: str) -> None:
        """Forget a node's versions as its connection ends: the next connection may reach other software."""
        self.pending.pop(node_id, None)
        self.known.pop(node_id, None)

    def request(self, node_id: str) -> MessageRequest:
        """Build the ApiVersions request for a pending node, which is then no longer pending."""
        version = self.pending.pop(node_id)
        request = message_class(ApiKey.API_VERSIONS, "request")
        if version < 3:
            return MessageRequest(request(), version)
        message = request(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return MessageRequest(message, version)

    def learn(self, request: ClientRequest, payload: Bytes) -> Any:
        """Take a node's ApiVersions response: note its versions, or that it is to be asked again in a lower version.

        Returns:
            The decoded response.

        Raises:
            VersionsUnavailable: The response cannot be read, or has an error.
        """
        node_id = request.destination
        try:
            answer = parse_response(request, payload)
        except (CorrelationIdMismatch, DecodeError) as e:
            raise VersionsUnavailable(f"its answer cannot be read: {e}") from e
        if answer.error_code == ErrorCode.NONE:
            self.known[node_id] = NodeApiVersions.from_response(answer)
        elif answer.error_code == ErrorCode.UNSUPPORTED_VERSION and request.version > 0:
            ranges = NodeApiVersions.from_response(answer)
            highest = ranges[ApiKey.API_VERSIONS].highest if ApiKey.API_VERSIONS in ranges else 0
            self.ask(node_id, max(0, min(highest, request.version - 1)))  # a response may announce any range
        else:
            raise VersionsUnavailable(f"error {answer.error_code} {error_name(answer.error_code)}")
        return answer

    def choose(self, node_id: str, builder: RequestBuilder) -> int:
        """Choose the version of a request; the builder's latest if the node's versions are not known.

        Raises:
            NoUsableVersion: No version suits both sides.
        """
        known = self.known.get(node_id)
        if known is None or builder.api_key == ApiKey.API_VERSIONS:
            return builder.latest_version
        try:
            return known.latest_usable(builder.api_key, builder.oldest_version, builder.latest_version)
        except UnsupportedVersion as e:
            raise NoUsableVersion(builder.api_key, builder.latest_version, f"{e}, for {builder}") from e


_WITHOUT_THROTTLE_TIME: Final = {*CONTROL_APIS, ApiKey.CONTROLLED_SHUTDOWN}
_THROTTLES_FROM: Final[dict[int, float]] = {
    **{key: math.inf for key in ApiKey if key not in _WITHOUT_THROTTLE_TIME},
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
}
"""The first version of each API in which the client must keep a response's throttle time; infinite where never."""


_FAILED_POLL_MS: Final = 100
"""The longest pause after a poll that the system refused, so that a lasting fault does not fill log and processor."""


class NetworkClient:
    """Sends requests to one node or to thousands over one selector.

    One thread uses the client. Any other may call ``wakeup``, ``initiate_close``, ``active``, ``in_flight_count``, and
    ``request``, which one thread at a time may call for each node.

    Args:
        selector: Moves the bytes; the client owns and closes it.
        metadata: Keeps the nodes.
        client_id: Goes into every header; see ``ClientId``.
        max_in_flight: Most unanswered requests on one connection.
        reconnect_backoff_ms, reconnect_backoff_max_ms: The first and the longest wait before a reconnect.
        send_buffer, receive_buffer: Buffer sizes of new sockets in bytes, -1 for the system's.
        request_timeout_ms: The time limit of requests without one of their own.
        setup_timeout_ms, setup_timeout_max_ms: The first and the longest time limit of connecting.
        discover_versions: Ask each node for its versions before anything else.
        api_versions: The API versions of nodes; shared between clients if given.
        clock, resolution, randomness: The sources of time, addresses and jitter.

    Attributes:
        active: Whether the client is neither closing nor closed.
        newly_ready: The nodes that became ready for requests in the last ``poll``.
    """

    __slots__ = (
        "_aborted", "_client_id_of", "_discover_versions", "_framer", "_framers", "_ids", "_is_closed", "_is_resolving",
        "_lookups", "_max_in_flight", "_metadata", "_next_timeout_ms", "_one_way", "_random", "_receive_buffer",
        "_request_timeout_ms", "_resolution", "_selector", "_send_buffer", "_states", "_versions", "_writer", "active",
        "client_id", "clock", "newly_ready",
    )  # fmt: skip

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        client_id: ClientId,
        *,
        max_in_flight: int = 5,
        reconnect_backoff_ms: int = 50,
        reconnect_backoff_max_ms: int = 1_000,
        send_buffer: int = -1,
        receive_buffer: int = -1,
        request_timeout_ms: int = 30_000,
        setup_timeout_ms: int = 10_000,
        setup_timeout_max_ms: int = 30_000,
        discover_versions: bool = True,
        api_versions: dict[str, NodeApiVersions] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        resolution: NameResolution | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        self.client_id = client_id
        self.clock = clock
        self.active = True
        self.newly_ready: list[str] = []
        self._is_closed = False
        self._selector = selector
        self._writer = selector.writer
        self._metadata = metadata
        self._states = ClusterConnectionStates(
            reconnect_backoff_ms, reconnect_backoff_max_ms, setup_timeout_ms, setup_timeout_max_ms, randomness
        )
        self._versions = VersionDiscovery(api_versions)
        self._discover_versions = discover_versions
        self._max_in_flight = max_in_flight
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer
        self._random = randomness or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._resolution = resolution or NameResolution()
        self._lookups: deque[tuple[Node, object, Sequence[str] | OSError]] = deque()
        self._is_resolving = False
        self._client_id_of = client_id if callable(client_id) else None
        self._framer = RequestFramer(None if callable(client_id) else client_id)
        self._framers: dict[str, RequestFramer] = {}
        self._ids: dict[str, CorrelationIds] = {}
        self._request_timeout_ms = request_timeout_ms
        self._next_timeout_ms = clock.milliseconds() + request_timeout_ms  # no in-flight request times out before
        self._one_way = 0  # in-flight requests that expect no response
        self._aborted: deque[ClientResponse] = deque()  # of requests not sent, or whose connection this side has closed
        metadata.attach(self)

    # ---- making and sending requests ---------------------------------------------------------------------------------

    def next_correlation_id(self, node_id: str) -> int:
        """Take the next correlation id of this node; each node has its own 0, 1, 2 ..."""
        ids = self._ids.get(node_id)
        if ids is None:
            ids = self._ids[node_id] = CorrelationIds()
        return ids.take()

    def new_request(
        self,
        node_id: str,
        builder: RequestBuilder,
        *,
        callback: Callback | None = None,
        expects_response: bool = True,
        timeout_ms: int | None = None,
        created_ms: int | None = None,
    ) -> ClientRequest:
        """Make a request for ``send``; it takes a correlation id, whether it is sent or not.

        Args:
            node_id: The receiver's ``Node.key``.
            builder: Makes the body.
            callback: Called in ``poll`` with the response: an answer, or the reason why there is none.
            expects_response: Whether the node answers at all.
            timeout_ms: The time limit of the response; None for the client's own.
            created_ms: The time from which the request's latency counts; None for now.
        """
        return ClientRequest(
            node_id,
            builder,
            self.next_correlation_id(node_id),
            self.clock.milliseconds() if created_ms is None else created_ms,
            self._request_timeout_ms if timeout_ms is None else timeout_ms,
            expects_response=expects_response,
            callback=callback,
        )

    def send(self, request: ClientRequest) -> None:
        """Queue a request; ``poll`` writes it. If the node lacks its version, its response says so.

        Raises:
            ClientClosed: This client is closing or closed.
            IllegalState: The node is not ready, or can take no request now.
            EncodeError: The request cannot be written.
        """
        if not self.active:
            self._ensure_active()
        now = self.clock.milliseconds()
        if self._sendable(request.destination, now) is None:
            raise IllegalState(f"node {request.destination} can take no request now: {bounded(str(request))}")
        self._send(request, now, None)

    def request(
        self, node_id: str, builder: RequestBuilder, callback: Callback, now: int | None = None
    ) -> ClientRequest:
        """Make a request and write it at once, on the calling thread; if it cannot be sent, it takes no correlation id.

        Args:
            node_id: The receiver's ``Node.key``.
            builder: Makes the body.
            callback: Called in ``poll`` with the response: an answer, or the reason why there is none.
            now: The time in ms of the client's clock, if the caller has just read the clock.

        Raises:
            ClientClosed: This client is closing or closed.
            IllegalState: The node is not ready, or can take no request now.
            EncodeError: The request cannot be written.
        """
        if not self.active:
            self._ensure_active()
        if now is None:
            now = self.clock.milliseconds()
        channel = self._sendable(node_id, now)
        if channel is None:
            raise IllegalState(f"node {node_id} can take no request now")
        correlation_id = self.next_correlation_id(node_id)
        request = ClientRequest(node_id, builder, correlation_id, now, self._request_timeout_ms, callback)
        self._send(request, now, channel)
        return request

    def send_internal_metadata_request(self, node_id: str, builder: RequestBuilder) -> None:
        """Send a request of the metadata updater, which gets the response or the failure.

        Raises:
            ClientClosed: This client is closing or closed.
        """
        if not self.active:
            self._ensure_active()
        request = self.new_request(node_id, builder)
        request.internal = True
        self._send(request, self.clock.milliseconds(), None)

    def _send(self, request: ClientRequest, now: int, channel: Channel | None) -> None:
        """Frame a request, and hand it to the selector; with a channel, write it at once.

        If no version suits both sides, the request's response says so.

        Raises:
            IllegalState: There is no connection that can take it.
            EncodeError: The request cannot be written.
        """
        builder, node_id = request.builder, request.destination
        version = builder.latest_version
        try:
            if self._versions.known:
                version = self._versions.choose(node_id, builder)
            body = builder.build(version)
        except (UnsupportedVersion, FieldNotInVersion) as e:
            error = e if isinstance(e, UnsupportedVersion) else NoUsableVersion(request.api_key, version, str(e))
            _log.debug("%s cannot be sent: %s", request, e)
            if request.internal:
                self._metadata.handle_failed_request(now, error)
            else:
                self._aborted.append(ClientResponse(request, now, version_mismatch=error))
                self._selector.wakeup()
            return
        request.version = version
        if request.passed:
            send = Send.framed(node_id, body, request)
        else:
            framer = self._framer if self._client_id_of is None else self._framer_of(node_id)
            send = framer.frame(request, body)
        request.send = send
        request.sent_ms = now
        if not request.expects_response:
            self._one_way += 1
        if now + request.timeout_ms < self._next_timeout_ms:
            self._next_timeout_ms = now + request.timeout_ms
        if channel is None:
            self._selector.send(send)
        else:
            self._writer.write_at_once(channel, send)

    def _framer_of(self, node_id: str) -> RequestFramer:
        """Return the framer of a node whose client id is its own."""
        framer = self._framers.get(node_id)
        if framer is None:
            assert self._client_id_of is not None
            framer = self._framers[node_id] = RequestFramer(self._client_id_of(node_id))
        return framer

    def _sendable(self, node_id: str, now: int) -> Channel | None:
        """Return the node's channel if it can take another request now, else None."""
        if not self._states.is_ready(node_id, now):
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
                self._writer.give_up(channel)
                return None
        return channel

    # ---- connections -------------------------------------------------------------------------------------------------

    def ready(self, node: Node) -> bool:
        """Return whether a request can be sent to the node now; begins to connect if the back-off allows.

        Raises:
            ValueError: The node has no host or port.
        """
        if node.is_empty:
            raise ValueError(f"cannot connect to {node}: it has no host or port")
        if self.is_ready(node):
            return True
        self._connect(node, self.clock.milliseconds())
        return False

    def is_ready(self, node: Node) -> bool:
        """Whether a request can be sent to the node now."""
        now = self.clock.milliseconds()
        return not self._metadata.is_update_due(now) and self._sendable(node.key, now) is not None

    def can_send(self, node: Node) -> bool:
        """Whether the node can take a request now, even while a metadata update is due."""
        return self._sendable(node.key, self.clock.milliseconds()) is not None

    def connection_delay(self, node: Node) -> int:
        """Return the ms to wait before checking the node again."""
        return self._states.connection_delay(node.key, self.clock.milliseconds())

    def connection_failed(self, node: Node) -> bool:
        """Whether the last connection has ended or could not be made."""
        return self._states.is_disconnected(node.key)

    def has_untried_address(self, node: Node) -> bool:
        """Whether the node's host has addresses that were not tried since its look-up; ``ready`` tries the next."""
        return self._states.has_untried_address(node.key)

    def authentication_error(self, node: Node) -> AuthenticationFailed | None:
        """Return the error of the last authentication, None once the node is ready."""
        return self._states.authentication_error(node.key)

    def least_loaded_node(self) -> LeastLoaded:
        """Choose the ready node with the fewest requests in flight, else one connecting, else that tried longest ago.

        Raises:
            IllegalState: There are no nodes.
        """
        nodes = self._metadata.nodes()
        if not nodes:
            raise IllegalState("there are no nodes to choose from")
        now, states, channels = self.clock.milliseconds(), self._states, self._selector.channels
        connection_ready = False
        ready: Node | None = None
        preparing: Node | None = None
        connectable: Node | None = None
        fewest = FOREVER
        offset = self._random.randrange(len(nodes))
        for node in [*nodes[offset:], *nodes[:offset]]:
            key = node.key
            if states.is_ready(key, now) and key in channels and channels[key].connection.usable:
                connection_ready = True
            if self._sendable(key, now) is not None:
                count = self.in_flight_count(key)
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

    def in_flight_count(self, node_id: str | None = None) -> int:
        """Count the unanswered requests of one node, or of all."""
        if node_id is not None:
            channel = self._selector.channel(node_id)
            return 0 if channel is None else len(channel.connection.in_flight)
        return sum(len(channel.connection.in_flight) for channel in self._selector.all_channels())

    def disconnect(self, node_id: str) -> None:
        """Close a connection; the next ``poll`` returns its requests as disconnected.

        Raises:
            IllegalState: The client never connected to this node.
        """
        if self._states.state(node_id).is_disconnected:
            _log.debug("asked to disconnect from node %s, which is disconnected", node_id)
            return
        _log.info("disconnecting from node %s", node_id)
        now = self.clock.milliseconds()
        unanswered = self._selector.close_channel(node_id)
        self._versions.pending.pop(node_id, None)
        self._cancel(unanswered, now, self._aborted)
        self._states.disconnected(node_id, now)

    def close_node(self, node_id: str) -> None:
        """Close a connection and forget it, its requests and its back-off; the requests' callbacks are not called."""
        unanswered = self._selector.close_channel(node_id)
        self._versions.pending.pop(node_id, None)
        now = self.clock.milliseconds()
        for request in unanswered:
            self._one_way -= not request.expects_response
            _log.debug("dropped with its connection: %s", request)
            if request.internal and request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)
        self._states.remove(node_id)

    def forget_node(self, node_id: str) -> None:
        """Close a node's connection; if the node comes back, its correlation ids begin at 0 again."""
        self.close_node(node_id)
        self._ids.pop(node_id, None)
        self._framers.pop(node_id, None)

    # ---- connecting --------------------------------------------------------------------------------------------------

    def _connect(self, node: Node, now: int) -> None:
        """Begin to connect, if the node's back-off allows it; looks its host's name up first if need be."""
        if not self._states.can_connect(node.key, now):
            return
        self._states.connecting(node.key, now, node.host)
        if self._states.current_address(node.key) is not None:
            self._dial(node, now)
            return
        attempt = self._states.attempt(node.key)
        self._is_resolving = True
        try:
            self._resolution.start(node.host, partial(self._resolved, node, attempt))
        finally:
            self._is_resolving = False
        self._dial_resolved(now)

    def _resolved(self, node: Node, attempt: object, result: Sequence[str] | OSError) -> None:
        """Take the addresses of a node, or the error, from any thread."""
        self._lookups.append((node, attempt, result))
        if not self._is_resolving:
            self._selector.wakeup()

    def _dial_resolved(self, now: int) -> None:
        """Dial the nodes whose host has been looked up, unless their attempt was given up meanwhile."""
        while self._lookups:
            node, attempt, result = self._lookups.popleft()
            if attempt is None or self._states.attempt(node.key) is not attempt:
                continue
            if isinstance(result, OSError):
                self._connect_failed(node, result, now)
            else:
                self._states.resolved(node.key, result)
                self._dial(node, now)

    def _dial(self, node: Node, now: int) -> None:
        address = self._states.current_address(node.key)
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
            )
        except OSError as e:
            self._connect_failed(node, e, now)

    def _connect_failed(self, node: Node, error: OSError, now: int) -> None:
        _log.warning("could not connect to node %s: %s", node, error)
        self._states.disconnected(node.key, now)
        self._metadata.handle_server_disconnect(now, node.key, None)

    # ---- polling -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        """Write, read, and complete requests; the callbacks of completed requests are called here.

        A node that sends what is no answer is disconnected; the response to its request has the error.

        Args:
            timeout_ms: The longest wait for an event, in ms.

        Returns:
            The completed requests: first those sent without an answer due, then answered, disconnected, timed out.

        Raises:
            ClientClosed: This client is closing or closed.
        """
        if not self.active:
            self._ensure_active()
        if self.newly_ready:
            self.newly_ready.clear()
        selector, states = self._selector, self._states
        if self._aborted:
            aborted = [self._aborted.popleft() for _ in range(len(self._aborted))]
            self._complete(aborted)
            return aborted
        now = self.clock.nanoseconds() // 1_000_000
        timeout_ms = min(
            timeout_ms,
            self._metadata.maybe_update(now),
            max(0, self._next_timeout_ms - now + 1),
            states.remaining_ms(now) if states.connecting_nodes else FOREVER,
        )
        try:
            selector.poll(timeout_ms, self._max_in_flight > 1 or self._one_way > 0)
            now = selector.polled_ns // 1_000_000
        except OSError as e:
            _log.error("the selector failed: %s", e)
            self.clock.sleep(min(timeout_ms, _FAILED_POLL_MS))
            now = self.clock.milliseconds()
        responses: list[ClientResponse] = []
        try:
            if self._one_way and selector.completed_sends:
                self._complete_sends(responses, now)
            for receive in selector.completed_receives:
                try:
                    self._complete_receive(responses, receive, now)
                except (IllegalState, DecodeError) as e:
                    self._reject(responses, receive.channel, e, now)
            if selector.disconnected:
                for node_id, ended in selector.disconnected.items():
                    self._disconnected(responses, node_id, now, ended)
            for node_id in selector.connected:
                if self._discover_versions:
                    self._versions.ask(node_id)
                else:
                    states.ready(node_id)
            if selector.prepared:  # a connection whose session was renewed is ready at once: its versions are known
                pending = self._versions.pending
                self.newly_ready += [node_id for node_id in selector.prepared if node_id not in pending]
            if self._versions.pending and (selector.prepared or selector.completed_receives):
                self._ask_versions(now)
            if self._lookups:
                self._dial_resolved(now)
            if states.connecting_nodes:
                self._time_out_connections(responses, now)
            if now > self._next_timeout_ms:
                self._time_out_requests(responses, now)
        finally:
            self._complete(responses)
        return responses

    def _complete(self, responses: list[ClientResponse]) -> None:
        for response in responses:
            try:
                callback = response.request.callback
                if callback is not None:
                    callback(response)
            except Exception:  # noqa: BLE001
                # One failing callback must not keep the others from their responses.
                _log.exception("the callback failed of %s", bounded(str(response.request)))

    # ---- responses ---------------------------------------------------------------------------------------------------

    def _complete_sends(self, responses: list[ClientResponse], now: int) -> None:
        """Complete requests that expect no response and have gone out."""
        for send in self._selector.completed_sends:
            channel = self._selector.channel(send.destination)
            requests = None if channel is None else channel.connection.in_flight.requests
            if requests and requests[-1].send is send and not requests[-1].expects_response:
                self._one_way -= 1
                responses.append(ClientResponse(requests.pop(), now))

    def _complete_receive(self, responses: list[ClientResponse], receive: Receive, now: int) -> None:
        """Match a received frame with the oldest in-flight request, and complete the request.

        Raises:
            IllegalState, DecodeError: The frame is no response to the request, which is in flight still.
        """
        channel, payload = receive.channel, receive.payload
        assert payload is not None
        in_flight = channel.connection.in_flight
        if not in_flight.requests:
            raise IllegalState(f"no request is in flight to node {channel.id}")
        request = in_flight.requests[0]
        send = request.send
        if send is not None and not send.completed:
            self._check_early_answer(channel, request)
        if request.internal and request.api_key == ApiKey.API_VERSIONS:
            self._learn_versions(responses, in_flight.requests.popleft(), payload, now)
            return
        body = bytes(payload) if request.passed else parse_response(request, payload)
        in_flight.requests.popleft()
        self._one_way -= not request.expects_response
        throttles_from = _THROTTLES_FROM.get(request.api_key)
        if throttles_from is not None:
            self._note_throttle(request, body, now, throttles_from)
        if request.internal:
            self._metadata.handle_successful_response(request, now, body)
        else:
            responses.append(ClientResponse(request, now, body))

    def _check_early_answer(self, channel: Channel, request: ClientRequest) -> None:
        """Take the answer to a request that has not gone out whole, as Kafka does, and end its connection.

        The node may never read the rest of the request, so that no other request could follow it.

        Raises:
            IllegalState: No byte of the request had gone out: the frame cannot be its answer.
        """
        send = request.send
        assert send is not None
        with channel.lock:  # another thread may be writing the request
            if channel.has_sent(send):
                return
        if send.remaining == send.size:
            raise IllegalState(f"an answer came before its request was sent: {bounded(str(request))}")
        _log.warning(
            "node %s answered before %d bytes of the request had gone out; closing the connection: %s",
            request.destination, send.remaining, bounded(str(request)),
        )  # fmt: skip
        self._writer.give_up(channel)

    def _note_throttle(self, request: ClientRequest, body: Any, now: int, throttles_from: float) -> None:
        """Count the throttle time of a response, and keep it from the version on in which the client must."""
        throttle_ms = getattr(body, "throttle_time_ms", None)
        if throttle_ms is None:
            return
        channel = self._selector.channel(request.destination)
        if channel is not None and channel.metrics is not None:
            channel.metrics.throttles.record(throttle_ms)
        if throttle_ms > 0 and request.version >= throttles_from:
            self._states.throttle(request.destination, now + throttle_ms)
            if channel is not None:
                channel.connection.in_flight.throttle(throttle_ms)

    # ---- ends of connections, and time-outs --------------------------------------------------------------------------

    def _reject(self, responses: list[ClientResponse], channel: Channel, error: Exception, now: int) -> None:
        """Close the connection of a node that has sent what is no answer."""
        if channel.closed:
            return  # with it all requests have ended
        what = "an answer that cannot be read" if channel.connection.in_flight else "what nobody has asked for"
        _log.warning("node %s sent %s: %s; closing the connection", channel.id, what, error)
        unanswered = self._selector.close_channel(channel.id)
        self._cancel(unanswered[:1], now, responses, error=error)
        ended = Disconnection(ChannelState.LOCAL_CLOSE, unanswered=tuple(unanswered[1:]))
        self._disconnected(responses, channel.id, now, ended)

    def _disconnected(
        self, responses: list[ClientResponse], node_id: str, now: int, ended: Disconnection, timed_out: bool = False
    ) -> None:
        """Take the end of a connection: note the reason, end its requests, and notify the metadata updater."""
        self._states.disconnected(node_id, now)
        self._versions.forget(node_id)
        match ended.state:
            case ChannelState.AUTHENTICATION_FAILED if ended.error is not None:
                self._states.authentication_failed(node_id, now, ended.error)
                _log.error("connection to node %s (%s) failed authentication: %s", node_id, ended.remote, ended.error)
            case ChannelState.AUTHENTICATE:
                _log.warning(
                    "connection to node %s (%s) ended during authentication: a firewall may block it, "
                    "or the node may expect TLS", node_id, ended.remote,
                )  # fmt: skip
            case ChannelState.NOT_CONNECTED:
                _log.warning("connection to node %s could not be established; the node may be down", node_id)
        self._cancel(ended.unanswered, now, responses, timed_out)
        self._metadata.handle_server_disconnect(now, node_id, ended.error)

    def _cancel(
        self,
        unanswered: Sequence[ClientRequest],
        now: int,
        responses: MutableSequence[ClientResponse],
        timed_out: bool = False,
        error: Exception | None = None,
    ) -> None:
        """End requests whose connection has ended; the metadata updater is notified of its own."""
        for request in unanswered:
            self._one_way -= not request.expects_response
            if not request.internal:
                responses.append(ClientResponse(request, now, disconnected=True, timed_out=timed_out, error=error))
            elif request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)

    def _close_locally(self, responses: list[ClientResponse], node_id: str, now: int, timed_out: bool = False) -> None:
        unanswered = self._selector.close_channel(node_id)
        ended = Disconnection(ChannelState.LOCAL_CLOSE, unanswered=tuple(unanswered))
        self._disconnected(responses, node_id, now, ended, timed_out)

    def _time_out_connections(self, responses: list[ClientResponse], now: int) -> None:
        """Give up attempts to connect that have taken too long."""
        for node_id in self._states.timed_out_connections(now):
            _log.info("connecting to node %s took longer than %d ms", node_id, self._states.setup_timeout_ms(node_id))
            self._close_locally(responses, node_id, now, timed_out=True)

    def _time_out_requests(self, responses: list[ClientResponse], now: int) -> None:
        """Time out in-flight requests: all are checked once per request timeout, as later requests end later."""
        earliest = now + self._request_timeout_ms
        for node_id, channel in list(self._selector.channels.items()):
            if channel.connection.in_flight.timed_out(now):
                _log.info("node %s did not answer in time; closing the connection", node_id)
                self._close_locally(responses, node_id, now, timed_out=True)
            else:
                deadline = channel.connection.in_flight.earliest_deadline()
                if deadline is not None and deadline < earliest:
                    earliest = deadline
        self._next_timeout_ms = earliest

    # ---- versions ----------------------------------------------------------------------------------------------------

    def _ask_versions(self, now: int) -> None:
        """Send ApiVersions requests to the pending nodes that can take a request."""
        for node_id in list(self._versions.pending):
            channel = self._selector.channels.get(node_id)
            if channel is not None and channel.connection.usable:
                self._states.checking_api_versions(node_id)
                request = self.new_request(node_id, self._versions.request(node_id))
                request.internal = True
                self._send(request, now, None)

    def _learn_versions(
        self, responses: list[ClientResponse], request: ClientRequest, payload: bytearray, now: int
    ) -> None:
        node_id = request.destination
        try:
            answer = self._versions.learn(request, payload)
        except VersionsUnavailable as e:
            _log.warning("node %s does not tell its versions (%s); disconnecting", node_id, e)
            self._close_locally(responses, node_id, now)
            return
        if node_id in self._versions.known:
            self._note_throttle(request, answer, now, _THROTTLES_FROM[ApiKey.API_VERSIONS])
            self._states.ready(node_id)
            self.newly_ready.append(node_id)
            _log.debug("node %s has versions %s", node_id, self._versions.known[node_id])

    # ---- ending ------------------------------------------------------------------------------------------------------

    def _ensure_active(self) -> None:
        if not self.active:
            raise ClientClosed(f"client {self.client_id} is {'closed' if self._is_closed else 'closing'}")

    def wakeup(self) -> None:
        """End a waiting ``poll``, from any thread."""
        self._selector.wakeup()

    def initiate_close(self) -> None:
        """Refuse all requests from now on and end a waiting ``poll``, from any thread."""
        if self.active:
            self.active = False
            self.wakeup()

    def close(self) -> None:
        """Close all connections. A second call only logs a warning."""
        if self._is_closed:
            _log.warning("client %s is closed already", self.client_id)
            return
        self.active = False
        self._is_closed = True
        try:
            self._selector.close()
        finally:
            self._metadata.close()

    def abandon(self) -> None:
        """Close in a forked child, without sending anything to any node."""
        self.active = False
        self._is_closed = True
        self._selector.abandon()
