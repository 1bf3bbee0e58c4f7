"""asyncio programs cut a stream into frames, and send a request to a broker."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kproto
from channel import EmbeddedCluster
from kproto.aio import BrokerConnection, ask, frames
from kproto.errors import FrameTooLarge, Malformed, Truncated
from kproto.framing import frame


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


async def served(
    answer: Callable[[list[bytes]], list[bytes]], count: int, ask_all: Callable[..., Awaitable[object]]
) -> object:
    """Let a server read ``count`` requests, then send what ``answer`` makes of them, while ``ask_all`` is run."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came: list[bytes] = []
        async for payload in frames(reader):
            came.append(payload)
            if len(came) == count:
                writer.write(b"".join(map(frame, answer(came))))
                break
        await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with BrokerConnection(reader, writer) as connection:
            try:
                return await ask_all(connection)
            finally:
                await connection.close()
                await ended.wait()


def response_to(payload: bytes, error_code: int = 0) -> bytes:
    """The answer to a StopReplica of version 4: correlation id, no tagged fields, error code, no partitions."""
    return payload[4:8] + b"\0" + error_code.to_bytes(2, "big") + b"\1\0"


def test_responses_find_their_requests_in_whatever_order_they_come() -> None:
    async def ask_all(connection: BrokerConnection) -> list[int]:
        return [r.error_code for r in await asyncio.gather(*(connection.ask(REQUEST, 4) for _ in range(5)))]

    def backwards(came: list[bytes]) -> list[bytes]:
        return [response_to(payload, number) for number, payload in reversed(list(enumerate(came)))]

    assert asyncio.run(served(backwards, 5, ask_all)) == [0, 1, 2, 3, 4]


def test_a_caller_that_is_cancelled_costs_itself_alone() -> None:
    async def ask_all(connection: BrokerConnection) -> object:
        first = asyncio.create_task(connection.ask(REQUEST, 4))
        await asyncio.sleep(0)
        first.cancel()
        return (await connection.ask(REQUEST, 4)).error_code

    assert asyncio.run(served(lambda came: [response_to(p, n) for n, p in enumerate(came)], 2, ask_all)) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda came: [], ConnectionResetError),
        (lambda came: [b"\0\0\0\x63" + response_to(came[0])[4:]], Malformed),
        (lambda came: [b"\0\0"], Malformed),
        (lambda came: [response_to(came[0])[:6]], Truncated),
    ],
    ids=["closed", "another id", "no id", "cut body"],
)
def test_what_is_no_response_is_an_error_of_each_request(
    answer: Callable[[list[bytes]], list[bytes]], error: type[Exception]
) -> None:
    async def ask_all(connection: BrokerConnection) -> list[object]:
        return await asyncio.gather(*(connection.ask(REQUEST, 4) for _ in range(2)), return_exceptions=True)

    first, second = asyncio.run(served(answer, 2, ask_all))  # type: ignore[misc]
    assert type(first) is error
    assert isinstance(second, error if error is not Truncated else ConnectionResetError)


def test_requests_beyond_the_limit_wait_for_their_turn() -> None:
    async def ask_three() -> tuple[int, list[int]]:
        with EmbeddedCluster(1) as cluster:
            reader, writer = await asyncio.open_connection(cluster[0].host, cluster[0].port)
            async with asyncio.timeout(30), BrokerConnection(reader, writer, in_flight=1) as connection:
                asked = [asyncio.create_task(connection.ask(REQUEST, 4)) for _ in range(3)]
                await asyncio.sleep(0)
                waiting = len(connection._in_flight)
                return waiting, [answer.error_code for answer in await asyncio.gather(*asked)]

    waiting, codes = asyncio.run(ask_three())
    assert (waiting, len(codes)) == (1, 3)


def test_a_closed_connection_says_so() -> None:
    async def ask_closed(connection: BrokerConnection) -> object:
        await connection.close()
        await connection.close()
        return await connection.ask(REQUEST, 4)

    with pytest.raises(ConnectionAbortedError, match="closed by this program"):
        asyncio.run(served(lambda came: [], 1, ask_closed))
