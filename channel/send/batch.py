"""The request batch: collects state changes, and sends each broker as few requests as possible.

A controller opens a batch, adds partitions and brokers to it as it decides, and sends it. LeaderAndIsr and StopReplica
differ from broker to broker; the partitions of UpdateMetadata are the same for all: built, encoded and held once.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from channel.errors import IllegalState
from channel.logs import bounded, get_logger
from channel.types import (
    LeaderIsrAndControllerEpoch,
    PartitionMetadata,
    ReplicaAssignment,
    UpdateType,
)
from kproto.api import ApiKey, control_versions
from kproto.messages import LeaderAndIsrPartitionState
from kproto.types import TopicPartition

from . import messages
from .encoded_requests import ControlRequest, ListenerNotExpressible, SharedRequest, SingleRequest
from .messages import MetadataColumns
from .state_change_log import StateChangeLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from channel.config import ChannelConfig
    from kproto.fanout import SharedBody

    from .context import ControllerContext

_topic_of: Final = itemgetter(0)


class ControlRequestSender(Protocol):
    """The receiver of requests: the channel manager."""

    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None:
        """Queue a request; ``callback`` takes the response, on the broker's send thread."""


class RequestBatch:
    """A controller's request batch, used for one decision after the other, on its event thread only.

    It does nothing with brokers' answers: a subclass overrides ``handle_leader_and_isr_response`` and its two siblings.

    After a failed ``send_requests_to_brokers`` the unsent requests stay in the batch, and ``new_batch`` raises until
    they are sent or ``clear`` is called: no request is lost silently.

    Args:
        controller_id: The controller's broker id.
        config: ``inter.broker.protocol.version`` decides the versions, the inter-broker listener leaders' addresses.
    """

    is_kraft_controller: bool = False

    def __init__(
        self,
        controller_id: int,
        config: ChannelConfig,
        sender: ControlRequestSender,
        context: ControllerContext,
    ) -> None:
        self.controller_id = controller_id
        self.versions = control_versions(config.inter_broker_protocol_version)
        self._listener = config.inter_broker_listener
        self._addresses = messages.BrokerAddresses(self._listener, self.versions.update_metadata)
        self._sender = sender
        self._context = context
        self._is_open = False
        self._state_log = StateChangeLog(controller_id)
        self._log = get_logger(__name__, f"[Controller id={controller_id}]")
        # A broker's callbacks are the same in every batch.
        self._leader_and_isr_callback = cache(lambda b: partial(self.handle_leader_and_isr_response, broker_id=b))
        self._update_metadata_callback = cache(lambda b: partial(self.handle_update_metadata_response, broker_id=b))
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, messages.StopState]] = {}
        self._update_metadata_brokers: set[int] = set()
        self._all_added_at = -1  # the context's brokers_version when all live brokers were added last
        self._update_metadata = MetadataColumns()
        self._update_type = UpdateType.UNKNOWN

    # ---- collecting

    def new_batch(self, update_type: UpdateType = UpdateType.UNKNOWN) -> None:
        """Open the batch; ``update_type`` is the type of a KRaft controller's requests in it.

        Raises:
            IllegalState: The last batch was not sent whole.
        """
        if self._leader_and_isr or self._stop_replica or self._update_metadata_brokers:
            api, brokers = self._left()[0]
            raise IllegalState(
                f"the batch still holds {api} requests for brokers {bounded(brokers)}; a new one would lose "
                "these changes: send them, or clear() the batch"
            )
        self._is_open = True
        self._update_type = update_type

    def clear(self) -> None:
        """Drop all added changes; ``new_batch`` must follow."""
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._update_metadata_brokers.clear()
        self._all_added_at = -1
        self._update_metadata = MetadataColumns()
        self._is_open = False

    def add_leader_and_isr_request_for_brokers(
        self,
        broker_ids: Iterable[int],
        tp: TopicPartition,
        leadership: LeaderIsrAndControllerEpoch,
        assignment: ReplicaAssignment,
        is_new: bool,
    ) -> None:
        """Add a partition to the LeaderAndIsr requests of brokers, and to the UpdateMetadata of all live brokers.

        A partition that was added as new to this batch stays new. Negative broker ids are ignored.
        """
        context, version = self._opened(), self.versions.leader_and_isr
        state = messages.leader_and_isr_state(version, tp, leadership, assignment, is_new)  # brokers share it
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            states = self._leader_and_isr.get(broker_id)
            if states is None:
                states = self._leader_and_isr[broker_id] = {}
            before = states.setdefault(tp, state)
            if before is state:
                continue
            stays_new = before.is_new and not is_new
            states[tp] = (
                messages.leader_and_isr_state(version, tp, leadership, assignment, True) if stays_new else state
            )
        if self._all_added_at != context.brokers_version:  # not once more for each partition
            self._update_metadata_brokers.update(context.live_or_shutting_down_broker_ids)
            self._all_added_at = context.brokers_version
        self._update_metadata_of(context, tp)

    def add_stop_replica_request_for_brokers(
        self, broker_ids: Iterable[int], tp: TopicPartition, delete_partition: bool
    ) -> None:
        """Add a replica to the StopReplica requests of brokers; a replica to delete stays so in this batch.

        Negative broker ids are ignored.
        """
        epoch = self._opened().leader_epoch(tp)
        for broker_id in broker_ids:
            if broker_id >= 0:
                states = self._stop_replica.setdefault(broker_id, {})
                known = states.get(tp)
                states[tp] = messages.StopState(epoch, delete_partition or (known is not None and known.delete))

    def add_update_metadata_request_for_brokers(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Add brokers to the receivers of UpdateMetadata, and partitions to its content, by default none.

        A partition that never had a leader is ignored. A topic queued for deletion is sent as deleted. Negative
        broker ids are ignored.
        """
        context = self._opened()
        self._add_update_metadata_brokers(broker_ids)
        for topic, run in groupby(partitions, _topic_of):
            self._update_metadata_of_topic(context, topic, [tp[1] for tp in run])

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[tuple[TopicPartition, PartitionMetadata]]
    ) -> None:
        """Add brokers and partitions to UpdateMetadata with the given states, instead of the context's."""
        self._opened()
        self._add_update_metadata_brokers(broker_ids)
        for (topic, partition), (leadership, replicas, offline) in partitions:
            self._update_metadata.add(topic, partition, leadership, replicas, offline)

    def _add_update_metadata_brokers(self, broker_ids: Iterable[int]) -> None:
        self._update_metadata_brokers.update(b for b in broker_ids if b >= 0)

    def _update_metadata_of(self, context: ControllerContext, tp: TopicPartition) -> None:
        leadership, replicas, offline = context.partition_state(tp)
        topic, partition = tp
        if leadership is None:
            self._log.info("not in UpdateMetadata: %s never had a leader", tp)
            return
        if topic in context.topics_to_be_deleted:
            leadership = leadership.during_delete()
        self._update_metadata.add(topic, partition, leadership, replicas, offline)

    def _update_metadata_of_topic(self, context: ControllerContext, topic: str, partitions: list[int]) -> None:
        states = context.partition_states(topic, partitions)
        if states is not None and topic not in context.topics_to_be_deleted:
            self._update_metadata.add_all(topic, partitions, *states)
            return
        for partition in partitions:
            self._update_metadata_of(context, TopicPartition(topic, partition))

    def _left(self) -> list[tuple[str, list[int]]]:
        """Return the unsent requests: the name of each API, with its brokers."""
        parts: tuple[tuple[str, Iterable[int]], ...] = (
            ("LeaderAndIsr", self._leader_and_isr),
            ("StopReplica", self._stop_replica),
            ("UpdateMetadata", self._update_metadata_brokers),
        )
        return [(api, brokers) for api, left in parts if (brokers := sorted(left))]

    def _opened(self) -> ControllerContext:
        if not self._is_open:
            raise IllegalState("no batch is open; call new_batch() before adding to it")
        return self._context

    # ---- sending

    def send_requests_to_brokers(self, controller_epoch: int) -> None:
        """Queue all requests: LeaderAndIsr, then UpdateMetadata, then StopReplica. Dead brokers get none.

        Raises:
            IllegalState: A request could not be made or queued, for the reason in ``__cause__``. Requests that were
                queued before are no longer in the batch: a second call sends the others alone.
        """
        context = self._opened()
        try:
            self._send_leader_and_isr(context, controller_epoch)
            self._send_update_metadata(context, controller_epoch)
            self._send_stop_replica(context, controller_epoch)
        except Exception as e:
            left = [f"{api} requests for brokers {bounded(brokers)}" for api, brokers in self._left()]
            for each in left:
                self._log.error("not sent: %s", each)
            raise IllegalState(
                f"the batch of controller epoch {controller_epoch} was not sent whole: {e}; still in it, and in it "
                f"alone, are {' and '.join(left)}: remove the cause and send again, or clear() the batch"
            ) from e

    def _send_leader_and_isr(self, context: ControllerContext, epoch: int) -> None:
        version, live = self.versions.leader_and_isr, context.live_broker_id_and_epochs
        logs_info, callback = self._state_log.logs_info, self._leader_and_isr_callback
        last: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        first: SingleRequest | None = None
        for broker_id in list(self._leader_and_isr):  # the states of one broker after the other become free
            states = self._leader_and_isr[broker_id]
            if broker_id not in live:
                del self._leader_and_isr[broker_id]
                continue
            if logs_info:
                self._state_log.leader_and_isr(epoch, broker_id, ((tp.topic, state) for tp, state in states.items()))
            request: ControlRequest
            if first is not None and states == last:  # as for all replicas of one partition
                request = first.for_broker(live[broker_id])
            else:
                message = messages.leader_and_isr_request(
                    version=version,
                    controller_id=self.controller_id,
                    is_kraft_controller=self.is_kraft_controller,
                    controller_epoch=epoch,
                    broker_epoch=live[broker_id],
                    update_type=self._update_type,
                    states=states,
                    topic_ids=context.topic_ids,
                    live_leaders=self._addresses.leaders(context, {s.leader for s in states.values()}),
                )
                request = first = SingleRequest(message, version)
                last = states
            self._sender.send_request(broker_id, request, callback(broker_id))
            del self._leader_and_isr[broker_id]

    def _send_update_metadata(self, context: ControllerContext, epoch: int) -> None:
        live = context.live_broker_id_and_epochs
        targets = sorted(self._update_metadata_brokers & live.keys())
        if self._state_log.logs_info:
            count = len(self._update_metadata)
            self._state_log.info(
                epoch, "sending UpdateMetadata to brokers %s for %d partitions", bounded(targets), count
            )
        if targets:
            shared, error = self._update_metadata_body(context, epoch)
            callback, send = self._update_metadata_callback, self._sender.send_request
            for broker_id in targets:
                send(broker_id, SharedRequest(shared, epoch, live[broker_id], error), callback(broker_id))
                self._update_metadata_brokers.discard(broker_id)
        self._update_metadata_brokers.clear()
        self._all_added_at = -1
        self._update_metadata = MetadataColumns()

    def _update_metadata_body(
        self, context: ControllerContext, epoch: int
    ) -> tuple[SharedBody, ListenerNotExpressible | None]:
        """Encode the UpdateMetadata; in the latest version, and with the error, if its own has no field for a listener.

        As in Kafka that error is for the brokers' send threads, not for the controller.
        """

        def encoded(version: int) -> SharedBody:
            return messages.update_metadata_request(
                version=version,
                controller_id=self.controller_id,
                is_kraft_controller=self.is_kraft_controller,
                controller_epoch=epoch,
                update_type=self._update_type,
                partitions=self._update_metadata,
                topic_ids=context.topic_ids,
                live_brokers=self._addresses.brokers(context),
            )

        try:
            return encoded(self.versions.update_metadata), None
        except ListenerNotExpressible as e:
            self._log.error("the send threads will retry UpdateMetadata without end: %s", e)
            return encoded(ApiKey.UPDATE_METADATA.info.max_version), e

    def _send_stop_replica(self, context: ControllerContext, epoch: int) -> None:
        version, live = self.versions.stop_replica, context.live_broker_id_and_epochs
        logs_info, logs_traces = self._state_log.logs_info, self._state_log.logs_traces
        for broker_id, states in list(self._stop_replica.items()):
            if broker_id not in live:
                del self._stop_replica[broker_id]
                continue
            if logs_traces:
                for tp, state in states.items():
                    self._state_log.trace(epoch, "sending StopReplica %s to broker %d for %s", state, broker_id, tp)
            if logs_info:
                self._state_log.info(
                    epoch,
                    "sending a StopReplica request to broker %d for %d replicas, %d of them to delete",
                    broker_id,
                    len(states),
                    sum(s.delete for s in states.values()),
                )
            for message, to_delete in messages.stop_replica_requests(
                version=version,
                controller_id=self.controller_id,
                is_kraft_controller=self.is_kraft_controller,
                controller_epoch=epoch,
                broker_epoch=live[broker_id],
                states=states,
            ):
                callback = None
                if to_delete is not None:
                    callback = self._stop_replica_callback(context, broker_id, to_delete)
                self._sender.send_request(broker_id, SingleRequest(message, version), callback)
                if to_delete is not None:  # before version 3 a second request follows, with the others
                    self._stop_replica[broker_id] = {tp: s for tp, s in states.items() if not s.delete}
            del self._stop_replica[broker_id]

    def _stop_replica_callback(
        self, context: ControllerContext, broker_id: int, to_delete: set[TopicPartition]
    ) -> Callable[[Any], None]:
        def answered(response: Any) -> None:
            errors = {
                tp: error.error_code
                for error in response.partition_errors
                if (tp := TopicPartition(error.topic_name, error.partition_index)) in to_delete
                and tp.topic in context.topics_with_deletion_started
            }
            if errors:
                self.handle_stop_replica_response(response, broker_id, errors)

        return answered

    # ---- answers, on the send threads

    def handle_leader_and_isr_response(self, response: Any, broker_id: int) -> None:
        """Take a broker's answer to LeaderAndIsr."""

    def handle_update_metadata_response(self, response: Any, broker_id: int) -> None:
        """Take a broker's answer to UpdateMetadata."""

    def handle_stop_replica_response(self, response: Any, broker_id: int, errors: dict[TopicPartition, int]) -> None:
        """Take a broker's answer to StopReplica, with the errors of replicas of topics that are being deleted."""
