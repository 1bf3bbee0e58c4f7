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

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, Records, String, StructOf, Uuid
from .fields import Since, Tagged, Until
from .struct import RequestMessage, ResponseMessage, Struct


class PartitionProduceData(Struct):
    """The records for one partition, as the client wrote them."""

    index: int = Int32
    records: bytes | None = Nullable(Records)


class TopicProduceData(Struct):
    """The records for one topic."""

    name: str = Until(12, String, ignorable=True)
    topic_id: bytes = Since(13, Uuid, ignorable=True)
    partition_data: list[PartitionProduceData] = ArrayOf(PartitionProduceData)


class ProduceRequest(RequestMessage, api_key=ApiKey.PRODUCE):
    """Records to append, and how many acknowledgements the producer waits for."""

    transactional_id: str | None = Since(3, Nullable(String), default=None)
    acks: int = Int16
    timeout_ms: int = Int32
    topic_data: list[TopicProduceData] = ArrayOf(TopicProduceData)


class LeaderIdAndEpoch(Struct):
    """The present leader of a partition, in answers to a request that another broker should have got."""

    leader_id: int = Since(0, Int32, default=-1)
    leader_epoch: int = Since(0, Int32, default=-1)


class NodeEndpoint(Struct):
    """The address of a leader that an answer names."""

    node_id: int = Int32
    host: str = String
    port: int = Int32
    rack: str | None = Since(0, Nullable(String), default=None)


class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch fail."""

    batch_index: int = Int32
    batch_index_error_message: str | None = Since(0, Nullable(String), default=None)


class PartitionProduceResponse(Struct):
    """The offset of the first record appended to one partition, or an error."""

    index: int = Int32
    error_code: int = Int16
    base_offset: int = Int64
    log_append_time_ms: int = Since(2, Int64, default=-1, ignorable=True)
    log_start_offset: int = Since(5, Int64, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = Since(8, ArrayOf(BatchIndexAndErrorMessage), ignorable=True)
    error_message: str | None = Since(8, Nullable(String), default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = Tagged(0, StructOf(LeaderIdAndEpoch), since=10)


class TopicProduceResponse(Struct):
    """The results for one topic."""

    name: str = Until(12, String, ignorable=True)
    topic_id: bytes = Since(13, Uuid, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = ArrayOf(PartitionProduceResponse)


class ProduceResponse(ResponseMessage, api_key=ApiKey.PRODUCE):
    """The result for each partition."""

    responses: list[TopicProduceResponse] = ArrayOf(TopicProduceResponse)
    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    node_endpoints: list[NodeEndpoint] = Tagged(0, ArrayOf(NodeEndpoint), since=10)
