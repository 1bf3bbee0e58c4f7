"""AlterPartitionReassignments (45): an administrator begins or cancels reassignments. Versions 0 and 1; flexible.

1  whether the replication factor may change (Kafka 4)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class ReassignablePartition(Struct):
    """The replicas that a partition is to have; null cancels its reassignment."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "replicas" / Since(0, Nullable(ArrayOf(Int32)), default=None),
    )
    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(ReassignablePartition),
    )
    name: str
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(RequestMessage):
    """The partitions to reassign, grouped by topic."""

    api_key: int = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    fields: ClassVar[Fields] = Fields(
        "timeout_ms" / Since(0, Int32, default=60_000),
        "allow_replication_factor_change" / Since(1, Bool, default=True),
        "topics" / ArrayOf(ReassignableTopic),
    )
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    """The result for one partition."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    partition_index: int
    error_code: int
    error_message: str | None


class ReassignableTopicResponse(Struct):
    """The results for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(ReassignablePartitionResponse),
    )
    name: str
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(ResponseMessage):
    """The results, grouped by topic, or an error for the whole request."""

    api_key: int = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "allow_replication_factor_change" / Since(1, Bool, default=True, ignorable=True),
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "responses" / ArrayOf(ReassignableTopicResponse),
    )
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]
