"""Elections of preferred replicas, requested or because of imbalance, and unclean ones, requested or allowed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from channel.logs import bounded
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .leader_election import Election
from .state_machines import UNCLEAN, PartitionState

if TYPE_CHECKING:
    from collections.abc import Set

    from .state_machines import ControlledCluster

_FAILURES: Final = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
"""The code of a requested election that no replica has won."""


class LeaderBalance:
    """Holds requested elections; on the event thread only."""

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self._last_config_change = -1

    def startup(self) -> None:
        """Skip past the notifications of changed settings, as every election reads the present settings."""
        self._last_config_change = self._cluster.store.read_config_changes(None).last

    def process_config_changes(self) -> None:
        """Hold the elections that leaderless partitions wait for, where unclean elections became allowed."""
        store, partitions = self._cluster.store, self._cluster.partitions
        changes = store.read_config_changes(self._last_config_change)
        self._last_config_change = changes.last
        if changes.of_default:
            partitions.elect_for_waiting_partitions()
            return
        for topic, settings in store.read_topic_configs(changes.topics).items():
            if settings.get(UNCLEAN, "").strip().lower() == "true":
                partitions.elect_for_waiting_partitions(topic)

    def process_zookeeper(self) -> None:
        """Elect the preferred replicas of the partitions in ``/admin/preferred_replica_election``, and delete it."""
        asked = self._cluster.store.read_preferred_elections()
        if asked:
            codes = self.elect(Election.PREFERRED, asked)
            failed = {str(tp): code.name for tp, code in codes.items() if code is not ErrorCode.NONE}
            if failed:
                self._cluster.log.warning("preferred replicas that do not lead: %s", bounded(failed))
        self._cluster.store.delete_preferred_elections()

    def elect(self, kind: Election, partitions: Set[TopicPartition] | None) -> dict[TopicPartition, ErrorCode]:
        """Hold requested elections, PREFERRED or UNCLEAN; UNCLEAN if any live replica may lead.

        Returns:
            The error code of each partition; for None, which stands for all partitions, of those that needed one.
        """
        context, codes, needed = self._cluster.context, dict[TopicPartition, ErrorCode](), list[TopicPartition]()
        for tp in sorted(context.partitions_with_leaders if partitions is None else partitions):
            if not context.partition_replica_assignment(tp):
                codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif tp.topic in context.topics_to_be_deleted:
                codes[tp] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif self._is_needed(kind, tp):
                needed.append(tp)
            elif partitions is not None:
                codes[tp] = ErrorCode.ELECTION_NOT_NEEDED
        failed = self._cluster.partitions.change(needed, PartitionState.ONLINE, kind)
        return codes | {tp: _FAILURES[kind] if tp in failed else ErrorCode.NONE for tp in needed}

    def process_imbalance(self) -> None:
        """Elect the preferred replicas of brokers that lead too few of the partitions that prefer them."""
        cluster, context = self._cluster, self._cluster.context
        preferring: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp in context.partitions_with_leaders:
            preferring[context.partition_replica_assignment(tp)[0]].append(tp)
        for broker_id, partitions in sorted(preferring.items()):
            astray = [tp for tp in partitions if self._leader(tp) != broker_id]
            ratio = len(astray) / len(partitions)
            if ratio * 100 <= cluster.config.leader_imbalance_per_broker_percentage or not astray:
                continue
            cluster.log.info("broker %d does not lead %.0f %% of its partitions", broker_id, ratio * 100)
            if not context.partitions_being_reassigned:
                self._cluster.partitions.change(
                    [tp for tp in astray if self._can_lead(broker_id, tp)], PartitionState.ONLINE, Election.PREFERRED
                )

    def _leader(self, tp: TopicPartition) -> int | None:
        info = self._cluster.context.partition_leadership_info(tp)
        return None if info is None else info.leader_and_isr.leader

    def _can_lead(self, broker_id: int, tp: TopicPartition) -> bool:
        context = self._cluster.context
        info = context.partition_leadership_info(tp)
        return info is not None and broker_id in info.leader_and_isr.isr and context.is_replica_online(broker_id, tp)

    def _is_needed(self, kind: Election, tp: TopicPartition) -> bool:
        context, leader = self._cluster.context, self._leader(tp)
        if kind is Election.PREFERRED:
            return leader != context.partition_replica_assignment(tp)[0]
        return leader is None or not context.is_replica_online(leader, tp)
