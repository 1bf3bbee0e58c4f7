"""One request and its answer over a plain socket: every way in which that can end."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.clock import FOREVER
from channel.errors import InvalidReceive
from channel.network._exchange import Exchange, StaleConnection
from kproto.headers import decode_request_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ID = 77
TAIL = b"\0\x011\0"
HEAD = ID.to_bytes(4, "big")


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Pair:
    """An exchange and the other end of its socket."""

    def __init__(self, limit: int = -1) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(20)
        self.wake = os.eventfd(0)
        self.exchange = Exchange(self.near.fileno(), self.wake, limit)

    def __call__(self, *body: bytes, tagged: bool = True, timeout_ms: int = 10_000) -> tuple[bytes, bool, bool]:
        return self.exchange(6, 8, ID, TAIL, tagged, body, timeout_ms)

    def read_frame(self) -> bytes:
        with self.far.makefile("rb") as stream:
            return stream.read(int.from_bytes(stream.read(4), "big"))

    def close(self) -> None:
        self.near.close()
        self.far.close()
        os.close(self.wake)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def peer(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_request_goes_out_whole_and_its_answer_comes_back(pair: Pair) -> None:
    frames: list[bytes] = []

    def serve() -> None:
        frames.append(pair.read_frame())
        pair.far.sendall(frame(HEAD + b"\0" + b"answer"))

    thread = peer(serve)
    assert pair(b"bo", b"", b"dy") == (b"answer", True, False)
    thread.join()
    header = decode_request_header(frames[0])
    assert (header.request_api_key, header.request_api_version, header.correlation_id, header.client_id) == (
        6,
        8,
        ID,
        "1",
    )
    assert frames[0].endswith(b"body")
    assert (pair.exchange.sent, pair.exchange.received) == (4 + len(frames[0]), 4 + 5 + 6)


@given(
    size=st.sampled_from([0, 1, 1014, 1015, 1016, 1020, 5000, 300_000, 900_000]),
    cuts=st.lists(st.integers(1, 200_000), max_size=6),
    tagged=st.booleans(),
)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(size: int, cuts: list[int], tagged: bool) -> None:
    pair, body = Pair(), os.urandom(size)
    stream = frame(HEAD + b"\0" * tagged + body)

    def serve() -> None:
        pair.read_frame()
        at = 0
        for cut in [*cuts, len(stream)]:
            pair.far.sendall(stream[at : at + cut])
            at += cut

    thread = peer(serve)
    try:
        assert pair(b"body", tagged=tagged) == (body, True, False)
    finally:
        thread.join()
        pair.close()


def test_a_request_of_many_large_pieces_arrives_in_order(pair: Pair) -> None:
    pieces = [bytes([n % 251]) * 20_000 for n in range(1500)]
    got: list[bytes] = []

    def serve() -> None:
        got.append(pair.read_frame())
        pair.far.sendall(frame(HEAD + b"\0"))

    thread = peer(serve)
    assert pair(*pieces) == (b"", True, False)
    thread.join()
    assert got[0][8 + len(TAIL) :] == b"".join(pieces)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0\0", HEAD, (ID + 1).to_bytes(4, "big") + b"\0x", HEAD + b"\x01\x05\x01ax"],
    ids=["empty", "short", "no tag byte", "another id", "tagged fields"],
)
def test_an_unusual_answer_comes_back_whole(pair: Pair, payload: bytes) -> None:
    pair.far.sendall(b"")
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(frame(payload))))
    assert pair(b"body") == (payload, False, False)
    thread.join()


def test_bytes_after_the_answer_are_told(pair: Pair) -> None:
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(frame(HEAD + b"\0x") + b"more")))
    assert pair(b"body") == (b"x", True, True)
    thread.join()


def test_a_connection_that_has_ended_takes_nothing(pair: Pair) -> None:
    pair.far.shutdown(socket.SHUT_WR)
    with pytest.raises(StaleConnection):
        pair(b"body")
    assert pair.exchange.sent == 0


def test_a_connection_on_which_something_waits_takes_nothing(pair: Pair) -> None:
    pair.far.sendall(b"unasked")
    with pytest.raises(StaleConnection):
        pair(b"body")
    assert pair.exchange.sent == 0


@pytest.mark.parametrize("answer", [b"", b"\0\0", frame(HEAD + b"\0x")[:-1]], ids=["nothing", "half a length", "half"])
def test_the_end_of_the_connection_is_no_answer(pair: Pair, answer: bytes) -> None:
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(answer), pair.far.shutdown(socket.SHUT_WR)))
    with pytest.raises(EOFError):
        pair(b"body")
    thread.join()
    assert pair.exchange.received == len(answer)


def test_a_broken_connection_is_an_error(pair: Pair) -> None:
    pair.far.close()
    with pytest.raises((StaleConnection, OSError)):
        pair(b"body")


@pytest.mark.parametrize("size", [-1, -(2**31), 101])
def test_a_length_that_may_not_be_is_refused(size: int) -> None:
    pair = Pair(limit=100)
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(size.to_bytes(4, "big", signed=True))))
    with pytest.raises(InvalidReceive, match=str(size)):
        pair(b"body")
    thread.join()
    pair.close()


def test_a_length_alone_takes_no_memory(pair: Pair) -> None:
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall((2**31 - 1).to_bytes(4, "big") + b"x")))
    with pytest.raises(TimeoutError):
        pair(b"body", timeout_ms=50)
    thread.join()


@pytest.mark.parametrize("size", [10, 50_000_000], ids=["answer kept back", "request not read"])
def test_the_timeout_ends_the_wait(pair: Pair, size: int) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        pair(bytes(size), timeout_ms=60)
    assert 0.05 < time.monotonic() - began < 10


@pytest.mark.parametrize("size", [10, 50_000_000], ids=["answer kept back", "request not read"])
def test_a_wakeup_ends_the_wait(pair: Pair, size: int) -> None:
    timer = threading.Timer(0.05, os.eventfd_write, (pair.wake, 1))
    timer.start()
    with pytest.raises(InterruptedError):
        pair(bytes(size), timeout_ms=FOREVER)
    timer.join()


def test_bodies_that_are_no_buffers_are_refused(pair: Pair) -> None:
    with pytest.raises(TypeError):
        pair(b"body", "text")  # type: ignore[arg-type]
    assert pair.exchange.sent == 0
