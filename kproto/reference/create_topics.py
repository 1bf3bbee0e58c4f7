"""CreateTopics (19). Versions 0 to 7; flexible since 5.

What each version brought:

    1  a question that only validates; messages beside error codes
    2  throttle time
    3  (the broker throttles after its answer instead of before it)
    4  -1 partitions or replicas stand for the broker's default
    5  flexible; the response tells what was made: partitions, replicas, configuration
    6  (quota violations have an error code)
    7  topic ids
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class CreatableReplicaAssignment(Struct):
    """The brokers to hold one partition."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "broker_ids" / ArrayOf(Int32),
    )
    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(Struct):
    """One setting of a topic to create."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "value" / Nullable(String),
    )
    name: str
    value: str | None


class CreatableTopic(Struct):
    """A topic to create, by counts or by assignments."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "num_partitions" / Int32,
        "replication_factor" / Int16,
        "assignments" / ArrayOf(CreatableReplicaAssignment),
        "configs" / ArrayOf(CreatableTopicConfig),
    )
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(RequestMessage):
    """Topics to create; ``validate_only`` asks only whether it is possible."""

    api_key: int = ApiKey.CREATE_TOPICS
    fields: ClassVar[Fields] = Fields(
        "topics" / ArrayOf(CreatableTopic),
        "timeout_ms" / Since(0, Int32, default=60_000),
        "validate_only" / Since(1, Bool),
    )
    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool


class CreatableTopicConfigs(Struct):
    """One setting of a created topic; ``config_source`` says where it comes from."""

    fields: ClassVar[Fields] = Fields(
        "name" / Since(5, String),
        "value" / Since(5, Nullable(String)),
        "read_only" / Since(5, Bool),
        "config_source" / Since(5, Int8, default=-1, ignorable=True),
        "is_sensitive" / Since(5, Bool),
    )
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreatableTopicResult(Struct):
    """The result for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "topic_id" / Since(7, Uuid, ignorable=True),
        "error_code" / Int16,
        "error_message" / Since(1, Nullable(String), ignorable=True),
        "topic_config_error_code" / Tagged(0, Int16, since=5, ignorable=True),
        "num_partitions" / Since(5, Int32, default=-1, ignorable=True),
        "replication_factor" / Since(5, Int16, default=-1, ignorable=True),
        "configs" / Since(5, Nullable(ArrayOf(CreatableTopicConfigs)), ignorable=True),
    )
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreatableTopicConfigs] | None


class CreateTopicsResponse(ResponseMessage):
    """The results, one for each topic."""

    api_key: int = ApiKey.CREATE_TOPICS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(2, Int32, ignorable=True),
        "topics" / ArrayOf(CreatableTopicResult),
    )
    throttle_time_ms: int
    topics: list[CreatableTopicResult]
