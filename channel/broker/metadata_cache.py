"""A ZooKeeper-mode broker's metadata cache: takes UpdateMetadata, answers what clients ask.

Readers take the current snapshot once and never see it change. behaviour: Kafka 3.9's ``ZkMetadataCache``.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from channel.types import LEADER_DURING_DELETE, NO_NODE, Node
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID, TopicPartition

from .snapshot import EMPTY, AliveBroker, MetadataSnapshot, SnapshotMemo

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ClusterView", "MetadataCache", "PartitionMetadata", "PartitionView", "TopicMetadata"]

_log = logging.getLogger(__name__)
_state_changes = logging.getLogger("channel.state_change")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition in a Metadata answer."""

    error_code: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in a Metadata answer; the name is None where an unknown topic id was asked for."""

    error_code: int
    name: str | None
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition of the cluster view."""

    leader: Node
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    offline: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All that the cache knows, as one listener's clients see it."""

    nodes: tuple[Node, ...]
    controller: Node | None
    partitions: dict[TopicPartition, PartitionView]


class MetadataCache:
    """What one broker has been told of the cluster.

    Args:
        broker_id: Whose cache it is.
        migration_enabled: Whether a KRaft controller's full update counts as full.
        memo: Shared by the brokers of a process, so that equal caches are one object.
    """

    def __init__(self, broker_id: int, *, migration_enabled: bool = False, memo: SnapshotMemo | None = None) -> None:
        self.broker_id = broker_id
        self.migration_enabled = migration_enabled
        self._memo = memo or SnapshotMemo()
        self._write = threading.Lock()
        self._snapshot = EMPTY

    @property
    def snapshot(self) -> MetadataSnapshot:
        """The state now; it stays as it is, later updates replace it."""
        return self._snapshot

    def update_metadata(self, correlation_id: int, request: Any, *, version: int) -> tuple[TopicPartition, ...]:
        """Take an UpdateMetadata.

        Args:
            correlation_id: The request's, for the log.
            request: The message as it was read; the cache keeps its rows.
            version: The version it was read with.

        Returns:
            The partitions that it deleted, in order.
        """
        with self._write:
            update = self._memo.apply(
                self._snapshot, request, version=version, migration_enabled=self.migration_enabled
            )
            self._snapshot = update.snapshot
        for is_error, line in update.notes:
            _state_changes.log(logging.ERROR if is_error else logging.INFO, "%s", line)
        self._check_listeners(update.snapshot)
        if update.entries:
            _state_changes.info(
                "Add %d partitions and deleted %d partitions from metadata cache in response to UpdateMetadata request "
                "sent by controller %d epoch %d with correlation id %d",
                update.entries - len(update.deleted),
                len(update.deleted),
                request.controller_id,
                request.controller_epoch,
                correlation_id,
            )
        return update.deleted

    def _check_listeners(self, snapshot: MetadataSnapshot) -> None:
        mine = snapshot.alive_brokers.get(self.broker_id)
        if mine is None:
            return
        names = mine.endpoints.keys()
        if any(broker.endpoints.keys() != names for broker in snapshot.alive_brokers.values()):
            listeners = {b.id: sorted(b.endpoints) for b in snapshot.alive_brokers.values()}
            _log.error("Listeners are not identical across brokers: %s", listeners)

    # ---- what is asked of it -----------------------------------------------------------------------------------------

    def contains(self, topic: str, partition: int | None = None) -> bool:
        """Whether the topic, or one partition of it, is known."""
        known = self._snapshot.partitions.get(topic)
        return known is not None and (partition is None or partition in known)

    def partition_info(self, topic: str, partition: int) -> Any | None:
        """The partition's state as it was last sent, or None."""
        return self._snapshot.partition(topic, partition)

    def topics(self) -> tuple[str, ...]:
        """All topics that are known."""
        return tuple(self._snapshot.partitions)

    def has_alive_broker(self, broker_id: int) -> bool:
        """Whether the last update named this broker."""
        return broker_id in self._snapshot.alive_brokers

    def alive_brokers(self) -> tuple[AliveBroker, ...]:
        """The brokers that the last update named; what is returned does not change with later updates."""
        return tuple(self._snapshot.alive_brokers.values())

    def leader_endpoint(self, topic: str, partition: int, listener: str) -> Node | None:
        """The leader's node: None for an unknown partition, an empty node for a leader without that listener."""
        snapshot = self._snapshot
        row = snapshot.partition(topic, partition)
        return None if row is None else _node(snapshot, row.leader, listener)

    def topic_metadata(
        self,
        topics: Iterable[str],
        listener: str,
        *,
        error_unavailable_endpoints: bool = False,
        error_unavailable_listeners: bool = False,
    ) -> list[TopicMetadata]:
        """What a Metadata request is answered with; topics that are not known are left out.

        Args:
            topics: The topics asked for.
            listener: The listener that the client came in by.
            error_unavailable_endpoints: As version 0 wants it: replicas and ISR only of brokers that are alive, and
                REPLICA_NOT_AVAILABLE (9) where one was left out.
            error_unavailable_listeners: As version 6 and later want it: LISTENER_NOT_FOUND (72) for a leader that is
                alive without the listener; older clients get LEADER_NOT_AVAILABLE (5).
        """
        snapshot = self._snapshot
        found = []
        for name in topics:
            known = snapshot.partitions.get(name)
            if known is None:
                continue
            partitions = tuple(
                _partition_metadata(
                    snapshot, index, row, listener, error_unavailable_endpoints, error_unavailable_listeners
                )
                for index, row in known.items()
            )
            found.append(TopicMetadata(0, name, snapshot.topic_ids.get(name, ZERO_UUID), partitions))
        return found

    def cluster(self, listener: str) -> ClusterView:
        """All that is known, without partitions that are being deleted."""
        snapshot = self._snapshot
        nodes = _nodes(snapshot, listener)

        def node(broker_id: int) -> Node:
            return nodes.get(broker_id) or Node(broker_id, "", -1)

        partitions = {
            TopicPartition(name, index): PartitionView(
                node(row.leader),
                tuple(map(node, row.replicas)),
                tuple(map(node, row.isr)),
                tuple(map(node, row.offline_replicas)),
            )
            for name, known in snapshot.partitions.items()
            for index, row in known.items()
            if row.leader != LEADER_DURING_DELETE
        }
        return ClusterView(tuple(nodes.values()), _controller(snapshot, nodes), partitions)

    def nodes(self, listener: str) -> tuple[tuple[Node, ...], Node | None]:
        """The brokers that this listener's clients can reach, and which of them they take for the controller."""
        snapshot = self._snapshot
        nodes = _nodes(snapshot, listener)
        return tuple(nodes.values()), _controller(snapshot, nodes)


