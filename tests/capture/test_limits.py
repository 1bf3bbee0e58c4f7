"""Work grows with the bytes alone, and what is held is bounded, whatever the input: counted, never timed."""

import gc
import json
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType

import packets as make
import pytest
from plain_sources import from_sources

from kproto.capture import CaptureReader, CaptureSummary, Exchange, Frame, frames
from kproto.capture.collector import Collector
from kproto.capture.cutter import MOST_PENDING, Matcher, PendingRequest
from kproto.capture.log_reader import LONGEST_LINE, LogReader
from kproto.capture.pcapng import PcapngReader
from kproto.capture.reassembly import Reassembler
from kproto.capture.resync import RequestSearch
from kproto.capture.wanted import WantedApis

UPDATE = make.UPDATE_METADATA_8
PIECE = 1 << 16


def work(run: Callable[[], object]) -> int:
    """How much Python a call runs: lines of kproto's files, each time they are run."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        if not any(room in frame.f_code.co_filename for room in ("/kproto/capture/", "/kproto/logs/")):
            return None
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def pieces(data: bytes, size: int = PIECE) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


(WRAPPERS,) = from_sources("kproto.logs", "wrappers")
COLLECTOR, PCAP, LOGS = from_sources("kproto.capture", "collector", "pcap", "log_reader")
LOGS.Lines, LOGS.Unwrapper = WRAPPERS.Lines, WRAPPERS.Unwrapper
"""Modules that are compiled too, as Python: no line of a compiled module can be counted."""


def read_pcap(data: bytes) -> int:
    reader = PCAP.PcapReader(CaptureSummary())
    found = sum(len(reader.feed(piece)) for piece in pieces(data))
    return found + len(reader.end())


def read_pcapng(data: bytes) -> int:
    reader = PcapngReader(CaptureSummary())
    found = sum(len(reader.feed(piece)) for piece in pieces(data))
    return found + len(reader.end())


def pcap_with(snaplen: int, rest: bytes) -> bytes:
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snaplen, 1) + rest


BROKEN_RECORD = struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0)
NEAR_MISS = struct.pack("<IIII", 0, 0, 1000, 2000)


def holes(n: int) -> list[make.Packet]:
    """As many connections, each with a hole that nothing fills."""
    packets = []
    for number in range(n):
        talk = make.Talk(client=(f"10.1.{number // 250}.{number % 250}", 5000), now_ns=make.START_NS + number * 10**7)
        talk.open()
        talk.sent += 10
        packets += talk.ask(b"x" * 20).packets
    return sorted(packets)


def one_with_holes(n: int) -> list[make.Packet]:
    """One connection, every second segment of which is missing."""
    talk = make.Talk().open()
    for _ in range(n):
        talk.sent += 10
        talk.ask(b"x" * 20)
    return talk.packets


def pipelined(n: int) -> list[make.Packet]:
    """Requests with one id, of which only the last is answered again and again."""
    talk = make.Talk().open()
    for _ in range(n):
        talk.ask(make.request(3, 9, 7, b"\0" * 9))
    for _ in range(n):
        talk.answer(make.response(3, 9, 8, b"\0" * 9))
    return talk.packets


def beginnings(n: int) -> list[make.Packet]:
    """A client that never stops beginning plausible frames which end only much later."""
    talk = make.Talk(step_ns=1000)
    start = struct.pack(">ihhih", 40_000, 6, 8, 1, 1) + b"1\0"
    for _ in range(n):
        talk.ask(start * 80, 1280)
    return talk.packets


def alternating(n: int) -> list[make.Packet]:
    """Good requests with rubbish between them."""
    talk = make.Talk().open()
    good = make.request(6, 8, 0, UPDATE)
    for _ in range(n):
        talk.ask((good + b"\xff" * 5) * 20)
    return talk.packets


def collect(packets: list[make.Packet]) -> None:
    collector = COLLECTOR.Collector(CaptureSummary(), capture="", ports=None, apis=None, limit=1 << 20)
    for time_ns, data, on_wire in packets:
        collector.packets([(time_ns, make.ETHERNET, data, 0, len(data), on_wire)])
    collector.end()


def log_of(line: bytes) -> None:
    reader = LOGS.LogReader(CaptureSummary(), capture="", apis=None)
    for piece in pieces(line, 4096):
        reader.feed(piece)
    reader.end()


def logged(connection: str) -> bytes:
    entry = {
        "requestHeader": {"requestApiKey": 6, "requestApiVersion": 8, "correlationId": 1},
        "connection": connection,
    }
    return b"[2026-11-21 06:35:57,700] DEBUG Completed request:" + json.dumps(entry).encode() + b"\n"


CASES: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
    "zeros after a damaged pcap record": (
        lambda n: pcap_with((1 << 26) - 1, BROKEN_RECORD + bytes(n << 16)),
        lambda data: read_pcap(data),  # type: ignore[arg-type]
    ),
    "records that nearly chain": (
        lambda n: pcap_with((1 << 26) - 1, BROKEN_RECORD + NEAR_MISS * (n << 8)),
        lambda data: read_pcap(data),  # type: ignore[arg-type]
    ),
    "damaged pcapng": (
        lambda n: make.section() + b"\x06\0\0\0\xff\xff\xff\xff" + b"\x0a\x0d\x0d\x0a" * (n << 10),
        lambda data: read_pcapng(data),  # type: ignore[arg-type]
    ),
    "holes on many connections": (holes, lambda packets: collect(packets)),  # type: ignore[arg-type]
    "holes on one connection": (one_with_holes, lambda packets: collect(packets)),  # type: ignore[arg-type]
    "pipelined requests with one id": (pipelined, lambda packets: collect(packets)),  # type: ignore[arg-type]
    "beginnings of frames": (beginnings, lambda packets: collect(packets)),  # type: ignore[arg-type]
    "good requests and rubbish": (alternating, lambda packets: collect(packets)),  # type: ignore[arg-type]
    "a long line of a log": (
        lambda n: b"[2026-11-21 06:35:57,700] Completed request:" + b"x" * (n << 12),
        lambda data: log_of(data),  # type: ignore[arg-type]
    ),
    "many lines of a log": (
        lambda n: logged("1:1-" * 60) * n,
        lambda data: log_of(data),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_twice_the_input_is_twice_the_work(case: str) -> None:
    make_input, run = CASES[case]
    small, large = make_input(16), make_input(32)
    run(make_input(2))  # what is done once, like compiling a pattern, is done
    once, twice = work(lambda: run(small)), work(lambda: run(large))  # type: ignore[arg-type]
    print(f"{case}: {once:,} lines, {twice:,} for twice the input")
    assert once > 50
    assert twice < 2.3 * once


def test_the_search_decodes_a_bounded_multiple_of_what_it_sees() -> None:
    """Candidates within candidates: each decoded whole would take the square of the stream's length."""
    search = RequestSearch(WantedApis([6]), 1 << 26)
    nested = b""
    for _ in range(4000):
        nested = struct.pack(">ihhih", 24 + len(nested), 6, 8, 1, 1) + b"1\0" + nested[-60_000:]
    for at in range(0, 1 << 20, len(nested)):
        search.feed(at, nested, 0)
    assert search.decoded <= 32 * search.seen + (1 << 20)


