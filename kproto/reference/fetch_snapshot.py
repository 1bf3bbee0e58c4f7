"""FetchSnapshot (59): a replica of the metadata log fetches a part of a snapshot. Versions 0 and 1, both flexible.

1  the follower's directory, and the addresses of leaders
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class FetchSnapshotId(Struct):
    """A snapshot: it holds what the log says before ``end_offset``, whose last record is of ``epoch``."""

    end_offset: int = Int64
    epoch: int = Int32


class FetchSnapshotPartition(Struct):
    """The snapshot of one partition, and the byte to read from."""

    partition: int = Int32
    current_leader_epoch: int = Int32
    snapshot_id: FetchSnapshotId = StructOf(FetchSnapshotId)
    position: int = Int64
    replica_directory_id: bytes = Tagged(0, Uuid, since=1, ignorable=True)


class FetchSnapshotTopic(Struct):
    """Partitions of one topic."""

    name: str = String
    partitions: list[FetchSnapshotPartition] = ArrayOf(FetchSnapshotPartition)


class FetchSnapshotRequest(RequestMessage, api_key=ApiKey.FETCH_SNAPSHOT):
    """The snapshots to read, and the bytes to return at most."""

    cluster_id: str | None = Tagged(0, Nullable(String), since=0, default=None)
    replica_id: int = Since(0, Int32, default=-1)
    max_bytes: int = Since(0, Int32, default=0x7FFF_FFFF)
    topics: list[FetchSnapshotTopic] = ArrayOf(FetchSnapshotTopic)


class SnapshotLeader(Struct):
    """The leader that the node knows."""

    leader_id: int = Int32
    leader_epoch: int = Int32


class FetchSnapshotPartitionResult(Struct):
    """A part of a snapshot: its bytes from ``position`` on, of ``size`` in all."""

    index: int = Int32
    error_code: int = Int16
    snapshot_id: FetchSnapshotId = StructOf(FetchSnapshotId)
    current_leader: SnapshotLeader = Tagged(0, StructOf(SnapshotLeader), since=0)
    size: int = Int64
    position: int = Int64
    unaligned_records: bytes = Records


class FetchSnapshotTopicResult(Struct):
    """Parts of one topic's snapshots."""

    name: str = String
    partitions: list[FetchSnapshotPartitionResult] = ArrayOf(FetchSnapshotPartitionResult)


class FetchSnapshotResponse(ResponseMessage, api_key=ApiKey.FETCH_SNAPSHOT):
    """The parts of the snapshots that were asked for."""

    throttle_time_ms: int = Since(0, Int32, ignorable=True)
    error_code: int = Int16
    topics: list[FetchSnapshotTopicResult] = ArrayOf(FetchSnapshotTopicResult)
    node_endpoints: list[QuorumNodeEndpoint] = Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1)
