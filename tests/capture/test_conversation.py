"""One connection's bytes -> its frames and exchanges, without packets or files around it."""

import itertools
import struct

import packets as make
import pytest

from kproto.capture import GAP, WHOLE, CaptureSummary, Exchange, Frame
from kproto.capture.collector import Conversation, Event, Side
from kproto.capture.link import endpoints
from kproto.capture.reassembly import TcpConnection
from kproto.capture.wanted import WantedApis

FLOW = bytes((10, 0, 0, 1, 10, 0, 0, 2)) + struct.pack(">HH", 50000, 9092)
CLIENT, SERVER = endpoints(FLOW)
LIMIT = 10_000
OK = b"\0\0\0"  # the body of an UpdateMetadata response

REQUESTS = [make.request(6, 8, n, make.UPDATE_METADATA_8) for n in (1, 2, 3)]
RESPONSES = [make.response(6, 8, n, OK) for n in (1, 2, 3)]
SIZE, ANSWER = len(REQUESTS[0]), len(RESPONSES[0])


class Bench:
    """A conversation whose two streams go on where they left off; the client is side 0."""

    def __init__(self, *, server: Side | None = 1, handshake: bool = True) -> None:
        self.summary = CaptureSummary()
        connection = TcpConnection(FLOW, 5)
        connection.client = connection.streams[0] if handshake else None
        self.conversation = Conversation(
            connection,
            server,
            wanted=WantedApis((4, 5, 6)),
            limit=LIMIT,
            capture="here",
            summary=self.summary,
        )
        self.events: list[Event] = []
        self._offsets = [0, 0]
        self._now_ns = 0

    def say(self, side: Side, data: bytes, *, request_hole: bool = False) -> None:
        offset, self._now_ns = self._offsets[side], self._now_ns + 1
        self.events += self.conversation.feed(side, offset, data, 0, len(data), self._now_ns, request_hole=request_hole)
        self._offsets[side] += len(data)

    def lose(self, side: Side, length: int) -> None:
        self.events += self.conversation.lost(side, self._offsets[side], length)
        self._offsets[side] += length

    def end(self) -> None:
        for side in (0, 1):
            self.events += self.conversation.end(side)

    @property
    def frames(self) -> list[int]:
        return [event.correlation_id for event in self.events if isinstance(event, Frame)]

    @property
    def exchanges(self) -> list[tuple[int | None, int | None, str | None]]:
        """The correlation ids of request and response, and why there is only one."""
        return [
            (
                event.request and event.request.correlation_id,
                event.response and event.response.correlation_id,
                event.unmatched_reason,
            )
            for event in self.events
            if isinstance(event, Exchange)
        ]


def test_a_request_is_given_when_it_is_whole_and_an_exchange_when_it_is_answered() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0][:20])
    assert (bench.events, bench.conversation.held) == ([], 20)
    bench.say(0, REQUESTS[0][20:])
    assert (bench.frames, bench.exchanges) == ([1], [])
    bench.say(1, RESPONSES[0][:6])
    assert bench.exchanges == []
    bench.say(1, RESPONSES[0][6:])
    assert bench.exchanges == [(1, 1, None)]
    (request, exchange) = bench.events
    assert isinstance(exchange, Exchange)
    assert exchange.request is request
    assert exchange.response is not None
    assert (exchange.response.request, exchange.response.api_key, exchange.response.client_id) == (request, 6, "1")
    assert (exchange.request.time_ns, exchange.request.time_last_ns) == (1, 2)
    assert (exchange.response.time_ns, exchange.response.time_last_ns) == (3, 4)
    assert exchange.response.body == OK
    assert bench.conversation.held == 0
    assert bench.conversation.protocol == "kafka"


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("server", [1, None])
def test_bytes_split_at_every_place_give_the_same_exchanges(server: Side | None, handshake: bool) -> None:
    stream, answers = b"".join(REQUESTS), b"".join(RESPONSES)
    for place in range(1, len(stream)):
        bench = Bench(server=server, handshake=handshake)
        bench.say(0, stream[:place])
        bench.say(0, stream[place:])
        split = place % (len(answers) - 1) + 1
        bench.say(1, answers[:split])
        bench.say(1, answers[split:])
        assert (bench.frames, bench.exchanges) == ([1, 2, 3], [(n, n, None) for n in (1, 2, 3)])
        assert bench.summary.bad_inputs == []


def test_what_stands_behind_a_short_segment_is_not_what_the_server_says_first() -> None:
    bench = Bench()
    bench.say(0, make.request(18, 0, 7, b"") + REQUESTS[0])
    answer = make.response(18, 0, 7, bytes(6))
    bench.events += bench.conversation.feed(1, 0, answer[:5] + b"the next packet", 0, 5, 3)
    bench.events += bench.conversation.feed(1, 5, answer[5:], 0, len(answer) - 5, 4)
    assert (bench.conversation.protocol, bench.frames) == ("kafka", [1])


