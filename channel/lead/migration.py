"""A KRaft controller's requests to ZooKeeper brokers in a migration: whole images, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from channel.logs import get_logger
from channel.send.batch import RequestBatch
from channel.types import PartitionMetadata, UpdateType
from kproto.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kproto.types import TopicPartition


_log = get_logger(__name__)


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

    It only logs brokers' answers. Its context holds the image, with the ZooKeeper brokers as the live ones.
    """

    is_kraft_controller = True

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
