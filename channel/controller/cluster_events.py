"""The events of an elected controller: changes of the cluster, requests of brokers and administrators, and timers.

An event with a ``callback`` is answered by it exactly once, on the event thread, or on the thread that clears the queue
when the controller resigns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from .events import ControllerEvent, ControllerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from channel.errors import ChannelError
    from channel.types import LeaderAndIsr, ReplicaAssignment
    from kproto.error_codes import ErrorCode
    from kproto.types import TopicPartition

# ---- changes of znodes


@dataclass(frozen=True, slots=True)
class BrokerChange(ControllerEvent, state=ControllerState.BROKER_CHANGE):
    """The children of ``/brokers/ids`` have changed."""


@dataclass(frozen=True, slots=True)
class BrokerModifications(ControllerEvent, state=ControllerState.BROKER_CHANGE):
    """The data of a registered broker's znode has changed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """The children of ``/brokers/topics`` have changed."""


@dataclass(frozen=True, slots=True)
class PartitionModifications(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """The data of a topic's znode has changed: partitions were added, or the controller has written it itself."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion(ControllerEvent, state=ControllerState.TOPIC_DELETION):
    """The children of ``/admin/delete_topics`` have changed."""


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """``/admin/reassign_partitions`` was created."""


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """The state of a partition that is being reassigned has changed in ZooKeeper: a broker has written its ISR."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredReplicaLeaderElection(ControllerEvent, state=ControllerState.MANUAL_LEADER_BALANCE):
    """``/admin/preferred_replica_election`` was created."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotification(ControllerEvent, state=ControllerState.ISR_CHANGE):
    """Brokers have written ISR changes themselves, and notified the controller in ``/isr_change_notification``."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification(ControllerEvent, state=ControllerState.LOG_DIR_CHANGE):
    """Brokers have notified the controller in ``/log_dir_event_notification`` of a failed log directory."""


@dataclass(frozen=True, slots=True)
class ConfigChangeNotification(ControllerEvent, state=ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE):
    """Administrators have changed settings, and notified the brokers in ``/config/changes``."""


# ---- timers and threads


@dataclass(frozen=True, slots=True)
class SendThreadFailed(ControllerEvent, state=ControllerState.CONTROLLER_CHANGE):
    """A send thread of this controller epoch has died of an error: only a new leadership reaches its brokers again."""

    name: str
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection(ControllerEvent, state=ControllerState.AUTO_LEADER_BALANCE):
    """``leader.imbalance.check.interval.seconds`` have passed: leaders go back to preferred replicas if need be."""


# ---- requests


@dataclass(frozen=True, slots=True)
class ControlledShutdown(ControllerEvent, state=ControllerState.CONTROLLED_SHUTDOWN):
    """A broker asks the controller to move its leaders away before it ends.

    Attributes:
        broker_id, broker_epoch: The broker; epoch -1 if its request has none.
        callback: Takes the partitions that the broker still leads, or the error: ``ControllerMoved``,
            ``StaleBrokerEpoch`` or ``BrokerNotAvailable``.
    """

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
class AlterPartition(ControllerEvent, state=ControllerState.ISR_CHANGE):
    """A leader requests another ISR.

    Attributes:
        broker_id, broker_epoch: The leader.
        version: The version of the request; codes for refused replicas depend on it.
        partitions: The proposed states, with the leader and partition epochs that the leader knows.
        callback: Takes the answer.
    """

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
class ReplicaLeaderElection(ControllerEvent, state=ControllerState.MANUAL_LEADER_BALANCE):
    """An administrator's client asks for elections.

    Attributes:
        election_type: PREFERRED, or UNCLEAN: any live replica may lead.
        partitions: The partitions; all if None.
        callback: Takes the code of each partition; without ``partitions`` only of those that needed an election.
    """

    election_type: ElectionType
    partitions: Set[TopicPartition] | None
    callback: Callable[[Mapping[TopicPartition, ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class ApiPartitionReassignment(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """An administrator's client asks for reassignments.

    Attributes:
        targets: The replicas that each partition is to have; None cancels its reassignment.
        callback: Takes the top-level code and the code of each partition.
    """

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    callback: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments(ControllerEvent, state=ControllerState.LIST_PARTITION_REASSIGNMENT):
    """An administrator's client asks for the reassignments that are under way.

    Attributes:
        partitions: The partitions asked for; all if None.
        callback: Takes the top-level code and the assignments.
    """

    partitions: Set[TopicPartition] | None
    callback: Callable[[ErrorCode, Mapping[TopicPartition, ReplicaAssignment]], None]
