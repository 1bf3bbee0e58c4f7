"""ListPartitionReassignments (46): an administrator asks for the reassignments under way. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = String
    partition_indexes: tuple[int, ...] = ArrayOf(Int32)


class ListPartitionReassignmentsRequest(RequestMessage, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """The partitions asked for; null for all."""

    timeout_ms: int = Since(0, Int32, default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = Since(
        0, Nullable(ArrayOf(ListPartitionReassignmentsTopics)), default=None
    )


class OngoingPartitionReassignment(Struct):
    """A partition with all its replicas, those that are being added, and those that are being removed."""

    partition_index: int = Int32
    replicas: tuple[int, ...] = ArrayOf(Int32)
    adding_replicas: tuple[int, ...] = ArrayOf(Int32)
    removing_replicas: tuple[int, ...] = ArrayOf(Int32)


class OngoingTopicReassignment(Struct):
    """The partitions of one topic that are being reassigned."""

    name: str = String
    partitions: list[OngoingPartitionReassignment] = ArrayOf(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(ResponseMessage, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """The reassignments, grouped by topic, or an error for the whole request."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)
    topics: list[OngoingTopicReassignment] = ArrayOf(OngoingTopicReassignment)
