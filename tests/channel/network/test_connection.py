"""A connection without sockets: its phases, its requests in flight, and its bytes in whatever pieces they come."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_peers import BodyRequest

from channel.errors import IllegalState, InvalidReceive
from channel.network.channel import KafkaConnection, Phase
from channel.network.frames import MemoryPool, Send, Window
from channel.network.request import ClientRequest

ORDER = [Phase.CONNECTING, Phase.HANDSHAKE, Phase.AUTHENTICATING, Phase.CHECKING_VERSIONS, Phase.READY]
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


@pytest.mark.parametrize("checks_versions", [False, True])
def test_requests_may_pass_once_it_is_established_and_until_it_closes(checks_versions):
    connection = KafkaConnection("0", checks_versions=checks_versions)
    for phase in (Phase.HANDSHAKE, Phase.AUTHENTICATING):
        connection.enter(phase)
        assert not connection.usable
    connection.established()
    assert connection.phase is (Phase.CHECKING_VERSIONS if checks_versions else Phase.READY)
    assert connection.usable
    connection.enter(Phase.READY)
    assert connection.usable
    connection.enter(AGAIN)
    assert not connection.usable
    connection.established()
    assert connection.phase is Phase.READY
    assert connection.usable
    connection.enter(Phase.CLOSING)
    assert not connection.usable


def test_a_new_connection_passes_nothing_and_asks_for_no_versions_unless_told():
    connection = KafkaConnection("0")
    assert not connection.usable
    connection.established()
    assert connection.phase is Phase.READY


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
    assert connection.in_flight.complete_next() is first
    assert connection.close() == [second]
    assert connection.phase is Phase.CLOSED


def test_one_frame_goes_out_at_a_time():
    connection = KafkaConnection("0")
    connection.start(Send("0", [b"frame"]))
    with pytest.raises(IllegalState, match="has not gone out"):
        connection.start(Send("0", [b"another"]))


def test_a_frame_has_not_gone_out_while_the_transport_holds_some_of_it():
    connection, send = KafkaConnection("0"), Send("0", [b"frame"])
    connection.start(send)
    assert connection.sent(5, pending=True) is None
    assert not send.completed
    assert connection.outgoing is send
    assert connection.sent(0) is send
    assert send.completed


@pytest.mark.parametrize("window", [None, Window()], ids=["exact", "window"])
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_byte_by_byte_every_frame_arrives(window, payloads):
    connection, arrived = KafkaConnection("0", window=window), []
    for byte in b"".join(map(frame, payloads)):
        connection.reader.into[0] = byte
        payload = connection.received(1)
        if payload is not None:
            arrived.append(bytes(payload))
    assert arrived == payloads


def test_a_length_above_the_limit_ends_it():
    connection = KafkaConnection("0", max_receive_size=100, window=Window())
    connection.reader.into[:4] = struct.pack(">i", 101)
    with pytest.raises(InvalidReceive, match="the limit is 100"):
        connection.received(4)


def test_a_connection_that_its_pool_refuses_memory_mutes_itself():
    pool = MemoryPool(10, 10, strict=True)
    held = pool.allocate(10)
    connection = KafkaConnection("0", pool=pool)
    connection.reader.into[:4] = struct.pack(">i", 10)
    assert connection.received(4) is None
    assert connection.muted
    assert not connection.explicitly_muted
    pool.release(held)
    connection.close()
    assert pool.available == 10
