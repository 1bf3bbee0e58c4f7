"""The controller's context: its knowledge of the cluster. Used on the event thread only; nothing here locks."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from channel.types import EPOCH_DURING_DELETE, NO_EPOCH, Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from kproto.types import Uuid

_UNASSIGNED: Final = ReplicaAssignment(())


class ControllerContext:
    """Brokers, topics, assignments, leaders and deletions.

    A *live* broker has an epoch and is not shutting down. Lookups of an unknown name or id give an empty value.

    Args:
        epoch: The controller epoch, 0 before an election.

    Attributes:
        shutting_down_broker_ids: Brokers in a controlled shutdown.
        all_topics: Every topic's name.
        topics_to_be_deleted: Topics queued for deletion; UpdateMetadata sends them as deleted.
        topics_with_deletion_started: Topics whose replicas are being deleted.
        partitions_being_reassigned: Partitions whose replicas are being changed.
        topics_ineligible_for_deletion: Topics whose deletion must wait for a dead replica or a reassignment.
        brokers_version: A number that changes whenever the known brokers change.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.shutting_down_broker_ids: set[int] = set()
        self.all_topics: set[str] = set()
        self.topics_to_be_deleted: set[str] = set()
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()
        self.partitions_being_reassigned: set[TopicPartition] = set()
        self.brokers_version = 0
        self._brokers: dict[int, Broker] = {}
        self._epochs: dict[int, int] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._topic_names: dict[Uuid, str] = {}
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._leadership: dict[str, dict[int, LeaderIsrAndControllerEpoch]] = {}
        self._offline_dirs: dict[int, frozenset[TopicPartition]] = {}

    # ---- brokers

    def set_live_brokers(self, brokers_and_epochs: Mapping[Broker, int]) -> None:
        """Replace all brokers."""
        self._brokers.clear()
        self._epochs.clear()
        self.add_live_brokers(brokers_and_epochs)

    def add_live_brokers(self, brokers_and_epochs: Mapping[Broker, int]) -> None:
        """Add brokers, or replace those with the same id."""
        self.brokers_version += 1
        for broker, epoch in brokers_and_epochs.items():
            self._brokers[broker.id] = broker
            self._epochs[broker.id] = epoch

    def remove_live_brokers(self, broker_ids: Iterable[int]) -> None:
        """Forget brokers and their epochs; the mark of a broker that is shutting down stays."""
        self.brokers_version += 1
        for broker_id in broker_ids:
            self._brokers.pop(broker_id, None)
            self._epochs.pop(broker_id, None)

    def update_broker_metadata(self, broker: Broker) -> None:
        """Replace a known broker's registration, keeping its epoch."""
        self.brokers_version += 1
        if broker.id in self._brokers:
            self._brokers[broker.id] = broker

    @property
    def live_or_shutting_down_brokers(self) -> list[Broker]:
        """Every known broker, by id."""
        return [self._brokers[i] for i in sorted(self._brokers)]

    @property
    def live_or_shutting_down_broker_ids(self) -> Set[int]:
        """The ids of every known broker: a view."""
        return self._epochs.keys()

    @property
    def live_broker_ids(self) -> set[int]:
        """The ids of the live brokers."""
        return self._epochs.keys() - self.shutting_down_broker_ids

    @property
    def live_broker_id_and_epochs(self) -> Mapping[int, int]:
        """The epoch of every known broker: a view."""
        return self._epochs

    def live_or_shutting_down_broker(self, broker_id: int) -> Broker | None:
        """A known broker, None for any other."""
        return self._brokers.get(broker_id)

    # ---- topics

    def set_all_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics."""
        self.all_topics = set(topics)

    def add_topic_id(self, topic: str, topic_id: Uuid) -> None:
        """Give a known topic its id.

        Raises:
            ValueError: The topic is not in ``all_topics``, has another id, or another topic has this id.
        """
        if topic not in self.all_topics:
            raise ValueError(f"there is no topic {topic}; set_all_topics() comes first")
        known_id, known_name = self._topic_ids.get(topic), self._topic_names.get(topic_id)
        if known_id is not None and known_id != topic_id:
            raise ValueError(f"topic {topic} already has the id {known_id.hex()}, not {topic_id.hex()}")
        if known_name is not None and known_name != topic:
            raise ValueError(f"the id {topic_id.hex()} belongs to topic {known_name}, not to {topic}")
        self._topic_ids[topic] = topic_id
        self._topic_names[topic_id] = topic

    @property
    def topic_ids(self) -> Mapping[str, Uuid]:
        """Topic to topic id, without topics that have no id: a view."""
        return self._topic_ids

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the topic of an id, None if there is none."""
        return self._topic_names.get(topic_id)

    def remove_topic(self, topic: str) -> None:
        """Forget everything about a topic."""
        self._leadership.pop(topic, None)
        self._assignments.pop(topic, None)
        for queue in (
            self.topics_to_be_deleted,
            self.topics_with_deletion_started,
            self.topics_ineligible_for_deletion,
        ):
            queue.discard(topic)
        self.all_topics.discard(topic)
        self.partitions_being_reassigned = {tp for tp in self.partitions_being_reassigned if tp.topic != topic}
        topic_id = self._topic_ids.pop(topic, None)
        if topic_id is not None:
            self._topic_names.pop(topic_id, None)

    def queue_topic_deletion(self, topics: Iterable[str]) -> None:
        """Queue topics for deletion: from now on UpdateMetadata sends them as deleted."""
        self.topics_to_be_deleted.update(topics)

    # ---- partitions

    def update_partition_full_replica_assignment(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Set a partition's replicas."""
        of_topic = self._assignments.get(tp.topic)
        if of_topic is None:
            of_topic = self._assignments[tp.topic] = {}
        of_topic[tp.partition] = assignment

    def partition_full_replica_assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """A partition's replicas; none if it is unknown."""
        return self._assignments.get(tp.topic, {}).get(tp.partition, _UNASSIGNED)

    def partition_replica_assignment(self, tp: TopicPartition) -> tuple[int, ...]:
        """Ids of the brokers that have, or are getting, a replica."""
        return self.partition_full_replica_assignment(tp).replicas

    def put_partition_leadership_info(self, tp: TopicPartition, info: LeaderIsrAndControllerEpoch) -> None:
        """Set a partition's leader, ISR and epochs."""
        of_topic = self._leadership.get(tp.topic)
        if of_topic is None:
            of_topic = self._leadership[tp.topic] = {}
        of_topic[tp.partition] = info

    def partition_leadership_info(self, tp: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        """A partition's leader, ISR and epochs; None if it never had a leader."""
        of_topic = self._leadership.get(tp.topic)
        return None if of_topic is None else of_topic.get(tp.partition)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The epoch for a StopReplica request: -2 if the topic is queued for deletion, -1 without a leader so far."""
        if tp.topic in self.topics_to_be_deleted:
            return EPOCH_DURING_DELETE
        info = self.partition_leadership_info(tp)
        return NO_EPOCH if info is None else info.leader_and_isr.leader_epoch

    @property
    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every partition that has an assignment, topic by topic."""
        return (TopicPartition(topic, p) for topic, of_topic in self._assignments.items() for p in of_topic)

    @property
    def partitions_with_leaders(self) -> Iterator[TopicPartition]:
        """Every partition that has leadership information, without topics queued for deletion."""
        return (
            TopicPartition(topic, p)
            for topic, of_topic in self._leadership.items()
            if topic not in self.topics_to_be_deleted
            for p in of_topic
        )

    @property
    def partition_count(self) -> int:
        """The number of partitions with an assignment."""
        return sum(map(len, list(self._assignments.values())))  # copied to a list, as metrics are read on other threads

    @property
    def preferred_replica_imbalance_count(self) -> int:
        """The number of partitions that another than the preferred replica leads, as long as that is not being added.

        Topics queued for deletion do not count.
        """
        count = 0
        for topic, of_topic in list(self._leadership.items()):  # copied, as metrics are read on other threads
            if topic not in self.topics_to_be_deleted:
                assignments = self._assignments.get(topic, {})
                for partition, ((leader, *_), _) in list(of_topic.items()):
                    replicas, adding, _ = assignments.get(partition, _UNASSIGNED)
                    if replicas and replicas[0] != leader and replicas[0] not in adding:
                        count += 1
        return count

    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return [TopicPartition(topic, p) for p in self._assignments.get(topic, {})]

    def partitions_on_brokers(self, broker_ids: Iterable[int]) -> dict[int, list[TopicPartition]]:
        """The partitions with a replica on each of some brokers; a broker without any has an empty list."""
        found: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in broker_ids}
        wanted = found.keys()
        for topic, of_topic in self._assignments.items():
            for p, assignment in of_topic.items():
                if not wanted.isdisjoint(assignment.replicas):
                    tp = TopicPartition(topic, p)
                    for broker_id in wanted & set(assignment.replicas):
                        found[broker_id].append(tp)
        return found

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """The partitions whose leader is not online, without those of topics queued for deletion."""
        live, dirs = self.live_broker_ids, self._offline_dirs
        return [
            TopicPartition(topic, p)
            for topic, of_topic in self._leadership.items()
            if topic not in self.topics_to_be_deleted
            for p, ((leader, *_), _) in of_topic.items()
            if leader not in live or (dirs and TopicPartition(topic, p) in dirs.get(leader, ()))
        ]

    def partition_leaders_on_broker(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that a broker leads and that have another replica, which could take over."""
        return [
            TopicPartition(topic, p)
            for topic, of_topic in self._leadership.items()
            if topic not in self.topics_to_be_deleted
            for p, info in of_topic.items()
            if info.leader_and_isr.leader == broker_id
            and len(self.partition_replica_assignment(TopicPartition(topic, p))) > 1
        ]

    # ---- replicas

    def set_replicas_on_offline_dirs(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Set the replicas of a broker that are on a failed directory; no replica clears them."""
        offline = frozenset(partitions)
        if offline:
            self._offline_dirs[broker_id] = offline
        else:
            self._offline_dirs.pop(broker_id, None)

    def replicas_on_offline_dirs(self, broker_id: int) -> Set[TopicPartition]:
        """The replicas of a broker that are on a failed directory."""
        return self._offline_dirs.get(broker_id, frozenset())

    def is_replica_online(self, broker_id: int, tp: TopicPartition, *, or_shutting_down: bool = False) -> bool:
        """Whether the broker is live, or shutting down if that is allowed, and the replica's directory works."""
        known = broker_id in self._epochs and (or_shutting_down or broker_id not in self.shutting_down_broker_ids)
        return known and tp not in self._offline_dirs.get(broker_id, ())

    def partition_state(
        self, tp: TopicPartition
    ) -> tuple[LeaderIsrAndControllerEpoch | None, tuple[int, ...], tuple[int, ...]]:
        """A partition's entry in UpdateMetadata: its leadership, its replicas, and its replicas that are not online."""
        topic, partition = tp
        of_topic = self._assignments.get(topic)
        replicas = () if of_topic is None else of_topic.get(partition, _UNASSIGNED)[0]
        leaderships = self._leadership.get(topic)
        leadership = None if leaderships is None else leaderships.get(partition)
        known, leaving, dirs = self._epochs, self.shutting_down_broker_ids, self._offline_dirs
        for broker_id in replicas:
            if broker_id not in known or broker_id in leaving or dirs:
                return leadership, replicas, tuple([r for r in replicas if not self.is_replica_online(r, tp)])
        return leadership, replicas, ()

    def partition_states(
        self, topic: str, partitions: Sequence[int]
    ) -> tuple[list[LeaderIsrAndControllerEpoch], list[tuple[int, ...]]] | None:
        """The entries in UpdateMetadata of many partitions of a topic, if all their replicas are online.

        Returns:
            The leadership and the replicas of each partition. None if a partition lacks either, or has a replica that
            is not online: call ``partition_state`` for each then.
        """
        leaderships, assignments = self._leadership.get(topic), self._assignments.get(topic)
        if self._offline_dirs or leaderships is None or assignments is None:
            return None
        try:
            replicas = [assignments[p][0] for p in partitions]
            leaders = [leaderships[p] for p in partitions]
        except KeyError:
            return None
        brokers = {*chain.from_iterable(replicas)}
        online = self._epochs.keys() >= brokers and brokers.isdisjoint(self.shutting_down_broker_ids)
        return (leaders, replicas) if online else None

    # ---- the whole

    def reset(self) -> None:
        """Forget everything, as a resigning controller does."""
        changes = self.brokers_version
        self.__init__()  # type: ignore[misc]
        self.brokers_version = changes + 1
