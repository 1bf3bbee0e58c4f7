"""FetchSnapshot (59): a replica of the metadata log fetches a part of a snapshot. Versions 0 and 1, both flexible.

1  the follower's directory, and the addresses of leaders
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class FetchSnapshotId(Struct):
    """A snapshot: it holds what the log says before ``end_offset``, whose last record is of ``epoch``."""

    fields: ClassVar[Fields] = Fields(
        "end_offset" / Int64,
        "epoch" / Int32,
    )
    end_offset: int
    epoch: int


class FetchSnapshotPartition(Struct):
    """The snapshot of one partition, and the byte to read from."""

    fields: ClassVar[Fields] = Fields(
        "partition" / Int32,
        "current_leader_epoch" / Int32,
        "snapshot_id" / StructOf(FetchSnapshotId),
        "position" / Int64,
        "replica_directory_id" / Tagged(0, Uuid, since=1, ignorable=True),
    )
    partition: int
    current_leader_epoch: int
    snapshot_id: FetchSnapshotId
    position: int
    replica_directory_id: bytes


class FetchSnapshotTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(FetchSnapshotPartition),
    )
    name: str
    partitions: list[FetchSnapshotPartition]


class FetchSnapshotRequest(RequestMessage):
    """The snapshots to read, and the bytes to return at most."""

    api_key: int = ApiKey.FETCH_SNAPSHOT
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Tagged(0, Nullable(String), since=0, default=None),
        "replica_id" / Since(0, Int32, default=-1),
        "max_bytes" / Since(0, Int32, default=0x7FFF_FFFF),
        "topics" / ArrayOf(FetchSnapshotTopic),
    )
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[FetchSnapshotTopic]


class SnapshotLeader(Struct):
    """The leader that the node knows."""

    fields: ClassVar[Fields] = Fields(
        "leader_id" / Int32,
        "leader_epoch" / Int32,
    )
    leader_id: int
    leader_epoch: int


class FetchSnapshotPartitionResult(Struct):
    """A part of a snapshot: its bytes from ``position`` on, of ``size`` in all."""

    fields: ClassVar[Fields] = Fields(
        "index" / Int32,
        "error_code" / Int16,
        "snapshot_id" / StructOf(FetchSnapshotId),
        "current_leader" / Tagged(0, StructOf(SnapshotLeader), since=0),
        "size" / Int64,
        "position" / Int64,
        "unaligned_records" / Records,
    )
    index: int
    error_code: int
    snapshot_id: FetchSnapshotId
    current_leader: SnapshotLeader
    size: int
    position: int
    unaligned_records: bytes


class FetchSnapshotTopicResult(Struct):
    """Parts of one topic's snapshots."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(FetchSnapshotPartitionResult),
    )
    name: str
    partitions: list[FetchSnapshotPartitionResult]


class FetchSnapshotResponse(ResponseMessage):
    """The parts of the snapshots that were asked for."""

    api_key: int = ApiKey.FETCH_SNAPSHOT
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(0, Int32, ignorable=True),
        "error_code" / Int16,
        "topics" / ArrayOf(FetchSnapshotTopicResult),
        "node_endpoints" / Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1),
    )
    throttle_time_ms: int
    error_code: int
    topics: list[FetchSnapshotTopicResult]
    node_endpoints: list[QuorumNodeEndpoint]
