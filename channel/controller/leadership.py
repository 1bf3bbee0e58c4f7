"""The leadership of a controller elected in ZooKeeper: its store, channels and decisions until its resignation."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from channel.errors import ControllerMoved, IllegalState, NodeExists, StaleBrokerEpoch
from channel.locks import new_lock
from channel.threads import close_all
from channel.types import LeaderAndIsr, LeaderRecoveryState
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import fenced
from channel.zookeeper.operations import Create
from kproto import messages
from kproto.api import ibp_at_least
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .administration import Administration
from .api_requests import AlterPartitionReceived, ApiRequest, ShutdownReceived
from .cluster_administration import ClusterAdministration
from .cluster_events import (
    AlterPartition,
    AlterPartitionResult,
    AutoPreferredReplicaLeaderElection,
    ControlledShutdown,
    SendThreadFailed,
)
from .decisions import ControllerDecisions
from .manager import ControllerChannelManager
from .zookeeper_store import ZooKeeperStore

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from channel.config import ChannelConfig
    from channel.errors import ChannelError
    from channel.metrics import Metrics
    from channel.network.recorder import Recorder
    from channel.zookeeper.cluster_state import WonElection
    from channel.zookeeper.session import ZooKeeperSession

    from .controller import MakeLeadership
    from .events import ControllerEvent

_FEATURE: Final = b'{"features":{},"version":2,"status":1}'
_FIRST_BALANCE_S: Final = 5.0
_BY_ID: Final = 2
"""The first version of AlterPartition that names topics by id."""


class MakeChannels(Protocol):
    """A function that makes an elected controller's channels to its brokers; see ``ControllerChannelManager``."""

    def __call__(
        self,
        controller_id: int,
        controller_epoch: Callable[[], int],
        config: ChannelConfig,
        *,
        metrics: Metrics,
        recorder: Recorder | None,
        on_thread_failed: Callable[[str, list[int]], None],
    ) -> ControllerChannelManager:
        """Make the channels."""


