"""AlterPartitionReassignments (45): an administrator begins or cancels reassignments. Versions 0 and 1; flexible.

1  whether the replication factor may change (Kafka 4)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ReassignablePartition(Struct):
    """The replicas that a partition is to have; null cancels its reassignment."""

    partition_index: int = Int32
    replicas: tuple[int, ...] | None = Since(0, Nullable(ArrayOf(Int32)), default=None)


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = String
    partitions: list[ReassignablePartition] = ArrayOf(ReassignablePartition)


class AlterPartitionReassignmentsRequest(RequestMessage, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """The partitions to reassign, grouped by topic."""

    timeout_ms: int = Since(0, Int32, default=60_000)
    allow_replication_factor_change: bool = Since(1, Bool, default=True)
    topics: list[ReassignableTopic] = ArrayOf(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """The result for one partition."""

    partition_index: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)


class ReassignableTopicResponse(Struct):
    """The results for one topic."""

    name: str = String
    partitions: list[ReassignablePartitionResponse] = ArrayOf(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(ResponseMessage, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """The results, grouped by topic, or an error for the whole request."""

    throttle_time_ms: int = Int32
    allow_replication_factor_change: bool = Since(1, Bool, default=True, ignorable=True)
    error_code: int = Int16
    error_message: str | None = Nullable(String)
    responses: list[ReassignableTopicResponse] = ArrayOf(ReassignableTopicResponse)
