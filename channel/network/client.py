"""One side of many conversations: connects, sends requests, matches answers, times out, backs off.

Nothing blocks but ``poll``; ``channel.network.blocking`` has helpers that wait.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.errors import ClientClosed, IllegalState, NoUsableVersion
from channel.logs import bounded, get_logger
from kproto.api import ApiKey
from kproto.errors import DecodeError, FieldNotInVersion, UnsupportedVersion

from .api_versions import VersionDiscovery, VersionsRefused
from .channel import ChannelState, Disconnection
from .connection_states import ClusterConnectionStates, Resolver, resolve
from .frames import Send
from .in_flight import InFlightRequests
from .nodes import NodeConnections
from .request import Callback, ClientRequest, ClientResponse, RequestBuilder
from .wire import CorrelationIds, RequestFramer, parse_response

if TYPE_CHECKING:
    from kproto.node_versions import NodeApiVersions

    from .backoff import Randomness
    from .frames import Receive
    from .metadata import MetadataUpdater
    from .selector import Selector

__all__ = ["NetworkClient"]

_log = get_logger(__name__)

_THROTTLES_FROM: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
}
"""From which version on an answer's throttle time is for the client to keep; of other APIs it is not read."""


_LOCAL_CLOSE: Final = Disconnection(ChannelState.LOCAL_CLOSE)


class _Phase(Enum):
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"


