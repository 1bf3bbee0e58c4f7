"""A ZooKeeper-mode broker's metadata cache: takes UpdateMetadata, answers clients' Metadata requests.

Readers take the current snapshot, which never changes. The behaviour is that of Kafka 3.9's ``ZkMetadataCache``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from channel.locks import new_lock
from channel.logs import TRACE, bounded, state_change_log
from channel.types import LEADER_DURING_DELETE, NO_NODE, Broker, Node
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID, TopicPartition

from .metadata_snapshot import EMPTY, MetadataSnapshot, Update
from .shared_updates import SharedUpdates

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_NOTES: Final = 10
"""Most lines of an update in the state-change log, as a full update may remove any number of topics."""


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """A partition in a Metadata answer."""

    error_code: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """A topic in a Metadata answer; the name is None where an unknown topic id was asked for."""

    error_code: int
    name: str | None
    topic_id: bytes
    partitions: tuple[PartitionAnswer, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition of the cluster view."""

    leader: Node
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    offline: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class CachedCluster:
    """The whole cluster, for the clients of one listener."""

    nodes: tuple[Node, ...]
    controller: Node | None
    partitions: dict[TopicPartition, PartitionView]


class MetadataCache:
    """One broker's metadata of the cluster, from the controller's UpdateMetadata requests.

    Args:
        broker_id: The broker.
        migration_enabled: Whether a KRaft controller's full update counts as full.
        updates: The updates that the brokers of a process share, so that equal snapshots are one object.
    """

    def __init__(
        self, broker_id: int, *, migration_enabled: bool = False, updates: SharedUpdates | None = None
    ) -> None:
        self.broker_id = broker_id
        self.migration_enabled = migration_enabled
        self._updates = updates or SharedUpdates()
        self._write = new_lock("metadata cache")
        self._last = Update(EMPTY)
        self._log = state_change_log(broker_id)

    @property
    def snapshot(self) -> MetadataSnapshot:
        """The present state, an immutable object that later updates replace."""
        return self._last.snapshot

    def update_metadata(self, correlation_id: int, request: Any, *, version: int) -> tuple[TopicPartition, ...]:
        """Take an UpdateMetadata.

        Args:
            correlation_id: The correlation id of the request, for the log.
            request: The decoded message; the cache keeps its rows.
            version: The version of the message.

        Returns:
            The partitions that the update deleted, in order.
        """
        with self._write:
            update = self._last = self._updates.apply(
                self._last.snapshot, request, version=version, migration_enabled=self.migration_enabled
            )
        for is_error, line in update.notes[:_MOST_NOTES]:
            self._log.log(logging.ERROR if is_error else logging.INFO, "%s", line)
        if len(update.notes) > _MOST_NOTES:
            self._log.info("and %d more lines like these", len(update.notes) - _MOST_NOTES)
        if len(update.listeners) > 1 and self.broker_id in update.snapshot.alive_brokers:
            groups = "; ".join(
                f"{', '.join(sorted(names)) or 'none'}: brokers {bounded(ids)}"
                for names, ids in update.listeners.items()
            )
            self._log.error("brokers have different listeners: %s", bounded(groups))
        if update.entries:
            self._log_partitions(update, request, correlation_id)
        return update.deleted

    def _log_partitions(self, update: Update, request: Any, correlation_id: int) -> None:
        """Log what was cached and deleted, in Kafka's words; one line for each partition at TRACE."""
        cause = (
            f"sent by controller {request.controller_id} epoch {request.controller_epoch} "
            f"with correlation id {correlation_id}"
        )
        if self._log.isEnabledFor(TRACE):
            entries: list[tuple[TopicPartition, Any]] = [
                (TopicPartition(topic, index), None) for topic, gone in update.left_out for index in gone
            ]
            entries += [(TopicPartition(r.topic_name, r.partition_index), r) for r in request.partition_states]
            for tp, row in entries:
                if row is None or row.leader == LEADER_DURING_DELETE:
                    text = "Deleted partition %s from metadata cache in response to UpdateMetadata request %s"
                    self._log.log(TRACE, text, tp, cause)
                else:
                    text = "Cached leader info %s for partition %s in response to UpdateMetadata request %s"
                    self._log.log(TRACE, text, bounded(repr(row)), tp, cause)
        self._log.info(
            "Add %d partitions and deleted %d partitions from metadata cache in response to UpdateMetadata request %s",
            update.entries - len(update.deleted),
            len(update.deleted),
            cause,
        )

    # ---- questions of clients ----------------------------------------------------------------------------------------

    def contains(self, topic: str, partition: int | None = None) -> bool:
        """Whether the topic, or one partition of it, is known."""
        known = self._last.snapshot.partitions.get(topic)
        return known is not None and (partition is None or partition in known)

    def partition_info(self, topic: str, partition: int) -> Any | None:
        """The partition's state as it was last sent, or None."""
        return self._last.snapshot.partition(topic, partition)

    def topics(self) -> tuple[str, ...]:
        """All topics that are known."""
        return tuple(self._last.snapshot.partitions)

    def has_alive_broker(self, broker_id: int) -> bool:
        """Whether the last update named this broker."""
        return broker_id in self._last.snapshot.alive_brokers

    def alive_brokers(self) -> tuple[Broker, ...]:
        """The brokers that the last update named, in an object that later updates do not change."""
        return tuple(self._last.snapshot.alive_brokers.values())

    def topic_metadata(
        self,
        topics: Iterable[str],
        listener: str,
        *,
        error_unavailable_endpoints: bool = False,
        error_unavailable_listeners: bool = False,
    ) -> list[TopicAnswer]:
        """The topics of a Metadata answer; topics that are not known are left out.

        Args:
            topics: The topics asked for.
            listener: The listener of the client's connection.
            error_unavailable_endpoints: For version 0: replicas and ISR only of brokers that are alive, and
                REPLICA_NOT_AVAILABLE (9) where a replica was left out.
            error_unavailable_listeners: For version 6 and later: LISTENER_NOT_FOUND (72) for a leader that is
                alive without the listener; older clients get LEADER_NOT_AVAILABLE (5).
        """
        snapshot = self._last.snapshot
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
            found.append(TopicAnswer(0, name, snapshot.topic_ids.get(name, ZERO_UUID), partitions))
        return found

    def cluster(self, listener: str) -> CachedCluster:
        """The whole cluster, without partitions that are being deleted."""
        snapshot = self._last.snapshot
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
        return CachedCluster(tuple(nodes.values()), _controller(snapshot, nodes), partitions)

    def nodes(self, listener: str) -> tuple[tuple[Node, ...], Node | None]:
        """Return the brokers that this listener's clients can reach, and the broker to name as the controller."""
        snapshot = self._last.snapshot
        nodes = _nodes(snapshot, listener)
        return tuple(nodes.values()), _controller(snapshot, nodes)


