"""Vote (52): a node of a KRaft quorum asks the others to elect it. Versions 0 to 2, all flexible.

What each version brought:

    1  directories of candidate and voter; the addresses of leaders
    2  a vote that only asks whether it would win (pre-vote)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class QuorumNodeEndpoint(Struct):
    """The address of a node of the quorum."""

    node_id: int = Int32
    host: str = String
    port: int = UInt16


class VotePartition(Struct):
    """The candidate's epoch and id for one partition, and the end of its log."""

    partition_index: int = Int32
    replica_epoch: int = Int32
    replica_id: int = Int32
    replica_directory_id: bytes = Since(1, Uuid, ignorable=True)
    voter_directory_id: bytes = Since(1, Uuid, ignorable=True)
    last_offset_epoch: int = Int32
    last_offset: int = Int64
    pre_vote: bool = Since(2, Bool)


class VoteTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = String
    partitions: list[VotePartition] = ArrayOf(VotePartition)


class VoteRequest(RequestMessage, api_key=ApiKey.VOTE):
    """The candidacy, and the voter that is asked."""

    cluster_id: str | None = Since(0, Nullable(String), default=None)
    voter_id: int = Since(1, Int32, default=-1, ignorable=True)
    topics: list[VoteTopic] = ArrayOf(VoteTopic)


class VotePartitionResult(Struct):
    """The voter's answer for one partition, and the leader that it knows."""

    partition_index: int = Int32
    error_code: int = Int16
    leader_id: int = Int32
    leader_epoch: int = Int32
    vote_granted: bool = Bool


class VoteTopicResult(Struct):
    """Answers for one topic."""

    topic_name: str = String
    partitions: list[VotePartitionResult] = ArrayOf(VotePartitionResult)


class VoteResponse(ResponseMessage, api_key=ApiKey.VOTE):
    """The voter's answers."""

    error_code: int = Int16
    topics: list[VoteTopicResult] = ArrayOf(VoteTopicResult)
    node_endpoints: list[QuorumNodeEndpoint] = Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1)
