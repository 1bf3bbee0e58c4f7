"""AssignReplicasToDirs (73): a broker tells in which log directories its replicas are. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Uuid
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class AssignedPartition(Struct):
    """A partition in a directory."""

    fields = Fields(
        "partition_index" / Int32,
    )


class AssignedTopic(Struct):
    """Partitions of one topic."""

    fields = Fields(
        "topic_id" / Uuid,
        "partitions" / ArrayOf(AssignedPartition),
    )


class AssignedDirectory(Struct):
    """A log directory and the replicas in it."""

    fields = Fields(
        "id" / Uuid,
        "topics" / ArrayOf(AssignedTopic),
    )


class AssignReplicasToDirsRequest(RequestMessage):
    """A broker's directories and the replicas in each."""

    api_key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    fields = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
        "directories" / ArrayOf(AssignedDirectory),
    )


class AssignedPartitionResult(Struct):
    """The result for one partition."""

    fields = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
    )


class AssignedTopicResult(Struct):
    """Results of one topic."""

    fields = Fields(
        "topic_id" / Uuid,
        "partitions" / ArrayOf(AssignedPartitionResult),
    )


class AssignedDirectoryResult(Struct):
    """Results of one directory."""

    fields = Fields(
        "id" / Uuid,
        "topics" / ArrayOf(AssignedTopicResult),
    )


class AssignReplicasToDirsResponse(ResponseMessage):
    """The results, by directory, or an error for the whole request."""

    api_key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "directories" / ArrayOf(AssignedDirectoryResult),
    )
