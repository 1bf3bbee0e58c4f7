"""Brokers, nodes, partitions and their epochs: the values that both ends of the control plane share."""

from __future__ import annotations

import re
import uuid
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kproto.types import Uuid

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata names for a partition whose topic is being deleted."""

NO_EPOCH: Final = -1
"""The leader epoch of a partition that never had a leader."""

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in a StopReplica request for a topic that is queued for deletion; brokers never fence it."""

INITIAL_LEADER_EPOCH: Final = 0
"""The leader epoch of a new partition, and of a partition being deleted in UpdateMetadata."""

NO_BROKER_EPOCH: Final = -1
"""The broker epoch of a request whose version has none, or whose sender does not know it; brokers never fence it."""


class SecurityProtocol(IntEnum):
    """The security protocol of a listener, with its number on the wire."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @staticmethod
    def name_of(number: int) -> str:
        """Return the name of the protocol with this number on the wire, or a text with an unknown number."""
        protocols = SecurityProtocol._value2member_map_
        return str(protocols[number].name) if number in protocols else f"security protocol {number}"

    @property
    def uses_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL before their first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected cleanly, with its number on the wire."""

    RECOVERED = 0
    RECOVERING = 1


class UpdateType(IntEnum):
    """Whether a KRaft controller's request holds the whole image or a change of it, with its number on the wire."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


class EndPoint(NamedTuple):
    """One address of a broker.

    Attributes:
        host, port: The address on which it listens.
        listener_name: The listener's name, upper case by custom.
        security_protocol: The protocol that secures it; a bare number if the wire named an unknown protocol.
    """

    host: str
    port: int
    listener_name: str = "PLAINTEXT"
    security_protocol: SecurityProtocol | int = SecurityProtocol.PLAINTEXT


class Node(NamedTuple):
    """A broker's address on one listener, as a client connects to it.

    Attributes:
        id: The broker's id.
        host, port: The address on which it listens.
        rack: The broker's rack, None if it has none.
        listener: The listener's name.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    listener: str = "PLAINTEXT"

    @property
    def key(self) -> str:
        """The node's id as text: the name of its connection in a network client."""
        return str(self.id)

    @property
    def is_empty(self) -> bool:
        """Whether the node stands for "no node"."""
        return not self.host or self.port < 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


NO_NODE: Final = Node(-1, "", -1)
"""The node that stands for "no node", where a response names a broker without the client's listener."""


class Broker(NamedTuple):
    """A broker as it has registered.

    Attributes:
        id: The broker's id.
        endpoints: The broker's addresses, one for each listener.
        rack: Its rack, None if it has none.
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
    """A partition's leader and in-sync replicas.

    Attributes:
        leader: Broker id, -1 for none.
        isr: Broker ids of the in-sync replicas, the leader's among them.
        leader_epoch: Counts the leader's elections.
        partition_epoch: Counts the changes of this record (the version of its znode).
        recovery_state: RECOVERING after an unclean election until the leader has recovered.
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
        """The state that UpdateMetadata names for a partition being deleted: leader -2, epochs 0, the same ISR."""
        state = LeaderAndIsr(LEADER_DURING_DELETE, self.leader_and_isr.isr, INITIAL_LEADER_EPOCH, 0)
        return LeaderIsrAndControllerEpoch(state, self.controller_epoch)


class PartitionMetadata(NamedTuple):
    """One partition's entry in UpdateMetadata."""

    leadership: LeaderIsrAndControllerEpoch
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class ReplicaAssignment(NamedTuple):
    """A partition's replicas, as broker ids.

    Attributes:
        replicas: All replicas, the preferred leader first; those being added and removed are among them.
        adding: Replicas that a reassignment adds.
        removing: Replicas that a reassignment will remove.
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

    def without(self, replica: int) -> ReplicaAssignment:
        """Return the assignment without this replica."""
        return ReplicaAssignment(
            tuple(r for r in self.replicas if r != replica),
            tuple(r for r in self.adding if r != replica),
            tuple(r for r in self.removing if r != replica),
        )

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Return the assignment during a reassignment to ``target``: the target first, then the replicas to remove.

        >>> ReplicaAssignment((1, 2, 3)).reassign_to((3, 4))
        ReplicaAssignment(replicas=(3, 4, 1, 2), adding=(4,), removing=(1, 2))
        """
        origin = self.origin
        return ReplicaAssignment(
            tuple(dict.fromkeys(target + origin)),
            tuple(r for r in target if r not in origin),
            tuple(r for r in origin if r not in target),
        )


_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
TOPIC_NAMES: Final = (
    "a topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"
)


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows this name for a topic."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


_DASH: Final = 62
"""The place of ``-`` in URL-safe base64: an id whose first six bits are this number begins with it."""


def random_uuid() -> Uuid:
    """Draw a random UUID as Kafka does: none that Kafka reserves, and none whose text begins with ``-``.

    The command lines of Kafka's own tools would take such a text for an option. The reserved ids, 0 and 1, have no
    version, unlike every random UUID.
    """
    while True:
        drawn = uuid.uuid4().bytes
        if drawn[0] >> 2 != _DASH:
            return drawn
