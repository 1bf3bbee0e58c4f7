"""CreatePartitions (37): more partitions for existing topics. Versions 0 to 3; flexible since 2.

1  (the broker throttles after its answer instead of before it)
3  (quota violations have an error code)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers to hold one new partition."""

    fields: ClassVar[Fields] = Fields(
        "broker_ids" / ArrayOf(Int32),
    )
    broker_ids: tuple[int, ...]


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions; with null assignments the controller chooses the brokers."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "count" / Int32,
        "assignments" / Nullable(ArrayOf(CreatePartitionsAssignment)),
    )
    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(RequestMessage):
    """Topics to enlarge; ``validate_only`` asks only whether it is possible."""

    api_key: int = ApiKey.CREATE_PARTITIONS
    fields: ClassVar[Fields] = Fields(
        "topics" / ArrayOf(CreatePartitionsTopic),
        "timeout_ms" / Int32,
        "validate_only" / Bool,
    )
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), default=None),
    )
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(ResponseMessage):
    """The results, one for each topic."""

    api_key: int = ApiKey.CREATE_PARTITIONS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(CreatePartitionsTopicResult),
    )
    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
