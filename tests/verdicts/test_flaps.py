"""Changes that follow from a broker's absence make no partition flap; where lists show none, its connections do."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproto.verdicts.flaps import _changes
from kproto.verdicts.states import often_within

S = 1_000_000


def changes(leaders: tuple[int, int], breaks: list[int], listed_to: set[int]) -> int:
    """How many changes of the leader at second 100 count, where nobody's coming or going is known from lists."""
    steps = [
        SimpleNamespace(ts=ts, state=SimpleNamespace(leader=leader, isr=(2, 3), replicas=(1, 2, 3)))
        for ts, leader in zip((0, 100 * S), leaders, strict=True)
    ]
    facts: Any = SimpleNamespace(
        listed_to=frozenset(listed_to), spans={1: SimpleNamespace(stretches=[breaks])}, begin=0, end=1000 * S,
        is_settling=lambda _brokers, _ts, _settled: False, is_kraft_controller=False,
    )  # fmt: skip
    life: Any = SimpleNamespace(steps=steps)
    return len(_changes(facts, life, 60 * S)["leader"])


@pytest.mark.parametrize(
    ("leaders", "breaks", "listed_to", "counted"),
    [
        ((1, 2), [90 * S], {1}, 0),  # broker 1 alone was sent lists, and its connections ended shortly before
        ((2, 1), [101 * S], {1}, 0),  # or a second after
        ((1, 2), [102 * S], {1}, 1),
        ((1, 2), [39 * S], {1}, 1),
        ((1, 2), [], {1}, 1),
        ((2, 3), [90 * S], {1}, 1),  # others' changes do not follow from it
        ((1, 2), [90 * S], {1, 2}, 1),  # lists that others were sent would show it
    ],
)
def test_a_change_beside_the_only_listeners_absence_is_no_flap(
    leaders: tuple[int, int], breaks: list[int], listed_to: set[int], counted: int
) -> None:
    assert changes(leaders, breaks, listed_to) == counted


@pytest.mark.parametrize(
    ("times", "often"),
    [
        ([0, 100, 200, 300], [0, 100, 200, 300]),
        ([0, 900, 1000, 1100, 1200, 2500], [900, 1000, 1100, 1200]),  # lone ones before and after are not of it
        ([0, 100, 200, 300, 5000, 9000, 9100, 9200, 9300], [0, 100, 200, 300, 9000, 9100, 9200, 9300]),  # twice
        ([0, 200, 400, 599, 700, 800], [0, 200, 400, 599, 700, 800]),  # windows that overlap count each once
        ([0, 200, 400, 600], []),  # ten minutes and no more
        ([], []),
    ],
)
def test_a_flap_lasts_from_the_first_to_the_last_change_of_those_that_came_often(
    times: list[int], often: list[int]
) -> None:
    assert often_within(times, 600, 4) == often
