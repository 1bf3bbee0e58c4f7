"""The parts of recorded traffic: endpoints, connections, frames, exchanges.

A frame is one Kafka message as it stood on the wire, undecoded. An exchange is a request with its response; its bodies
are decoded when first asked for.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from kproto import codec
from kproto.api import api_name, response_body_version
from kproto.errors import DecodeError, Truncated, UnsupportedApi, UnsupportedVersion
from kproto.logs.reading import UNKNOWN, UNKNOWN_IDS

if TYPE_CHECKING:
    from kproto.types import Json

    from .payloads import Payload


class FrameStatus(IntEnum):
    """Whether all bytes of a frame were captured."""

    WHOLE = 0
    """They were."""

    GAP = 3
    """Some are missing: lost by the capture, cut off by its snaplen, or cut off with its end."""


WHOLE: Final = FrameStatus.WHOLE
GAP: Final = FrameStatus.GAP

Direction = Literal["request", "response"]

Unreadable: TypeAlias = DecodeError | UnsupportedApi | UnsupportedVersion
"""Why a body cannot be decoded."""


_FRAME_KEY: Final = Struct(">qqq")


class Endpoint(NamedTuple):
    """One end of a connection; the address is text as ``ipaddress`` prints it."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class Connection:
    """One TCP connection. Ports used again after its end make another one.

    Attributes:
        client: The side that sends requests.
        server: The side that answers.
        opened_ns: Capture time of the connection's first packet, in ns since the epoch.
        capture: The capture point, by default named by ``capture_points.point_name``.
        saw_open: Whether the handshake is in the capture. Where it is, stream offsets count from the first byte that
            was sent; else from the first one that the capture knows of.
    """

    __slots__ = ("__dict__", "capture", "client", "opened_ns", "saw_open", "server")

    def __init__(
        self, client: Endpoint, server: Endpoint, opened_ns: int, capture: str = "", *, saw_open: bool = True
    ) -> None:
        self.client: Endpoint = client
        self.server: Endpoint = server
        self.opened_ns: int = opened_ns
        self.capture: str = capture
        self.saw_open: bool = saw_open

    @cached_property
    def ends(self) -> bytes:
        """Both endpoints as text, the client's first."""
        return f"{self.client}\0{self.server}".encode("utf-8", "surrogatepass")

    @cached_property
    def conn_id(self) -> bytes:
        """16 bytes that name this connection: a hash of the capture point, both endpoints and ``opened_ns``."""
        ends = sorted((str(self.client), str(self.server)))
        text = "\0".join((self.capture, *ends, str(self.opened_ns)))
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def __repr__(self) -> str:
        return f"Connection({self.client} -> {self.server})"


