"""Placement of new replicas, and a partition's next leader and ISR, as a scripted controller decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.errors import BrokerNotAvailable
from channel.types import LeaderAndIsr, LeaderRecoveryState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["next_state", "spread"]


def spread(live: Sequence[int], partitions: int, replication_factor: int) -> list[list[int]]:
    """Assign replicas to each partition, round-robin over the live brokers.

    Raises:
        ValueError: A number is below 1.
        BrokerNotAvailable: There are fewer live brokers than replicas.
    """
    if partitions < 1 or replication_factor < 1:
        raise ValueError(f"{partitions} partitions of {replication_factor} replicas; each must be at least 1")
    if replication_factor > len(live):
        raise BrokerNotAvailable(f"{replication_factor} replicas need as many live brokers, there are {len(live)}")
    return [[live[(p + r) % len(live)] for r in range(replication_factor)] for p in range(partitions)]


def next_state(
    state: LeaderAndIsr,
    leader: int,
    isr: Sequence[int],
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
) -> LeaderAndIsr:
    """Return the state after a change of leader or ISR: each change raises leader epoch and partition epoch."""
    return LeaderAndIsr(leader, tuple(isr), state.leader_epoch + 1, state.partition_epoch + 1, recovery)
