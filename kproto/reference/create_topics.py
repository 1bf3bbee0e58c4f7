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

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class CreatableReplicaAssignment(Struct):
    """The brokers to hold one partition."""

    partition_index: int = Int32
    broker_ids: tuple[int, ...] = ArrayOf(Int32)


class CreatableTopicConfig(Struct):
    """One setting of a topic to create."""

    name: str = String
    value: str | None = Nullable(String)


class CreatableTopic(Struct):
    """A topic to create, by counts or by assignments."""

    name: str = String
    num_partitions: int = Int32
    replication_factor: int = Int16
    assignments: list[CreatableReplicaAssignment] = ArrayOf(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = ArrayOf(CreatableTopicConfig)


class CreateTopicsRequest(RequestMessage, api_key=ApiKey.CREATE_TOPICS):
    """Topics to create; ``validate_only`` asks only whether it is possible."""

    topics: list[CreatableTopic] = ArrayOf(CreatableTopic)
    timeout_ms: int = Since(0, Int32, default=60_000)
    validate_only: bool = Since(1, Bool)


class CreatableTopicConfigs(Struct):
    """One setting of a created topic; ``config_source`` says where it comes from."""

    name: str = Since(5, String)
    value: str | None = Since(5, Nullable(String))
    read_only: bool = Since(5, Bool)
    config_source: int = Since(5, Int8, default=-1, ignorable=True)
    is_sensitive: bool = Since(5, Bool)


class CreatableTopicResult(Struct):
    """The result for one topic."""

    name: str = String
    topic_id: bytes = Since(7, Uuid, ignorable=True)
    error_code: int = Int16
    error_message: str | None = Since(1, Nullable(String), ignorable=True)
    topic_config_error_code: int = Tagged(0, Int16, since=5, ignorable=True)
    num_partitions: int = Since(5, Int32, default=-1, ignorable=True)
    replication_factor: int = Since(5, Int16, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = Since(5, Nullable(ArrayOf(CreatableTopicConfigs)), ignorable=True)


class CreateTopicsResponse(ResponseMessage, api_key=ApiKey.CREATE_TOPICS):
    """The results, one for each topic."""

    throttle_time_ms: int = Since(2, Int32, ignorable=True)
    topics: list[CreatableTopicResult] = ArrayOf(CreatableTopicResult)