class Frame:
    """One Kafka message, header and body, as it stood on the wire.

    Attributes:
        connection: The TCP connection that carried it.
        direction: ``request`` from client to server, ``response`` from server to client.
        offset: Stream offset of its first byte, the size field's, in its direction (see ``Connection.saw_open``).
        sequence: TCP sequence number of that byte; None of a frame from a log.
        time_ns: When the packet with its first byte passed, ns since the epoch.
        time_last_ns: When the last of its packets passed.
        status: Whether all of it was captured.
        length: Bytes of header and body, as the size field says.
        content: The payload; a ``SharedPayload`` of a large request, which ``bytes`` copies.
        api_key: The API; a response has its request's, None where the request is unknown.
        api_version: Likewise.
        correlation_id: The id by which a response names its request.
        client_id: The request's; null stays None, and so does a response without request.
        body_at: Where in ``payload`` the body begins; ``len(payload)`` if the header is not whole.
        file: Name of the file it was read from.
        request: Of a response: the request it answers, None if that is not in the capture.
        unmatched_reason: Why a request has no response or a response no request, None if it has one. For a request the
            reason is known at the end of its connection or of the capture.
    """

    def __init__(
        self,
        connection: Connection,
        direction: Direction,
        offset: int,
        time_ns: int,
        time_last_ns: int,
        status: FrameStatus,
        length: int,
        content: Payload,
        api_key: int | None,
        api_version: int | None,
        correlation_id: int,
        client_id: str | None,
        body_at: int,
        file: str,
        sequence: int | None = None,
    ) -> None:
        self.connection: Connection = connection
        self.direction = direction
        self.offset: int = offset
        self.time_ns: int = time_ns
        self.time_last_ns: int = time_last_ns
        self.status: FrameStatus = status
        self.length: int = length
        self.content: Payload = content
        self.api_key: int | None = api_key
        self.api_version: int | None = api_version
        self.correlation_id: int = correlation_id
        self.client_id: str | None = client_id
        self.body_at: int = body_at
        self.file: str = file
        self.sequence: int | None = sequence
        self.request: Frame | None = None
        self.unmatched_reason: str | None = None

    @property
    def frame_id(self) -> bytes:
        """16 bytes that name this frame, the same in every file that holds its packet.

        A hash of the connection's two ends, the direction, the TCP sequence number of the first byte, and the raw time
        of its packet; in a log, of the correlation id instead of a sequence number.
        """
        return self._hash(b"frame", self.direction, self.time_ns)

    @property
    def exchange_id(self) -> bytes:
        """16 bytes that name the exchange that this request begins: the same wherever it was recorded.

        A hash of the connection's two ends, the request's sequence number and its correlation id; in a log, which one
        broker writes alone, also of its time.
        """
        return self._hash(b"exchange", "request", self.time_ns if self.sequence is None else -1)

    def _hash(self, kind: bytes, direction: str, time_ns: int) -> bytes:
        number = -1 if self.sequence is None else self.sequence
        correlation_id = self.correlation_id if kind == b"exchange" or self.sequence is None else 0
        parts = kind, self.connection.ends, direction.encode(), _FRAME_KEY.pack(number, correlation_id, time_ns)
        return blake2b(b"\0".join(parts), digest_size=16).digest()

    @property
    def payload(self) -> bytes:
        """Header and body without the size field; of a gapped frame the bytes before the gap.

        The payload of a large request is copied on each access.
        """
        return bytes(self.content)

    @property
    def start(self) -> bytes:
        """The payload, or its first bytes with the header and a control request's first fields."""
        return self.content if isinstance(self.content, bytes) else self.content.head

    @property
    def body(self) -> memoryview:
        """The bytes after the header."""
        return memoryview(self.payload)[self.body_at :]

    def __repr__(self) -> str:
        api = "?" if self.api_key is None else f"{api_name(self.api_key)} v{self.api_version}"
        gap = "" if self.status == WHOLE else " with a gap"
        return f"Frame({self.direction} {api} id {self.correlation_id}, {self.length} bytes at {self.offset}{gap})"


