"""A ZooKeeper-mode broker's metadata cache: takes UpdateMetadata, answers clients' Metadata requests.

Readers take the current snapshot, which never changes. The behaviour is that of Kafka 3.9's ``ZkMetadataCache``.

A controller sends every broker the same UpdateMetadata but for the broker epoch. The brokers of one process decode
equal bodies once. The next snapshot is a pure function of snapshot and request, so brokers that received the same
requests share one, and only the topics that a request names are copied. The memory is bounded in bytes: the last
requests are kept up to a budget of their decoded size, and a larger one, like a snapshot, as long as it is a broker's
present one.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from channel.locks import guards, guards_changes, new_lock
from channel.logs import TRACE, bounded, state_change_log
from channel.types import LEADER_DURING_DELETE, Broker, EndPoint, Node, UpdateType
from kproto import codec, messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.json_form import uuid_to_json
from kproto.prefix import prefix_of
from kproto.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
"""The topics of groups and of transactions, by the key type of FindCoordinator."""

_MOST_NOTES: Final = 10
"""Most lines of an update in the state-change log, as a full update may remove any number of topics."""

_BUDGET: Final = 32 * 1024 * 1024
_TOPIC_BYTES, _PARTITION_BYTES, _BROKER_BYTES, _ENDPOINT_BYTES = 200, 100, 700, 400
"""What the objects of a decoded request and of its live brokers take, measured, besides the bytes of its body."""

_MOST_BROKERS: Final = 10_000
"""The most live brokers of which objects are kept; Kafka's largest clusters have some hundreds."""

_SHARED_FROM: Final = 4096
"""Smaller bodies are cheaper to decode again than to keep."""


# ---- snapshots -------------------------------------------------------------------------------------------------------


class CachedController(NamedTuple):
    """The controller that sent the last UpdateMetadata."""

    id: int
    is_kraft: bool


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """An immutable state of the metadata.

    Attributes:
        partitions: Topic to partition index to the partition state as it was sent.
        topic_ids: Topic to its 16-byte id, without topics that have no id.
        controller: The sender of the last update, None before the first update or if the update named none.
        alive_brokers: Broker id to broker; each update names all alive brokers.
        lineage: Equal for snapshots made from an empty snapshot by equal requests in the same order.
    """

    partitions: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    controller: CachedController | None = None
    alive_brokers: Mapping[int, Broker] = field(default_factory=dict)
    lineage: int = field(default=0, compare=False)

    @property
    def topic_names(self) -> dict[bytes, str]:
        """Topic id to topic."""
        return {topic_id: name for name, topic_id in self.topic_ids.items()}

    def partition(self, topic: str, index: int) -> Any | None:
        """The partition's state, or None."""
        return self.partitions.get(topic, {}).get(index)

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return sum(map(len, self.partitions.values()))


EMPTY: Final = MetadataSnapshot(MappingProxyType({}), MappingProxyType({}), None, MappingProxyType({}))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Update:
    """The result of an UpdateMetadata.

    Attributes:
        snapshot: The next state.
        deleted: Partitions that the update removed, in order, without those that the same request added again.
        entries: Partition entries that were applied.
        notes: Lines for the state-change log as (whether it is an error, text).
        listeners: Set of listener names to the ids of the brokers that have it.
        left_out: The deletions of a full update, (topic, partition indexes), which preceded the request's own entries.
        body: The decoded request if it is too large to be kept otherwise: brokers that get it later share it.
    """

    snapshot: MetadataSnapshot
    deleted: tuple[TopicPartition, ...] = ()
    entries: int = 0
    notes: tuple[tuple[bool, str], ...] = ()
    listeners: Mapping[frozenset[str], Sequence[int]] = field(default_factory=dict)
    left_out: Sequence[tuple[str, Sequence[int]]] = ()
    body: object = None


