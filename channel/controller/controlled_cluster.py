"""The cluster as an elected controller changes it: its context, its durable state, and the requests to its brokers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from channel.logs import get_logger
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch
from kproto.api import ibp_at_least
from kproto.types import TopicPartition

from .deletion import TopicDeletions
from .partition_states import PartitionStateMachine
from .reassignment import Reassignments
from .replica_states import ReplicaStateMachine
from .state_change_log import StateChangeLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from channel.config import ChannelConfig

    from .batch import ControllerBrokerRequestBatch
    from .context import ControllerContext
    from .zookeeper_store import ZooKeeperStore

_ATTEMPTS: Final = 20
"""The number of attempts to write a state whose znode brokers keep changing."""


class ControlledCluster:
    """The parts of a controller that its decisions read and change; on the event thread only.

    Args:
        controller_id: The controller's broker id.
        config: The controller's settings.
        context: The controller's knowledge.
        store: The durable state.
        batch: Collects and sends the requests of a decision.
        without_storage: The brokers that keep no records: they get no replicas.

    Attributes:
        controller_id, config, context, store, without_storage: As given.
        brokers_write_isr: Whether leaders write their ISRs themselves, as they did before AlterPartition.
        log: The controller's log.
        state_log: Kafka's state-change log.
        partitions, replicas: The state machines.
        deletions: The topics that are being deleted.
        reassignments: The partitions that are being reassigned.
    """

    def __init__(
        self,
        controller_id: int,
        config: ChannelConfig,
        context: ControllerContext,
        store: ZooKeeperStore,
        batch: ControllerBrokerRequestBatch,
        without_storage: frozenset[int] = frozenset(),
    ) -> None:
        self.controller_id = controller_id
        self.without_storage = without_storage
        self.config = config
        self.context = context
        self.store = store
        self._batch = batch
        self.brokers_write_isr = not ibp_at_least(config.inter_broker_protocol_version, "2.7-IV2")
        self.log = get_logger(__name__, f"[Controller id={controller_id}]")
        self.state_log = StateChangeLog(controller_id)
        self.partitions = PartitionStateMachine(self)
        self.replicas = ReplicaStateMachine(self)
        self.deletions = TopicDeletions(self)
        self.reassignments = Reassignments(self)

    @contextmanager
    def requests(self) -> Iterator[ControllerBrokerRequestBatch]:
        """Open a batch, whose requests are sent at the end of the ``with``, or dropped after an error.

        Raises:
            IllegalState: A request could not be made or queued; the batch is empty again.
        """
        batch = self._batch
        batch.new_batch()
        try:
            yield batch
            batch.send_requests_to_brokers(self.context.epoch)
        except BaseException:
            batch.clear()
            raise

    def send_update_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Send UpdateMetadata with the live brokers and these partitions."""
        with self.requests() as batch:
            batch.add_update_metadata_request_for_brokers(broker_ids, partitions)

    def send_update_metadata_to_all(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Send UpdateMetadata to every broker that is live or shutting down."""
        self.send_update_metadata(list(self.context.live_or_shutting_down_broker_ids), partitions)

    def forget_topic(self, topic: str) -> None:
        """Forget everything about a topic."""
        partitions = self.context.partitions_for_topic(topic)
        self.partitions.forget(partitions)
        self.replicas.forget(partitions)
        self.reassignments.forget_topic(topic)
        self.context.remove_topic(topic)

    def change_states(
        self,
        partitions: Sequence[TopicPartition],
        change: Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None],
    ) -> tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch], dict[TopicPartition, str]]:
        """Change the durable states of partitions, and update the context.

        The context's states are tried first; a znode is read if it has a newer version, or if ``change`` refuses. If
        brokers write ISRs themselves, the context may be outdated, so all znodes are read first.

        Args:
            partitions: The partitions.
            change: Returns the next state for the present one: the same object for no change, None to refuse. It may be
                called again with a newer state.

        Returns:
            The states of the partitions that have the wanted state now, and the reasons for the others; an empty
            reason for a refusal.

        Raises:
            ControllerMoved: Another controller has been elected.
        """
        context, done = self.context, dict[TopicPartition, LeaderIsrAndControllerEpoch]()
        failed: dict[TopicPartition, str] = {}
        known = (
            {}
            if self.brokers_write_isr
            else {tp: info for tp in partitions if (info := context.partition_leadership_info(tp)) is not None}
        )
        from_context = set(known)
        if len(known) < len(partitions):
            known.update(self._read([tp for tp in partitions if tp not in known]))
        open_partitions: Sequence[TopicPartition] = partitions
        for _ in range(_ATTEMPTS):
            updates: dict[TopicPartition, LeaderAndIsr] = {}
            again: list[TopicPartition] = []
            for tp in open_partitions:
                info = known.get(tp)
                if info is None:
                    failed[tp] = "it has no state in ZooKeeper"
                elif info.controller_epoch > context.epoch:
                    failed[tp] = f"a controller with epoch {info.controller_epoch} has written its state"
                elif (after := change(tp, info.leader_and_isr)) is None:
                    if tp in from_context:
                        again.append(tp)
                    else:
                        failed[tp] = ""
                elif after is info.leader_and_isr:
                    done[tp] = info
                else:
                    updates[tp] = after
            if updates:
                again += self._write(updates, done, failed)
            open_partitions = again
            if not open_partitions:
                break
            from_context.clear()
            known = self._read(open_partitions)
        failed.update(dict.fromkeys(open_partitions, f"its state changed under each of {_ATTEMPTS} writes"))
        return done, failed

    def _read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Read states into the context."""
        states = dict(self.store.read_partition_states(partitions))
        for tp, info in states.items():
            self.context.put_partition_leadership_info(tp, info)
        return states

    def _write(
        self,
        updates: dict[TopicPartition, LeaderAndIsr],
        done: dict[TopicPartition, LeaderIsrAndControllerEpoch],
        failed: dict[TopicPartition, str],
    ) -> list[TopicPartition]:
        """Write states, and return the partitions whose znodes have another version."""
        context, conflicts = self.context, []
        results = self.store.update_partition_states(updates, context.epoch)
        for tp, write in results.items():
            if isinstance(write, int):
                leader, isr, leader_epoch, _, recovery = updates[tp]
                state = LeaderAndIsr(leader, isr, leader_epoch, write, recovery)
                done[tp] = info = LeaderIsrAndControllerEpoch(state, context.epoch)
                context.put_partition_leadership_info(tp, info)
            elif write is None:
                conflicts.append(tp)
            else:
                failed[tp] = write
        return conflicts

    def raise_leader_epochs(self, partitions: Sequence[TopicPartition]) -> None:
        """Write the states of partitions in their next leader epochs, and send them to all their replicas.

        By the new leader epoch the replicas accept a changed assignment. The state-change log names a partition whose
        state could not be written.
        """
        if not partitions:
            return
        done, failed = self.change_states(
            partitions, lambda _, state: state._replace(leader_epoch=state.leader_epoch + 1)
        )
        for tp, reason in failed.items():
            self.state_log.error(self.context.epoch, "the leader epoch of %s could not be raised: %s", tp, reason)
        with self.requests() as batch:
            for tp, info in done.items():
                assignment = self.context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers(assignment.origin, tp, info, assignment, False)
                batch.add_leader_and_isr_request_for_brokers(assignment.adding, tp, info, assignment, True)
