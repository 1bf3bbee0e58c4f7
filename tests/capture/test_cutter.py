"""One direction's bytes cut into frames, without packets, connections or files around them."""

import itertools
import struct
from collections.abc import Collection, Iterable
from uuid import UUID

import control_messages as control
import packets as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto import codec
from kproto.capture import GAP, WHOLE, Connection, Endpoint, Frame
from kproto.capture.cutter import (
    FOREVER,
    AuthenticationToken,
    BadFrame,
    Gap,
    Matcher,
    OtherProtocol,
    PendingRequest,
    RequestCutter,
    RequestInStream,
    ResponseCutter,
    ResponseInStream,
    ResponsesLost,
    StreamItem,
)
from kproto.capture.wanted import WantedApis
from kproto.messages import LeaderAndIsrPartitionError, LeaderAndIsrTopicError

CONTROL = WantedApis((4, 5, 6))
LIMIT = 10_000
UPDATE_METADATA = make.UPDATE_METADATA_8

REQUESTS = [
    make.request(6, 8, 1, UPDATE_METADATA),
    make.request(1, 17, 2, bytes(90)),  # a Fetch, which is not wanted
    make.request(6, 8, 3, UPDATE_METADATA),
    make.request(6, 8, 4, UPDATE_METADATA),
]
STREAM = b"".join(REQUESTS)
STARTS = [0, *itertools.accumulate(map(len, REQUESTS))]


def requests(aligned: bool = True) -> RequestCutter:
    return RequestCutter(CONTROL, LIMIT, aligned=aligned)


def fed(cutter: RequestCutter, pieces: Iterable[bytes], offset: int = 0) -> list[StreamItem]:
    """Feed a stream piece by piece, one nanosecond apart."""
    found: list[StreamItem] = []
    for time_ns, piece in enumerate(pieces):
        found += make.cuts(cutter, offset, piece, 0, len(piece), time_ns)
        offset += len(piece)
    return found


def cut_at(data: bytes, *places: int) -> list[bytes]:
    return [data[start:stop] for start, stop in itertools.pairwise((0, *places, len(data)))]


def told(found: Iterable[StreamItem]) -> list[tuple[int, int, int, bytes | None]]:
    """Of requests: correlation id, stream offset, status, payload."""
    out = []
    for cut in found:
        assert isinstance(cut, RequestInStream), cut
        out.append((cut.header.correlation_id, cut.offset, cut.status, cut.payload))
    return out


WHOLE_STREAM = [(n + 1, STARTS[n], WHOLE, None if n == 1 else REQUESTS[n][4:]) for n in range(4)]


# ---- requests: any split ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [True, False])
def test_bytes_split_at_every_place_give_the_same_frames(aligned: bool) -> None:
    for place in range(1, len(STREAM)):
        cutter = requests(aligned)
        assert told(fed(cutter, cut_at(STREAM, place))) == WHOLE_STREAM
        assert (cutter.searching, cutter.held_bytes, cutter.searched_bytes) == (False, 0, 0)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pieces_of_any_size_give_the_same_frames(size: int, aligned: bool) -> None:
    assert told(fed(requests(aligned), cut_at(STREAM, *range(size, len(STREAM), size)))) == WHOLE_STREAM


def test_a_frame_has_the_times_of_its_first_and_last_piece() -> None:
    places = (STARTS[2] + 3, STARTS[2] + 20, STARTS[2] + 30)
    times = [
        (cut.first_ns, cut.last_ns) for cut in fed(requests(), cut_at(STREAM, *places)) if type(cut) is RequestInStream
    ]
    assert times == [(0, 0), (0, 0), (0, 3), (3, 3)]


def test_bytes_that_need_not_be_given_may_be_left_out() -> None:
    """Of a frame that is not wanted the header is enough."""
    cutter = requests()
    found = list(make.cuts(cutter, 0, STREAM, 0, STARTS[1] + 30, 0))
    assert cutter.skip_to == STARTS[2]
    assert cutter.held_bytes == 0
    found += make.cuts(cutter, STARTS[2], STREAM, STARTS[2], len(STREAM), 0)
    assert told(found) == WHOLE_STREAM


def test_bytes_before_a_place_that_is_known_are_passed_over() -> None:
    cutter = requests()
    found = list(make.cuts(cutter, 0, STREAM, 0, STARTS[2], 0))
    found += make.cuts(cutter, STARTS[1], STREAM, STARTS[1], STARTS[2], 0)
    found += make.cuts(cutter, STARTS[1], STREAM, STARTS[1], len(STREAM), 0)
    assert told(found) == WHOLE_STREAM


# ---- requests: gaps --------------------------------------------------------------------------------------------------


