"""A KRaft controller's requests to ZooKeeper brokers in a migration: whole images, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from channel.logs import get_logger
from channel.send.batch import RequestBatch
from channel.types import PartitionMetadata, UpdateType
from kproto.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel.config import ChannelConfig
    from channel.send.context import ControllerContext
    from channel.send.manager import ControllerChannelManager
    from channel.types import Broker
    from kproto.types import TopicPartition


_log = get_logger(__name__)


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


class ImageChange(NamedTuple):
    """The difference between two images.

    Attributes:
        new_brokers: ZooKeeper brokers that joined, or came back with another epoch or address.
        partitions: Partitions whose leadership or replicas changed, with True for new ones; they go to all replicas.
        removed_replicas: Replicas that were removed from a broker.
        deleted: Partitions of deleted topics, in their last state.
    """

    new_brokers: Collection[int] = ()
    partitions: Mapping[TopicPartition, bool] = {}
    removed_replicas: Collection[tuple[int, TopicPartition]] = ()
    deleted: Mapping[TopicPartition, PartitionMetadata] = {}


class MigrationRequestBatch(RequestBatch):
    """The request batch of a KRaft controller, which sends its images to the migrating ZooKeeper brokers.

    It only logs brokers' answers. Its context holds the image, with the brokers that are not fenced as the live ones;
    ``set_brokers`` begins with those of the first image. KRaft brokers get no requests: they read the metadata log.
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
            The brokers whose channel is new, as it also is after another epoch or address: an ``ImageChange`` has them.
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

    def handle_leader_and_isr_response(self, response: Any, broker_id: int) -> None:
        """Log an error; it changes no decision of the KRaft controller."""
        self._log_answer("LeaderAndIsr", response, broker_id)

    def handle_update_metadata_response(self, response: Any, broker_id: int) -> None:
        """Log an error."""
        self._log_answer("UpdateMetadata", response, broker_id)

    def handle_stop_replica_response(self, response: Any, broker_id: int, errors: dict[TopicPartition, int]) -> None:
        """Log an error."""
        self._log_answer("StopReplica", response, broker_id)

    def _log_answer(self, api: str, response: Any, broker_id: int) -> None:
        if response.error_code:
            _log.error("broker %d answered %s with %s", broker_id, api, error_name(response.error_code))
        else:
            _log.debug("broker %d answered %s", broker_id, api)

    def send_image(self, controller_epoch: int) -> None:
        """Send the whole image: UpdateMetadata to all brokers, then to each a full LeaderAndIsr of its replicas.

        An image does not show the replicas to stop; a broker finds them by comparison.
        """
        brokers = sorted(self._context.live_or_shutting_down_broker_ids)
        self.new_batch()
        self.add_update_metadata_request_for_brokers(brokers, self._context.partitions_with_leaders)
        self.send_requests_to_brokers(controller_epoch)

        self.new_batch(UpdateType.FULL)
        for tp in self._context.partitions_with_leaders:
            self._add_leader_and_isr(tp, is_new=True)
        self.send_requests_to_brokers(controller_epoch)

    def send_change(self, change: ImageChange, controller_epoch: int) -> None:
        """Send a change: all metadata to new brokers, the live brokers to the others, the partitions to all.

        Args:
            change: The difference from the image that was sent before.
            controller_epoch: The epoch to send under.
        """
        brokers = sorted(self._context.live_or_shutting_down_broker_ids)
        if change.new_brokers:
            self.new_batch()
            self.add_update_metadata_request_for_brokers(change.new_brokers, self._context.partitions_with_leaders)
            self.send_requests_to_brokers(controller_epoch)
            self.new_batch()
            self.add_update_metadata_request_for_brokers([b for b in brokers if b not in change.new_brokers])
            self.send_requests_to_brokers(controller_epoch)

        self.new_batch(UpdateType.INCREMENTAL)
        for tp, is_new in change.partitions.items():
            self._add_leader_and_isr(tp, is_new)
        for broker_id, tp in change.removed_replicas:
            self.add_stop_replica_request_for_brokers((broker_id,), tp, delete_partition=True)
        for tp, last in change.deleted.items():
            self.add_stop_replica_request_for_brokers(last.replicas, tp, delete_partition=True)
        if change.deleted:
            deleted = change.deleted.items()
            gone = {tp: PartitionMetadata(last[0].during_delete(), last.replicas) for tp, last in deleted}
            self.add_update_metadata(brokers, gone.items())
        self.send_requests_to_brokers(controller_epoch)

    def _add_leader_and_isr(self, tp: TopicPartition, is_new: bool) -> None:
        leadership = self._context.partition_leadership_info(tp)
        if leadership is None:
            return
        assignment = self._context.partition_full_replica_assignment(tp)
        self.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, is_new)
