"""Requests in flight: the order they are answered in, and when they have waited too long."""

import pytest
from network_peers import BodyRequest

from channel.errors import IllegalState
from channel.network.frames import Send
from channel.network.request import ClientRequest, InFlightRequests


def request(correlation_id: int = 0, *, timeout_ms: int = 1000, sent: bool = True) -> ClientRequest:
    made = ClientRequest("dest", BodyRequest(4, 7, [b""]), correlation_id, 0, timeout_ms)
    made.send = Send("dest", [b"frame"])
    made.send.completed = sent
    return made


@pytest.fixture
def in_flight() -> InFlightRequests:
    return InFlightRequests("dest")


@pytest.mark.conformance("IFR-01")
def test_clearing_gives_all_requests_oldest_first(in_flight):
    first, second = request(1), request(2)
    in_flight.add(first)
    in_flight.add(second)
    assert in_flight.clear_all() == [first, second]
    assert len(in_flight) == 0
    assert in_flight.clear_all() == []


@pytest.mark.conformance("IFR-02")
def test_a_node_times_out_when_any_of_its_requests_has_waited_longer_than_it_may(in_flight):
    other = InFlightRequests("B")
    in_flight.add(request(timeout_ms=50))
    other.add(request(timeout_ms=200))
    other.add(request(timeout_ms=100))
    assert [in_flight.timed_out(now) for now in (50, 75, 125)] == [False, True, True]
    assert [other.timed_out(now) for now in (50, 75, 125)] == [False, False, True]
    assert (in_flight.earliest_deadline(), other.earliest_deadline()) == (50, 100)


@pytest.mark.conformance("IFR-03")
def test_answers_belong_to_the_oldest_request(in_flight):
    in_flight.add(request(1))
    in_flight.add(request(2))
    assert in_flight.complete_next().correlation_id == 1
    assert len(in_flight) == 1
    assert in_flight.complete_next().correlation_id == 2
    assert len(in_flight) == 0
    assert in_flight.earliest_deadline() is None


@pytest.mark.conformance("IFR-04")
def test_nothing_can_be_answered_that_was_not_sent(in_flight):
    with pytest.raises(IllegalState, match="dest"):
        in_flight.complete_next()


@pytest.mark.conformance("IFR-05")
def test_nothing_can_have_gone_out_that_was_not_sent(in_flight):
    with pytest.raises(IllegalState, match="dest"):
        in_flight.complete_last_sent()


@pytest.mark.conformance("IFR-06")
def test_another_request_may_go_once_the_newest_is_written_and_the_limit_leaves_room(in_flight):
    assert in_flight.can_send_more(2)
    first = request(sent=False)
    in_flight.add(first)
    assert not in_flight.can_send_more(2)
    assert first.send is not None
    first.send.completed = True
    assert in_flight.can_send_more(2)
    in_flight.add(request())
    assert not in_flight.can_send_more(2)


@pytest.mark.conformance("IFR-07")
def test_what_expects_no_answer_completes_newest_first(in_flight):
    in_flight.add(request(1))
    in_flight.add(request(2))
    assert in_flight.complete_last_sent().correlation_id == 2
    assert in_flight.complete_last_sent().correlation_id == 1


def test_a_throttled_node_has_that_much_longer(in_flight):
    in_flight.add(request(timeout_ms=50))
    in_flight.throttle(100)
    assert not in_flight.timed_out(150)
    assert in_flight.timed_out(151)
