"""Which recording goes on behind which, by where their connections stand."""

from itertools import permutations

import pytest

from kproto.capture.borders import Border
from kproto.capture.link import Segment
from kproto.tables.joining import Edge, Joiner, matched
from kproto.tables.scanning import Selection

FLOW = bytes([10, 0, 0, 1, 10, 0, 0, 2, 200, 0, 35, 132])


def test_parts_of_a_request_are_joined_in_its_order_though_all_acknowledge_the_same_byte() -> None:
    """The end of each fits the beginning of each by the byte of the other direction."""
    stands = [(1000, 50), (1100, 50), (1300, 50), (1350, 50)]
    times = [0, 20, 40]

    def border(number: int, time_ns: int) -> Border:
        return Border(FLOW, stands[number], time_ns, is_sure=False)

    for order in permutations(range(3)):
        ends = [Edge(f"{n}", "a", border(n + 1, times[n] + 10), "a", state=f"{n}") for n in order]
        begins = [Edge(f"{n}", "a", border(n, times[n]), "a", file=f"{n}") for n in order]
        assert [(end.part, begin.part) for end, begin in matched(ends, begins)] == [("0", "1"), ("1", "2")]


@pytest.mark.parametrize(
    ("at", "late_s", "is_again"), [(900, 200, True), (901, 200, False), (1000, 200, False), (900, 60, False)]
)
def test_data_that_was_there_minutes_before_an_end_is_of_another_clock(
    at: int, late_s: int, is_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows an end minutes later is no such data: a connection may idle, and sends again within two minutes."""
    joiner = Joiner(Selection(), {}.get, lambda _edges: "")
    segment = Segment(FLOW, at, 50, 0, bytes(100), 0, 100, 100)
    monkeypatch.setattr(joiner, "_first_segments", lambda _begin: [(late_s * 10**9, segment)])
    end = Edge("0", "a", Border(FLOW, (1000, 50), 0, is_sure=True), "a", state="0")
    begin = Edge("1", "b", Border(FLOW, (at, 50), late_s * 10**9, is_sure=True), "b", file="1")
    assert joiner._holds_again(end, begin) is is_again
