"""The events of an elected controller: changes of the cluster, requests of brokers and administrators, and timers.

A request is answered by its ``callback`` exactly once, on the event thread, or on the thread that clears the queue when
the controller resigns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from .events import ControllerEvent, ControllerState

if TYPE_CHECKING:
    from collections.abc import Callable

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

CONFIG_APIS: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""The APIs that change settings: a controller that is a broker of its own serves them about topics and itself."""

_STATES: Final = {
    ApiKey.CONTROLLED_SHUTDOWN: ControllerState.CONTROLLED_SHUTDOWN,
    ApiKey.CREATE_TOPICS: ControllerState.TOPIC_CHANGE,
    ApiKey.DELETE_TOPICS: ControllerState.TOPIC_DELETION,
    ApiKey.CREATE_PARTITIONS: ControllerState.TOPIC_CHANGE,
    ApiKey.ALTER_PARTITION: ControllerState.ISR_CHANGE,
    ApiKey.ALLOCATE_PRODUCER_IDS: ControllerState.IDLE,
    ApiKey.INIT_PRODUCER_ID: ControllerState.IDLE,
    ApiKey.ELECT_LEADERS: ControllerState.MANUAL_LEADER_BALANCE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ControllerState.LIST_PARTITION_REASSIGNMENT,
    ApiKey.UPDATE_FEATURES: ControllerState.UPDATE_FEATURES,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ControllerState.IDLE,
}
"""The controller's state while it answers a request of each API."""

CONTROLLER_APIS: Final = frozenset(_STATES)
"""The APIs that a controller serves, each as an event."""


@dataclass(frozen=True, slots=True)
class ApiRequest(ControllerEvent):
    """A request of a broker or an administrator.

    Attributes:
        api_key, version: The API and the version of the request.
        request: The message.
        callback: Takes the response, once.
    """

    api_key: int
    version: int
    request: Any
    callback: Callable[[Any], None]

    @property
    def state(self) -> ControllerState:
        """The controller's state while it answers the request."""
        return _STATES.get(ApiKey(self.api_key), ControllerState.IDLE)
