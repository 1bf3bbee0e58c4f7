"""A KRaft controller's requests to ZooKeeper brokers in a migration: whole images, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from channel.send.batch import RequestBatch
from channel.types import PartitionMetadata, UpdateType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel.config import ChannelConfig
    from channel.send.context import ControllerContext
    from channel.send.manager import ControllerChannelManager
    from channel.types import Broker
    from kproto.types import TopicPartition


class Registration(NamedTuple):
    """A broker's registration with the KRaft controller.

    Attributes:
        broker: Its id, endpoints and rack.
        is_fenced: Whether the broker is down, or has not caught up yet.
        is_zookeeper_broker: Whether it still is a ZooKeeper broker, which takes part in the migration.
    """

    broker: Broker
    epoch: int
    is_fenced: bool = False
    is_zookeeper_broker: bool = True


class MigrationRequestBatch(RequestBatch):
    """The request batch of a KRaft controller, which sends its images to the migrating ZooKeeper brokers.

    Its context holds the image, with the brokers that are not fenced as the live ones; ``set_brokers`` begins with
    those of the first image. KRaft brokers get no requests: they read the metadata log.
    """

    is_kraft_controller = True

    def __init__(
        self, controller_id: int, config: ChannelConfig, channels: ControllerChannelManager, context: ControllerContext
    ) -> None:
        super().__init__(controller_id, config, channels, context)
        self._channels = channels
        self._zookeeper_brokers: dict[int, Registration] = {}

    def set_brokers(self, registrations: Iterable[Registration]) -> set[int]:
        """Take an image's brokers: ZooKeeper brokers that are not fenced have a channel, and no others.

        Returns:
            The brokers whose channel is new, as it also is after another epoch or address, for ``send_new_brokers``.
        """
        live = [each for each in registrations if not each.is_fenced]
        before, now = self._zookeeper_brokers, {each.broker.id: each for each in live if each.is_zookeeper_broker}
        for broker_id in [i for i, each in before.items() if now.get(i) != each]:
            self._channels.remove_broker(broker_id)
        new = {i for i, each in now.items() if before.get(i) != each}
        for broker_id in new:
            self._channels.add_broker(now[broker_id].broker)
        self._context.set_live_brokers({each.broker: each.epoch for each in live})
        self._zookeeper_brokers = now
        return new

    def send_requests_to_brokers(self, controller_epoch: int) -> None:
        """Queue the requests for ZooKeeper brokers; see ``RequestBatch``."""
        brokers = self._zookeeper_brokers.keys()
        for requests in (self._leader_and_isr, self._stop_replica):
            for broker_id in requests.keys() - brokers:
                del requests[broker_id]
        self._update_metadata_brokers.intersection_update(brokers)
        super().send_requests_to_brokers(controller_epoch)

    def send_image(self, controller_epoch: int) -> None:
        """Send the whole image: UpdateMetadata to all brokers, then to each a full LeaderAndIsr of its replicas.

        An image does not show the replicas to stop; a broker finds them by comparison.
        """
        self.new_batch()
        self.add_update_metadata_request_for_brokers(
            self._context.live_or_shutting_down_broker_ids, self._context.partitions_with_leaders
        )
        self.send_requests_to_brokers(controller_epoch)

        self.new_batch(UpdateType.FULL)
        for tp in self._context.partitions_with_leaders:
            leadership = self._context.partition_leadership_info(tp)
            if leadership is not None:
                assignment = self._context.partition_full_replica_assignment(tp)
                self.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, True)
        self.send_requests_to_brokers(controller_epoch)

    def send_new_brokers(self, new: Collection[int], controller_epoch: int) -> None:
        """Send all metadata to the brokers that joined or came back, and the live brokers to the others."""
        if not new:
            return
        self.new_batch()
        self.add_update_metadata_request_for_brokers(new, self._context.partitions_with_leaders)
        self.send_requests_to_brokers(controller_epoch)
        self.new_batch()
        self.add_update_metadata_request_for_brokers(self._context.live_or_shutting_down_broker_ids - set(new))
        self.send_requests_to_brokers(controller_epoch)

    def send_deleted(self, deleted: Mapping[TopicPartition, PartitionMetadata], controller_epoch: int) -> None:
        """Send the end of the partitions of deleted topics, which are given in their last state."""
        self.new_batch(UpdateType.INCREMENTAL)
        for tp, last in deleted.items():
            self.add_stop_replica_request_for_brokers(last.replicas, tp, delete_partition=True)
        gone = {tp: PartitionMetadata(last[0].during_delete(), last.replicas) for tp, last in deleted.items()}
        self.add_update_metadata(self._context.live_or_shutting_down_broker_ids, gone.items())
        self.send_requests_to_brokers(controller_epoch)
