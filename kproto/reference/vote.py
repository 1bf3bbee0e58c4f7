"""Vote (52): a node of a KRaft quorum asks the others to elect it. Versions 0 to 2, all flexible.

What each version brought:

    1  directories of candidate and voter; the addresses of leaders
    2  a vote that only asks whether it would win (pre-vote)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class QuorumNodeEndpoint(Struct):
    """The address of a node of the quorum."""

    fields: ClassVar[Fields] = Fields(
        "node_id" / Int32,
        "host" / String,
        "port" / UInt16,
    )
    node_id: int
    host: str
    port: int


class VotePartition(Struct):
    """The candidate's epoch and id for one partition, and the end of its log."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "replica_epoch" / Int32,
        "replica_id" / Int32,
        "replica_directory_id" / Since(1, Uuid, ignorable=True),
        "voter_directory_id" / Since(1, Uuid, ignorable=True),
        "last_offset_epoch" / Int32,
        "last_offset" / Int64,
        "pre_vote" / Since(2, Bool),
    )
    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: bytes
    voter_directory_id: bytes
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool


class VoteTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(VotePartition),
    )
    topic_name: str
    partitions: list[VotePartition]


class VoteRequest(RequestMessage):
    """The candidacy, and the voter that is asked."""

    api_key: int = ApiKey.VOTE
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Since(0, Nullable(String), default=None),
        "voter_id" / Since(1, Int32, default=-1, ignorable=True),
        "topics" / ArrayOf(VoteTopic),
    )
    cluster_id: str | None
    voter_id: int
    topics: list[VoteTopic]


class VotePartitionResult(Struct):
    """The voter's answer for one partition, and the leader that it knows."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "leader_id" / Int32,
        "leader_epoch" / Int32,
        "vote_granted" / Bool,
    )
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteTopicResult(Struct):
    """Answers for one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(VotePartitionResult),
    )
    topic_name: str
    partitions: list[VotePartitionResult]


class VoteResponse(ResponseMessage):
    """The voter's answers."""

    api_key: int = ApiKey.VOTE
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "topics" / ArrayOf(VoteTopicResult),
        "node_endpoints" / Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1),
    )
    error_code: int
    topics: list[VoteTopicResult]
    node_endpoints: list[QuorumNodeEndpoint]
