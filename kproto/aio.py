"""Helpers for asyncio programs: the frames of a stream, and a request with its response.

The program opens and closes the connection itself, with or without TLS: ``asyncio.open_connection``,
``asyncio.start_server``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .codec import encode
from .errors import FrameTooLarge, Truncated
from .framing import DEFAULT_LIMIT, frame
from .headers import encode_request_header, read_response, request_header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .codec import Message


async def frames(reader: asyncio.StreamReader, *, limit: int = DEFAULT_LIMIT) -> AsyncIterator[bytes]:
    """Yield the payload of each frame, header and body, until the peer closes the connection.

    Args:
        reader: The connection.
        limit: Largest payload in bytes.

    Raises:
        FrameTooLarge: A length above the limit or below zero; the rest of the stream cannot be cut.
        Truncated: The connection ended inside a frame.
    """
    offset = 0
    while (payload := await _frame(reader, limit, offset)) is not None:
        yield payload
        offset += 4 + len(payload)


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: Message,
    version: int,
    *,
    correlation_id: int = 0,
    client_id: str | None = "kproto",
    limit: int = DEFAULT_LIMIT,
) -> Any:
    """Send a request, and return its decoded response; one request at a time on a connection.

    Limit the time by ``asyncio.timeout``, and close the connection when it is over: the response may still come.

    Args:
        reader: The connection, for reading.
        writer: The connection, for writing.
        request: A request of either codec.
        version: The request's version, also that of its response.
        correlation_id: The response must carry the same.
        client_id: The name by which the broker knows this program.
        limit: Largest response in bytes.

    Raises:
        EncodeError: The request cannot be written in this version.
        DecodeError: The bytes that came are no response to this request.
        ConnectionError: The connection is lost.
    """
    header = request_header(request.api_key, version, correlation_id, client_id)
    writer.write(frame(encode_request_header(header) + encode(request, version)))
    await writer.drain()
    payload = await _frame(reader, limit, 0)
    if payload is None:
        raise ConnectionResetError("the broker closed the connection without a response")
    return read_response(payload, header)[1]


async def _frame(reader: asyncio.StreamReader, limit: int, offset: int) -> bytes | None:
    """Read one frame's payload; None where the stream ends before it."""
    try:
        length = await reader.readexactly(4)
    except asyncio.IncompleteReadError as e:
        if not e.partial:
            return None
        raise Truncated("the connection ended inside a frame's length", offset) from e
    size = int.from_bytes(length, "big", signed=True)
    if not 0 <= size <= limit:
        raise FrameTooLarge(f"a frame of {size} bytes, limit {limit}", offset)
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as e:
        raise Truncated(f"the connection ended inside a frame of {size} bytes", offset) from e
