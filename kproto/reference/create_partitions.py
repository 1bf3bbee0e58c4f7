"""CreatePartitions (37): more partitions for existing topics. Versions 0 to 3; flexible since 2.

1  (the broker throttles after its answer instead of before it)
3  (quota violations have an error code)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers to hold one new partition."""

    fields = Fields(
        "broker_ids" / ArrayOf(Int32),
    )


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions; with null assignments the controller chooses the brokers."""

    fields = Fields(
        "name" / String,
        "count" / Int32,
        "assignments" / Nullable(ArrayOf(CreatePartitionsAssignment)),
    )


class CreatePartitionsRequest(RequestMessage):
    """Topics to enlarge; ``validate_only`` asks only whether it is possible."""

    api_key = ApiKey.CREATE_PARTITIONS
    fields = Fields(
        "topics" / ArrayOf(CreatePartitionsTopic),
        "timeout_ms" / Int32,
        "validate_only" / Bool,
    )


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    fields = Fields(
        "name" / String,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), default=None),
    )


class CreatePartitionsResponse(ResponseMessage):
    """The results, one for each topic."""

    api_key = ApiKey.CREATE_PARTITIONS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(CreatePartitionsTopicResult),
    )