def _nodes(snapshot: MetadataSnapshot, listener: str) -> dict[int, Node]:
    return {
        b.id: Node(b.id, endpoint.host, endpoint.port, b.rack)
        for b in snapshot.alive_brokers.values()
        if (endpoint := b.endpoint(listener)) is not None
    }


def _controller(snapshot: MetadataSnapshot, nodes: dict[int, Node]) -> Node | None:
    controller = snapshot.controller
    if controller is None:
        return None
    # clients cannot reach a KRaft controller: any alive broker forwards requests to it
    return next(iter(nodes.values()), None) if controller.is_kraft else nodes.get(controller.id)


def _node(snapshot: MetadataSnapshot, broker_id: int, listener: str) -> Node:
    broker = snapshot.alive_brokers.get(broker_id)
    endpoint = broker.endpoint(listener) if broker else None
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
) -> PartitionAnswer:
    replicas, isr = tuple(row.replicas), tuple(row.isr)

    def reachable(ids: tuple[int, ...]) -> tuple[int, ...]:
        if not error_unavailable_endpoints:
            return ids
        return tuple(i for i in ids if _node(snapshot, i, listener).id >= 0)

    shown_replicas, shown_isr = reachable(replicas), reachable(isr)
    leader = snapshot.alive_brokers.get(row.leader)
    if leader is None or leader.endpoint(listener) is None:
        missing_listener = leader is not None and error_unavailable_listeners
        error = ErrorCode.LISTENER_NOT_FOUND if missing_listener else ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionAnswer(
            error, index, -1, row.leader_epoch, shown_replicas, shown_isr, tuple(row.offline_replicas)
        )
    complete = shown_replicas == replicas and shown_isr == isr
    return PartitionAnswer(
        ErrorCode.NONE if complete else ErrorCode.REPLICA_NOT_AVAILABLE,
        index,
        row.leader,
        row.leader_epoch,
        shown_replicas,
        shown_isr,
        tuple(row.offline_replicas),
    )