def test_a_gap_within_a_frame_costs_that_frame() -> None:
    """Its size is known, so the next boundary is."""
    for begin in range(STARTS[2] + 16, STARTS[3]):
        cutter = requests()
        found = fed(cutter, [STREAM[:begin]])
        found += cutter.lost(begin, STARTS[3] - begin)
        assert not cutter.searching
        found += fed(cutter, [STREAM[STARTS[3] :]], STARTS[3])
        gap = found.pop(3)
        assert gap == Gap(STARTS[3] - begin)
        broken = 3, STARTS[2], GAP, STREAM[STARTS[2] + 4 : begin]
        assert told(found) == [*WHOLE_STREAM[:2], broken, WHOLE_STREAM[3]]


def test_a_gap_over_a_boundary_resynchronises_at_the_next_frame() -> None:
    for end in range(STARTS[2] + 1, STARTS[3] + 1):
        cutter = requests()
        found = fed(cutter, [STREAM[: STARTS[1]]])
        found += cutter.lost(STARTS[1], end - STARTS[1])
        assert cutter.searching
        found += fed(cutter, cut_at(STREAM[end:], 5, 11), end)
        assert not cutter.searching
        assert found.pop(1) == Gap(end - STARTS[1])
        assert told(found) == [WHOLE_STREAM[0], WHOLE_STREAM[3]]


def test_a_gap_in_bytes_that_are_passed_over_costs_nothing() -> None:
    cutter = requests()
    found = fed(cutter, [STREAM[: STARTS[1] + 30]])
    found += cutter.lost(STARTS[1] + 40, 10)
    found += make.cuts(cutter, STARTS[1] + 50, STREAM, STARTS[1] + 50, len(STREAM), 0)
    assert found.pop(2) == Gap(10)
    assert told(found) == WHOLE_STREAM


def test_the_end_gives_what_there_is_of_the_last_frame() -> None:
    cutter = requests()
    found = fed(cutter, [STREAM[:-5]])
    found += cutter.end()
    assert told(found) == [*WHOLE_STREAM[:3], (4, STARTS[3], GAP, REQUESTS[3][4:-5])]
    assert (cutter.skip_to, cutter.held_bytes) == (FOREVER, 0)
    assert list(cutter.end()) == []


def test_a_frame_that_is_given_up_costs_itself_alone() -> None:
    cutter = requests()
    found = fed(cutter, [STREAM[: STARTS[2] + 30]])
    assert cutter.held_bytes == 30
    found += cutter.give_up_held()
    assert cutter.held_bytes == 0
    found += fed(cutter, cut_at(STREAM[STARTS[2] + 30 :], 4), STARTS[2] + 30)
    assert told(found) == [*WHOLE_STREAM[:2], (3, STARTS[2], GAP, REQUESTS[2][4:30]), WHOLE_STREAM[3]]


# ---- requests: what is no frame --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [LIMIT + 1, 5 * LIMIT])
def test_a_frame_above_the_limit_is_passed_over(size: int) -> None:
    large = make.request(6, 8, 9, bytes(size))
    stream = REQUESTS[0] + large + REQUESTS[2]
    found = fed(requests(), cut_at(stream, *range(1400, len(stream), 1400)))
    assert isinstance(found[1], BadFrame)
    assert (found[1].offset, found[1].skipped) == (STARTS[1], len(large))
    assert f"more than the limit of {LIMIT}" in found[1].reason
    assert told([found[0], *found[2:]]) == [
        WHOLE_STREAM[0],
        (3, STARTS[1] + len(large), WHOLE, REQUESTS[2][4:]),
    ]


def test_bytes_that_are_no_frame_are_told_and_the_next_frame_found() -> None:
    stream = REQUESTS[0] + b"\xff" * 100 + REQUESTS[2] + REQUESTS[3]
    found = fed(requests(), cut_at(stream, 70, 140, 200))
    bad = found.pop(1)
    assert bad == BadFrame("no request where one should begin (size -1)", STARTS[1])
    assert [told([cut])[0][0] for cut in found] == [1, 3, 4]


