"""Exchanges as they are complete, put in the order of their requests' times with a bounded look-ahead."""

import random

import pytest

from kproto.capture import WHOLE, Connection, Endpoint, Exchange, Frame, ordering
from kproto.capture.ordering import TimeOrder

SECOND = 1_000_000_000
CONNECTION = Connection(Endpoint("10.0.0.1", 50000), Endpoint("10.0.0.2", 9092), 0)


def frame(time_ns: int, payload: bytes = b"body") -> Frame:
    length = len(payload)
    return Frame(CONNECTION, "request", 0, time_ns, time_ns, WHOLE, length, payload, 6, 8, 1, "c", length, "")


def complete(time_ns: int, payload: bytes = b"body") -> Exchange:
    return Exchange(frame(time_ns, payload), None)


def times(found: list[Exchange]) -> list[int]:
    return [exchange.time_ns for exchange in found]


def test_an_exchange_is_given_two_seconds_after_its_request_and_no_sooner() -> None:
    order = TimeOrder()
    exchange = complete(10 * SECOND)
    assert list(order.add([exchange], 10 * SECOND)) == []
    assert list(order.add([], 12 * SECOND - 1)) == []
    assert list(order.add([], 12 * SECOND)) == [exchange]
    assert list(order.add([], 99 * SECOND)) == []
    assert list(order.end()) == []


def test_exchanges_that_come_late_are_put_in_their_place() -> None:
    order = TimeOrder()
    late = [complete(second * SECOND) for second in (3, 1, 2)]
    assert list(order.add(late, 3 * SECOND)) == [late[1]]
    assert list(order.add([complete(2 * SECOND + 1)], 4 * SECOND)) == [late[2]]
    assert times(list(order.end())) == [2 * SECOND + 1, 3 * SECOND]


def test_exchanges_of_the_same_time_keep_the_order_in_which_they_were_settled() -> None:
    order = TimeOrder()
    same = [complete(SECOND) for _ in range(5)]
    assert list(order.add(same, 9 * SECOND)) == same


@pytest.mark.parametrize("seed", range(20))
def test_any_order_within_two_seconds_is_put_right(seed: int) -> None:
    draw = random.Random(seed)
    arrivals = [(time + draw.randrange(2 * SECOND), time) for time in range(0, 20 * SECOND, SECOND // 10)]
    order, found = TimeOrder(), list[Exchange]()
    for now_ns, time_ns in sorted(arrivals):
        found += order.add([complete(time_ns)], now_ns)
    found += order.end()
    assert times(found) == [time_ns for _, time_ns in arrivals]


def test_a_request_that_waits_for_its_response_holds_the_later_ones_back() -> None:
    order = TimeOrder()
    slow = frame(SECOND)
    later = complete(2 * SECOND)
    assert list(order.add([slow, later], 2 * SECOND)) == []
    assert list(order.add([], 30 * SECOND)) == []
    answered = Exchange(slow, None)
    assert list(order.add([answered], 30 * SECOND)) == [answered, later]


def test_a_request_without_a_response_holds_nothing_back_for_longer_than_a_minute() -> None:
    order = TimeOrder()
    later = complete(2 * SECOND)
    assert list(order.add([frame(SECOND), later], 2 * SECOND)) == []
    assert list(order.add([], 61 * SECOND)) == []
    assert list(order.add([], 61 * SECOND + 1)) == [later]


def test_at_most_so_many_exchanges_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_MOST_EXCHANGES", 3)
    order = TimeOrder()
    found = list(order.add([complete(time_ns) for time_ns in (5, 4, 3, 2, 1)], 5))
    assert times(found) == [1, 2]
    assert times(list(order.end())) == [3, 4, 5]


def test_at_most_so_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_MOST_BYTES", 100)
    order = TimeOrder()
    assert list(order.add([complete(1, bytes(50)), complete(2, bytes(50))], 2)) == []
    assert times(list(order.add([complete(3, bytes(1))], 3))) == [1]
    assert list(order.add([complete(4, bytes(49))], 4)) == []
    assert times(list(order.add([complete(5, bytes(101))], 5))) == [2, 3, 4, 5]
    assert list(order.end()) == []


def test_settled_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits must not make every later one stay in memory."""
    monkeypatch.setattr(ordering, "_MOST_EXCHANGES", 10)
    order = TimeOrder()
    waiting = frame(0)
    list(order.add([waiting], 0))
    for time_ns in range(1, 200):
        request = frame(time_ns)
        list(order.add([request], time_ns))
        list(order.add([Exchange(request, None)], time_ns))
    assert len(order._times) <= 2 * 1 + 10 + 2
    rest = [*order.add([Exchange(waiting, None)], 200), *order.end()]
    assert times(rest)[-10:] == list(range(190, 200))
