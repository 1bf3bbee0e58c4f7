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

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String, Uuid
from .fields import Between, Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct

_NOT_REQUESTED = -(1 << 31)  # a bit field of operations that was not requested


class MetadataRequestTopic(Struct):
    """A requested topic, by name or by id."""

    fields: ClassVar[Fields] = Fields(
        "topic_id" / Since(10, Uuid, ignorable=True),
        "name" / Nullable(String, since=10),
    )
    topic_id: bytes
    name: str | None


class MetadataRequest(RequestMessage):
    """A client's request for the metadata of some topics, or of all."""

    api_key: int = ApiKey.METADATA
    fields: ClassVar[Fields] = Fields(
        "topics" / Nullable(ArrayOf(MetadataRequestTopic), since=1),
        "allow_auto_topic_creation" / Since(4, Bool, default=True),
        "include_cluster_authorized_operations" / Between(8, 10, Bool),
        "include_topic_authorized_operations" / Since(8, Bool),
    )
    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataResponseBroker(Struct):
    """A broker and its address on the listener that got the request."""

    fields: ClassVar[Fields] = Fields(
        "node_id" / Int32,
        "host" / String,
        "port" / Int32,
        "rack" / Since(1, Nullable(String), default=None, ignorable=True),
    )
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponsePartition(Struct):
    """One partition: leader, replicas, error code."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "partition_index" / Int32,
        "leader_id" / Int32,
        "leader_epoch" / Since(7, Int32, default=-1, ignorable=True),
        "replica_nodes" / ArrayOf(Int32),
        "isr_nodes" / ArrayOf(Int32),
        "offline_replicas" / Since(5, ArrayOf(Int32), ignorable=True),
    )
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class MetadataResponseTopic(Struct):
    """One topic and its partitions."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "name" / Nullable(String, since=12),
        "topic_id" / Since(10, Uuid, ignorable=True),
        "is_internal" / Since(1, Bool, ignorable=True),
        "partitions" / ArrayOf(MetadataResponsePartition),
        "topic_authorized_operations" / Since(8, Int32, default=_NOT_REQUESTED),
    )
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int


class MetadataResponse(ResponseMessage):
    """Brokers, controller and topics as the answering broker knows them."""

    api_key: int = ApiKey.METADATA
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(3, Int32, ignorable=True),
        "brokers" / ArrayOf(MetadataResponseBroker),
        "cluster_id" / Since(2, Nullable(String), default=None, ignorable=True),
        "controller_id" / Since(1, Int32, default=-1, ignorable=True),
        "topics" / ArrayOf(MetadataResponseTopic),
        "cluster_authorized_operations" / Between(8, 10, Int32, default=_NOT_REQUESTED),
        "error_code" / Since(13, Int16, ignorable=True),
    )
    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