@pytest.mark.parametrize(
    ("data", "protocol"),
    [(b"\x16\x03\x01\x02\x00" + bytes(512), "TLS"), (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP")],
)
def test_another_protocol_is_told_and_read_no_more(data: bytes, protocol: str) -> None:
    cutter = requests()
    assert fed(cutter, [data, *REQUESTS]) == [OtherProtocol(protocol)]  # type: ignore[arg-type]
    assert (cutter.skip_to, cutter.held_bytes, cutter.searched_bytes) == (FOREVER, 0, 0)


def test_a_token_without_header_comes_after_a_handshake_of_version_0() -> None:
    token = make.sized(b"\0user\0password")
    stream = make.request(17, 0, 0, b"\0\5PLAIN") + token + REQUESTS[0]
    for place in range(1, len(stream)):
        found = fed(requests(), cut_at(stream, place))
        assert found.pop(1) == AuthenticationToken()
        assert [told([cut])[0][0] for cut in found] == [0, 1]


def test_many_false_beginnings_do_not_hide_the_next_frame() -> None:
    """All name the same end: decoding each of them reads far more bytes than there are."""
    count, padding = 128, 4000
    false = [struct.pack(">ihhih", 16 * (count - n) + padding - 4, 6, 8, n, 1) + b"1\0" for n in range(count)]
    body = codec.encode(control.update_metadata({"t" * 8000: [control.metadata_state(0, 1)]}), 8)
    frame = make.request(6, 8, 500, body)
    stream = b"".join(false) + b"\xff" * padding + frame
    assert told(fed(requests(aligned=False), [stream])) == [(500, len(stream) - len(frame), WHOLE, frame[4:])]


# ---- responses -------------------------------------------------------------------------------------------------------

PENDING = [(1, 6, 8), (2, 1, 17), (3, 6, 8), (4, 6, 8)]
"""Correlation id, API and version of each request that waits; the second one's response is not wanted."""
RESPONSES = [
    make.response(api_key, version, n, bytes(80) if api_key == 1 else b"\0\0\0") for n, api_key, version in PENDING
]
ANSWERS = b"".join(RESPONSES)
ANSWERED_AT = [0, *itertools.accumulate(map(len, RESPONSES))]
ALL_ANSWERED = [(n, ANSWERED_AT[n - 1], WHOLE, None if n == 2 else RESPONSES[n - 1][4:]) for n in (1, 2, 3, 4)]


def pending(*requests: tuple[int, int, int], wanted: Collection[int] = (4, 5, 6)) -> Matcher:
    """Requests that wait for their responses."""
    matcher = Matcher()
    connection = Connection(Endpoint("10.0.0.1", 50000), Endpoint("10.0.0.2", 9092), 0)
    for correlation_id, api_key, version in requests:
        frame = Frame(connection, "request", 0, 0, 0, WHOLE, 0, b"", api_key, version, correlation_id, "c", 0, "")
        matcher.add(PendingRequest(correlation_id, api_key, version, frame if api_key in wanted else None))
    return matcher


def answered(
    matcher: Matcher, pieces: Iterable[bytes], *, offset: int = 0, cutter: ResponseCutter | None = None
) -> list[StreamItem]:
    """Feed a server's stream; what is answered waits no more."""
    cutter = cutter or ResponseCutter(CONTROL, LIMIT, matcher, aligned=True)
    found: list[StreamItem] = []
    for time_ns, piece in enumerate(pieces):
        for cut in make.cuts(cutter, offset, piece, 0, len(piece), time_ns):
            found.append(cut)
            if isinstance(cut, ResponseInStream) and cut.request is not None:
                matcher.answer(cut.request)
        offset += len(piece)
    return found


def told_responses(found: Iterable[StreamItem]) -> list[tuple[int, int, int, bytes | None]]:
    """Of responses: correlation id, stream offset, status, payload."""
    out = []
    for cut in found:
        assert isinstance(cut, ResponseInStream), cut
        assert cut.request is None or cut.request.correlation_id == cut.correlation_id
        out.append((cut.correlation_id, cut.offset, cut.status, cut.payload))
    return out


def test_responses_split_at_every_place_are_the_same() -> None:
    for place in range(1, len(ANSWERS)):
        assert told_responses(answered(pending(*PENDING), cut_at(ANSWERS, place))) == ALL_ANSWERED
    assert told_responses(answered(pending(*PENDING), cut_at(ANSWERS, *range(1, len(ANSWERS))))) == ALL_ANSWERED


def test_a_gap_over_responses_resynchronises_at_one_that_is_waited_for() -> None:
    for end in range(ANSWERED_AT[2] + 1, ANSWERED_AT[3] + 1):
        matcher = pending(*PENDING)
        cutter = ResponseCutter(CONTROL, LIMIT, matcher, aligned=True)
        found = answered(matcher, [RESPONSES[0]], cutter=cutter)
        lost = list(cutter.lost(ANSWERED_AT[1], end - ANSWERED_AT[1]))
        assert lost == [Gap(end - ANSWERED_AT[1]), ResponsesLost()]
        found += answered(matcher, cut_at(ANSWERS[end:], 3), offset=end, cutter=cutter)
        assert told_responses(found) == [ALL_ANSWERED[0], ALL_ANSWERED[3]]


def test_a_response_of_impossible_size_loses_the_boundary() -> None:
    stream = RESPONSES[0] + make.sized(bytes(LIMIT + 1)) + RESPONSES[2]
    found = answered(pending(*PENDING), [stream])
    assert found[1:3] == [
        BadFrame(f"no response where one should begin (size {LIMIT + 1})", ANSWERED_AT[1]),
        ResponsesLost(),
    ]
    assert [told_responses([cut])[0][0] for cut in (found[0], *found[3:])] == [1, 3]


def test_a_response_to_no_request_is_given_up_to_the_bytes_allowed() -> None:
    matcher = pending()
    cutter = ResponseCutter(CONTROL, LIMIT, matcher, aligned=True)
    cutter.unmatched_bytes = len(RESPONSES[0]) - 4
    found = answered(matcher, [RESPONSES[0] + RESPONSES[2]], cutter=cutter)
    assert told_responses(found) == [(1, 0, WHOLE, RESPONSES[0][4:]), (3, len(RESPONSES[0]), WHOLE, None)]
    assert cutter.unmatched_bytes == 0


def test_a_token_is_the_response_that_a_token_waits_for() -> None:
    """Its four bytes may stand for anything; an empty one is only a size."""
    for token in (b"", b"ok", b"challenge"):
        matcher = Matcher()
        matcher.add(PendingRequest(0, None, 0))
        cutter = ResponseCutter(CONTROL, LIMIT, matcher, aligned=True)
        stream = make.sized(token) + RESPONSES[0]
        found = make.cuts(cutter, 0, stream, 0, len(stream), 0)
        assert next(found) == AuthenticationToken()
        matcher.answer_token()
        assert told_responses(found) == [(1, len(token) + 4, WHOLE, None)]


def test_what_is_found_in_several_pieces_is_read_to_the_last_of_them() -> None:
    """The first response is one that is not wanted: its middle pieces are passed over, the last one is not."""
    matcher = pending((7, 4, 1), (7, 6, 8), (8, 6, 8), wanted=(6,))
    error = codec.message_class(4, "response")(partition_errors=[LeaderAndIsrPartitionError(topic_name="t" * 300)])
    large = make.response(4, 1, 7, codec.encode(error, 1))
    wanted = make.response(6, 8, 8, b"\0\0\0")
    cutter = ResponseCutter(WantedApis((6,)), LIMIT, matcher, aligned=False)
    found = answered(matcher, cut_at(large + wanted, 100, 200), cutter=cutter)
    assert told_responses(found) == [(7, 0, WHOLE, None), (8, len(large), WHOLE, wanted[4:])]


@given(
    partitions=st.integers(9, 300),
    mss=st.integers(60, 1460),
    lost=st.integers(1, 40),
    is_pending=st.booleans(),
)
def test_rows_of_errors_are_not_taken_for_the_response_to_correlation_id_0(
    partitions: int, mss: int, lost: int, is_pending: bool
) -> None:
    """The capture lacks that response and the beginning of the next, whose request it may lack too."""
    first, second = 1 << 24, (1 << 24) + 1
    rows = [LeaderAndIsrPartitionError(partition_index=n) for n in range(partitions)]
    topic = LeaderAndIsrTopicError(topic_id=UUID(int=1).bytes, partition_errors=rows)
    answer = codec.encode(codec.message_class(4, "response")(topics=[topic]), 7)
    gone = make.response(6, 8, 0, b"\0\0\0")
    errors, last = make.response(4, 7, first, answer), make.response(6, 8, second, b"\0\0\0")
    segments = [*cut_at(errors, *range(mss, len(errors), mss)), last]
    lost = min(lost, len(segments) - 1)
    end = len(gone) + sum(map(len, segments[:lost]))
    matcher = pending((0, 6, 8), *([(first, 4, 7)] if is_pending else []), (second, 6, 8))
    cutter = ResponseCutter(CONTROL, LIMIT, matcher, aligned=True)
    assert list(cutter.lost(0, end)) == [Gap(end), ResponsesLost()]
    found = answered(matcher, segments[lost:], offset=end, cutter=cutter)
    assert told_responses(found) == [(second, len(gone) + len(errors), WHOLE, last[4:])]


@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one segment"])
def test_the_response_to_correlation_id_0_is_found_in_its_own_segment_and_before_another(together: bool) -> None:
    answers = [make.response(6, 8, n, b"\0\0\0") for n in (0, 1)]
    matcher = pending((0, 6, 8), (1, 6, 8))
    cutter = ResponseCutter(CONTROL, LIMIT, matcher, aligned=False)
    found = answered(matcher, [b"".join(answers)] if together else answers, cutter=cutter)
    assert [told[0] for told in told_responses(found)] == [0, 1]
