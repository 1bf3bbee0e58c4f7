"""Requests and responses of a network client: their bodies, headers and correlation ids, and the requests in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from channel.errors import CorrelationIdMismatch
from channel.logs import bounded
from kproto.api import ApiKey, api_name, check_version, request_header_version, response_header_version
from kproto.codec import codec_for, encode
from kproto.errors import Malformed, OutOfRange, Truncated
from kproto.node_versions import decode_api_versions_response

from .frames import Send, int32_at, put_int32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.errors import AuthenticationFailed
    from kproto.codec import Message
    from kproto.errors import UnsupportedVersion

    from .transport import Bytes

Callback: TypeAlias = "Callable[[ClientResponse], None]"
ClientId: TypeAlias = "str | Callable[[str], str] | None"
"""The client id in the headers of requests; a function of the node's id where nodes get different ones."""


class RequestBuilder(Protocol):
    """Builds a request's body once its version is known. One builder may serve many clients and attempts.

    Its ``str`` goes into log lines: keep it short, whatever the request holds.
    """

    @property
    def api_key(self) -> int:
        """The API of the request."""

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


class FrameRequest:
    """Another program's request, which goes out as it is: its answer is not read, but returned as bytes.

    Args:
        frame: The request's header and body, without the size.
    """

    __slots__ = ("api_key", "correlation_id", "frame", "latest_version", "oldest_version")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.api_key = int.from_bytes(frame[:2], "big")
        self.oldest_version = self.latest_version = int.from_bytes(frame[2:4], "big")
        self.correlation_id = int32_at(frame, 4)

    def build(self, version: int) -> Sequence[Bytes]:
        """The frame."""
        return (self.frame,)

    def __str__(self) -> str:
        return f"another client's {api_name(self.api_key)} v{self.latest_version} of {len(self.frame)} bytes"


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
        passed: Whether it is a ``FrameRequest``.
    """

    __slots__ = (
        "api_key", "builder", "callback", "correlation_id", "created_ms", "destination", "expects_response", "internal",
        "passed", "send", "sent_ms", "throttle_ms", "timeout_ms", "version",
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
        passed: bool = False,
    ) -> None:
        self.destination = destination
        self.builder = builder
        self.api_key = builder.api_key
        self.correlation_id = correlation_id
        self.created_ms = created_ms
        self.timeout_ms = timeout_ms
        self.expects_response = expects_response
        self.callback = callback
        self.passed = passed
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
        error: Set if the answer cannot be read, the request cannot be written, or the thread that sends has ended.
    """

    __slots__ = (
        "authentication_error", "body", "disconnected", "error", "received_ms", "request", "timed_out",
        "version_mismatch",
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
        error: BaseException | None = None,
    ) -> None:
        self.request = request
        self.received_ms = received_ms
        self.body = body
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.version_mismatch = version_mismatch
        self.authentication_error = authentication_error
        self.error = error

    @property
    def failure(self) -> str:
        """Why there is no answer, for people."""
        why = self.error or self.version_mismatch or self.authentication_error
        if why is not None:
            return str(why) or type(why).__name__
        return "it was not answered in time" if self.timed_out else "the connection has ended"

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


FIRST_SASL_CORRELATION_ID: Final = 2**31 - 8
"""The first correlation id that is reserved for SASL authenticators; the last is the highest int32."""

_MOST_BYTES: Final = 2**31 - 1
_COPIED: Final = 1024  # copying so few bytes takes less time than a view of them


class CorrelationIds:
    """Counts from 0 to the range reserved for SASL authenticators, then from the lowest int32 on.

    Args:
        first: The first correlation id.
    """

    __slots__ = ("_next",)

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def take(self) -> int:
        """The next correlation id."""
        taken = self._next
        if taken >= FIRST_SASL_CORRELATION_ID:
            taken = -(2**31)
        self._next = taken + 1
        return taken


