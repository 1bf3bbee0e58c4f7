"""AssignReplicasToDirs (73): a broker tells in which log directories its replicas are. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Uuid
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class AssignedPartition(Struct):
    """A partition in a directory."""

    partition_index: int = Int32


class AssignedTopic(Struct):
    """Partitions of one topic."""

    topic_id: bytes = Uuid
    partitions: list[AssignedPartition] = ArrayOf(AssignedPartition)


class AssignedDirectory(Struct):
    """A log directory and the replicas in it."""

    id: bytes = Uuid
    topics: list[AssignedTopic] = ArrayOf(AssignedTopic)


class AssignReplicasToDirsRequest(RequestMessage, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS):
    """A broker's directories and the replicas in each."""

    broker_id: int = Int32
    broker_epoch: int = Since(0, Int64, default=-1)
    directories: list[AssignedDirectory] = ArrayOf(AssignedDirectory)


class AssignedPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int = Int32
    error_code: int = Int16


class AssignedTopicResult(Struct):
    """Results of one topic."""

    topic_id: bytes = Uuid
    partitions: list[AssignedPartitionResult] = ArrayOf(AssignedPartitionResult)


class AssignedDirectoryResult(Struct):
    """Results of one directory."""

    id: bytes = Uuid
    topics: list[AssignedTopicResult] = ArrayOf(AssignedTopicResult)


class AssignReplicasToDirsResponse(ResponseMessage, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS):
    """The results, by directory, or an error for the whole request."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    directories: list[AssignedDirectoryResult] = ArrayOf(AssignedDirectoryResult)