class NetworkClient(NodeConnections):
    """Requests to many nodes over one selector.

    Not for more than one thread, but for ``wakeup``, ``initiate_close``, ``active`` and ``in_flight_count``.

    Args:
        selector: Moves the bytes; the client owns and closes it.
        metadata: Keeps the nodes.
        client_id: Goes into every header; None for none.
        max_in_flight: Most unanswered requests on one connection.
        reconnect_backoff_ms, reconnect_backoff_max_ms: Wait before connecting again, and how far it may grow.
        send_buffer, receive_buffer: Of new sockets in bytes, -1 as the system has it.
        request_timeout_ms: For requests that name none.
        setup_timeout_ms, setup_timeout_max_ms: How long connecting may take, and how far that may grow.
        discover_versions: Ask each node for its versions before anything else.
        api_versions: What is known of nodes' versions, shared between clients if given.
        clock, resolver, randomness: Where time, addresses and spread come from.
    """

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        client_id: str | None,
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
        resolver: Resolver = resolve,
        randomness: Randomness | None = None,
    ) -> None:
        states = ClusterConnectionStates(
            reconnect_backoff_ms,
            reconnect_backoff_max_ms,
            setup_timeout_ms,
            setup_timeout_max_ms,
            resolver,
            randomness,
        )
        in_flight = InFlightRequests(max_in_flight)
        super().__init__(selector, metadata, states, in_flight, send_buffer, receive_buffer, clock, randomness)
        self.client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._discover_versions = discover_versions
        self._versions = VersionDiscovery(api_versions)
        self._pipelined = max_in_flight > 1
        self._unanswered = 0  # requests in flight that expect no answer
        self._earliest_deadline = FOREVER  # no request in flight times out before
        self._aborted: list[ClientResponse] = []
        self._framer = RequestFramer(client_id)
        self._ids = CorrelationIds()
        self._phase = _Phase.ACTIVE

    # ---- making and sending requests ---------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """A correlation id that no request of this client has had."""
        return self._ids.take()

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
        """One attempt to send a request: takes a correlation id, whether it is sent or not.

        Args:
            node_id: To whom, ``Node.key``.
            builder: Makes the body.
            callback: Called in ``poll`` with the answer, or with what came instead.
            expects_response: Whether the node answers at all.
            timeout_ms: How long the answer may take; None for the client's own.
            created_ms: When the request came to be, for its latency; None for now.
        """
        return ClientRequest(
            node_id,
            builder,
            self._ids.take(),
            self.clock.milliseconds() if created_ms is None else created_ms,
            self._request_timeout_ms if timeout_ms is None else timeout_ms,
            expects_response=expects_response,
            callback=callback,
        )

    def send(self, request: ClientRequest) -> None:
        """Hand a request over; ``poll`` writes it. A version that the node lacks is told by its response.

        Raises:
            ClientClosed: This client is closing or closed.
            IllegalState: The node is not ready, or can take no request now.
            EncodeError: The request cannot be written.
        """
        self._ensure_active()
        if not self._can_send(request.destination, self.clock.milliseconds()):
            raise IllegalState(f"node {request.destination} can take no request now: {bounded(str(request))}")
        self._send(request)

    def send_internal_metadata_request(self, node_id: str, builder: RequestBuilder) -> None:
        """Send a request of the metadata updater's, which gets the answer or the failure.

        Raises:
            ClientClosed: This client is closing or closed.
        """
        self._ensure_active()
        request = self.new_request(node_id, builder)
        request.internal = True
        self._send(request)

    def _send(self, request: ClientRequest) -> None:
        builder, node_id = request.builder, request.destination
        version = builder.latest_version
        try:
            version = self._versions.choose(node_id, builder)
            body = builder.build(version)
        except (UnsupportedVersion, FieldNotInVersion) as e:
            error = e if isinstance(e, UnsupportedVersion) else NoUsableVersion(request.api_key, version, str(e))
            _log.debug("%s cannot be sent: %s", request, e)
            now = self.clock.milliseconds()
            if request.internal:
                self._metadata.handle_failed_request(now, error)
            else:
                self._aborted.append(ClientResponse(request, now, version_mismatch=error))
            return
        request.version = version
        frame = self._framer.frame(request.api_key, version, request.correlation_id, body)
        request.send = send = Send(node_id, frame)
        request.sent_ms = now = self.clock.milliseconds()
        self._in_flight.add(request)
        if not request.expects_response:
            self._unanswered += 1
        if now + request.timeout_ms < self._earliest_deadline:
            self._earliest_deadline = now + request.timeout_ms
        self._selector.send(send)

    # ---- connections -------------------------------------------------------------------------------------------------

    def in_flight_count(self, node_id: str | None = None) -> int:
        """Unanswered requests of one node, or of all."""
        return len(self._in_flight) if node_id is None else self._in_flight.count(node_id)

    def disconnect(self, node_id: str) -> None:
        """End a connection; its requests come back as disconnected with the next ``poll``.

        Raises:
            IllegalState: Nothing was ever sent or connected to this node.
        """
        if self._states.state(node_id).is_disconnected:
            _log.debug("asked to disconnect from node %s, which is disconnected", node_id)
            return
        _log.info("disconnecting from node %s", node_id)
        now = self.clock.milliseconds()
        self._selector.close_channel(node_id)
        self._versions.pending.pop(node_id, None)
        self._cancel_in_flight(node_id, now, self._aborted)
        self._states.disconnected(node_id, now)

    def close_node(self, node_id: str) -> None:
        """End a connection and forget it, its requests and its backoff; nobody is told of the requests."""
        self._selector.close_channel(node_id)
        self._versions.pending.pop(node_id, None)
        now = self.clock.milliseconds()
        for request in self._in_flight.clear_all(node_id):
            self._unanswered -= not request.expects_response
            _log.debug("dropped with its connection: %s", request)
            if request.internal and request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)
        self._states.remove(node_id)

    # ---- polling -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        """Write, read, and see what has come of it; the callbacks of what has ended are called here.

        Args:
            timeout_ms: How long to wait for something to happen.

        Returns:
            What has ended, in the order of the phases: sent without an answer due, answered, disconnected, timed out.

        Raises:
            ClientClosed: This client is closing or closed.
            CorrelationIdMismatch, DecodeError: A node sent what is no answer. Close its connection.
        """
        self._ensure_active()
        if self._aborted:
            aborted, self._aborted = self._aborted, []
            self._complete(aborted)
            return aborted
        update_ms = self._metadata.maybe_update(self.clock.milliseconds())
        timeout_ms = min(timeout_ms, update_ms, self._request_timeout_ms)
        selector = self._selector
        try:
            selector.poll(timeout_ms, for_sends=self._pipelined or self._unanswered > 0)
        except OSError:
            _log.exception("the selector failed")
        now = self.clock.milliseconds()
        responses: list[ClientResponse] = []
        error: Exception | None = None
        try:
            if self._unanswered and selector.completed_sends:
                self._handle_sends(responses, now)
            if selector.completed_receives:
                error = self._handle_receives(responses, now)
            if selector.disconnected:
                for node_id, ended in selector.disconnected.items():
                    self._handle_disconnection(responses, node_id, now, ended)
            if selector.connected:
                self._handle_connections()
            if self._versions.pending:
                self._ask_versions()
            if self._states.connecting_nodes:
                self._time_out_connections(responses, now)
            if now > self._earliest_deadline:
                self._time_out_requests(responses, now)
        finally:
            self._complete(responses)
        if error is not None:
            raise error  # one answer was none; the others are not lost for it
        return responses

    def _complete(self, responses: list[ClientResponse]) -> None:
        for response in responses:
            try:
                response.complete()
            except Exception:  # noqa: BLE001
                # One caller's mistake must not keep the others from their answers.
                _log.exception("the callback failed of %s", bounded(str(response.request)))

    def _take(self, request: ClientRequest) -> ClientRequest:
        self._unanswered -= not request.expects_response
        return request

    def _handle_sends(self, responses: list[ClientResponse], now: int) -> None:
        for send in self._selector.completed_sends:
            if not self._in_flight.last_sent(send.destination).expects_response:
                request = self._take(self._in_flight.complete_last_sent(send.destination))
                responses.append(ClientResponse(request, now))

    def _handle_receives(self, responses: list[ClientResponse], now: int) -> Exception | None:
        """Match and read the answers; gives the first error of those that are none."""
        error: Exception | None = None
        for receive in self._selector.completed_receives:
            try:
                self._handle_receive(responses, receive, now)
            except (IllegalState, DecodeError) as e:
                error = error or e
        return error

    def _handle_receive(self, responses: list[ClientResponse], receive: Receive, now: int) -> None:
        request = self._take(self._in_flight.complete_next(receive.source))
        assert receive.payload is not None
        channel = self._selector.channels.get(receive.source)
        if channel is not None and channel.node_metrics is not None:
            channel.node_metrics.latency.record(now - request.sent_ms)
        if request.internal and request.api_key == ApiKey.API_VERSIONS:
            self._handle_versions(responses, request, receive.payload, now)
            return
        body = parse_response(request, receive.payload)
        if request.version >= _THROTTLES_FROM.get(request.api_key, FOREVER):
            self._maybe_throttle(request, body, now)
        if request.internal:
            self._metadata.handle_successful_response(request, now, body)
        else:
            responses.append(ClientResponse(request, now, body))

    def _maybe_throttle(self, request: ClientRequest, body: Any, now: int) -> None:
        throttle_ms = body.throttle_time_ms
        if throttle_ms > 0:
            self._states.throttle(request.destination, now + throttle_ms)
            self._in_flight.throttle(request.destination, throttle_ms)

    def _handle_disconnection(
        self, responses: list[ClientResponse], node_id: str, now: int, ended: Disconnection, *, timed_out: bool = False
    ) -> None:
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
        self._cancel_in_flight(node_id, now, responses, timed_out=timed_out)
        self._metadata.handle_server_disconnect(now, node_id, ended.error)

    def _cancel_in_flight(
        self, node_id: str, now: int, responses: list[ClientResponse], *, timed_out: bool = False
    ) -> None:
        for request in self._in_flight.clear_all(node_id):
            self._take(request)
            if not request.internal:
                responses.append(ClientResponse(request, now, disconnected=True, timed_out=timed_out))
            elif request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)

    def _time_out_connections(self, responses: list[ClientResponse], now: int) -> None:
        for node_id in self._states.timed_out_connections(now):
            _log.info("connecting to node %s took longer than %d ms", node_id, self._states.setup_timeout_ms(node_id))
            self._selector.close_channel(node_id)
            self._handle_disconnection(responses, node_id, now, _LOCAL_CLOSE, timed_out=True)

    def _time_out_requests(self, responses: list[ClientResponse], now: int) -> None:
        for node_id in self._in_flight.timed_out_nodes(now):
            _log.info("node %s did not answer in time; closing the connection", node_id)
            self._selector.close_channel(node_id)
            self._handle_disconnection(responses, node_id, now, _LOCAL_CLOSE, timed_out=True)
        self._earliest_deadline = self._in_flight.earliest_deadline()

    # ---- versions ----------------------------------------------------------------------------------------------------

    def _handle_connections(self) -> None:
        for node_id in self._selector.connected:
            if self._discover_versions:
                self._versions.ask(node_id)
            else:
                self._states.ready(node_id)

    def _ask_versions(self) -> None:
        for node_id in list(self._versions.pending):
            if self._selector.is_channel_ready(node_id) and self._in_flight.can_send_more(node_id):
                self._states.checking_api_versions(node_id)
                request = self.new_request(node_id, self._versions.request(node_id))
                request.internal = True
                self._send(request)

    def _handle_versions(
        self, responses: list[ClientResponse], request: ClientRequest, payload: bytearray, now: int
    ) -> None:
        node_id = request.destination
        try:
            answer = self._versions.learn(request, payload)
        except VersionsRefused as e:
            _log.warning("node %s does not tell its versions (%s); disconnecting", node_id, e)
            self._selector.close_channel(node_id)
            self._handle_disconnection(responses, node_id, now, _LOCAL_CLOSE)
            return
        if node_id in self._versions.known:
            if request.version >= _THROTTLES_FROM[ApiKey.API_VERSIONS]:
                self._maybe_throttle(request, answer, now)
            self._states.ready(node_id)
            _log.debug("node %s has versions %s", node_id, self._versions.known[node_id])

    # ---- ending ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether nobody has begun to close it."""
        return self._phase is _Phase.ACTIVE

    def _ensure_active(self) -> None:
        if self._phase is not _Phase.ACTIVE:
            raise ClientClosed(f"client {self.client_id} is {self._phase.value}")

    def wakeup(self) -> None:
        """End a ``poll`` that waits, from any thread."""
        self._selector.wakeup()

    def initiate_close(self) -> None:
        """Refuse everything from now on and end a ``poll`` that waits, from any thread."""
        if self._phase is _Phase.ACTIVE:
            self._phase = _Phase.CLOSING
            self.wakeup()

    def close(self) -> None:
        """Close all connections. A second time it only warns."""
        if self._phase is _Phase.CLOSED:
            _log.warning("client %s is closed already", self.client_id)
            return
        self._phase = _Phase.CLOSED
        try:
            self._selector.close()
        finally:
            self._metadata.close()
