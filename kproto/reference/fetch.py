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

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Between, Since, Tagged, Until
from .produce import LeaderIdAndEpoch, NodeEndpoint
from .struct import RequestMessage, ResponseMessage, Struct


class ReplicaState(Struct):
    """The follower that fetches, and the epoch of its registration; -1 for a consumer."""

    replica_id: int = Since(0, Int32, default=-1)
    replica_epoch: int = Since(0, Int64, default=-1)


class FetchPartition(Struct):
    """A partition and the offset to read from."""

    partition: int = Int32
    current_leader_epoch: int = Since(9, Int32, default=-1, ignorable=True)
    fetch_offset: int = Int64
    last_fetched_epoch: int = Since(12, Int32, default=-1)
    log_start_offset: int = Since(5, Int64, default=-1, ignorable=True)
    partition_max_bytes: int = Int32
    replica_directory_id: bytes = Tagged(0, Uuid, since=17, ignorable=True)
    high_watermark: int = Tagged(1, Int64, since=18, default=(1 << 63) - 1, ignorable=True)


class FetchTopic(Struct):
    """The partitions of one topic to read."""

    topic: str = Until(12, String, ignorable=True)
    topic_id: bytes = Since(13, Uuid, ignorable=True)
    partitions: list[FetchPartition] = ArrayOf(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    topic: str = Between(7, 12, String, ignorable=True)
    topic_id: bytes = Since(13, Uuid, ignorable=True)
    partitions: tuple[int, ...] = Since(7, ArrayOf(Int32))


class FetchRequest(RequestMessage, api_key=ApiKey.FETCH):
    """The partitions to read, the bytes to return at most, and the time to wait for them."""

    cluster_id: str | None = Tagged(0, Nullable(String), since=12, default=None, ignorable=True)
    replica_id: int = Until(14, Int32, default=-1)
    replica_state: ReplicaState = Tagged(1, StructOf(ReplicaState), since=15)
    max_wait_ms: int = Int32
    min_bytes: int = Int32
    max_bytes: int = Since(3, Int32, default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int = Since(4, Int8, ignorable=True)
    session_id: int = Since(7, Int32, ignorable=True)
    session_epoch: int = Since(7, Int32, default=-1, ignorable=True)
    topics: list[FetchTopic] = ArrayOf(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = Since(7, ArrayOf(ForgottenTopic))
    rack_id: str = Since(11, String, ignorable=True)


class EpochEndOffset(Struct):
    """The largest epoch, and its end offset, that the leader shares with the follower."""

    epoch: int = Since(0, Int32, default=-1)
    end_offset: int = Since(0, Int64, default=-1)


class SnapshotId(Struct):
    """The snapshot that a follower of the metadata log has to fetch."""

    end_offset: int = Since(0, Int64, default=-1)
    epoch: int = Since(0, Int32, default=-1)


class AbortedTransaction(Struct):
    """A producer's aborted transaction and the offset of its first record."""

    producer_id: int = Int64
    first_offset: int = Int64


class PartitionData(Struct):
    """The records of one partition, or an error."""

    partition_index: int = Int32
    error_code: int = Int16
    high_watermark: int = Int64
    last_stable_offset: int = Since(4, Int64, default=-1, ignorable=True)
    log_start_offset: int = Since(5, Int64, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = Tagged(0, StructOf(EpochEndOffset), since=12)
    current_leader: LeaderIdAndEpoch = Tagged(1, StructOf(LeaderIdAndEpoch), since=12)
    snapshot_id: SnapshotId = Tagged(2, StructOf(SnapshotId), since=12)
    aborted_transactions: list[AbortedTransaction] | None = Since(
        4, Nullable(ArrayOf(AbortedTransaction)), ignorable=True
    )
    preferred_read_replica: int = Since(11, Int32, default=-1)
    records: bytes | None = Nullable(Records)


class FetchableTopicResponse(Struct):
    """The partitions of one topic."""

    topic: str = Until(12, String, ignorable=True)
    topic_id: bytes = Since(13, Uuid, ignorable=True)
    partitions: list[PartitionData] = ArrayOf(PartitionData)


class FetchResponse(ResponseMessage, api_key=ApiKey.FETCH):
    """The records of each partition that was asked for."""

    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    error_code: int = Since(7, Int16, ignorable=True)
    session_id: int = Since(7, Int32)
    responses: list[FetchableTopicResponse] = ArrayOf(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = Tagged(0, ArrayOf(NodeEndpoint), since=16)
