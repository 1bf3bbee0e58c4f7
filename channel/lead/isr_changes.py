"""ISR changes by the AlterPartition requests of leaders, and by states that older leaders write themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.errors import StaleBrokerEpoch
from channel.logs import bounded
from channel.types import LeaderAndIsr, LeaderRecoveryState
from channel.zookeeper.znodes import ISR_CHANGES
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kproto.types import TopicPartition

    from .reassignment import Reassignments
    from .state_machines import ControlledCluster

_INELIGIBLE_REPLICA_SINCE: Final = 2
"""The first version of AlterPartition with the code INELIGIBLE_REPLICA."""


class IsrChanges:
    """The decisions about ISRs; on the event thread only.

    Args:
        reassignments: The partitions that are being reassigned; an ISR with all target replicas completes one.
    """

    def __init__(self, cluster: ControlledCluster, reassignments: Reassignments) -> None:
        self._cluster = cluster
        self._reassignments = reassignments

    def alter(
        self,
        broker_id: int,
        broker_epoch: int,
        proposed: Mapping[TopicPartition, LeaderAndIsr],
        version: int,
        respond: Callable[[dict[TopicPartition, LeaderAndIsr | ErrorCode]], None] = lambda outcomes: None,
    ) -> dict[TopicPartition, LeaderAndIsr | ErrorCode]:
        """Check and write the ISRs that a leader proposes, and send UpdateMetadata to all brokers.

        The leader is answered before reassignments are completed, as by Kafka: it would get the next partition epoch
        before the answer to its request.

        Args:
            proposed: The proposed states, with the leader and partition epochs that the leader knows.
            version: The version of AlterPartition; codes for refused replicas depend on it.
            respond: Answers the leader; called before reassignments are completed, with what is returned.

        Returns:
            For each partition the state that now holds, or the code of its refusal.

        Raises:
            StaleBrokerEpoch: The epoch is not that of the broker's registration.
        """
        if self._cluster.context.live_broker_id_and_epochs.get(broker_id) != broker_epoch:
            raise StaleBrokerEpoch(f"AlterPartition of broker {broker_id} has a stale epoch {broker_epoch}")
        answers: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, state in proposed.items():
            answer = self._check(tp, state, version)
            if answer is None:
                wanted[tp] = state
            else:
                answers[tp] = answer
        changed, rejected = self._write(wanted)
        answers |= changed
        answers |= rejected
        if changed:
            self._cluster.send_update_metadata_to_all(changed)
        respond(answers)
        if changed:
            self._reassignments.complete_those_in_sync(changed)
        return answers

    def process_notifications(self) -> None:
        """Read the ISRs that brokers have written themselves, and send UpdateMetadata to all brokers."""
        cluster, context = self._cluster, self._cluster.context
        names, partitions = cluster.store.read_isr_changes()
        known = [tp for tp in partitions if context.partition_replica_assignment(tp)]
        states = cluster.store.read_partition_states(known)
        for tp, info in states.items():
            context.put_partition_leadership_info(tp, info)
        if states:
            self._cluster.send_update_metadata_to_all(list(states))
            self._reassignments.complete_those_in_sync(list(states))
        cluster.store.delete_children(ISR_CHANGES, names)

    def _write(
        self, wanted: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], dict[TopicPartition, ErrorCode]]:
        """Write ISRs; returns the states of the changed partitions, and the error codes of the others."""

        def as_wanted(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            after = wanted[tp]
            if state.partition_epoch != after.partition_epoch:
                return None  # the state has changed since: the leader must read it again
            return after._replace(leader=state.leader, leader_epoch=state.leader_epoch)

        done, failed = self._cluster.change_states(list(wanted), as_wanted)
        for tp, reason in failed.items():
            self._cluster.log.warning("the ISR of %s is not changed: %s", tp, reason or "its state has changed since")
        codes = {
            tp: ErrorCode.UNKNOWN_SERVER_ERROR if reason else ErrorCode.INVALID_UPDATE_VERSION
            for tp, reason in failed.items()
        }
        return {tp: info.leader_and_isr for tp, info in done.items()}, codes

    def _check(self, tp: TopicPartition, wanted: LeaderAndIsr, version: int) -> LeaderAndIsr | ErrorCode | None:
        """Return the present state if nothing changes, the error code of a refusal, or None for an ISR to write."""
        info = self._cluster.context.partition_leadership_info(tp)
        if info is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        now = info.leader_and_isr
        if wanted.leader_epoch > now.leader_epoch or wanted.partition_epoch > now.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # the leader has its epoch from a newer controller
        if wanted.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if set(wanted.isr) == set(now.isr) and wanted.recovery_state is now.recovery_state:
            return now
        if wanted.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        is_recovered = len(wanted.isr) > 1 or now.recovery_state is LeaderRecoveryState.RECOVERED
        if is_recovered and wanted.recovery_state is LeaderRecoveryState.RECOVERING:
            return ErrorCode.INVALID_REQUEST
        ineligible = set(wanted.isr) - self._cluster.context.live_broker_ids
        if ineligible:
            self._cluster.log.info("brokers %s may not join the ISR of %s", bounded(sorted(ineligible)), tp)
            is_known = version >= _INELIGIBLE_REPLICA_SINCE
            return ErrorCode.INELIGIBLE_REPLICA if is_known else ErrorCode.OPERATION_NOT_ATTEMPTED
        return None
