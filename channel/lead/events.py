"""A controller's events, and the thread that processes them, one after the other.

A request is answered by its ``callback`` exactly once, on the event thread, or on the thread that clears the queue when
the controller resigns.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from channel.locks import guards, new_lock
from channel.logs import bounded
from channel.send.batch import RequestBatch
from channel.threads import StoppableThread
from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from channel.clock import Clock
    from channel.config import ChannelConfig
    from channel.metrics import Metrics, Timer
    from channel.send.batch import ControlRequestSender
    from channel.send.context import ControllerContext
    from kproto.types import TopicPartition

_GROUP: Final = "kafka.controller:type=ControllerEventManager"
_STATS: Final = "kafka.controller:type=ControllerStats"
_QUEUE_TIME: Final = "EventQueueTimeMs"
_QUEUE_SIZE: Final = "EventQueueSize"


class ControllerState(Enum):
    """The kind of work that a controller does: the gauge's value, and the name of its timer if it has one."""

    IDLE = 0, None
    CONTROLLER_CHANGE = 1, "ControllerChangeRateAndTimeMs"
    BROKER_CHANGE = 2, "LeaderElectionRateAndTimeMs"
    TOPIC_CHANGE = 3, "TopicChangeRateAndTimeMs"
    TOPIC_DELETION = 4, "TopicDeletionRateAndTimeMs"
    ALTER_PARTITION_REASSIGNMENT = 5, "PartitionReassignmentRateAndTimeMs"
    AUTO_LEADER_BALANCE = 6, "AutoLeaderBalanceRateAndTimeMs"
    MANUAL_LEADER_BALANCE = 7, "ManualLeaderBalanceRateAndTimeMs"
    CONTROLLED_SHUTDOWN = 8, "ControlledShutdownRateAndTimeMs"
    ISR_CHANGE = 9, "IsrChangeRateAndTimeMs"
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10, "LeaderAndIsrResponseReceivedRateAndTimeMs"
    LOG_DIR_CHANGE = 11, "LogDirChangeRateAndTimeMs"
    CONTROLLER_SHUTDOWN = 12, "ControllerShutdownRateAndTimeMs"
    UNCLEAN_LEADER_ELECTION_ENABLE = 13, "UncleanLeaderElectionEnableRateAndTimeMs"
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14, "TopicUncleanLeaderElectionEnableRateAndTimeMs"
    LIST_PARTITION_REASSIGNMENT = 15, "ListPartitionReassignmentRateAndTimeMs"
    UPDATE_METADATA_RESPONSE_RECEIVED = 16, None
    UPDATE_FEATURES = 17, "UpdateFeaturesRateAndTimeMs"

    def __init__(self, number: int, timer_name: str | None) -> None:
        self.number = number
        self.timer_name = timer_name


class ControllerEvent:
    """A piece of work for the controller; a subclass names the controller's state while it is processed."""

    _state: ClassVar[ControllerState]

    def __init_subclass__(cls, state: ControllerState | None = None) -> None:
        if state is not None:  # None: an event that has no fixed state, or that ``dataclass`` has made again with slots
            cls._state = state

    @property
    def state(self) -> ControllerState:
        """The controller's state while the event is processed."""
        return self._state


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


# ---- answers of brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived(ControllerEvent, state=ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED):
    """A broker has answered a LeaderAndIsr request."""

    response: Any
    broker_id: int


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponseReceived(ControllerEvent, state=ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED):
    """A broker has answered an UpdateMetadata request."""

    response: Any
    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicDeletionStopReplicaResponseReceived(ControllerEvent, state=ControllerState.TOPIC_DELETION):
    """A broker has answered a StopReplica request that deletes replicas of topics whose deletion has begun.

    Attributes:
        request_error: The top-level error code.
        partition_errors: The error code of each such replica.
    """

    broker_id: int
    request_error: int
    partition_errors: Mapping[TopicPartition, int]


