"""DescribeQuorum (55): the leader, voters and observers of a KRaft quorum. Versions 0 to 2, all flexible.

What each version brought:

    1  when each replica last fetched, and when it last had caught up
    2  error messages, directories, and the nodes' addresses
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeQuorumPartition(Struct):
    """A partition to describe."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
    )
    partition_index: int


class DescribeQuorumTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(DescribeQuorumPartition),
    )
    topic_name: str
    partitions: list[DescribeQuorumPartition]


class DescribeQuorumRequest(RequestMessage):
    """The partitions whose quorum is asked for."""

    api_key: int = ApiKey.DESCRIBE_QUORUM
    fields: ClassVar[Fields] = Fields(
        "topics" / ArrayOf(DescribeQuorumTopic),
    )
    topics: list[DescribeQuorumTopic]


class QuorumReplica(Struct):
    """A voter or observer: the end of its log, and its last fetches in ms since 1970."""

    fields: ClassVar[Fields] = Fields(
        "replica_id" / Int32,
        "replica_directory_id" / Since(2, Uuid),
        "log_end_offset" / Int64,
        "last_fetch_timestamp" / Since(1, Int64, default=-1, ignorable=True),
        "last_caught_up_timestamp" / Since(1, Int64, default=-1, ignorable=True),
    )
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumPartitionResult(Struct):
    """The quorum of one partition."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "error_message" / Since(2, Nullable(String), ignorable=True),
        "leader_id" / Int32,
        "leader_epoch" / Int32,
        "high_watermark" / Int64,
        "current_voters" / ArrayOf(QuorumReplica),
        "observers" / ArrayOf(QuorumReplica),
    )
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class DescribeQuorumTopicResult(Struct):
    """The quorums of one topic's partitions."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(DescribeQuorumPartitionResult),
    )
    topic_name: str
    partitions: list[DescribeQuorumPartitionResult]


class QuorumNodeListener(Struct):
    """A node's address, by the listener's name."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
    )
    name: str
    host: str
    port: int


class QuorumNode(Struct):
    """A node of the quorum and its addresses."""

    fields: ClassVar[Fields] = Fields(
        "node_id" / Int32,
        "listeners" / ArrayOf(QuorumNodeListener),
    )
    node_id: int
    listeners: list[QuorumNodeListener]


class DescribeQuorumResponse(ResponseMessage):
    """The quorums that were asked for."""

    api_key: int = ApiKey.DESCRIBE_QUORUM
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Since(2, Nullable(String), ignorable=True),
        "topics" / ArrayOf(DescribeQuorumTopicResult),
        "nodes" / Since(2, ArrayOf(QuorumNode)),
    )
    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumTopicResult]
    nodes: list[QuorumNode]
