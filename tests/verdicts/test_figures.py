"""The figures of a summary: latencies counted in bounded memory, and changes between states of a partition."""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.tables.schemas import PARTITION_STATES
from kproto.verdicts import request_figures as module
from kproto.verdicts.history import History
from kproto.verdicts.request_figures import Latencies


def test_quantiles_are_those_of_the_nearest_rank() -> None:
    latencies = Latencies()
    latencies.add(range(1, 101))
    assert latencies.quantiles_us(0.5, 0.99, 1.0) == [50, 99, 100]
    assert (latencies.count, latencies.max_us) == (100, 100)
    assert Latencies().quantiles_us(0.5) == [None]


def test_with_too_many_values_latencies_are_counted_to_three_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_VALUES", 3)
    latencies = Latencies()
    latencies.add([1001, 1002, 1003])
    assert latencies.quantiles_us(0.1, 1.0) == [1001, 1003]
    latencies.add([2999])  # one value too many
    assert latencies.quantiles_us(0.75, 1.0) == [1000, 2990]
    latencies.add([1999, 4500, 4999])
    assert latencies.quantiles_us(4 / 7, 5 / 7, 1.0) == [1990, 2990, 4990]
    assert (latencies.count, latencies.max_us) == (7, 4999)


STATES = PARTITION_STATES.append(pa.field("ts", pa.int64()))
BEING_DELETED = -2


def state(leader_epoch: int, leader: int, isr: list[int]) -> dict[str, Any]:
    return {
        "body_id": b"b" * 16, "api_key": 4, "topic": "t", "topic_id": b"i" * 16, "partition": 0, "controller_epoch": 1,
        "leader_epoch": leader_epoch, "partition_epoch": leader_epoch, "leader": leader, "isr": isr,
        "ts": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ((1, [1, 2]), (1, [1]), {"isr_shrinks"}),
        ((1, [1]), (1, [2, 1]), {"isr_expands"}),
        ((1, [1, 2]), (1, [1, 3]), {"isr_swaps"}),
        ((1, [1, 2]), (1, [2, 1]), set()),
        ((1, [1, 2]), (2, [2]), {"leader_changes", "isr_shrinks"}),
        ((1, [1]), (-1, [1]), {"leader_changes", "leader_lost"}),
        ((1, [1]), (1, []), {"isr_shrinks"}),
    ],
)
def test_a_change_is_counted_by_its_kinds(
    before: tuple[int, list[int]], after: tuple[int, list[int]], kinds: set[str]
) -> None:
    history = History()
    history.add(pa.Table.from_pylist([state(2, *after), state(1, *before)], schema=STATES))
    totals, _ = history.counts(10)
    assert {name for name, count in totals.items() if count} - {"partitions", "partitions_moved"} == kinds
    assert totals["partitions_moved"] == ("leader_changes" in kinds)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 9),
            st.integers(-1, 3),
            st.lists(st.integers(1, 3), max_size=3, unique=True),
        ),
        max_size=30,
    ),
    st.integers(0, 30),
    st.booleans(),
)
def test_a_history_of_reduced_parts_counts_the_changes_of_the_whole(
    found: list[tuple[int, int, int, list[int]]], cut: int, is_large: bool
) -> None:
    """Of many states those that mostly differ are sorted, others hashed."""
    rows = [state(epoch, leader, isr) | {"partition": partition} for partition, epoch, leader, isr in found]
    expected = _changes(rows)
    parts = History(), History()
    for part, some in zip(parts, (rows[:cut], rows[cut:]), strict=True):
        part.add(pa.Table.from_pylist(some, schema=STATES))
    with pytest.MonkeyPatch.context() as patch:
        if is_large:
            patch.setattr("kproto.verdicts.history._MANY", 0)
        assert whole_of(parts).counts(10)[0] == expected


def whole_of(parts: Iterable[History]) -> History:
    whole = History()
    for part in parts:
        whole.add(part.reduced())
    return whole


def told(ts: int, epoch: int, leader: int, partition: int = 0) -> dict[str, Any]:
    """A state of a topic without id; its ISR is its leader."""
    return state(epoch, leader, [leader]) | {"topic_id": bytes(16), "ts": ts, "partition": partition}


def deletion(ts: int, partition: int = 0) -> dict[str, Any]:
    return told(ts, BEING_DELETED, BEING_DELETED, partition) | {"isr": [], "partition_epoch": 0}


CREATED_AGAIN = [
    told(1, 0, 1), told(2, 1, 2), deletion(3), told(4, 1, 2), told(5, 0, 3), told(6, 1, 1), told(7, 2, 3), deletion(8),
    told(9, 0, 2), told(10, 1, 1),
]  # fmt: skip
"""The states of three topics of one name, one after another: of 1, 2 and 1 changes."""


@pytest.mark.parametrize("limit", [100, 2])
@pytest.mark.parametrize("step", [1, 4, 10])
def test_a_topic_that_is_created_again_without_an_id_has_a_history_of_its_own(step: int, limit: int) -> None:
    whole = History()
    for at in range(0, len(CREATED_AGAIN), step):
        whole.add(pa.Table.from_pylist(CREATED_AGAIN[at : at + step], schema=STATES))
        whole.limit(limit)
    totals, _ = whole.counts(10)
    expected = {"partitions": 1, "partitions_moved": 1, "leader_changes": 4, "leader_lost": 0, "isr_swaps": 4}
    assert totals == expected | {"isr_shrinks": 0, "isr_expands": 0}


def test_deletions_beyond_the_limit_count_no_partition() -> None:
    found = History()
    found.add(pa.Table.from_pylist([deletion(1), deletion(2)], schema=STATES))
    found.limit(1)
    assert found.counts(10)[0]["partitions"] == 0


def test_incarnations_are_told_apart_whatever_task_reads_their_states() -> None:
    parts = [History() for _ in range(3)]
    for number, row in enumerate([*CREATED_AGAIN, told(1, 0, 1, 7), deletion(5, 7), told(6, 0, 2, 7)]):
        parts[number % 3].add(pa.Table.from_pylist([row], schema=STATES))
    totals, _ = whole_of(reversed(parts)).counts(10)
    assert (totals["leader_changes"], totals["partitions"]) == (4, 2)


def _changes(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The totals, by reading each partition's states one after the other."""
    kinds = ("leader_changes", "leader_lost", "isr_shrinks", "isr_expands", "isr_swaps")
    totals = dict.fromkeys(("partitions", "partitions_moved", *kinds), 0)
    for partition in {row["partition"] for row in rows}:
        states = [row for row in rows if row["partition"] == partition]
        states.sort(
            key=lambda row: (row["leader_epoch"], row["leader"], struct.pack(f"={len(row['isr'])}i", *row["isr"]))
        )
        moves = 0
        for earlier, later in pairwise(states):
            old, new = set(earlier["isr"]), set(later["isr"])
            moves += earlier["leader"] != later["leader"]
            totals["leader_lost"] += earlier["leader"] != later["leader"] == -1
            totals["isr_shrinks"] += new < old
            totals["isr_expands"] += new > old
            totals["isr_swaps"] += not (new <= old or new >= old)
        totals["leader_changes"] += moves
        totals["partitions_moved"] += moves > 0
        totals["partitions"] += 1
    return totals
