"""Makes clients; a blocking connection to one node, for a program that asks it a few things; waits for any client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.addresses import show_address, why_unreachable
from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import ClientClosed, Disconnected, RequestTimeout
from channel.logs import bounded
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.frames import UNLIMITED
from channel.network.request import MessageRequest
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.security import SecurityConfig
from channel.threads import Closeable
from channel.types import Node, SecurityProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.network.recorder import Recorder
    from channel.network.request import ClientId, ClientRequest, ClientResponse, RequestBuilder
    from channel.network.selector_metrics import PollTimes, SelectorMetrics
    from channel.network.sockets import ChannelBuilder


class NodeClient(Closeable):
    """Asks one node; connects at the first request. Use it in a ``with``, from one thread.

    Args:
        address: The node's listener.
        client_id: The name by which the node knows this program.
        protocol, security: The security protocol of the listener and its settings.
        timeout_ms: The longest time to wait for the connection, and for each response.
        discover_versions: Whether to ask for the node's API versions first, and refuse a request that it does not know.
    """

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        *,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        timeout_ms: int = 30_000,
        discover_versions: bool = True,
    ) -> None:
        self.address = address
        self._node = Node(0, *address)
        self._timeout_ms = timeout_ms
        security = security or SecurityConfig()
        self._client = client_with_timeout(
            MetadataUpdater([self._node]),
            client_id,
            protocol,
            security,
            timeout_ms,
            discover_versions=discover_versions,
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a message in this version, and return the response; see ``send``."""
        return self.send(MessageRequest(request, version))

    def send(self, request: RequestBuilder) -> Any:
        """Send a request, and return the response.

        Raises:
            RequestTimeout: No connection or no response in time.
            Disconnected: The node cannot be reached, or closed the connection; the text says what to look at.
            AuthenticationFailed: One side rejected the other.
            UnsupportedVersion: The node does not know a version of the request.
            CorrelationIdMismatch, DecodeError: The node sent what is no answer to the request.
        """
        try:
            if not await_ready(self._client, self._node, self._timeout_ms):
                host, port = self.address
                raise RequestTimeout(f"no connection to {host}:{port} within {self._timeout_ms} ms")
            sent = self._client.new_request(self._node.key, request)
            return send_and_receive(self._client, sent).body
        except Disconnected as e:
            if isinstance(e, RequestTimeout):
                raise
            reason = why_unreachable(*self.address)
            if reason is not None:
                raise Disconnected(f"{show_address(self.address)} could not be reached: {reason}") from e
            raise Disconnected(
                f"{show_address(self.address)} closed the connection without an answer; a broker does so for a version "
                "that it does not know, or where the listener wants TLS (--security)"
            ) from e


def new_client(
    config: ChannelConfig,
    channels: ChannelBuilder,
    metadata: MetadataUpdater,
    client_id: ClientId,
    *,
    clock: Clock = SYSTEM_CLOCK,
    max_idle_ms: int = -1,
    metrics: SelectorMetrics | None = None,
    metrics_of: Callable[[str], SelectorMetrics | None] | None = None,
    polls: PollTimes | None = None,
    recorder: Recorder | None = None,
    **options: Any,
) -> NetworkClient:
    """Make a client with a selector of its own: every client of ``channel`` is made here.

    Args:
        config: The largest response, and the time limits of connections and requests.
        channels: Puts transports on sockets; see ``client_channels``.
        metadata, client_id: Those of ``NetworkClient``.
        clock, max_idle_ms, metrics, metrics_of, polls, recorder: Those of ``Selector``.
        options: More of ``NetworkClient``; they replace what ``config`` says.
    """
    selector = Selector(
        max_receive_size=config.receive_max,
        max_idle_ms=max_idle_ms,
        clock=clock,
        metrics=metrics,
        metrics_of=metrics_of,
        polls=polls,
        channel_builder=channels,
        recorder=recorder,
    )
    settings: dict[str, Any] = {
        "request_timeout_ms": config.request_timeout_ms,
        "setup_timeout_ms": config.socket_connection_setup_timeout_ms,
        "setup_timeout_max_ms": config.socket_connection_setup_timeout_max_ms,
    }
    return NetworkClient(selector, metadata, client_id, clock=clock, **settings | options)


def client_with_timeout(
    metadata: MetadataUpdater,
    client_id: str,
    protocol: SecurityProtocol,
    security: SecurityConfig,
    timeout_ms: int,
    *,
    discover_versions: bool = True,
) -> NetworkClient:
    """Make a client for which a connection and each response may take this time; see ``NetworkClient``."""
    return new_client(
        ChannelConfig(receive_max=UNLIMITED),
        client_channels(protocol, security, client_id),
        metadata,
        client_id,
        request_timeout_ms=timeout_ms,
        setup_timeout_ms=timeout_ms,
        setup_timeout_max_ms=timeout_ms,
        discover_versions=discover_versions,
    )


def await_ready(client: NetworkClient, node: Node, timeout_ms: int) -> bool:
    """Connect if need be and wait until a request can be sent.

    Returns:
        False if the node was not ready after ``timeout_ms``.

    Raises:
        ValueError: A negative timeout.
        Disconnected: The connection could not be made.
        AuthenticationFailed: One side rejected the other.
    """
    if timeout_ms < 0:
        raise ValueError(f"a wait of {timeout_ms} ms; it must be 0 or more")
    clock = client.clock
    began = clock.milliseconds()
    client.poll(0)  # the connection may have ended meanwhile
    if client.ready(node):
        return True
    elapsed = 0
    while not client.is_ready(node) and elapsed < timeout_ms:
        if client.connection_failed(node):
            maybe_raise_authentication_error(client, node)
            raise Disconnected(f"Connection to {node} failed.")
        client.poll(timeout_ms - elapsed)
        maybe_raise_authentication_error(client, node)
        elapsed = clock.milliseconds() - began
    return client.is_ready(node)


def send_and_receive(client: NetworkClient, request: ClientRequest) -> ClientResponse:
    """Send a request and wait for its answer; the client's request timeout bounds the wait.

    Responses to other requests that arrive meanwhile reach their callbacks, and are otherwise dropped.

    Raises:
        Disconnected: The connection ended before the response; ``RequestTimeout`` if the response took too long.
        ClientClosed: The client was closed before the response.
        UnsupportedVersion: No version suits both sides.
        CorrelationIdMismatch, DecodeError: The node sent what is no answer to the request.
    """
    try:
        client.send(request)
        while client.active:
            for response in client.poll(FOREVER):
                if response.request is request:
                    return _checked(response)
    except ClientClosed:
        if client.active:
            raise
    raise ClientClosed("Client was shutdown before response was read")


def _checked(response: ClientResponse) -> ClientResponse:
    if response.error is not None:
        raise response.error
    if response.timed_out:
        raise RequestTimeout(f"no answer within {response.request.timeout_ms} ms: {bounded(str(response.request))}")
    if response.disconnected:
        node_id = response.request.destination
        raise Disconnected(f"Connection to {node_id} was disconnected before the response was read")
    if response.version_mismatch is not None:
        raise response.version_mismatch
    return response


def maybe_raise_authentication_error(client: NetworkClient, node: Node) -> None:
    """Raise the error of the last authentication, if it failed."""
    error = client.authentication_error(node)
    if error is not None:
        raise error
