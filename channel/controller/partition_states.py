"""The partition state machine: the states of partitions, and the elections of their leaders."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.logs import bounded
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch
from kproto.api import ibp_at_least
from kproto.types import TopicPartition

from .leader_election import ELECTIONS, Elected, Election

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .controlled_cluster import ControlledCluster

UNCLEAN: Final = "unclean.leader.election.enable"


class PartitionState(Enum):
    """The state of a partition; a partition that the machine does not know is NON_EXISTENT."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


PREVIOUS_STATES: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}
"""The previous states that each state may follow."""


class PartitionStateMachine:
    """The states of all partitions; on the event thread only.

    Args:
        cluster: The cluster.

    Attributes:
        unclean_elections: The number of unclean elections so far.
    """

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self._states: dict[TopicPartition, PartitionState] = {}
        self._without_leader: dict[TopicPartition, None] = {}  # New and Offline ones, in order
        self._recovers = ibp_at_least(cluster.config.inter_broker_protocol_version, "3.2-IV0")
        self.unclean_elections = 0

    def startup(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the states of partitions, and elect leaders for those without an online leader."""
        context = self._cluster.context
        for tp in partitions:
            info = context.partition_leadership_info(tp)
            if info is None:
                self._put(tp, PartitionState.NEW)
            elif context.is_replica_online(info.leader_and_isr.leader, tp):
                self._put(tp, PartitionState.ONLINE)
            else:
                self._put(tp, PartitionState.OFFLINE)
        self.elect_for_waiting_partitions()

    def shutdown(self) -> None:
        """Forget all partitions."""
        self._states.clear()
        self._without_leader.clear()

    def state(self, tp: TopicPartition) -> PartitionState:
        """The state of a partition."""
        return self._states.get(tp, PartitionState.NON_EXISTENT)

    @property
    def offline_partitions(self) -> list[TopicPartition]:
        """The offline partitions, without those of topics queued for deletion."""
        deleted = self._cluster.context.topics_to_be_deleted
        return [tp for tp in list(self._without_leader) if tp.topic not in deleted and not self._is_new(tp)]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions, whatever their state."""
        for tp in partitions:
            self._put(tp, PartitionState.NON_EXISTENT)

    def elect_for_waiting_partitions(self, topic: str | None = None) -> set[TopicPartition]:
        """Elect leaders for all New and Offline partitions, or those of one topic, that are not to be deleted.

        A partition that is being reassigned needs a leader even if its topic is to be deleted, as the deletion waits
        for the reassignment; in Kafka both wait until a broker of the topic is started again.

        Returns:
            The partitions that have a leader now.
        """
        deleted, moving = self._cluster.context.topics_to_be_deleted, self._cluster.context.partitions_being_reassigned
        waiting = [
            tp
            for tp in self._without_leader
            if (topic is None or tp.topic == topic) and (tp.topic not in deleted or tp in moving)
        ]
        failed = self.change(waiting, PartitionState.ONLINE, Election.OFFLINE)
        return {tp for tp in waiting if tp not in failed}

    def change(
        self, partitions: Iterable[TopicPartition], target: PartitionState, election: Election = Election.OFFLINE
    ) -> dict[TopicPartition, str]:
        """Move partitions to a state, if it may follow their present state; ONLINE creates or elects leaders.

        Args:
            partitions: The partitions.
            target: The state.
            election: The kind of the election for those that had a leader before.

        Returns:
            The partitions that did not reach the state, with the reasons.

        Raises:
            ControllerMoved: Another controller has been elected.
            IllegalState: Requests could not be made or queued.
        """
        allowed, failed = PREVIOUS_STATES[target], dict[TopicPartition, str]()
        valid = []
        for tp in partitions:
            if self.state(tp) in allowed:
                valid.append(tp)
            else:
                failed[tp] = f"it is {self.state(tp).value}"
        if target is PartitionState.ONLINE:
            if valid:
                self._bring_online(valid, election, failed)
        else:
            for tp in valid:
                self._put(tp, target)
        for tp, reason in failed.items():
            self._cluster.state_log.error(
                self._cluster.context.epoch, "%s cannot become %s: %s", tp, target.value, bounded(reason)
            )
        return failed

    def _is_new(self, tp: TopicPartition) -> bool:
        return self._states.get(tp) is PartitionState.NEW

    def _put(self, tp: TopicPartition, state: PartitionState) -> None:
        if state is PartitionState.NON_EXISTENT:
            self._states.pop(tp, None)
            self._without_leader.pop(tp, None)
            return
        self._states[tp] = state
        if state is PartitionState.ONLINE:
            self._without_leader.pop(tp, None)
        else:
            self._without_leader[tp] = None

    def _bring_online(
        self, partitions: Sequence[TopicPartition], election: Election, failed: dict[TopicPartition, str]
    ) -> None:
        cluster = self._cluster
        created = self._create([tp for tp in partitions if self._is_new(tp)], failed)
        elected = self._elect([tp for tp in partitions if not self._is_new(tp)], election, failed)
        with cluster.requests() as batch:
            for tp, (info, recipients, is_new) in (created | elected).items():
                assignment = cluster.context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers(recipients, tp, info, assignment, is_new)
        for tp in created | elected:
            self._put(tp, PartitionState.ONLINE)

    def _create(
        self, partitions: Sequence[TopicPartition], failed: dict[TopicPartition, str]
    ) -> dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, tuple[int, ...], bool]]:
        """Create states of new partitions: the first online replica leads, all online replicas are in the ISR."""
        context, states = self._cluster.context, dict[TopicPartition, LeaderIsrAndControllerEpoch]()
        for tp in partitions:
            replicas = context.partition_replica_assignment(tp)
            online = tuple([r for r in replicas if context.is_replica_online(r, tp)])
            if online:
                states[tp] = LeaderIsrAndControllerEpoch(LeaderAndIsr(online[0], online), context.epoch)
            else:
                failed[tp] = f"none of its replicas {list(replicas)} is online"
        if not states:
            return {}
        created = {}
        for tp, write in self._cluster.store.create_partition_states(states).items():
            if isinstance(write, int):
                context.put_partition_leadership_info(tp, states[tp])
                created[tp] = states[tp], states[tp].leader_and_isr.isr, True
            else:
                failed[tp] = write or "its state exists already"
        return created

    def _elect(
        self, partitions: Sequence[TopicPartition], election: Election, failed: dict[TopicPartition, str]
    ) -> dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, tuple[int, ...], bool]]:
        if not partitions:
            return {}
        cluster, recipients = self._cluster, dict[TopicPartition, tuple[int, ...]]()
        unclean, unclean_leaders = dict[str, bool](), dict[TopicPartition, bool]()

        def elect(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            winner = ELECTIONS[election](cluster.context, tp, state)
            if winner is None and election is Election.OFFLINE and unclean.get(tp.topic, False):
                winner = ELECTIONS[Election.UNCLEAN](cluster.context, tp, state)
            if winner is None:
                return None
            recipients[tp] = winner.recipients
            unclean_leaders[tp] = winner.state.leader not in state.isr
            return self._recovery(winner, state)

        done, unchanged = cluster.change_states(partitions, elect)
        lost = [tp for tp, reason in unchanged.items() if not reason]
        if lost and election is Election.OFFLINE:
            unclean = self._unclean_elections({tp.topic for tp in lost})
            again = [tp for tp in lost if unclean.get(tp.topic, False)]
            if again:
                done_again, unchanged_again = cluster.change_states(again, elect)
                done |= done_again
                unchanged = {tp: reason for tp, reason in unchanged.items() if tp not in done_again} | unchanged_again
        failed.update(
            (tp, reason or f"no replica may lead it, though {election.value}") for tp, reason in unchanged.items()
        )
        self.unclean_elections += sum(unclean_leaders[tp] for tp in done)
        return {tp: (info, recipients[tp], False) for tp, info in done.items()}

    def _recovery(self, winner: Elected, state: LeaderAndIsr) -> LeaderAndIsr:
        """Return the elected state; before protocol version 3.2 it never says that the leader has to recover."""
        return winner.state if self._recovers else winner.state._replace(recovery_state=state.recovery_state)

    def _unclean_elections(self, topics: set[str]) -> dict[str, bool]:
        """Return, for each topic, whether it allows unclean elections."""
        store = self._cluster.store
        configs, default = store.read_topic_configs(topics), store.read_default_config()
        static = str(self._cluster.config.unclean_leader_election_enable)
        return {
            topic: (configs.get(topic, {}).get(UNCLEAN) or default.get(UNCLEAN, static)).strip().lower() == "true"
            for topic in topics
        }
