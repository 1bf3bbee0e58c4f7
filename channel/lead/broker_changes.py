"""Changes of brokers: they start, fail, restart, shut down or lose a log directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.errors import BrokerNotAvailable, StaleBrokerEpoch
from channel.logs import bounded
from channel.types import NO_BROKER_EPOCH
from channel.zookeeper.znodes import LOG_DIR_EVENTS
from kproto.error_codes import ErrorCode, error_name
from kproto.types import ZERO_UUID, TopicPartition

from .leader_election import Election
from .state_machines import PartitionState, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from channel.send.manager import ControllerChannelManager
    from channel.types import Broker

    from .events import LeaderAndIsrResponseReceived
    from .reassignment import Reassignments
    from .state_machines import ControlledCluster
    from .topic_deletion import TopicDeletions


class BrokerChanges:
    """The decisions about brokers; on the event thread only.

    Args:
        channels: The channels to its brokers.
        deletions: The topics that are being deleted.
        reassignments: The partitions that are being reassigned.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        channels: ControllerChannelManager,
        deletions: TopicDeletions,
        reassignments: Reassignments,
    ) -> None:
        self._cluster = cluster
        self._channels = channels
        self._deletions = deletions
        self._reassignments = reassignments

    # ---- registrations

    def process_broker_change(self) -> None:
        """Compare the registered brokers with the known ones: channels first, then new, bounced and dead brokers."""
        cluster, context = self._cluster, self._cluster.context
        registered = {broker.id: (broker, epoch) for broker, epoch in cluster.store.read_brokers().items()}
        known = dict(context.live_broker_id_and_epochs)
        new = sorted(registered.keys() - known.keys())
        dead = sorted(known.keys() - registered.keys())
        bounced = sorted(b for b in registered.keys() & known.keys() if registered[b][1] > known[b])
        if not new and not dead and not bounced:
            return
        cluster.log.info(
            "newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
            *(",".join(map(str, ids)) for ids in (new, dead, bounced, sorted(registered))),
        )
        added = self.open_channels(registered[b][0] for b in new)
        for broker_id in bounced:
            self._channels.remove_broker(broker_id)
        back = self.open_channels(registered[b][0] for b in bounced)
        for broker_id in dead:
            self._channels.remove_broker(broker_id)
        if added:
            context.add_live_brokers(dict(registered[b] for b in added))
            self._start(added)
        if bounced:
            context.remove_live_brokers(bounced)
            self._fail(bounced)
            context.add_live_brokers(dict(registered[b] for b in back))
            self._start(back)
        if dead:
            context.remove_live_brokers(dead)
            self._fail(dead)
        cluster.log.info("broker epochs are now %s", bounded(dict(context.live_broker_id_and_epochs), 2000))

    def open_channels(self, brokers: Iterable[Broker]) -> list[int]:
        """Open channels, and return the ids of the brokers that have one. A broker without the listener is left out."""
        opened = []
        for broker in brokers:
            try:
                self._channels.add_broker(broker)
            except BrokerNotAvailable as e:
                self._cluster.log.warning("broker %d is left out: %s", broker.id, e)
            else:
                opened.append(broker.id)
        return opened

    def process_broker_modification(self, broker_id: int) -> None:
        """Send UpdateMetadata to all brokers if a broker's addresses have changed; its channel stays as it is."""
        known = self._cluster.context.live_or_shutting_down_broker(broker_id)
        broker = self._cluster.store.read_broker(broker_id)
        if known is None or broker is None or broker == known:
            return
        self._cluster.log.info("%s has become %s", known, broker)
        self._cluster.context.update_broker_metadata(broker)
        self._cluster.send_update_metadata_to_all()

    def _start(self, broker_ids: Sequence[int]) -> None:
        """Send metadata to the known, then to the new brokers, start their replicas, and resume waiting changes."""
        context, new = self._cluster.context, set(broker_ids)
        for broker_id in broker_ids:
            context.set_replicas_on_offline_dirs(broker_id, ())
        self._cluster.send_update_metadata(sorted(context.live_or_shutting_down_broker_ids - new))
        self._cluster.send_update_metadata(broker_ids, context.partitions_with_leaders)
        replicas = context.partitions_on_brokers(broker_ids)
        self._cluster.replicas.change(replicas, ReplicaStatus.ONLINE)
        self._cluster.partitions.elect_for_waiting_partitions()
        self._reassignments.resume(lambda _, assignment: not new.isdisjoint(assignment.target))
        self._deletions.resume_for({tp.topic for tps in replicas.values() for tp in tps})

    def _fail(self, broker_ids: Sequence[int]) -> None:
        context = self._cluster.context
        for broker_id in broker_ids:
            context.set_replicas_on_offline_dirs(broker_id, ())
            context.shutting_down_broker_ids.discard(broker_id)
        self._take_offline(context.partitions_on_brokers(broker_ids))

    def _take_offline(self, replicas: Mapping[int, Iterable[TopicPartition]]) -> None:
        """Elect other leaders for the partitions of lost replicas, and take the replicas out of the ISRs."""
        context = self._cluster.context
        lost, to_delete = dict[int, list[TopicPartition]](), dict[int, list[TopicPartition]]()
        for broker_id, partitions in replicas.items():
            for tp in partitions:
                (to_delete if tp.topic in context.topics_to_be_deleted else lost).setdefault(broker_id, []).append(tp)
        self._cluster.partitions.change(context.partitions_with_offline_leader(), PartitionState.OFFLINE)
        elected = self._cluster.partitions.elect_for_waiting_partitions()
        self._cluster.replicas.change(lost, ReplicaStatus.OFFLINE)
        if to_delete:
            self._deletions.fail_replicas(to_delete)
        if not lost and not elected:
            self._cluster.send_update_metadata_to_all()

    # ---- controlled shutdown

    def shut_down(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        """Move the leaders away from a broker that is shutting down, and stop its followers.

        Returns:
            The partitions that the broker still leads though they have other replicas.

        Raises:
            StaleBrokerEpoch: The epoch is of an earlier registration.
            BrokerNotAvailable: No broker has this id.
        """
        cluster, context = self._cluster, self._cluster.context
        known_epoch = context.live_broker_id_and_epochs.get(broker_id)
        if known_epoch is None:
            raise BrokerNotAvailable(f"broker {broker_id} cannot shut down: the controller has no such broker")
        if broker_epoch not in (NO_BROKER_EPOCH, known_epoch) and broker_epoch < known_epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} has epoch {known_epoch}, its request {broker_epoch}")
        cluster.log.info("broker %d is shutting down", broker_id)
        context.shutting_down_broker_ids.add(broker_id)
        led, followed = list[TopicPartition](), list[TopicPartition]()
        for tp in context.partitions_on_brokers([broker_id])[broker_id]:
            info = context.partition_leadership_info(tp)
            has_others = len(context.partition_replica_assignment(tp)) > 1
            if info is not None and has_others and tp.topic not in context.topics_to_be_deleted:
                (led if info.leader_and_isr.leader == broker_id else followed).append(tp)
        self._cluster.partitions.change(led, PartitionState.ONLINE, Election.CONTROLLED_SHUTDOWN)
        with cluster.requests() as batch:
            for tp in followed:
                batch.add_stop_replica_request_for_brokers([broker_id], tp, False)
        self._cluster.replicas.change({broker_id: followed}, ReplicaStatus.OFFLINE)
        return set(context.partition_leaders_on_broker(broker_id))

    # ---- log directories

    def process_log_dir_failures(self) -> None:
        """Send LeaderAndIsr to the brokers with a failed log directory: their answers name the lost replicas."""
        cluster = self._cluster
        names, broker_ids = cluster.store.read_log_dir_failures()
        replicas = cluster.context.partitions_on_brokers(sorted(broker_ids))
        self._cluster.replicas.change(replicas, ReplicaStatus.ONLINE)
        cluster.store.delete_children(LOG_DIR_EVENTS, names)

    def process_leader_and_isr_response(self, event: LeaderAndIsrResponseReceived) -> None:
        """Take a broker's LeaderAndIsr answer: the replicas it has lost with a log directory or found again."""
        context, broker_id, response = self._cluster.context, event.broker_id, event.response
        if response.error_code != ErrorCode.NONE:
            self._cluster.state_log.error(
                context.epoch, "broker %d refused LeaderAndIsr: %s", broker_id, error_name(response.error_code)
            )
            return
        offline, online = set[TopicPartition](), set[TopicPartition]()
        for tp, code in _partition_errors(response, context.topic_name):
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                offline.add(tp)
            elif code == ErrorCode.NONE:
                online.add(tp)
        before = context.replicas_on_offline_dirs(broker_id)
        if not offline and not before:
            return
        context.set_replicas_on_offline_dirs(broker_id, (before - online) | offline)
        newly_offline = offline - before
        if newly_offline:
            self._cluster.state_log.info(
                context.epoch, "broker %d has lost replicas: %s", broker_id, bounded(sorted(newly_offline))
            )
            self._take_offline({broker_id: sorted(newly_offline)})


def _partition_errors(response: Any, topic_name: Callable[[bytes], str | None]) -> Iterator[tuple[TopicPartition, int]]:
    """Return the error code of each partition in a LeaderAndIsr response; unknown topic ids are ignored."""
    for error in response.partition_errors:
        yield TopicPartition(error.topic_name, error.partition_index), error.error_code
    for topic in response.topics:
        name = None if topic.topic_id == ZERO_UUID else topic_name(topic.topic_id)
        if name is not None:
            for error in topic.partition_errors:
                yield TopicPartition(name, error.partition_index), error.error_code
