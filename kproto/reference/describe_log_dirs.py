"""DescribeLogDirs (35): the log directories of a broker. Versions 0 to 4; flexible since 2.

What each version brought:

    1  (the broker throttles after its answer instead of before it)
    3  an error code for the whole request
    4  total and free bytes of each directory's volume
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    fields = Fields(
        "topic" / String,
        "partitions" / ArrayOf(Int32),
    )


class DescribeLogDirsRequest(RequestMessage):
    """The partitions asked for; null for all."""

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    fields = Fields(
        "topics" / Nullable(ArrayOf(DescribableLogDirTopic)),
    )


class DescribeLogDirsPartition(Struct):
    """One replica: its size in bytes, and its lag in records."""

    fields = Fields(
        "partition_index" / Int32,
        "partition_size" / Int64,
        "offset_lag" / Int64,
        "is_future_key" / Bool,
    )


class DescribeLogDirsTopic(Struct):
    """The replicas of one topic in a directory."""

    fields = Fields(
        "name" / String,
        "partitions" / ArrayOf(DescribeLogDirsPartition),
    )


class DescribeLogDirsResult(Struct):
    """One directory, or an error; -1 bytes means an unknown number."""

    fields = Fields(
        "error_code" / Int16,
        "log_dir" / String,
        "topics" / ArrayOf(DescribeLogDirsTopic),
        "total_bytes" / Since(4, Int64, default=-1, ignorable=True),
        "usable_bytes" / Since(4, Int64, default=-1, ignorable=True),
    )


class DescribeLogDirsResponse(ResponseMessage):
    """The directories."""

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Since(3, Int16, ignorable=True),
        "results" / ArrayOf(DescribeLogDirsResult),
    )
