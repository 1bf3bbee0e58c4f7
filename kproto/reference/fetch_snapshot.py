"""FetchSnapshot (59): a replica of the metadata log fetches a part of a snapshot. Versions 0 and 1, both flexible.

1  the follower's directory, and the addresses of leaders
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class FetchSnapshotId(Struct):
    """A snapshot: it holds what the log says before ``end_offset``, whose last record is of ``epoch``."""

    fields = Fields(
        "end_offset" / Int64,
        "epoch" / Int32,
    )


class FetchSnapshotPartition(Struct):
    """The snapshot of one partition, and the byte to read from."""

    fields = Fields(
        "partition" / Int32,
        "current_leader_epoch" / Int32,
        "snapshot_id" / StructOf(FetchSnapshotId),
        "position" / Int64,
        "replica_directory_id" / Tagged(0, Uuid, since=1, ignorable=True),
    )


class FetchSnapshotTopic(Struct):
    """Partitions of one topic."""

    fields = Fields(
        "name" / String,
        "partitions" / ArrayOf(FetchSnapshotPartition),
    )


class FetchSnapshotRequest(RequestMessage):
    """The snapshots to read, and the bytes to return at most."""

    api_key = ApiKey.FETCH_SNAPSHOT
    fields = Fields(
        "cluster_id" / Tagged(0, Nullable(String), since=0, default=None),
        "replica_id" / Since(0, Int32, default=-1),
        "max_bytes" / Since(0, Int32, default=0x7FFF_FFFF),
        "topics" / ArrayOf(FetchSnapshotTopic),
    )


class SnapshotLeader(Struct):
    """The leader that the node knows."""

    fields = Fields(
        "leader_id" / Int32,
        "leader_epoch" / Int32,
    )


class FetchSnapshotPartitionResult(Struct):
    """A part of a snapshot: its bytes from ``position`` on, of ``size`` in all."""

    fields = Fields(
        "index" / Int32,
        "error_code" / Int16,
        "snapshot_id" / StructOf(FetchSnapshotId),
        "current_leader" / Tagged(0, StructOf(SnapshotLeader), since=0),
        "size" / Int64,
        "position" / Int64,
        "unaligned_records" / Records,
    )


class FetchSnapshotTopicResult(Struct):
    """Parts of one topic's snapshots."""

    fields = Fields(
        "name" / String,
        "partitions" / ArrayOf(FetchSnapshotPartitionResult),
    )


class FetchSnapshotResponse(ResponseMessage):
    """The parts of the snapshots that were asked for."""

    api_key = ApiKey.FETCH_SNAPSHOT
    fields = Fields(
        "throttle_time_ms" / Since(0, Int32, ignorable=True),
        "error_code" / Int16,
        "topics" / ArrayOf(FetchSnapshotTopicResult),
        "node_endpoints" / Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1),
    )
