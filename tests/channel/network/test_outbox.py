"""What waits for one thread, and one request and its answer over a plain socket: every way in which that can end."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.clock import FOREVER
from channel.errors import InvalidReceive
from channel.metrics import Counter
from channel.network._outbox import CorrelationIds, Outbox
from kproto.headers import decode_request_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ID = 77
TAIL = b"\0\x011\0"
HEAD = ID.to_bytes(4, "big")
Answer = tuple[bytes, bool, bool]


class StaleConnection(Exception):
    """The request was not sent."""


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Request:
    api_key = 6
    oldest_version = latest_version = 8

    def __init__(self, *body: bytes) -> None:
        self.body = body

    def build(self, version: int) -> Sequence[bytes]:
        return self.body


class Pair:
    """An outbox that is lent one end of a connection, and the other end."""

    def __init__(self, limit: int = -1, *, tagged: bool = True) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.settimeout(20)
        self.limit, self.tagged = limit, tagged
        self.waited: list[float] = []
        self.io, self.outgoing, self.incoming, self.requests, self.responses = (Counter() for _ in range(5))
        self.outbox: Outbox[Any] = Outbox(lambda: 5, self.waited.append)

    def lend(self, timeout_ms: int = 10_000) -> Outbox[Any]:
        metrics = SimpleNamespace(io=self.io, outgoing=self.outgoing, incoming=self.incoming, request_size_max=0)
        metrics.requests, metrics.responses = self.requests, self.responses
        self.outbox.lend(self.near.fileno(), self, timeout_ms, self.limit, metrics)  # type: ignore[arg-type]
        return self.outbox

    def __call__(self, *body: bytes, timeout_ms: int = 10_000) -> Answer:
        self.lend(timeout_ms).put((Request(*body), None, 2))
        taken = self.outbox.get()
        assert taken is not None
        _, answer, error = taken
        if error is not None:
            raise error
        if answer is None:
            raise StaleConnection
        return answer if isinstance(answer, tuple) else (answer, True, False)

    def form(
        self, api_key: int, version: int
    ) -> tuple[CorrelationIds, bytes, bool, Callable[[int, int, bytes], bytes]]:
        return CorrelationIds(ID), TAIL, self.tagged, lambda _, __, body: body

    @property
    def passed(self) -> tuple[int, int, int]:
        """Bytes out, bytes in, whole exchanges."""
        assert self.requests.value == self.responses.value
        return self.outgoing.value, self.incoming.value, self.requests.value

    def unusual(self, builder: Request, correlation_id: int, answer: bytes, plain: bool, more: bool) -> Answer:
        assert correlation_id == ID
        return answer, plain, more

    def failed(self, builder: Request, error: Exception) -> Exception:
        return error

    def read_frame(self) -> bytes:
        with self.far.makefile("rb") as stream:
            return stream.read(int.from_bytes(stream.read(4), "big"))

    def close(self) -> None:
        self.outbox.close()
        self.near.close()
        self.far.close()


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
    assert pair.passed == (4 + len(frames[0]), 4 + 5 + 6, 1)
    assert pair.waited == [3]


@given(
    size=st.sampled_from([0, 1, 1014, 1015, 1016, 1020, 5000, 300_000, 2_000_000]),
    cuts=st.lists(st.integers(1, 200_000), max_size=6),
    tagged=st.booleans(),
)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(size: int, cuts: list[int], tagged: bool) -> None:
    pair, body = Pair(tagged=tagged), os.urandom(size)
    stream = frame(HEAD + b"\0" * tagged + body)

    def serve() -> None:
        pair.read_frame()
        at = 0
        for cut in [*cuts, len(stream)]:
            pair.far.sendall(stream[at : at + cut])
            at += cut

    thread = peer(serve)
    try:
        assert pair(b"body") == (body, True, False)
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


@pytest.mark.parametrize("size", [4, 200_000], ids=["small", "large"])
def test_a_connection_that_has_ended_takes_nothing(pair: Pair, size: int) -> None:
    pair.far.shutdown(socket.SHUT_WR)
    with pytest.raises(StaleConnection):
        pair(bytes(size))
    assert pair.passed == (0, 0, 0)


@pytest.mark.parametrize("size", [4, 200_000], ids=["small", "large"])
def test_a_connection_on_which_something_waits_takes_nothing(pair: Pair, size: int) -> None:
    pair.far.sendall(b"unasked")
    with pytest.raises(StaleConnection):
        pair(bytes(size))
    assert pair.passed == (0, 0, 0)


@pytest.mark.parametrize("answer", [b"", b"\0\0", frame(HEAD + b"\0x")[:-1]], ids=["nothing", "half a length", "half"])
def test_the_end_of_the_connection_is_no_answer(pair: Pair, answer: bytes) -> None:
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(answer), pair.far.shutdown(socket.SHUT_WR)))
    with pytest.raises(EOFError):
        pair(b"body")
    thread.join()
    assert pair.passed[1:] == (len(answer), 0)


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
def test_the_end_ends_the_wait(pair: Pair, size: int) -> None:
    timer = threading.Timer(0.05, pair.outbox.end)
    timer.start()
    with pytest.raises(InterruptedError):
        pair(bytes(size), timeout_ms=FOREVER)
    timer.join()


def test_bodies_that_are_no_buffers_go_by_way_of_the_client(pair: Pair) -> None:
    with pytest.raises(StaleConnection):
        pair(b"body", "text")  # type: ignore[arg-type]
    assert pair.passed == (0, 0, 0)


def test_without_a_connection_what_is_put_comes_out_in_order() -> None:
    waited: list[float] = []
    outbox: Outbox[Any] = Outbox(lambda: 7, waited.append)
    items = [(Request(), None, n) for n in range(3)]
    for item in items:
        outbox.put(item)
    assert len(outbox) == 3
    assert [outbox.get() for _ in items] == [(item, None, None) for item in items]
    assert waited == [7, 6, 5]


def test_what_waits_at_the_end_can_be_taken_out() -> None:
    outbox: Outbox[Any] = Outbox(lambda: 0, lambda _: None)
    items = [(Request(), None, n) for n in range(3)]
    for item in items:
        outbox.put(item)
    outbox.end()
    assert outbox.get() is None
    assert outbox.drain() == items
    assert outbox.drain() == []


def test_a_thread_that_idles_is_woken_by_the_answer_alone(pair: Pair) -> None:
    pair.lend()
    answers: list[Any] = []
    taker = peer(lambda: answers.append(pair.outbox.get()))
    time.sleep(0.05)  # it idles
    pair.outbox.put((Request(b"body"), None, 5))
    assert len(pair.outbox) == 0  # on its way already
    assert pair.read_frame().endswith(b"body")
    assert not answers
    pair.far.sendall(frame(HEAD + b"\0answer"))
    taker.join(10)
    assert [(answer, error) for _, answer, error in answers] == [(b"answer", None)]


def test_the_end_wakes_a_thread_that_idles(pair: Pair) -> None:
    pair.lend()
    answers: list[Any] = []
    taker = peer(lambda: answers.append(pair.outbox.get()))
    time.sleep(0.02)
    pair.outbox.end()
    taker.join(10)
    assert answers == [None]


def test_a_callback_that_blocks_keeps_no_other_thread_from_its_answer() -> None:
    """Turns are taken one after the other, but who holds one for long does not hold up the rest."""
    pairs = [Pair() for _ in range(3)]
    done = threading.Event()
    held = threading.Event()
    got: list[int] = []

    def take(number: int) -> None:
        pairs[number].outbox.get()
        got.append(number)
        if number == 0:
            held.set()
            done.wait(20)  # as if it waited for another broker's answer
        elif len(got) == len(pairs):
            done.set()
        pairs[number].outbox.end()
        pairs[number].outbox.get()

    for pair in pairs:
        pair.lend()
    threads = [peer(lambda number=number: take(number)) for number in range(3)]  # type: ignore[misc]
    for number, pair in enumerate(pairs):
        assert number == 0 or held.wait(20)
        pair.outbox.put((Request(b"body"), None, 0))
        pair.read_frame()
        pair.far.sendall(frame(HEAD + b"\0"))
    for thread in threads:
        thread.join(20)
    assert done.is_set()
    assert sorted(got) == [0, 1, 2]
    for pair in pairs:
        pair.close()


def test_taken_back_in_the_middle_it_is_sent_in_vain_and_the_next_connection_is_used(pair: Pair) -> None:
    """Whoever closes the descriptor afterwards may be sure that nobody reads from it: it may be another's by then."""
    pair.lend().put((Request(b"body"), None, 5))
    answers: list[Any] = []
    taker = peer(lambda: answers.append(pair.outbox.get()))
    pair.read_frame()
    pair.outbox.end()
    taker.join(10)
    pair.outbox.take_back()
    assert not pair.outbox.lent
    other = Pair()
    pair.near.close()
    thread = peer(lambda: (other.read_frame(), other.far.sendall(frame(HEAD + b"\0x"))))
    assert other(b"body") == (b"x", True, False)
    thread.join()
    other.close()
    assert [type(error) for _, _, error in answers] == [InterruptedError]


