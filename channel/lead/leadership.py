"""The leadership of an elected controller: each event becomes writes to the store and requests to the brokers."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.locks import guards, new_lock
from channel.send.context import ControllerContext
from channel.send.manager import ControllerChannelManager
from channel.threads import LoopThread, close_all
from channel.zookeeper.znodes import ISR_CHANGES, LOG_DIR_EVENTS
from kproto.api import ibp_at_least
from kproto.error_codes import ErrorCode, error_name

from . import events
from .administration import Administration
from .broker_changes import BrokerChanges
from .isr_changes import IsrChanges
from .leader_balance import LeaderBalance
from .reassignment import Reassignments
from .state_machines import ControlledCluster
from .topic_creation import TopicChanges
from .topic_deletion import TopicDeletions
from .zookeeper_store import ZooKeeperStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.network.recorder import Recorder
    from channel.zookeeper.cluster_state import WonElection
    from channel.zookeeper.session import ZooKeeperSession

_GROUP: Final = "kafka.controller:type=KafkaController"
_STATS: Final = "kafka.controller:type=ControllerStats"
_UNCLEAN: Final = "UncleanLeaderElectionsPerSec-total"
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
        self, session: ZooKeeperSession, election: WonElection, put: Callable[[events.ControllerEvent], object]
    ) -> Leadership:
        """Make the leadership; ``put`` takes events, from any thread."""
        channels = self.channels(
            self.controller_id,
            lambda: election.epoch,
            self.config,
            metrics=self.metrics,
            recorder=self.recorder,
            on_thread_failed=lambda name, broker_ids: put(events.SendThreadFailed(name, tuple(broker_ids))),
        )
        without_storage = frozenset[int]() if self.stores_records else frozenset({self.controller_id})
        context = ControllerContext(election.epoch)
        batch = events.ControllerBrokerRequestBatch(self.controller_id, self.config, channels, put, context)
        store = ZooKeeperStore(session, put, election.epoch_zk_version)
        cluster = ControlledCluster(self.controller_id, self.config, context, store, batch, without_storage)
        return Leadership(cluster, channels, session, put, self.metrics)


class Leadership:
    """The leadership of one controller epoch: its decisions; all methods run on the event thread.

    After ``IllegalState`` some requests were not made or not queued, so that a broker may have missed a change: the
    owner resigns, and the next controller sends the whole state.

    Args:
        cluster: The cluster; events of its brokers' answers must be passed to ``process``.
        channels: The channels to the brokers; ``start`` opens them, ``close`` closes them.
        session: The ZooKeeper session, for what administrators ask about znodes.
        put: Takes the events of timers, from any thread.
        metrics: Takes the controller's gauges.

    Attributes:
        context: The controller's knowledge; for reading.
        deletions, topics, reassignments, brokers, isr_changes, balance: The decisions, by their subject.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        channels: ControllerChannelManager,
        session: ZooKeeperSession,
        put: Callable[[events.ControllerEvent], object],
        metrics: Metrics,
    ) -> None:
        self.cluster = cluster
        self.context = cluster.context
        self._channels = channels
        self._put = put
        self._metrics = metrics
        self._lock = new_lock("leadership")
        self._is_closed = False
        self._scheduler: LoopThread | None = None
        self.deletions = TopicDeletions(cluster, self._forget_topic)
        self.topics = TopicChanges(cluster, self._forget_topic)
        self.reassignments = Reassignments(cluster, self.deletions)
        self.brokers = BrokerChanges(cluster, channels, self.deletions, self.reassignments)
        self.isr_changes = IsrChanges(cluster, self.reassignments)
        self.balance = LeaderBalance(cluster)
        administration = Administration(
            cluster,
            session,
            brokers=self.brokers,
            topics=self.topics,
            deletions=self.deletions,
            reassignments=self.reassignments,
            isr_changes=self.isr_changes,
            balance=self.balance,
        )
        self._handlers: Mapping[type[events.ControllerEvent], Callable[[Any], object]] = {
            events.BrokerChange: lambda _: self.brokers.process_broker_change(),
            events.BrokerModifications: lambda e: self.brokers.process_broker_modification(e.broker_id),
            events.TopicChange: lambda _: self.topics.process_topic_change(),
            events.PartitionModifications: lambda e: self.topics.process_partition_modification(e.topic),
            events.TopicDeletion: lambda _: self.deletions.process_topic_deletion(),
            events.ZkPartitionReassignment: lambda _: self.reassignments.process_zookeeper(),
            events.PartitionReassignmentIsrChange: lambda e: self.reassignments.process_isr_change(e.partition),
            events.PreferredReplicaLeaderElection: lambda _: self.balance.process_zookeeper(),
            events.IsrChangeNotification: lambda _: self.isr_changes.process_notifications(),
            events.ConfigChangeNotification: lambda _: self.balance.process_config_changes(),
            events.LogDirEventNotification: lambda _: self.brokers.process_log_dir_failures(),
            events.AutoPreferredReplicaLeaderElection: lambda _: self.balance.process_imbalance(),
            events.LeaderAndIsrResponseReceived: self.brokers.process_leader_and_isr_response,
            events.UpdateMetadataResponseReceived: self._log_update_metadata_response,
            events.TopicDeletionStopReplicaResponseReceived: self.deletions.process_stop_replica_response,
            events.SendThreadFailed: _stand_again,
            events.ApiRequest: administration.answer,
        }

    def start(self) -> None:
        """Take over: read the cluster's state, send metadata to the brokers, elect leaders, resume unfinished changes.

        Raises:
            ControllerMoved: Another controller has been elected.
            ChannelError: The store cannot be asked, or requests could not be queued.
        """
        cluster, context = self.cluster, self.context
        began = time.monotonic()
        store = cluster.store
        if ibp_at_least(cluster.config.inter_broker_protocol_version, "2.7-IV0"):
            store.create_features()
        store.delete_children(LOG_DIR_EVENTS, store.read_log_dir_failures()[0])
        store.delete_children(ISR_CHANGES, store.read_isr_changes()[0])
        self.balance.startup()
        self._publish()
        brokers = {broker.id: (broker, epoch) for broker, epoch in store.read_brokers().items()}
        reachable = self.brokers.open_channels(broker for broker, _ in brokers.values())
        context.set_live_brokers(dict(brokers[broker_id] for broker_id in reachable))
        self.topics.read_all()
        partitions = list(context.all_partitions)  # one object for each partition, which the state machines share
        for tp, info in store.read_partition_states(partitions).items():
            context.put_partition_leadership_info(tp, info)
        self.topics.keep_new_from_brokers_without_storage(partitions)
        self.deletions.startup()
        cluster.log.info(
            "brokers %s, %d topics, %d partitions", sorted(reachable), len(context.all_topics), context.partition_count
        )
        cluster.send_update_metadata_to_all()
        cluster.replicas.startup(partitions)
        cluster.partitions.startup(partitions)
        cluster.log.info(
            "ready to serve as the new controller with epoch %d, after %.3f s", context.epoch, time.monotonic() - began
        )
        self.reassignments.startup()
        self.deletions.resume()
        self.balance.process_zookeeper()
        if cluster.config.auto_leader_rebalance_enable:
            self._balance_after(_FIRST_BALANCE_S)

    def _balance_after(self, delay_s: float) -> None:
        """Have a thread check the leaders' balance after this delay, and then again and again."""
        delays = itertools.chain(
            [delay_s], itertools.repeat(self.cluster.config.leader_imbalance_check_interval_seconds)
        )

        def check() -> None:
            if not thread.pause(next(delays) * 1000):
                self._put(events.AutoPreferredReplicaLeaderElection())

        def ended() -> None:
            if thread.error is not None:  # another goes on in its place
                self._balance_after(next(delays))

        thread = LoopThread("controller-scheduler", check, ended=ended)
        with self._lock:
            if not self._is_closed:
                self._scheduler = thread
                thread.start()

    def process(self, event: events.ControllerEvent) -> None:
        """Do the work of an event, and answer it if it has a callback; after an error it is not answered.

        Raises:
            ControllerMoved: Another controller has been elected: its epoch fences this one's writes.
            IllegalState: Requests could not be made or queued.
            ChannelError: The store cannot be asked.
            TypeError: The event is not a controller's.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise TypeError(f"{type(event).__name__} is no event of an elected controller")
        handler(event)

    def close(self, timeout_s: float | None = None) -> None:
        """End the watches, close all channels within this time, and drop the context. Harmless if closed."""
        with self._lock:
            self._is_closed = True
            scheduler = self._scheduler

        def forget() -> None:
            self.cluster.partitions.shutdown()
            self.cluster.replicas.shutdown()
            self.context.reset()
            for name in self._gauges:
                self._metrics.remove(_GROUP, name)
            self._metrics.remove(_STATS, _UNCLEAN)

        close_all(
            lambda: None if scheduler is None else scheduler.initiate_shutdown(),
            self.cluster.store.unwatch,
            lambda: self._channels.close(timeout_s),
            forget,
        )

    def _forget_topic(self, topic: str) -> None:
        self.reassignments.forget_topic(topic)
        self.cluster.forget_topic(topic)

    def _log_update_metadata_response(self, event: events.UpdateMetadataResponseReceived) -> None:
        code = event.response.error_code
        if code != ErrorCode.NONE:
            self.cluster.state_log.error(
                self.context.epoch, "broker %d refused UpdateMetadata: %s", event.broker_id, error_name(code)
            )

    def _publish(self) -> None:
        for name, (read, doc) in self._gauges.items():
            self._metrics.gauge(_GROUP, name, read, doc=doc)
        count = "Unclean elections in this controller epoch"
        self._metrics.gauge(_STATS, _UNCLEAN, lambda: self.cluster.partitions.unclean_elections, doc=count)

    @property
    def _gauges(self) -> dict[str, tuple[Callable[[], float], str]]:
        context, deletions = self.context, self.deletions
        return {
            "ActiveBrokerCount": (lambda: len(context.live_or_shutting_down_broker_ids), "Registered brokers"),
            "FencedBrokerCount": (lambda: 0, "Always 0 with ZooKeeper"),
            "ZkMigrationState": (lambda: 0, "Always 0: no migration"),
            "GlobalTopicCount": (lambda: len(context.all_topics), "Topics"),
            "GlobalPartitionCount": (lambda: context.partition_count, "Partitions"),
            "OfflinePartitionsCount": (
                lambda: len(self.cluster.partitions.offline_partitions),
                "Partitions without a leader",
            ),
            "PreferredReplicaImbalanceCount": (
                lambda: context.preferred_replica_imbalance_count,
                "Partitions that another than their preferred replica leads",
            ),
            "TopicsToDeleteCount": (lambda: len(context.topics_to_be_deleted), "Topics queued for deletion"),
            "ReplicasToDeleteCount": (deletions.count_replicas, "Replicas that are not deleted yet"),
            "TopicsIneligibleToDeleteCount": (
                lambda: len(context.topics_ineligible_for_deletion),
                "Topics whose deletion waits for a dead replica or a reassignment",
            ),
            "ReplicasIneligibleToDeleteCount": (
                deletions.count_ineligible_replicas,
                "Replicas whose deletion waits for their broker",
            ),
        }


guards(Leadership, "_lock", "_is_closed", "_scheduler")


def _stand_again(event: events.SendThreadFailed) -> NoReturn:
    raise IllegalState(f"{event.name} has died, and brokers {list(event.broker_ids)} get no requests")