def deletions_of_full_update(
    snapshot: MetadataSnapshot, topic_states: Sequence[Any]
) -> tuple[list[tuple[str, list[int]]], list[str]]:
    """The partitions that a KRaft controller's full update deletes, as Kafka 3.9's migration does.

    - A topic whose id the request leaves out is deleted.
    - A topic that stays keeps a partition that the request leaves out. Kafka deletes the partitions that are new
      there instead; the request's own entries put them back.

    Returns:
        Deletions as (topic, partition indexes), to be applied before the request's own entries, and the log lines.
    """
    sent = {state.topic_id: state for state in topic_states}
    deletions: list[tuple[str, list[int]]] = []
    lines: list[str] = []
    for name, topic_id in snapshot.topic_ids.items():
        known = snapshot.partitions.get(name)
        if known is None:
            lines.append(
                f"Error: topic {name} appeared in currentMetadata.topicNames, but not in "
                "currentMetadata.partitionStates."
            )
            continue
        state, cache = sent.get(topic_id), f"with ID {uuid_to_json(topic_id)} from the metadata cache since"
        if state is None:
            deletions.append((name, list(known)))
            lines.append(f"Removing topic {name} {cache} the full UMR did not include it.")
        elif new := [row.partition_index for row in state.partition_states if row.partition_index not in known]:
            deletions.append((name, new))
            lines.append(
                f"Removing {len(new)} partition(s) from topic {name} {cache} the full UMR did not include them."
            )
    return deletions, lines


class _ManyBrokers(Mapping[int, Broker]):
    """The live brokers of a request that names so many that each is made when it is asked for.

    A body of 12 MiB names 400,000 brokers, of which the objects would take 200 MiB besides those of the request.
    """

    def __init__(self, request: Any) -> None:
        self._rows = {row.id: row for row in request.live_brokers}
        self._of = type(request)
        self._version = request.version

    def __getitem__(self, broker_id: int) -> Broker:
        one = self._of(live_brokers=[self._rows[broker_id]], version=self._version)
        return _broker(*one.broker_endpoints[0])

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _broker(broker_id: int, endpoints: Iterable[Any], rack: str | None) -> Broker:
    by_name = {e.listener: EndPoint(e.host, e.port, e.listener, e.security_protocol) for e in endpoints}
    return Broker(broker_id, tuple(by_name.values()), rack)


class LiveBrokers(NamedTuple):
    """The live brokers of an UpdateMetadata: by id, and the ids of the brokers that have each set of listener names."""

    alive: Mapping[int, Broker]
    listeners: Mapping[frozenset[str], Sequence[int]]


def live_brokers(request: Any) -> LiveBrokers:
    """Build the live brokers that a request names, which do not depend on the previous snapshot."""
    alive: Mapping[int, Broker]
    if len(request.live_brokers) > _MOST_BROKERS:
        alive = _ManyBrokers(request)
    else:
        alive = {row[0]: _broker(*row) for row in request.broker_endpoints}
    listeners: dict[frozenset[str], list[int]] = {}
    for broker in alive.values():
        listeners.setdefault(frozenset(each.listener_name for each in broker.endpoints), []).append(broker.id)
    return LiveBrokers(alive, listeners)


def apply_update(
    snapshot: MetadataSnapshot,
    request: Any,
    *,
    version: int,
    migration_enabled: bool,
    lineage: int,
) -> Update:
    """Return the snapshot after an UpdateMetadata.

    Args:
        snapshot: The state before; it is not changed.
        request: The decoded message.
        migration_enabled: Whether this broker takes part in a migration to KRaft, so that full updates count as full.
        lineage: The lineage of the next snapshot.
    """
    notes: list[tuple[bool, str]] = []
    deletions: list[tuple[str, list[int]]] = []
    topic_states, rows = request.topic_states, request.partition_states
    if request.is_kraft_controller and request.type == UpdateType.FULL:
        if version < 8:
            notes.append((True, f"Received a full UpdateMetadata of version {version}; this should not be possible"))
        elif not migration_enabled:
            notes.append((True, "Not treating the UpdateMetadata as full: migration to KRaft is not enabled"))
        else:
            deletions, lines = deletions_of_full_update(snapshot, topic_states)
            notes += [(line.startswith("Error"), line) for line in lines]

    partitions = dict(snapshot.partitions)
    copied: dict[str, dict[int, Any]] = {}
    ids = {state.topic_name: state.topic_id for state in topic_states}
    deleted: dict[TopicPartition, None] = {}
    # The deletions after the ids, as in Kafka: a topic that was created again has no id until the next request that
    # names it.
    entries: list[tuple[str, int, Any]] = [(name, index, None) for name, indexes in deletions for index in indexes]
    entries += [(r.topic_name, r.partition_index, None if r.leader == LEADER_DURING_DELETE else r) for r in rows]
    for name, index, row in entries:
        topic = copied.get(name)
        if topic is None:
            topic = copied[name] = partitions[name] = dict(partitions.get(name, ()))
        if row is not None:
            topic[index] = row
            if deleted:
                deleted.pop(TopicPartition(name, index), None)
        else:
            deleted[TopicPartition(name, index)] = None
            topic.pop(index, None)
            if not topic:  # the topic and its id are removed with the last partition
                del partitions[name], copied[name]
                ids[name] = ZERO_UUID

    topic_ids = snapshot.topic_ids
    changed = {name: topic_id for name, topic_id in ids.items() if topic_ids.get(name, ZERO_UUID) != topic_id}
    if changed:
        topic_ids = dict(topic_ids)
        for name, topic_id in changed.items():
            if topic_id == ZERO_UUID:
                del topic_ids[name]
            else:
                topic_ids[name] = topic_id

    controller = (
        CachedController(request.controller_id, bool(request.is_kraft_controller))
        if request.controller_id >= 0
        else None
    )
    alive, listeners = request.body.brokers if isinstance(request, SharedUpdateMetadata) else live_brokers(request)
    after = MetadataSnapshot(partitions if entries else snapshot.partitions, topic_ids, controller, alive, lineage)
    large = request.body if isinstance(request, SharedUpdateMetadata) and request.body.is_large else None
    return Update(after, tuple(deleted), len(entries), tuple(notes), listeners, deletions, large)


