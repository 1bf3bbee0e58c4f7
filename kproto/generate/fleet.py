"""Defines a synthetic fleet: its size, the number of its events, and everything that its seed decides."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import Final, Literal, NamedTuple

from kproto.api import ApiKey
from kproto.errors import ConfigurationError

Bodies = Literal["fleet", "distinct"]
"""``fleet``: each change goes to all brokers that Kafka tells of it. ``distinct``: each change goes to one broker, in
turn, so that requests share no body; those that are lost are sent again with theirs."""

Protocol = Literal["3.9", "2.4"]
"""The inter-broker protocol, which decides the versions of the three APIs."""

LISTENER_PORT: Final = 9092

KRAFT_CONTROLLER: Final = 70_000
"""The id of the first KRaft controller; the other one's is one higher."""

_NAMES: Final = ("orders", "payments", "audit", "clicks", "sessions", "stock", "shipments", "metrics")
_MAX_BROKERS: Final = 65_000
_MAX_PARTITIONS: Final = 10_000_000
_MAX_HOURS: Final = 500_000


_VERSIONS: Final = {
    "3.9": {ApiKey.LEADER_AND_ISR: 7, ApiKey.STOP_REPLICA: 4, ApiKey.UPDATE_METADATA: 8},
    "2.4": {ApiKey.LEADER_AND_ISR: 4, ApiKey.STOP_REPLICA: 2, ApiKey.UPDATE_METADATA: 6},
}


class Address(NamedTuple):
    """The address of a broker."""

    ip: str
    port: int


def random_of(*names: object) -> Random:
    """Make a generator of random numbers that depends on nothing but these names."""
    text = "\0".join(map(str, names)).encode()
    return Random(int.from_bytes(blake2b(text, digest_size=8).digest()))  # noqa: S311  # data, no secrets


Kind = Literal[
    "first_controller", "failover", "stop", "restart", "election", "isr_change", "zombie", "deletion", "migration",
    "plant",
]  # fmt: skip


class Event(NamedTuple):
    """One event in a fleet's history.

    Attributes:
        number: Counts the fleet's events from 0.
        kind: The kind of the event.
        time_ns: When it happens, ns since 1970, a whole number of microseconds.
        plant: The planted fault of which it is a stage, by its number in the fleet.
    """

    number: int
    kind: Kind
    time_ns: int
    plant: int = -1


