"""Framing of requests and parsing of responses: correlation ids, headers, and the body by the request's version."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from channel.errors import CorrelationIdMismatch
from kproto.api import ApiKey, api_name, request_header_version, response_header_version
from kproto.codec import codec_for
from kproto.errors import Malformed, OutOfRange, Truncated
from kproto.node_versions import decode_api_versions_response

from .frames import Send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .request import ClientRequest
    from .transport import Bytes

__all__ = ["FIRST_SASL_CORRELATION_ID", "CorrelationIds", "RequestFramer", "parse_response"]

FIRST_SASL_CORRELATION_ID: Final = 2**31 - 8
"""The first correlation id that is reserved for SASL authenticators; the last is the highest int32."""

_MOST_BYTES: Final = 2**31 - 1
_pack_head = struct.Struct(">ihhi").pack
_unpack_correlation_id = struct.Struct(">i").unpack_from


class CorrelationIds:
    """Counts from 0 to the range reserved for SASL authenticators, then from the lowest int32 on.

    Args:
        first: The first correlation id.
    """

    __slots__ = ("_following",)

    def __init__(self, first: int = 0) -> None:
        self._following = first

    def take(self) -> int:
        """The next correlation id."""
        taken = self._following
        if taken >= FIRST_SASL_CORRELATION_ID:
            taken = -(2**31)
        self._following = taken + 1
        return taken


class RequestFramer:
    """Builds request frames: size, header and body. The body's pieces stay as they are.

    Args:
        client_id: Goes into every header; None for a null one.
    """

    __slots__ = ("_client_id", "_tails")

    def __init__(self, client_id: str | None) -> None:
        name = None if client_id is None else client_id.encode()
        self._client_id = b"\xff\xff" if name is None else len(name).to_bytes(2, "big") + name
        self._tails: dict[int, bytes] = {}

    def frame(self, request: ClientRequest, body: Sequence[Bytes]) -> Send:
        """Build the whole frame of a request, in pieces.

        Raises:
            OutOfRange: The request is too large for a frame.
        """
        api_key, version = request.api_key, request.version
        tail = self._tails.get(api_key << 16 | version)
        if tail is None:
            tail = self._tails[api_key << 16 | version] = self.header_tail(api_key, version)
        size = 8 + len(tail) + (len(body[0]) if len(body) == 1 else sum(map(len, body)))
        if size > _MOST_BYTES:
            raise OutOfRange(f"a request of {size} bytes; a frame holds {_MOST_BYTES}")
        head = _pack_head(size, api_key, version, request.correlation_id) + tail
        return Send(request.destination, [head, *body], request, size + 4)

    def header_tail(self, api_key: int, version: int) -> bytes:
        """Build the header's part behind the correlation id, the same for all requests of an API and version."""
        header = request_header_version(api_key, version)
        return (b"", self._client_id, self._client_id + b"\0")[header]


@cache
def _reader(api_key: int, version: int) -> tuple[int, Callable[[int, int, memoryview], Any]]:
    """Return the number of bytes before the body of an ordinary response, and the body's decoder."""
    decode = _parse_api_versions if api_key == ApiKey.API_VERSIONS else codec_for(api_key).decode_response
    return (5 if response_header_version(api_key, version) == 1 else 4), decode


def _parse_api_versions(api_key: int, version: int, body: memoryview) -> Any:
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
    received = _unpack_correlation_id(payload)[0]
    if received != expected:
        if expected >= FIRST_SASL_CORRELATION_ID > received:
            reason = f"correlation id {received} is not of the reserved range that {expected} is of"
            raise Malformed(reason, 0, "correlation_id", api_key, version)
        raise CorrelationIdMismatch(expected, received, api_name(api_key))
    at, decode = _reader(api_key, version)
    if at == 5 and (len(payload) < 5 or payload[4]):  # tagged fields, which no version defines yet
        _, at = codec_for(api_key).decode_response_header_from(payload, 1)
    return decode(api_key, version, memoryview(payload)[at:])
