"""The leadership of a controller elected in ZooKeeper: its store, channels and decisions until its resignation."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from channel.errors import IllegalState, NodeExists
from channel.locks import guards, new_lock
from channel.send.context import ControllerContext
from channel.send.manager import ControllerChannelManager
from channel.threads import close_all
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import fenced
from channel.zookeeper.session import Create
from kproto.api import ApiKey, ibp_at_least

from .administration import Administration
from .decisions import ControllerDecisions
from .events import ApiRequest, AutoPreferredReplicaLeaderElection, ControllerBrokerRequestBatch, SendThreadFailed
from .state_machines import ControlledCluster
from .zookeeper_store import ZooKeeperStore, raise_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.network.recorder import Recorder
    from channel.zookeeper.cluster_state import WonElection
    from channel.zookeeper.session import ZooKeeperSession

    from .events import ControllerEvent

_FEATURE: Final = b'{"features":{},"version":2,"status":1}'
_FIRST_BALANCE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipSettings:
    """What the leaderships of one controller share; a call makes the leadership of a won election.

    Attributes:
        controller_id: The controller's broker id.
        config: The controller's settings.
        metrics: Takes the figures.
        recorder: Sees every frame to and from brokers.
        stores_records: Whether the controller's own broker keeps records; otherwise it gets no replicas.
        channels: Makes the channels to the brokers, with the arguments of ``ControllerChannelManager``.
    """

    controller_id: int
    config: ChannelConfig
    metrics: Metrics
    recorder: Recorder | None = None
    stores_records: bool = False
    channels: Callable[..., ControllerChannelManager] = ControllerChannelManager

    def __call__(
        self, session: ZooKeeperSession, election: WonElection, put: Callable[[ControllerEvent], object]
    ) -> ZooKeeperLeadership:
        """Make the leadership; ``put`` takes events, from any thread."""
        return ZooKeeperLeadership(self, session, election, put)


class ZooKeeperLeadership:
    """The leadership of one controller epoch; made, started and closed on the event thread.

    Args:
        settings: What all leaderships of the controller share.
        session: The ZooKeeper session.
        election: The won election.
        put: Takes events, from any thread.
    """

    def __init__(
        self,
        settings: LeadershipSettings,
        session: ZooKeeperSession,
        election: WonElection,
        put: Callable[[ControllerEvent], object],
    ) -> None:
        controller_id, config, metrics = settings.controller_id, settings.config, settings.metrics
        self._session = session
        self._put = put
        self._lock = new_lock("leadership")
        self._is_closed = False
        self._timer: threading.Timer | None = None
        self._config = config
        self._store = ZooKeeperStore(session, put, election.epoch_zk_version)

        def send_thread_failed(name: str, broker_ids: list[int]) -> None:
            put(SendThreadFailed(name, tuple(broker_ids)))

        channels = settings.channels(
            controller_id,
            lambda: election.epoch,
            config,
            metrics=metrics,
            recorder=settings.recorder,
            on_thread_failed=send_thread_failed,
        )
        without_storage = frozenset[int]() if settings.stores_records else frozenset({controller_id})
        context = ControllerContext(election.epoch)
        batch = ControllerBrokerRequestBatch(controller_id, config, channels, put, context)
        cluster = ControlledCluster(controller_id, config, context, self._store, batch, without_storage)
        self._decisions = ControllerDecisions(cluster, channels, metrics)
        self._administration = Administration(self._decisions, session)

    def start(self) -> None:
        """Take over as the active controller of the cluster."""
        if ibp_at_least(self._config.inter_broker_protocol_version, "2.7-IV0"):
            outcome = fenced(self._session, self._store.fence, [Create(znodes.FEATURE, _FEATURE)])
            raise_error(outcome, NodeExists)
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
            case SendThreadFailed():
                raise IllegalState(f"{event.name} has died, and brokers {list(event.broker_ids)} get no requests")
            case ApiRequest(api_key=ApiKey.ALTER_PARTITION):
                self._administration.alter_partition(event)
            case ApiRequest():
                event.callback(self._administration.answer(event))
            case _:
                self._decisions.process(event)

    def close(self, timeout_s: float | None = None) -> None:
        """End the watches, close all channels to brokers within this time, and drop the context. Harmless if closed."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        close_all(self._store.unwatch, lambda: self._decisions.close(timeout_s))


guards(ZooKeeperLeadership, "_lock", "_is_closed", "_timer")
