"""What a cluster says of itself, node by node: brokers, controller, leaders, ISR, epochs; where the nodes disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.errors import ChannelError, Disconnected
from channel.network.blocking import await_ready, send_and_receive
from channel.network.client import NetworkClient
from channel.network.metadata import ManualMetadataUpdater
from channel.network.request import MessageRequest
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.security import SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto.error_codes import error_name
from kproto.errors import KprotoError
from kproto.json_form import uuid_to_json
from kproto.messages import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ClusterClient", "ClusterView", "Difference", "PartitionView", "differences"]

_OLDEST: Final = 4  # earlier versions of Metadata would let the broker create the topics that are asked for


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as one node tells of it.

    Attributes:
        leader: Broker id, -1 for none.
        leader_epoch: -1 where the node's version of Metadata has none.
        isr, replicas, offline: Broker ids.
        error: Name of the partition's error, None if there is none.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one node tells of it.

    Attributes:
        node: The node that was asked.
        cluster_id: The cluster's id, None if the node knows none.
        controller_id: The controller's broker id, None if the node knows none.
        brokers: The live brokers with their addresses on the listener that was asked.
        topics: Topic name to its id (text, None where there is none).
        partitions: (topic, partition) to its state.
        topic_errors: Topic name to the name of its error.
    """

    node: Node
    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[Node, ...]
    topics: dict[str, str | None] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    topic_errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Node, response: Any) -> ClusterView:
        """The view in a ``MetadataResponse`` of this node."""
        brokers = tuple(sorted(Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers))
        controller = response.controller_id if response.controller_id >= 0 else None
        view = cls(node, response.cluster_id, controller, brokers)
        for topic in sorted(response.topics, key=lambda each: each.name or ""):
            name = topic.name or ""
            view.topics[name] = uuid_to_json(topic.topic_id) if any(topic.topic_id) else None
            if topic.error_code:
                view.topic_errors[name] = error_name(topic.error_code)
            for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
                view.partitions[name, each.partition_index] = PartitionView(
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.isr_nodes),
                    tuple(each.replica_nodes),
                    tuple(each.offline_replicas),
                    error_name(each.error_code) if each.error_code else None,
                )
        return view

    def to_json(self) -> dict[str, Any]:
        """The view as an object for ``json``."""
        return {
            "node": {"broker_id": self.node.id, "host": self.node.host, "port": self.node.port},
            "cluster_id": self.cluster_id,
            "controller_id": self.controller_id,
            "brokers": [{"broker_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in self.brokers],
            "topics": [
                {"topic": name, "topic_id": topic_id, "error": self.topic_errors.get(name)}
                for name, topic_id in self.topics.items()
            ],
            "partitions": [
                {
                    "topic": topic,
                    "partition": partition,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "isr": list(state.isr),
                    "replicas": list(state.replicas),
                    "offline": list(state.offline),
                    "error": state.error,
                }
                for (topic, partition), state in self.partitions.items()
            ],
        }


class Difference(NamedTuple):
    """One fact on which nodes disagree.

    Attributes:
        subject: What the fact is about, for example ``topic-3-0``.
        fact: Which fact, for example ``leader``.
        values: Each broker's id with what it says, as text.
    """

    subject: str
    fact: str
    values: tuple[tuple[int, str], ...]


def differences(views: Sequence[ClusterView]) -> list[Difference]:
    """Facts on which nodes disagree: a stale metadata cache shows here."""
    found = []
    facts: dict[tuple[str, str], dict[int, str]] = {}
    for view in views:
        for subject, fact, value in _facts(view):
            facts.setdefault((subject, fact), {})[view.node.id] = value
    for (subject, fact), told in facts.items():
        values = tuple((view.node.id, told.get(view.node.id, "unknown")) for view in views)
        if len({value for _, value in values}) > 1:
            found.append(Difference(subject, fact, values))
    return found


def _facts(view: ClusterView) -> Iterator[tuple[str, str, str]]:
    yield "cluster", "id", str(view.cluster_id)
    yield "cluster", "controller", "none" if view.controller_id is None else str(view.controller_id)
    for broker in view.brokers:
        yield f"broker {broker.id}", "address", f"{broker.host}:{broker.port}"
    for topic, topic_id in view.topics.items():
        yield topic, "topic id", str(topic_id)
    for (topic, partition), state in view.partitions.items():
        name = f"{topic}-{partition}"
        yield name, "leader", "none" if state.leader < 0 else str(state.leader)
        yield name, "leader epoch", str(state.leader_epoch)
        yield name, "isr", ",".join(map(str, sorted(state.isr)))
        yield name, "replicas", ",".join(map(str, state.replicas))
        yield name, "offline", ",".join(map(str, sorted(state.offline))) or "none"


class ClusterClient:
    """Asks nodes of a cluster, one after the other; close it, or use it in a ``with``.

    Args:
        bootstrap: Addresses to begin with.
        protocol: How the listener is secured.
        security: Certificates and credentials for that.
        client_id: Goes into every header.
        timeout_ms: How long one node may take to connect and to answer.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        client_id: str = "kproto",
        timeout_ms: int = 10_000,
    ) -> None:
        self._bootstrap = [Node(-i, host, port) for i, (host, port) in enumerate(bootstrap, 1)]
        self._timeout_ms = timeout_ms
        builder = client_channels(protocol, security or SecurityConfig(), client_id)
        self._client = NetworkClient(
            Selector(channel_builder=builder), ManualMetadataUpdater(), client_id, request_timeout_ms=timeout_ms
        )

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def ask(self, node: Node, topics: Sequence[str] | None = None) -> ClusterView:
        """One node's view of these topics, or of all.

        Raises:
            Disconnected: It cannot be reached, or does not answer in time.
            AuthenticationFailed: One side does not accept the other.
        """
        client = self._client
        if not await_ready(client, node, self._timeout_ms):
            raise Disconnected(f"{node.host}:{node.port} is not ready within {self._timeout_ms} ms")
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        message = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        request = client.new_request(node.key, MessageRequest(message, oldest_version=_OLDEST))
        return ClusterView.of(node, send_and_receive(client, request).body)

    def ask_any(self, topics: Sequence[str] | None = None) -> ClusterView:
        """The view of the first node that answers.

        Raises:
            Disconnected: None does; the error of each is told.
            AuthenticationFailed: The first node that could be reached does not accept this client, or is not accepted.
        """
        failures = []
        for node in self._bootstrap:
            try:
                return self.ask(node, topics)
            except Disconnected as e:
                failures.append(f"{node.host}:{node.port}: {e}")
        raise Disconnected("no node answers: " + "; ".join(failures))

    def ask_all(self, topics: Sequence[str] | None = None) -> tuple[list[ClusterView], dict[int, str]]:
        """Every live broker's view, and why others gave none, by broker id."""
        views, failures = [], {}
        for broker in self.ask_any(topics).brokers:
            try:
                views.append(self.ask(broker, topics))
            except (ChannelError, KprotoError, OSError) as e:
                failures[broker.id] = str(e)
        return views, failures