# ---- updates that brokers share --------------------------------------------------------------------------------------


class _Body:
    """A decoded body, and its live brokers once a broker has applied the body: even different snapshots share them.

    Attributes:
        is_large: Whether it is above the budget of the requests that are kept.
    """

    is_large = False

    def __init__(self, message: Any) -> None:
        self.message = message

    def decoded_bytes(self, body: int) -> int:
        """Estimate the memory of the objects, and of the bytes of a body of this length."""
        message, brokers = self.message, self.message.live_brokers
        endpoints = sum(len(broker.endpoints) for broker in brokers)
        return (
            body
            + _TOPIC_BYTES * len(message.topic_states)
            + _PARTITION_BYTES * len(message.partition_states)
            + _BROKER_BYTES * len(brokers)
            + _ENDPOINT_BYTES * endpoints
        )

    @cached_property
    def brokers(self) -> LiveBrokers:
        """The live brokers of the request."""
        return live_brokers(self.message)


class SharedUpdateMetadata:
    """One broker's UpdateMetadata request: a message that other brokers share, with this broker's own epoch.

    Attributes:
        message: The request as it was decoded for the first broker.
        broker_epoch: The epoch that this broker's request names.
        content_hash: Equal for equal bodies, whatever the broker epoch.
    """

    __slots__ = ("body", "broker_epoch", "content_hash", "message")

    def __init__(self, body: _Body, broker_epoch: int, content_hash: int) -> None:
        self.body = body
        self.message = body.message
        self.broker_epoch = broker_epoch
        self.content_hash = content_hash

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    def to_json(self, version: int) -> dict[str, Any]:
        """Return Kafka's JSON form, with this broker's epoch."""
        form: dict[str, Any] = self.message.to_json(version)
        form["brokerEpoch"] = self.broker_epoch
        return form