class ControllerBrokerRequestBatch(RequestBatch):
    """The request batch of a controller: each answer of a broker becomes an event.

    Args:
        controller_id, config, sender, context: Those of ``RequestBatch``.
        put: Takes the events, on the send threads.
    """

    def __init__(
        self,
        controller_id: int,
        config: ChannelConfig,
        sender: ControlRequestSender,
        put: Callable[[ControllerEvent], object],
        context: ControllerContext,
    ) -> None:
        super().__init__(controller_id, config, sender, context)
        self._put = put

    def handle_leader_and_isr_response(self, response: Any, broker_id: int) -> None:
        """Queue an event, as a broker has answered LeaderAndIsr."""
        self._put(LeaderAndIsrResponseReceived(response, broker_id))

    def handle_update_metadata_response(self, response: Any, broker_id: int) -> None:
        """Queue an event, as a broker has answered UpdateMetadata."""
        self._put(UpdateMetadataResponseReceived(response, broker_id))

    def handle_stop_replica_response(self, response: Any, broker_id: int, errors: dict[TopicPartition, int]) -> None:
        """Queue an event, as a broker has answered StopReplica for replicas of topics that are being deleted."""
        self._put(TopicDeletionStopReplicaResponseReceived(broker_id, response.error_code, errors))


# ---- the thread


class _ShutdownEventThread(ControllerEvent, state=ControllerState.CONTROLLER_SHUTDOWN):
    pass


class ControllerEventProcessor(Protocol):
    """The owner of an event manager, which does the work of its events."""

    def process(self, event: ControllerEvent) -> None:
        """Do the work of an event; on the event thread."""

    def preempt(self, event: ControllerEvent) -> None:
        """Refuse an event that will not be processed; on the thread that cleared the queue."""


class QueuedEvent:
    """An event in the queue; it is either processed or preempted, once."""

    __slots__ = ("_spent", "enqueue_time_ms", "event")

    def __init__(self, event: ControllerEvent, enqueue_time_ms: int) -> None:
        self.event = event
        self.enqueue_time_ms = enqueue_time_ms
        self._spent = threading.Lock()  # a bare lock, as every answer of every broker makes an event

    def process(self, processor: ControllerEventProcessor) -> None:
        """Have the event processed, unless it was processed or preempted before."""
        if self._spent.acquire(blocking=False):
            processor.process(self.event)

    def preempt(self, processor: ControllerEventProcessor) -> None:
        """Have the event refused, unless it was processed or preempted before."""
        if self._spent.acquire(blocking=False):
            processor.preempt(self.event)

    def __repr__(self) -> str:
        return f"QueuedEvent({bounded(self.event)}, {self.enqueue_time_ms})"


def controller_stats(metrics: Metrics) -> dict[ControllerState, Timer]:
    """The timers of the states, under Kafka's names."""
    return {s: metrics.timer(_STATS, s.timer_name) for s in ControllerState if s.timer_name is not None}