def test_what_was_on_its_way_when_it_is_closed_waits_to_be_taken_out(pair: Pair) -> None:
    class Abandoned(Exception):
        pass

    def abandon(*_: object) -> None:
        raise Abandoned

    item = (Request(b"body"), None, 5)
    pair.lend().put(item)
    before = signal.signal(signal.SIGALRM, abandon)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Abandoned):
            pair.outbox.get()
    finally:
        signal.signal(signal.SIGALRM, before)
    pair.outbox.close()
    assert pair.outbox.drain() == [item]


def test_signals_disturb_nobody(pair: Pair) -> None:
    heard: list[int] = []
    bodies = [os.urandom(size) for size in (0, 10, 3000, 100_000)] * 25
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))

    def serve() -> None:
        for _ in bodies:
            request = pair.read_frame()
            pair.far.sendall(frame(request[4:8] + b"\0" + request[8 + len(TAIL) :]))

    thread = peer(serve)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for body in bodies:
            assert pair(body) == (body, True, False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        thread.join()
    assert heard


def test_what_many_threads_put_is_delivered_once_and_in_the_order_of_each(pair: Pair) -> None:
    threads, each = 4, 200
    got: list[tuple[int, int]] = []

    def serve() -> None:
        for _ in range(threads * each):
            request = pair.read_frame()
            body = request[8 + len(TAIL) :]
            got.append((body[0], int.from_bytes(body[1:3], "big")))
            pair.far.sendall(frame(request[4:8] + b"\0"))

    def put(number: int) -> None:
        for n in range(each):
            size = 100_000 if n % 50 == 49 else 10
            pair.outbox.put((Request(bytes([number]) + n.to_bytes(2, "big") + bytes(size)), None, 5))

    pair.lend()
    server = peer(serve)
    putters = [peer(lambda number=number: put(number)) for number in range(threads)]  # type: ignore[misc]
    for _ in range(threads * each):
        taken = pair.outbox.get()
        assert taken is not None
        assert taken[1:] == (b"", None)
    for thread in [*putters, server]:
        thread.join()
    assert len(got) == threads * each
    for number in range(threads):
        assert [n for putter, n in got if putter == number] == list(range(each))


def test_a_put_that_is_interrupted_leaves_the_request_with_its_thread(pair: Pair) -> None:
    class Interrupted(Request):
        def build(self, version: int) -> Sequence[bytes]:
            self.build = super().build  # type: ignore[method-assign]
            raise KeyboardInterrupt

    pair.lend()
    answers: list[Any] = []
    taker = peer(lambda: answers.append(pair.outbox.get()))
    time.sleep(0.2)  # it idles
    item = (Interrupted(b"body"), None, 5)
    with pytest.raises(KeyboardInterrupt):
        pair.outbox.put(item)
    assert pair.read_frame().endswith(b"body")
    pair.far.sendall(frame(HEAD + b"\0x"))
    taker.join(10)
    assert answers == [(item, b"x", None)]


def test_a_request_put_after_the_end_is_not_sent(pair: Pair) -> None:
    item = (Request(b"body"), None, 5)
    pair.lend().end()
    pair.outbox.put(item)
    assert pair.outbox.get() is None
    assert pair.outbox.drain() == [item]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_nothing_of_it_and_the_parent_goes_on(pair: Pair) -> None:
    pair.lend()
    answers: list[Any] = []
    taker = peer(lambda: answers.append(pair.outbox.get()))
    time.sleep(0.02)  # it idles
    pair.outbox.put((Request(b"body"), None, 5))
    pair.read_frame()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(20)
            own = Pair()  # what it has of its own works
            own.lend().put((Request(b"child"), None, 5))
            pair.outbox.put((Request(b"never sent"), None, 5))
            thread = peer(lambda: (own.read_frame(), own.far.sendall(frame(HEAD + b"\0x"))))
            assert own.outbox.get()[1] == b"x"  # type: ignore[index]
            thread.join()
            assert not pair.outbox.lent
            pair.outbox.take_back()
            pair.outbox.close()
            assert [request.body for request, _, _ in pair.outbox.drain()] == [(b"never sent",)]
            assert own.lend().lent  # its thread has not ended with the other's
            own.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pair.far.sendall(frame(HEAD + b"\0answer"))
    taker.join(10)
    assert [(answer, error) for _, answer, error in answers] == [(b"answer", None)]
    pair.far.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.far.recv(1)


def test_a_connection_is_lent_to_one_alone(pair: Pair) -> None:
    pair.lend()
    other: Outbox[Any] = Outbox(lambda: 5, lambda _: None)
    with pytest.raises(FileExistsError):
        other.lend(pair.near.fileno(), pair, 1000)  # type: ignore[arg-type]
    other.close()
    thread = peer(lambda: (pair.read_frame(), pair.far.sendall(frame(HEAD + b"\0x"))))
    assert pair(b"body") == (b"x", True, False)
    thread.join()


def test_a_connection_that_was_dropped_with_its_outbox_can_be_lent_again(pair: Pair) -> None:
    dropped: Outbox[Any] = Outbox(lambda: 5, lambda _: None)
    pair.lend()
    dropped.lend(pair.far.fileno(), None, 1000)  # type: ignore[arg-type]
    del dropped
    again: Outbox[Any] = Outbox(lambda: 5, lambda _: None)
    again.lend(pair.far.fileno(), None, 1000)  # type: ignore[arg-type]
    assert again.lent
    again.close()


def test_nothing_is_left_of_those_that_come_and_go() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for round_ in range(100):
        pair = Pair()
        thread = peer(lambda pair=pair: pair.far.sendall(frame(pair.read_frame()[4:8] + b"\0")))  # type: ignore[misc]
        assert pair(b"body") == (b"", True, False)
        thread.join()
        if round_ % 2:
            pair.close()
        else:
            pair.near.close()  # nobody closes the outbox, nor soon enough
            pair.far.close()
    del pair
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_moving_thread_ends_with_the_last_outbox() -> None:
    def movers() -> int:
        count = 0
        for name in Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(FileNotFoundError):
                count += name.read_text() == "kproto-io\n"
        return count

    assert movers() == 0
    pairs = [Pair(), Pair()]
    for pair in pairs:
        pair.lend()
    assert movers() == 1
    pairs[0].close()
    assert movers() == 1
    pairs[1].close()
    assert movers() == 0
