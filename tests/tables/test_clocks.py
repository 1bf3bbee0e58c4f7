"""Clocks are compared by what both saw, whatever else one of them saw late."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.tables.clocks import ClockEvidence, PointClock, compared
from kproto.tables.schemas import REQUESTS

HOUR = 3600 * 1_000_000
BEGIN = 1_700_000_000_000_000


def seen(seed: int, span_us: int, count: int, ahead_us: int, ppm: float) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """What two points saw of updates, of which a third reaches one of the brokers late."""
    rng = random.Random(seed)
    here, there = {}, {}
    for number in range(count):
        ts = BEGIN + span_us * number // count
        key = number.to_bytes(4, "big")
        here[key] = ts + rng.randrange(5_000)
        late = rng.randrange(2_000_000) if rng.random() < 0.33 else rng.randrange(5_000)
        told = ts + late
        there[key] = told + ahead_us + round((told - BEGIN) * ppm / 1_000_000)
    return here, there


def clock_of(here: dict[bytes, int], there: dict[bytes, int]) -> PointClock:
    return compared(["a", "b"], {"a": 2, "b": 1}, {"a": here, "b": there}, {})["b"]


@given(
    st.integers(0, 1000), st.integers(-4 * HOUR, 4 * HOUR), st.integers(40, 200)
)  # of fewer, chance may make too few agree
def test_a_clock_is_found_within_milliseconds(seed: int, ahead_us: int, count: int) -> None:
    clock = clock_of(*seen(seed, 90_000_000, count, ahead_us, 0))
    assert clock.reference == "a"
    assert abs(clock.offset_us - ahead_us) < 35_000  # up to 30 ms, by times that vary by 5, they are taken as equal


@pytest.mark.parametrize("ppm", [50, -50, 20, 0])
def test_a_clock_that_gains_time_is_corrected_within_60_ms_over_hours(ppm: float) -> None:
    here, there = seen(3, 6 * HOUR, 400, 3_000_000, ppm)
    clock = clock_of(here, there)
    assert clock.drift_ppm == pytest.approx(ppm, abs=2)
    for ts in (BEGIN, BEGIN + 3 * HOUR, BEGIN + 6 * HOUR):
        shown = ts + 3_000_000 + round((ts - BEGIN) * ppm / 1_000_000)
        assert abs(shown - clock.ahead(shown) - ts) < 60_000


def test_equal_clocks_gain_nothing_by_a_few_late_updates() -> None:
    """Of fifteen updates in an hour ten are late at one of two hosts: some slope fits six of them, none fits five."""
    late_us = [-265606, -338782, -20, 12465, -20, -100653, -102730, -20, -456389, -785833, -72316, -210787]
    late_us += [-20, -215927, -241184]
    at_s = [0.002834, 0.003141, 143.859099, 143.876044, 287.709861, 910.535432, 910.537475, 1054.385861, 1677.2114]
    at_s += [1677.212216, 2587.740312, 2587.740641, 2843.296528, 3609.976844, 3609.977947]
    times = {number.to_bytes(1, "big"): BEGIN + round(ts * 1_000_000) for number, ts in enumerate(at_s)}
    there = {key: ts + late for (key, ts), late in zip(times.items(), late_us, strict=True)}
    clock = clock_of(times, there)
    assert (clock.reference, clock.offset_us, clock.drift_ppm) == ("a", 0, 0.0)


def test_clocks_whose_differences_agree_by_chance_alone_are_not_compared() -> None:
    """Seven updates were late at one of two hosts by all there is between nothing and half a second."""
    late_us = [20, 127112, 95470, 59880, 117727, 261790, 463961]
    here = {bytes([number]): BEGIN + number * HOUR for number in range(len(late_us))}
    there = {key: ts + late for (key, ts), late in zip(here.items(), late_us, strict=True)}
    assert clock_of(here, there).reference == "b"


@pytest.mark.parametrize("ahead_us", [(57_037, 65_391), (-5 * HOUR, 300 - 5 * HOUR), (-78_000, -78_010, -78_024)])
def test_updates_that_came_in_one_batch_tell_no_clock(ahead_us: tuple[int, ...]) -> None:
    """Such as stand on both sides of a border between two files: the first brokers are told in one, others later."""
    here = {bytes([number]): BEGIN + number for number in range(len(ahead_us))}
    assert clock_of(here, {key: ts + ahead_us[key[0]] for key, ts in here.items()}).reference == "b"


QUEUED = [814844, 1176, 157765, -279, 758962, 564703, 558987, 547841, 568565, 70, 37543]
"""By how many us each of eleven updates reached one broker after another; four waited in one queue."""


@pytest.mark.parametrize("ahead_us", [-60_000_000, 70_000_000])
@pytest.mark.parametrize("more", [0, 1])
def test_updates_that_waited_in_one_queue_tell_no_clock(ahead_us: int, more: int) -> None:
    late = QUEUED + [200] * more
    here = {bytes([at]): BEGIN + 1_000_000 * at for at in range(len(late))}
    clock = clock_of(here, {key: ts + ahead_us + us for (key, ts), us in zip(here.items(), late, strict=True)})
    assert (clock.reference == "a") is bool(more)
    assert not more or abs(clock.offset_us - ahead_us) < 5_000


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(2, 9))
def test_what_comes_at_once_at_both_counts_once(seed: int, count: int, copies: int) -> None:
    """A broker that comes back is told of many partitions at once, long after another: no clock is late by that."""
    one = seen(seed, 90_000_000, count, 0, 0)
    many = ({key + bytes([n]): ts for key, ts in of.items() for n in range(copies)} for of in one)
    assert clock_of(*many) == clock_of(*one)


def test_points_that_share_too_little_are_not_compared() -> None:
    here, there = seen(1, 90_000_000, 1, 40_000_000, 0)
    assert clock_of(here, there).reference == "b"
    assert clock_of({}, there).reference == "b"


def test_points_are_compared_by_way_of_a_third() -> None:
    here, there = seen(1, 90_000_000, 50, 40_000_000, 0)
    other = {b"x" + key: ts + 7_000_000 for key, ts in there.items()}
    middle = there | {b"x" + key: ts for key, ts in there.items()}
    clocks = compared(["a", "b", "c"], {"a": 2}, {"a": here, "b": middle, "c": other}, {})
    assert {clock.reference for clock in clocks.values()} == {"a"}
    assert clocks["c"].offset_us == pytest.approx(47_000_000, abs=20_000)


def test_exchanges_that_both_saw_tell_most() -> None:
    here, there = seen(1, 90_000_000, 50, 40_000_000, 0)
    clocks = compared(
        ["a", "b"], {"a": 2}, {"a": here, "b": there}, {"a": {b"e": BEGIN}, "b": {b"e": BEGIN + 5_000_000}}
    )
    assert clocks["b"].offset_us == 5_000_000


def test_in_how_many_files_a_point_recorded_does_not_make_it_the_reference() -> None:
    """A connection in three files is one connection: the reference is the point that shows most of them."""
    evidence = ClockEvidence()
    shown = {"a": [b"1"], "b": [b"2", b"3"]}
    for part in range(4):
        rows = [
            {
                "capture": capture, "conn_id": connection, "controller_id": 1, "api_key": 6,
                "body_id": bytes([part, n // 1_000_000]), "ts": BEGIN + n + (5_000_000 if capture == "a" else 0),
            }
            for capture, connections in shown.items()
            if capture == "a" or not part
            for connection in connections
            for n in range(0, 9_000_000, 1_000_000)
        ]  # fmt: skip
        schema = pa.schema([(each.name, each.type) for each in REQUESTS if each.name in rows[0]])
        evidence.add(pa.Table.from_pylist(rows, schema))
    clocks = evidence.clocks({"a": "a", "b": "b"}, {})
    assert {clock.reference for clock in clocks.values()} == {"b"}
    assert clocks["a"].offset_us == pytest.approx(5_000_000, abs=1000)