class Exchange:
    """A request with its response. One of the two may be missing; ``unmatched_reason`` says why.

    Attributes:
        request: The request's frame, or None.
        response: The response's frame, or None.
        strict: Whether decoding refuses what the protocol forbids though Kafka lets it pass; counts when a body is
            first asked for.
    """

    __slots__ = ("__dict__", "request", "response", "strict")

    def __init__(self, request: Frame | None, response: Frame | None, *, strict: bool = False) -> None:
        if request is None and response is None:
            raise ValueError("an exchange has a request or a response")
        self.request: Frame | None = request
        self.response: Frame | None = response
        self.strict: bool = strict

    @property
    def frame(self) -> Frame:
        """The request's frame, or the response's where there is no request."""
        frame = self.request or self.response
        assert frame is not None
        return frame

    @property
    def connection(self) -> Connection:
        """The TCP connection on which both passed."""
        return self.frame.connection

    @property
    def server(self) -> Endpoint:
        """The broker's address and port."""
        return self.frame.connection.server

    @property
    def client(self) -> Endpoint:
        """The client's address and port."""
        return self.frame.connection.client

    @property
    def api_key(self) -> int | None:
        """The API, None for a response without request."""
        return self.frame.api_key

    @property
    def api_version(self) -> int | None:
        """Its version, None for a response without request."""
        return self.frame.api_version

    @property
    def correlation_id(self) -> int:
        """The id that request and response share."""
        return self.frame.correlation_id

    @property
    def client_id(self) -> str | None:
        """The client id of the request's header."""
        return self.frame.client_id

    @property
    def time_ns(self) -> int:
        """When the request's first byte passed (the response's, where there is no request), ns since the epoch."""
        return self.frame.time_ns

    @property
    def time(self) -> float:
        """``time_ns`` in seconds, exact to the microsecond."""
        return self.frame.time_ns / 1_000_000_000

    @property
    def latency_ms(self) -> float | None:
        """From the request's last byte to the response's first, in ms; None if one of them, or its time, is missing."""
        if self.request is None or self.response is None or not self.response.time_ns:
            return None
        return (self.response.time_ns - self.request.time_last_ns) / 1_000_000

    @property
    def unmatched_reason(self) -> str | None:
        """Why the request or the response is missing; None if neither is."""
        return self.frame.unmatched_reason if self.request is None or self.response is None else None

    @cached_property
    def _decoded_request(self) -> tuple[Any, Unreadable | None]:
        return _decode(self.request, strict=self.strict)

    @cached_property
    def _decoded_response(self) -> tuple[Any, Unreadable | None]:
        return _decode(self.response, strict=self.strict)

    @property
    def request_message(self) -> Any:
        """The decoded request, None if it is missing or cannot be decoded (see ``error``)."""
        return self._decoded_request[0]

    @property
    def response_message(self) -> Any:
        """The decoded response, None if it is missing or cannot be decoded (see ``error``)."""
        return self._decoded_response[0]

    @property
    def error(self) -> Unreadable | None:
        """The error of a body that could not be decoded, the request's first; None if there is none.

        A ``DecodeError`` has the offset in the body and the field's path.
        """
        return self._decoded_request[1] or self._decoded_response[1]

    def to_json(self) -> Json:
        """The whole exchange as one object, ready for ``json.dumps``.

        ``time`` (s, null of packets without a time), ``server`` and ``client`` ("ip:port", IPv6 in brackets),
        ``api_key``, ``api_version``, ``correlation_id``, ``client_id``, ``request`` and ``response`` (Kafka's JSON
        form, null where there is none), ``latency_ms``; ``error`` only where a body did not decode,
        ``unmatched_reason`` only where request or response is missing.
        """
        version = self.api_version or 0
        request, response = self.request_message, self.response_message
        out: Json = {
            "time": self.time or None,
            "server": str(self.server),
            "client": str(self.client),
            "api_key": self.api_key,
            "api_version": self.api_version,
            "correlation_id": self.correlation_id,
            "client_id": self.client_id,
            "request": None if request is None else self._told(request.to_json(version)),
            "response": None if response is None else response.to_json(version),
            "latency_ms": self.latency_ms,
        }
        if self.error is not None:
            in_response = "" if self._decoded_request[1] else "response: "
            out["error"] = f"{in_response}{self.error}"
        if self.unmatched_reason is not None:
            out["unmatched_reason"] = self.unmatched_reason
        return out

    def _told(self, form: Any) -> Any:
        """Put null for what a log did not tell, see ``kproto.logs.state_lines``."""
        if self.frame.connection.server.port == 0:
            for topic in form.get("topicStates", ()):
                for state in topic["partitionStates"]:
                    for name, value in state.items():
                        if value in (UNKNOWN, UNKNOWN_IDS):
                            state[name] = None
        return form

    def __repr__(self) -> str:
        return f"Exchange({self.request!r}, {self.response!r})"


def _decode(frame: Frame | None, *, strict: bool) -> tuple[Any, Unreadable | None]:
    if frame is None or frame.api_key is None or frame.api_version is None:
        return None, None
    if frame.status == GAP:
        missing = frame.length - len(frame.content)
        return None, Truncated(f"{missing} of {frame.length} bytes are not in the capture")
    try:
        if frame.direction == "request":
            return codec.decode_request(frame.api_key, frame.api_version, frame.body, strict=strict), None
        version = response_body_version(frame.api_key, frame.api_version, frame.body)
        return codec.decode_response(frame.api_key, version, frame.body, strict=strict), None
    except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
        return None, e
