"""The outcomes of requests: answers, ends of connections and timeouts become client responses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.logs import bounded, get_logger
from kproto.api import CONTROL_APIS, ApiKey
from kproto.errors import DecodeError

from .api_versions import VersionDiscovery, VersionsRefused
from .channel import ChannelState, Disconnection
from .connection import Phase
from .request import ClientRequest, ClientResponse
from .wire import parse_response

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from .channel import Channel, Receive
    from .connection_states import ClusterConnectionStates
    from .nodes import NodeConnections
    from .request_sender import RequestSender
    from .selector import Selector
    from .updater import MetadataUpdater

__all__ = ["RequestOutcomes"]

_log = get_logger(__name__)

_WITHOUT_THROTTLE_TIME: Final = {*CONTROL_APIS, ApiKey.CONTROLLED_SHUTDOWN}
_THROTTLES_FROM: Final[dict[int, float]] = {
    **{key: math.inf for key in ApiKey if key not in _WITHOUT_THROTTLE_TIME},
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
}
"""The first version of each API in which the client must keep a response's throttle time; infinite where never."""


class RequestOutcomes:
    """Completes the requests of a client after each poll of its selector.

    Args:
        selector: Moves the bytes.
        metadata: Takes the outcomes of its own requests.
        states: The connection state of each node.
        nodes: The connections.
        versions: The API versions of nodes.
        sender: Sends ApiVersions requests, and knows when requests time out.
        discover_versions: Whether nodes are asked for their versions.

    Attributes:
        newly_ready: The nodes that have become ready for requests.
    """

    __slots__ = (
        "_discover_versions", "_metadata", "_nodes", "_selector", "_sender", "_states", "_versions", "newly_ready",
    )  # fmt: skip

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        states: ClusterConnectionStates,
        nodes: NodeConnections,
        versions: VersionDiscovery,
        sender: RequestSender,
        *,
        discover_versions: bool,
    ) -> None:
        self._selector = selector
        self._metadata = metadata
        self._states = states
        self._nodes = nodes
        self._versions = versions
        self._sender = sender
        self._discover_versions = discover_versions
        self.newly_ready: list[str] = []

    def _take(self, request: ClientRequest) -> ClientRequest:
        self._sender.unanswered -= not request.expects_response
        return request

    def complete_sends(self, responses: list[ClientResponse], now: int) -> None:
        """Complete requests that expect no response and have gone out."""
        for send in self._selector.completed_sends:
            channel = self._nodes.channel(send.destination)
            requests = () if channel is None else channel.connection.in_flight.requests
            if requests and requests[-1].send is send and not requests[-1].expects_response:
                assert channel is not None
                request = self._take(channel.connection.in_flight.complete_last_sent())
                responses.append(ClientResponse(request, now))

    def complete_receive(self, responses: list[ClientResponse], receive: Receive, now: int) -> None:
        """Match a received frame with the oldest in-flight request, and complete the request.

        Raises:
            IllegalState, DecodeError: The frame is no response to the request.
        """
        channel, payload = receive.channel, receive.payload
        assert payload is not None
        in_flight = channel.connection.in_flight
        request = in_flight.requests.popleft() if in_flight.requests else in_flight.complete_next()
        send = request.send
        if send is not None and not send.completed:
            self._check_early_answer(channel, request)
        if channel.node_metrics is not None:
            channel.node_metrics.latency.record(now - request.sent_ms)
        if request.internal or not request.expects_response:
            self._complete_special(responses, request, payload, now)
            return
        body = parse_response(request, payload)
        throttles_from = _THROTTLES_FROM.get(request.api_key)
        if throttles_from is not None:
            self._note_throttle(request, body, now, throttles_from)
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
            if send.completed:
                return
        if send.remaining == send.size:
            self._take(request)
            raise IllegalState(f"an answer came before its request was sent: {bounded(str(request))}")
        _log.warning(
            "node %s answered before %d bytes of the request had gone out; closing the connection: %s",
            request.destination, send.remaining, bounded(str(request)),
        )  # fmt: skip
        self._selector.writer.give_up(channel)

    def _complete_special(
        self, responses: list[ClientResponse], request: ClientRequest, payload: bytearray, now: int
    ) -> None:
        """Do ``complete_receive`` for requests of the client itself and requests that expect no response."""
        self._take(request)
        if request.internal and request.api_key == ApiKey.API_VERSIONS:
            self._learn_versions(responses, request, payload, now)
            return
        try:
            body = parse_response(request, payload)
        except (IllegalState, DecodeError):
            if request.internal:
                self._metadata.handle_failed_request(now, None)
            raise
        throttles_from = _THROTTLES_FROM.get(request.api_key)
        if throttles_from is not None:
            self._note_throttle(request, body, now, throttles_from)
        if request.internal:
            self._metadata.handle_successful_response(request, now, body)
        else:
            responses.append(ClientResponse(request, now, body))

    def _note_throttle(self, request: ClientRequest, body: Any, now: int, throttles_from: float) -> None:
        """Count the throttle time of a response, and keep it from the version on in which the client must."""
        throttle_ms = getattr(body, "throttle_time_ms", None)
        if throttle_ms is None:
            return
        channel = self._nodes.channel(request.destination)
        if channel is not None and channel.metrics is not None:
            channel.metrics.throttles.record(throttle_ms)
        if throttle_ms > 0 and request.version >= throttles_from:
            self._states.throttle(request.destination, now + throttle_ms)
            if channel is not None:
                channel.connection.in_flight.throttle(throttle_ms)

    def disconnect(
        self, responses: list[ClientResponse], node_id: str, now: int, ended: Disconnection, *, timed_out: bool = False
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
        self.cancel(ended.unanswered, now, responses, timed_out=timed_out)
        self._metadata.handle_server_disconnect(now, node_id, ended.error)

    def cancel(
        self,
        unanswered: Sequence[ClientRequest],
        now: int,
        responses: MutableSequence[ClientResponse],
        *,
        timed_out: bool = False,
    ) -> None:
        """End requests whose connection has ended; the metadata updater is notified of its own."""
        for request in unanswered:
            self._take(request)
            if not request.internal:
                responses.append(ClientResponse(request, now, disconnected=True, timed_out=timed_out))
            elif request.api_key != ApiKey.API_VERSIONS:
                self._metadata.handle_failed_request(now, None)

    def time_out_connections(self, responses: list[ClientResponse], now: int) -> None:
        """Give up attempts to connect that have taken too long."""
        for node_id in self._states.timed_out_connections(now):
            _log.info("connecting to node %s took longer than %d ms", node_id, self._states.setup_timeout_ms(node_id))
            self._close_locally(responses, node_id, now, timed_out=True)

    def time_out_requests(self, responses: list[ClientResponse], now: int) -> None:
        """Time out in-flight requests: all are checked once per request timeout, as later requests end later."""
        earliest = now + self._sender.request_timeout_ms
        for node_id, channel in list(self._selector.channels.items()):
            if channel.connection.in_flight.timed_out(now):
                _log.info("node %s did not answer in time; closing the connection", node_id)
                self._close_locally(responses, node_id, now, timed_out=True)
            else:
                deadline = channel.connection.in_flight.earliest_deadline()
                if deadline is not None and deadline < earliest:
                    earliest = deadline
        self._sender.next_timeout_ms = earliest

    def _close_locally(
        self, responses: list[ClientResponse], node_id: str, now: int, *, timed_out: bool = False
    ) -> None:
        unanswered = self._selector.close_channel(node_id)
        ended = Disconnection(ChannelState.LOCAL_CLOSE, unanswered=tuple(unanswered))
        self.disconnect(responses, node_id, now, ended, timed_out=timed_out)

    def begin_connections(self) -> None:
        """Go on with new connections: ask for the node's versions, or note that the node is ready."""
        for node_id in self._selector.connected:
            if self._discover_versions:
                self._versions.ask(node_id)
            else:
                self._states.ready(node_id)

    def ask_versions(self, now: int) -> None:
        """Send ApiVersions requests to the pending nodes that can take a request."""
        for node_id in list(self._versions.pending):
            channel = self._selector.channels.get(node_id)
            if channel is not None and channel.connection.usable:
                self._states.checking_api_versions(node_id)
                request = self._sender.new_request(node_id, self._versions.request(node_id))
                request.internal = True
                self._sender.send(request, now)

    def _learn_versions(
        self, responses: list[ClientResponse], request: ClientRequest, payload: bytearray, now: int
    ) -> None:
        node_id = request.destination
        try:
            answer = self._versions.learn(request, payload)
        except VersionsRefused as e:
            _log.warning("node %s does not tell its versions (%s); disconnecting", node_id, e)
            self._close_locally(responses, node_id, now)
            return
        if node_id in self._versions.known:
            self._note_throttle(request, answer, now, _THROTTLES_FROM[ApiKey.API_VERSIONS])
            channel = self._selector.channels.get(node_id)
            if channel is not None:
                channel.connection.enter(Phase.READY)
            self._states.ready(node_id)
            self.newly_ready.append(node_id)
            _log.debug("node %s has versions %s", node_id, self._versions.known[node_id])
