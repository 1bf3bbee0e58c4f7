"""BeginQuorumEpoch (53): the new leader of a KRaft quorum makes itself known. Versions 0 and 1; flexible since 1.

1  the voter that is told, its directory, and the leader's addresses
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, UInt16, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class QuorumLeaderEndpoint(Struct):
    """An address of the leader, by the listener's name."""

    name: str = String
    host: str = String
    port: int = UInt16


class BeginQuorumEpochPartition(Struct):
    """The leader of one partition and its epoch."""

    partition_index: int = Int32
    voter_directory_id: bytes = Since(1, Uuid, ignorable=True)
    leader_id: int = Int32
    leader_epoch: int = Int32


class BeginQuorumEpochTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = String
    partitions: list[BeginQuorumEpochPartition] = ArrayOf(BeginQuorumEpochPartition)


class BeginQuorumEpochRequest(RequestMessage, api_key=ApiKey.BEGIN_QUORUM_EPOCH):
    """The leader and its epoch."""

    cluster_id: str | None = Since(0, Nullable(String), default=None)
    voter_id: int = Since(1, Int32, default=-1, ignorable=True)
    topics: list[BeginQuorumEpochTopic] = ArrayOf(BeginQuorumEpochTopic)
    leader_endpoints: list[QuorumLeaderEndpoint] = Since(1, ArrayOf(QuorumLeaderEndpoint), ignorable=True)


class QuorumEpochPartitionResult(Struct):
    """The result for one partition, and the leader that the voter knows."""

    partition_index: int = Int32
    error_code: int = Int16
    leader_id: int = Int32
    leader_epoch: int = Int32


class QuorumEpochTopicResult(Struct):
    """Results of one topic."""

    topic_name: str = String
    partitions: list[QuorumEpochPartitionResult] = ArrayOf(QuorumEpochPartitionResult)


class BeginQuorumEpochResponse(ResponseMessage, api_key=ApiKey.BEGIN_QUORUM_EPOCH):
    """Whether the voter follows the leader."""

    error_code: int = Int16
    topics: list[QuorumEpochTopicResult] = ArrayOf(QuorumEpochTopicResult)
    node_endpoints: list[QuorumNodeEndpoint] = Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1)
