"""What a broker knows of the cluster: an immutable snapshot, and how an UpdateMetadata makes the next one.

Everything here is a pure function of (snapshot, request), so that a thousand brokers in one process which were told the
same hold one snapshot between them (``SnapshotMemo``). Only the topics that a request names are copied.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.types import LEADER_DURING_DELETE, UpdateType
from kproto.json_form import uuid_to_json
from kproto.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "EMPTY",
    "AliveBroker",
    "CachedController",
    "Endpoint",
    "MetadataSnapshot",
    "SnapshotMemo",
    "Update",
    "apply_update",
    "deletions_of_full_update",
]


class Endpoint(NamedTuple):
    """Where a broker listens under one listener name; ``security_protocol`` is Kafka's number (0 PLAINTEXT ...)."""

    listener: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class AliveBroker:
    """A broker as the last UpdateMetadata described it."""

    id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None


class CachedController(NamedTuple):
    """The controller that sent the last UpdateMetadata."""

    id: int
    is_kraft: bool


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """One state of the metadata; never changed, only replaced.

    Attributes:
        partitions: Topic to partition index to the partition state as it was sent.
        topic_ids: Topic to its 16-byte id; topics without one are not in it.
        controller: Who sent the last update, None before the first or where it named none.
        alive_brokers: Broker id to broker; each update names all of them.
    """

    partitions: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    controller: CachedController | None = None
    alive_brokers: Mapping[int, AliveBroker] = field(default_factory=dict)

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


class Update(NamedTuple):
    """What an UpdateMetadata came to.

    Attributes:
        snapshot: The next state.
        deleted: Partitions that it took away, in order; one that came back within the request is not among them.
        entries: Partition entries that were applied.
        notes: Lines for the state-change log as (is it an error, text).
    """

    snapshot: MetadataSnapshot
    deleted: tuple[TopicPartition, ...]
    entries: int
    notes: tuple[tuple[bool, str], ...]


def deletions_of_full_update(
    snapshot: MetadataSnapshot, topic_states: Sequence[Any]
) -> tuple[list[tuple[str, list[int]]], list[str]]:
    """What a KRaft controller's full update takes away by leaving it out (behaviour of Kafka's 3.9 migration).

    Returns:
        Deletions as (topic, partition indexes), to be applied before the request's own entries, and the log lines.
        Kafka's own transform leaves a partition that vanished from a kept topic in the cache; here it goes, as "full"
        says it should (no topic loses partitions in Kafka but by being made anew, so the wire shows no difference).
    """
    sent = {state.topic_id: state for state in topic_states}
    deletions: list[tuple[str, list[int]]] = []
    lines: list[str] = []
    for name, topic_id in snapshot.topic_ids.items():
        known = snapshot.partitions.get(name)
        if known is None:
            lines.append(
                f"Error: topic {name} appeared in currentMetadata.topicNames, "
                "but not in currentMetadata.partitionStates."
            )
            continue
        state = sent.get(topic_id)
        kept = {row.partition_index for row in state.partition_states} if state else set()
        gone = [index for index in known if index not in kept]
        if gone:
            deletions.append((name, gone))
            what = f"topic {name}" if state is None else f"partitions {gone} of topic {name}"
            lines.append(
                f"Removing {what} with ID {uuid_to_json(topic_id)} from the metadata cache "
                "since the full UMR did not include it."
            )
    return deletions, lines


def apply_update(snapshot: MetadataSnapshot, request: Any, *, version: int, migration_enabled: bool) -> Update:
    """The snapshot after an UpdateMetadata.

    Args:
        snapshot: The state before; it is not changed.
        request: The message as it was read.
        version: The version it was read with.
        migration_enabled: Whether this broker takes part in a migration to KRaft, so that full updates count as full.
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
    for name, indexes in deletions:
        for index in indexes:
            work.remove(name, index)
    # ids after the deletions of a full update: a topic that was made anew keeps the new id
    for state in request.topic_states:
        work.identify(state.topic_name, state.topic_id)
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
    alive = {
        broker_id: AliveBroker(
            broker_id,
            {e.listener: Endpoint(e.listener, e.host, e.port, e.security_protocol) for e in endpoints},
            rack,
        )
        for broker_id, endpoints, rack in request.broker_endpoints
    }
    return Update(
        MetadataSnapshot(work.partitions, work.topic_ids, controller, alive), tuple(deleted), entries, tuple(notes)
    )


class _Topics:
    """Partition map and topic ids being rebuilt; each map is copied when it is first touched."""

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
        if not topic and self._partitions is not None:  # the topic goes with its last partition, and its id with it
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


class SnapshotMemo:
    """Remembers the last few updates, so that brokers which stood at the same snapshot and got the same message
    share the next one instead of each making its own.

    Args:
        size: How many updates are remembered.
    """

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int, bool], tuple[MetadataSnapshot, Any, Update]] = OrderedDict()

    def apply(self, snapshot: MetadataSnapshot, request: Any, *, version: int, migration_enabled: bool) -> Update:
        """``apply_update``, or its remembered result for the same snapshot and message objects."""
        request = getattr(request, "message", request)  # the one behind a request that brokers share
        key = (id(snapshot), id(request), migration_enabled)
        with self._lock:
            known = self._known.get(key)
            # the entry keeps both alive, so their ids cannot have been given to others
            if known is not None:
                self._known.move_to_end(key)
                return known[2]
        update = apply_update(snapshot, request, version=version, migration_enabled=migration_enabled)
        with self._lock:
            self._known[key] = (snapshot, request, update)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return update
