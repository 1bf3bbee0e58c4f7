"""A broker's replicas as the control plane sees them: who leads, which epochs, which topic ids. No log data.

``ReplicaState`` takes LeaderAndIsr and StopReplica by the rules of Kafka 3.9's replica manager and answers with its
error codes. Logs, fetchers and waiting requests exist only as facts: a set, a map and a count.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from channel.types import EPOCH_DURING_DELETE, NO_EPOCH, UpdateType
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Fetcher", "HostedReplica", "Refused", "ReplicaState", "StopPartition"]

_state_changes = logging.getLogger("channel.state_change")


class Refused(Exception):
    """The whole request is answered with this code, on the top level and on every partition."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{ErrorCode(code).name}: {why}")
        self.code = code


@dataclass(slots=True)
class Fetcher:
    """What a follower fetches, and from whom."""

    leader: int
    leader_epoch: int
    topic_id: bytes
    offset: int = 0


@dataclass(slots=True)
class HostedReplica:
    """One partition that this broker hosts. Leader epoch -1: known, but never led or followed."""

    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = 0
    controller_epoch: int = 0
    role: Literal["none", "leader", "follower"] = "none"
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    offline: bool = False
    waiting: int = field(default=0, compare=False)


class StopPartition(Protocol):
    """What StopReplica says of one partition, whatever its version."""

    topic_name: str
    partition_index: int
    leader_epoch: int
    delete_partition: bool


