"""The placement of new partitions' replicas on brokers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["place_replicas"]


def place_replicas(
    brokers: Mapping[int, str | None],
    partitions: range,
    replication_factor: int,
    *,
    first: int | None = None,
    draw: random.Random | None = None,
) -> dict[int, tuple[int, ...]]:
    """Place leaders on the brokers in turn, and followers so that one broker's leaders have different followers.

    The replicas of a partition are spread evenly over the racks. If a broker has no rack, racks do not count.

    >>> place_replicas({0: None, 1: None, 2: None}, range(3), 2, first=0)
    {0: (0, 1), 1: (1, 2), 2: (2, 0)}
    >>> place_replicas({0: "a", 1: "a", 2: "b", 3: "b"}, range(2), 2, first=0)
    {0: (0, 2), 1: (2, 1)}

    Args:
        brokers: The brokers to choose from, at least ``replication_factor``, and the rack of each.
        partitions: The numbers of the new partitions.
        replication_factor: The number of replicas of each.
        first: The broker that leads partition 0, and from which followers are counted; drawn if None.
        draw: Draws ``first``.
    """
    draw = draw or random.Random()  # noqa: S311  (placement is no secret)
    racks = (
        {broker: rack or "" for broker, rack in brokers.items()}
        if all(brokers.values())
        else dict.fromkeys(brokers, "")
    )
    ordered = _alternating(racks)
    start = draw.randrange(len(ordered)) if first is None else ordered.index(first)
    shift = draw.randrange(len(ordered)) if first is None else start
    placed = {}
    for partition in partitions:
        leader = (partition + start) % len(ordered)
        others = ordered[leader + 1 :] + ordered[:leader]
        turn = (shift + partition // len(ordered)) % len(others) if others else 0
        placed[partition] = _with_followers(ordered[leader], others[turn:] + others[:turn], replication_factor, racks)
    return placed


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers with alternating racks, as long as each rack has brokers left."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = itertools.zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def _with_followers(leader: int, others: list[int], count: int, racks: Mapping[int, str]) -> tuple[int, ...]:
    """Return the leader and its followers: the first of the others from racks with the fewest replicas so far."""
    replicas, used = [leader], Counter([racks[leader]])
    while len(replicas) < count:
        follower = min((b for b in others if b not in replicas), key=lambda b: used[racks[b]])
        replicas.append(follower)
        used[racks[follower]] += 1
    return tuple(replicas)
