"""The door to request and response headers: the C-accelerated codec's, loudly missing where it is not built.

The reference has its own in ``kproto.reference.headers``; the two share no code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .codec import get_codec

if TYPE_CHECKING:
    from .codec import Header, RequestHeaderLike
    from .types import Buffer

__all__ = [
    "decode_request_header",
    "decode_request_header_from",
    "decode_response_header",
    "decode_response_header_from",
    "encode_request_header",
    "encode_response_header",
    "request_header",
    "response_header",
]


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None = "") -> Any:
    """A request header's message, to be encoded or compared."""
    return get_codec("cython").RequestHeader(
        request_api_key=api_key, request_api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )


def response_header(correlation_id: int) -> Any:
    """A response header's message."""
    return get_codec("cython").ResponseHeader(correlation_id=correlation_id)


def decode_request_header(
    data: Buffer, header_version: int | None = None, *, strict: bool = False
) -> RequestHeaderLike:
    """Read the header that opens a request's payload.

    Args:
        data: A payload, or any buffer that begins with the header.
        header_version: 0 to 2; None derives it from the API key and version at the header's start, as Kafka does.
        strict: Refuse what the protocol forbids though Kafka lets it pass.

    Raises:
        DecodeError: No such header; or, where ``header_version`` is None, its API key is not one of Kafka 3.9.1's.
    """
    return get_codec("cython").decode_request_header(data, header_version, strict=strict)


def decode_request_header_from(
    data: Buffer, header_version: int | None = None, *, strict: bool = False
) -> tuple[RequestHeaderLike, int]:
    """``decode_request_header``, and where the body begins."""
    return get_codec("cython").decode_request_header_from(data, header_version, strict=strict)


def encode_request_header(header: Any, header_version: int | None = None) -> bytes:
    """Write a request header; without a version the one that its API key and version call for."""
    return get_codec("cython").encode_request_header(header, header_version)


def decode_response_header(data: Buffer, header_version: int, *, strict: bool = False) -> Header:
    """Read the header that opens a response's payload; its version follows from the request
    (``kproto.api.response_header_version``)."""
    return get_codec("cython").decode_response_header(data, header_version, strict=strict)


def decode_response_header_from(data: Buffer, header_version: int, *, strict: bool = False) -> tuple[Header, int]:
    """``decode_response_header``, and where the body begins."""
    return get_codec("cython").decode_response_header_from(data, header_version, strict=strict)


def encode_response_header(header: Any, header_version: int) -> bytes:
    """Write a response header."""
    return get_codec("cython").encode_response_header(header, header_version)
