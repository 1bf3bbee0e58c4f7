"""Frames out of streams: cut up in any way, begun anywhere, broken in the middle."""

import struct
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import packets as make
import pytest
from conftest import DATA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproto.capture import GAP, WHOLE, CaptureSummary, Frame, exchanges, frames

anywhere = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: Path, packets: list[make.Packet], **options: object) -> tuple[list[Frame], CaptureSummary]:
    path.write_bytes(make.pcap(packets))
    summary = CaptureSummary()
    return list(frames(path, summary=summary, **options)), summary  # type: ignore[arg-type]


class Recorded(NamedTuple):
    """A real controller's connection to a broker."""

    requests: tuple[bytes, ...]
    responses: tuple[bytes, ...]


@cache
def recorded(name: str) -> Recorded:
    """Of a sample's longest control connection a stretch of 12 answered requests; its sized frames."""
    by_connection: dict[object, list[Frame]] = {}
    for frame in frames(DATA / "captures" / f"{name}.pcap.gz", apis=None):
        if frame.direction == "response" and frame.request and frame.request.api_key in (4, 5, 6):
            by_connection.setdefault(frame.connection, []).append(frame)
    longest = max(by_connection.values(), key=len)
    middle = longest[len(longest) // 2 - 6 :][:12]
    requests = tuple(make.sized(frame.request.payload) for frame in middle if frame.request)
    return Recorded(requests, tuple(make.sized(frame.payload) for frame in middle))


SMALL = ["ibp-0.8.2-a", "ibp-1.0-a", "ibp-2.4-IV0-a", "ibp-2.8-a", "ibp-3.9-migration-a"]
NAMES = [*SMALL, "ibp-3.9-big-a"]


def payloads(found: Iterable[Frame], direction: str = "request") -> Counter[bytes]:
    return Counter(make.sized(f.payload) for f in found if f.direction == direction and f.status == WHOLE)


# ---- any split -------------------------------------------------------------------------------------------------------


@anywhere
@given(name=st.sampled_from(SMALL), sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=8), opened=st.booleans())
def test_any_split_of_the_same_bytes_gives_the_same_frames(
    name: str, sizes: list[int], opened: bool, tmp_path: Path
) -> None:
    """Segments of any size, requests together in one segment; also without the handshake."""
    connection = recorded(name)
    stream = b"".join(connection.requests)
    talk = make.Talk()
    if opened:
        talk.open()
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        talk.ask(stream[at : at + size], size)
        at, turn = at + size, turn + 1
    talk.answer(b"".join(connection.responses), sizes[0])
    found, _ = read(tmp_path / "split.pcap", talk.packets)
    requests = [f for f in found if f.direction == "request"]
    assert [make.sized(f.payload) for f in requests] == list(connection.requests)
    expected, offset = [], 0
    for frame in connection.requests:
        expected.append(offset)
        offset += len(frame)
    assert [f.offset for f in requests] == expected
    if opened:
        answers = [f for f in found if f.direction == "response"]
        assert [make.sized(f.payload) for f in answers] == list(connection.responses)
        assert [f.request for f in answers] == requests


def test_times_of_a_frame_are_those_of_its_first_and_last_packet(tmp_path: Path) -> None:
    talk = make.Talk().open()
    first = make.request(6, 8, 0, bytes(3000))
    start = talk.now_ns
    talk.ask(first + make.request(6, 8, 1, bytes(10)))
    found, _ = read(tmp_path / "times.pcap", talk.packets)
    step = talk.step_ns
    assert [(f.time_ns - start, f.time_last_ns - start) for f in found] == [(0, 2 * step), (2 * step, 2 * step)]


# ---- any beginning ---------------------------------------------------------------------------------------------------


