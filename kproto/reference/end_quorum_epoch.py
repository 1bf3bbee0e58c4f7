"""EndQuorumEpoch (54): the leader of a KRaft quorum resigns. Versions 0 and 1; flexible since 1.

1  successors with their directories in place of ids alone, and the leader's addresses
"""

from __future__ import annotations

from kproto.api import ApiKey

from .begin_quorum_epoch import QuorumEpochTopicResult, QuorumLeaderEndpoint
from .datatypes import ArrayOf, Int16, Int32, Nullable, String, Uuid
from .fields import Since, Tagged, Until
from .struct import RequestMessage, ResponseMessage, Struct
from .vote import QuorumNodeEndpoint


class PreferredCandidate(Struct):
    """A voter that should be the next leader, the most wanted first."""

    candidate_id: int = Int32
    candidate_directory_id: bytes = Uuid


class EndQuorumEpochPartition(Struct):
    """The leader of one partition that resigns, and who should follow."""

    partition_index: int = Int32
    leader_id: int = Int32
    leader_epoch: int = Int32
    preferred_successors: tuple[int, ...] = Until(0, ArrayOf(Int32), ignorable=True)
    preferred_candidates: list[PreferredCandidate] = Since(1, ArrayOf(PreferredCandidate), ignorable=True)


class EndQuorumEpochTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = String
    partitions: list[EndQuorumEpochPartition] = ArrayOf(EndQuorumEpochPartition)


class EndQuorumEpochRequest(RequestMessage, api_key=ApiKey.END_QUORUM_EPOCH):
    """The leader that resigns."""

    cluster_id: str | None = Since(0, Nullable(String), default=None)
    topics: list[EndQuorumEpochTopic] = ArrayOf(EndQuorumEpochTopic)
    leader_endpoints: list[QuorumLeaderEndpoint] = Since(1, ArrayOf(QuorumLeaderEndpoint), ignorable=True)


class EndQuorumEpochResponse(ResponseMessage, api_key=ApiKey.END_QUORUM_EPOCH):
    """Whether the voter took note."""

    error_code: int = Int16
    topics: list[QuorumEpochTopicResult] = ArrayOf(QuorumEpochTopicResult)
    node_endpoints: list[QuorumNodeEndpoint] = Tagged(0, ArrayOf(QuorumNodeEndpoint), since=1)
