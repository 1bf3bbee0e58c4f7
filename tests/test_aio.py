"""asyncio programs cut a stream into frames, and send a request to a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kproto
from channel import EmbeddedCluster
from kproto.aio import ask, frames
from kproto.errors import FrameTooLarge, Malformed, Truncated
from kproto.framing import frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def collect(pieces: list[bytes], limit: int = 1 << 20) -> list[bytes]:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return [payload async for payload in frames(reader, limit=limit)]


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_do_not_depend_on_how_the_bytes_arrive(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
    assert asyncio.run(collect(pieces)) == payloads


@pytest.mark.parametrize(
    ("stream", "error", "offset"),
    [
        (frame(b"whole") + b"\0\0", Truncated, 9),
        (frame(b"whole") + b"\0\0\0\5rest", Truncated, 9),
        (frame(b"whole") + b"\0\0\0\x65" + bytes(101), FrameTooLarge, 9),
        (b"\xff\xff\xff\xff", FrameTooLarge, 0),
    ],
)
def test_a_damaged_stream_is_an_error_with_its_offset(stream: bytes, error: type[Exception], offset: int) -> None:
    with pytest.raises(error) as caught:
        asyncio.run(collect([stream], limit=100))
    assert caught.value.offset == offset  # type: ignore[attr-defined]


REQUEST = kproto.StopReplicaRequest(controller_id=9, controller_epoch=2, broker_epoch=1)


async def ask_at(host: str, port: int) -> object:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(30):
            return await ask(reader, writer, REQUEST, 4, correlation_id=7)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def test_a_request_gets_its_response_from_a_broker() -> None:
    with EmbeddedCluster(1) as cluster:
        response = asyncio.run(ask_at(cluster[0].host, cluster[0].port))
    assert response == kproto.StopReplicaResponse()


async def against(answer: Callable[[asyncio.StreamWriter], None]) -> object:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        answer(writer)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        try:
            return await ask_at(*server.sockets[0].getsockname())
        finally:
            await closed.wait()


def run(awaitable: Awaitable[object]) -> object:
    async def main() -> object:
        return await awaitable

    return asyncio.run(main())


def test_a_response_to_another_request_is_refused() -> None:
    other = bytes.fromhex("00000008 00 0000 01 00".replace(" ", ""))
    with pytest.raises(Malformed, match="correlation id 8, the request 7"):
        run(against(lambda writer: writer.write(frame(other))))


def test_a_connection_that_ends_without_a_response_is_an_error() -> None:
    with pytest.raises(ConnectionResetError, match="without a response"):
        run(against(lambda writer: None))
