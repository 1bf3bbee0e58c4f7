"""The placement of new partitions' replicas on brokers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["place_replicas"]


def place_replicas(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    *,
    first: int | None = None,
    draw: random.Random | None = None,
) -> dict[int, tuple[int, ...]]:
    """Spread leaders over the brokers in turn, and followers so that one broker's leaders have different followers.

    >>> place_replicas([0, 1, 2], range(3), 2, first=0, draw=random.Random(1))
    {0: (0, 1), 1: (1, 2), 2: (2, 0)}

    Args:
        brokers: The ids of the brokers to choose from, at least ``replication_factor``.
        partitions: The numbers of the new partitions.
        replication_factor: The number of replicas of each.
        first: The index of the broker that leads partition 0, and the one from which followers are counted; drawn if
            None.
        draw: Draws the beginning.
    """
    draw = draw or random.Random()  # noqa: S311  (placement is no secret)
    start = draw.randrange(len(brokers)) if first is None else first
    shift = draw.randrange(len(brokers)) if first is None else first
    placed = {}
    for partition in partitions:
        leader = (partition + start) % len(brokers)
        turn = shift + partition // len(brokers)
        followers = [
            (leader + 1 + (turn + n) % (len(brokers) - 1)) % len(brokers) for n in range(replication_factor - 1)
        ]
        placed[partition] = tuple(brokers[i] for i in (leader, *followers))
    return placed