class RequestFramer:
    """Builds request frames: size, header and body. The body's pieces stay as they are.

    Args:
        client_id: Goes into every header; None for a null one.
    """

    __slots__ = ("_client_id", "_heads")

    def __init__(self, client_id: str | None) -> None:
        name = None if client_id is None else client_id.encode()
        self._client_id = b"\xff\xff" if name is None else len(name).to_bytes(2, "big") + name
        self._heads: dict[int, bytes] = {}

    def frame(self, request: ClientRequest, body: Sequence[Bytes]) -> Send:
        """Build the whole frame of a request, in pieces.

        Raises:
            OutOfRange: The request is too large for a frame.
        """
        kind = request.api_key << 16 | request.version
        template = self._heads.get(kind)
        if template is None:
            tail = self.header_tail(request.api_key, request.version)
            template = self._heads[kind] = bytes(4) + kind.to_bytes(4, "big") + bytes(4) + tail
        head = bytearray(template)
        size = len(head) - 4 + (len(body[0]) if len(body) == 1 else sum(map(len, body)))
        if size > _MOST_BYTES:
            raise OutOfRange(f"a request of {size} bytes; a frame holds {_MOST_BYTES}")
        put_int32(head, 0, size)
        put_int32(head, 8, request.correlation_id)
        return Send(request.destination, [head, *body], request, size + 4)

    def header_tail(self, api_key: int, version: int) -> bytes:
        """Build the header's part behind the correlation id, the same for all requests of an API and version."""
        header = request_header_version(api_key, version)
        return (b"", self._client_id, self._client_id + b"\0")[header]


_readers: Final[dict[int, tuple[int, Callable[[int, int, Bytes], Any]]]] = {}


def _reader(api_key: int, version: int) -> tuple[int, Callable[[int, int, Bytes], Any]]:
    """Return the number of bytes before the body of an ordinary response, and the body's decoder."""
    decode = _parse_api_versions if api_key == ApiKey.API_VERSIONS else codec_for(api_key).decode_response
    reader = _readers[api_key << 16 | version] = (5 if response_header_version(api_key, version) == 1 else 4), decode
    return reader


def _parse_api_versions(api_key: int, version: int, body: Bytes) -> Any:
    """Parse an ApiVersions response, whose version may be another than the request's."""
    return decode_api_versions_response(version, body)


def parse_response(request: ClientRequest, payload: Bytes) -> Any:
    """Parse the response to a request, which is written in the request's version.

    Raises:
        CorrelationIdMismatch: The response answers another request.
        DecodeError: The bytes are no response, or an ordinary response arrived during a SASL authentication.
    """
    api_key, version, expected = request.api_key, request.version, request.correlation_id
    if len(payload) < 4:
        raise Truncated(f"an answer of {len(payload)} bytes", 0, "correlation_id", api_key, version)
    received = int32_at(payload, 0)
    if received != expected:
        if expected >= FIRST_SASL_CORRELATION_ID > received:
            reason = f"correlation id {received} is not of the reserved range that {expected} is of"
            raise Malformed(reason, 0, "correlation_id", api_key, version)
        raise CorrelationIdMismatch(
            f"the answer to {api_name(api_key)} has correlation id {received}, "
            f"the oldest request in flight has {expected}"
        )
    at, decode = _readers.get(api_key << 16 | version) or _reader(api_key, version)
    if at == 5 and (len(payload) < 5 or payload[4]):  # tagged fields, which no version defines yet
        _, at = codec_for(api_key).decode_response_header_from(payload, 1)
    return decode(api_key, version, payload[at:] if len(payload) <= _COPIED else memoryview(payload)[at:])


class InFlightRequests:
    """In-flight requests in the order in which they were sent. Any thread may call ``len``.

    Attributes:
        requests: The requests, oldest first: the next response belongs to the first.
    """

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests: deque[ClientRequest] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def can_send_more(self, limit: int) -> bool:
        """Whether the newest request has gone out entirely, and fewer than ``limit`` are in flight."""
        requests = self.requests
        if not requests:
            return True
        send = requests[-1].send
        return (send is None or send.completed) and len(requests) < limit

    def throttle(self, throttle_ms: int) -> None:
        """Give each request this much more time: a throttling node answers nothing meanwhile."""
        for request in self.requests:
            request.throttle_ms += throttle_ms

    def timed_out(self, now: int) -> bool:
        """Whether any request has waited longer than its timeout."""
        return any(now - r.sent_ms - r.throttle_ms > r.timeout_ms for r in self.requests)

    def earliest_deadline(self) -> int | None:
        """Return the first time at which a request may time out; None without requests."""
        return min((r.sent_ms + r.throttle_ms + r.timeout_ms for r in list(self.requests)), default=None)
