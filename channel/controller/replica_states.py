"""The replica state machine: replicas that are created, follow, go offline with their broker, and are deleted."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.types import NO_LEADER, LeaderAndIsr
from kproto.types import TopicPartition

from .leader_election import with_leader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .batch import ControllerBrokerRequestBatch
    from .controlled_cluster import ControlledCluster


class ReplicaStatus(Enum):
    """The state of a replica; a replica that the machine does not know is NON_EXISTENT."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


_SERVING: Final = frozenset(
    {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
)

PREVIOUS_STATES: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: _SERVING,
    ReplicaStatus.OFFLINE: _SERVING,
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
"""The previous states that each state may follow."""

_DELETION: Final = (
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_SUCCESSFUL,
    ReplicaStatus.DELETION_INELIGIBLE,
)


def replicas_by_broker(
    partitions: Iterable[tuple[TopicPartition, Iterable[int]]],
) -> dict[int, list[TopicPartition]]:
    """Group partitions by broker, from the brokers of each partition."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp, broker_ids in partitions:
        for broker_id in broker_ids:
            by_broker.setdefault(broker_id, []).append(tp)
    return by_broker


class ReplicaStateMachine:
    """The states of all replicas; on the event thread only.

    Replicas are given as the partitions of each broker.
    """

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self._states: dict[int, dict[TopicPartition, ReplicaStatus]] = {}
        self._in_deletion: Counter[tuple[str, ReplicaStatus]] = Counter()

    def startup(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the states of all replicas of partitions: online ones get LeaderAndIsr, the others leave their ISRs."""
        context = self._cluster.context
        online: dict[int, list[TopicPartition]] = {}
        offline: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            for broker_id in context.partition_replica_assignment(tp):
                is_online = context.is_replica_online(broker_id, tp)
                there = online if is_online else offline
                if broker_id in there:
                    there[broker_id].append(tp)
                else:
                    there[broker_id] = [tp]
                # A broker may have died while there was no controller: deletions on it have to wait.
                self._put(broker_id, tp, ReplicaStatus.ONLINE if is_online else ReplicaStatus.DELETION_INELIGIBLE)
        self.change(online, ReplicaStatus.ONLINE)
        self.change(offline, ReplicaStatus.OFFLINE)

    def shutdown(self) -> None:
        """Forget all replicas."""
        self._states.clear()
        self._in_deletion.clear()

    def state(self, broker_id: int, tp: TopicPartition) -> ReplicaStatus:
        """The state of a replica."""
        return self._states.get(broker_id, {}).get(tp, ReplicaStatus.NON_EXISTENT)

    def any_in_state(self, topic: str, state: ReplicaStatus) -> bool:
        """Whether a replica of a topic is in one of the states of its deletion."""
        return self._in_deletion[topic, state] > 0

    def count_in_state(self, topic: str, state: ReplicaStatus) -> int:
        """The number of a topic's replicas that are in one of the states of its deletion."""
        return self._in_deletion[topic, state]

    def replicas_in_state(self, topic: str, state: ReplicaStatus) -> dict[int, list[TopicPartition]]:
        """The replicas of a topic that are in a state."""
        context = self._cluster.context
        return replicas_by_broker(
            (tp, [b for b in context.partition_replica_assignment(tp) if self.state(b, tp) is state])
            for tp in context.partitions_for_topic(topic)
        )

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all replicas of partitions, whatever their state."""
        for tp in partitions:
            for broker_id, states in self._states.items():
                if tp in states:
                    self._put(broker_id, tp, ReplicaStatus.NON_EXISTENT)

    def change(self, replicas: Mapping[int, Collection[TopicPartition]], target: ReplicaStatus) -> None:
        """Move replicas to a state, if it may follow their present state, and send the requests to their brokers.

        A replica that cannot move stays in its state; the state-change log says so.

        Raises:
            ControllerMoved: Another controller has been elected.
            IllegalState: Requests could not be made or queued.
        """
        if not any(replicas.values()):
            return
        with self._cluster.requests() as batch:
            valid = {b: self._valid(b, partitions, target) for b, partitions in replicas.items()}
            if target is ReplicaStatus.ONLINE:
                self._bring_online(batch, valid)
                return
            for broker_id, partitions in valid.items():
                if partitions:
                    self._change_on_broker(batch, broker_id, partitions, target)

    def _valid(
        self, broker_id: int, partitions: Collection[TopicPartition], target: ReplicaStatus
    ) -> list[TopicPartition]:
        """The replicas that may move to a state."""
        allowed, states, valid = tuple(PREVIOUS_STATES[target]), self._states.get(broker_id, {}), []
        for tp in partitions:
            state = states.get(tp, ReplicaStatus.NON_EXISTENT)
            if state in allowed:  # a tuple: compared by identity, where a set would hash
                valid.append(tp)
            else:
                self._log_invalid(broker_id, tp, target, f"it is {state.value}")
        return valid

    def _change_on_broker(
        self,
        batch: ControllerBrokerRequestBatch,
        broker_id: int,
        partitions: list[TopicPartition],
        target: ReplicaStatus,
    ) -> None:
        if target is ReplicaStatus.NEW:
            self._create(batch, broker_id, partitions)
        elif target is ReplicaStatus.OFFLINE:
            self._take_offline(batch, broker_id, partitions)
        else:
            for tp in partitions:
                if target is ReplicaStatus.DELETION_STARTED:
                    batch.add_stop_replica_request_for_brokers([broker_id], tp, True)
                elif target is ReplicaStatus.NON_EXISTENT:
                    self._unassign(broker_id, tp)
                self._put(broker_id, tp, target)

    def _create(self, batch: ControllerBrokerRequestBatch, broker_id: int, partitions: list[TopicPartition]) -> None:
        context = self._cluster.context
        for tp in partitions:
            info = context.partition_leadership_info(tp)
            if info is not None:
                if info.leader_and_isr.leader == broker_id:
                    self._log_invalid(broker_id, tp, ReplicaStatus.NEW, "it leads the partition already")
                    continue
                assignment = context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers([broker_id], tp, info, assignment, True)
            self._put(broker_id, tp, ReplicaStatus.NEW)

    def _bring_online(self, batch: ControllerBrokerRequestBatch, replicas: Mapping[int, list[TopicPartition]]) -> None:
        """Send LeaderAndIsr to the replicas, each partition's state once for all of its replicas."""
        context, told = self._cluster.context, dict[TopicPartition, tuple[int, ...]]()
        groups: dict[tuple[int, ...], tuple[int, ...]] = {}  # partitions with the same replicas share one tuple
        for broker_id, partitions in replicas.items():
            states = self._states.setdefault(broker_id, {})
            for tp in partitions:
                if states[tp] is ReplicaStatus.NEW:
                    self._assign(broker_id, tp)
                else:
                    group = (*told.get(tp, ()), broker_id)
                    told[tp] = groups.setdefault(group, group)
                self._put(broker_id, tp, ReplicaStatus.ONLINE)
        for tp, broker_ids in told.items():
            info = context.partition_leadership_info(tp)
            if info is not None:
                assignment = context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers(broker_ids, tp, info, assignment, False)

    def _take_offline(
        self, batch: ControllerBrokerRequestBatch, broker_id: int, partitions: list[TopicPartition]
    ) -> None:
        context = self._cluster.context
        in_isr = []
        for tp in partitions:
            batch.add_stop_replica_request_for_brokers([broker_id], tp, False)
            if context.partition_leadership_info(tp) is None:
                batch.add_update_metadata_request_for_brokers(context.live_or_shutting_down_broker_ids, [tp])
            elif tp.topic not in context.topics_to_be_deleted:
                in_isr.append(tp)
                continue
            self._put(broker_id, tp, ReplicaStatus.OFFLINE)

        def without_broker(_: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            if broker_id not in state.isr:
                return state
            leader = NO_LEADER if state.leader == broker_id else state.leader
            isr = state.isr if len(state.isr) == 1 else tuple([b for b in state.isr if b != broker_id])
            return with_leader(state, leader, isr)

        known = {tp: context.partition_leadership_info(tp) for tp in in_isr}
        done, failed = self._cluster.change_states(in_isr, without_broker)
        for tp, reason in failed.items():
            self._log_invalid(broker_id, tp, ReplicaStatus.OFFLINE, reason)
        unchanged = []
        for tp, info in done.items():
            if info == known[tp]:
                unchanged.append(tp)  # its replicas know this leader epoch, but not that a replica is offline
            else:
                assignment = context.partition_full_replica_assignment(tp)
                others = [b for b in assignment.replicas if b != broker_id]
                batch.add_leader_and_isr_request_for_brokers(others, tp, info, assignment, False)
            self._put(broker_id, tp, ReplicaStatus.OFFLINE)
        if unchanged:
            batch.add_update_metadata_request_for_brokers(context.live_or_shutting_down_broker_ids, unchanged)

    def _assign(self, broker_id: int, tp: TopicPartition) -> None:
        context = self._cluster.context
        assignment = context.partition_full_replica_assignment(tp)
        if broker_id not in assignment.replicas:
            wider = assignment._replace(replicas=(*assignment.replicas, broker_id))
            context.update_partition_full_replica_assignment(tp, wider)

    def _unassign(self, broker_id: int, tp: TopicPartition) -> None:
        context = self._cluster.context
        context.update_partition_full_replica_assignment(
            tp, context.partition_full_replica_assignment(tp).without(broker_id)
        )

    def _put(self, broker_id: int, tp: TopicPartition, state: ReplicaStatus) -> None:
        states = self._states.get(broker_id)
        if states is None:
            states = self._states[broker_id] = {}
        before = states.get(tp)
        if before in _DELETION:
            self._count(tp.topic, before, -1)
        if state is ReplicaStatus.NON_EXISTENT:
            states.pop(tp, None)
        else:
            states[tp] = state
            if state in _DELETION:
                self._count(tp.topic, state, 1)

    def _count(self, topic: str, state: ReplicaStatus, step: int) -> None:
        self._in_deletion[topic, state] += step
        if not self._in_deletion[topic, state]:
            del self._in_deletion[topic, state]

    def _log_invalid(self, broker_id: int, tp: TopicPartition, target: ReplicaStatus, reason: str) -> None:
        epoch, log = self._cluster.context.epoch, self._cluster.state_log
        log.error(epoch, "replica %d of %s cannot become %s: %s", broker_id, tp, target.value, reason)
