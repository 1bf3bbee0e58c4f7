"""Decisions about topics that are deleted.

A topic is deleted after its replicas: the deletion waits while a broker of the replicas is dead or a partition is being
reassigned, and is retried once the broker is back or the reassignment is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.logs import bounded
from channel.zookeeper.znodes import ADMIN_DELETE_TOPICS
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .state_machines import PartitionState, ReplicaStatus, replicas_by_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

    from .events import TopicDeletionStopReplicaResponseReceived
    from .state_machines import ControlledCluster

_DELETED: Final = ReplicaStatus.DELETION_SUCCESSFUL


class TopicDeletions:
    """The topics that are being deleted; on the event thread only.

    Args:
        forget_topic: Forgets everything about a topic.
    """

    def __init__(self, cluster: ControlledCluster, forget_topic: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._forget_topic = forget_topic

    # ---- a failover

    def startup(self) -> None:
        """Queue the topics that are marked for deletion; those with an offline replica or a reassignment wait."""
        cluster, context = self._cluster, self._cluster.context
        marked = cluster.store.read_topic_deletions()
        if not cluster.config.delete_topic_enable:
            if marked:
                cluster.store.delete_children(ADMIN_DELETE_TOPICS, marked)
            return
        context.queue_topic_deletion(marked)
        context.topics_ineligible_for_deletion |= {
            topic for topic in marked if self._has_offline_replica(topic) or self._is_being_reassigned(topic)
        }

    # ---- events

    def process_topic_deletion(self) -> None:
        """Queue the topics that are newly marked for deletion; markers of unknown topics are removed."""
        cluster, context = self._cluster, self._cluster.context
        marked = cluster.store.read_topic_deletions()
        topics = marked & context.all_topics if cluster.config.delete_topic_enable else set[str]()
        if marked - topics:
            cluster.log.warning("topics %s are not deleted: unknown, or disabled", bounded(sorted(marked - topics)))
            cluster.store.delete_children(ADMIN_DELETE_TOPICS, marked - topics)
        if topics:
            cluster.store.check_leadership()  # no broker deletes anything for a deposed controller
            cluster.log.info("starting the deletion of topics %s", bounded(sorted(topics)))
            context.queue_topic_deletion(topics)
            self._mark_ineligible({topic for topic in topics if self._is_being_reassigned(topic)}, "a reassignment")
            self.resume()

    def process_stop_replica_response(self, event: TopicDeletionStopReplicaResponseReceived) -> None:
        """Process a broker's StopReplica answer for replicas that it had to delete."""
        refused = event.request_error != ErrorCode.NONE
        failed = {tp: None for tp, code in event.partition_errors.items() if refused or code != ErrorCode.NONE}
        deleted = [tp for tp in event.partition_errors if tp not in failed]
        if failed:
            self._cluster.log.warning("broker %d did not delete replicas of %s", event.broker_id, bounded([*failed]))
            self.fail_replicas({event.broker_id: [*failed]})
        if deleted:
            queued = [tp for tp in deleted if tp.topic in self._cluster.context.topics_to_be_deleted]
            self._cluster.replicas.change({event.broker_id: queued}, _DELETED)
            self.resume({tp.topic for tp in queued})

    # ---- called by other decisions

    def fail_replicas(self, replicas: Mapping[int, Collection[TopicPartition]]) -> None:
        """Suspend the deletion of topics whose replicas could not be deleted."""
        to_delete = self._cluster.context.topics_to_be_deleted
        queued = {b: kept for b, tps in replicas.items() if (kept := [tp for tp in tps if tp.topic in to_delete])}
        if queued:
            topics = {tp.topic for tps in queued.values() for tp in tps}
            self._cluster.replicas.change(queued, ReplicaStatus.DELETION_INELIGIBLE)
            self._mark_ineligible(topics, "replicas that could not be deleted")
            self.resume()

    def halt_for_reassignment(self, topic: str) -> None:
        """Suspend the deletion of a topic while a partition is being reassigned."""
        self._mark_ineligible({topic}, "a reassignment")

    def resume_for(self, topics: Iterable[str]) -> None:
        """Resume the deletion of suspended topics, since the reason for the suspension may be gone."""
        context = self._cluster.context
        queued = context.topics_to_be_deleted.intersection(topics)
        if queued:
            context.topics_ineligible_for_deletion -= queued
            self.resume(queued)

    def resume(self, topics: Set[str] | None = None) -> None:
        """Complete, retry or begin the deletion of all queued topics, or of some."""
        context, replicas = self._cluster.context, self._cluster.replicas
        done, eligible, retry = [], [], []
        for topic in sorted(context.topics_to_be_deleted if topics is None else topics):
            if self._all_replicas_deleted(topic):
                done.append(topic)
                continue
            is_started = replicas.count_in_state(topic, ReplicaStatus.DELETION_STARTED)
            if not is_started and replicas.count_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE):
                retry.append(topic)
            if not is_started and topic not in context.topics_ineligible_for_deletion:
                eligible.append(topic)
        if done:
            self._complete(done)
        for topic in retry:
            ineligible = replicas.replicas_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE)
            replicas.change(ineligible, ReplicaStatus.OFFLINE)
        if eligible:
            self._begin(eligible)

    def count_replicas(self) -> int:
        """Count the replicas of queued topics that are not deleted yet; from any thread."""
        context = self._cluster.context
        return sum(
            self._replica_count(topic) - self._cluster.replicas.count_in_state(topic, _DELETED)
            for topic in list(context.topics_to_be_deleted)
        )

    def count_ineligible_replicas(self) -> int:
        """Count the replicas of queued topics that wait for their brokers; from any thread."""
        return sum(
            self._cluster.replicas.count_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE)
            for topic in list(self._cluster.context.topics_to_be_deleted)
        )

    # ---- steps

    def _replica_count(self, topic: str) -> int:
        context = self._cluster.context
        return sum(len(context.partition_replica_assignment(tp)) for tp in context.partitions_for_topic(topic))

    def _begin(self, topics: Collection[str]) -> None:
        """Send UpdateMetadata with the topics as deleted, then stop and delete their live replicas."""
        context = self._cluster.context
        unseen = [topic for topic in topics if topic not in context.topics_with_deletion_started]
        partitions = [tp for topic in unseen for tp in context.partitions_for_topic(topic)]
        self._cluster.partitions.change(partitions, PartitionState.OFFLINE)
        self._cluster.partitions.change(partitions, PartitionState.NON_EXISTENT)
        context.topics_with_deletion_started.update(unseen)
        self._cluster.send_update_metadata_to_all(
            [tp for topic in topics for tp in context.partitions_for_topic(topic)]
        )
        live, dead = dict[int, list[TopicPartition]](), dict[int, list[TopicPartition]]()
        for topic in topics:
            for broker_id, tps in self._undeleted(topic).items():
                for tp in tps:
                    there = live if context.is_replica_online(broker_id, tp) else dead
                    there.setdefault(broker_id, []).append(tp)
        self._cluster.replicas.change(dead, ReplicaStatus.DELETION_INELIGIBLE)
        self._cluster.replicas.change(live, ReplicaStatus.OFFLINE)
        self._cluster.replicas.change(live, ReplicaStatus.DELETION_STARTED)
        self._mark_ineligible({tp.topic for tps in dead.values() for tp in tps}, "replicas on dead brokers")

    def _undeleted(self, topic: str) -> dict[int, list[TopicPartition]]:
        context, replicas = self._cluster.context, self._cluster.replicas
        return replicas_by_broker(
            (tp, [b for b in context.partition_replica_assignment(tp) if replicas.state(b, tp) is not _DELETED])
            for tp in context.partitions_for_topic(topic)
        )

    def _complete(self, topics: Sequence[str]) -> None:
        cluster = self._cluster
        for topic in topics:
            cluster.replicas.change(cluster.replicas.replicas_in_state(topic, _DELETED), ReplicaStatus.NON_EXISTENT)
        cluster.store.delete_topics(topics)
        for topic in topics:
            self._forget_topic(topic)
            cluster.log.info("topic %s is deleted", topic)

    def _mark_ineligible(self, topics: Set[str], reason: str) -> None:
        context = self._cluster.context
        halted = context.topics_to_be_deleted & topics
        if halted:
            context.topics_ineligible_for_deletion |= halted
            self._cluster.log.info("the deletion of %s waits for %s", bounded(sorted(halted)), reason)

    def _all_replicas_deleted(self, topic: str) -> bool:
        return self._cluster.replicas.count_in_state(topic, _DELETED) == self._replica_count(topic)

    def _has_offline_replica(self, topic: str) -> bool:
        context = self._cluster.context
        return any(
            not context.is_replica_online(broker_id, tp)
            for tp in context.partitions_for_topic(topic)
            for broker_id in context.partition_replica_assignment(tp)
        )

    def _is_being_reassigned(self, topic: str) -> bool:
        context = self._cluster.context
        return any(
            context.partition_full_replica_assignment(tp).is_being_reassigned
            for tp in context.partitions_for_topic(topic)
        )
