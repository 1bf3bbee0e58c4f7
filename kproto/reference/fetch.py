"""Fetch (1): a consumer or a follower asks for records. Versions 0 to 18; flexible since 12. Records are held as bytes.

What each version brought:

    1   throttle time
    3   the largest size of the whole response
    4   the isolation level; the last stable offset and aborted transactions
    5   log start offsets
    7   fetch sessions, and an error code for the whole response
    9   the leader epoch that the client knows
    10  (zstd)
    11  the client's rack, and the replica that it should read from
    12  flexible; the epoch of the last fetched record, and where the logs diverge
    13  topics by id
    15  the epoch of a follower's registration
    16  the addresses of leaders
    17  the directory of a follower's log
    18  the high watermark that the follower knows (Kafka 4.1)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Between, Fields, Since, Tagged, Until
from .produce import LeaderIdAndEpoch, NodeEndpoint
from .struct import RequestMessage, ResponseMessage, Struct


class ReplicaState(Struct):
    """The follower that fetches, and the epoch of its registration; -1 for a consumer."""

    fields: ClassVar[Fields] = Fields(
        "replica_id" / Since(0, Int32, default=-1),
        "replica_epoch" / Since(0, Int64, default=-1),
    )
    replica_id: int
    replica_epoch: int


class FetchPartition(Struct):
    """A partition and the offset to read from."""

    fields: ClassVar[Fields] = Fields(
        "partition" / Int32,
        "current_leader_epoch" / Since(9, Int32, default=-1, ignorable=True),
        "fetch_offset" / Int64,
        "last_fetched_epoch" / Since(12, Int32, default=-1),
        "log_start_offset" / Since(5, Int64, default=-1, ignorable=True),
        "partition_max_bytes" / Int32,
        "replica_directory_id" / Tagged(0, Uuid, since=17, ignorable=True),
        "high_watermark" / Tagged(1, Int64, since=18, default=(1 << 63) - 1, ignorable=True),
    )
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int


class FetchTopic(Struct):
    """The partitions of one topic to read."""

    fields: ClassVar[Fields] = Fields(
        "topic" / Until(12, String, ignorable=True),
        "topic_id" / Since(13, Uuid, ignorable=True),
        "partitions" / ArrayOf(FetchPartition),
    )
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    fields: ClassVar[Fields] = Fields(
        "topic" / Between(7, 12, String, ignorable=True),
        "topic_id" / Since(13, Uuid, ignorable=True),
        "partitions" / Since(7, ArrayOf(Int32)),
    )
    topic: str
    topic_id: bytes
    partitions: tuple[int, ...]


class FetchRequest(RequestMessage):
    """The partitions to read, the bytes to return at most, and the time to wait for them."""

    api_key: int = ApiKey.FETCH
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Tagged(0, Nullable(String), since=12, default=None, ignorable=True),
        "replica_id" / Until(14, Int32, default=-1),
        "replica_state" / Tagged(1, StructOf(ReplicaState), since=15),
        "max_wait_ms" / Int32,
        "min_bytes" / Int32,
        "max_bytes" / Since(3, Int32, default=0x7FFF_FFFF, ignorable=True),
        "isolation_level" / Since(4, Int8, ignorable=True),
        "session_id" / Since(7, Int32, ignorable=True),
        "session_epoch" / Since(7, Int32, default=-1, ignorable=True),
        "topics" / ArrayOf(FetchTopic),
        "forgotten_topics_data" / Since(7, ArrayOf(ForgottenTopic)),
        "rack_id" / Since(11, String, ignorable=True),
    )
    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str


class EpochEndOffset(Struct):
    """The largest epoch, and its end offset, that the leader shares with the follower."""

    fields: ClassVar[Fields] = Fields(
        "epoch" / Since(0, Int32, default=-1),
        "end_offset" / Since(0, Int64, default=-1),
    )
    epoch: int
    end_offset: int


class SnapshotId(Struct):
    """The snapshot that a follower of the metadata log has to fetch."""

    fields: ClassVar[Fields] = Fields(
        "end_offset" / Since(0, Int64, default=-1),
        "epoch" / Since(0, Int32, default=-1),
    )
    end_offset: int
    epoch: int


class AbortedTransaction(Struct):
    """A producer's aborted transaction and the offset of its first record."""

    fields: ClassVar[Fields] = Fields(
        "producer_id" / Int64,
        "first_offset" / Int64,
    )
    producer_id: int
    first_offset: int


class PartitionData(Struct):
    """The records of one partition, or an error."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "high_watermark" / Int64,
        "last_stable_offset" / Since(4, Int64, default=-1, ignorable=True),
        "log_start_offset" / Since(5, Int64, default=-1, ignorable=True),
        "diverging_epoch" / Tagged(0, StructOf(EpochEndOffset), since=12),
        "current_leader" / Tagged(1, StructOf(LeaderIdAndEpoch), since=12),
        "snapshot_id" / Tagged(2, StructOf(SnapshotId), since=12),
        "aborted_transactions" / Since(4, Nullable(ArrayOf(AbortedTransaction)), ignorable=True),
        "preferred_read_replica" / Since(11, Int32, default=-1),
        "records" / Nullable(Records),
    )
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: EpochEndOffset
    current_leader: LeaderIdAndEpoch
    snapshot_id: SnapshotId
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: int
    records: bytes | None


class FetchableTopicResponse(Struct):
    """The partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic" / Until(12, String, ignorable=True),
        "topic_id" / Since(13, Uuid, ignorable=True),
        "partitions" / ArrayOf(PartitionData),
    )
    topic: str
    topic_id: bytes
    partitions: list[PartitionData]


class FetchResponse(ResponseMessage):
    """The records of each partition that was asked for."""

    api_key: int = ApiKey.FETCH
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(1, Int32, ignorable=True),
        "error_code" / Since(7, Int16, ignorable=True),
        "session_id" / Since(7, Int32),
        "responses" / ArrayOf(FetchableTopicResponse),
        "node_endpoints" / Tagged(0, ArrayOf(NodeEndpoint), since=16),
    )
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
