"""Helpers for asyncio programs: the frames of a stream, a request with its response, and many of them at once.

The program opens the connection itself, with or without TLS: ``asyncio.open_connection``, ``asyncio.start_server``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

from .codec import encode
from .errors import DecodeError, FrameTooLarge, Malformed, Truncated
from .framing import DEFAULT_LIMIT, frame
from .headers import encode_request_header, read_response, request_header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from .codec import Message
    from .messages import RequestHeader


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


class BrokerConnection:
    """A client's connection with several requests in flight; it counts the correlation ids itself.

    Requests go out in the order of the calls of ``ask``, from any number of tasks of one event loop. Responses are
    matched by their correlation ids. A request whose caller is cancelled stays in flight, and its response is dropped.

    Args:
        reader: The connection, for reading.
        writer: The connection, for writing; ``close`` closes it.
        client_id: The name by which the broker knows this program.
        in_flight: The most requests that are sent and not answered; others wait for their turn.
        limit: Largest response in bytes.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        client_id: str | None = "kproto",
        in_flight: int = 100,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}: at least one request must be in flight")
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._limit = limit
        self._free = asyncio.Semaphore(in_flight)
        self._next_id = 0
        self._in_flight: dict[int, tuple[RequestHeader, asyncio.Future[Any]]] = {}
        self._failure: Exception | None = None
        self._task = asyncio.create_task(self._receive())

    async def ask(self, request: Message, version: int) -> Any:
        """Send a request, and return its decoded response.

        Args:
            request: A request of either codec. Not Produce with acks=0, which brokers do not answer.
            version: The request's version, also that of its response.

        Raises:
            EncodeError: The request cannot be written in this version; the connection goes on.
            DecodeError: The response cannot be read; or no response to a request came, which ends the connection.
            ConnectionError: The connection is lost, or was closed.
        """
        body = encode(request, version)
        await self._free.acquire()
        if self._failure is not None:
            self._free.release()
            raise self._failure
        header = request_header(request.api_key, version, self._next_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._in_flight[self._next_id] = header, answer
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._writer.write(frame(encode_request_header(header) + body))
        await self._writer.drain()
        return await answer

    async def close(self) -> None:
        """Close the connection; requests in flight fail with a ``ConnectionError``. Twice is harmless."""
        self._end(ConnectionAbortedError("the connection was closed by this program"))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _receive(self) -> None:
        try:
            async for payload in frames(self._reader, limit=self._limit):
                self._answered(payload)
        except (DecodeError, OSError) as e:
            self._end(e)
        else:
            self._end(ConnectionResetError("the broker closed the connection"))

    def _answered(self, payload: bytes) -> None:
        correlation_id = int.from_bytes(payload[:4], "big", signed=True) if len(payload) >= 4 else None
        found = self._in_flight.pop(correlation_id, None) if correlation_id is not None else None
        if found is None:
            raise Malformed(f"a response with correlation id {correlation_id}, which no request in flight has", 0)
        header, answer = found
        self._free.release()
        if answer.done():
            return  # its caller was cancelled
        try:
            answer.set_result(read_response(payload, header)[1])
        except DecodeError as e:
            answer.set_exception(e)

    def _end(self, failure: Exception) -> None:
        """Fail all requests in flight, and those that are yet to be sent."""
        self._failure = self._failure or failure
        for _, answer in self._in_flight.values():
            self._free.release()
            if not answer.done():
                answer.set_exception(failure)
                answer.exception()  # a caller may be cancelled before it looks
        self._in_flight.clear()
        self._writer.close()


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