@anywhere
@given(name=st.sampled_from(SMALL), where=st.floats(0, 1), size=st.integers(1, 3000), answered=st.booleans())
def test_a_connection_begun_anywhere_gives_every_later_request(
    name: str, where: float, size: int, answered: bool, tmp_path: Path
) -> None:
    """Whatever the segments' sizes; what comes out is what was sent, each once, and all that began in the capture."""
    connection = recorded(name)
    start = int(where * sum(map(len, connection.requests)))
    talk = make.Talk()
    talk.sent += start
    offset, later = 0, []
    for request, response in zip(connection.requests, connection.responses, strict=True):
        piece = request[max(0, start - offset) :]
        if offset >= start:
            later.append(request)
        offset += len(request)
        talk.ask(piece, size)
        if piece and answered:
            talk.answer(response)
    found, _ = read(tmp_path / "begun.pcap", talk.packets)
    assert payloads(found) == Counter(later)
    if answered:
        joined = [f.request for f in found if f.direction == "response"]
        assert [f for f in found if f.direction == "request"] == joined


@anywhere
@given(name=st.sampled_from(NAMES), first=st.floats(0, 1), length=st.integers(1, 20_000), seed=st.integers(0, 9))
def test_a_stretch_lost_anywhere_costs_only_what_it_touches(
    name: str, first: float, length: int, seed: int, tmp_path: Path
) -> None:
    connection = recorded(name)
    total = sum(map(len, connection.requests))
    gap = range(int(first * total), int(first * total) + length)
    talk = make.Talk(client_isn=seed * 2**29 - 1000).open()
    offset, whole = 0, []
    for request, response in zip(connection.requests, connection.responses, strict=True):
        before = len(talk.packets)
        at = talk.sent
        talk.ask(request, 1460)
        lost = 0
        for n in range(0, len(request), 1460):
            piece = range(offset + n, offset + min(n + 1460, len(request)))
            if piece.start < gap.stop and gap.start < piece.stop:
                del talk.packets[before + n // 1460 - lost]
                lost += 1
        assert talk.sent == at + len(request)
        if not lost:
            whole.append(request)
        offset += len(request)
        talk.answer(response)
    found, _ = read(tmp_path / "lost.pcap", talk.packets)
    assert payloads(found) == Counter(whole)
    if whole:  # else there is nothing that tells what the responses are
        assert payloads(found, "response") == Counter(connection.responses)


@anywhere
@given(
    name=st.sampled_from(NAMES),
    noise=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=50)), min_size=1, max_size=5),
)
def test_bytes_overwritten_anywhere_do_no_harm(name: str, noise: list[tuple[float, bytes]], tmp_path: Path) -> None:
    """A capture whose payloads are damaged: no exception, and what lies apart from the damage is still found."""
    connection = recorded(name)
    stream = bytearray(b"".join(connection.requests))
    for where, data in noise:
        at = int(where * len(stream))
        stream[at : at + len(data)] = data[: len(stream) - at]
    talk = make.Talk().open()
    talk.ask(bytes(stream)).answer(b"".join(connection.responses)).close()
    path = tmp_path / "noise.pcap"
    path.write_bytes(make.pcap(talk.packets))
    for exchange in exchanges(path):
        exchange.to_json()


@anywhere
@given(turns=st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=200)), max_size=20), opened=st.booleans())
def test_any_bytes_at_all_do_no_harm(turns: list[tuple[bool, bytes]], opened: bool, tmp_path: Path) -> None:
    talk = make.Talk()
    if opened:
        talk.open()
    for asks, data in turns:
        (talk.ask if asks else talk.answer)(data)
    path = tmp_path / "noise.pcap"
    path.write_bytes(make.pcap(talk.packets))
    for exchange in exchanges(path, ports=[9092]):
        exchange.to_json()


# ---- never a wrong message -------------------------------------------------------------------------------------------


