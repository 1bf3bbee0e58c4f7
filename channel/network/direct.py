"""A client's conversation with one node past its selector, as long as the connection is plain.

A thread that sends one request at a time and waits for each answer needs no selector between the two: its outbox sends
and receives without the interpreter's lock (``_outbox``), over the connection that it is lent here. Connecting,
handshakes, connections that are recorded or encrypted, and whatever went wrong stay with the client and its selector.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from channel.errors import ClientClosed, Disconnected, RequestTimeout
from channel.logs import bounded
from kproto.api import response_header_version
from kproto.codec import codec_for

from .transport import PlaintextTransport
from .wire import parse_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._outbox import CorrelationIds, Outbox
    from .client import NetworkClient
    from .request import RequestBuilder

__all__ = ["DirectConversation"]


class DirectConversation:
    """Lends an outbox the connection to its node, and knows what the outbox needs to know for it.

    Used by the client's thread alone; between two requests the client may be used as ever.

    Args:
        client: Connects, and takes over whenever this cannot.
        node_id: ``Node.key`` of the node.
        outbox: What waits for the node.
    """

    __slots__ = ("_client", "_node_id", "_outbox", "_timeout_ms")

    def __init__(self, client: NetworkClient, node_id: str, outbox: Outbox[Any]) -> None:
        self._client = client
        self._node_id = node_id
        self._outbox = outbox
        self._timeout_ms = client._request_timeout_ms

    def lend(self) -> None:
        """Let the outbox use the connection, if it stands, is plain and idle, and nobody else listens in."""
        client, channel = self._client, self._client._selector.channels.get(self._node_id)
        if (
            channel is None
            or type(channel.transport) is not PlaintextTransport
            or self._node_id in client._versions.known
            or not client._can_send(self._node_id, client.clock.milliseconds())
            or client.in_flight_count()
        ):
            return
        traffic, limit = client._selector._traffic, client._selector._max_receive_size
        # LookupError: somebody listens in. OSError: there are no descriptors left; the client's own way needs none.
        with contextlib.suppress(LookupError, OSError):
            metrics = None if traffic is None else traffic.metrics_alone()
            self._outbox.lend(channel.transport.fileno(), self, self._timeout_ms, limit, metrics)

    # ---- what the outbox asks

    def form(self, api_key: int, version: int) -> tuple[CorrelationIds, bytes, bool, Callable[[int, int, bytes], Any]]:
        """Where ids come from, what stands between id and body; whether answers have tagged fields, their reader."""
        client = self._client
        tail = client._framer.header_tail(api_key, version)
        return client._ids, tail, response_header_version(api_key, version) == 1, codec_for(api_key).decode_response

    def unusual(self, builder: RequestBuilder, correlation_id: int, answer: bytes, plain: bool, more: bool) -> Any:
        """Read an answer whose header is not as expected, or which is followed by what nobody asked for.

        Raises:
            CorrelationIdMismatch, DecodeError: It is no answer.
        """
        api_key, version = builder.api_key, builder.latest_version
        if plain:
            response = codec_for(api_key).decode_response(api_key, version, answer)
        else:
            request = self._client.new_request(self._node_id, builder)
            request.version = version
            request.correlation_id = correlation_id
            response = parse_response(request, answer)
        if more:
            self._client.close_node(self._node_id)  # what it has answered counts
        return response

    def failed(self, builder: RequestBuilder, error: Exception) -> Exception:
        """What it means that a request was sent in vain; the connection is not to be used again."""
        match error:
            case InterruptedError():
                return ClientClosed("Client was shutdown before response was read")
            case Disconnected():
                return error
            case TimeoutError():
                return RequestTimeout(f"no answer within {self._timeout_ms} ms to {bounded(str(builder))}")
            case OSError() | EOFError():
                reason = f"Connection to {self._node_id} was disconnected before the response was read"
                return Disconnected(f"{reason}: {error}")
        return error
