"""An immutable snapshot of a cluster's metadata (nodes, controller, topics, partitions), and differences of several."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.types import Node
from kproto.error_codes import ErrorCode, error_name
from kproto.json_form import uuid_to_json
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

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


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster's metadata at one moment.

    Attributes:
        cluster_id: The cluster's id, None before the first response.
        nodes: Broker id to its address; bootstrap addresses have ids -1, -2 and so on.
        controller_id: The controller's broker id, None if none is known.
        partitions: Partitions of the topics that were requested.
        topic_ids: Topic name to id, where ids are known.
        topic_errors: Topic name to the code of its error, for topics that have one.
        internal_topics: Names of the cluster's own topics, such as ``__consumer_offsets``.
        is_bootstrap: Whether only bootstrap addresses are known.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    controller_id: int | None = None
    partitions: Mapping[TopicPartition, PartitionInfo] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    topic_errors: Mapping[str, int] = field(default_factory=dict)
    internal_topics: frozenset[str] = frozenset()
    is_bootstrap: bool = False
    _counts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of_bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> ClusterSnapshot:
        """Make a snapshot of bootstrap addresses: nodes -1, -2 and so on."""
        return cls(nodes={-i: Node(-i, host, port) for i, (host, port) in enumerate(addresses, 1)}, is_bootstrap=True)

    @classmethod
    def of_response(cls, response: Any) -> ClusterSnapshot:
        """Make a snapshot of a ``MetadataResponse``; topics without a name are left out."""
        topics = [topic for topic in response.topics if topic.name]
        return cls(
            response.cluster_id,
            {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
            None if response.controller_id < 0 else response.controller_id,
            {
                TopicPartition(topic.name, told.partition_index): _partition_of(told)
                for topic in topics
                if not topic.error_code
                for told in topic.partitions
            },
            {topic.name: bytes(topic.topic_id) for topic in topics if any(topic.topic_id)},
            {topic.name: topic.error_code for topic in topics if topic.error_code},
            frozenset(topic.name for topic in topics if topic.is_internal),
        )._counted()

    # ---- questions ---------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics with partitions, by name."""
        return sorted(self._counts)

    @property
    def all_topics(self) -> list[str]:
        """The topics with partitions, an id or an error, by name."""
        return sorted({*self._counts, *self.topic_ids, *self.topic_errors})

    @property
    def invalid_topics(self) -> list[str]:
        """Topics whose names the cluster calls invalid."""
        return self._with_error(ErrorCode.INVALID_TOPIC_EXCEPTION)

    @property
    def unauthorized_topics(self) -> list[str]:
        """Topics that this client may not see."""
        return self._with_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _with_error(self, code: int) -> list[str]:
        return [name for name, error in self.topic_errors.items() if error == code]

    @property
    def controller(self) -> Node | None:
        """The controller's address, None if it is not known."""
        return None if self.controller_id is None else self.nodes.get(self.controller_id)

    def partition_count(self, topic: str) -> int | None:
        """The number of a topic's partitions; None for an unknown topic."""
        return self._counts.get(topic)

    def leader(self, partition: TopicPartition) -> Node | None:
        """The address of a partition's leader; None if there is none, or its node is not known."""
        info = self.partitions.get(partition)
        return None if info is None or info.leader is None else self.nodes.get(info.leader)

    def node_if_online(self, partition: TopicPartition, node_id: int) -> Node | None:
        """The node's address, if it hosts a replica of the partition that is not offline."""
        info = self.partitions.get(partition)
        if info is None or node_id not in info.replicas or node_id in info.offline_replicas:
            return None
        return self.nodes.get(node_id)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def with_partitions(
        self, nodes: Mapping[int, Node], changed: Mapping[TopicPartition, PartitionInfo]
    ) -> ClusterSnapshot:
        """Copy the snapshot with some nodes and partitions replaced or added."""
        return replace(self, nodes={**self.nodes, **nodes}, partitions={**self.partitions, **changed})._counted()

    def restricted(
        self, topics: Collection[str], partitions: Mapping[TopicPartition, PartitionInfo]
    ) -> ClusterSnapshot:
        """Copy the snapshot with these topics and partitions alone."""
        return replace(
            self,
            partitions=partitions,
            topic_ids={t: i for t, i in self.topic_ids.items() if t in topics},
            topic_errors={t: e for t, e in self.topic_errors.items() if t in topics},
            internal_topics=self.internal_topics.intersection(topics),
        )._counted()

    def merged(self, newer: ClusterSnapshot, retain: Callable[[str], bool]) -> ClusterSnapshot:
        """Add to ``newer`` the topics of this snapshot that it lacks, if they are to be kept."""
        kept = {name for name in (*self._counts, *self.topic_errors) if retain(name)}
        kept.difference_update(newer.topics, newer.topic_errors)
        return replace(
            newer,
            partitions={**{e: info for e, info in self.partitions.items() if e.topic in kept}, **newer.partitions},
            topic_ids={**{t: i for t, i in self.topic_ids.items() if t in kept}, **newer.topic_ids},
            topic_errors={**{t: e for t, e in self.topic_errors.items() if t in kept}, **newer.topic_errors},
            internal_topics=newer.internal_topics | self.internal_topics.intersection(kept),
        )._counted()

    def _counted(self) -> ClusterSnapshot:
        counts: dict[str, int] = {}
        for each in self.partitions:
            counts[each.topic] = counts.get(each.topic, 0) + 1
        return replace(self, _counts=counts)


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

    @property
    def partitions(self) -> list[tuple[TopicPartition, PartitionInfo]]:
        """Partitions with their states, by topic and index."""
        return sorted(self.snapshot.partitions.items(), key=itemgetter(0))

    @property
    def topic_errors(self) -> list[tuple[str, str]]:
        """Names of the topics' errors, by topic; topics without an error are left out."""
        return [(topic, error_name(code)) for topic, code in sorted(self.snapshot.topic_errors.items())]

    def to_json(self) -> dict[str, Any]:
        """The view as an object for ``json``; no leader and no leader epoch are -1, as on the wire."""
        errors = dict(self.topic_errors)
        return {
            "node": {"broker_id": self.node.id, "host": self.node.host, "port": self.node.port},
            "cluster_id": self.snapshot.cluster_id,
            "controller_id": self.snapshot.controller_id,
            "brokers": [{"broker_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in self.brokers],
            "topics": [
                {
                    "topic": name,
                    "topic_id": _id_of(self.snapshot, name),
                    "internal": name in self.snapshot.internal_topics,
                    "error": errors.get(name),
                }
                for name in self.snapshot.all_topics
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
                    "error": error_name(info.error_code) if info.error_code else None,
                }
                for each, info in self.partitions
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
    for topic in view.all_topics:
        yield topic, "topic id", _id_of(view, topic) or "none"
        if topic in view.topic_errors:
            yield topic, "error", error_name(view.topic_errors[topic])
    for (topic, partition), info in view.partitions.items():
        name = f"{topic}-{partition}"
        yield name, "leader", _or_none(info.leader)
        yield name, "leader epoch", _or_none(info.leader_epoch)
        yield name, "isr", ",".join(map(str, sorted(info.isr)))
        yield name, "replicas", ",".join(map(str, info.replicas))
        yield name, "offline", ",".join(map(str, sorted(info.offline_replicas))) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)


def _id_of(snapshot: ClusterSnapshot, topic: str) -> str | None:
    topic_id = snapshot.topic_ids.get(topic)
    return None if topic_id is None else uuid_to_json(topic_id)
