"""Protocol detection: Kafka request headers in streams that may hold anything; TLS and HTTP.

At a known frame boundary the checks of a header are weak, since captures also hold requests that no broker accepts.
Where the boundary itself is a guess they are strict, since bodies are full of small numbers and names.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kproto import codec
from kproto.api import (
    CONTROL_APIS,
    ApiKey,
    check_version,
    is_later,
    request_header_version,
    response_header_version,
)
from kproto.errors import DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.headers import decode_request_header_from, decode_response_header_from

if TYPE_CHECKING:
    from .payloads import Payload

HEADER_START: Final = 12
"""Bytes before the client id: size, API key, version and correlation id."""

_START: Final = struct.Struct(">ihhi").unpack_from
_I16: Final = struct.Struct(">h").unpack_from

_LONGEST_CLIENT_ID: Final = 400
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")

CONTROL_HEADER: Final = re.compile(rb"(?=\x00[\x04-\x06]\x00[\x00-\x08]....(?:[\x00\x01].|\xff\xff))", re.S)
"""Where the API key of a control request may stand, with a client id of 0 to 511 bytes or none after it."""

NEWEST_API: Final = 127
"""A bound on API keys and versions, beyond those of Kafka 3.9.1 to allow for newer ones."""

_TLS: Final = re.compile(rb"[\x14-\x17]\x03[\0-\x04](?:\0[^\0]|[\x01-\x47].|\x48\0)", re.S)
"""A record's type, version and length."""
_HTTP: Final = re.compile(
    rb"(?:GET|POST|PUT|HEAD|DELETE|OPTIONS|PATCH|TRACE) \S{1,2000} HTTP/|HTTP/1\.[01] |PRI \* HTTP/2"
)


class FrameHeader:
    """A request's header as found in a stream.

    Attributes:
        size: Bytes of header and body.
        api_key, api_version, correlation_id: As they stand there.
        client_id: None for null, and for a header that has none.
        body_at: Where the body begins, from the start of the header (the size field not counted).
        sender: The sender's broker id, of a request that begins with it; -1: it is not known.
    """

    def __init__(
        self, size: int, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_at: int
    ) -> None:
        self.size: int = size
        self.api_key: int = api_key
        self.api_version: int = api_version
        self.correlation_id: int = correlation_id
        self.client_id: str | None = client_id
        self.body_at: int = body_at
        self.sender: int = -1


def read_request_header(data: bytes | bytearray, at: int, end: int) -> FrameHeader | int:
    """Read the header of the request whose size field stands at ``at``.

    Its client id must be readable text or null, and fit within its size.

    Returns:
        The header; or how many bytes from ``at`` on are needed to read it; or -1 if there is no header.
    """
    available = end - at
    if available < HEADER_START:
        return HEADER_START
    size: int
    size, api_key, version, correlation_id = _START(data, at)
    kind = _header_version(api_key, version)
    if kind == 0:
        return FrameHeader(size, api_key, version, correlation_id, None, 8) if size >= 8 else -1
    if available < 14:
        return 14 if size >= 10 else -1
    length: int = _I16(data, at + 12)[0]
    body_at = 14 + length if length > 0 else 14
    if length < -1 or body_at + (kind == 2) > size + 4:
        return -1
    if available < body_at:
        return body_at + (kind == 2)
    client_id: str | None = None
    if length >= 0:
        client_id = _client_id(bytes(data[at + 14 : at + body_at]))
        if client_id is None:
            return -1
    if kind == 2:
        if available == body_at:
            return body_at + 1
        if not data[at + body_at]:
            body_at += 1
        elif available < size + 4:  # tagged fields are rare: wait for the whole header, and let the codec read it
            return size + 4
        else:
            try:
                body_at = 4 + decode_request_header_from(bytes(data[at + 4 : at + 4 + size]), kind)[1]
            except DecodeError:
                return -1
    return FrameHeader(size, api_key, version, correlation_id, client_id, body_at - 4)


@lru_cache(maxsize=4096)
def _header_version(api_key: int, version: int) -> int:
    try:
        return request_header_version(api_key, version)
    except UnsupportedApi:
        return 1  # a newer request, which has at least a client id like those of today


@lru_cache(maxsize=1024)
def _client_id(data: bytes) -> str | None:
    """A client id as text, None if it is not readable."""
    text = data.decode("utf-8", "replace")
    return None if _CONTROL.search(text) else text


def response_body_at(api_key: int, version: int, payload: bytes) -> int:
    """Where the body of a response begins, ``len(payload)`` if its header is not whole."""
    kind = _response_header_version(api_key, version)
    if kind == 0 or len(payload) < 5:
        return min(4, len(payload)) if kind == 0 else len(payload)
    if payload[4] == 0:
        return 5
    try:
        return decode_response_header_from(payload, kind)[1]
    except DecodeError:
        return len(payload)


@lru_cache(maxsize=4096)
def _response_header_version(api_key: int, version: int) -> int:
    try:
        return response_header_version(api_key, version)
    except UnsupportedApi:
        return 0


def may_be_request(header: FrameHeader, limit: int) -> bool:
    """Whether a header at a known boundary may be a request's, of Kafka 3.9.1 or newer or of an unknown version.

    ZooKeeper's own messages begin with a size and small numbers too, which read as a Produce without client id.
    """
    if not 8 <= header.size <= limit or not 0 <= header.api_key <= NEWEST_API:
        return False
    if header.api_key == ApiKey.PRODUCE and header.client_id == "":
        return False
    return (-1 if header.api_key in CONTROL_APIS else 0) <= header.api_version <= NEWEST_API


def _exists(header: FrameHeader) -> bool:
    """Whether a release up to Kafka 4.1 has this API and version."""
    if is_later(header.api_key, header.api_version):
        return True
    try:
        check_version(header.api_key, header.api_version)
    except (UnsupportedApi, UnsupportedVersion):
        return False
    return True


def is_convincing(header: FrameHeader, payload: Payload | None) -> bool:
    """Whether a connection's first request is one by itself, whatever its server says.

    Its API and version exist, and its body can be read; of a control request from a client with a name whether or not.
    """
    if not _exists(header):
        return False
    if payload is None or header.api_key in CONTROL_APIS:
        return payload is not None and bool(header.client_id)
    body = memoryview(bytes(payload))[header.body_at :]
    return bool(body_is_whole(header.api_key, header.api_version, body, "request"))


def is_known_request(header: FrameHeader, limit: int) -> bool:
    """Whether a header at a guessed place may be a request's: a version up to Kafka 4.1's, and a usual client id."""
    if not _exists(header):
        return False
    return header.body_at <= header.size <= limit and (
        header.client_id is None or 0 < len(header.client_id) <= _LONGEST_CLIENT_ID
    )


def body_is_whole(api_key: int, version: int, body: memoryview, direction: str) -> bool | None:
    """Whether a body decodes and leaves no byte over; None if no codec knows this API."""
    decode = codec.decode_request_from if direction == "request" else codec.decode_response_from
    try:
        return bool(decode(api_key, version, body)[1] == len(body))
    except DecodeError:
        return False
    except (UnsupportedApi, UnsupportedVersion):
        return None


def looks_like_tls(data: bytes) -> bool:
    """Whether a stream or segment begins with a TLS record."""
    return _TLS.match(data) is not None


def looks_like_http(data: bytes) -> bool:
    """Whether a stream begins with HTTP."""
    return _HTTP.match(data) is not None
