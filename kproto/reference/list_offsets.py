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

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, String
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class ListOffsetsPartition(Struct):
    """A partition and the timestamp in ms to look for: -1 for the next offset, -2 for the first."""

    partition_index: int = Int32
    current_leader_epoch: int = Since(4, Int32, default=-1, ignorable=True)
    timestamp: int = Int64
    max_num_offsets: int = Until(0, Int32, default=1)


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = String
    partitions: list[ListOffsetsPartition] = ArrayOf(ListOffsetsPartition)


class ListOffsetsRequest(RequestMessage, api_key=ApiKey.LIST_OFFSETS):
    """The partitions and timestamps to look up."""

    replica_id: int = Int32
    isolation_level: int = Since(2, Int8)
    topics: list[ListOffsetsTopic] = ArrayOf(ListOffsetsTopic)
    timeout_ms: int = Since(10, Int32, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """An offset with its timestamp and leader epoch, each -1 if nothing was found, or an error."""

    partition_index: int = Int32
    error_code: int = Int16
    old_style_offsets: tuple[int, ...] = Until(0, ArrayOf(Int64))
    timestamp: int = Since(1, Int64, default=-1)
    offset: int = Since(1, Int64, default=-1)
    leader_epoch: int = Since(4, Int32, default=-1)


class ListOffsetsTopicResponse(Struct):
    """The offsets of one topic."""

    name: str = String
    partitions: list[ListOffsetsPartitionResponse] = ArrayOf(ListOffsetsPartitionResponse)


class ListOffsetsResponse(ResponseMessage, api_key=ApiKey.LIST_OFFSETS):
    """The offset of each partition."""

    throttle_time_ms: int = Since(2, Int32, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = ArrayOf(ListOffsetsTopicResponse)
