"""A frame on its way in and a frame on its way out, whatever pieces the transport takes them in."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.errors import InvalidReceive
from channel.network.frames import UNLIMITED, Receive, Send
from channel.network.memory import MemoryPool


class Scripted:
    """A transport that gives each read the bytes of one step; an empty step is nothing now, the end is the end."""

    def __init__(self, *steps: bytes) -> None:
        self.steps = list(steps)

    def read_into(self, buffer):
        if not self.steps:
            raise EOFError("the end")
        step = self.steps.pop(0)
        taken = step[: len(buffer)]
        if len(step) > len(taken):
            self.steps.insert(0, step[len(taken) :])
        buffer[: len(taken)] = taken
        return len(taken)


class Taking:
    """A transport that takes so many bytes a call."""

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
def test_bytes_are_counted_as_they_come_and_the_frame_is_whole_only_at_its_end():
    receive = Receive("0", 128)
    transport = Scripted(size(128), b"", bytes(64), bytes(64))
    seen = [receive.bytes_read]
    for expected in (4, 64, 64):
        assert not receive.complete
        assert receive.read_from(transport) == expected
        seen.append(receive.bytes_read)
    assert seen == [0, 4, 68, 132]
    assert receive.complete
    assert receive.payload == bytes(128)
    assert receive.size == 132


@pytest.mark.conformance("NRV-02")
def test_a_length_is_checked_before_anything_is_allocated():
    for announced in (-1, 101, -(2**31)):
        receive = Receive("0", 100)
        with pytest.raises(InvalidReceive, match=str(announced)):
            receive.read_from(Scripted(size(announced)))
        assert not receive.memory_allocated
    allowed = Receive("0", 100)
    allowed.read_from(Scripted(size(100), b""))
    assert (allowed.requested, allowed.memory_allocated) == (100, True)
    unlimited = Receive("0", UNLIMITED)
    unlimited.read_from(Scripted(size(2**31 - 1), b""))
    assert (unlimited.size_known, unlimited.requested) == (True, 2**31 - 1)
    assert len(unlimited.payload) <= 1 << 20  # announcing 2 GiB does not make anybody allocate them


def test_a_large_frames_buffer_grows_with_what_arrives():
    payload = bytes(range(256)) * 20_000
    receive, transport = Receive("0"), Scripted(size(len(payload)) + payload)
    while not receive.complete:
        before = receive.bytes_read
        receive.read_from(transport)
        assert len(receive.payload) <= max(1 << 20, 2 * before)
    assert receive.payload == payload


@pytest.mark.conformance("NRV-03")
def test_an_empty_frame_asks_no_pool_and_an_early_end_is_told():
    pool = MemoryPool(1, 1)
    held = pool.allocate(1)
    empty = Receive("0", UNLIMITED, pool)
    assert empty.read_from(Scripted(size(0))) == 4
    assert empty.complete
    assert empty.payload == b""
    empty.close()
    pool.release(held)
    for steps in ((b"\0\0",), (size(4), b"ab")):
        receive, transport = Receive("0"), Scripted(*steps)
        receive.read_from(transport)
        with pytest.raises(EOFError):
            receive.read_from(transport)
        assert not receive.complete


def test_a_frame_waits_for_memory_and_goes_on_when_there_is_some():
    pool = MemoryPool(10, 10, strict=True)
    held = pool.allocate(10)
    receive, transport = Receive("0", UNLIMITED, pool), Scripted(size(3) + b"abc")
    assert receive.read_from(transport) == 4
    assert not receive.memory_allocated
    assert receive.read_from(transport) == 0
    pool.release(held)
    assert receive.read_from(transport) == 3
    assert receive.payload == b"abc"
    receive.close()
    assert pool.available == 10


@given(st.binary(max_size=40), st.lists(st.integers(0, 9), max_size=30))
def test_a_frame_is_the_same_however_it_is_cut(payload, cuts):
    stream, steps = size(len(payload)) + payload, []
    for cut in cuts:
        steps.append(stream[:cut])
        stream = stream[cut:]
    receive, transport = Receive("0"), Scripted(*steps, stream)
    read = 0
    while not receive.complete:
        read += receive.read_from(transport)
    assert receive.payload == payload
    assert read == receive.bytes_read == receive.size == len(payload) + 4


@given(st.lists(st.binary(max_size=6), max_size=8), st.lists(st.integers(0, 7)))
def test_a_send_writes_every_byte_once_in_order_however_little_is_taken(pieces, room):
    send, transport = Send.framed("0", pieces), Taking(*room)
    calls = 0
    while not send.completed:
        send.write_to(transport)
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
    send.write_to(transport)
    send.write_to(transport)
    assert seen[0] == [b"head", shared]
    assert seen[0][1] is shared
    assert seen[1][0].obj is shared.obj
    assert send.buffers == [b"head", shared]  # what the recorder sees
