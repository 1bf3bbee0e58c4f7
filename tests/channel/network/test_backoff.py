"""Waits grow, are spread, and are bounded."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.network.backoff import ExponentialBackoff


@pytest.mark.conformance("EXB-02")
def test_without_jitter_the_wait_doubles_up_to_its_bound():
    backoff = ExponentialBackoff(100, 2, 400, 0.0)
    assert [backoff.backoff(n) for n in range(4)] == [100, 200, 400, 400]


@pytest.mark.conformance("EXB-03")
@pytest.mark.parametrize(("initial", "maximum", "wait"), [(50, 50, 50), (0, 0, 0), (100, 50, 50)])
def test_a_wait_that_cannot_grow_is_constant_and_not_spread(initial, maximum, wait):
    backoff = ExponentialBackoff(initial, 2, maximum, 0.2)
    assert [backoff.backoff(n) for n in range(6)] == [wait] * 6


@given(st.integers(1, 10_000), st.integers(2, 1000), st.integers(0, 10_000), st.integers())
def test_the_wait_is_spread_by_a_fifth_and_never_above_its_bound(initial, times, attempts, seed):
    maximum = initial * times
    wait = ExponentialBackoff(initial, 2, maximum, 0.2, random.Random(seed)).backoff(attempts)
    exact = min(initial * 2 ** min(attempts, 20), maximum)
    assert int(exact * 0.8) - 1 <= wait <= min(exact * 1.2, maximum)
