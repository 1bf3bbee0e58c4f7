"""A client's conversation with one node past its selector, as long as the connection is plain.

A thread that sends one request at a time and waits for each answer needs no selector between the two: the request goes
out and the answer comes in by one call that gives up the interpreter's lock once (``_exchange``). Connecting,
handshakes, connections that are recorded or encrypted, and whatever went wrong stay with the client and its selector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.errors import ClientClosed, Disconnected, RequestTimeout
from channel.logs import bounded

from ._exchange import Exchange, StaleConnection
from .request import ClientResponse
from .transport import PlaintextTransport
from .wire import parse_response

if TYPE_CHECKING:
    from .channel import Channel
    from .client import NetworkClient
    from .request import RequestBuilder

__all__ = ["DirectConversation"]


class DirectConversation:
    """Requests to one node, each answered before the next.

    Used by the client's thread alone; between two requests the client may be used as ever.

    Args:
        client: Connects, and takes over whenever this cannot.
        node_id: ``Node.key`` of the node.
    """

    __slots__ = ("_channel", "_client", "_exchange", "_node_id", "_selector", "_traffic")

    def __init__(self, client: NetworkClient, node_id: str) -> None:
        self._client = client
        self._node_id = node_id
        self._selector = client._selector
        self._traffic = self._selector._traffic
        self._channel: Channel | None = None
        self._exchange: Exchange | None = None

    def send_and_receive(self, builder: RequestBuilder) -> ClientResponse | None:
        """Send a request and wait for its answer, if that can be done at once.

        Returns:
            None if there is no idle, plain connection: nothing was sent. Ask the client then; it sees what happened.

        Raises:
            Disconnected: The connection ended first; ``RequestTimeout`` if the answer took too long. Close it.
            ClientClosed: The client was closed first.
            CorrelationIdMismatch, DecodeError: What came is no answer. Close the connection.
            UnsupportedVersion, EncodeError: The request cannot be written.
        """
        client = self._client
        client._ensure_active()
        channel = self._selector.channels.get(self._node_id)
        if channel is None or (channel is not self._channel and not self._adopt(channel)):
            return None
        exchange = self._exchange
        assert exchange is not None
        request = client.new_request(self._node_id, builder)
        request.version = version = client._versions.choose(self._node_id, builder)
        frame = client._framer.frame(request.api_key, version, request.correlation_id, builder.build(version))
        sent, received = exchange.sent, exchange.received
        more = True  # after a failure who knows
        try:
            payload, more = exchange(frame, request.timeout_ms)
        except StaleConnection:
            return None
        except InterruptedError:
            raise ClientClosed("Client was shutdown before response was read") from None
        except Disconnected:
            raise
        except TimeoutError:
            self._count(channel, exchange.sent - sent, exchange.received - received, whole=False)
            raise RequestTimeout(f"no answer within {request.timeout_ms} ms: {bounded(str(request))}") from None
        except (OSError, EOFError) as e:
            self._count(channel, exchange.sent - sent, exchange.received - received, whole=False)
            raise Disconnected(
                f"Connection to {self._node_id} was disconnected before the response was read: {e}"
            ) from e
        finally:
            if more:
                self._channel = None
        self._count(channel, exchange.sent - sent, exchange.received - received, whole=True)
        response = ClientResponse(request, client.clock.milliseconds(), parse_response(request, payload))
        if more:
            client.close_node(self._node_id)  # it says things unasked; what it has answered counts
        return response

    def _adopt(self, channel: Channel) -> bool:
        """Take over a connection that stands, is plain and idle."""
        client, selector = self._client, self._selector
        if (
            type(channel.transport) is not PlaintextTransport
            or (self._traffic is not None and self._traffic.records)
            or not client._can_send(self._node_id, client.clock.milliseconds())
            or client.in_flight_count()
        ):
            return False
        self._exchange = Exchange(channel.transport.fileno(), selector._waker.fileno(), selector._max_receive_size)
        self._channel = channel
        return True

    def _count(self, channel: Channel, sent: int, received: int, *, whole: bool) -> None:
        traffic = self._traffic
        if traffic is not None:
            traffic.exchanged(channel, sent, received, whole=whole)
