"""An immutable snapshot of a cluster's metadata (nodes, controller, topics, partitions), and differences of several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.types import Node
from kproto.error_codes import ErrorCode, error_name
from kproto.json_form import uuid_to_json
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EPOCHS_FROM: Final = 9
"""The first version of Metadata whose leader epochs are reliable."""
INVALID_METADATA: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors of a topic or partition that a newer metadata response may heal."""


class PartitionInfo(NamedTuple):
    """One partition of a Metadata response.

    Attributes:
        leader: The leader's broker id, None if there is none.
        leader_epoch: None where the response had none.
        replicas, isr, offline_replicas: Broker ids.
        error_code: The partition's error code, 0 for none.
    """

    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicInfo(NamedTuple):
    """One topic of a Metadata response.

    Attributes:
        topic_id: The topic's id, None where the response had none.
        error_code: The topic's error code, 0 for none.
        is_internal: Whether it is one of the cluster's own topics, such as ``__consumer_offsets``.
        partitions: The partitions by index; none where the topic has an error.
    """

    topic_id: bytes | None
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def shown_id(self) -> str | None:
        """The topic's id as text."""
        return None if self.topic_id is None else uuid_to_json(self.topic_id)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster's metadata at one moment.

    Attributes:
        cluster_id: The cluster's id, None before the first response.
        nodes: Broker id to its address; bootstrap addresses have ids -1, -2 and so on.
        controller_id: The controller's broker id, None if none is known.
        topics: The topics that were requested, by name.
        is_bootstrap: Whether only bootstrap addresses are known.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    controller_id: int | None = None
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    is_bootstrap: bool = False

    @classmethod
    def of_bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> ClusterSnapshot:
        """Make a snapshot of bootstrap addresses: nodes -1, -2 and so on."""
        return cls(nodes={-i: Node(-i, host, port) for i, (host, port) in enumerate(addresses, 1)}, is_bootstrap=True)

    @classmethod
    def of_response(cls, response: Any) -> ClusterSnapshot:
        """Make a snapshot of a ``MetadataResponse``; topics without a name are left out."""
        return cls(
            response.cluster_id,
            {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
            None if response.controller_id < 0 else response.controller_id,
            {topic.name: _topic_of(topic) for topic in response.topics if topic.name},
        )

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's metadata, None if it is not known."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        """All partitions, by topic and index."""
        for name, topic in sorted(self.topics.items()):
            for index, info in sorted(topic.partitions.items()):
                yield TopicPartition(name, index), info

    def leader(self, partition: TopicPartition) -> Node | None:
        """The address of a partition's leader; None if there is none, or its node is not known."""
        info = self.partition(partition)
        return None if info is None or info.leader is None else self.nodes.get(info.leader)

    def node_if_online(self, partition: TopicPartition, node_id: int) -> Node | None:
        """The node's address, if it hosts a replica of the partition that is not offline."""
        info = self.partition(partition)
        if info is None or node_id not in info.replicas or node_id in info.offline_replicas:
            return None
        return self.nodes.get(node_id)


def _topic_of(told: Any) -> TopicInfo:
    partitions = {} if told.error_code else {each.partition_index: _partition_of(each) for each in told.partitions}
    return TopicInfo(
        bytes(told.topic_id) if any(told.topic_id) else None, told.error_code, told.is_internal, partitions
    )


def _partition_of(told: Any) -> PartitionInfo:
    return PartitionInfo(
        None if told.leader_id < 0 else told.leader_id,
        None if told.leader_epoch < 0 else told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        told.error_code,
    )


class ClusterView(NamedTuple):
    """The cluster's metadata as one node reports it.

    Attributes:
        node: The node that was asked.
        snapshot: The metadata in its response.
    """

    node: Node
    snapshot: ClusterSnapshot

    @property
    def brokers(self) -> list[Node]:
        """The live brokers with their addresses on the listener that was asked, by id."""
        return sorted(self.snapshot.nodes.values())

    def to_json(self) -> dict[str, Any]:
        """The view as an object for ``json``; no leader and no leader epoch are -1, as on the wire."""
        return {
            "node": {"broker_id": self.node.id, "host": self.node.host, "port": self.node.port},
            "cluster_id": self.snapshot.cluster_id,
            "controller_id": self.snapshot.controller_id,
            "brokers": [{"broker_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in self.brokers],
            "topics": [
                {
                    "topic": name,
                    "topic_id": topic.shown_id,
                    "internal": topic.is_internal,
                    "error": _error_or_none(topic.error_code),
                }
                for name, topic in sorted(self.snapshot.topics.items())
            ],
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "leader": -1 if info.leader is None else info.leader,
                    "leader_epoch": -1 if info.leader_epoch is None else info.leader_epoch,
                    "isr": list(info.isr),
                    "replicas": list(info.replicas),
                    "offline_replicas": list(info.offline_replicas),
                    "error": _error_or_none(info.error_code),
                }
                for each, info in self.snapshot.partitions()
            ],
        }


class Difference(NamedTuple):
    """A fact that is not the same in all views.

    Attributes:
        about: The partition, topic or broker concerned, for example ``topic-3-0``.
        fact: The name of the fact, for example ``leader``.
        values: The fact's value in each view, as text, in the order of the views.
    """

    about: str
    fact: str
    values: tuple[str, ...]


def differences(views: Sequence[ClusterSnapshot]) -> list[Difference]:
    """List the differences between views of several nodes (a stale metadata cache shows), or of two moments."""
    facts: dict[tuple[str, str], dict[int, str]] = {}
    for i, view in enumerate(views):
        for about, fact, value in _facts(view):
            facts.setdefault((about, fact), {})[i] = value
    found = []
    for (about, fact), told in facts.items():
        values = tuple(told.get(i, "unknown") for i in range(len(views)))
        if len(set(values)) > 1:
            found.append(Difference(about, fact, values))
    return found


def _facts(view: ClusterSnapshot) -> Iterator[tuple[str, str, str]]:
    yield "cluster", "id", str(view.cluster_id)
    yield "cluster", "controller", _or_none(view.controller_id)
    for broker in view.nodes.values():
        yield f"broker {broker.id}", "address", f"{broker.host}:{broker.port}"
    for topic_name, topic in sorted(view.topics.items()):
        yield topic_name, "topic id", topic.shown_id or "none"
        if topic.error_code:
            yield topic_name, "error", error_name(topic.error_code)
    for each, info in view.partitions():
        name = f"{each.topic}-{each.partition}"
        yield name, "leader", _or_none(info.leader)
        yield name, "leader epoch", _or_none(info.leader_epoch)
        yield name, "isr", ",".join(map(str, sorted(info.isr)))
        yield name, "replicas", ",".join(map(str, info.replicas))
        yield name, "offline", ",".join(map(str, sorted(info.offline_replicas))) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)


def _error_or_none(code: int) -> str | None:
    return error_name(code) if code else None
