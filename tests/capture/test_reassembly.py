"""TCP streams: any order, repetition and overlap of segments gives the same bytes; nothing twice, nothing made up."""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import packets as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.capture import CaptureSummary, reassembly
from kproto.capture.fragments import Fragments
from kproto.capture.link import segment
from kproto.capture.reassembly import HELD_LIMIT, MOST_HELD, Reassembler, StreamEvent, TcpConnection

CLIENT, SERVER = ("10.0.0.1", 50000), ("10.0.0.2", 9092)
MS = 1_000_000


@dataclass
class Log:
    """What became known of a stream."""

    got: bytearray = field(default_factory=bytearray)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    ended: bool = False


class Bench:
    """A reassembler with a log of each stream."""

    def __init__(self, **limits: int) -> None:
        self.summary = CaptureSummary()
        self.connections: list[tuple[Log, Log]] = []
        self.reassembler = Reassembler(self.summary, **limits)
        self.now_ns = 0
        self._logs: dict[TcpConnection, tuple[Log, Log]] = {}

    def take(self, events: Sequence[StreamEvent]) -> None:
        for connection in [event[0].connection for event in events] + [
            stream.connection for stream in self.reassembler._streams.values()
        ]:
            if connection not in self._logs:
                self._logs[connection] = Log(), Log()
                self.connections.append(self._logs[connection])
        for stream, offset, buffer, begin, end, _time_ns in events:
            log = self._logs[stream.connection][stream.side]
            assert not log.ended
            if offset < 0:
                log.ended = True
                continue
            assert offset == len(log.got)
            if buffer is None:
                log.gaps.append((offset, end))
                log.got += b"?" * end
            else:
                assert begin < end
                log.got += buffer[begin:end]

    def put(self, ip: bytes, time_ns: int | None = None) -> None:
        self.now_ns = self.now_ns + 1000 if time_ns is None else time_ns
        found = segment(self.now_ns, make.RAW, ip, 0, len(ip), len(ip), Fragments(self.summary), self.summary)
        assert found is not None
        self.take(self.reassembler.segment(self.now_ns, found))

    def client(
        self, sequence: int, data: bytes = b"", flags: int = make.ACK, ack: int = 501, at: int | None = None
    ) -> None:
        self.put(make.tcp(CLIENT, SERVER, sequence, ack, flags, data), at)

    def server(
        self, sequence: int, data: bytes = b"", flags: int = make.ACK, ack: int = 1, at: int | None = None
    ) -> None:
        self.put(make.tcp(SERVER, CLIENT, sequence, ack, flags, data), at)

    def open(self, isn: int = 0) -> None:
        self.client(isn, flags=make.SYN)
        self.server(500, flags=make.SYN | make.ACK, ack=isn + 1)

    def end(self) -> None:
        self.take(self.reassembler.end(self.now_ns))


@pytest.fixture
def bench() -> Bench:
    """Whose connection is open."""
    made = Bench()
    made.open()
    return made


STREAM = bytes(range(256)) * 8


@given(
    isn=st.sampled_from([0, 77, 2**31 - 700, 2**32 - 1, 2**32 - 1000]),
    cuts=st.lists(st.integers(0, len(STREAM)), max_size=30),
    extra=st.lists(st.tuples(st.integers(0, len(STREAM)), st.integers(0, 400)), max_size=10),
    order=st.randoms(use_true_random=False),
)
def test_any_order_repetition_and_overlap_gives_the_same_stream(
    isn: int, cuts: list[int], extra: list[tuple[int, int]], order: Random
) -> None:
    """Sequence numbers that pass 2**31 and 2**32 within the stream too."""
    marks = sorted({0, len(STREAM), *cuts})
    pieces = list(itertools.pairwise(marks)) + [(at, min(at + n, len(STREAM))) for at, n in extra]
    order.shuffle(pieces)
    bench = Bench()
    bench.open(isn)
    for start, stop in pieces:
        bench.client(isn + 1 + start, STREAM[start:stop])
    (log, _), *others = bench.connections
    assert others == []
    assert (log.got, log.gaps) == (STREAM, [])
    bench.end()
    assert log.ended


@given(
    pieces=st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=30)), max_size=25),
)
def test_the_first_data_seen_for_a_place_wins(pieces: list[tuple[int, bytes]]) -> None:
    """Against a plain model: a list of bytes that are written once, of which the contiguous beginning is given out."""
    bench = Bench()
    bench.open()
    model: list[int | None] = [None] * 100
    for at, data in pieces:
        bench.client(1 + at, data)
        for i, byte in enumerate(data, at):
            if model[i] is None:
                model[i] = byte
        end = model.index(None)
        log = bench.connections[0][0]
        assert list(log.got) == model[:end]
    bench.end()
    last = max((i + 1 for i, byte in enumerate(model) if byte is not None), default=0)
    assert list(log.got) if pieces else [ord("?") if byte is None else byte for byte in model[:last]] == []


