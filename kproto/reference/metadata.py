"""Metadata (3): where topics and brokers are. Versions 0 to 13; flexible since 9.

What each version brought:

    1   null topics ask for all of them (in 0 an empty array does); racks, the controller, internal topics
    2   the cluster's id
    3   throttle time
    4   whether the request may create topics
    5   offline replicas
    6   (the broker throttles after its answer instead of before it)
    7   leader epochs
    8   authorized operations, as bit fields, for cluster and topics
    9   flexible
    10  topic ids, and null names beside them
    11  the cluster's operations moved to an API of their own
    12  topics may be requested by id alone, so a response may lack the name
    13  an error code for the whole response (Kafka 4)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String, Uuid
from .fields import Between, Since
from .struct import RequestMessage, ResponseMessage, Struct

_NOT_REQUESTED = -(1 << 31)  # a bit field of operations that was not requested


class MetadataRequestTopic(Struct):
    """A requested topic, by name or by id."""

    topic_id: bytes = Since(10, Uuid, ignorable=True)
    name: str | None = Nullable(String, since=10)


class MetadataRequest(RequestMessage, api_key=ApiKey.METADATA):
    """A client's request for the metadata of some topics, or of all."""

    topics: list[MetadataRequestTopic] | None = Nullable(ArrayOf(MetadataRequestTopic), since=1)
    allow_auto_topic_creation: bool = Since(4, Bool, default=True)
    include_cluster_authorized_operations: bool = Between(8, 10, Bool)
    include_topic_authorized_operations: bool = Since(8, Bool)


class MetadataResponseBroker(Struct):
    """A broker and its address on the listener that got the request."""

    node_id: int = Int32
    host: str = String
    port: int = Int32
    rack: str | None = Since(1, Nullable(String), default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """One partition: leader, replicas, error code."""

    error_code: int = Int16
    partition_index: int = Int32
    leader_id: int = Int32
    leader_epoch: int = Since(7, Int32, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = ArrayOf(Int32)
    isr_nodes: tuple[int, ...] = ArrayOf(Int32)
    offline_replicas: tuple[int, ...] = Since(5, ArrayOf(Int32), ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic and its partitions."""

    error_code: int = Int16
    name: str | None = Nullable(String, since=12)
    topic_id: bytes = Since(10, Uuid, ignorable=True)
    is_internal: bool = Since(1, Bool, ignorable=True)
    partitions: list[MetadataResponsePartition] = ArrayOf(MetadataResponsePartition)
    topic_authorized_operations: int = Since(8, Int32, default=_NOT_REQUESTED)


class MetadataResponse(ResponseMessage, api_key=ApiKey.METADATA):
    """Brokers, controller and topics as the answering broker knows them."""

    throttle_time_ms: int = Since(3, Int32, ignorable=True)
    brokers: list[MetadataResponseBroker] = ArrayOf(MetadataResponseBroker)
    cluster_id: str | None = Since(2, Nullable(String), default=None, ignorable=True)
    controller_id: int = Since(1, Int32, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = ArrayOf(MetadataResponseTopic)
    cluster_authorized_operations: int = Between(8, 10, Int32, default=_NOT_REQUESTED)
    error_code: int = Since(13, Int16, ignorable=True)
