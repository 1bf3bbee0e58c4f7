"""A network client for many nodes: connects, sends requests, matches responses, times out, backs off.

Nothing blocks but ``poll``; ``channel.network.blocking`` has helpers that wait.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.errors import ClientClosed, IllegalState
from channel.logs import bounded, get_logger
from kproto.api import ApiKey
from kproto.errors import DecodeError

from .api_versions import VersionDiscovery
from .connection_states import ClusterConnectionStates
from .nodes import NodeConnections
from .request import Callback, ClientId, ClientRequest, ClientResponse, RequestBuilder
from .request_outcomes import RequestOutcomes
from .request_sender import RequestSender
from .resolution import NameResolution

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.errors import AuthenticationFailed
    from channel.types import Node
    from kproto.node_versions import NodeApiVersions

    from .backoff import Randomness
    from .least_loaded import LeastLoaded
    from .resolution import Resolution
    from .selector import Selector
    from .updater import MetadataUpdater

__all__ = ["NetworkClient"]

_log = get_logger(__name__)

_FAILED_POLL_MS: Final = 100
"""The longest pause after a poll that the system refused, so that a lasting fault does not fill log and processor."""


class _Phase(Enum):
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"


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
        on_invalid_answer: Takes a node's id and the error of its invalid response, which ``poll`` then does not raise.
        clock, resolution, randomness: The sources of time, addresses and jitter.

    Attributes:
        next_correlation_id: See ``RequestSender.next_correlation_id``.
        new_request: Makes a request for ``send``; see ``RequestSender.new_request``.
        newly_ready: The nodes that became ready for requests in the last ``poll``.
    """

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
        on_invalid_answer: Callable[[str, Exception], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        resolution: Resolution | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.client_id = client_id
        self.clock = clock
        self._selector = selector
        self._metadata = metadata
        self._states = ClusterConnectionStates(
            reconnect_backoff_ms, reconnect_backoff_max_ms, setup_timeout_ms, setup_timeout_max_ms, randomness
        )
        self._nodes = NodeConnections(
            selector,
            metadata,
            self._states,
            resolution or NameResolution(),
            max_in_flight,
            checks_versions=discover_versions,
            send_buffer=send_buffer,
            receive_buffer=receive_buffer,
            randomness=randomness,
        )
        self._discover_versions = discover_versions
        self._versions = VersionDiscovery(api_versions)
        self._pipelined = max_in_flight > 1
        self._on_invalid_answer = on_invalid_answer
        self._sender = RequestSender(selector, metadata, self._versions, client_id, request_timeout_ms, clock)
        self._outcomes = RequestOutcomes(
            selector,
            metadata,
            self._states,
            self._nodes,
            self._versions,
            self._sender,
            discover_versions=discover_versions,
        )
        self.next_correlation_id = self._sender.next_correlation_id
        self.new_request = self._sender.new_request
        self.newly_ready = self._outcomes.newly_ready
        self._phase = _Phase.ACTIVE
        metadata.attach(self)

    # ---- making and sending requests ---------------------------------------------------------------------------------

    def send(self, request: ClientRequest) -> None:
        """Queue a request; ``poll`` writes it. If the node lacks its version, its response says so.

        Raises:
            ClientClosed: This client is closing or closed.
            IllegalState: The node is not ready, or can take no request now.
            EncodeError: The request cannot be written.
        """
        if self._phase is not _Phase.ACTIVE:
            self._ensure_active()
        now = self.clock.milliseconds()
        if not self._nodes.can_send(request.destination, now):
            raise IllegalState(f"node {request.destination} can take no request now: {bounded(str(request))}")
        self._sender.send(request, now)

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
        if self._phase is not _Phase.ACTIVE:
            self._ensure_active()
        if now is None:
            now = self.clock.milliseconds()
        channel = self._nodes.sendable(node_id, now)
        if channel is None:
            raise IllegalState(f"node {node_id} can take no request now")
        return self._sender.request(node_id, builder, callback, now, channel)

    def send_internal_metadata_request(self, node_id: str, builder: RequestBuilder) -> None:
        """Send a request of the metadata updater, which gets the response or the failure.

        Raises:
            ClientClosed: This client is closing or closed.
        """
        self._ensure_active()
        request = self.new_request(node_id, builder)
        request.internal = True
        self._sender.send(request, self.clock.milliseconds())

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
        self._nodes.connect(node, self.clock.milliseconds())
        return False

    def is_ready(self, node: Node) -> bool:
        """Whether a request can be sent to the node now."""
        now = self.clock.milliseconds()
        return not self._metadata.is_update_due(now) and self._nodes.can_send(node.key, now)

    def can_send(self, node: Node) -> bool:
        """Whether the node can take a request now, even while a metadata update is due."""
        return self._nodes.can_send(node.key, self.clock.milliseconds())

    def connection_delay(self, node: Node) -> int:
        """Return the ms to wait before checking the node again."""
        return self._states.connection_delay(node.key, self.clock.milliseconds())

    def poll_delay_ms(self, node: Node) -> int:
        """Return the rest of a connected node's throttle, else ``connection_delay``."""
        return self._states.poll_delay_ms(node.key, self.clock.milliseconds())

    def connection_failed(self, node: Node) -> bool:
        """Whether the last connection has ended or could not be made."""
        return self._states.is_disconnected(node.key)

    def authentication_error(self, node: Node) -> AuthenticationFailed | None:
        """Return the error of the last authentication, None once the node is ready."""
        return self._states.authentication_error(node.key)

    def has_ready_nodes(self) -> bool:
        """Whether any node is ready and not throttled."""
        return self._states.has_ready_nodes(self.clock.milliseconds())

    def least_loaded_node(self) -> LeastLoaded:
        """Choose the ready node with the fewest requests in flight, else one connecting, else one to connect to.

        Raises:
            IllegalState: There are no nodes.
        """
        return self._nodes.least_loaded(self.clock.milliseconds())

    def in_flight_count(self, node_id: str | None = None) -> int:
        """Count the unanswered requests of one node, or of all."""
        if node_id is not None:
            return self._nodes.in_flight(node_id)
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
        self._outcomes.cancel(unanswered, now, self._sender.aborted)
        self._states.disconnected(node_id, now)

    def close_node(self, node_id: str) -> None:
        """Close a connection and forget it, its requests and its back-off; the requests' callbacks are not called."""
        unanswered = self._selector.close_channel(node_id)
        self._versions.pending.pop(node_id, None)
        now = self.clock.milliseconds()
        for request in unanswered:
            self._sender.unanswered -= not request.expects_response
            _log.debug("dropped with its connection: %s", request)
            if request.internal and request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)
        self._states.remove(node_id)

    def forget_node(self, node_id: str) -> None:
        """Close a node's connection; if the node comes back, its correlation ids begin at 0 again."""
        self.close_node(node_id)
        self._sender.forget(node_id)

    # ---- polling -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        """Write, read, and complete requests; the callbacks of completed requests are called here.

        Args:
            timeout_ms: The longest wait for an event, in ms.

        Returns:
            The completed requests: first those sent without an answer due, then answered, disconnected, timed out.

        Raises:
            ClientClosed: This client is closing or closed.
            CorrelationIdMismatch, DecodeError: A node sent an invalid response. Close its connection.
        """
        if self._phase is not _Phase.ACTIVE:
            self._ensure_active()
        if self.newly_ready:
            self.newly_ready.clear()
        sender, outcomes, selector = self._sender, self._outcomes, self._selector
        if sender.aborted:
            aborted = [sender.aborted.popleft() for _ in range(len(sender.aborted))]
            self._complete(aborted)
            return aborted
        now = self.clock.milliseconds()
        timeout_ms = min(
            timeout_ms,
            self._metadata.maybe_update(now),
            max(0, sender.next_timeout_ms - now + 1),
            self._states.remaining_ms(now) if self._states.connecting_nodes else FOREVER,
        )
        try:
            selector.poll(timeout_ms, for_sends=self._pipelined or sender.unanswered > 0)
            now = selector.polled_ns // 1_000_000
        except OSError as e:
            _log.error("the selector failed: %s", e)
            self.clock.sleep(min(timeout_ms, _FAILED_POLL_MS))
            now = self.clock.milliseconds()
        responses: list[ClientResponse] = []
        errors: list[tuple[str, Exception]] = []
        try:
            if sender.unanswered and selector.completed_sends:
                outcomes.complete_sends(responses, now)
            for receive in selector.completed_receives:
                try:
                    outcomes.complete_receive(responses, receive, now)
                except (IllegalState, DecodeError) as e:  # the other responses are not lost
                    errors.append((receive.source, e))
            if selector.disconnected:
                for node_id, ended in selector.disconnected.items():
                    outcomes.disconnect(responses, node_id, now, ended)
            if selector.connected:
                outcomes.begin_connections()
            if selector.prepared:  # a connection whose session was renewed is ready at once: its versions are known
                pending = self._versions.pending
                self.newly_ready += [node_id for node_id in selector.prepared if node_id not in pending]
            if self._versions.pending and (selector.prepared or selector.completed_receives):
                outcomes.ask_versions(now)
            self._nodes.go_on(now)
            if self._states.connecting_nodes:
                outcomes.time_out_connections(responses, now)
            if now > sender.next_timeout_ms:
                outcomes.time_out_requests(responses, now)
        finally:
            self._complete(responses)
        for node_id, error in errors:
            if self._on_invalid_answer is None:
                raise error
            self._on_invalid_answer(node_id, error)
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

    # ---- ending ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether the client is neither closing nor closed."""
        return self._phase is _Phase.ACTIVE

    def _ensure_active(self) -> None:
        if self._phase is not _Phase.ACTIVE:
            raise ClientClosed(f"client {self.client_id} is {self._phase.value}")

    def wakeup(self) -> None:
        """End a waiting ``poll``, from any thread."""
        self._selector.wakeup()

    def initiate_close(self) -> None:
        """Refuse all requests from now on and end a waiting ``poll``, from any thread."""
        if self._phase is _Phase.ACTIVE:
            self._phase = _Phase.CLOSING
            self.wakeup()

    def close(self) -> None:
        """Close all connections. A second call only logs a warning."""
        if self._phase is _Phase.CLOSED:
            _log.warning("client %s is closed already", self.client_id)
            return
        self._phase = _Phase.CLOSED
        try:
            self._selector.close()
        finally:
            self._metadata.close()

    def abandon(self) -> None:
        """Close in a forked child, without sending anything to any node."""
        self._phase = _Phase.CLOSED
        self._selector.abandon()