def test_a_hole_is_lost_when_the_other_side_has_acknowledged_it(bench: Bench) -> None:
    """Not at once: captures of several queues may show the acknowledgement first."""
    bench.client(1, b"aa")
    bench.client(5, b"cc")
    log = bench.connections[0][0]
    bench.server(501, ack=7)
    assert (log.got, log.gaps) == (b"aa", [])
    bench.server(501, ack=7, at=bench.now_ns + 25 * MS)
    assert (log.got, log.gaps) == (b"aa??cc", [(2, 2)])


def test_data_shortly_after_its_acknowledgement_is_not_lost(bench: Bench) -> None:
    bench.server(501, b"answer", ack=5)
    bench.client(1, b"aabb", at=bench.now_ns + 5 * MS)
    bench.server(507, ack=5, at=bench.now_ns + 50 * MS)
    log = bench.connections[0][0]
    assert (log.got, log.gaps) == (b"aabb", [])


def test_lost_data_is_found_by_the_acknowledgement_alone(bench: Bench) -> None:
    """Nothing comes after what was lost."""
    bench.client(1, b"aa")
    bench.server(501, ack=9)
    bench.server(501, ack=9, at=bench.now_ns + 25 * MS)
    assert bench.connections[0][0].gaps == [(2, 6)]


def test_a_fin_that_was_not_captured_is_no_loss(bench: Bench) -> None:
    bench.client(1, b"aa")
    bench.server(501, ack=4)
    bench.server(501, ack=4, at=bench.now_ns + 100 * MS)
    bench.end()
    assert bench.connections[0][0].gaps == []


def test_what_waits_behind_a_hole_is_bounded(bench: Bench) -> None:
    held = 0
    block = bytes(60_000)
    while not bench.connections[0][0].gaps:
        bench.client(2 + held, block)
        held += len(block)
        assert held < HELD_LIMIT + 200_000
    assert held > HELD_LIMIT - 200_000
    assert len(bench.connections[0][0].got) == held + 1


def test_tiny_pieces_count_for_more_than_their_bytes(bench: Bench) -> None:
    n = 0
    while not bench.connections[0][0].gaps:
        bench.client(2 + 2 * n, b"x")
        n += 1
        assert n < HELD_LIMIT // 100


def test_ports_used_again_make_another_connection() -> None:
    bench = Bench()
    for isn in (0, 9_000, 100):
        bench.open(isn)
        bench.client(isn + 1, b"hello")
        bench.client(isn + 1, b"hello")
    assert [log.got for log, _ in bench.connections] == [b"hello"] * 3
    assert [log.ended for log, _ in bench.connections] == [True, True, False]


def test_ports_used_again_a_second_later_make_another_connection_even_if_it_begins_with_the_same_number() -> None:
    """As where each connection of a recording begins with 0: the second one was taken for a copy of the first."""
    bench = Bench()
    for begin_ns in (0, 2_000 * MS):
        bench.now_ns = begin_ns
        bench.open()
        bench.client(1, b"hello")
        bench.client(6, flags=make.FIN | make.ACK)
        bench.server(501, flags=make.FIN | make.ACK, ack=7)
        bench.client(0, flags=make.SYN)  # a copy
    assert [(log.got, log.ended) for log, _ in bench.connections] == [(b"hello", True)] * 2


def test_the_same_opening_twice_is_one_connection(bench: Bench) -> None:
    bench.open()
    bench.client(1, b"hello")
    bench.client(0, flags=make.SYN)
    bench.server(500, flags=make.SYN | make.ACK)
    bench.client(6, b" again")
    assert [log.got for log, _ in bench.connections] == [b"hello again"]


def test_late_copies_after_the_end_make_no_new_connection() -> None:
    for last in (make.RST, make.FIN):
        bench = Bench()
        bench.open()
        bench.client(1, b"hello")
        bench.client(6, flags=last | make.ACK)
        bench.server(501, flags=make.FIN | make.ACK, ack=7)
        bench.client(1, b"hello")
        bench.client(7)
        assert len(bench.connections) == 1
        log = bench.connections[0][0]
        assert (log.got, log.ended) == (b"hello", True)


