"""ListPartitionReassignments (46): an administrator asks for the reassignments under way. Version 0; flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partition_indexes" / ArrayOf(Int32),
    )
    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest(RequestMessage):
    """The partitions asked for; null for all."""

    api_key: int = ApiKey.LIST_PARTITION_REASSIGNMENTS
    fields: ClassVar[Fields] = Fields(
        "timeout_ms" / Since(0, Int32, default=60_000),
        "topics" / Since(0, Nullable(ArrayOf(ListPartitionReassignmentsTopics)), default=None),
    )
    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None


class OngoingPartitionReassignment(Struct):
    """A partition with all its replicas, those that are being added, and those that are being removed."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "replicas" / ArrayOf(Int32),
        "adding_replicas" / ArrayOf(Int32),
        "removing_replicas" / ArrayOf(Int32),
    )
    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class OngoingTopicReassignment(Struct):
    """The partitions of one topic that are being reassigned."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(OngoingPartitionReassignment),
    )
    name: str
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(ResponseMessage):
    """The reassignments, grouped by topic, or an error for the whole request."""

    api_key: int = ApiKey.LIST_PARTITION_REASSIGNMENTS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "topics" / ArrayOf(OngoingTopicReassignment),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]
