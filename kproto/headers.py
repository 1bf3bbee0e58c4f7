"""Request and response headers, read and written by the C-accelerated codec, and whole payloads.

A request's payload begins with a request header, a response's with a response header; the body follows. The reference
has headers of its own in ``kproto.reference.headers``; the two share no code.

>>> payload = encode_request_header(request_header(18, 0, correlation_id=1, client_id="9"))
>>> header, message = read_request(payload)
>>> header.client_id, message.api_key.name
('9', 'API_VERSIONS')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .api import response_body_version, response_header_version
from .codec import decode_request, decode_response, get_codec
from .errors import Malformed

if TYPE_CHECKING:
    from .messages import RequestHeader, ResponseHeader
    from .types import Buffer


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None = "") -> RequestHeader:
    """Make a request header; ``client_id`` None is null on the wire."""
    header: RequestHeader = get_codec("cython").RequestHeader(
        request_api_key=api_key, request_api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )
    return header


def response_header(correlation_id: int) -> ResponseHeader:
    """Make a response header."""
    header: ResponseHeader = get_codec("cython").ResponseHeader(correlation_id=correlation_id)
    return header


def decode_request_header(data: Buffer, header_version: int | None = None, *, strict: bool = False) -> RequestHeader:
    """Read the header at the start of a request's payload.

    Args:
        data: The payload, or any buffer that begins with the header.
        header_version: 0 to 2; None derives it from the API key and version at the header's start, as Kafka does.
        strict: Refuse what the protocol forbids although Kafka accepts it, bytes after the header among it.

    Raises:
        DecodeError: The bytes are no such header; or ``header_version`` is None, and the API key in the bytes is not
            one of Kafka 3.9.1's.
        UnsupportedVersion: There is no such header version.
    """
    return cast("RequestHeader", get_codec("cython").decode_request_header(data, header_version, strict=strict))


def decode_request_header_from(
    data: Buffer, header_version: int | None = None, *, strict: bool = False
) -> tuple[RequestHeader, int]:
    """Read a request header as ``decode_request_header`` does; also return where the body begins."""
    header, size = get_codec("cython").decode_request_header_from(data, header_version, strict=strict)
    return cast("RequestHeader", header), size


def encode_request_header(header: RequestHeader, header_version: int | None = None) -> bytes:
    """Write a request header.

    Args:
        header: The header.
        header_version: 0 to 2; None derives it from the header's API key and version.

    Raises:
        EncodeError: A value that cannot be written.
        UnsupportedApi: ``header_version`` is None, and the header's API key is not one of Kafka 3.9.1's.
        UnsupportedVersion: There is no such header version.
    """
    return get_codec("cython").encode_request_header(header, header_version)


def decode_response_header(data: Buffer, header_version: int, *, strict: bool = False) -> ResponseHeader:
    """Read the header at the start of a response's payload.

    Args:
        data: The payload, or any buffer that begins with the header.
        header_version: 0 or 1, as ``kproto.api.response_header_version`` derives it from the request.
        strict: Refuse what the protocol forbids although Kafka accepts it, bytes after the header among it.

    Raises:
        DecodeError: The bytes are no such header.
        UnsupportedVersion: There is no such header version.
    """
    return cast("ResponseHeader", get_codec("cython").decode_response_header(data, header_version, strict=strict))


def decode_response_header_from(
    data: Buffer, header_version: int, *, strict: bool = False
) -> tuple[ResponseHeader, int]:
    """Read a response header as ``decode_response_header`` does; also return where the body begins."""
    header, size = get_codec("cython").decode_response_header_from(data, header_version, strict=strict)
    return cast("ResponseHeader", header), size


def encode_response_header(header: ResponseHeader, header_version: int) -> bytes:
    """Write a response header."""
    return get_codec("cython").encode_response_header(header, header_version)


def read_request(payload: Buffer, *, strict: bool = False) -> tuple[RequestHeader, Any]:
    """Read a whole request: its header, and the message that its API key and version name.

    Args:
        payload: A frame's bytes behind the length.
        strict: Refuse what the protocol forbids although Kafka accepts it, bytes after the message among it.

    Raises:
        DecodeError: The bytes are no such request.
        UnsupportedApi: kproto does not read the bodies of this API.
        UnsupportedVersion: The API has no such version in Kafka 3.9.1.
    """
    header, at = decode_request_header_from(payload)
    body = memoryview(payload)[at:]
    return header, decode_request(header.request_api_key, header.request_api_version, body, strict=strict)


def read_response(payload: Buffer, request: RequestHeader, *, strict: bool = False) -> tuple[ResponseHeader, Any]:
    """Read the whole response to a request: its header and its message.

    Args:
        payload: A frame's bytes behind the length.
        request: The request's header, which tells the API and version that the response does not name.
        strict: See ``read_request``.

    Raises:
        DecodeError: The bytes are no response to this request; ``Malformed`` for another correlation id.
        UnsupportedApi: kproto does not read the bodies of this API.
        UnsupportedVersion: The API has no such version in Kafka 3.9.1.
    """
    api_key, version = request.request_api_key, request.request_api_version
    header, at = decode_response_header_from(payload, response_header_version(api_key, version))
    if header.correlation_id != request.correlation_id:
        raise Malformed(
            f"the response has correlation id {header.correlation_id}, the request {request.correlation_id}"
        )
    body = memoryview(payload)[at:]
    return header, decode_response(api_key, response_body_version(api_key, version, body), body, strict=strict)