def test_without_its_opening_a_connection_begins_with_the_first_data() -> None:
    """Acknowledgements alone open nothing; what the server sends begins where the client had acknowledged."""
    bench = Bench()
    bench.client(100, ack=900)
    assert bench.connections == []
    bench.client(100, b"ask", ack=900)
    bench.server(905, b"answer", ack=103)
    bench.end()
    client, server = bench.connections[0]
    assert (client.got, client.gaps) == (b"ask", [])
    assert (server.got, server.gaps) == (b"?????answer", [(0, 5)])


def test_an_answer_to_an_opening_that_is_missing_opens() -> None:
    bench = Bench()
    bench.server(500, flags=make.SYN | make.ACK, ack=1)
    bench.client(1, b"ask")
    bench.server(501, b"answer", ack=4)
    server, client = bench.connections[0]
    assert (client.got, server.got) == (b"ask", b"answer")


def test_data_in_the_opening_segment() -> None:
    bench = Bench()
    bench.client(0, b"fast", flags=make.SYN)
    bench.server(500, flags=make.SYN | make.ACK, ack=5)
    bench.client(5, b" open")
    assert bench.connections[0][0].got == b"fast open"


def test_a_stray_segment_far_away_changes_nothing(bench: Bench) -> None:
    bench.client(1, b"aa")
    bench.client(3 + 2**30, b"stray")
    bench.client(3, b"bb")
    bench.end()
    assert bench.connections[0][0].got == b"aabb"


def test_two_in_a_row_far_ahead_are_a_large_loss(bench: Bench) -> None:
    bench.client(1, b"aa")
    for at in range(3):
        bench.client(3 + (65 << 20) + 2 * at, b"bb")
    assert len(bench.connections) == 1
    log = bench.connections[0][0]
    assert log.gaps == [(2, 65 << 20)]
    assert log.got.endswith(b"?bbbbbb")


def test_two_in_a_row_far_behind_are_another_connection() -> None:
    """Its opening is not in the capture."""
    bench = Bench()
    bench.open(2**31 - 10)
    bench.client(2**31 - 9, b"aa")
    bench.client(77, b"bb")
    bench.client(79, b"cc")
    assert [log.got for log, _ in bench.connections] == [b"aa", b"bbcc"]


def test_of_an_ignored_connection_nothing_is_given_or_held(bench: Bench) -> None:
    bench.client(1, b"a")
    (connection,) = {stream.connection for stream in bench.reassembler._streams.values()}
    bench.reassembler.ignore(connection)
    bench.client(2, b"xxxxxx")
    bench.client(9, b"yy")
    bench.server(501, ack=20)
    assert not any(stream.has_hole and stream.held_bytes for stream in connection.streams)
    bench.end()
    assert bench.connections[0][0].got.rstrip(b"?") == b"a"


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 63), st.binary(max_size=20)), max_size=60
    )
)
def test_any_segments_at_all_do_no_harm(segments: list[tuple[bool, int, int, bytes]]) -> None:
    """Random flags and numbers, many close together: the logs check that offsets never jump or repeat."""
    bench = Bench()
    bench.open()
    for from_client, sequence, flags, data in segments:
        near = sequence % 300 if sequence % 3 else sequence
        put = bench.client if from_client else bench.server
        put(near, data, flags, ack=(near * 7) % 400)
    bench.end()
    assert all(log.ended for pair in bench.connections for log in pair)


def test_many_finished_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "_LINGERING", 600)
    bench = Bench()
    for port in range(2000):
        bench.put(make.tcp(("10.0.0.1", 1000 + port), SERVER, 0, 0, make.SYN))
        bench.put(make.tcp(("10.0.0.1", 1000 + port), SERVER, 1, 0, make.RST))
    assert len(bench.reassembler._streams) <= 2 * 601


def test_the_newest_connection_is_never_the_silent_one_that_is_forgotten() -> None:
    """Its packet may have an older time than all others: of two captures merged, or of a clock that was set back."""
    bench = Bench(most_connections=15)
    for port in range(15):
        bench.put(make.tcp(("10.0.0.1", 1000 + port), SERVER, 0, 0, make.SYN), (100 + port) * MS)
    bench.put(make.tcp(("10.0.0.1", 1015), SERVER, 0, 0, make.SYN), 1 * MS)
    followed = {stream.connection.flow for stream in bench.reassembler._streams.values()}
    assert bench.summary.given_up["connections"] == 1
    assert len(followed) == 15
    ports = {int.from_bytes(flow[-4:-2]) for flow in followed}
    assert ports == set(range(1001, 1016))


