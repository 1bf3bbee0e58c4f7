"""AlterPartition (56): a leader tells the controller which replicas are in sync. Versions 0 to 3, all flexible.

What each version brought:

    1  the recovery state of a leader that was elected uncleanly
    2  topics by id, no longer by name
    3  the in-sync replicas with their brokers' epochs, so that a restarted broker is not mistaken for its earlier run
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Int64, String, Uuid
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class BrokerState(Struct):
    """An in-sync replica and the epoch of its broker, -1 if it is unknown."""

    broker_id: int = Since(3, Int32)
    broker_epoch: int = Since(3, Int64, default=-1)


class AlterPartitionRequestPartition(Struct):
    """The in-sync replicas that the leader proposes."""

    partition_index: int = Int32
    leader_epoch: int = Int32
    new_isr: tuple[int, ...] = Until(2, ArrayOf(Int32))
    new_isr_with_epochs: list[BrokerState] = Since(3, ArrayOf(BrokerState))
    leader_recovery_state: int = Since(1, Int8)
    partition_epoch: int = Int32


class AlterPartitionRequestTopic(Struct):
    """One topic's partitions."""

    topic_name: str = Until(1, String, ignorable=True)
    topic_id: bytes = Since(2, Uuid, ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = ArrayOf(AlterPartitionRequestPartition)


class AlterPartitionRequest(RequestMessage, api_key=ApiKey.ALTER_PARTITION):
    """A leader's proposal of in-sync replicas for the partitions that it leads."""

    broker_id: int = Int32
    broker_epoch: int = Since(0, Int64, default=-1)
    topics: list[AlterPartitionRequestTopic] = ArrayOf(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    """The partition's state after the request."""

    partition_index: int = Int32
    error_code: int = Int16
    leader_id: int = Int32
    leader_epoch: int = Int32
    isr: tuple[int, ...] = ArrayOf(Int32)
    leader_recovery_state: int = Since(1, Int8, ignorable=True)
    partition_epoch: int = Int32


class AlterPartitionResponseTopic(Struct):
    """One topic's partitions."""

    topic_name: str = Until(1, String, ignorable=True)
    topic_id: bytes = Since(2, Uuid, ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = ArrayOf(AlterPartitionResponsePartition)


class AlterPartitionResponse(ResponseMessage, api_key=ApiKey.ALTER_PARTITION):
    """The controller's answer: each partition's state or error."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    topics: list[AlterPartitionResponseTopic] = ArrayOf(AlterPartitionResponseTopic)
