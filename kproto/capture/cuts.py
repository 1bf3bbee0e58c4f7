"""The values that a cutter finds in a stream: frames, gaps, and bytes that are no frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from .detection import FrameHeader
    from .matcher import PendingRequest
    from .payloads import Payload

__all__ = [
    "AuthenticationToken",
    "BadFrame",
    "Gap",
    "OtherProtocol",
    "PartialStart",
    "RequestInStream",
    "ResponseInStream",
    "ResponsesLost",
    "StreamItem",
]


class RequestInStream:
    """A request in a stream.

    Attributes:
        header: Its header.
        offset: Stream offset of its size field.
        first_ns: When the packet with its first byte passed.
        last_ns: When the last of its packets passed.
        status: ``WHOLE`` or ``GAP``.
        payload: Header and body, None for an unwanted API; of a gapped frame the bytes before the gap. A
            ``SharedPayload`` is released by the reader of the cut.
    """

    __slots__ = ("first_ns", "header", "last_ns", "offset", "payload", "status")

    def __init__(
        self, header: FrameHeader, offset: int, first_ns: int, last_ns: int, status: int, payload: Payload | None
    ) -> None:
        self.header = header
        self.offset = offset
        self.first_ns = first_ns
        self.last_ns = last_ns
        self.status = status
        self.payload = payload


class ResponseInStream:
    """A response in a stream.

    Attributes:
        request: The pending request that it answers, None if there is none.
        correlation_id: Its correlation id.
        size: Bytes of header and body.
        offset, first_ns, last_ns, status, payload: As of ``RequestInStream``.
    """

    __slots__ = ("correlation_id", "first_ns", "last_ns", "offset", "payload", "request", "size", "status")

    def __init__(
        self,
        request: PendingRequest | None,
        correlation_id: int,
        size: int,
        offset: int,
        first_ns: int,
        last_ns: int,
        status: int,
        payload: bytes | None,
    ) -> None:
        self.request = request
        self.correlation_id = correlation_id
        self.size = size
        self.offset = offset
        self.first_ns = first_ns
        self.last_ns = last_ns
        self.status = status
        self.payload = payload


class AuthenticationToken(NamedTuple):
    """An authentication token without a header, in place of a request or a response."""


class Gap(NamedTuple):
    """Bytes of frames that are lost."""

    length: int


class PartialStart(NamedTuple):
    """The first bytes of a stream in the capture; they belong to a frame that began before the capture did."""

    length: int


class BadFrame(NamedTuple):
    """Bytes of the stream that are no frame: the reason, their stream offset, how many of them are skipped."""

    reason: str
    offset: int
    skipped: int = 0


class OtherProtocol(NamedTuple):
    """The stream is not Kafka's."""

    protocol: Literal["TLS", "HTTP", "unknown"]


class ResponsesLost(NamedTuple):
    """Responses may be lost: any pending request may have been answered."""


StreamItem: TypeAlias = (
    RequestInStream
    | ResponseInStream
    | AuthenticationToken
    | Gap
    | PartialStart
    | BadFrame
    | OtherProtocol
    | ResponsesLost
)
"""Any value that a cutter finds in a stream."""