def test_a_connections_name_is_refused_by_its_length() -> None:
    summary = CaptureSummary()
    reader = LogReader(summary, capture="", apis=None)
    reader.feed(logged("1:1-" * 16_000))
    reader.end()
    assert [bad.reason[:20] for bad in summary.bad_inputs] == ["a connection named '"]


def test_a_reason_is_short_however_long_the_value_is_that_it_names() -> None:
    summary = CaptureSummary()
    reader = LogReader(summary, capture="", apis=None)
    topic = {"topicName": "t", "topicId": "x" * 9000, "partitionStates": []}
    body = {"controllerId": 1, "controllerEpoch": 1, "brokerEpoch": 1, "type": 0, "topicStates": [topic]}
    request = json.dumps({**body, "liveLeaders": []}).encode()
    line = logged("10.0.0.1:9092-10.0.0.2:4000").replace(b'"requestApiKey": 6', b'"requestApiKey": 4')
    line = line.replace(b'"requestApiVersion": 8', b'"requestApiVersion": 5')
    reader.feed(line.replace(b'"connection"', b'"request": ' + request + b', "connection"'))
    reader.end()
    (bad,) = summary.bad_inputs
    assert bad.reason.startswith("a logged message that cannot be written: ")
    assert len(bad.reason) < 400


# ---- memory ----------------------------------------------------------------------------------------------------------


