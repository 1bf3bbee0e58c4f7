"""DescribeQuorum (55): the leader, voters and observers of a KRaft quorum. Versions 0 to 2, all flexible.

What each version brought:

    1  when each replica last fetched, and when it last had caught up
    2  error messages, directories, and the nodes' addresses
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeQuorumPartition(Struct):
    """A partition to describe."""

    fields = Fields(
        "partition_index" / Int32,
    )


class DescribeQuorumTopic(Struct):
    """Partitions of one topic."""

    fields = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(DescribeQuorumPartition),
    )


class DescribeQuorumRequest(RequestMessage):
    """The partitions whose quorum is asked for."""

    api_key = ApiKey.DESCRIBE_QUORUM
    fields = Fields(
        "topics" / ArrayOf(DescribeQuorumTopic),
    )


class QuorumReplica(Struct):
    """A voter or observer: the end of its log, and its last fetches in ms since 1970."""

    fields = Fields(
        "replica_id" / Int32,
        "replica_directory_id" / Since(2, Uuid),
        "log_end_offset" / Int64,
        "last_fetch_timestamp" / Since(1, Int64, default=-1, ignorable=True),
        "last_caught_up_timestamp" / Since(1, Int64, default=-1, ignorable=True),
    )


class DescribeQuorumPartitionResult(Struct):
    """The quorum of one partition."""

    fields = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "error_message" / Since(2, Nullable(String), ignorable=True),
        "leader_id" / Int32,
        "leader_epoch" / Int32,
        "high_watermark" / Int64,
        "current_voters" / ArrayOf(QuorumReplica),
        "observers" / ArrayOf(QuorumReplica),
    )


class DescribeQuorumTopicResult(Struct):
    """The quorums of one topic's partitions."""

    fields = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(DescribeQuorumPartitionResult),
    )


class QuorumNodeListener(Struct):
    """A node's address, by the listener's name."""

    fields = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
    )


class QuorumNode(Struct):
    """A node of the quorum and its addresses."""

    fields = Fields(
        "node_id" / Int32,
        "listeners" / ArrayOf(QuorumNodeListener),
    )


class DescribeQuorumResponse(ResponseMessage):
    """The quorums that were asked for."""

    api_key = ApiKey.DESCRIBE_QUORUM
    fields = Fields(
        "error_code" / Int16,
        "error_message" / Since(2, Nullable(String), ignorable=True),
        "topics" / ArrayOf(DescribeQuorumTopicResult),
        "nodes" / Since(2, ArrayOf(QuorumNode)),
    )