@dataclass(frozen=True)
class PlannedFleet:
    """A cluster and its history. Equal fleets give the same bytes, on any machine.

    Attributes:
        seed: The seed of every random choice.
        brokers, topics, partitions: The number of each; partitions of all topics together.
        replication: Replicas of each partition.
        hours: Between the first event and the last.
        failovers: The number of times that another broker becomes the controller.
        restarts: The number of times that a broker stops and comes back.
        elections: The number of times that the leaders of a batch of partitions move.
        isr_changes: The number of times that the in-sync replicas of a batch of partitions change.
        batch: Partitions in an election or ISR change.
        zombies: The number of times that a former controller sends an update that brokers refuse.
        deletions: The number of topics that are deleted.
        loss: Share of requests whose connection breaks before the response and that are sent again; none of a fault.
        capture_loss: Share of requests, and of responses, whose packets reach the other side but not the capture.
        bodies: The brokers to which a change is sent, see ``Bodies``.
        protocol: The inter-broker protocol, see ``Protocol``.
        migration: Whether a KRaft controller takes over in the middle.
        plants: Faults that are planted, see ``kproto.generate.plants``. Events are then at least two minutes apart.
        start_ns: The time of the first event, ns since 1970.

    Raises:
        ConfigurationError: The numbers make no valid cluster.
    """

    seed: int = 1
    brokers: int = 10
    topics: int = 20
    partitions: int = 1000
    replication: int = 3
    hours: float = 1.0
    failovers: int = 1
    restarts: int = 1
    elections: int = 20
    isr_changes: int = 100
    batch: int = 10
    zombies: int = 1
    deletions: int = 1
    loss: float = 0.0
    capture_loss: float = 0.0
    bodies: Bodies = "fleet"
    protocol: Protocol = "3.9"
    start_ns: int = 1_760_000_000_000_000_000
    migration: bool = False
    plants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("brokers", "topics", "partitions", "replication", "batch"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for field in fields(self):
            if field.type == "int" and getattr(self, field.name) < 0:
                raise ConfigurationError(f"{field.name} is {getattr(self, field.name)}; it must not be negative")
        if not (self.brokers <= _MAX_BROKERS and self.partitions <= _MAX_PARTITIONS):
            raise ConfigurationError(f"at most {_MAX_BROKERS} brokers and {_MAX_PARTITIONS} partitions")
        if self.replication > self.brokers:
            raise ConfigurationError(f"{self.replication} replicas need as many brokers, and there are {self.brokers}")
        if self.topics > self.partitions:
            raise ConfigurationError(f"{self.topics} topics need as many partitions, and there are {self.partitions}")
        if not 0 < self.hours <= _MAX_HOURS:
            raise ConfigurationError(f"hours must be above 0 and at most {_MAX_HOURS}, since times in pcap end in 2106")
        if not 0 <= self.loss < 1 or not 0 <= self.capture_loss < 1:
            raise ConfigurationError("loss and capture loss must be at least 0 and below 1")
        if self.bodies not in ("fleet", "distinct") or self.protocol not in _VERSIONS:
            raise ConfigurationError("bodies is fleet or distinct, and protocol 3.9 or 2.4")
        if (self.failovers or self.zombies or self.restarts) and self.brokers < 2:
            raise ConfigurationError("failovers, zombies and restarts need two brokers at least")
        if self.zombies and not self.failovers:
            raise ConfigurationError("a zombie is a former controller: zombies need a failover at least")
        if (self.migration or self.plants) and self.bodies == "distinct":
            raise ConfigurationError("a migration and planted faults need bodies of the kind fleet")
        if self.migration and self.protocol != "3.9":
            raise ConfigurationError("a migration needs --protocol 3.9")

    @property
    def versions(self) -> dict[ApiKey, int]:
        """The versions of the three APIs."""
        return _VERSIONS[self.protocol]

    @property
    def has_topic_ids(self) -> bool:
        """Whether requests hold topic ids beside topic names."""
        return self.protocol == "3.9"

    @property
    def broker_ids(self) -> range:
        """The brokers' ids."""
        return range(1, self.brokers + 1)

    def address(self, broker: int) -> Address:
        """Return a broker's listener; its requests as a controller come from the same host."""
        return Address(f"10.{broker >> 16 & 255}.{broker >> 8 & 255}.{broker & 255}", LISTENER_PORT)

    @cached_property
    def topic_starts(self) -> list[int]:
        """The number of each topic's first partition, partitions counted through all topics, and their total."""
        each, more = divmod(self.partitions, self.topics)
        return [topic * each + min(topic, more) for topic in range(self.topics + 1)]

    @cached_property
    def topic_names(self) -> list[str]:
        """The topics' names."""
        return [f"{_NAMES[topic % len(_NAMES)]}.v{topic // len(_NAMES) + 1}" for topic in range(self.topics)]

    @cached_property
    def topic_ids(self) -> list[bytes]:
        """The topics' ids: all zero where the protocol has none."""
        if not self.has_topic_ids:
            return [bytes(16)] * self.topics
        return [blake2b(f"{self.seed}\0{name}".encode(), digest_size=16).digest() for name in self.topic_names]

    def replicas(self, partition: int) -> list[int]:
        """The replicas of a partition, the preferred leader first: spread as Kafka spreads them."""
        first = (partition + self.seed) % self.brokers
        shift = partition // self.brokers
        others = ((first + 1 + (shift + n) % (self.brokers - 1)) % self.brokers for n in range(self.replication - 1))
        return [first + 1, *(broker + 1 for broker in others)]
