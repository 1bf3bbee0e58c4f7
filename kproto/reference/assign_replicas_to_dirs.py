"""AssignReplicasToDirs (73): a broker tells in which log directories its replicas are. Version 0; flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Uuid
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class AssignedPartition(Struct):
    """A partition in a directory."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
    )
    partition_index: int


class AssignedTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_id" / Uuid,
        "partitions" / ArrayOf(AssignedPartition),
    )
    topic_id: bytes
    partitions: list[AssignedPartition]


class AssignedDirectory(Struct):
    """A log directory and the replicas in it."""

    fields: ClassVar[Fields] = Fields(
        "id" / Uuid,
        "topics" / ArrayOf(AssignedTopic),
    )
    id: bytes
    topics: list[AssignedTopic]


class AssignReplicasToDirsRequest(RequestMessage):
    """A broker's directories and the replicas in each."""

    api_key: int = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
        "directories" / ArrayOf(AssignedDirectory),
    )
    broker_id: int
    broker_epoch: int
    directories: list[AssignedDirectory]


class AssignedPartitionResult(Struct):
    """The result for one partition."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
    )
    partition_index: int
    error_code: int


class AssignedTopicResult(Struct):
    """Results of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic_id" / Uuid,
        "partitions" / ArrayOf(AssignedPartitionResult),
    )
    topic_id: bytes
    partitions: list[AssignedPartitionResult]


class AssignedDirectoryResult(Struct):
    """Results of one directory."""

    fields: ClassVar[Fields] = Fields(
        "id" / Uuid,
        "topics" / ArrayOf(AssignedTopicResult),
    )
    id: bytes
    topics: list[AssignedTopicResult]


class AssignReplicasToDirsResponse(ResponseMessage):
    """The results, by directory, or an error for the whole request."""

    api_key: int = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "directories" / ArrayOf(AssignedDirectoryResult),
    )
    throttle_time_ms: int
    error_code: int
    directories: list[AssignedDirectoryResult]