class ReplicaState:
    """The replicas of one broker.

    Args:
        broker_id: This broker.
        is_alive: Whether a broker is known to be alive (the metadata cache's answer).
        migration_enabled: Whether a KRaft controller's full LeaderAndIsr removes strays.
        on_delete: Called for each log that goes; what it raises as OSError is a storage error.
        on_completed: Called with (partition, code, how many) when waiting requests are completed.
    """

    def __init__(
        self,
        broker_id: int,
        is_alive: Callable[[int], bool],
        *,
        migration_enabled: bool = False,
        on_delete: Callable[[TopicPartition], None] | None = None,
        on_completed: Callable[[TopicPartition, int, int], None] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.migration_enabled = migration_enabled
        self.lock = threading.RLock()  # Kafka's replica-state-change lock: UpdateMetadata takes it too
        self.controller_epoch = 0
        self.hosted: dict[TopicPartition, HostedReplica] = {}
        self.logs: dict[TopicPartition, bytes] = {}
        self.fetchers: dict[TopicPartition, Fetcher] = {}
        self._is_alive = is_alive
        self._on_delete = on_delete
        self._on_completed = on_completed

    # ---- LeaderAndIsr ------------------------------------------------------------------------------------------------

    def become_leader_or_follower(self, correlation_id: int, request: Any) -> dict[TopicPartition, int]:
        """Take a LeaderAndIsr.

        Returns:
            A code for each partition, in request order; a partition named twice is answered once.

        Raises:
            Refused: The request as a whole: a stale controller epoch (11), or an error that ends it.
        """
        with self.lock:
            self._fence(request, correlation_id, "LeaderAndIsr")
            self.controller_epoch = request.controller_epoch
            ids = request.topic_ids
            if self.migration_enabled and request.is_kraft_controller and request.type == UpdateType.FULL:
                self._remove_strays(request, ids)
            codes: dict[TopicPartition, int] = {}
            leaders: dict[TopicPartition, Any] = {}
            followers: dict[TopicPartition, Any] = {}
            for state in request.partition_states:
                tp = TopicPartition(state.topic_name, state.partition_index)
                topic_id = ids.get(tp.topic, ZERO_UUID)
                code = self._check(tp, state, topic_id, is_kraft=request.is_kraft_controller)
                if code is None:
                    (leaders if state.leader == self.broker_id else followers)[tp] = state
                    code = ErrorCode.NONE
                codes[tp] = code
            for tp, state in leaders.items():
                self._lead(tp, state, ids.get(tp.topic, ZERO_UUID))
            for tp, state in followers.items():
                self._follow(tp, state, ids.get(tp.topic, ZERO_UUID))
            return codes

    def _fence(self, request: Any, correlation_id: int, what: str) -> None:
        if request.controller_epoch < self.controller_epoch:
            _state_changes.warning(
                "Ignoring %s request from controller %d with correlation id %d since its controller epoch %d is old. "
                "Latest known controller epoch is %d",
                what,
                request.controller_id,
                correlation_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            raise Refused(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {request.controller_epoch} is old")

    def _check(self, tp: TopicPartition, state: Any, topic_id: bytes, *, is_kraft: bool) -> int | None:
        """The code for a partition that is refused or already done; None for one that is to change."""
        replica = self.hosted.get(tp)
        if replica is None:
            replica = self.hosted[tp] = HostedReplica()  # even if refused below: Kafka creates it first
        if replica.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_id = self.logs.get(tp, ZERO_UUID)
        if ZERO_UUID not in (topic_id, known_id) and topic_id != known_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch > replica.leader_epoch or (state.leader_epoch == replica.leader_epoch and is_kraft):
            return None if self.broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader_epoch < replica.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return self._repeat(tp, state.leader, topic_id, known_id)

    def _repeat(self, tp: TopicPartition, leader: int, topic_id: bytes, known_id: bytes) -> int:
        """The leader epoch that is known already: only a topic id may come or go."""
        if topic_id != ZERO_UUID and known_id == ZERO_UUID:
            if tp not in self.logs:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no log here")
            self.logs[tp] = topic_id
            if tp in self.fetchers:
                self.fetchers[tp].topic_id = topic_id
            return ErrorCode.NONE
        if topic_id == ZERO_UUID and known_id != ZERO_UUID and leader != self.broker_id:
            if tp in self.fetchers:
                self.fetchers[tp].topic_id = ZERO_UUID
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _lead(self, tp: TopicPartition, state: Any, topic_id: bytes) -> None:
        self.fetchers.pop(tp, None)
        self._make_log(tp, topic_id)
        self._take(tp, state, "leader")

    def _follow(self, tp: TopicPartition, state: Any, topic_id: bytes) -> None:
        self._make_log(tp, topic_id)
        if not self._is_alive(state.leader):
            _state_changes.error(
                "Cannot follow leader %d of %s at epoch %d: it is not among the live brokers",
                state.leader,
                tp,
                state.leader_epoch,
            )
            return  # the epoch is not taken over, so the same request is accepted once the leader is known
        is_new_epoch = state.leader_epoch > self.hosted[tp].leader_epoch
        if self._take(tp, state, "follower") and is_new_epoch:
            self.fetchers[tp] = Fetcher(state.leader, state.leader_epoch, topic_id)

    def _take(self, tp: TopicPartition, state: Any, role: Literal["leader", "follower"]) -> bool:
        replica = self.hosted[tp]
        if state.partition_epoch < replica.partition_epoch:
            return False
        replica.leader = state.leader
        replica.leader_epoch = state.leader_epoch
        replica.partition_epoch = state.partition_epoch
        replica.controller_epoch = state.controller_epoch
        replica.role = role
        replica.isr = tuple(state.isr)
        replica.replicas = tuple(state.replicas)
        return True

    def _make_log(self, tp: TopicPartition, topic_id: bytes) -> None:
        if not tp.topic or "/" in tp.topic:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no log can be made for topic {tp.topic!r}")
        if topic_id != ZERO_UUID or tp not in self.logs:
            self.logs[tp] = topic_id

    def _remove_strays(self, request: Any, ids: Mapping[str, bytes]) -> None:
        named = {TopicPartition(s.topic_name, s.partition_index) for s in request.partition_states}
        strays = []
        for tp, topic_id in self.logs.items():
            if topic_id == ZERO_UUID:
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the log of {tp} has no topic id")
            if tp not in named or ids.get(tp.topic) != topic_id:
                strays.append(tp)
        for tp in strays:
            _state_changes.info("Moving the stray log of %s aside", tp)
            self._forget(tp)

    # ---- StopReplica -------------------------------------------------------------------------------------------------

    def stop_replicas(
        self, correlation_id: int, request: Any, partitions: Iterable[StopPartition]
    ) -> dict[TopicPartition, int]:
        """Take a StopReplica.

        Args:
            correlation_id: The request's, for the log.
            request: The message.
            partitions: Its partitions in the form that all versions share.

        Returns:
            A code for each partition.

        Raises:
            Refused: A stale controller epoch (11); Kafka then lists no partitions.
        """
        with self.lock:
            self._fence(request, correlation_id, "StopReplica")
            self.controller_epoch = request.controller_epoch
            return {TopicPartition(p.topic_name, p.partition_index): self._stop(p) for p in partitions}

    def _stop(self, wanted: StopPartition) -> int:
        tp = TopicPartition(wanted.topic_name, wanted.partition_index)
        replica = self.hosted.get(tp)
        if replica is not None and replica.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if (
            replica is not None
            and wanted.leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
            and wanted.leader_epoch < replica.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        self.fetchers.pop(tp, None)
        if not wanted.delete_partition:
            return ErrorCode.NONE
        if replica is not None and replica.waiting and self._on_completed:
            self._on_completed(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER, replica.waiting)
        try:
            if self._on_delete and tp in self.logs:
                self._on_delete(tp)
        except OSError:
            if replica is not None:
                replica.offline = True
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._forget(tp)
        return ErrorCode.NONE

    def _forget(self, tp: TopicPartition) -> None:
        self.hosted.pop(tp, None)
        self.logs.pop(tp, None)
        self.fetchers.pop(tp, None)

    # ---- faults, for tests and rehearsals ----------------------------------------------------------------------------

    def mark_offline(self, tp: TopicPartition) -> None:
        """Behave as if the log directory of this partition had failed."""
        with self.lock:
            self.hosted.setdefault(tp, HostedReplica()).offline = True
            self.fetchers.pop(tp, None)
