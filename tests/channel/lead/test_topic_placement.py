"""Where replicas of new partitions go: evenly over brokers, and over racks where every broker has one."""

import random
from collections import Counter

import pytest

from channel.lead.new_topics import place_replicas

RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", range(1, 7))
def test_replicas_of_a_partition_are_spread_over_the_racks(factor: int, seed: int) -> None:
    placed = place_replicas(RACKS, range(60), factor, draw=random.Random(seed))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        used = Counter(RACKS[b] for b in replicas)
        assert max(used.values()) - min(used.get(rack, 0) for rack in "abc") <= 1
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert set(leaders.values()) == {10}
    hosted = Counter(b for replicas in placed.values() for b in replicas)
    assert max(hosted.values()) - min(hosted.values()) <= 6 * factor // 2


def test_racks_of_different_sizes() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    placed = place_replicas(racks, range(8), 2, first=0)
    assert all({racks[b] for b in replicas} == {"a", "b"} for replicas in placed.values())
    placed = place_replicas(racks, range(4), 4, first=0)
    assert all(set(replicas) == {0, 1, 2, 3} for replicas in placed.values())


def test_racks_do_not_count_if_a_broker_has_none() -> None:
    mixed = {**RACKS, 6: None}
    without = dict.fromkeys(mixed)
    assert place_replicas(mixed, range(20), 3, first=2) == place_replicas(without, range(20), 3, first=2)


def test_one_broker_holds_everything() -> None:
    assert place_replicas({7: "a"}, range(2), 1) == {0: (7,), 1: (7,)}


def test_leaders_follow_the_first_and_their_followers_differ() -> None:
    placed = place_replicas(dict.fromkeys(range(3)), range(1, 7), 2, first=1)
    assert [replicas[0] for replicas in placed.values()] == [2, 0, 1, 2, 0, 1]
    assert {replicas for replicas in placed.values() if replicas[0] == 0} == {(0, 2), (0, 1)}
