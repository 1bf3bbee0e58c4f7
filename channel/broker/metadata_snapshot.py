"""A broker's immutable snapshot of the cluster's metadata, and the function that applies an UpdateMetadata to it.

Everything here is a pure function of (snapshot, request), so brokers of one process that received the same requests can
share one snapshot. Only the topics that a request names are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.types import LEADER_DURING_DELETE, Broker, EndPoint, UpdateType
from kproto.json_form import uuid_to_json
from kproto.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    """

    snapshot: MetadataSnapshot
    deleted: tuple[TopicPartition, ...] = ()
    entries: int = 0
    notes: tuple[tuple[bool, str], ...] = ()
    listeners: Mapping[frozenset[str], Sequence[int]] = field(default_factory=dict)
    left_out: Sequence[tuple[str, Sequence[int]]] = ()


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


class LiveBrokers(NamedTuple):
    """The live brokers of an UpdateMetadata: by id, and the ids of the brokers that have each set of listener names."""

    alive: Mapping[int, Broker]
    listeners: Mapping[frozenset[str], Sequence[int]]


def live_brokers(request: Any) -> LiveBrokers:
    """Build the live brokers that a request names, which do not depend on the previous snapshot."""
    alive: dict[int, Broker] = {}
    listeners: dict[frozenset[str], list[int]] = {}
    for broker_id, endpoints, rack in request.broker_endpoints:
        by_name = {e.listener: EndPoint(e.host, e.port, e.listener, e.security_protocol) for e in endpoints}
        alive[broker_id] = Broker(broker_id, tuple(by_name.values()), rack)
        listeners.setdefault(frozenset(by_name), []).append(broker_id)
    return LiveBrokers(alive, listeners)


def apply_update(
    snapshot: MetadataSnapshot,
    request: Any,
    *,
    version: int,
    migration_enabled: bool,
    lineage: int,
    brokers: LiveBrokers | None = None,
) -> Update:
    """Return the snapshot after an UpdateMetadata.

    Args:
        snapshot: The state before; it is not changed.
        request: The decoded message.
        version: The version of the message.
        migration_enabled: Whether this broker takes part in a migration to KRaft, so that full updates count as full.
        lineage: The lineage of the next snapshot.
        brokers: The request's live brokers, if the caller has them already.
    """
    notes: list[tuple[bool, str]] = []
    deletions: list[tuple[str, list[int]]] = []
    if request.is_kraft_controller and request.type == UpdateType.FULL:
        if version < 8:
            notes.append((True, f"Received a full UpdateMetadata of version {version}; this should not be possible"))
        elif not migration_enabled:
            notes.append((True, "Not treating the UpdateMetadata as full: migration to KRaft is not enabled"))
        else:
            deletions, lines = deletions_of_full_update(snapshot, request.topic_states)
            notes += [(line.startswith("Error"), line) for line in lines]

    rows = request.partition_states
    deleted: dict[TopicPartition, None] = {}
    work = _Topics(snapshot, deleted)
    for state in request.topic_states:
        work.identify(state.topic_name, state.topic_id)
    # After the ids, as in Kafka: a topic that was created again has no id until the next request that names it.
    for name, indexes in deletions:
        for index in indexes:
            work.remove(name, index)
    for row in rows:
        if row.leader == LEADER_DURING_DELETE:
            work.remove(row.topic_name, row.partition_index)
        else:
            work.put(row.topic_name, row.partition_index, row)
    entries = len(rows) + sum(len(indexes) for _, indexes in deletions)

    controller = (
        CachedController(request.controller_id, bool(request.is_kraft_controller))
        if request.controller_id >= 0
        else None
    )
    alive, listeners = brokers or live_brokers(request)
    after = MetadataSnapshot(work.partitions, work.topic_ids, controller, alive, lineage)
    return Update(after, tuple(deleted), entries, tuple(notes), listeners, deletions)


class _Topics:
    """Partition map and topic ids of the next snapshot; each map is copied at its first change."""

    def __init__(self, snapshot: MetadataSnapshot, deleted: dict[TopicPartition, None]) -> None:
        self._old = snapshot
        self._deleted = deleted
        self._partitions: dict[str, Mapping[int, Any]] | None = None
        self._topic_ids: dict[str, bytes] | None = None
        self._mine: dict[str, dict[int, Any]] = {}

    @property
    def partitions(self) -> Mapping[str, Mapping[int, Any]]:
        return self._old.partitions if self._partitions is None else self._partitions

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        return self._old.topic_ids if self._topic_ids is None else self._topic_ids

    def identify(self, name: str, topic_id: bytes) -> None:
        if self.topic_ids.get(name, ZERO_UUID) == topic_id:
            return
        if self._topic_ids is None:
            self._topic_ids = dict(self._old.topic_ids)
        if topic_id == ZERO_UUID:
            self._topic_ids.pop(name, None)
        else:
            self._topic_ids[name] = topic_id

    def put(self, name: str, index: int, row: Any) -> None:
        self._topic(name)[index] = row
        if self._deleted:
            self._deleted.pop(TopicPartition(name, index), None)

    def remove(self, name: str, index: int) -> None:
        self._deleted[TopicPartition(name, index)] = None
        topic = self._topic(name)
        topic.pop(index, None)
        if not topic and self._partitions is not None:  # the topic and its id are removed with the last partition
            del self._partitions[name], self._mine[name]
            self.identify(name, ZERO_UUID)

    def _topic(self, name: str) -> dict[int, Any]:
        mine = self._mine.get(name)
        if mine is None:
            if self._partitions is None:
                self._partitions = dict(self._old.partitions)
            mine = self._mine[name] = dict(self._partitions.get(name, ()))
            self._partitions[name] = mine
        return mine
