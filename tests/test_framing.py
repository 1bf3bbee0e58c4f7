"""Frames out of a byte stream, however it comes in pieces."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError, FrameTooLarge, Truncated
from kproto.framing import DEFAULT_LIMIT, FrameSplitter, frame

payloads = st.lists(st.binary(max_size=40), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(payloads, st.lists(st.integers(0, 1000), max_size=30))
def test_any_split_of_the_same_bytes_gives_the_same_frames(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, sent))
    splitter = FrameSplitter()
    got = [payload for piece in pieces(stream, cuts) for payload in splitter.feed(piece)]
    assert got == sent
    assert (splitter.offset, splitter.pending) == (len(stream), 0)
    splitter.close()


@given(payloads)
def test_byte_by_byte_is_the_same_as_at_once(sent: list[bytes]) -> None:
    stream = b"".join(map(frame, sent))
    slow, fast = FrameSplitter(), FrameSplitter()
    assert [p for b in stream for p in slow.feed(bytes([b]))] == list(fast.feed(stream)) == sent


@given(st.binary(max_size=64), st.lists(st.integers(0, 64), max_size=8), st.integers(-1, 40))
def test_any_bytes_give_frames_or_an_error_of_ours(data: bytes, cuts: list[int], limit: int) -> None:
    """And the same ones for every split."""

    def outcome(parts: list[bytes]) -> tuple[list[bytes], str]:
        splitter, got = FrameSplitter(limit), []
        try:
            for part in parts:
                got.extend(splitter.feed(part))
            splitter.close()
        except DecodeError as e:
            return got, str(e)
        return got, ""

    whole, split = outcome([data]), outcome(pieces(data, cuts))
    assert split[1] == whole[1]
    assert split[0] == whole[0] or "frame" in whole[1]


def test_an_empty_payload_is_a_frame() -> None:
    assert list(FrameSplitter().feed(bytes(8))) == [b"", b""]


@pytest.mark.parametrize(("length", "limit"), [(-1, -1), (-(2**31), -1), (11, 10), (DEFAULT_LIMIT + 1, DEFAULT_LIMIT)])
def test_a_length_that_cannot_be(length: int, limit: int) -> None:
    good = frame(b"good")
    splitter = FrameSplitter(limit)
    splitter.feed(good + length.to_bytes(4, "big", signed=True) + b"more")
    assert next(splitter) == b"good"
    for _ in range(2):  # the stream stays broken
        with pytest.raises(FrameTooLarge) as caught:
            next(splitter)
        assert caught.value.offset == len(good)
    with pytest.raises(FrameTooLarge):
        list(splitter.feed(good))


def test_the_limit_itself_is_allowed() -> None:
    assert list(FrameSplitter(4).feed(frame(b"four"))) == [b"four"]


def test_without_a_limit_a_length_alone_holds_nothing() -> None:
    splitter = FrameSplitter(-1)
    assert list(splitter.feed((2**31 - 1).to_bytes(4, "big") + b"x")) == []
    assert splitter.pending == 5


def test_an_end_inside_a_frame() -> None:
    splitter = FrameSplitter()
    list(splitter.feed(frame(b"whole") + b"\0\0"))
    assert (splitter.offset, splitter.pending) == (9, 2)
    with pytest.raises(Truncated) as caught:
        splitter.close()
    assert caught.value.offset == 9


def test_what_has_been_given_out_is_not_held() -> None:
    splitter = FrameSplitter()
    for _ in range(1000):
        assert list(splitter.feed(frame(bytes(10_000)))) == [bytes(10_000)]
        assert splitter.pending == 0
    assert len(splitter._held) == 0


def test_any_buffer_may_be_fed_and_framed() -> None:
    for make in (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        assert list(FrameSplitter().feed(make(frame(b"abc")))) == [b"abc"]
        assert frame(make(b"abc")) == b"\0\0\0\3abc"
