"""The in-sync replicas of the partitions that a broker leads: silent followers leave, fetching followers come back.

There are no records to fetch. A follower counts as in sync as long as it fetches from this leader in this leader
epoch; a follower that has not fetched for ``replica.lag.time.max.ms`` leaves the ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproto.types import TopicPartition, Uuid

    from .embedded import EmbeddedBroker
    from .replicas import HostedReplica

__all__ = ["IsrProposal", "LedPartitions"]


class IsrProposal(NamedTuple):
    """A leader's new ISR for a partition, valid for one leader epoch and partition epoch.

    Attributes:
        tp: The partition.
        topic_id: The id of the partition's topic, the zero id if it has none.
        isr: The proposed in-sync replicas, as broker ids.
        leader_epoch, partition_epoch, controller_epoch: The epochs of the state that the proposal replaces.
    """

    tp: TopicPartition
    topic_id: Uuid
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int


class LedPartitions:
    """The partitions that one broker leads, and the times since which their followers have been silent.

    Args:
        broker: The leader.
        is_fetching: Returns whether a broker fetches a partition from this leader in this leader epoch.
        lag_max_ms: The time after which a silent follower leaves the ISR.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        is_fetching: Callable[[int, TopicPartition, HostedReplica], bool],
        lag_max_ms: int,
    ) -> None:
        self.broker = broker
        self._is_fetching = is_fetching
        self._lag_max_ms = lag_max_ms
        self._silent_since: dict[tuple[TopicPartition, int], int] = {}
        self._pending: dict[TopicPartition, IsrProposal] = {}

    def proposals(self, now: int) -> list[IsrProposal]:
        """Return the ISR changes to propose, without partitions whose present state has an unanswered proposal."""
        replicas = self.broker.replicas
        silent_since: dict[tuple[TopicPartition, int], int] = {}
        found = []
        with replicas.lock:
            for tp, replica in replicas.hosted.items():
                if replica.role != "leader" or replica.offline:
                    continue
                isr = self._isr(tp, replica, now, silent_since)
                if set(isr) == set(replica.isr):
                    continue
                topic_id = replicas.logs.get(tp, b"\0" * 16)
                proposal = IsrProposal(
                    tp, topic_id, isr, replica.leader_epoch, replica.partition_epoch, replica.controller_epoch
                )
                if not self._is_pending(proposal):
                    self._pending[tp] = proposal
                    found.append(proposal)
        self._silent_since = silent_since
        return found

    def _isr(
        self,
        tp: TopicPartition,
        replica: HostedReplica,
        now: int,
        silent_since: dict[tuple[TopicPartition, int], int],
    ) -> tuple[int, ...]:
        """Return the ISR that the partition should have, and note its silent followers."""
        isr = []
        for follower in replica.replicas:
            if follower == self.broker.broker_id or self._is_fetching(follower, tp, replica):
                isr.append(follower)
            elif follower in replica.isr:
                since = silent_since[tp, follower] = self._silent_since.get((tp, follower), now)
                if now - since < self._lag_max_ms:
                    isr.append(follower)
        return tuple(isr)

    def _is_pending(self, proposal: IsrProposal) -> bool:
        pending = self._pending.get(proposal.tp)
        return pending is not None and pending[3:5] == proposal[3:5]

    def accepted(self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take over the ISR that the controller, or ZooKeeper, has stored, unless the partition has changed since."""
        self._pending.pop(proposal.tp, None)
        replicas = self.broker.replicas
        with replicas.lock:
            replica = replicas.hosted.get(proposal.tp)
            if (
                replica is not None
                and replica.role == "leader"
                and replica.leader_epoch == proposal.leader_epoch
                and replica.partition_epoch < partition_epoch
            ):
                replica.isr, replica.partition_epoch = isr, partition_epoch

    def refused(self, proposal: IsrProposal) -> None:
        """Forget a proposal; a later check repeats it if it is still due."""
        self._pending.pop(proposal.tp, None)
