"""What a client knows of a cluster at one moment: nodes, controller, topics, partitions. Never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.types import Node
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "EPOCHS_FROM",
    "INVALID_METADATA",
    "NO_TOPIC_ID",
    "MetadataSnapshot",
    "PartitionInfo",
    "TopicPartition",
    "partition_of",
    "snapshot_of",
]

EPOCHS_FROM: Final = 9
"""From this version of Metadata on a response's leader epochs can be relied on."""

NO_TOPIC_ID: Final = bytes(16)
"""The id of a topic whose id is not known."""

INVALID_METADATA: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors of a topic or partition that a newer metadata response may heal."""


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index."""

    topic: str
    partition: int


class PartitionInfo(NamedTuple):
    """One partition as a Metadata response told of it.

    Attributes:
        leader: The leader's broker id, None if there is none.
        leader_epoch: None where the response had none that can be relied on.
        replicas, isr, offline: Broker ids.
        error_code: What is wrong with the partition, 0 for nothing.
    """

    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """One cluster at one moment.

    Attributes:
        cluster_id: The cluster's id, None before the first response.
        nodes: Broker id to its address; bootstrap addresses have ids -1, -2 and so on.
        controller_id: The controller's broker id, None if none is known.
        partitions: Partitions of the topics that were asked for.
        topic_ids: Topic name to id, where ids are known.
        invalid_topics, unauthorized_topics: Topics that the cluster refused.
        is_bootstrap: Whether only addresses to begin with are known.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    controller_id: int | None = None
    partitions: Mapping[TopicPartition, PartitionInfo] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    invalid_topics: frozenset[str] = frozenset()
    unauthorized_topics: frozenset[str] = frozenset()
    is_bootstrap: bool = False
    _counts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of_bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> MetadataSnapshot:
        """Addresses to begin with: nodes -1, -2 and so on."""
        return cls(nodes={-i: Node(-i, host, port) for i, (host, port) in enumerate(addresses, 1)}, is_bootstrap=True)

    # ---- questions ---------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics with partitions, by name."""
        return sorted(self._counts)

    @property
    def controller(self) -> Node | None:
        """The controller's address, None if it is not known."""
        return None if self.controller_id is None else self.nodes.get(self.controller_id)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None for a topic that is not known."""
        return self._counts.get(topic)

    def leader(self, partition: TopicPartition) -> Node | None:
        """The address of a partition's leader; None if there is none, or its node is not known."""
        info = self.partitions.get(partition)
        return None if info is None or info.leader is None else self.nodes.get(info.leader)

    def node_if_online(self, partition: TopicPartition, node_id: int) -> Node | None:
        """The node's address, if it hosts a replica of the partition that is not offline."""
        info = self.partitions.get(partition)
        if info is None or node_id not in info.replicas or node_id in info.offline:
            return None
        return self.nodes.get(node_id)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def with_partitions(
        self, nodes: Mapping[int, Node], changed: Mapping[TopicPartition, PartitionInfo]
    ) -> MetadataSnapshot:
        """The same with some nodes and partitions replaced or added."""
        return _counted(replace(self, nodes={**self.nodes, **nodes}, partitions={**self.partitions, **changed}))

    def merged(self, newer: MetadataSnapshot, retain: Callable[[str], bool]) -> MetadataSnapshot:
        """``newer`` with the topics of this snapshot that it does not tell of, if they are to be kept."""
        told = {each.topic for each in newer.partitions} | newer.invalid_topics | newer.unauthorized_topics
        kept = {
            name for name in (*self._counts, *self.invalid_topics, *self.unauthorized_topics) if retain(name)
        } - told
        partitions = {each: info for each, info in self.partitions.items() if each.topic in kept}
        return _counted(
            replace(
                newer,
                nodes=newer.nodes,
                partitions={**partitions, **newer.partitions},
                topic_ids={**{t: i for t, i in self.topic_ids.items() if t in kept}, **newer.topic_ids},
                invalid_topics=newer.invalid_topics | (self.invalid_topics & kept),
                unauthorized_topics=newer.unauthorized_topics | (self.unauthorized_topics & kept),
            )
        )


def _counted(snapshot: MetadataSnapshot) -> MetadataSnapshot:
    counts: dict[str, int] = {}
    for each in snapshot.partitions:
        counts[each.topic] = counts.get(each.topic, 0) + 1
    return replace(snapshot, _counts=counts)


def snapshot_of(
    response: Any, partitions: Mapping[TopicPartition, PartitionInfo], topic_ids: Mapping[str, bytes]
) -> MetadataSnapshot:
    """The snapshot of a Metadata response, with the partitions that were accepted of it."""
    refused: dict[int, set[str]] = {
        ErrorCode.INVALID_TOPIC_EXCEPTION: set(),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: set(),
    }
    for topic in response.topics:
        if topic.error_code in refused and topic.name:
            refused[topic.error_code].add(topic.name)
    nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
    return _counted(
        MetadataSnapshot(
            response.cluster_id,
            nodes,
            None if response.controller_id < 0 else response.controller_id,
            dict(partitions),
            dict(topic_ids),
            frozenset(refused[ErrorCode.INVALID_TOPIC_EXCEPTION]),
            frozenset(refused[ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
        )
    )


def partition_of(told: Any, *, with_epoch: bool) -> PartitionInfo:
    """A partition of a Metadata response."""
    return PartitionInfo(
        None if told.leader_id < 0 else told.leader_id,
        told.leader_epoch if with_epoch and told.leader_epoch >= 0 else None,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        told.error_code,
    )