def _nodes(snapshot: MetadataSnapshot, listener: str) -> dict[int, Node]:
    return {
        b.id: Node(b.id, b.endpoints[listener].host, b.endpoints[listener].port, b.rack)
        for b in snapshot.alive_brokers.values()
        if listener in b.endpoints
    }


def _controller(snapshot: MetadataSnapshot, nodes: dict[int, Node]) -> Node | None:
    controller = snapshot.controller
    if controller is None:
        return None
    # a KRaft controller is no broker that clients could reach: any alive broker forwards for it
    return next(iter(nodes.values()), None) if controller.is_kraft else nodes.get(controller.id)


def _node(snapshot: MetadataSnapshot, broker_id: int, listener: str) -> Node:
    broker = snapshot.alive_brokers.get(broker_id)
    endpoint = broker.endpoints.get(listener) if broker else None
    if broker is None or endpoint is None:
        return NO_NODE
    return Node(broker_id, endpoint.host, endpoint.port, broker.rack)


def _partition_metadata(
    snapshot: MetadataSnapshot,
    index: int,
    row: Any,
    listener: str,
    error_unavailable_endpoints: bool,
    error_unavailable_listeners: bool,
) -> PartitionMetadata:
    replicas, isr = tuple(row.replicas), tuple(row.isr)

    def reachable(ids: tuple[int, ...]) -> tuple[int, ...]:
        if not error_unavailable_endpoints:
            return ids
        return tuple(i for i in ids if _node(snapshot, i, listener).id >= 0)

    shown_replicas, shown_isr = reachable(replicas), reachable(isr)
    leader = snapshot.alive_brokers.get(row.leader)
    if leader is None or listener not in leader.endpoints:
        missing_listener = leader is not None and error_unavailable_listeners
        error = ErrorCode.LISTENER_NOT_FOUND if missing_listener else ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionMetadata(
            error, index, -1, row.leader_epoch, shown_replicas, shown_isr, tuple(row.offline_replicas)
        )
    complete = shown_replicas == replicas and shown_isr == isr
    return PartitionMetadata(
        ErrorCode.NONE if complete else ErrorCode.REPLICA_NOT_AVAILABLE,
        index,
        row.leader,
        row.leader_epoch,
        shown_replicas,
        shown_isr,
        tuple(row.offline_replicas),
    )
