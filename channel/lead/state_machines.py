"""The cluster as an elected controller changes it: the states of its partitions and replicas, and its requests."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.logs import bounded, get_logger
from channel.send.state_change_log import StateChangeLog
from channel.types import NO_LEADER, LeaderAndIsr, LeaderIsrAndControllerEpoch
from channel.zookeeper.znodes import TopicZnode
from kproto.api import ibp_at_least
from kproto.types import TopicPartition

from .leader_election import ELECTIONS, Election, with_leader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from channel.config import ChannelConfig
    from channel.send.batch import RequestBatch
    from channel.send.context import ControllerContext
    from channel.types import ReplicaAssignment

    from .zookeeper_store import ZooKeeperStore

UNCLEAN: Final = "unclean.leader.election.enable"

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
        brokers_write_isr: Whether leaders write their ISRs themselves, as they did before AlterPartition.
        log: The controller's log.
        state_log: Kafka's state-change log.
        partitions, replicas: The state machines.
    """

    def __init__(
        self,
        controller_id: int,
        config: ChannelConfig,
        context: ControllerContext,
        store: ZooKeeperStore,
        batch: RequestBatch,
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

    @contextmanager
    def requests(self) -> Iterator[RequestBatch]:
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
        self.context.remove_topic(topic)

    def write_assignments(self, topic: str, changed: Mapping[int, ReplicaAssignment] | None = None) -> bool:
        """Write a topic's assignments as the context has them, but those of changed partitions; False without znode."""
        context = self.context
        known = {
            tp.partition: context.partition_full_replica_assignment(tp) for tp in context.partitions_for_topic(topic)
        }
        contents = TopicZnode(known | dict(changed or {}), context.topic_ids.get(topic))
        return self.store.write_assignment(topic, contents)

    def change_states(
        self,
        partitions: Sequence[TopicPartition],
        change: Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None],
    ) -> tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch], dict[TopicPartition, str]]:
        """Change the durable states of partitions, and update the context.

        The context's states are tried first; a znode is read if it has a newer version, or if ``change`` refuses. If
        brokers write ISRs themselves, the context may be outdated, so all znodes are read first.

        Args:
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


# ---- partitions ------------------------------------------------------------------------------------------------------


class PartitionState(Enum):
    """The state of a partition; a partition that the machine does not know is NON_EXISTENT."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


PREVIOUS_PARTITION_STATES: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}
"""The previous states that each state may follow."""


