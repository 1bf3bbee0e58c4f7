"""Produce (0): a producer's records. Versions 0 to 13; flexible since 9. Records are held as bytes.

What each version brought:

    1   throttle time
    2   the time at which the log appended the records
    3   the transactional id; records in batches of format 2
    5   the log start offset
    7   (zstd)
    8   error messages, for the partition and for single records
    9   flexible
    10  the present leader and its address, in answers to a broker that leads no more
    12  (transactions of Kafka 4)
    13  topics by id (Kafka 4.1)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Fields, Since, Tagged, Until
from .struct import RequestMessage, ResponseMessage, Struct


class PartitionProduceData(Struct):
    """The records for one partition, as the client wrote them."""

    fields: ClassVar[Fields] = Fields(
        "index" / Int32,
        "records" / Nullable(Records),
    )
    index: int
    records: bytes | None


class TopicProduceData(Struct):
    """The records for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / Until(12, String, ignorable=True),
        "topic_id" / Since(13, Uuid, ignorable=True),
        "partition_data" / ArrayOf(PartitionProduceData),
    )
    name: str
    topic_id: bytes
    partition_data: list[PartitionProduceData]


class ProduceRequest(RequestMessage):
    """Records to append, and how many acknowledgements the producer waits for."""

    api_key: int = ApiKey.PRODUCE
    fields: ClassVar[Fields] = Fields(
        "transactional_id" / Since(3, Nullable(String), default=None),
        "acks" / Int16,
        "timeout_ms" / Int32,
        "topic_data" / ArrayOf(TopicProduceData),
    )
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]


class LeaderIdAndEpoch(Struct):
    """The present leader of a partition, in answers to a request that another broker should have got."""

    fields: ClassVar[Fields] = Fields(
        "leader_id" / Since(0, Int32, default=-1),
        "leader_epoch" / Since(0, Int32, default=-1),
    )
    leader_id: int
    leader_epoch: int


class NodeEndpoint(Struct):
    """The address of a leader that an answer names."""

    fields: ClassVar[Fields] = Fields(
        "node_id" / Int32,
        "host" / String,
        "port" / Int32,
        "rack" / Since(0, Nullable(String), default=None),
    )
    node_id: int
    host: str
    port: int
    rack: str | None


class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch fail."""

    fields: ClassVar[Fields] = Fields(
        "batch_index" / Int32,
        "batch_index_error_message" / Since(0, Nullable(String), default=None),
    )
    batch_index: int
    batch_index_error_message: str | None


class PartitionProduceResponse(Struct):
    """The offset of the first record appended to one partition, or an error."""

    fields: ClassVar[Fields] = Fields(
        "index" / Int32,
        "error_code" / Int16,
        "base_offset" / Int64,
        "log_append_time_ms" / Since(2, Int64, default=-1, ignorable=True),
        "log_start_offset" / Since(5, Int64, default=-1, ignorable=True),
        "record_errors" / Since(8, ArrayOf(BatchIndexAndErrorMessage), ignorable=True),
        "error_message" / Since(8, Nullable(String), default=None, ignorable=True),
        "current_leader" / Tagged(0, StructOf(LeaderIdAndEpoch), since=10),
    )
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: LeaderIdAndEpoch


class TopicProduceResponse(Struct):
    """The results for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / Until(12, String, ignorable=True),
        "topic_id" / Since(13, Uuid, ignorable=True),
        "partition_responses" / ArrayOf(PartitionProduceResponse),
    )
    name: str
    topic_id: bytes
    partition_responses: list[PartitionProduceResponse]


class ProduceResponse(ResponseMessage):
    """The result for each partition."""

    api_key: int = ApiKey.PRODUCE
    fields: ClassVar[Fields] = Fields(
        "responses" / ArrayOf(TopicProduceResponse),
        "throttle_time_ms" / Since(1, Int32, ignorable=True),
        "node_endpoints" / Tagged(0, ArrayOf(NodeEndpoint), since=10),
    )
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
