"""What a controller knows of brokers and partitions, as values."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "EPOCH_DURING_DELETE",
    "INITIAL_LEADER_EPOCH",
    "LEADER_DURING_DELETE",
    "NO_EPOCH",
    "NO_LEADER",
    "Broker",
    "EndPoint",
    "LeaderAndIsr",
    "LeaderIsrAndControllerEpoch",
    "LeaderRecoveryState",
    "PartitionMetadata",
    "ReplicaAssignment",
    "SecurityProtocol",
    "UpdateType",
]

NO_LEADER: Final = -1
"""A partition without a leader."""

LEADER_DURING_DELETE: Final = -2
"""Told to brokers as the leader of a partition whose topic is being deleted."""

NO_EPOCH: Final = -1
"""The leader epoch of a partition that nobody has led."""

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in a StopReplica request for a topic that is queued for deletion; no broker holds it for stale."""

INITIAL_LEADER_EPOCH: Final = 0
"""The leader epoch of a new partition, and of a partition being deleted in UpdateMetadata."""


class SecurityProtocol(IntEnum):
    """How a listener is secured, with the wire's number."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected cleanly, with the wire's number."""

    RECOVERED = 0
    RECOVERING = 1


class UpdateType(IntEnum):
    """What an UpdateMetadata or LeaderAndIsr request of a KRaft controller holds, with the wire's number."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


class EndPoint(NamedTuple):
    """One address of a broker.

    Attributes:
        host, port: Where it listens.
        listener_name: The listener's name, upper case by custom.
        security_protocol: How it is secured.
    """

    host: str
    port: int
    listener_name: str = "PLAINTEXT"
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


class Broker(NamedTuple):
    """A broker as it has registered.

    Attributes:
        id: The broker's id.
        endpoints: One for each listener.
        rack: Where it stands, None if it did not say.
    """

    id: int
    endpoints: tuple[EndPoint, ...]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> EndPoint | None:
        """The address of a listener, None if the broker does not have it."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None

    def __str__(self) -> str:
        where = ", ".join(f"{e.listener_name}://{e.host}:{e.port}" for e in self.endpoints)
        return f"broker {self.id} ({where})"


class LeaderAndIsr(NamedTuple):
    """Who leads a partition and who follows closely enough.

    Attributes:
        leader: Broker id, -1 for none.
        isr: Ids of the replicas in sync, the leader among them.
        leader_epoch: Counts the leader's elections.
        partition_epoch: Counts the changes of this record (the version of its znode).
        recovery_state: RECOVERING after an unclean election until the leader says otherwise.
    """

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = INITIAL_LEADER_EPOCH
    partition_epoch: int = 0
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A ``LeaderAndIsr`` and the epoch of the controller that decided it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int

    def during_delete(self) -> LeaderIsrAndControllerEpoch:
        """What brokers are told of a partition whose topic is being deleted: no leader, no epochs, the same ISR."""
        state = LeaderAndIsr(LEADER_DURING_DELETE, self.leader_and_isr.isr, INITIAL_LEADER_EPOCH, 0)
        return LeaderIsrAndControllerEpoch(state, self.controller_epoch)


class PartitionMetadata(NamedTuple):
    """What UpdateMetadata tells of one partition."""

    leadership: LeaderIsrAndControllerEpoch
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class ReplicaAssignment(NamedTuple):
    """Where a partition's replicas are.

    Attributes:
        replicas: All of them, the preferred leader first; with those being added and removed.
        adding: Those that a reassignment adds.
        removing: Those that it will remove.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas without those that are being added."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once the reassignment is done."""
        return tuple(r for r in self.replicas if r not in self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """The assignment on the way from here to ``target``: the target first, then what will be removed.

        >>> ReplicaAssignment((1, 2, 3)).reassign_to((3, 4))
        ReplicaAssignment(replicas=(3, 4, 1, 2), adding=(4,), removing=(1, 2))
        """
        origin = self.origin
        return ReplicaAssignment(
            tuple(dict.fromkeys(target + origin)),
            tuple(r for r in target if r not in origin),
            tuple(r for r in origin if r not in target),
        )