class ZooKeeperLeadership:
    """The leadership of one controller epoch; made, started and closed on the event thread.

    Args:
        controller_id: The controller's broker id.
        session: The ZooKeeper session.
        election: The won election.
        put: Takes events, from any thread.
        config: The controller's settings.
        metrics: Takes the figures.
        recorder: Sees every frame to and from brokers.
        stores_records: Whether the controller's own broker keeps records; otherwise it gets no replicas.
        make_channels: Makes the channels to the brokers.
    """

    def __init__(
        self,
        controller_id: int,
        session: ZooKeeperSession,
        election: WonElection,
        put: Callable[[ControllerEvent], object],
        config: ChannelConfig,
        metrics: Metrics,
        recorder: Recorder | None = None,
        *,
        stores_records: bool = False,
        make_channels: MakeChannels = ControllerChannelManager,
    ) -> None:
        self._session = session
        self._put = put
        self._lock = new_lock("leadership")
        self._is_closed = False
        self._timer: threading.Timer | None = None
        self._config = config
        self._fence = election.epoch_zk_version
        self._store = ZooKeeperStore(session, put)
        channels = make_channels(
            controller_id,
            lambda: election.epoch,
            config,
            metrics=metrics,
            recorder=recorder,
            on_thread_failed=self._send_thread_failed,
        )
        without_storage = frozenset[int]() if stores_records else frozenset({controller_id})
        self._decisions = ControllerDecisions(
            controller_id,
            election.epoch,
            election.epoch_zk_version,
            config,
            self._store,
            channels,
            put,
            metrics,
            without_storage=without_storage,
        )
        self._administration = Administration(
            self._decisions.context,
            self._store,
            session,
            config,
            self._decisions.process,
            controller_id,
            without_storage=without_storage,
        )
        self._cluster_administration = ClusterAdministration(
            self._decisions.context, session, config, self._decisions.process, controller_id
        )

    def _send_thread_failed(self, name: str, broker_ids: list[int]) -> None:
        self._put(SendThreadFailed(name, tuple(broker_ids)))

    def start(self) -> None:
        """Take over as the active controller of the cluster."""
        if ibp_at_least(self._config.inter_broker_protocol_version, "2.7-IV0"):
            outcome = fenced(self._session, self._fence, [Create(znodes.FEATURE, _FEATURE)])
            if outcome.error is not None and not isinstance(outcome.error, NodeExists):
                raise outcome.error
        self._decisions.start()
        if self._config.auto_leader_rebalance_enable:
            self._balance_after(_FIRST_BALANCE_S)

    def _balance_after(self, delay_s: float) -> None:
        """Schedule the check of the leaders' balance after this delay, and then again and again."""

        def due() -> None:
            self._put(AutoPreferredReplicaLeaderElection())
            self._balance_after(self._config.leader_imbalance_check_interval_seconds)

        with self._lock:
            if not self._is_closed:
                self._timer = threading.Timer(delay_s, due)
                self._timer.name, self._timer.daemon = "controller-scheduler", True
                self._timer.start()

    def process(self, event: ControllerEvent) -> None:
        """Do the work of an event.

        Raises:
            ControllerMoved: Another controller was elected.
            IllegalState: Requests could not be made or queued.
        """
        match event:
            case AlterPartitionReceived():
                self._alter_partition(event)
            case ShutdownReceived():
                self._shut_down(event)
            case SendThreadFailed():
                raise IllegalState(f"{event.name} has died, and brokers {list(event.broker_ids)} get no requests")
            case ApiRequest():
                answer = self._cluster_administration.answer(event)
                event.callback(self._administration.answer(event) if answer is None else answer)
            case _:
                self._decisions.process(event)

    def close(self, timeout_s: float | None = None) -> None:
        """End the watches, close all channels to brokers within this time, and drop the context. Harmless if closed."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        close_all(self._store.unwatch, lambda: self._decisions.close(timeout_s))

    def _shut_down(self, event: ShutdownReceived) -> None:
        def answer(outcome: Set[TopicPartition] | ChannelError) -> None:
            if isinstance(outcome, Exception):
                event.callback(messages.ControlledShutdownResponse(error_code=_shutdown_code(outcome)))
                return
            remaining = [
                messages.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in sorted(outcome)
            ]
            event.callback(messages.ControlledShutdownResponse(remaining_partitions=remaining))

        request = event.request
        self._decisions.process(ControlledShutdown(request.broker_id, request.broker_epoch, answer))

    def _alter_partition(self, event: AlterPartitionReceived) -> None:
        request, by_id = event.request, event.version >= _BY_ID
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        names: list[str | None] = []
        for topic in request.topics:
            name: str | None = self._decisions.context.topic_name(topic.topic_id) if by_id else topic.topic_name
            names.append(name)
            if name is None:
                continue
            for each in topic.partitions:
                isr = each.new_isr or [broker.broker_id for broker in each.new_isr_with_epochs]
                wanted[TopicPartition(name, each.partition_index)] = LeaderAndIsr(
                    request.broker_id,
                    tuple(isr),
                    each.leader_epoch,
                    each.partition_epoch,
                    LeaderRecoveryState(each.leader_recovery_state),
                )

        def answer(result: AlterPartitionResult) -> None:
            if result.error_code != ErrorCode.NONE:
                event.callback(messages.AlterPartitionResponse(error_code=result.error_code))
                return
            topics = [
                messages.AlterPartitionResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partitions=[_altered(name, each.partition_index, result) for each in topic.partitions],
                )
                for topic, name in zip(request.topics, names, strict=True)
            ]
            event.callback(messages.AlterPartitionResponse(topics=topics))

        self._decisions.process(AlterPartition(request.broker_id, request.broker_epoch, event.version, wanted, answer))


def leadership_of(
    controller_id: int,
    config: ChannelConfig,
    metrics: Metrics,
    recorder: Recorder | None = None,
    *,
    stores_records: bool = False,
    make_channels: MakeChannels = ControllerChannelManager,
) -> MakeLeadership:
    """Return the function that makes an elected controller's leadership; see ``ZooKeeperLeadership``."""

    def make(
        session: ZooKeeperSession, election: WonElection, put: Callable[[ControllerEvent], object]
    ) -> ZooKeeperLeadership:
        return ZooKeeperLeadership(
            controller_id,
            session,
            election,
            put,
            config,
            metrics,
            recorder,
            stores_records=stores_records,
            make_channels=make_channels,
        )

    return make


def _shutdown_code(error: Exception) -> ErrorCode:
    if isinstance(error, ControllerMoved):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.STALE_BROKER_EPOCH if isinstance(error, StaleBrokerEpoch) else ErrorCode.BROKER_NOT_AVAILABLE


def _altered(name: str | None, partition: int, result: AlterPartitionResult) -> Any:
    state = ErrorCode.UNKNOWN_TOPIC_ID if name is None else result.partitions[TopicPartition(name, partition)]
    if not isinstance(state, LeaderAndIsr):
        return messages.AlterPartitionResponsePartition(partition_index=partition, error_code=state)
    return messages.AlterPartitionResponsePartition(
        partition_index=partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery_state,
        partition_epoch=state.partition_epoch,
    )