class PartitionStateMachine:
    """The states of all partitions; on the event thread only.

    Attributes:
        unclean_elections: The number of unclean elections so far.
    """

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self._states: dict[TopicPartition, PartitionState] = {}
        self._without_leader: dict[TopicPartition, None] = {}  # New and Offline ones, in order
        self._recovers = ibp_at_least(cluster.config.inter_broker_protocol_version, "3.2-IV0")
        self.unclean_elections = 0

    def startup(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the states of partitions, and elect leaders for those without an online leader."""
        context = self._cluster.context
        for tp in partitions:
            info = context.partition_leadership_info(tp)
            if info is None:
                self._put(tp, PartitionState.NEW)
            elif context.is_replica_online(info.leader_and_isr.leader, tp):
                self._put(tp, PartitionState.ONLINE)
            else:
                self._put(tp, PartitionState.OFFLINE)
        self.elect_for_waiting_partitions()

    def shutdown(self) -> None:
        """Forget all partitions."""
        self._states.clear()
        self._without_leader.clear()

    def state(self, tp: TopicPartition) -> PartitionState:
        """The state of a partition."""
        return self._states.get(tp, PartitionState.NON_EXISTENT)

    @property
    def offline_partitions(self) -> list[TopicPartition]:
        """The offline partitions, without those of topics queued for deletion."""
        deleted = self._cluster.context.topics_to_be_deleted
        return [tp for tp in list(self._without_leader) if tp.topic not in deleted and not self._is_new(tp)]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions, whatever their state."""
        for tp in partitions:
            self._put(tp, PartitionState.NON_EXISTENT)

    def elect_for_waiting_partitions(self, topic: str | None = None) -> set[TopicPartition]:
        """Elect leaders for all New and Offline partitions, or those of one topic, that are not to be deleted.

        A partition that is being reassigned needs a leader even if its topic is to be deleted, as the deletion waits
        for the reassignment; in Kafka both wait until a broker of the topic is started again.

        Returns:
            The partitions that have a leader now.
        """
        deleted, moving = self._cluster.context.topics_to_be_deleted, self._cluster.context.partitions_being_reassigned
        waiting = [
            tp
            for tp in self._without_leader
            if (topic is None or tp.topic == topic) and (tp.topic not in deleted or tp in moving)
        ]
        failed = self.change(waiting, PartitionState.ONLINE, Election.OFFLINE)
        return {tp for tp in waiting if tp not in failed}

    def change(
        self, partitions: Iterable[TopicPartition], target: PartitionState, election: Election = Election.OFFLINE
    ) -> dict[TopicPartition, str]:
        """Move partitions to a state, if it may follow their present state; ONLINE creates or elects leaders.

        Args:
            election: The kind of the election for those that had a leader before.

        Returns:
            The partitions that did not reach the state, with the reasons.

        Raises:
            ControllerMoved: Another controller has been elected.
            IllegalState: Requests could not be made or queued.
        """
        allowed, failed = PREVIOUS_PARTITION_STATES[target], dict[TopicPartition, str]()
        valid = []
        for tp in partitions:
            if self.state(tp) in allowed:
                valid.append(tp)
            else:
                failed[tp] = f"it is {self.state(tp).value}"
        if target is PartitionState.ONLINE:
            if valid:
                self._bring_online(valid, election, failed)
        else:
            for tp in valid:
                self._put(tp, target)
        for tp, reason in failed.items():
            self._cluster.state_log.error(
                self._cluster.context.epoch, "%s cannot become %s: %s", tp, target.value, bounded(reason)
            )
        return failed

    def _is_new(self, tp: TopicPartition) -> bool:
        return self._states.get(tp) is PartitionState.NEW

    def _put(self, tp: TopicPartition, state: PartitionState) -> None:
        if state is PartitionState.NON_EXISTENT:
            self._states.pop(tp, None)
            self._without_leader.pop(tp, None)
            return
        self._states[tp] = state
        if state is PartitionState.ONLINE:
            self._without_leader.pop(tp, None)
        else:
            self._without_leader[tp] = None

    def _bring_online(
        self, partitions: Sequence[TopicPartition], election: Election, failed: dict[TopicPartition, str]
    ) -> None:
        cluster = self._cluster
        created = self._create([tp for tp in partitions if self._is_new(tp)], failed)
        elected = self._elect([tp for tp in partitions if not self._is_new(tp)], election, failed)
        with cluster.requests() as batch:
            for tp, (info, recipients, is_new) in (created | elected).items():
                assignment = cluster.context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers(recipients, tp, info, assignment, is_new)
        for tp in created | elected:
            self._put(tp, PartitionState.ONLINE)

    def _create(
        self, partitions: Sequence[TopicPartition], failed: dict[TopicPartition, str]
    ) -> dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, tuple[int, ...], bool]]:
        """Create states of new partitions: the first online replica leads, all online replicas are in the ISR."""
        context, states = self._cluster.context, dict[TopicPartition, LeaderIsrAndControllerEpoch]()
        for tp in partitions:
            replicas = context.partition_replica_assignment(tp)
            online = tuple([r for r in replicas if context.is_replica_online(r, tp)])
            if online:
                states[tp] = LeaderIsrAndControllerEpoch(LeaderAndIsr(online[0], online), context.epoch)
            else:
                failed[tp] = f"none of its replicas {list(replicas)} is online"
        if not states:
            return {}
        created = {}
        for tp, write in self._cluster.store.create_partition_states(states).items():
            if isinstance(write, int):
                context.put_partition_leadership_info(tp, states[tp])
                created[tp] = states[tp], states[tp].leader_and_isr.isr, True
            else:
                failed[tp] = write or "its state exists already"
        return created

    def _elect(
        self, partitions: Sequence[TopicPartition], election: Election, failed: dict[TopicPartition, str]
    ) -> dict[TopicPartition, tuple[LeaderIsrAndControllerEpoch, tuple[int, ...], bool]]:
        if not partitions:
            return {}
        cluster, recipients = self._cluster, dict[TopicPartition, tuple[int, ...]]()
        unclean, unclean_leaders = dict[str, bool](), dict[TopicPartition, bool]()

        def elect(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            winner = ELECTIONS[election](cluster.context, tp, state)
            if winner is None and election is Election.OFFLINE and unclean.get(tp.topic, False):
                winner = ELECTIONS[Election.UNCLEAN](cluster.context, tp, state)
            if winner is None:
                return None
            recipients[tp] = winner.recipients
            unclean_leaders[tp] = winner.state.leader not in state.isr
            if not self._recovers:  # before protocol version 3.2 no state says that its leader has to recover
                return winner.state._replace(recovery_state=state.recovery_state)
            return winner.state

        done, unchanged = cluster.change_states(partitions, elect)
        lost = [tp for tp, reason in unchanged.items() if not reason]
        if lost and election is Election.OFFLINE:
            unclean = self._unclean_elections({tp.topic for tp in lost})
            again = [tp for tp in lost if unclean.get(tp.topic, False)]
            if again:
                done_again, unchanged_again = cluster.change_states(again, elect)
                done |= done_again
                unchanged = {tp: reason for tp, reason in unchanged.items() if tp not in done_again} | unchanged_again
        failed.update(
            (tp, reason or f"no replica may lead it, though {election.value}") for tp, reason in unchanged.items()
        )
        self.unclean_elections += sum(unclean_leaders[tp] for tp in done)
        return {tp: (info, recipients[tp], False) for tp, info in done.items()}

    def _unclean_elections(self, topics: set[str]) -> dict[str, bool]:
        """Return, for each topic, whether it allows unclean elections."""
        store = self._cluster.store
        configs, default = store.read_topic_configs(topics), store.read_default_config()
        static = str(self._cluster.config.unclean_leader_election_enable)
        return {
            topic: (configs.get(topic, {}).get(UNCLEAN) or default.get(UNCLEAN, static)).strip().lower() == "true"
            for topic in topics
        }


# ---- replicas --------------------------------------------------------------------------------------------------------


class ReplicaStatus(Enum):
    """The state of a replica; a replica that the machine does not know is NON_EXISTENT."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


_SERVING: Final = frozenset(
    {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
)

PREVIOUS_REPLICA_STATES: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: _SERVING,
    ReplicaStatus.OFFLINE: _SERVING,
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
"""The previous states that each state may follow."""

_DELETION: Final = (
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_SUCCESSFUL,
    ReplicaStatus.DELETION_INELIGIBLE,
)


def replicas_by_broker(
    partitions: Iterable[tuple[TopicPartition, Iterable[int]]],
) -> dict[int, list[TopicPartition]]:
    """Group partitions by broker, from the brokers of each partition."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp, broker_ids in partitions:
        for broker_id in broker_ids:
            by_broker.setdefault(broker_id, []).append(tp)
    return by_broker


class ReplicaStateMachine:
    """The states of all replicas; on the event thread only.

    Replicas are given as the partitions of each broker.
    """

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self._states: dict[int, dict[TopicPartition, ReplicaStatus]] = {}
        self._in_deletion: Counter[tuple[str, ReplicaStatus]] = Counter()

    def startup(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the states of all replicas of partitions: online ones get LeaderAndIsr, the others leave their ISRs."""
        context = self._cluster.context
        online: dict[int, list[TopicPartition]] = {}
        offline: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            for broker_id in context.partition_replica_assignment(tp):
                is_online = context.is_replica_online(broker_id, tp)
                there = online if is_online else offline
                if broker_id in there:
                    there[broker_id].append(tp)
                else:
                    there[broker_id] = [tp]
                # A broker may have died while there was no controller: deletions on it have to wait.
                self._put(broker_id, tp, ReplicaStatus.ONLINE if is_online else ReplicaStatus.DELETION_INELIGIBLE)
        self.change(online, ReplicaStatus.ONLINE)
        self.change(offline, ReplicaStatus.OFFLINE)

    def shutdown(self) -> None:
        """Forget all replicas."""
        self._states.clear()
        self._in_deletion.clear()

    def state(self, broker_id: int, tp: TopicPartition) -> ReplicaStatus:
        """The state of a replica."""
        return self._states.get(broker_id, {}).get(tp, ReplicaStatus.NON_EXISTENT)

    def count_in_state(self, topic: str, state: ReplicaStatus) -> int:
        """The number of a topic's replicas that are in one of the states of its deletion."""
        return self._in_deletion[topic, state]

    def replicas_in_state(self, topic: str, state: ReplicaStatus) -> dict[int, list[TopicPartition]]:
        """The replicas of a topic that are in a state."""
        context = self._cluster.context
        return replicas_by_broker(
            (tp, [b for b in context.partition_replica_assignment(tp) if self.state(b, tp) is state])
            for tp in context.partitions_for_topic(topic)
        )

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all replicas of partitions, whatever their state."""
        for tp in partitions:
            for broker_id, states in self._states.items():
                if tp in states:
                    self._put(broker_id, tp, ReplicaStatus.NON_EXISTENT)

    def change(self, replicas: Mapping[int, Collection[TopicPartition]], target: ReplicaStatus) -> None:
        """Move replicas to a state, if it may follow their present state, and send the requests to their brokers.

        A replica that cannot move stays in its state; the state-change log says so.

        Raises:
            ControllerMoved: Another controller has been elected.
            IllegalState: Requests could not be made or queued.
        """
        if not any(replicas.values()):
            return
        with self._cluster.requests() as batch:
            valid = {b: self._valid(b, partitions, target) for b, partitions in replicas.items()}
            if target is ReplicaStatus.ONLINE:
                self._bring_online(batch, valid)
                return
            if target is ReplicaStatus.OFFLINE:
                self._take_all_offline(batch, valid)
                return
            for broker_id, partitions in valid.items():
                if partitions:
                    self._change_on_broker(batch, broker_id, partitions, target)

    def _valid(
        self, broker_id: int, partitions: Collection[TopicPartition], target: ReplicaStatus
    ) -> list[TopicPartition]:
        """The replicas that may move to a state."""
        allowed, states, valid = tuple(PREVIOUS_REPLICA_STATES[target]), self._states.get(broker_id, {}), []
        for tp in partitions:
            state = states.get(tp, ReplicaStatus.NON_EXISTENT)
            if state in allowed:  # a tuple: compared by identity, where a set would hash
                valid.append(tp)
            else:
                self._log_invalid(broker_id, tp, target, f"it is {state.value}")
        return valid

    def _change_on_broker(
        self,
        batch: RequestBatch,
        broker_id: int,
        partitions: list[TopicPartition],
        target: ReplicaStatus,
    ) -> None:
        if target is ReplicaStatus.NEW:
            self._create(batch, broker_id, partitions)
        else:
            for tp in partitions:
                if target is ReplicaStatus.DELETION_STARTED:
                    batch.add_stop_replica_request_for_brokers([broker_id], tp, True)
                elif target is ReplicaStatus.NON_EXISTENT:
                    self._unassign(broker_id, tp)
                self._put(broker_id, tp, target)

    def _create(self, batch: RequestBatch, broker_id: int, partitions: list[TopicPartition]) -> None:
        context = self._cluster.context
        for tp in partitions:
            info = context.partition_leadership_info(tp)
            if info is not None:
                if info.leader_and_isr.leader == broker_id:
                    self._log_invalid(broker_id, tp, ReplicaStatus.NEW, "it leads the partition already")
                    continue
                assignment = context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers([broker_id], tp, info, assignment, True)
            self._put(broker_id, tp, ReplicaStatus.NEW)

    def _bring_online(self, batch: RequestBatch, replicas: Mapping[int, list[TopicPartition]]) -> None:
        """Send LeaderAndIsr to the replicas, each partition's state once for all of its replicas."""
        context, told = self._cluster.context, dict[TopicPartition, tuple[int, ...]]()
        groups: dict[tuple[int, ...], tuple[int, ...]] = {}  # partitions with the same replicas share one tuple
        for broker_id, partitions in replicas.items():
            states = self._states.setdefault(broker_id, {})
            for tp in partitions:
                if states[tp] is ReplicaStatus.NEW:
                    self._assign(broker_id, tp)
                else:
                    group = (*told.get(tp, ()), broker_id)
                    told[tp] = groups.setdefault(group, group)
                self._put(broker_id, tp, ReplicaStatus.ONLINE)
        for tp, broker_ids in told.items():
            info = context.partition_leadership_info(tp)
            if info is not None:
                assignment = context.partition_full_replica_assignment(tp)
                batch.add_leader_and_isr_request_for_brokers(broker_ids, tp, info, assignment, False)

    def _take_all_offline(self, batch: RequestBatch, replicas: Mapping[int, list[TopicPartition]]) -> None:
        """Take replicas offline; each partition that needs it goes into UpdateMetadata once, however many they are."""
        told: dict[TopicPartition, None] = {}
        for broker_id, partitions in replicas.items():
            if partitions:
                told |= dict.fromkeys(self._take_offline(batch, broker_id, partitions))
        if told:
            batch.add_update_metadata_request_for_brokers(self._cluster.context.live_or_shutting_down_broker_ids, told)

    def _take_offline(
        self, batch: RequestBatch, broker_id: int, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Take the replicas of a broker offline; returns the partitions whose brokers learn of it by UpdateMetadata."""
        context = self._cluster.context
        in_isr, told = [], []
        for tp in partitions:
            batch.add_stop_replica_request_for_brokers([broker_id], tp, False)
            if context.partition_leadership_info(tp) is None:
                told.append(tp)
            elif tp.topic not in context.topics_to_be_deleted:
                in_isr.append(tp)
                continue
            self._put(broker_id, tp, ReplicaStatus.OFFLINE)

        def without_broker(_: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            if broker_id not in state.isr:
                return state
            leader = NO_LEADER if state.leader == broker_id else state.leader
            isr = state.isr if len(state.isr) == 1 else tuple([b for b in state.isr if b != broker_id])
            return with_leader(state, leader, isr)

        known = {tp: context.partition_leadership_info(tp) for tp in in_isr}
        done, failed = self._cluster.change_states(in_isr, without_broker)
        for tp, reason in failed.items():
            self._log_invalid(broker_id, tp, ReplicaStatus.OFFLINE, reason)
        for tp, info in done.items():
            if info == known[tp]:
                told.append(tp)  # its replicas know this leader epoch, but not that a replica is offline
            else:
                assignment = context.partition_full_replica_assignment(tp)
                others = [b for b in assignment.replicas if b != broker_id]
                batch.add_leader_and_isr_request_for_brokers(others, tp, info, assignment, False)
            self._put(broker_id, tp, ReplicaStatus.OFFLINE)
        return told

    def _assign(self, broker_id: int, tp: TopicPartition) -> None:
        context = self._cluster.context
        assignment = context.partition_full_replica_assignment(tp)
        if broker_id not in assignment.replicas:
            wider = assignment._replace(replicas=(*assignment.replicas, broker_id))
            context.update_partition_full_replica_assignment(tp, wider)

    def _unassign(self, broker_id: int, tp: TopicPartition) -> None:
        context = self._cluster.context
        context.update_partition_full_replica_assignment(
            tp, context.partition_full_replica_assignment(tp).without(broker_id)
        )

    def _put(self, broker_id: int, tp: TopicPartition, state: ReplicaStatus) -> None:
        states = self._states.get(broker_id)
        if states is None:
            states = self._states[broker_id] = {}
        before = states.get(tp)
        if before in _DELETION:
            self._count(tp.topic, before, -1)
        if state is ReplicaStatus.NON_EXISTENT:
            states.pop(tp, None)
        else:
            states[tp] = state
            if state in _DELETION:
                self._count(tp.topic, state, 1)

    def _count(self, topic: str, state: ReplicaStatus, step: int) -> None:
        self._in_deletion[topic, state] += step
        if not self._in_deletion[topic, state]:
            del self._in_deletion[topic, state]

    def _log_invalid(self, broker_id: int, tp: TopicPartition, target: ReplicaStatus, reason: str) -> None:
        epoch, log = self._cluster.context.epoch, self._cluster.state_log
        log.error(epoch, "replica %d of %s cannot become %s: %s", broker_id, tp, target.value, reason)