class SharedUpdates:
    """A cache of the latest UpdateMetadata requests to brokers of one process, and of the snapshots after them.

    Args:
        budget: The bytes of decoded requests that are kept; one that is larger is kept as long as it is the last update
            of a broker. 0 keeps none, for a broker that shares updates with no other.
    """

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._lock = new_lock("shared updates")
        self._bodies: OrderedDict[tuple[int, bytes, bytes], tuple[_Body, int]] = OrderedDict()
        self._large: WeakValueDictionary[tuple[int, bytes, bytes], _Body] = WeakValueDictionary()
        self._kept = 0
        self._updates: WeakValueDictionary[int, Update] = WeakValueDictionary()
        self._unshared = itertools.count(1)

    def decode(self, version: int, body: memoryview) -> Any:
        """Decode the request in ``body``; a body that differs from an earlier one only in the broker epoch is shared.

        Raises:
            DecodeError: The bytes are no UpdateMetadata request of this version.
        """
        prefix = prefix_of(ApiKey.UPDATE_METADATA, version) if self._budget else None
        if prefix is None or len(body) < prefix.size:
            return codec.decode_request(ApiKey.UPDATE_METADATA, version, body)
        head, epoch, rest = prefix.cut(body)
        tail = bytes(rest)  # views compare item by item, a hundred times slower
        key = (version, head, tail)
        with self._lock:
            known, _ = self._bodies.get(key, (None, 0))
            if known is not None:
                self._bodies.move_to_end(key)
            else:
                known = self._large.get(key)
        if known is None:
            known = _Body(codec.decode_request(ApiKey.UPDATE_METADATA, version, body))
            if len(tail) >= _SHARED_FROM:
                self._keep(key, known)
        return SharedUpdateMetadata(known, known.message.broker_epoch if epoch is None else epoch, hash(key))

    def _keep(self, key: tuple[int, bytes, bytes], body: _Body) -> None:
        size = body.decoded_bytes(len(key[2]))
        with self._lock:
            if size > self._budget:
                body.is_large = True
                self._large[key] = body
            elif key not in self._bodies:
                self._bodies[key] = body, size
                self._kept += size
                while self._kept > self._budget:
                    _, (_, oldest) = self._bodies.popitem(last=False)
                    self._kept -= oldest

    def apply(self, snapshot: MetadataSnapshot, request: Any, *, version: int, migration_enabled: bool) -> Update:
        """Do ``apply_update``; brokers that received equal requests in the same order get the same snapshot object.

        A snapshot is shared as long as it is some broker's present snapshot, and not kept longer.
        """
        if isinstance(request, SharedUpdateMetadata):
            lineage = hash((snapshot.lineage, request.content_hash, migration_enabled))
        else:
            lineage = -next(self._unshared)
        with self._lock:
            known = self._updates.get(lineage)
        if known is None:
            known = apply_update(
                snapshot, request, version=version, migration_enabled=migration_enabled, lineage=lineage
            )
            with self._lock:
                known = self._updates.setdefault(lineage, known)
        return known


guards(SharedUpdates, "_lock", "_bodies", "_updates")


# ---- the cache -------------------------------------------------------------------------------------------------------


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
        migration_enabled: Whether a KRaft controller's full update counts as full.
        updates: The updates that the brokers of a process share, so that equal snapshots are one object.

    Attributes:
        updates: As given, or the broker's own.
    """

    def __init__(
        self, broker_id: int, *, migration_enabled: bool = False, updates: SharedUpdates | None = None
    ) -> None:
        self.broker_id = broker_id
        self.migration_enabled = migration_enabled
        self.updates = updates or SharedUpdates(budget=0)
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

        Returns:
            The partitions that the update deleted, in order.
        """
        with self._write:
            update = self._last = self.updates.apply(
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

    def topic_metadata(
        self,
        topics: Iterable[str],
        listener: str,
        *,
        error_unavailable_endpoints: bool = False,
        error_unavailable_listeners: bool = False,
    ) -> list[messages.MetadataResponseTopic]:
        """The topics of a Metadata answer; topics that are not known are left out.

        Args:
            listener: The listener of the client's connection.
            error_unavailable_endpoints: For version 0: replicas and ISR only of brokers that are alive, and
                REPLICA_NOT_AVAILABLE (9) where a replica was left out.
            error_unavailable_listeners: For version 6 and later: LISTENER_NOT_FOUND (72) for a leader that is
                alive without the listener; older clients get LEADER_NOT_AVAILABLE (5).
        """
        snapshot = self._last.snapshot
        nodes = _nodes(snapshot, listener)

        def shown(ids: Iterable[int]) -> tuple[int, ...]:
            return tuple(i for i in ids if i in nodes or not error_unavailable_endpoints)

        def partition(index: int, row: Any) -> messages.MetadataResponsePartition:
            replicas, isr = shown(row.replicas), shown(row.isr)
            if row.leader in nodes:
                is_complete = replicas == tuple(row.replicas) and isr == tuple(row.isr)
                code = ErrorCode.NONE if is_complete else ErrorCode.REPLICA_NOT_AVAILABLE
            elif error_unavailable_listeners and row.leader in snapshot.alive_brokers:
                code = ErrorCode.LISTENER_NOT_FOUND
            else:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return messages.MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=row.leader if row.leader in nodes else -1,
                leader_epoch=row.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=row.offline_replicas,
            )

        return [
            messages.MetadataResponseTopic(
                name=name,
                topic_id=snapshot.topic_ids.get(name, ZERO_UUID),
                is_internal=name in INTERNAL_TOPICS,
                partitions=[partition(index, row) for index, row in snapshot.partitions[name].items()],
            )
            for name in topics
            if name in snapshot.partitions
        ]

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


guards_changes(MetadataCache, "_write", "_last")


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
