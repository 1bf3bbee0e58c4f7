"""DescribeLogDirs (35): the log directories of a broker. Versions 0 to 4; flexible since 2.

What each version brought:

    1  (the broker throttles after its answer instead of before it)
    3  an error code for the whole request
    4  total and free bytes of each directory's volume
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = String
    partitions: tuple[int, ...] = ArrayOf(Int32)


class DescribeLogDirsRequest(RequestMessage, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    """The partitions asked for; null for all."""

    topics: list[DescribableLogDirTopic] | None = Nullable(ArrayOf(DescribableLogDirTopic))


class DescribeLogDirsPartition(Struct):
    """One replica: its size in bytes, and its lag in records."""

    partition_index: int = Int32
    partition_size: int = Int64
    offset_lag: int = Int64
    is_future_key: bool = Bool


class DescribeLogDirsTopic(Struct):
    """The replicas of one topic in a directory."""

    name: str = String
    partitions: list[DescribeLogDirsPartition] = ArrayOf(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory, or an error; -1 bytes means an unknown number."""

    error_code: int = Int16
    log_dir: str = String
    topics: list[DescribeLogDirsTopic] = ArrayOf(DescribeLogDirsTopic)
    total_bytes: int = Since(4, Int64, default=-1, ignorable=True)
    usable_bytes: int = Since(4, Int64, default=-1, ignorable=True)


class DescribeLogDirsResponse(ResponseMessage, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    """The directories."""

    throttle_time_ms: int = Int32
    error_code: int = Since(3, Int16, ignorable=True)
    results: list[DescribeLogDirsResult] = ArrayOf(DescribeLogDirsResult)
