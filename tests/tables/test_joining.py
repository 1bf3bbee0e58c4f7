"""Which recording goes on behind which, by where their connections stand."""

from itertools import permutations

from kproto.capture.borders import Border
from kproto.tables.joining import Begin, End, matched

FLOW = bytes([10, 0, 0, 1, 10, 0, 0, 2, 200, 0, 35, 132])


def test_parts_of_a_request_are_joined_in_its_order_though_all_acknowledge_the_same_byte() -> None:
    """The end of each fits the beginning of each by the byte of the other direction."""
    stands = [(1000, 50), (1100, 50), (1300, 50), (1350, 50)]
    times = [0, 20, 40]

    def border(number: int, time_ns: int) -> Border:
        return Border(FLOW, stands[number], time_ns, is_sure=False)

    for order in permutations(range(3)):
        ends = [End(f"{n}", "a", border(n + 1, times[n] + 10), f"{n}", "a") for n in order]
        begins = [Begin(f"{n}", "a", f"{n}", border(n, times[n]), "a") for n in order]
        assert [(end.part, begin.part) for end, begin in matched(ends, begins)] == [("0", "1"), ("1", "2")]
