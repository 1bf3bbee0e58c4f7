"""AlterPartition (56): a leader tells the controller which replicas are in sync. Versions 0 to 3, all flexible.

What each version brought:

    1  the recovery state of a leader that was elected uncleanly
    2  topics by id, no longer by name
    3  the in-sync replicas with their brokers' epochs, so that a restarted broker is not mistaken for its earlier run
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, String, Uuid
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class BrokerState(Struct):
    """An in-sync replica and the epoch of its broker, -1 if it is unknown."""

    fields: ClassVar[Fields] = Fields(
        "broker_id" / Since(3, Int32),
        "broker_epoch" / Since(3, Int64, default=-1),
    )
    broker_id: int
    broker_epoch: int


class AlterPartitionRequestPartition(Struct):
    """The in-sync replicas that the leader proposes."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "leader_epoch" / Int32,
        "new_isr" / Until(2, ArrayOf(Int32)),
        "new_isr_with_epochs" / Since(3, ArrayOf(BrokerState)),
        "leader_recovery_state" / Since(1, Int8),
        "partition_epoch" / Int32,
    )
    partition_index: int
    leader_epoch: int
    new_isr: tuple[int, ...]
    new_isr_with_epochs: list[BrokerState]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionRequestTopic(Struct):
    """One topic's partitions."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / Until(1, String, ignorable=True),
        "topic_id" / Since(2, Uuid, ignorable=True),
        "partitions" / ArrayOf(AlterPartitionRequestPartition),
    )
    topic_name: str
    topic_id: bytes
    partitions: list[AlterPartitionRequestPartition]


class AlterPartitionRequest(RequestMessage):
    """A leader's proposal of in-sync replicas for the partitions that it leads."""

    api_key: int = ApiKey.ALTER_PARTITION
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
        "topics" / ArrayOf(AlterPartitionRequestTopic),
    )
    broker_id: int
    broker_epoch: int
    topics: list[AlterPartitionRequestTopic]


class AlterPartitionResponsePartition(Struct):
    """The partition's state after the request."""

    fields: ClassVar[Fields] = Fields(
        "partition_index" / Int32,
        "error_code" / Int16,
        "leader_id" / Int32,
        "leader_epoch" / Int32,
        "isr" / ArrayOf(Int32),
        "leader_recovery_state" / Since(1, Int8, ignorable=True),
        "partition_epoch" / Int32,
    )
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionResponseTopic(Struct):
    """One topic's partitions."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / Until(1, String, ignorable=True),
        "topic_id" / Since(2, Uuid, ignorable=True),
        "partitions" / ArrayOf(AlterPartitionResponsePartition),
    )
    topic_name: str
    topic_id: bytes
    partitions: list[AlterPartitionResponsePartition]


class AlterPartitionResponse(ResponseMessage):
    """The controller's answer: each partition's state or error."""

    api_key: int = ApiKey.ALTER_PARTITION
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "topics" / ArrayOf(AlterPartitionResponseTopic),
    )
    throttle_time_ms: int
    error_code: int
    topics: list[AlterPartitionResponseTopic]