def test_the_sender_of_the_first_request_is_the_client() -> None:
    bench = Bench(server=None, handshake=False)
    assert (bench.conversation.client, bench.conversation.server) == (None, SERVER)  # the lower port, for now
    bench.say(1, REQUESTS[0])
    assert bench.conversation.client == 1
    assert bench.conversation.server == CLIENT
    connection = bench.conversation.connection
    assert connection is not None
    assert (connection.client, connection.opened_ns, connection.capture) == (SERVER, 5, "here")
    assert not connection.saw_open
    bench.say(0, RESPONSES[0])
    assert bench.exchanges == [(1, 1, None)]


def test_a_later_answer_tells_that_a_request_got_none() -> None:
    bench = Bench()
    bench.say(0, b"".join(REQUESTS))
    bench.say(1, RESPONSES[1])
    passed_by = "the response is not in the capture: a later request was answered"
    assert bench.exchanges == [(1, None, passed_by), (2, 2, None)]
    bench.end()
    assert bench.exchanges[2:] == [(3, None, "the connection ended without a response")]
    assert bench.conversation.is_over
    assert bench.summary.unmatched_requests == 2


def test_the_end_of_the_capture_is_told_from_that_of_the_connection() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0])
    bench.conversation.ending = True
    bench.end()
    assert bench.exchanges == [(1, None, "the capture ends before a response")]


def test_a_response_waits_for_a_request_that_may_still_come() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0])
    bench.say(1, RESPONSES[0] + RESPONSES[1], request_hole=True)
    assert bench.exchanges == [(1, 1, None)]
    assert bench.conversation.held > 0
    bench.say(0, REQUESTS[1])
    assert bench.exchanges == [(1, 1, None), (2, 2, None)]
    assert bench.conversation.held == 0


def test_a_response_without_a_request_is_told() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0])
    bench.say(1, RESPONSES[0] + RESPONSES[1])
    assert bench.exchanges == [(1, 1, None), (None, 2, "the request is not in the capture")]
    assert bench.summary.unmatched_responses == 1


def test_a_gap_in_a_request_costs_that_request() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0] + REQUESTS[1][:30])
    bench.lose(0, SIZE - 30)
    bench.say(0, REQUESTS[2])
    bench.say(1, b"".join(RESPONSES))
    assert bench.exchanges == [(n, n, None) for n in (1, 2, 3)]
    frames = [event for event in bench.events if isinstance(event, Frame)]
    assert [(frame.status, len(frame.payload)) for frame in frames] == [
        (WHOLE, SIZE - 4),
        (GAP, 26),
        (WHOLE, SIZE - 4),
    ]
    assert (bench.summary.gaps, bench.summary.gap_bytes) == (1, SIZE - 30)


def test_a_gap_over_responses_costs_those_responses() -> None:
    bench = Bench()
    bench.say(0, b"".join(REQUESTS))
    bench.say(1, RESPONSES[0])
    bench.lose(1, ANSWER)
    bench.say(1, RESPONSES[2])
    assert [(request, response) for request, response, _ in bench.exchanges] == [(1, 1), (2, None), (3, 3)]
    assert bench.summary.gap_bytes == ANSWER


def test_a_frame_above_the_limit_is_told_with_its_connection() -> None:
    bench = Bench()
    large = make.request(6, 8, 9, bytes(LIMIT))
    bench.say(0, REQUESTS[0] + large)
    bench.say(0, REQUESTS[1])
    assert bench.frames == [1, 2]
    (bad,) = bench.summary.bad_inputs
    assert bad.reason.startswith("10.0.0.1:50000 -> 10.0.0.2:9092: a request of ")
    assert (bad.offset, bad.bytes_skipped) == (SIZE, len(large))


def test_another_protocol_lacks_nothing() -> None:
    bench = Bench()
    bench.say(0, b"\x16\x03\x01\x02\x00" + bytes(512))
    bench.lose(0, 100)
    bench.say(1, b"\x16\x03\x03\x02\x00" + bytes(512))
    bench.lose(1, 100)
    bench.end()
    assert bench.events == []
    assert bench.conversation.protocol == "TLS"
    assert (bench.summary.gaps, bench.summary.bad_inputs) == (0, [])


def test_what_is_given_up_is_told_and_counted() -> None:
    bench = Bench()
    bench.say(0, REQUESTS[0] + REQUESTS[1][:30])
    bench.say(1, RESPONSES[2], request_hole=True)
    assert bench.conversation.held > 0
    bench.events += bench.conversation.give_up_held()
    assert bench.conversation.held == 0
    given_up = "too much was waiting for its response: kproto gave it up"
    assert bench.exchanges == [
        (1, None, given_up),
        (2, None, given_up),
        (None, 3, "the request is not in the capture"),
    ]
    assert bench.summary.given_up == {"frames": 1, "requests": 2, "responses": 1}


def test_connections_with_data_are_counted_once() -> None:
    summaries = []
    for said in itertools.product([False, True], repeat=2):
        bench = Bench()
        for side, speaks in enumerate(said):
            if speaks:
                bench.say(1 if side else 0, b"\0")
        bench.end()
        summaries.append(bench.summary.connections)
    assert summaries == [0, 1, 1, 1]
