"""A sender of requests: it chooses correlation ids and versions, frames requests and hands them to the selector."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from channel.errors import NoUsableVersion
from channel.logs import get_logger
from kproto.errors import FieldNotInVersion, UnsupportedVersion

from .request import Callback, ClientId, ClientRequest, ClientResponse, RequestBuilder
from .wire import CorrelationIds, RequestFramer

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.clock import Clock

    from .api_versions import VersionDiscovery
    from .channel import Channel
    from .selector import Selector
    from .updater import MetadataUpdater

__all__ = ["RequestSender"]

_log = get_logger(__name__)


class RequestSender:
    """Sends the requests of a client.

    Args:
        selector: Moves the bytes.
        metadata: Takes the failures of its own requests.
        versions: The API versions of nodes.
        client_id: Goes into every header; None for none, a function of the node's id where nodes get different ones.
        request_timeout_ms: The time limit of requests without one of their own.
        clock: The source of time.

    Attributes:
        request_timeout_ms: As given.
        next_timeout_ms: A time before which no in-flight request times out.
        unanswered: In-flight requests that expect no response.
        aborted: The responses of requests that were not sent, or whose connection was closed from this side.
    """

    __slots__ = (
        "_client_id_of", "_clock", "_framer", "_framers", "_ids", "_metadata", "_selector", "_versions", "_writer",
        "aborted", "next_timeout_ms", "request_timeout_ms", "unanswered",
    )  # fmt: skip

    def __init__(
        self,
        selector: Selector,
        metadata: MetadataUpdater,
        versions: VersionDiscovery,
        client_id: ClientId,
        request_timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._selector = selector
        self._writer = selector.writer
        self._metadata = metadata
        self._versions = versions
        self._client_id_of = client_id if callable(client_id) else None
        self._framer = RequestFramer(None if callable(client_id) else client_id)
        self._framers: dict[str, RequestFramer] = {}
        self._ids: dict[str, CorrelationIds] = {}
        self._clock = clock
        self.request_timeout_ms = request_timeout_ms
        self.next_timeout_ms = clock.milliseconds() + request_timeout_ms
        self.unanswered = 0
        self.aborted: deque[ClientResponse] = deque()

    def next_correlation_id(self, node_id: str) -> int:
        """Take the next correlation id of this node; each node has its own 0, 1, 2 ..."""
        try:
            return self._ids[node_id].take()
        except KeyError:
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
        """Make a request; it takes a correlation id, whether it is sent or not.

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
            self._clock.milliseconds() if created_ms is None else created_ms,
            self.request_timeout_ms if timeout_ms is None else timeout_ms,
            expects_response=expects_response,
            callback=callback,
        )

    def request(
        self, node_id: str, builder: RequestBuilder, callback: Callback, now: int, channel: Channel
    ) -> ClientRequest:
        """Make a request and write it at once.

        Raises:
            IllegalState, EncodeError: As ``send``.
        """
        correlation_id = self.next_correlation_id(node_id)
        request = ClientRequest(node_id, builder, correlation_id, now, self.request_timeout_ms, callback)
        self.send(request, now, channel)
        return request

    def forget(self, node_id: str) -> None:
        """Count a node's correlation ids from 0 again."""
        self._ids.pop(node_id, None)
        self._framers.pop(node_id, None)

    def send(self, request: ClientRequest, now: int, channel: Channel | None = None) -> None:
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
                self.aborted.append(ClientResponse(request, now, version_mismatch=error))
                self._selector.wakeup()
            return
        request.version = version
        framer = self._framer if self._client_id_of is None else self._framer_of(node_id, self._client_id_of)
        request.send = send = framer.frame(request, body)
        request.sent_ms = now
        if not request.expects_response:
            self.unanswered += 1
        if now + request.timeout_ms < self.next_timeout_ms:
            self.next_timeout_ms = now + request.timeout_ms
        if channel is None:
            self._selector.send(send)
        else:
            self._writer.write_at_once(channel, send)

    def _framer_of(self, node_id: str, client_id_of: Callable[[str], str]) -> RequestFramer:
        """Return the framer of a node whose client id is its own."""
        framer = self._framers.get(node_id)
        if framer is None:
            framer = self._framers[node_id] = RequestFramer(client_id_of(node_id))
        return framer
