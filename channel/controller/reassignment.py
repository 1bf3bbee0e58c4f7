"""Partition reassignment: new replicas catch up beside the old replicas, then the old replicas are removed.

Until the target replicas are all in the ISR, a partition has old and new replicas. Its assignment in ZooKeeper names
the added and the removed replicas, so that another controller can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.logs import bounded
from channel.types import ReplicaAssignment
from kproto.error_codes import ErrorCode

from .leader_election import Election
from .partitions import PartitionState
from .replicas import ReplicaState
from .store import TopicAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kproto.types import TopicPartition

    from .cluster import ControlledCluster
    from .cluster_events import ApiPartitionReassignment, ListPartitionReassignments
    from .deletion import TopicDeletions
    from .partitions import PartitionStateMachine
    from .replicas import ReplicaStateMachine

__all__ = ["Reassignments"]


class Reassignments:
    """The partitions that are being reassigned; on the event thread only.

    Args:
        cluster: The cluster.
        partitions, replicas: The state machines.
        deletions: The topics that are being deleted.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deletions: TopicDeletions,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._replicas = replicas
        self._deletions = deletions
        self._requested: Mapping[TopicPartition, tuple[int, ...]] = {}

    def startup(self) -> None:
        """Begin the reassignments that administrators request in ZooKeeper, and continue those that are under way."""
        begun = self.process_zookeeper()
        self.resume(lambda tp, _: tp not in begun)

    # ---- events

    def process_zookeeper(self) -> Collection[TopicPartition]:
        """Begin the reassignments that were added to ``/admin/reassign_partitions``; returns the znode's partitions.

        The controller removes each completed partition from the znode, which is a change of the znode like others: the
        partitions that were in it before have begun already, and begin only once.
        """
        known, asked = self._requested, self._cluster.store.read_reassignments()
        self._requested = asked
        codes = self._begin_all({tp: target for tp, target in asked.items() if known.get(tp) != target})
        failed = {tp for tp, code in codes.items() if code is not ErrorCode.NONE}
        if failed:
            self._forget_requested(lambda tp, _: tp in failed)
        return asked.keys()

    def process_isr_change(self, tp: TopicPartition) -> None:
        """Complete a reassignment if the target replicas are all in the ISR that a broker has written."""
        if self._assignment(tp).is_being_reassigned:
            self._read_isr(tp)
            self.complete_if_in_sync(tp)

    def process_api(self, event: ApiPartitionReassignment) -> None:
        """Begin or cancel the reassignments that a client requests; they replace those in the znode."""
        codes = self._begin_all(event.targets, check_replicas=True)
        self._forget_requested(lambda tp, _: codes.get(tp) is ErrorCode.NONE)
        event.callback(ErrorCode.NONE, codes)

    def process_list(self, event: ListPartitionReassignments) -> None:
        """Answer with the reassignments that are under way."""
        asked = event.partitions
        found = {tp: self._assignment(tp) for tp in self._under_way() if asked is None or tp in asked}
        event.callback(ErrorCode.NONE, found)

    # ---- called by other decisions

    def resume(self, selects: Callable[[TopicPartition, ReplicaAssignment], bool]) -> None:
        """Continue the reassignments that ``selects`` accepts."""
        for tp in self._under_way():
            assignment = self._assignment(tp)
            if selects(tp, assignment):
                self._reassign(tp, assignment)

    def complete_if_in_sync(self, tp: TopicPartition) -> None:
        """Complete a partition's reassignment if it has one and its target replicas are all in the ISR."""
        assignment = self._assignment(tp)
        if assignment.is_being_reassigned and self._is_in_sync(tp, assignment):
            self._reassign(tp, assignment)

    # ---- steps

    def _read_isr(self, tp: TopicPartition) -> None:
        """Read the ISR, which a broker may have written, and watch its next change."""
        for each, info in self._cluster.store.read_partition_states([tp], watch=True).items():
            self._cluster.context.put_partition_leadership_info(each, info)

    def _under_way(self) -> list[TopicPartition]:
        return sorted(self._cluster.context.partitions_being_reassigned)

    def _assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        return self._cluster.context.partition_full_replica_assignment(tp)

    def _begin_all(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, check_replicas: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        codes = {}
        for tp, target in targets.items():
            code = self._refusal(tp, target, check_replicas=check_replicas)
            if code is ErrorCode.NONE:
                before = self._assignment(tp)
                self._reassign(tp, before.reassign_to(before.origin if target is None else target))
            else:
                self._cluster.log.warning("no reassignment of %s to %s: %s", tp, bounded(target), code.name)
            codes[tp] = code
        return codes

    def _refusal(self, tp: TopicPartition, target: tuple[int, ...] | None, *, check_replicas: bool) -> ErrorCode:
        """The error of a request for a reassignment; as in Kafka a wrong target counts before an unknown partition."""
        assignment = self._assignment(tp)
        if target is None:
            if not assignment.is_being_reassigned:
                return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        else:
            added = set(target) - set(assignment.replicas)
            can_be = bool(target) and len(set(target)) == len(target) and min(target) >= 0
            can_be = can_be and self._cluster.without_storage.isdisjoint(added)
            if not can_be or (check_replicas and not added <= self._cluster.context.live_broker_ids):
                return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not assignment.replicas or self._deletions.is_queued(tp.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _is_in_sync(self, tp: TopicPartition, assignment: ReplicaAssignment) -> bool:
        info = self._cluster.context.partition_leadership_info(tp)
        return info is not None and set(assignment.target) <= set(info.leader_and_isr.isr)

    def _reassign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Store an assignment, and take the next step to its target."""
        self._deletions.halt_for_reassignment(tp.topic)
        self._take_up(tp, assignment)
        if assignment.is_being_reassigned and not self._is_in_sync(tp, assignment):
            self._cluster.raise_leader_epoch(tp)
            self._replicas.change({b: [tp] for b in assignment.adding}, ReplicaState.NEW)
            self._cluster.log.info("reassigning %s: %s", tp, assignment)
            return
        self._complete(tp, assignment)

    def _take_up(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Write an assignment, and stop replicas that an earlier reassignment was adding."""
        before, context = self._assignment(tp), self._cluster.context
        if assignment != before:
            self._write(tp, assignment)
            context.update_partition_full_replica_assignment(tp, assignment)
            dropped = [b for b in before.replicas if b not in assignment.replicas]
            if dropped:
                self._stop(tp, dropped)
        context.partitions_being_reassigned.add(tp)
        if self._cluster.brokers_write_isr:
            self._read_isr(tp)

    def _complete(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        cluster, context = self._cluster, self._cluster.context
        done = ReplicaAssignment(assignment.target)
        self._replicas.change({b: [tp] for b in assignment.adding}, ReplicaState.ONLINE)
        context.update_partition_full_replica_assignment(tp, done)
        info = context.partition_leadership_info(tp)
        leader = None if info is None else info.leader_and_isr.leader
        if leader in done.replicas and context.is_replica_online(leader, tp):
            cluster.raise_leader_epoch(tp)
        else:
            self._partitions.change([tp], PartitionState.ONLINE, Election.REASSIGNMENT)
        self._stop(tp, assignment.removing)
        self._write(tp, done)
        context.partitions_being_reassigned.discard(tp)
        self._forget_requested(lambda each, target: each == tp and target == done.replicas)
        cluster.send_update_metadata_to_all([tp])
        cluster.log.info("%s is reassigned to %s", tp, list(done.replicas))
        self._deletions.resume_for([tp.topic])

    def _stop(self, tp: TopicPartition, broker_ids: Iterable[int]) -> None:
        """Remove replicas from the ISR, and send StopReplica, with deletion, to their brokers."""
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            self._replicas.change({b: [tp] for b in broker_ids}, state)

    def _write(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Write a partition's assignment into the topic's znode."""
        context = self._cluster.context
        partitions = {
            each.partition: context.partition_full_replica_assignment(each)
            for each in context.partitions_for_topic(tp.topic)
        }
        topic = TopicAssignment(partitions | {tp.partition: assignment}, context.topic_ids.get(tp.topic))
        if not self._cluster.store.write_assignment(tp.topic, topic, self._cluster.fence):
            self._cluster.log.error("the assignment of %s is not written: its topic has no znode", tp)

    def _forget_requested(self, is_done: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove reassignments from ``/admin/reassign_partitions``."""
        store = self._cluster.store
        asked = store.read_reassignments(watch=False)
        left = {tp: target for tp, target in asked.items() if not is_done(tp, target)}
        if len(left) < len(asked):
            store.write_reassignments(left, self._cluster.fence)
            self._requested = {tp: target for tp, target in self._requested.items() if tp in left}
