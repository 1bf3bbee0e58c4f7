"""Requests in flight: when they have waited too long, and when another may follow."""

import pytest
from network_peers import BodyRequest

from channel.network.frames import Send
from channel.network.request import ClientRequest, InFlightRequests


def in_flight(*timeouts_ms: int) -> InFlightRequests:
    made = InFlightRequests()
    for timeout_ms in timeouts_ms:
        request = ClientRequest("dest", BodyRequest(4, 7, [b""]), 0, 0, timeout_ms)
        request.send = Send("dest", [b"frame"])
        made.requests.append(request)
    return made


@pytest.mark.conformance("IFR-02")
def test_a_node_times_out_when_any_of_its_requests_has_waited_longer_than_it_may():
    one, other = in_flight(50), in_flight(200, 100)
    assert [one.timed_out(now) for now in (50, 75, 125)] == [False, True, True]
    assert [other.timed_out(now) for now in (50, 75, 125)] == [False, False, True]
    assert (one.earliest_deadline(), other.earliest_deadline()) == (50, 100)
    assert in_flight().earliest_deadline() is None


@pytest.mark.conformance("IFR-06")
def test_another_request_may_go_once_the_newest_is_written_and_the_limit_leaves_room():
    assert in_flight().can_send_more(2)
    one, two = in_flight(1000), in_flight(1000, 1000)
    for found in (one, two):
        assert not found.can_send_more(2)
        found.requests[-1].send.completed = True
    assert one.can_send_more(2)
    assert not two.can_send_more(2)
