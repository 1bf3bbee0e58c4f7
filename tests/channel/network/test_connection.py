"""A connection without sockets: its phases, its requests in flight, and its bytes in whatever pieces they come."""

import itertools
import struct

import pytest
from network_peers import BodyRequest

from channel.errors import IllegalState
from channel.network.channel import KafkaConnection, Phase
from channel.network.frames import Send
from channel.network.request import ClientRequest

ORDER = [Phase.CONNECTING, Phase.HANDSHAKE, Phase.AUTHENTICATING, Phase.READY]
AGAIN = Phase.REAUTHENTICATING
ENDS = [Phase.CLOSING, Phase.CLOSED]


def request(correlation_id: int = 0) -> ClientRequest:
    return ClientRequest("0", BodyRequest(6, 8, [b"body"]), correlation_id, 0, 1000)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def in_phase(phase: Phase) -> KafkaConnection:
    connection = KafkaConnection("0")
    connection.phase = phase
    return connection


@pytest.mark.parametrize(("before", "after"), list(itertools.product([*ORDER, *ENDS], repeat=2)))
def test_a_connection_goes_on_and_never_back(before, after):
    order = [*ORDER, *ENDS]
    goes(before, after, allowed=order.index(after) >= order.index(before))


@pytest.mark.parametrize("other", [*ORDER, *ENDS])
def test_a_ready_connection_alone_may_authenticate_again_and_is_ready_after_it(other):
    goes(other, AGAIN, allowed=other is Phase.READY)
    goes(AGAIN, other, allowed=other in (Phase.READY, *ENDS))


def goes(before, after, *, allowed):
    connection = in_phase(before)
    if allowed:
        connection.enter(after)
        assert connection.phase is after
    else:
        with pytest.raises(IllegalState, match=after.value):
            connection.enter(after)
        assert connection.phase is before


def test_requests_may_pass_only_while_it_is_ready():
    connection = KafkaConnection("0")
    assert not connection.usable
    for phase in (Phase.HANDSHAKE, Phase.AUTHENTICATING, Phase.READY, AGAIN, Phase.READY, Phase.CLOSING):
        connection.enter(phase)
        assert connection.usable == (phase is Phase.READY)


def test_a_request_is_in_flight_from_its_first_byte_until_its_answer_or_the_end():
    connection = KafkaConnection("0")
    first, second = request(1), request(2)
    for made in (first, second):
        made.send = Send("0", [frame(b"question")], made)
        connection.start(made.send)
        assert not connection.in_flight.can_send_more(5)
        assert connection.sent(5) is None
        assert connection.outgoing.left == [frame(b"question")[5:]]
        assert connection.sent(len(connection.outgoing.left[0])) is made.send
        assert connection.in_flight.can_send_more(5)
    assert connection.in_flight.requests.popleft() is first
    assert connection.close() == [second]
    assert connection.phase is Phase.CLOSED
