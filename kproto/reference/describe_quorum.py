"""DescribeQuorum (55): the leader, voters and observers of a KRaft quorum. Versions 0 to 2, all flexible.

What each version brought:

    1  when each replica last fetched, and when it last had caught up
    2  error messages, directories, and the nodes' addresses
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeQuorumPartition(Struct):
    """A partition to describe."""

    partition_index: int = Int32


class DescribeQuorumTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = String
    partitions: list[DescribeQuorumPartition] = ArrayOf(DescribeQuorumPartition)


class DescribeQuorumRequest(RequestMessage, api_key=ApiKey.DESCRIBE_QUORUM):
    """The partitions whose quorum is asked for."""

    topics: list[DescribeQuorumTopic] = ArrayOf(DescribeQuorumTopic)


class QuorumReplica(Struct):
    """A voter or observer: the end of its log, and its last fetches in ms since 1970."""

    replica_id: int = Int32
    replica_directory_id: bytes = Since(2, Uuid)
    log_end_offset: int = Int64
    last_fetch_timestamp: int = Since(1, Int64, default=-1, ignorable=True)
    last_caught_up_timestamp: int = Since(1, Int64, default=-1, ignorable=True)


class DescribeQuorumPartitionResult(Struct):
    """The quorum of one partition."""

    partition_index: int = Int32
    error_code: int = Int16
    error_message: str | None = Since(2, Nullable(String), ignorable=True)
    leader_id: int = Int32
    leader_epoch: int = Int32
    high_watermark: int = Int64
    current_voters: list[QuorumReplica] = ArrayOf(QuorumReplica)
    observers: list[QuorumReplica] = ArrayOf(QuorumReplica)


class DescribeQuorumTopicResult(Struct):
    """The quorums of one topic's partitions."""

    topic_name: str = String
    partitions: list[DescribeQuorumPartitionResult] = ArrayOf(DescribeQuorumPartitionResult)


class QuorumNodeListener(Struct):
    """A node's address, by the listener's name."""

    name: str = String
    host: str = String
    port: int = UInt16


class QuorumNode(Struct):
    """A node of the quorum and its addresses."""

    node_id: int = Int32
    listeners: list[QuorumNodeListener] = ArrayOf(QuorumNodeListener)


class DescribeQuorumResponse(ResponseMessage, api_key=ApiKey.DESCRIBE_QUORUM):
    """The quorums that were asked for."""

    error_code: int = Int16
    error_message: str | None = Since(2, Nullable(String), ignorable=True)
    topics: list[DescribeQuorumTopicResult] = ArrayOf(DescribeQuorumTopicResult)
    nodes: list[QuorumNode] = Since(2, ArrayOf(QuorumNode))
