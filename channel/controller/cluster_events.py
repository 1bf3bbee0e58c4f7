"""The events of an elected controller: changes of the cluster, requests of brokers and administrators, and timers.

An event with a ``callback`` is answered by it exactly once, on the event thread, or on the thread that clears the queue
when the controller resigns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from .events import ControllerEvent, ControllerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from channel.errors import ChannelError
    from channel.types import LeaderAndIsr, ReplicaAssignment
    from kproto.error_codes import ErrorCode
    from kproto.types import TopicPartition

__all__ = [
    "AlterPartition",
    "AlterPartitionResult",
    "ApiPartitionReassignment",
    "AutoPreferredReplicaLeaderElection",
    "BrokerChange",
    "BrokerModifications",
    "ConfigChangeNotification",
    "ControlledShutdown",
    "ElectionType",
    "IsrChangeNotification",
    "ListPartitionReassignments",
    "LogDirEventNotification",
    "PartitionModifications",
    "PartitionReassignmentIsrChange",
    "PreferredReplicaLeaderElection",
    "ReplicaLeaderElection",
    "SendThreadFailed",
    "TopicChange",
    "TopicDeletion",
    "ZkPartitionReassignment",
]


# ---- changes of znodes


@dataclass(frozen=True, slots=True)
class BrokerChange(ControllerEvent):
    """The children of ``/brokers/ids`` have changed."""

    state: ClassVar[ControllerState] = ControllerState.BROKER_CHANGE


@dataclass(frozen=True, slots=True)
class BrokerModifications(ControllerEvent):
    """The data of a registered broker's znode has changed."""

    state: ClassVar[ControllerState] = ControllerState.BROKER_CHANGE
    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange(ControllerEvent):
    """The children of ``/brokers/topics`` have changed."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_CHANGE


@dataclass(frozen=True, slots=True)
class PartitionModifications(ControllerEvent):
    """The data of a topic's znode has changed: partitions were added, or the controller has written it itself."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_CHANGE
    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion(ControllerEvent):
    """The children of ``/admin/delete_topics`` have changed."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_DELETION


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment(ControllerEvent):
    """``/admin/reassign_partitions`` was created."""

    state: ClassVar[ControllerState] = ControllerState.ALTER_PARTITION_REASSIGNMENT


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange(ControllerEvent):
    """The state of a partition that is being reassigned has changed in ZooKeeper: a broker has written its ISR."""

    state: ClassVar[ControllerState] = ControllerState.ALTER_PARTITION_REASSIGNMENT
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredReplicaLeaderElection(ControllerEvent):
    """``/admin/preferred_replica_election`` was created."""

    state: ClassVar[ControllerState] = ControllerState.MANUAL_LEADER_BALANCE


@dataclass(frozen=True, slots=True)
class IsrChangeNotification(ControllerEvent):
    """Brokers have written ISR changes themselves, and notified the controller in ``/isr_change_notification``."""

    state: ClassVar[ControllerState] = ControllerState.ISR_CHANGE


@dataclass(frozen=True, slots=True)
class LogDirEventNotification(ControllerEvent):
    """Brokers have notified the controller in ``/log_dir_event_notification`` of a failed log directory."""

    state: ClassVar[ControllerState] = ControllerState.LOG_DIR_CHANGE


@dataclass(frozen=True, slots=True)
class ConfigChangeNotification(ControllerEvent):
    """Administrators have changed settings, and notified the brokers in ``/config/changes``."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE


# ---- timers and threads


@dataclass(frozen=True, slots=True)
class SendThreadFailed(ControllerEvent):
    """A send thread of this controller epoch has died of an error: only a new leadership reaches its brokers again."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLER_CHANGE
    name: str
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection(ControllerEvent):
    """``leader.imbalance.check.interval.seconds`` have passed: leaders go back to preferred replicas if need be."""

    state: ClassVar[ControllerState] = ControllerState.AUTO_LEADER_BALANCE


# ---- requests


@dataclass(frozen=True, slots=True)
class ControlledShutdown(ControllerEvent):
    """A broker asks the controller to move its leaders away before it ends.

    Attributes:
        broker_id, broker_epoch: The broker; epoch -1 if its request has none.
        callback: Takes the partitions that the broker still leads, or the error: ``ControllerMoved``,
            ``StaleBrokerEpoch`` or ``BrokerNotAvailable``.
    """

    state: ClassVar[ControllerState] = ControllerState.CONTROLLED_SHUTDOWN
    broker_id: int
    broker_epoch: int
    callback: Callable[[Set[TopicPartition] | ChannelError], None]


class AlterPartitionResult(NamedTuple):
    """The answer to an AlterPartition request.

    Attributes:
        error_code: The top-level code; with any but NONE there are no partitions.
        partitions: For each partition the state that now holds, or the code of its refusal.
    """

    error_code: ErrorCode
    partitions: Mapping[TopicPartition, LeaderAndIsr | ErrorCode] = {}


@dataclass(frozen=True, slots=True)
class AlterPartition(ControllerEvent):
    """A leader requests another ISR.

    Attributes:
        broker_id, broker_epoch: The leader.
        version: The version of the request; codes for refused replicas depend on it.
        partitions: The proposed states, with the leader and partition epochs that the leader knows.
        callback: Takes the answer.
    """

    state: ClassVar[ControllerState] = ControllerState.ISR_CHANGE
    broker_id: int
    broker_epoch: int
    version: int
    partitions: Mapping[TopicPartition, LeaderAndIsr]
    callback: Callable[[AlterPartitionResult], None]


class ElectionType(Enum):
    """The kind of an election that an administrator requests, with its number on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ReplicaLeaderElection(ControllerEvent):
    """An administrator's client asks for elections.

    Attributes:
        election_type: PREFERRED, or UNCLEAN: any live replica may lead.
        partitions: The partitions; all if None.
        callback: Takes the code of each partition; without ``partitions`` only of those that needed an election.
    """

    state: ClassVar[ControllerState] = ControllerState.MANUAL_LEADER_BALANCE
    election_type: ElectionType
    partitions: Set[TopicPartition] | None
    callback: Callable[[Mapping[TopicPartition, ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class ApiPartitionReassignment(ControllerEvent):
    """An administrator's client asks for reassignments.

    Attributes:
        targets: The replicas that each partition is to have; None cancels its reassignment.
        callback: Takes the top-level code and the code of each partition.
    """

    state: ClassVar[ControllerState] = ControllerState.ALTER_PARTITION_REASSIGNMENT
    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    callback: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments(ControllerEvent):
    """An administrator's client asks for the reassignments that are under way.

    Attributes:
        partitions: The partitions asked for; all if None.
        callback: Takes the top-level code and the assignments.
    """

    state: ClassVar[ControllerState] = ControllerState.LIST_PARTITION_REASSIGNMENT
    partitions: Set[TopicPartition] | None
    callback: Callable[[ErrorCode, Mapping[TopicPartition, ReplicaAssignment]], None]
