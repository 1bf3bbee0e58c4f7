"""A cluster's metadata as one node reports it, and the differences between the reports of several nodes."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kproto.error_codes import error_name
from kproto.json_form import uuid_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel.types import Node
    from kproto.types import TopicPartition

    from .snapshot import ClusterSnapshot, PartitionInfo

__all__ = ["ClusterView", "Difference", "differences"]


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
                    "offline": list(info.offline),
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
        yield name, "offline", ",".join(map(str, sorted(info.offline))) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)


def _id_of(snapshot: ClusterSnapshot, topic: str) -> str | None:
    topic_id = snapshot.topic_ids.get(topic)
    return None if topic_id is None else uuid_to_json(topic_id)
