"""The headers of requests, versions 0 to 2, and of responses, versions 0 and 1.

``kproto.api.request_header_version`` and ``response_header_version`` give the header version of an API version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kproto.api import request_header_version
from kproto.errors import Malformed, UnsupportedApi, UnsupportedVersion

from .datatypes import Int16, Int32, Nullable, PlainString
from .fields import Since
from .struct import VersionedStruct

if TYPE_CHECKING:
    from kproto.types import Buffer, Kind


class _Header(VersionedStruct):
    """What both headers have in common. The highest version of either is its first flexible one."""

    __slots__ = ()
    kind: ClassVar[Kind]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether one of the header's own versions is flexible."""
        if not hasattr(version, "__index__"):
            raise TypeError(f"version: expected an int, got {type(version).__name__}")
        if not 0 <= version <= cls.newest:
            raise UnsupportedVersion(-1, version, cls.kind.replace("_", " "), 0, cls.newest)
        return version == cls.newest


class RequestHeader(_Header):
    """The header of a request.

    0  written for one request only, the first ControlledShutdown
    1  the client's id
    2  tagged fields; the client's id keeps its int16 length, so that a header of any version can be read so far
    """

    kind = "request_header"
    newest = 2
    request_api_key: int = Int16
    request_api_version: int = Int16
    correlation_id: int = Int32
    client_id: str | None = Since(1, Nullable(PlainString), ignorable=True)

    @property
    def client_id_or_empty(self) -> str:
        """The client id as Kafka's own parser presents it: null becomes the empty string."""
        return self.client_id or ""


class ResponseHeader(_Header):
    """The header of a response; tagged fields since version 1."""

    kind = "response_header"
    newest = 1
    correlation_id: int = Int32


def decode_request_header(data: Buffer, header_version: int | None = None, *, strict: bool = False) -> RequestHeader:
    """Read the header that opens a request's payload.

    Args:
        data: Any buffer that begins with the header; what follows it is ignored unless ``strict``.
        header_version: 0 to 2; None derives it from the API key and version at the header's start, as Kafka does.
        strict: Refuse what the protocol forbids although Kafka accepts it.

    Raises:
        DecodeError: No such header; or, where ``header_version`` is None, its API key is not one of Kafka 3.9.1's.
    """
    return RequestHeader.decode(_or_derived(header_version, data), data, strict=strict)[0]


def decode_request_header_from(
    data: Buffer, header_version: int | None = None, *, strict: bool = False
) -> tuple[RequestHeader, int]:
    """Read a request header; also return where the body begins. The bytes after it are ignored."""
    return RequestHeader.decode(_or_derived(header_version, data), data, strict=strict, alone=False)


def _or_derived(header_version: int | None, data: Buffer) -> int:
    if header_version is not None:
        return header_version
    start = memoryview(data).cast("B")[:4].tobytes()
    if len(start) < 4:
        return 0  # too short for any version: reading it says so
    api_key, version = (int.from_bytes(start[at : at + 2], "big", signed=True) for at in (0, 2))
    try:
        return request_header_version(api_key, version)
    except UnsupportedApi as e:
        raise Malformed(str(e), 0, "request_api_key") from None


def encode_request_header(header: RequestHeader, header_version: int | None = None) -> bytes:
    """Write a request header; without a version the one of its API key and version."""
    if header_version is None:
        header_version = request_header_version(header.request_api_key, header.request_api_version)
    return header.encode(header_version)


def decode_response_header(data: Buffer, header_version: int, *, strict: bool = False) -> ResponseHeader:
    """Read the header that opens a response's payload; errors as ``decode_request_header``."""
    return ResponseHeader.decode(header_version, data, strict=strict)[0]


def decode_response_header_from(
    data: Buffer, header_version: int, *, strict: bool = False
) -> tuple[ResponseHeader, int]:
    """Read a response header; also return where the body begins. The bytes after it are ignored."""
    return ResponseHeader.decode(header_version, data, strict=strict, alone=False)


def encode_response_header(header: ResponseHeader, header_version: int) -> bytes:
    """Write a response header."""
    return header.encode(header_version)
