"""Partition reassignment: new replicas catch up beside the old replicas, then the old replicas are removed.

Until the target replicas are all in the ISR, a partition has old and new replicas. Its assignment in ZooKeeper names
the added and the removed replicas, so that another controller can go on.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from channel.logs import bounded
from channel.types import ReplicaAssignment
from kproto.error_codes import ErrorCode

from .leader_election import Election
from .state_machines import PartitionState, ReplicaStatus, replicas_by_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kproto.types import TopicPartition

    from .state_machines import ControlledCluster
    from .topic_deletion import TopicDeletions


class Reassignments:
    """The partitions that are being reassigned; on the event thread only.

    Args:
        deletions: The topics that are being deleted.
    """

    def __init__(self, cluster: ControlledCluster, deletions: TopicDeletions) -> None:
        self._cluster = cluster
        self._deletions = deletions
        self._requested: Mapping[TopicPartition, tuple[int, ...]] = {}

    def startup(self) -> None:
        """Begin the reassignments that administrators request in ZooKeeper, and continue those that are under way."""
        begun = self.process_zookeeper()
        self.resume(lambda tp, _: tp not in begun)

    # ---- events

    def process_zookeeper(self) -> Collection[TopicPartition]:
        """Begin the reassignments that were added to ``/admin/reassign_partitions``; returns those that have begun.

        The controller removes each completed partition from the znode, which is a change of the znode like others: the
        partitions that were in it before have begun already, and begin only once.
        """
        known, asked = self._requested, self._cluster.store.read_reassignments()
        self._requested = asked
        codes = self._begin_all({tp: target for tp, target in asked.items() if known.get(tp) != target})
        begun = {tp for tp, code in codes.items() if code is ErrorCode.NONE}
        if len(begun) < len(codes):
            self._forget_requested(lambda tp, _: tp in codes and tp not in begun)
        return begun

    def process_isr_change(self, tp: TopicPartition) -> None:
        """Complete a reassignment if the target replicas are all in the ISR that a broker has written."""
        if self._assignment(tp).is_being_reassigned:
            self._read_isrs([tp])
            self.complete_those_in_sync([tp])

    # ---- called by other decisions

    def begin(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, ErrorCode]:
        """Begin the reassignments that a client requests, which replace those in the znode; None cancels one.

        Returns:
            The error code of each partition.
        """
        codes = self._begin_all(targets, check_replicas=True)
        self._forget_requested(lambda tp, _: codes.get(tp) is ErrorCode.NONE)
        return codes

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments that are under way."""
        return {tp: self._assignment(tp) for tp in sorted(self._cluster.context.partitions_being_reassigned)}

    def forget_topic(self, topic: str) -> None:
        """Withdraw the reassignments in the znode of a topic that is gone; in Kafka the next controller does."""
        if any(tp.topic == topic for tp in self._requested):
            self._forget_requested(lambda tp, _: tp.topic == topic)

    def resume(self, selects: Callable[[TopicPartition, ReplicaAssignment], bool]) -> None:
        """Continue the reassignments that ``selects`` accepts."""
        self._reassign({tp: assignment for tp, assignment in self.under_way().items() if selects(tp, assignment)})

    def complete_those_in_sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Complete the reassignments, of those among the partitions, whose target replicas are all in the ISR."""
        assignments = {tp: self._assignment(tp) for tp in partitions}
        self._reassign(
            {tp: each for tp, each in assignments.items() if each.is_being_reassigned and self._is_in_sync(tp, each)}
        )

    # ---- steps

    def _read_isrs(self, partitions: Sequence[TopicPartition]) -> None:
        """Read ISRs, which brokers may have written, and watch the next change of each."""
        for tp, info in self._cluster.store.read_partition_states(partitions, watch=True).items():
            self._cluster.context.put_partition_leadership_info(tp, info)

    def _assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        return self._cluster.context.partition_full_replica_assignment(tp)

    def _begin_all(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, check_replicas: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        codes, assignments = {}, {}
        for tp, target in targets.items():
            code = codes[tp] = self._refusal(tp, target, check_replicas=check_replicas)
            if code is ErrorCode.NONE:
                before = self._assignment(tp)
                assignments[tp] = before.reassign_to(before.origin if target is None else target)
            else:
                self._cluster.log.warning("no reassignment of %s to %s: %s", tp, bounded(target), code.name)
        self._reassign(assignments)
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
        if not assignment.replicas or tp.topic in self._cluster.context.topics_to_be_deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _is_in_sync(self, tp: TopicPartition, assignment: ReplicaAssignment) -> bool:
        info = self._cluster.context.partition_leadership_info(tp)
        return info is not None and set(assignment.target) <= set(info.leader_and_isr.isr)

    def _reassign(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Store assignments, and take the next step of each to its target.

        Partitions that take the same step take it in the same requests: each request goes to every broker.
        """
        if not assignments:
            return
        for topic in {tp.topic for tp in assignments}:
            self._deletions.halt_for_reassignment(topic)
        self._write_assignments(assignments)
        begun: list[TopicPartition] = []
        done: list[TopicPartition] = []
        for tp, assignment in assignments.items():
            is_done = not assignment.is_being_reassigned or self._is_in_sync(tp, assignment)
            (done if is_done else begun).append(tp)
        if begun:
            self._cluster.raise_leader_epochs(begun)
            adding = replicas_by_broker((tp, assignments[tp].adding) for tp in begun)
            self._cluster.replicas.change(adding, ReplicaStatus.NEW)
            for tp in begun:
                self._cluster.log.info("reassigning %s: %s", tp, assignments[tp])
        if done:
            self._complete({tp: assignments[tp] for tp in done})

    def _write_assignments(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Write assignments, and stop replicas that earlier reassignments were adding."""
        context = self._cluster.context
        before = {tp: self._assignment(tp) for tp in assignments}
        changed = {tp: assignment for tp, assignment in assignments.items() if assignment != before[tp]}
        self._write(changed)
        for tp, assignment in changed.items():
            context.update_partition_full_replica_assignment(tp, assignment)
        self._stop(
            replicas_by_broker(
                (tp, [b for b in before[tp].replicas if b not in assignment.replicas])
                for tp, assignment in changed.items()
            )
        )
        context.partitions_being_reassigned.update(assignments)
        if self._cluster.brokers_write_isr:
            self._read_isrs(list(assignments))

    def _complete(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        cluster, context = self._cluster, self._cluster.context
        done = {tp: ReplicaAssignment(assignment.target) for tp, assignment in assignments.items()}
        adding = replicas_by_broker((tp, assignment.adding) for tp, assignment in assignments.items())
        self._cluster.replicas.change(adding, ReplicaStatus.ONLINE)
        keep: list[TopicPartition] = []
        elect: list[TopicPartition] = []
        for tp, assignment in done.items():
            context.update_partition_full_replica_assignment(tp, assignment)
            info = context.partition_leadership_info(tp)
            leader = None if info is None else info.leader_and_isr.leader
            stays = leader in assignment.replicas and context.is_replica_online(leader, tp)
            (keep if stays else elect).append(tp)
        cluster.raise_leader_epochs(keep)
        self._cluster.partitions.change(elect, PartitionState.ONLINE, Election.REASSIGNMENT)
        self._stop(replicas_by_broker((tp, assignment.removing) for tp, assignment in assignments.items()))
        self._write(done)
        context.partitions_being_reassigned.difference_update(done)
        self._forget_requested(lambda tp, target: tp in done and target == done[tp].replicas)
        cluster.send_update_metadata_to_all(done)
        for tp, assignment in done.items():
            cluster.log.info("%s is reassigned to %s", tp, list(assignment.replicas))
        self._deletions.resume_for({tp.topic for tp in done})

    def _stop(self, replicas: Mapping[int, Collection[TopicPartition]]) -> None:
        """Remove replicas from the ISRs, and send StopReplica, with deletion, to their brokers."""
        for state in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            self._cluster.replicas.change(replicas, state)

    def _write(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Write assignments into the znodes of their topics."""
        for topic, group in groupby(sorted(assignments), lambda tp: tp.topic):
            if not self._cluster.write_assignments(topic, {tp.partition: assignments[tp] for tp in group}):
                self._cluster.log.error("the assignment of %s is not written: it has no znode", topic)

    def _forget_requested(self, is_done: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove reassignments from ``/admin/reassign_partitions``."""
        store = self._cluster.store
        asked = store.read_reassignments(watch=False)
        left = {tp: target for tp, target in asked.items() if not is_done(tp, target)}
        if len(left) < len(asked):
            store.write_reassignments(left)
            self._requested = {tp: target for tp, target in self._requested.items() if tp in left}
