"""A client's conversation with one node past its selector, as long as the connection is plain.

A thread that sends one request at a time and waits for each answer needs no selector between the two: the request goes
out and the answer comes in by one call that gives up the interpreter's lock once (``_exchange``). Connecting,
handshakes, connections that are recorded or encrypted, and whatever went wrong stay with the client and its selector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from channel.errors import ClientClosed, Disconnected, RequestTimeout
from channel.logs import bounded
from kproto.api import response_header_version
from kproto.codec import codec_for

from ._exchange import Exchange, StaleConnection
from .transport import PlaintextTransport
from .wire import parse_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from .channel import Channel
    from .client import NetworkClient
    from .request import ClientRequest, RequestBuilder

__all__ = ["DirectConversation"]


class _Form(NamedTuple):
    """How requests of one API and version are framed, and their answers read."""

    header_tail: bytes
    tagged: bool
    decode: Callable[[int, int, bytes], Any]


class DirectConversation:
    """Requests to one node, each answered before the next.

    Used by the client's thread alone; between two requests the client may be used as ever.

    Args:
        client: Connects, and takes over whenever this cannot.
        node_id: ``Node.key`` of the node.
    """

    __slots__ = (
        "_channel", "_channels", "_client", "_exchange", "_forms", "_node_id", "_timeout_ms", "_traffic",
    )  # fmt: skip

    def __init__(self, client: NetworkClient, node_id: str) -> None:
        self._client = client
        self._node_id = node_id
        self._channels = client._selector.channels
        self._traffic = client._selector._traffic
        self._timeout_ms = client._request_timeout_ms
        self._forms: dict[tuple[int, int], _Form] = {}
        self._channel: Channel | None = None
        self._exchange: Exchange | None = None

    def send_and_receive(self, builder: RequestBuilder) -> Any:
        """Send a request and wait for its answer, if that can be done at once.

        Returns:
            The answer's body. None if there is no idle, plain connection, and nothing was sent: ask the client then,
            which sees what has happened.

        Raises:
            Disconnected: The connection ended first; ``RequestTimeout`` if the answer took too long. Close it.
            ClientClosed: The client was closed first.
            CorrelationIdMismatch, DecodeError: What came is no answer. Close the connection.
            UnsupportedVersion, EncodeError: The request cannot be written.
        """
        channel = self._channels.get(self._node_id)
        if channel is None or (channel is not self._channel and not self._adopt(channel)):
            return None
        client, exchange = self._client, self._exchange
        assert exchange is not None
        version = client._versions.choose(self._node_id, builder)
        api_key = builder.api_key
        form = self._forms.get((api_key, version)) or self._learn(api_key, version)
        body = builder.build(version)
        correlation_id = client._ids.take()
        sent, received = exchange.sent, exchange.received
        answered, more = False, True
        try:
            answer, plain, more = exchange(
                api_key, version, correlation_id, form.header_tail, form.tagged, body, self._timeout_ms
            )
            answered = True
        except StaleConnection:
            return None
        except InterruptedError:
            raise ClientClosed("Client was shutdown before response was read") from None
        except Disconnected:
            raise
        except TimeoutError:
            raise RequestTimeout(f"no answer within {self._timeout_ms} ms to {bounded(str(builder))}") from None
        except (OSError, EOFError) as e:
            reason = f"Connection to {self._node_id} was disconnected before the response was read"
            raise Disconnected(f"{reason}: {e}") from e
        finally:
            if more:  # or it failed
                self._channel = None
            if self._traffic is not None:
                self._traffic.exchanged(channel, exchange.sent - sent, exchange.received - received, whole=answered)
        if plain:
            response = form.decode(api_key, version, answer)
        else:
            response = parse_response(self._request(builder, version, correlation_id), answer)
        if more:
            client.close_node(self._node_id)  # it says things unasked; what it has answered counts
        return response

    def _adopt(self, channel: Channel) -> bool:
        """Take over a connection that stands, is plain and idle."""
        client = self._client
        if (
            type(channel.transport) is not PlaintextTransport
            or (self._traffic is not None and self._traffic.records)
            or not client._can_send(self._node_id, client.clock.milliseconds())
            or client.in_flight_count()
        ):
            return False
        selector = client._selector
        self._exchange = Exchange(channel.transport.fileno(), selector._waker.fileno(), selector._max_receive_size)
        self._channel = channel
        return True

    def _learn(self, api_key: int, version: int) -> _Form:
        form = self._forms[api_key, version] = _Form(
            self._client._framer.header_tail(api_key, version),
            response_header_version(api_key, version) == 1,
            codec_for(api_key).decode_response,
        )
        return form

    def _request(self, builder: RequestBuilder, version: int, correlation_id: int) -> ClientRequest:
        """The request as the client would have kept it, to read an unusual answer with."""
        request = self._client.new_request(self._node_id, builder)
        request.version = version
        request.correlation_id = correlation_id
        return request
