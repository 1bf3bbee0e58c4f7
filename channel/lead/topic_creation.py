"""Decisions about topics and partitions that are new in ZooKeeper, and about topics that are gone from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.logs import bounded
from channel.types import ReplicaAssignment, random_uuid
from channel.zookeeper.znodes import TopicZnode
from kproto.api import ibp_at_least
from kproto.types import TopicPartition

from .leader_election import Election
from .state_machines import PartitionState, ReplicaStatus, replicas_by_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from .state_machines import ControlledCluster


class TopicChanges:
    """The decisions about new topics and partitions; on the event thread only.

    Args:
        forget_topic: Forgets everything about a topic.
    """

    def __init__(self, cluster: ControlledCluster, forget_topic: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._forget_topic = forget_topic
        self._gives_ids = ibp_at_least(cluster.config.inter_broker_protocol_version, "2.8-IV0")

    # ---- a failover

    def read_all(self) -> None:
        """Read all topics with their assignments and ids into an empty context."""
        context = self._cluster.context
        context.set_all_topics(self._cluster.store.read_topics())
        self._read_into_context(context.all_topics)

    # ---- events

    def process_topic_change(self) -> None:
        """Compare the topics in ZooKeeper with the known topics, and create the new ones."""
        cluster, context = self._cluster, self._cluster.context
        topics = cluster.store.read_topics()
        new, gone = topics - context.all_topics, context.all_topics - topics
        for topic in sorted(gone):
            self._forget_topic(topic)
        context.set_all_topics(topics)
        partitions = self._read_into_context(new)
        if new or gone:
            cluster.log.info("new topics: %s, deleted topics: %s", bounded(sorted(new)), bounded(sorted(gone)))
        self._create(partitions)

    def process_partition_modification(self, topic: str) -> None:
        """Create the partitions that were added to a topic, unless the topic is being deleted."""
        cluster, context = self._cluster, self._cluster.context
        found = cluster.store.read_assignments([topic]).get(topic)
        if found is None or topic not in context.all_topics:
            return
        if not context.partitions_for_topic(topic) and topic not in context.topics_to_be_deleted:
            self._create(self._read_into_context([topic]))  # its znode was passed over, and has been corrected
            return
        known = {tp.partition for tp in context.partitions_for_topic(topic)}
        added = [TopicPartition(topic, p) for p in sorted(found.partitions.keys() - known)]
        if not added:
            return
        if topic in context.topics_to_be_deleted:
            cluster.log.warning("partitions %s are not created: their topic is being deleted", bounded(added))
            cluster.write_assignments(topic)
            return
        cluster.log.info("new partitions: %s", bounded(added))
        for tp in added:
            context.update_partition_full_replica_assignment(tp, found.partitions[tp.partition])
        self._create(added)

    def keep_new_from_brokers_without_storage(self, partitions: Iterable[TopicPartition]) -> None:
        """Move replicas of partitions that have no leader yet from brokers that keep no records to others.

        Brokers place replicas on all registered brokers when they create their internal topics, and administrators can
        name any broker in ZooKeeper.
        """
        cluster, context = self._cluster, self._cluster.context
        if not cluster.without_storage:
            return
        changed: dict[str, list[int]] = {}
        for tp in partitions:
            replicas = context.partition_replica_assignment(tp)
            if context.partition_leadership_info(tp) is None and not cluster.without_storage.isdisjoint(replicas):
                storing = sorted(context.live_broker_ids - cluster.without_storage)
                kept = _without(replicas, cluster.without_storage, storing, tp.partition)
                context.update_partition_full_replica_assignment(tp, ReplicaAssignment(kept))
                changed.setdefault(tp.topic, []).append(tp.partition)
        for topic, moved in changed.items():
            cluster.log.info("topic %s: replicas of partitions %s move to brokers that keep records", topic, moved)
            cluster.write_assignments(topic)

    # ---- steps

    def _read_into_context(self, topics: Collection[str]) -> list[TopicPartition]:
        """Read topics into the context; topics without an id get a new id.

        Of two topics with one id the first is kept, and the other is passed over until its znode is corrected.
        """
        context, partitions = self._cluster.context, list[TopicPartition]()
        found = self._with_ids(self._cluster.store.read_assignments(sorted(topics)))
        for topic, (assignments, topic_id) in found.items():
            if topic_id is not None:
                owner = context.topic_name(topic_id)
                if owner not in (None, topic):
                    self._cluster.log.error(
                        "topic %s has the id of topic %s in ZooKeeper; it is passed over: give it an id of its own, or "
                        "delete it",
                        topic,
                        owner,
                    )
                    continue
                context.add_topic_id(topic, topic_id)
            for partition, assignment in assignments.items():
                tp = TopicPartition(topic, partition)
                partitions.append(tp)
                context.update_partition_full_replica_assignment(tp, assignment)
                if assignment.is_being_reassigned:
                    context.partitions_being_reassigned.add(tp)
        return partitions

    def _with_ids(self, topics: Mapping[str, TopicZnode]) -> Mapping[str, TopicZnode]:
        """Give topics without an id a new id, and write it to ZooKeeper, from protocol version 2.8 on."""
        if not self._gives_ids:
            return topics
        given = {}
        for topic, assignment in topics.items():
            if assignment.topic_id is None:
                with_id = TopicZnode(assignment.partitions, random_uuid())
                if self._cluster.store.write_assignment(topic, with_id):
                    given[topic] = with_id
        return {**topics, **given}

    def _create(self, partitions: Sequence[TopicPartition]) -> None:
        """Give new partitions their first leaders."""
        if not partitions:
            return
        self.keep_new_from_brokers_without_storage(partitions)
        context = self._cluster.context
        replicas = replicas_by_broker((tp, context.partition_replica_assignment(tp)) for tp in partitions)
        self._cluster.partitions.change(partitions, PartitionState.NEW)
        self._cluster.replicas.change(replicas, ReplicaStatus.NEW)
        self._cluster.partitions.change(partitions, PartitionState.ONLINE, Election.OFFLINE)
        self._cluster.replicas.change(replicas, ReplicaStatus.ONLINE)


def _without(replicas: Sequence[int], excluded: frozenset[int], brokers: Sequence[int], turn: int) -> tuple[int, ...]:
    """Replace some brokers of a replica list by others if there are any; ``turn`` selects the first replacement.

    >>> _without((7, 1), frozenset({7}), [0, 1, 2], 0), _without((1, 7), frozenset({7}), [1], 0)
    ((0, 1), (1,))
    """
    spare = [b for b in brokers if b not in replicas]
    turned = iter(spare[turn % len(spare) :] + spare[: turn % len(spare)] if spare else ())
    kept = [next(turned, None) if replica in excluded else replica for replica in replicas]
    return tuple([replica for replica in kept if replica is not None]) or tuple(replicas)