def peak(run: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def answered(n: int, size: int) -> Iterator[tuple[int, bytes, int]]:
    """A connection with this number of answered requests, packet by packet."""
    talk = make.Talk().open()
    body = UPDATE + bytes(size)
    for number in range(n):
        talk.ask(make.request(6, 8, number, body), 60_000).answer(make.response(6, 8, number, b"\0\0\0"))
        for time_ns, data, _ in talk.packets:
            yield time_ns, data, make.ETHERNET
        talk.packets.clear()


def test_answered_requests_are_not_kept() -> None:
    count = 0

    def read() -> None:
        nonlocal count
        for _ in frames(answered(600, 8000)):
            count += 1

    assert peak(read) < 2 << 20  # 5 MB of requests
    assert count == 1200


def test_connections_are_bounded_and_those_given_up_counted() -> None:
    summary = CaptureSummary()
    reassembler = Reassembler(summary, most_connections=100)
    collector = Collector(summary, capture="", ports=None, apis=[6], limit=1 << 20)
    collector._reassembler = reassembler
    for n in range(1000):
        talk = make.Talk(client=("10.0.0.1", 1000 + n), now_ns=make.START_NS + n * 1000).open()
        for time_ns, data, on_wire in talk.packets[:2]:
            collector.packets([(time_ns, make.ETHERNET, data, 0, len(data), on_wire)])
        assert len(reassembler._streams) <= 200
        assert summary.given_up["connections"] >= n - 100


def test_a_connection_that_is_given_up_goes_on_with_its_next_segment() -> None:
    summary = CaptureSummary()
    reassembler = Reassembler(summary, most_connections=8)
    collector = Collector(summary, capture="", ports=None, apis=[6], limit=1 << 20)
    collector._reassembler = reassembler
    talk = make.Talk().open()
    others = [make.Talk(client=("10.0.0.9", n), now_ns=make.START_NS + n * 10**6).open() for n in range(1, 40)]
    later = make.Talk(now_ns=make.START_NS + 10**9)
    later.sent, later.answered = talk.sent, talk.answered
    for n in range(3):
        later.ask(make.request(6, 8, n, UPDATE)).answer(make.response(6, 8, n, b"\0\0\0"))
    found: list[Frame | Exchange] = []
    for time_ns, data, on_wire in [*talk.packets, *(p for other in others for p in other.packets), *later.packets]:
        found += collector.packets([(time_ns, make.ETHERNET, data, 0, len(data), on_wire)])
    found += collector.end()
    assert summary.given_up["connections"] > 20
    assert [e.correlation_id for e in found if isinstance(e, Exchange) and e.response] == [0, 1, 2]


def test_what_waits_is_bounded_for_all_connections_together() -> None:
    """Requests of which all but the end has come, and requests that nobody answers; the oldest are given up first."""
    summary = CaptureSummary()
    collector = Collector(summary, capture="", ports=None, apis=[6], limit=1 << 20, most_held=1 << 20)
    found: list[Frame | Exchange] = []
    for n in range(200):
        talk = make.Talk(client=("10.0.0.1", 1000 + n), now_ns=make.START_NS + n * 10**6).open()
        talk.ask(make.request(6, 8, n, UPDATE + bytes(20_000))).ask(make.request(6, 8, n, UPDATE + bytes(20_000))[:-1])
        for time_ns, data, on_wire in talk.packets:
            found += collector.packets([(time_ns, make.ETHERNET, data, 0, len(data), on_wire)])
        assert collector._held <= 1 << 20
    given_up = [e for e in found if isinstance(e, Exchange)]
    assert summary.given_up["requests"] > 100
    assert summary.given_up["frames"] > 100
    assert given_up[0].correlation_id == 0
    assert given_up[0].unmatched_reason == "too much was waiting for its response: kproto gave it up"
    found += collector.end()
    assert sum(isinstance(e, Frame) for e in found) == 400


def test_pending_requests_are_bounded_and_indexed() -> None:
    matcher = Matcher()
    assert [matcher.add(PendingRequest(n % 3, 6, 8)) for n in range(MOST_PENDING)] == [None] * MOST_PENDING
    oldest = matcher.add(PendingRequest(0, 6, 8))
    assert oldest is not None
    assert not oldest.pending
    found = matcher.find(1)
    assert found is not None
    assert matcher.answer(found) == []
    matcher.responses_lost()
    newest = matcher.find(2)
    assert newest is not None
    assert len(matcher.answer(newest)) > MOST_PENDING - 10
    assert matcher.held_bytes == 250 * len(matcher.end()) or matcher.held_bytes == 0


# ---- damage in one place costs that place ----------------------------------------------------------------------------


def test_a_line_that_is_too_long_is_told_and_the_next_one_read() -> None:
    summary = CaptureSummary()
    reader = LogReader(summary, capture="", apis=None)
    reader.file = summary.file = "kafka-request.log"
    long = b"[2026-11-21 06:35:57,700] Completed request:" + b"x" * (LONGEST_LINE + 5) + b"\n"
    after = logged("nonsense")
    data = list(pieces(long + after))
    assert peak(lambda: [reader.feed(piece) for piece in data]) < 2 * LONGEST_LINE + (1 << 20)
    reader.end()
    assert [(bad.offset, bad.bytes_skipped) for bad in summary.bad_inputs] == [
        (0, len(long)),
        (len(long), len(after)),
    ]
    assert summary.bad_inputs[0].reason == "a line of more than 16 MiB"


def test_what_follows_a_line_that_is_too_long_is_read_though_it_comes_with_its_end() -> None:
    summary = CaptureSummary()
    reader = LogReader(summary, capture="", apis=None)
    long, after = b"x" * (LONGEST_LINE + 1), logged("nonsense")
    reader.feed(long)
    reader.feed(b"x\n" + after)
    reader.end()
    assert [(bad.offset, bad.bytes_skipped) for bad in summary.bad_inputs] == [
        (0, len(long) + 2),
        (len(long) + 2, len(after)),
    ]
    reader.feed(long)
    reader.end()
    assert [bad.bytes_skipped for bad in summary.bad_inputs][2:] == [len(long)]


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"correlationId": 1', b'"correlationId": ' + b"9" * 5000),
        lambda line: line.replace(b'"requestApiKey": 6', b'"requestApiKey": ' + b"9" * 5000),
        lambda line: line.replace(b'"requestApiKey": 6', b'"requestApiKey": 40000'),
        lambda line: line.replace(b'"requestApiVersion": 8', b'"requestApiVersion": 70000'),
        lambda line: line.replace(b'"correlationId": 1', b'"correlationId": ' + b"[" * 100_000 + b"]" * 100_000),
        lambda line: line.replace(b"2026-11-21", b"9999-11-21"),
        lambda line: line.replace(b"2026-11-21", b"0000-11-21"),
        lambda line: line.replace(b"2026-11-21", b"1969-11-21"),
        lambda line: line.replace(b":9092-", b":99999999999-"),
        lambda line: line.replace(b":9092-", b":70000-"),
        lambda line: line.replace(b'"totalTimeMs": 1', b'"totalTimeMs": 1e300'),
        lambda line: line.replace(b'"totalTimeMs": 1', b'"totalTimeMs": NaN'),
    ],
    ids=[
        "long number",
        "long api key",
        "api key",
        "version",
        "nesting",
        "year 9999",
        "year 0",
        "year 1969",
        "long port",
        "port",
        "total time",
        "no number",
    ],
)
def test_a_value_beyond_its_type_is_a_bad_input(change: Callable[[bytes], bytes]) -> None:
    entry = {
        "requestHeader": {"requestApiKey": 6, "requestApiVersion": 8, "correlationId": 1, "clientId": "1"},
        "connection": "10.0.0.1:9092-10.0.0.2:50000-0",
        "totalTimeMs": 1,
        "request": {"controllerId": 1, "controllerEpoch": 2, "brokerEpoch": 3, "topicStates": [], "liveBrokers": []},
        "response": {"errorCode": 0},
    }
    entry["request"] |= {"isKRaftController": False, "type": 0}  # type: ignore[operator]
    good = b"[2026-11-21 06:35:57,700] DEBUG Completed request:" + json.dumps(entry).encode() + b"\n"
    changed = change(good)
    assert changed != good
    summary = CaptureSummary()
    reader = CaptureReader(summary=summary)
    found = [*reader.feed(good + changed + good), *reader.end()]
    assert [type(event) for event in found] == [Frame, Exchange, Frame, Exchange]
    assert [(bad.offset, bad.bytes_skipped) for bad in summary.bad_inputs] == [(len(good), len(changed))]


def test_a_time_beyond_its_type_is_a_bad_input_in_pcapng() -> None:
    packets = make.Talk().open().ask(make.request(6, 8, 0, UPDATE)).packets
    odd = make.block(6, struct.pack("<IIIII", 0, 0xFFFFFFFF, 0xFFFFFFFF, 4, 4) + b"\0" * 4)
    head = make.section() + make.interface()
    data = head + make.enhanced(packets[0]) + odd + b"".join(map(make.enhanced, packets[1:]))
    summary = CaptureSummary()
    assert len(list(frames(data, summary=summary))) == 1
    assert [(bad.offset, bad.bytes_skipped) for bad in summary.bad_inputs] == [
        (len(head) + len(make.enhanced(packets[0])), len(odd))
    ]


def test_a_flood_of_openings_leaves_few_to_be_looked_for_in_the_next_file() -> None:
    reader = CaptureReader()
    openings = [make.tcp(("10.0.0.1", port), ("10.0.0.2", 9092), 1, 0, make.SYN) for port in range(1024, 9216)]
    reader.feed(make.pcap([make.Packet(make.START_NS, each, len(each)) for each in openings], make.RAW))
    assert len(reader.connections.endings()) == 1024
