"""Requests and responses of a network client, and the builders of request bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from channel.logs import bounded
from kproto.api import api_name, check_version
from kproto.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.errors import AuthenticationFailed
    from kproto.codec import Message
    from kproto.errors import UnsupportedVersion

    from .frames import Send
    from .transport import Bytes

__all__ = ["BodyRequest", "Callback", "ClientId", "ClientRequest", "ClientResponse", "MessageRequest", "RequestBuilder"]

Callback: TypeAlias = "Callable[[ClientResponse], None]"
ClientId: TypeAlias = "str | Callable[[str], str] | None"
"""The client id in the headers of requests; a function of the node's id where nodes get different ones."""


class RequestBuilder(Protocol):
    """Builds a request's body once its version is known. One builder may serve many clients and attempts.

    Its ``str`` goes into log lines: keep it short, whatever the request holds.
    """

    @property
    def api_key(self) -> int:
        """Whose request."""

    @property
    def oldest_version(self) -> int:
        """The lowest version that the request can be written in."""

    @property
    def latest_version(self) -> int:
        """The highest version; used if the node's versions are not known."""

    def build(self, version: int) -> Sequence[Bytes]:
        """Build the body in pieces, which are sent one after the other and never joined.

        Raises:
            UnsupportedVersion: The request cannot be written in this version after all.
            EncodeError: The request cannot be encoded.
        """


class BodyRequest:
    """A request body that is encoded already: pieces of bytes, some of which many requests may share.

    Args:
        api_key: Whose request.
        version: The version of the encoded body.
        pieces: The body, without size and header.
    """

    __slots__ = ("api_key", "latest_version", "oldest_version", "pieces")

    def __init__(self, api_key: int, version: int, pieces: Sequence[Bytes]) -> None:
        self.api_key = api_key
        self.oldest_version = self.latest_version = version
        self.pieces = pieces

    def build(self, version: int) -> Sequence[Bytes]:
        """The pieces."""
        return self.pieces

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.latest_version} of {sum(map(len, self.pieces))} bytes"


class MessageRequest:
    """A message that is encoded when its version is known, once for each version.

    Args:
        message: A request of either codec.
        version: The only version to use; None for the API's range.
        oldest_version: With ``version=None``, the lowest to use.
    """

    __slots__ = ("_encoded", "api_key", "latest_version", "message", "oldest_version")

    def __init__(self, message: Message, version: int | None = None, *, oldest_version: int = 0) -> None:
        self.message = message
        self.api_key = message.api_key
        highest = check_version(message.api_key, version if version is not None else oldest_version).max_version
        self.oldest_version = oldest_version if version is None else version
        self.latest_version = highest if version is None else version
        self._encoded: tuple[int, tuple[bytes]] | None = None

    def build(self, version: int) -> Sequence[Bytes]:
        """The encoded message."""
        if self._encoded is None or self._encoded[0] != version:
            self._encoded = (version, (encode(self.message, version),))
        return self._encoded[1]

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.oldest_version}-{self.latest_version} {bounded(self.message)}"


class ClientRequest:
    """One attempt to send a request, with its own correlation id; it is never sent twice.

    ``NetworkClient.new_request`` makes it; the attributes below the line are the client's.

    Attributes:
        destination: The node's id as a text.
        builder: Makes the body.
        correlation_id: The correlation id, which the response repeats.
        created_ms: The time at which the request was made.
        timeout_ms: The time limit of the response.
        callback: Called with the ``ClientResponse``, if any.
        expects_response: Whether the node will answer.
    """

    __slots__ = (
        "api_key", "builder", "callback", "correlation_id", "created_ms", "destination", "expects_response", "internal",
        "send", "sent_ms", "throttle_ms", "timeout_ms", "version",
    )  # fmt: skip

    def __init__(
        self,
        destination: str,
        builder: RequestBuilder,
        correlation_id: int,
        created_ms: int,
        timeout_ms: int,
        callback: Callback | None = None,
        *,
        expects_response: bool = True,
    ) -> None:
        self.destination = destination
        self.builder = builder
        self.api_key = builder.api_key
        self.correlation_id = correlation_id
        self.created_ms = created_ms
        self.timeout_ms = timeout_ms
        self.expects_response = expects_response
        self.callback = callback
        # ------
        self.internal = False
        self.version = builder.latest_version
        self.send: Send | None = None
        self.sent_ms = 0
        self.throttle_ms = 0

    def __str__(self) -> str:
        return f"{self.builder} to node {self.destination}, correlation id {self.correlation_id}"


class ClientResponse:
    """The end of a request: an answer, or the reason why there is none.

    Attributes:
        request: The request; its ``api_key`` and ``version`` are those of the request's header.
        received_ms: The time at which the request ended.
        body: The answer, a message of either codec; None if there is none.
        disconnected: Whether the connection ended before the answer.
        timed_out: Whether it ended because the answer took too long.
        version_mismatch: Set if the request was never sent, as no version suits both sides.
        authentication_error: Set if the request was never sent, as authentication failed.
    """

    __slots__ = (
        "authentication_error", "body", "disconnected", "received_ms", "request", "timed_out", "version_mismatch",
    )  # fmt: skip

    def __init__(
        self,
        request: ClientRequest,
        received_ms: int,
        body: Any = None,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        version_mismatch: UnsupportedVersion | None = None,
        authentication_error: AuthenticationFailed | None = None,
    ) -> None:
        self.request = request
        self.received_ms = received_ms
        self.body = body
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.version_mismatch = version_mismatch
        self.authentication_error = authentication_error

    @property
    def latency_ms(self) -> int:
        """The ms from the request's making to its end."""
        return self.received_ms - self.request.created_ms

    def complete(self) -> None:
        """Call the request's callback."""
        if self.request.callback is not None:
            self.request.callback(self)

    def __str__(self) -> str:
        how = "timed out" if self.timed_out else "disconnected" if self.disconnected else bounded(self.body)
        return f"{how}: {self.request}"
