"""ElectLeaders (43): an administrator asks the controller for elections. Versions 0 to 2; flexible since 2.

1  elections of replicas that are not in sync; an error code for the whole request
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class ElectLeadersTopic(Struct):
    """Partitions of one topic that are to elect a leader."""

    fields: ClassVar[Fields] = Fields(
        "topic" / String,
        "partitions" / ArrayOf(Int32),
    )
    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(RequestMessage):
    """The partitions, null for all. ``election_type`` is 0 for the preferred replica, 1 for any live replica."""

    api_key: int = ApiKey.ELECT_LEADERS
    fields: ClassVar[Fields] = Fields(
        "election_type" / Since(1, Int8),
        "topic_partitions" / Nullable(ArrayOf(ElectLeadersTopic)),
        "timeout_ms" / Since(0, Int32, default=60_000),
    )
    election_type: int
    topic_partitions: list[ElectLeadersTopic] | None
    timeout_ms: int


class PartitionElectionResult(Struct):
    """The result for one partition."""

    fields: ClassVar[Fields] = Fields(
        "partition_id" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    partition_id: int
    error_code: int
    error_message: str | None


class ReplicaElectionResult(Struct):
    """The results for one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic" / String,
        "partition_result" / ArrayOf(PartitionElectionResult),
    )
    topic: str
    partition_result: list[PartitionElectionResult]


class ElectLeadersResponse(ResponseMessage):
    """The results, grouped by topic, or an error for the whole request."""

    api_key: int = ApiKey.ELECT_LEADERS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Since(1, Int16),
        "replica_election_results" / ArrayOf(ReplicaElectionResult),
    )
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]
