"""An elected controller's decisions: each event becomes writes to the store and requests to the brokers.

This module has no thread, no socket and no ZooKeeper: the owner gives a store, the channels to the brokers and a queue
for answers, and calls ``start``, ``process`` and ``close`` on one thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from channel.zookeeper.znodes import ISR_CHANGES, LOG_DIR_EVENTS
from kproto.error_codes import ErrorCode, error_name

from . import events
from .broker_changes import BrokerChanges
from .isr_changes import IsrChanges
from .leader_balance import LeaderBalance
from .reassignment import Reassignments
from .topic_creation import TopicChanges
from .topic_deletion import TopicDeletions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.metrics import Metrics
    from channel.send.manager import ControllerChannelManager

    from .state_machines import ControlledCluster


_GROUP: Final = "kafka.controller:type=KafkaController"
_STATS: Final = "kafka.controller:type=ControllerStats"
_UNCLEAN: Final = "UncleanLeaderElectionsPerSec-total"


class ControllerDecisions:
    """The decisions of one controller epoch; all methods run on the event thread.

    After ``IllegalState`` some requests were not made or not queued, so that a broker may have missed a change: the
    owner resigns, and the next controller sends the whole state.

    Args:
        cluster: The cluster; events of its brokers' answers must be passed to ``process``.
        channels: The channels to the brokers; ``start`` opens them, ``close`` closes them.
        metrics: Takes the controller's gauges.

    Attributes:
        cluster: As given.
        context: The controller's knowledge; for reading.
        deletions, topics, reassignments, brokers, isr_changes, balance: The decisions, by their subject.
    """

    def __init__(self, cluster: ControlledCluster, channels: ControllerChannelManager, metrics: Metrics) -> None:
        self.cluster = cluster
        self.context = cluster.context
        self._channels = channels
        self._metrics = metrics
        self.deletions = TopicDeletions(cluster, self._forget_topic)
        self.topics = TopicChanges(cluster, self._forget_topic)
        self.reassignments = Reassignments(cluster, self.deletions)
        self.brokers = BrokerChanges(cluster, channels, self.deletions, self.reassignments)
        self.isr_changes = IsrChanges(cluster, self.reassignments)
        self.balance = LeaderBalance(cluster)
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
        self.cluster.replicas.startup(partitions)
        self.cluster.partitions.startup(partitions)
        cluster.log.info(
            "ready to serve as the new controller with epoch %d, after %.3f s", context.epoch, time.monotonic() - began
        )
        self.reassignments.startup()
        self.deletions.resume()
        self.balance.process_zookeeper()

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
        """Close the channels within this time, and drop the context. Harmless if closed."""
        self._channels.close(timeout_s)
        self.cluster.partitions.shutdown()
        self.cluster.replicas.shutdown()
        self.context.reset()
        for name in self._gauges:
            self._metrics.remove(_GROUP, name)
        self._metrics.remove(_STATS, _UNCLEAN)

    # ---- the rest

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