class ControllerEventManager(StoppableThread):
    """The thread that processes the events, with their queue; ``close`` ends it.

    Args:
        controller_id: The controller's broker id, for the log.
        processor: Does the work of the events.
        clock: Measures how long events wait.
        metrics: Takes ``EventQueueTimeMs`` and ``EventQueueSize``; both are gone after ``close``.
        rate_and_time_metrics: A timer for each state that is to be timed.
        on_died: Called on the event thread if an error ends it, once its queued events are preempted.
        event_queue_time_timeout_ms: The time without an event after which the queue-time histogram is cleared.
    """

    def __init__(
        self,
        controller_id: int,
        processor: ControllerEventProcessor,
        clock: Clock,
        metrics: Metrics,
        rate_and_time_metrics: Mapping[ControllerState, Timer] | None = None,
        event_queue_time_timeout_ms: int = 300_000,
        *,
        on_died: Callable[[], None] | None = None,
    ) -> None:
        prefix = f"[ControllerEventThread controllerId={controller_id}]"
        super().__init__("controller-event-thread", log_prefix=prefix)
        self._processor = processor
        self._clock = clock
        self._metrics = metrics
        self._timers = dict(rate_and_time_metrics or {})
        self._timeout_ms = event_queue_time_timeout_ms
        self._state = ControllerState.IDLE
        self._on_died = on_died
        self._put_lock = new_lock("event queue")
        self._queue: SimpleQueue[QueuedEvent] = SimpleQueue()
        self._append = self._queue.put
        self._queue_time = metrics.histogram(_GROUP, _QUEUE_TIME, doc="How long events waited, in ms")
        metrics.gauge(_GROUP, _QUEUE_SIZE, self._queue.qsize, doc="Events waiting")

    @property
    def state(self) -> ControllerState:
        """The kind of work that the thread does now."""
        return self._state

    @property
    def is_empty(self) -> bool:
        """Whether the queue is empty."""
        return self._queue.empty()

    @property
    def has_died(self) -> bool:
        """Whether an error has ended the thread: all further events are preempted."""
        return self.error is not None

    def close(self, timeout_s: float | None = None) -> bool:
        """Preempt the queued events, end the thread after its present event, and remove the metrics.

        Args:
            timeout_s: The longest time to wait for the thread's end.

        Returns:
            Whether the thread has ended; a line in the log says if not.
        """
        try:
            self.initiate_shutdown()
            self.clear_and_put(_ShutdownEventThread())
            return self.shutdown(timeout_s)
        finally:
            self._metrics.remove(_GROUP, _QUEUE_TIME)
            self._metrics.remove(_GROUP, _QUEUE_SIZE)

    def put(self, event: ControllerEvent) -> QueuedEvent:
        """Append an event; from any thread. It is preempted at once if the event thread has died."""
        queued = QueuedEvent(event, self._clock.nanoseconds() // 1_000_000)
        with self._put_lock:
            self._append(queued)
        if self.has_died:
            self._preempt(self._take_all())
        return queued

    def clear_and_put(self, event: ControllerEvent) -> QueuedEvent:
        """Replace all queued events by ``event``, and preempt them on this thread.

        ``preempt`` runs without the queue's lock: it may put events, which are queued after ``event``.
        """
        queued = QueuedEvent(event, self._clock.milliseconds())
        self._preempt(self._take_all(queued))
        if self.has_died:
            self._preempt(self._take_all())
        return queued

    def _take_all(self, *following: QueuedEvent) -> list[QueuedEvent]:
        """Empty the queue, and put these events into it."""
        taken: list[QueuedEvent] = []
        with self._put_lock:
            while True:
                try:
                    taken.append(self._queue.get_nowait())
                except Empty:
                    break
            for each in following:
                self._append(each)
        return taken

    def _preempt(self, cleared: Iterable[QueuedEvent]) -> None:
        for each in cleared:
            try:
                each.preempt(self._processor)
            except Exception:
                self.log.exception("error while preempting %s", bounded(each.event))

    def ended(self) -> None:
        """Preempt all events if an error has ended the thread."""
        if not self.is_running:
            return
        self.log.critical("the event thread has died: the controller processes nothing more until it is restarted")
        self._preempt(self._take_all())
        if self._on_died is not None:
            self._on_died()

    def do_work(self) -> None:
        """Wait for the next event and process it."""
        queued = self._poll()
        if isinstance(queued.event, _ShutdownEventThread):
            return
        self._state = queued.event.state
        timer = self._timers.get(self._state)
        began = self._clock.nanoseconds()
        self._queue_time.record(began // 1_000_000 - queued.enqueue_time_ms)
        try:
            queued.process(self._processor)
        except Exception:
            self.log.exception("error while processing %s", bounded(queued.event))
        finally:
            if timer is not None:
                timer.record((self._clock.nanoseconds() - began) / 1e6)
            self._state = ControllerState.IDLE

    def _poll(self) -> QueuedEvent:
        if self._queue_time.count:
            try:
                return self._queue.get(timeout=self._timeout_ms / 1000)
            except Empty:
                self._queue_time.clear()
        return self._queue.get()


guards(ControllerEventManager, "_put_lock", "_append")
