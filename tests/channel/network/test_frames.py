"""A frame on its way in and a frame on its way out, whatever pieces the transport takes them in."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.errors import InvalidReceive
from channel.network.frames import UNLIMITED, FrameReader, MemoryPool, Send, Window
from kproto.framing import FrameSplitter

windows = pytest.mark.parametrize("window", [None, Window(), Window(16)], ids=["exact", "window", "small-window"])


def feed(reader, data):
    """Read bytes as a transport would: no more at a time than the reader has offered. Gives the whole frames."""
    frames = []
    while data:
        count = min(len(data), len(reader.into))
        assert count, "the reader offers no room"
        reader.into[:count] = data[:count]
        data = data[count:]
        payload = reader.received(count)
        while payload is not None:
            frames.append(bytes(payload))
            payload = reader.next_frame()
    return frames


class Taking:
    """A transport that takes a limited number of bytes in each call."""

    def __init__(self, *room: int) -> None:
        self.room = list(room)
        self.taken = b""

    def write(self, buffers):
        room = self.room.pop(0) if self.room else 1 << 30
        data = b"".join(buffers)[:room]
        self.taken += data
        return len(data)


def size(value: int) -> bytes:
    return struct.pack(">i", value)


@pytest.mark.conformance("NRV-01")
@windows
def test_bytes_are_counted_as_they_come_and_the_frame_is_whole_only_at_its_end(window):
    reader = FrameReader(128, window=window)
    seen = [reader.bytes_read]
    for piece in (size(128), bytes(64)):
        assert feed(reader, piece) == []
        seen.append(reader.bytes_read)
    assert seen == [0, 4, 68]
    assert reader.requested == 128
    assert feed(reader, bytes(64)) == [bytes(128)]
    assert reader.bytes_read == 0  # between two frames


@pytest.mark.conformance("NRV-02")
@windows
def test_a_length_is_checked_before_anything_is_allocated(window):
    for announced in (-1, 101, -(2**31)):
        reader = FrameReader(100, window=window)
        with pytest.raises(InvalidReceive, match=str(announced)):
            feed(reader, size(announced))
        assert reader.memory == 0
    allowed = FrameReader(100, window=window)
    feed(allowed, size(100))
    assert (allowed.requested, allowed.memory) == (100, 100)
    unlimited = FrameReader(UNLIMITED, window=window)
    feed(unlimited, size(2**31 - 1))
    assert unlimited.requested == 2**31 - 1
    assert unlimited.memory <= 4096  # announcing 2 GiB does not make anybody allocate them


@windows
def test_a_large_frames_buffer_grows_with_what_arrives(window):
    payload = bytes(range(256)) * 20_000
    stream, reader, frames = size(len(payload)) + payload, FrameReader(window=window), []
    for at in range(0, len(stream), 1000):
        frames += feed(reader, stream[at : at + 1000])
        assert reader.memory <= max(4096, 2 * (at + 1000))
    assert frames == [payload]
    assert reader.memory == 0


@pytest.mark.conformance("NRV-03")
def test_an_empty_frame_asks_no_pool():
    pool = MemoryPool(1, 1)
    held = pool.allocate(1)
    reader = FrameReader(UNLIMITED, pool)
    assert feed(reader, size(0)) == [b""]
    assert not reader.lacks_memory
    pool.release(held)


def test_a_frame_waits_for_memory_and_goes_on_when_there_is_some():
    pool = MemoryPool(10, 10)
    held = pool.allocate(10)
    reader = FrameReader(UNLIMITED, pool, Window())
    assert feed(reader, size(3)) == []
    assert reader.lacks_memory
    assert len(reader.into) == 0
    assert not reader.allocate()
    pool.release(held)
    assert reader.allocate()
    assert pool.available == 7
    (payload,) = [reader.received(3) for reader.into[:] in (b"abc",)]
    assert payload == b"abc"
    pool.release(payload)
    assert pool.available == 10


def test_a_frame_takes_its_share_of_the_pool_at_once_and_its_memory_as_it_arrives():
    pool = MemoryPool(1 << 20, 1 << 20)
    reader = FrameReader(UNLIMITED, pool)
    feed(reader, size(1 << 20))
    assert (pool.available, reader.memory) == (0, 4096)
    feed(reader, bytes(300_000))
    assert 300_000 <= reader.memory <= 600_000
    reader.close()
    assert pool.available == 1 << 20


def test_frames_before_a_length_that_may_not_be_are_given_out_first():
    reader = FrameReader(100, window=Window())
    stream = size(1) + b"a" + size(2) + b"bb" + size(-5)
    reader.into[: len(stream)] = stream
    assert reader.received(len(stream)) == b"a"
    assert reader.next_frame() == b"bb"
    with pytest.raises(InvalidReceive, match="-5"):
        reader.next_frame()


@windows
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 9), max_size=30))
def test_frames_are_the_same_however_they_are_cut_and_as_the_codecs_splitter_cuts_them(window, payloads, cuts):
    stream = b"".join(size(len(payload)) + payload for payload in payloads)
    reader, rest, frames = FrameReader(window=window), stream, []
    for cut in cuts:
        frames += feed(reader, rest[:cut])
        rest = rest[cut:]
    frames += feed(reader, rest)
    assert frames == payloads == list(FrameSplitter().feed(stream))


@given(st.lists(st.binary(max_size=6), max_size=8), st.lists(st.integers(0, 7)))
def test_a_send_writes_every_byte_once_in_order_however_little_is_taken(pieces, room):
    send, transport = Send.framed("0", pieces), Taking(*room)
    calls = 0
    while send.remaining:
        send.written(transport.write(send.left))
        calls += 1
        assert send.remaining == send.size - len(transport.taken)
    payload = b"".join(pieces)
    assert transport.taken == size(len(payload)) + payload
    assert calls <= len(room) + 1


def test_buffers_are_handed_down_as_they_are_and_cut_without_copying():
    shared = memoryview(bytes(100))
    seen = []

    class Watching(Taking):
        def write(self, buffers):
            seen.append(buffers)
            return super().write(buffers)

    send = Send("0", [b"head", shared])
    transport = Watching(50)
    send.written(transport.write(send.left))
    send.written(transport.write(send.left))
    assert seen[0] == [b"head", shared]
    assert seen[0][1] is shared
    assert seen[1][0].obj is shared.obj
    assert send.buffers == [b"head", shared]  # what the recorder sees
