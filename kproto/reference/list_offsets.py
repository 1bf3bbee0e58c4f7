"""ListOffsets (2): the offset of a partition's first or next record, or of a time. Versions 0 to 10; flexible since 6.

What each version brought:

    1  one offset with its timestamp, in place of several
    2  the isolation level; throttle time
    4  leader epochs
    6  flexible
    7  (timestamp -3: the record with the largest timestamp)
    8  (timestamp -4: the first offset on the broker's own disks)
    9  (timestamp -5: the last offset in the remote tier)
    10 the time to wait for the remote tier (Kafka 4)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, String
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class ListOffsetsPartition(Struct):
    """A partition and the timestamp in ms to look for: -1 for the next offset, -2 for the first."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "current_leader_epoch" / Since(4, Int32, default=-1, ignorable=True),
        "timestamp" / Int64,
        "max_num_offsets" / Until(0, Int32, default=1),
    )
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    max_num_offsets: int


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(ListOffsetsPartition),
    )
    name: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(RequestMessage):
    """The partitions and timestamps to look up."""

    api_key: int = ApiKey.LIST_OFFSETS
    fields: ClassVar[Fields] = Fields(
        "replica_id" / Int32,
        "isolation_level" / Since(2, Int8),
        "topics" / ArrayOf(ListOffsetsTopic),
        "timeout_ms" / Since(10, Int32, ignorable=True),
    )
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int


class ListOffsetsPartitionResponse(Struct):
    """An offset with its timestamp and leader epoch, each -1 if nothing was found, or an error."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "old_style_offsets" / Until(0, ArrayOf(Int64)),
        "timestamp" / Since(1, Int64, default=-1),
        "offset" / Since(1, Int64, default=-1),
        "leader_epoch" / Since(4, Int32, default=-1),
    )
    partition_index: int
    error_code: int
    old_style_offsets: tuple[int, ...]
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsTopicResponse(Struct):
    """The offsets of one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(ListOffsetsPartitionResponse),
    )
    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(ResponseMessage):
    """The offset of each partition."""

    api_key: int = ApiKey.LIST_OFFSETS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(2, Int32, ignorable=True),
        "topics" / ArrayOf(ListOffsetsTopicResponse),
    )
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
