"""ElectLeaders (43): an administrator asks the controller for elections. Versions 0 to 2; flexible since 2.

1  elections of replicas that are not in sync; an error code for the whole request
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ElectLeadersTopic(Struct):
    """Partitions of one topic that are to elect a leader."""

    topic: str = String
    partitions: tuple[int, ...] = ArrayOf(Int32)


class ElectLeadersRequest(RequestMessage, api_key=ApiKey.ELECT_LEADERS):
    """The partitions, null for all. ``election_type`` is 0 for the preferred replica, 1 for any live replica."""

    election_type: int = Since(1, Int8)
    topic_partitions: list[ElectLeadersTopic] | None = Nullable(ArrayOf(ElectLeadersTopic))
    timeout_ms: int = Since(0, Int32, default=60_000)


class PartitionElectionResult(Struct):
    """The result for one partition."""

    partition_id: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)


class ReplicaElectionResult(Struct):
    """The results for one topic."""

    topic: str = String
    partition_result: list[PartitionElectionResult] = ArrayOf(PartitionElectionResult)


class ElectLeadersResponse(ResponseMessage, api_key=ApiKey.ELECT_LEADERS):
    """The results, grouped by topic, or an error for the whole request."""

    throttle_time_ms: int = Int32
    error_code: int = Since(1, Int16)
    replica_election_results: list[ReplicaElectionResult] = ArrayOf(ReplicaElectionResult)
