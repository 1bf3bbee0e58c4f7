"""CreatePartitions (37): more partitions for existing topics. Versions 0 to 3; flexible since 2.

1  (the broker throttles after its answer instead of before it)
3  (quota violations have an error code)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers to hold one new partition."""

    broker_ids: tuple[int, ...] = ArrayOf(Int32)


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions; with null assignments the controller chooses the brokers."""

    name: str = String
    count: int = Int32
    assignments: list[CreatePartitionsAssignment] | None = Nullable(ArrayOf(CreatePartitionsAssignment))


class CreatePartitionsRequest(RequestMessage, api_key=ApiKey.CREATE_PARTITIONS):
    """Topics to enlarge; ``validate_only`` asks only whether it is possible."""

    topics: list[CreatePartitionsTopic] = ArrayOf(CreatePartitionsTopic)
    timeout_ms: int = Int32
    validate_only: bool = Bool


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = String
    error_code: int = Int16
    error_message: str | None = Since(0, Nullable(String), default=None)


class CreatePartitionsResponse(ResponseMessage, api_key=ApiKey.CREATE_PARTITIONS):
    """The results, one for each topic."""

    throttle_time_ms: int = Int32
    results: list[CreatePartitionsTopicResult] = ArrayOf(CreatePartitionsTopicResult)