def test_a_request_within_another_is_not_taken_for_one(tmp_path: Path) -> None:
    """A Produce request carries recorded control requests as its data; its beginning is not in the capture."""
    inner = b"".join(recorded("ibp-3.9-big-a").requests[:5])
    outer = make.request(0, 9, 7, b"\xaa" * 900 + b"".join(b"\xff" + piece for piece in chunks(inner)) + b"\xaa" * 900)
    talk = make.Talk()
    talk.ask(outer[500:])
    for n in range(8, 12):
        talk.ask(make.request(0, 9, n, b"\xaa" * 300)).answer(make.response(0, 9, n, b"\0" * 20))
    found, summary = read(tmp_path / "inner.pcap", talk.packets)
    assert found == []
    assert summary.kafka_connections == 1
    assert summary.requests[0, 9] >= 3


def chunks(data: bytes) -> list[bytes]:
    """The frames of a stream."""
    out, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out.append(data[at : at + 4 + size])
        at += 4 + size
    return out


def test_a_name_of_another_client_is_not_believed_after_a_gap(tmp_path: Path) -> None:
    """On a connection whose client is known, a frame that names another one is somebody's data."""
    mine = make.request(6, 8, 0, make.UPDATE_METADATA_8, "1")
    foreign = make.request(6, 8, 1, make.UPDATE_METADATA_8, "2")
    later = make.request(6, 8, 2, make.UPDATE_METADATA_8, "1")
    talk = make.Talk().open().ask(mine)
    talk.sent += 5000
    talk.ask(foreign).ask(later)
    found, _ = read(tmp_path / "foreign.pcap", talk.packets)
    assert list(payloads(found)) == [mine, later]


# ---- too large, broken -----------------------------------------------------------------------------------------------


def test_a_frame_above_the_limit_costs_only_itself(tmp_path: Path) -> None:
    small = [make.request(6, 8, n, make.UPDATE_METADATA_8) for n in range(4)]
    large = make.request(6, 8, 9, bytes(50_000))
    talk = make.Talk().open().ask(small[0]).ask(large).ask(small[1]).ask(small[2]).ask(small[3])
    found, summary = read(tmp_path / "large.pcap", talk.packets, limit=10_000)
    assert list(payloads(found)) == small
    assert [bad.reason.partition(": ")[2] for bad in summary.bad_inputs] == [
        f"a request of {len(large) - 4} bytes, more than the limit of 10000"
    ]


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\x05hello",
        make.sized(b"\xfe" * 64),
        make.sized(struct.pack(">hhih", 6, 8, 1, 300) + b"short"),
        make.sized(struct.pack(">hhih", 6, 8, 1, 3) + b"\x01\x02\x03" + bytes(30)),
    ],
    ids=["size -1", "size 2 GiB", "size 0", "size 5", "garbage", "client id too long", "client id unreadable"],
)
def test_a_broken_frame_costs_only_itself(broken: bytes, tmp_path: Path) -> None:
    small = [make.request(6, 8, n, make.UPDATE_METADATA_8) for n in range(4)]
    talk = make.Talk().open().ask(small[0]).ask(broken)
    for frame in small[1:]:
        talk.ask(frame)
    found, summary = read(tmp_path / "broken.pcap", talk.packets)
    assert list(payloads(found)) == small
    assert summary.bad_input_count == 1


def test_a_frame_cut_off_by_the_end_is_a_gap(tmp_path: Path) -> None:
    request = make.request(6, 8, 0, bytes(3000))
    talk = make.Talk().open().ask(request[:1000])
    (frame,), _ = read(tmp_path / "end.pcap", talk.packets)
    assert (frame.status, frame.length, frame.payload) == (GAP, len(request) - 4, request[4:1000])
    assert frame.unmatched_reason == "the capture ends before a response"


def test_hostile_streams_take_linear_time(tmp_path: Path) -> None:
    """A client that never stops beginning plausible frames: the search looks at each of them once."""
    start = struct.pack(">ihhih", 30_000_000, 6, 8, 1, 1) + b"1\0"
    talk = make.Talk(step_ns=1000)
    for _ in range(300):
        talk.ask(start * 80, 1280)
    found, _ = read(tmp_path / "hostile.pcap", talk.packets, ports=[9092])
    assert found == []
