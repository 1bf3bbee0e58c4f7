"""BeginQuorumEpoch (53): the new leader of a KRaft quorum makes itself known. Versions 0 and 1; flexible since 1.

1  the voter that is told, its directory, and the leader's addresses
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, UInt16, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class QuorumLeaderEndpoint(Struct):
    """An address of the leader, by the listener's name."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
    )
    name: str
    host: str
    port: int


class BeginQuorumEpochPartition(Struct):
    """The leader of one partition and its epoch."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "voter_directory_id" / Since(1, Uuid, ignorable=True),
        "leader_id" / Int32,
        "leader_epoch" / Int32,
    )
    partition_index: int
    voter_directory_id: bytes
    leader_id: int
    leader_epoch: int


class BeginQuorumEpochTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(BeginQuorumEpochPartition),
    )
    topic_name: str
    partitions: list[BeginQuorumEpochPartition]


class BeginQuorumEpochRequest(RequestMessage):
    """The leader and its epoch."""

    api_key: int = ApiKey.BEGIN_QUORUM_EPOCH
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Since(0, Nullable(String), default=None),
        "voter_id" / Since(1, Int32, default=-1, ignorable=True),
        "topics" / ArrayOf(BeginQuorumEpochTopic),
        "leader_endpoints" / Since(1, ArrayOf(QuorumLeaderEndpoint), ignorable=True),
    )
    cluster_id: str | None
    voter_id: int
    topics: list[BeginQuorumEpochTopic]
    leader_endpoints: list[QuorumLeaderEndpoint]


class QuorumEpochPartitionResult(Struct):
    """The result for one partition, and the leader that the voter knows."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "leader_id" / Int32,
        "leader_epoch" / Int32,
    )
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class QuorumEpochTopicResult(Struct):
    """Results of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(QuorumEpochPartitionResult),
    )
    topic_name: str
    partitions: list[QuorumEpochPartitionResult]


class BeginQuorumEpochResponse(ResponseMessage):
    """Whether the voter follows the leader."""

    api_key: int = ApiKey.BEGIN_QUORUM_EPOCH
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "topics" / ArrayOf(QuorumEpochTopicResult),
        "node_endpoints" / Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1),
    )
    error_code: int
    topics: list[QuorumEpochTopicResult]
    node_endpoints: list[QuorumNodeEndpoint]
