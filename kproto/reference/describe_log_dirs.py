"""DescribeLogDirs (35): the log directories of a broker. Versions 0 to 4; flexible since 2.

What each version brought:

    1  (the broker throttles after its answer instead of before it)
    3  an error code for the whole request
    4  total and free bytes of each directory's volume
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    fields: ClassVar[Fields] = Fields(
        "topic" / String,
        "partitions" / ArrayOf(Int32),
    )
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest(RequestMessage):
    """The partitions asked for; null for all."""

    api_key: int = ApiKey.DESCRIBE_LOG_DIRS
    fields: ClassVar[Fields] = Fields(
        "topics" / Nullable(ArrayOf(DescribableLogDirTopic)),
    )
    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    """One replica: its size in bytes, and its lag in records."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "partition_size" / Int64,
        "offset_lag" / Int64,
        "is_future_key" / Bool,
    )
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsTopic(Struct):
    """The replicas of one topic in a directory."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "partitions" / ArrayOf(DescribeLogDirsPartition),
    )
    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    """One directory, or an error; -1 bytes means an unknown number."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "log_dir" / String,
        "topics" / ArrayOf(DescribeLogDirsTopic),
        "total_bytes" / Since(4, Int64, default=-1, ignorable=True),
        "usable_bytes" / Since(4, Int64, default=-1, ignorable=True),
    )
    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int
    usable_bytes: int


class DescribeLogDirsResponse(ResponseMessage):
    """The directories."""

    api_key: int = ApiKey.DESCRIBE_LOG_DIRS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Since(3, Int16, ignorable=True),
        "results" / ArrayOf(DescribeLogDirsResult),
    )
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
