"""Leader elections: functions from the context and a partition's state to its next state."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from channel.types import LeaderAndIsr, LeaderRecoveryState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from channel.send.context import ControllerContext
    from kproto.types import TopicPartition


class Elected(NamedTuple):
    """The outcome of an election.

    Attributes:
        state: The state to write: the leader epoch is raised, the partition epoch is the one that the write expects.
        recipients: The replicas that get LeaderAndIsr.
    """

    state: LeaderAndIsr
    recipients: tuple[int, ...]


class Election(Enum):
    """The reason of an election, which decides the replicas that may win."""

    OFFLINE = "the leader is offline"
    UNCLEAN = "the leader is offline, and replicas outside the ISR may lead"
    REASSIGNMENT = "the leader is not among the target replicas"
    PREFERRED = "the preferred replica should lead"
    CONTROLLED_SHUTDOWN = "the leader is shutting down"


ElectionFunction: TypeAlias = "Callable[[ControllerContext, TopicPartition, LeaderAndIsr], Elected | None]"
"""Elects one partition's leader; returns None if no replica may lead."""


def with_leader(
    state: LeaderAndIsr, leader: int, isr: tuple[int, ...], recovery: LeaderRecoveryState | None = None
) -> LeaderAndIsr:
    """Return the state with another leader or ISR, in the next leader epoch."""
    recovery = state.recovery_state if recovery is None else recovery
    return LeaderAndIsr(leader, isr, state.leader_epoch + 1, state.partition_epoch, recovery)


def _first(candidates: Collection[int], isr: Collection[int]) -> int | None:
    return next((broker_id for broker_id in candidates if broker_id in isr), None)


def _online(context: ControllerContext, tp: TopicPartition, replicas: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([r for r in replicas if context.is_replica_online(r, tp)])


def _for_offline(
    context: ControllerContext, tp: TopicPartition, state: LeaderAndIsr, *, unclean: bool
) -> Elected | None:
    """Elect the first online replica in the ISR, else if ``unclean`` the first online replica, alone in its ISR."""
    online = _online(context, tp, context.partition_replica_assignment(tp))
    leader = _first(online, state.isr)
    if leader is not None:
        return Elected(with_leader(state, leader, tuple([r for r in state.isr if r in online])), online)
    if not unclean or not online:
        return None
    return Elected(with_leader(state, online[0], (online[0],), LeaderRecoveryState.RECOVERING), online)


def _for_reassignment(context: ControllerContext, tp: TopicPartition, state: LeaderAndIsr) -> Elected | None:
    """Elect the first online target replica in the ISR; the ISR stays."""
    target = context.partition_full_replica_assignment(tp).target
    leader = _first(_online(context, tp, target), state.isr)
    return None if leader is None else Elected(with_leader(state, leader, state.isr), target)


def _for_preferred(context: ControllerContext, tp: TopicPartition, state: LeaderAndIsr) -> Elected | None:
    """Elect the first replica of the assignment, if it is online and in the ISR; the ISR stays."""
    replicas = context.partition_replica_assignment(tp)
    leader = _first(_online(context, tp, replicas[:1]), state.isr)
    return None if leader is None else Elected(with_leader(state, leader, state.isr), replicas)


def _for_controlled_shutdown(context: ControllerContext, tp: TopicPartition, state: LeaderAndIsr) -> Elected | None:
    """Elect the first online replica in the ISR that is not shutting down; the ISR loses replicas that are."""
    leaving = context.shutting_down_broker_ids
    replicas = context.partition_replica_assignment(tp)
    leader = _first(_online(context, tp, replicas), state.isr)
    if leader is None:
        return None
    recipients = [r for r in replicas if context.is_replica_online(r, tp, or_shutting_down=True)]
    return Elected(with_leader(state, leader, tuple([r for r in state.isr if r not in leaving])), tuple(recipients))


ELECTIONS: Final[Mapping[Election, ElectionFunction]] = {
    Election.OFFLINE: partial(_for_offline, unclean=False),
    Election.UNCLEAN: partial(_for_offline, unclean=True),
    Election.REASSIGNMENT: _for_reassignment,
    Election.PREFERRED: _for_preferred,
    Election.CONTROLLED_SHUTDOWN: _for_controlled_shutdown,
}
