"""The image of a cluster: the metadata log's records, folded in the order of their offsets.

``Image.apply`` takes a record and returns the states of partitions that it makes. What a PartitionChangeRecord leaves
out is as before; where the log was not read from its beginning, nor a snapshot, what was before is unknown, and stays
None. Transactions are settled before: see ``kproto.metadata_log.folding``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kproto.metadata_log.records import (
    SAME_LEADER,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
    ZkMigrationStateRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kproto.metadata_log.records import MetadataRecord

Ids = tuple[int, ...]


class FoldedPartition(NamedTuple):
    """A partition after a record; None: unknown.

    Attributes:
        leader: The leader; -1 none.
        leader_epoch, partition_epoch: Its epochs.
        isr, replicas, removing, adding: Ids of brokers.
        recovering: Whether the leader was elected uncleanly and has not recovered yet.
        elr: The eligible leader replicas; empty also where the cluster does not keep them.
        last_known: The last known leader, where nobody else is eligible.
    """

    leader: int | None
    leader_epoch: int | None
    partition_epoch: int | None
    isr: Ids | None
    replicas: Ids | None
    removing: Ids | None
    adding: Ids | None
    recovering: bool | None
    elr: Ids | None
    last_known: Ids | None


_UNKNOWN = FoldedPartition(None, None, None, None, None, None, None, None, None, None)


class PartitionFold(NamedTuple):
    """A state that a record made.

    Attributes:
        topic_id, partition: The partition.
        former: The state before; None: there was none, the partition is new.
        state: The state after; None: its topic was deleted.
        record: The record.
    """

    topic_id: bytes
    partition: int
    former: FoldedPartition | None
    state: FoldedPartition | None
    record: MetadataRecord


@dataclass(slots=True)
class Topic:
    """A topic and its partitions by number. ``name`` is None where the log names its id alone."""

    name: str | None
    partitions: dict[int, FoldedPartition] = field(default_factory=dict)


class Image:
    """What the log says so far.

    Attributes:
        topics: By topic id.
        unknown: How many records of each (type, version) were passed over.
        takes_over: Whether partitions that come now are ZooKeeper's: its controllers made and led them.
    """

    def __init__(self) -> None:
        self.takes_over = False
        self.topics: dict[bytes, Topic] = {}
        self.unknown: dict[tuple[int, int], int] = {}

    def apply(self, record: MetadataRecord | UnknownRecord) -> Sequence[PartitionFold]:
        """Apply the next record; return each change of a partition."""
        kind = type(record)
        if kind is PartitionChangeRecord:
            return (self._change(record),)  # type: ignore[arg-type]
        if kind is PartitionRecord:
            return (self._partition(record),)  # type: ignore[arg-type]
        if kind is RemoveTopicRecord:
            return list(self._remove(record))  # type: ignore[arg-type]
        if isinstance(record, TopicRecord):
            self._topic(record.topic_id).name = record.name
        elif isinstance(record, ClearElrRecord):
            self._clear_elr(record.topic_name)
        elif isinstance(record, ZkMigrationStateRecord):
            self.takes_over = record.zk_migration_state == _PRE_MIGRATION
        elif isinstance(record, UnknownRecord):
            key = record.record_type, record.version
            self.unknown[key] = self.unknown.get(key, 0) + 1
        return ()

    def forget(self) -> None:
        """Forget what may have changed where the log has a gap; names of topics stay."""
        for topic in self.topics.values():
            topic.partitions = dict.fromkeys(topic.partitions, _UNKNOWN)

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self.topics.get(topic_id)
        if topic is None:
            topic = self.topics[topic_id] = Topic(None)
        return topic

    def _partition(self, record: PartitionRecord) -> PartitionFold:
        partitions = self._topic(record.topic_id).partitions
        former = partitions.get(record.partition_id)
        state = FoldedPartition(
            record.leader, record.leader_epoch, record.partition_epoch, record.isr, record.replicas,
            record.removing_replicas, record.adding_replicas, record.leader_recovery_state == 1,
            record.eligible_leader_replicas or (), record.last_known_elr or (),
        )  # fmt: skip
        partitions[record.partition_id] = state
        return PartitionFold(record.topic_id, record.partition_id, former, state, record)

    def _change(self, record: PartitionChangeRecord) -> PartitionFold:
        partitions = self._topic(record.topic_id).partitions
        former = partitions.get(record.partition_id, _UNKNOWN)
        if former.recovering is None and record.leader_recovery_state != -1:  # it is written where it changes
            former = former._replace(recovering=not record.leader_recovery_state)
        leader, leader_epoch = former.leader, former.leader_epoch
        if record.leader != SAME_LEADER:
            leader = record.leader
            leader_epoch = None if leader_epoch is None else _next(leader_epoch)
        elif leader is None and record.isr is not None and len(record.isr) == 1:
            leader = record.isr[0]  # an ISR that changes without an election holds its leader
        state = FoldedPartition(
            leader,
            leader_epoch,
            None if former.partition_epoch is None else _next(former.partition_epoch),
            former.isr if record.isr is None else record.isr,
            former.replicas if record.replicas is None else record.replicas,
            former.removing if record.removing_replicas is None else record.removing_replicas,
            former.adding if record.adding_replicas is None else record.adding_replicas,
            former.recovering if record.leader_recovery_state == -1 else record.leader_recovery_state == 1,
            former.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
            former.last_known if record.last_known_elr is None else record.last_known_elr,
        )
        partitions[record.partition_id] = state
        return PartitionFold(record.topic_id, record.partition_id, former, state, record)

    def _remove(self, record: RemoveTopicRecord) -> Iterator[PartitionFold]:
        topic = self.topics.pop(record.topic_id, None)
        for partition, former in () if topic is None else topic.partitions.items():
            yield PartitionFold(record.topic_id, partition, former, None, record)

    def _clear_elr(self, name: str) -> None:
        """Clear the eligible leader replicas of a topic, or of all without a name."""
        for topic in self.topics.values():
            for partition, former in topic.partitions.items() if name in ("", topic.name) else ():
                if former.elr or former.last_known:
                    topic.partitions[partition] = former._replace(elr=(), last_known=())


def _next(epoch: int) -> int:
    """The next epoch, an int32 as in Kafka, where the largest is followed by the lowest."""
    return epoch + 1 if epoch < _LARGEST_EPOCH else -_LARGEST_EPOCH - 1


_PRE_MIGRATION = 2
_LARGEST_EPOCH = (1 << 31) - 1