def test_openings_that_nobody_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "_LINGERING", 600)
    bench = Bench()
    for port in range(2000):
        bench.put(make.tcp(("10.0.0.1", 1000 + port), SERVER, 0, 0, make.SYN))
    assert len(bench.reassembler._streams) <= 2 * 601


def test_an_opening_without_answer_but_with_data_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the client's side is captured."""
    monkeypatch.setattr(reassembly, "_LINGERING", 1)
    bench = Bench()
    bench.client(0, flags=make.SYN)
    bench.client(1, b"one")
    for port in range(3):
        bench.put(make.tcp(("10.0.0.1", 1 + port), SERVER, 0, 0, make.SYN))
    bench.client(4, b" side", at=100_000 * MS)
    assert bench.connections[0][0].got == b"one side"


def test_an_opening_is_answered_within_a_minute_or_in_vain() -> None:
    """Whatever other connections do meanwhile: its own segments alone tell."""
    for late_ms, connections in ((59_000, 1), (61_000, 2)):
        for busy in (False, True):
            bench = Bench()
            bench.client(0, flags=make.SYN, at=0)
            for port in range(100 if busy else 0):
                bench.put(make.tcp(("10.0.0.1", 1 + port), SERVER, 0, 0, make.SYN), 70_000 * MS)
            before = len(bench.connections)
            bench.client(1, b"data", at=late_ms * MS)
            assert len(bench.connections) - before == connections - 1 + (not before)
            assert bench.connections[0 if connections == 1 else -1][0].got == b"data"


def test_a_hole_is_given_up_by_its_own_connections_time_alone() -> None:
    """A late segment fills it however far other connections' packets have come; one behind the deadline does not."""
    for late_ms, gaps in ((15, []), (25, [(0, 5)])):
        for busy in (False, True):
            bench = Bench()
            bench.open()
            bench.server(506, b" world", ack=1, at=1 * MS)
            bench.client(1, ack=506, at=2 * MS)
            if busy:
                bench.put(make.tcp(("10.0.0.1", 7), SERVER, 0, 0, make.SYN), 90_000 * MS)
            bench.server(501, b"hello", at=late_ms * MS)
            assert bench.connections[0][1].gaps == gaps


def test_options_in_the_tcp_header(bench: Bench) -> None:
    bench.put(make.tcp(CLIENT, SERVER, 1, 501, make.ACK, b"data", options=struct.pack(">BBBBII", 1, 1, 8, 10, 1, 2)))
    assert bench.connections[0][0].got == b"data"


def test_what_waits_behind_holes_is_held_to_the_limit_in_all_connections_together() -> None:
    limit = 1 << 20
    bench = Bench(most_held=limit)
    largest = 0
    for port in range(200):
        client = "10.0.0.1", 40000 + port
        bench.put(make.tcp(client, SERVER, 0, 0, make.SYN))
        bench.put(make.tcp(SERVER, client, 500, 1, make.SYN | make.ACK))
        for number in range(1, 9):  # the first segment of each connection is missing
            bench.put(make.tcp(client, SERVER, 1 + 1000 * number, 501, make.ACK, bytes(1000)))
            held = sum(stream.held_bytes for stream in bench.reassembler._streams.values())
            assert held == bench.reassembler._held
            assert held <= limit
            largest = max(largest, held)
    assert (largest > limit - 10_000, bench.summary.given_up["holes"] > 0, MOST_HELD) == (True, True, 64 << 20)


def test_a_segment_is_stray_beyond_64_mib_from_the_next_byte() -> None:
    for ahead, held in ((64 << 20, True), ((64 << 20) + 1, False)):
        bench = Bench()
        bench.open()
        bench.client(1 + ahead, b"data")
        assert any(stream.held_bytes for stream in bench.reassembler._streams.values()) is held


def test_beginnings_of_connections_are_kept_up_to_64_mib_in_all_together() -> None:
    bench = Bench()
    bench.reassembler.keeps_beginnings = True
    size, kept = 32_000, 0
    for number in range(70):  # connections older than the capture, each with 32 segments: a MiB and a little
        client = "10.0.0.1", 40_000 + number
        for at in range(32):
            bench.put(make.tcp(client, SERVER, 1 + at * size, 501, make.ACK, bytes(size)))
        beginning = bench.reassembler.stream(next(reversed(bench.reassembler._streams))).connection.beginning
        kept += 0 if beginning is None else sum(len(each.buffer) for _, each in beginning)
    assert (63 << 20) < kept <= (64 << 20)
