"""EndQuorumEpoch (54): the leader of a KRaft quorum resigns. Versions 0 and 1; flexible since 1.

1  successors with their directories in place of ids alone, and the leader's addresses
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .begin_quorum_epoch import QuorumEpochTopicResult, QuorumLeaderEndpoint
from .datatypes import ArrayOf, Int16, Int32, Nullable, String, Uuid
from .fields import Fields, Since, Tagged, Until
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class PreferredCandidate(Struct):
    """A voter that should be the next leader, the most wanted first."""

    fields: ClassVar[Fields] = Fields(
        "candidate_id" / Int32,
        "candidate_directory_id" / Uuid,
    )
    candidate_id: int
    candidate_directory_id: bytes


class EndQuorumEpochPartition(Struct):
    """The leader of one partition that resigns, and who should follow."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "leader_id" / Int32,
        "leader_epoch" / Int32,
        "preferred_successors" / Until(0, ArrayOf(Int32), ignorable=True),
        "preferred_candidates" / Since(1, ArrayOf(PreferredCandidate), ignorable=True),
    )
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[int, ...]
    preferred_candidates: list[PreferredCandidate]


class EndQuorumEpochTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / String,
        "partitions" / ArrayOf(EndQuorumEpochPartition),
    )
    topic_name: str
    partitions: list[EndQuorumEpochPartition]


class EndQuorumEpochRequest(RequestMessage):
    """The leader that resigns."""

    api_key: int = ApiKey.END_QUORUM_EPOCH
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Since(0, Nullable(String), default=None),
        "topics" / ArrayOf(EndQuorumEpochTopic),
        "leader_endpoints" / Since(1, ArrayOf(QuorumLeaderEndpoint), ignorable=True),
    )
    cluster_id: str | None
    topics: list[EndQuorumEpochTopic]
    leader_endpoints: list[QuorumLeaderEndpoint]


class EndQuorumEpochResponse(ResponseMessage):
    """Whether the voter took note."""

    api_key: int = ApiKey.END_QUORUM_EPOCH
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "topics" / ArrayOf(QuorumEpochTopicResult),
        "node_endpoints" / Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1),
    )
    error_code: int
    topics: list[QuorumEpochTopicResult]
    node_endpoints: list[QuorumNodeEndpoint]
