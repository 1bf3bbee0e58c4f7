"""Generates the metadata logs of KRaft fleets: each controller's copy, with what they must be read as.

``KRaftFleet`` describes a cluster and its history, and a seed decides all the rest. ``write_metadata_logs`` writes what
lies on each controller's disk: the log as one segment, as two, or a snapshot with the log after it.
``metadata_truth`` says who led each partition, which broker restarted, who was controller, and which findings of
``kproto doctor`` must come of the faults that are planted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kproto.errors import ConfigurationError
from kproto.metadata_log.batches import encode_batch
from kproto.metadata_log.finding import DIRECTORY
from kproto.metadata_log.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    Voter,
    encode_record,
)
from kproto.reference.broker_registration import Listener

from .fleet import random_of
from .plants import NoPlace, Planted, PlantedFinding
from .truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from kproto.metadata_log.records import ControlRecord, MetadataRecord

FIRST_CONTROLLER: Final = 1000
"""The node id of the first controller."""

_IDLE_MS: Final = 5000
_SECOND: Final = 1000
_QUIET_MS: Final = 900 * _SECOND
"""Before and after a planted fault nothing else happens: longer than the time within which changes are counted."""
_LEVEL: Final = 25
_MOST: Final = 1_000_000

_Chosen = TypeVar("_Chosen")


@dataclass(frozen=True)
class KRaftFleet:
    """A KRaft cluster and its history.

    Attributes:
        seed: The seed of every random choice.
        controllers, brokers, topics, partitions: The number of each; partitions of all topics together.
        replication: Replicas of each partition.
        failovers: How often another controller becomes the active one.
        restarts: How often a broker stops in a controlled way and comes back.
        elections: How often a partition's leader moves to another in-sync replica.
        isr_changes: How often a follower leaves an ISR and comes back.
        eligible_elections: How often a partition without an ISR gets its leader from the eligible leader replicas.
        deletions: Topics that are deleted.
        plants: Faults that are planted, of ``KRAFT_PLANTS``.
        start_ms: The time of the first record, ms since 1970.

    Raises:
        ConfigurationError: The numbers make no valid cluster.
    """

    seed: int = 1
    controllers: int = 3
    brokers: int = 6
    topics: int = 10
    partitions: int = 100
    replication: int = 3
    failovers: int = 1
    restarts: int = 1
    elections: int = 10
    isr_changes: int = 20
    eligible_elections: int = 1
    deletions: int = 1
    plants: tuple[str, ...] = ()
    start_ms: int = 1_760_000_000_000

    def __post_init__(self) -> None:
        for name in ("controllers", "topics", "partitions"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.partitions > _MOST:
            raise ConfigurationError(f"at most {_MOST:,} partitions")
        if not 2 <= self.replication < self.brokers < FIRST_CONTROLLER:
            raise ConfigurationError(
                f"brokers is {self.brokers} and replication {self.replication}; a partition needs two replicas at "
                f"least, and one broker more than replicas; node ids of controllers begin at {FIRST_CONTROLLER}"
            )
        if self.topics > self.partitions:
            raise ConfigurationError(f"{self.topics} topics need as many partitions, and there are {self.partitions}")
        unknown = [name for name in self.plants if name not in KRAFT_PLANTS]
        if unknown:
            raise ConfigurationError(
                f"{unknown[0]}: no fault that can be planted in KRaft; there are {', '.join(sorted(KRAFT_PLANTS))}"
            )


@dataclass
class MetadataTruth(Truth):
    """What a fleet's metadata log must be read as, beside the findings that must and may come; times are ms since 1970.

    Attributes:
        leaders: Each change of a leader or leader epoch, in order.
        registrations: Each registration of a broker: its epoch is the offset of the record.
        controllers: Each epoch of the quorum.
    """

    leaders: list[dict[str, Any]] = field(default_factory=list)
    registrations: list[dict[str, Any]] = field(default_factory=list)
    controllers: list[dict[str, Any]] = field(default_factory=list)


def write_metadata_logs(fleet: KRaftFleet, directory: Path) -> dict[Path, int]:
    """Write each controller's ``__cluster_metadata-0``; return the files with their bytes."""
    written: dict[Path, int] = {}
    for node, files in _QuorumHistory(fleet).nodes().items():
        home = directory / f"node{node}" / DIRECTORY
        home.mkdir(parents=True)
        for name, data in files.items():
            (home / name).write_bytes(data)
            written[home / name] = len(data)
    return written


def metadata_truth(fleet: KRaftFleet) -> MetadataTruth:
    """Return what a fleet's metadata log must be read as."""
    return _QuorumHistory(fleet).truth


@dataclass
class _Partition:
    topic: int
    number: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: int = 0
    touched_ms: int = 0


class _Written(NamedTuple):
    base_offset: int
    data: bytes


class _QuorumHistory:
    """Plays a fleet's history, and writes its log."""

    def __init__(self, fleet: KRaftFleet) -> None:
        self.fleet = fleet
        self.random: Random = random_of("KRaft", fleet.seed)
        self.truth = MetadataTruth([])
        self.time_ms = fleet.start_ms
        self._log: list[_Written] = []
        self._offset = 0
        self._epoch = 0
        self._controller = -1
        self._written_ms = self.time_ms
        self._names = [f"topic-{number}" for number in range(fleet.topics)]
        self._ids = [random_of("topic", fleet.seed, name).randbytes(16) for name in self._names]
        self._registrations: dict[int, RegisterBrokerRecord] = {}
        self._restarted: dict[int, int] = {}
        self._snapshot: tuple[int, int, int, list[MetadataRecord]] | None = None
        self.partitions: list[_Partition] = []
        self._play()

    # ---- the log

    def nodes(self) -> dict[int, dict[str, bytes]]:
        """The files of each controller, by name."""
        log = self._log
        half = len(log) // 2
        assert self._snapshot is not None
        end, epoch, time_ms, records = self._snapshot
        later = [batch for batch in log if batch.base_offset >= end]
        forms = [
            _segment(log),
            _segment(log[:half]) | _segment(log[half:]),
            {f"{end:020}-{epoch:010}.checkpoint": _checkpoint(records, epoch, time_ms)} | _segment(later),
        ]
        state = {
            "leaderId": self._controller, "leaderEpoch": self._epoch, "votedId": -1, "data_version": 0,
            "currentVoters": [{"voterId": node} for node in self._quorum()],
        }  # fmt: skip
        text = json.dumps(state).encode()
        return {node: forms[place % len(forms)] | {"quorum-state": text} for place, node in enumerate(self._quorum())}

    def _quorum(self) -> range:
        return range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.fleet.controllers)

    def _idle(self) -> None:
        """Write the NoOpRecords that came until now."""
        while self._written_ms + _IDLE_MS < self.time_ms:
            self._written_ms += _IDLE_MS
            self._append([(None, encode_record(NoOpRecord()))], self._written_ms)

    def write(self, *records: MetadataRecord) -> int:
        """Write a batch; return the offset of its first record."""
        self._idle()
        self._written_ms = self.time_ms
        return self._append([(None, encode_record(record)) for record in records], self.time_ms)

    def _append(
        self, values: Sequence[tuple[bytes | None, bytes | None]], time_ms: int, *, control: bool = False
    ) -> int:
        base = self._offset
        data = encode_batch(values, base_offset=base, epoch=self._epoch, time_ms=time_ms, control=control)
        self._log.append(_Written(base, data))
        self._offset += len(values)
        return base

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.time_ms += int(seconds * _SECOND)

    # ---- what happens

    def _play(self) -> None:
        fleet, random = self.fleet, self.random
        self.rule()
        self.write(FeatureLevelRecord(name="metadata.version", feature_level=_LEVEL))
        for broker in range(fleet.brokers):
            self.register(broker)
        self.later(1)
        for broker in range(fleet.brokers):
            self.write(self._turned(broker, fenced=-1))
        self.later(5)
        each, more = divmod(fleet.partitions, fleet.topics)
        for topic in range(fleet.topics):
            self._create(topic, each + (topic < more))
        events: list[Callable[[], None]] = (
            [self.rule] * fleet.failovers + [self._restart] * fleet.restarts + [self._election] * fleet.elections
            + [self._isr_change] * fleet.isr_changes + [self._eligible_election] * fleet.eligible_elections
            + [self._deletion] * min(fleet.deletions, fleet.topics - 1)
        )  # fmt: skip
        events += [partial(self._plant, name) for name in fleet.plants]
        random.shuffle(events)
        for place, event in enumerate(events):
            if place == len(events) // 2:
                self._take_snapshot()
            self.later(random.uniform(120, 240))
            with suppress(NoPlace):
                event()
        if self._snapshot is None:
            self._take_snapshot()
        self.later(600)
        self.write(NoOpRecord())

    def rule(self) -> None:
        """Let another controller become the active one."""
        self._idle()
        others = [node for node in self._quorum() if node != self._controller] or [*self._quorum()]
        self._controller = self.random.choice(others)
        self._epoch += 1
        voters = [Voter(voter_id=node) for node in self._quorum()]
        granting = voters[: len(voters) // 2 + 1]
        record = LeaderChangeRecord(version=0, leader_id=self._controller, voters=voters, granting_voters=granting)
        self._written_ms = self.time_ms
        self._append([_control(record)], self.time_ms, control=True)
        ruled = {"time_ms": self.time_ms, "controller_id": self._controller, "controller_epoch": self._epoch}
        self.truth.controllers.append(ruled)

    def register(self, broker: int) -> None:
        """Let a broker register, as it does at its start; it is fenced."""
        self._idle()
        record = RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=self.random.randbytes(16),
            broker_epoch=self._offset,
            end_points=[Listener(name="PLAINTEXT", host=f"10.0.{broker >> 8}.{broker & 255}", port=9092)],
            fenced=True,
            version=1,
        )
        offset = self.write(record)
        self._registrations[broker] = record
        self._restarted[broker] = self.time_ms
        self.truth.registrations.append({"time_ms": self.time_ms, "broker_id": broker, "broker_epoch": offset})

    def _turned(self, broker: int, *, fenced: int = 0, stopping: int = 0) -> BrokerRegistrationChangeRecord:
        registration = self._registrations[broker]
        if fenced:
            registration.fenced = fenced > 0
        return BrokerRegistrationChangeRecord(
            broker_id=broker, broker_epoch=registration.broker_epoch, fenced=fenced, in_controlled_shutdown=stopping,
            version=1,
        )  # fmt: skip

    def _create(self, topic: int, count: int) -> None:
        records: list[MetadataRecord] = [TopicRecord(name=self._names[topic], topic_id=self._ids[topic])]
        for number in range(count):
            replicas = self.random.sample(range(self.fleet.brokers), self.fleet.replication)
            partition = _Partition(topic, number, replicas, list(replicas), replicas[0], touched_ms=self.time_ms)
            self.partitions.append(partition)
            records.append(self._whole(partition))
        self.later(0.1)
        self.write(*records)
        for partition in self.partitions[-count:]:
            self._led(partition)

    def _whole(self, partition: _Partition) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition.number, topic_id=self._ids[partition.topic], replicas=partition.replicas,
            isr=partition.isr, leader=partition.leader, leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch, leader_recovery_state=partition.recovering, version=0,
        )  # fmt: skip

    def _led(self, partition: _Partition) -> None:
        led = {
            "time_ms": self.time_ms, "topic": self._names[partition.topic], "partition": partition.number,
            "leader": partition.leader, "leader_epoch": partition.leader_epoch, "controller_epoch": self._epoch,
        }  # fmt: skip
        self.truth.leaders.append(led)

    def changed(self, partition: _Partition, **fields: Any) -> PartitionChangeRecord:
        """Change a partition; return the record, which the caller writes at this time."""
        partition.touched_ms = self.time_ms
        partition.partition_epoch += 1
        partition.isr = fields.get("isr", partition.isr)
        partition.replicas = fields.get("replicas", partition.replicas)
        partition.recovering = fields.get("leader_recovery_state", partition.recovering)
        if "leader" in fields:
            partition.leader = fields["leader"]
            partition.leader_epoch += 1
            self._led(partition)
        return PartitionChangeRecord(
            partition_id=partition.number, topic_id=self._ids[partition.topic], version=2, **fields
        )

    def calm(self) -> _Partition:
        """Choose a partition with all replicas in sync, of which nothing has changed for a while.

        Raises:
            NoPlace: There is none.
        """
        found = [
            each
            for each in self.partitions
            if len(each.isr) == len(each.replicas) and each.touched_ms + _QUIET_MS < self.time_ms
        ]
        return self._one_of(found)

    def _one_of(self, found: Sequence[_Chosen]) -> _Chosen:
        if not found:
            raise NoPlace
        return self.random.choice(found)

    def without(self, broker: int) -> list[MetadataRecord]:
        """Take a broker out of all ISRs: its partitions get other leaders, or none where nobody else is in sync."""
        records: list[MetadataRecord] = []
        for each in self.partitions:
            if broker not in each.isr:
                continue
            rest = [member for member in each.isr if member != broker]
            if rest and each.leader == broker:
                records.append(self.changed(each, isr=rest, leader=self.random.choice(rest)))
            elif rest:
                records.append(self.changed(each, isr=rest))
            elif each.leader == broker:
                records.append(self.changed(each, leader=NO_LEADER))
        return records

    def comes_back(self, broker: int) -> None:
        """Let a broker register, unfence, lead what waits for it, and join the ISRs."""
        self.register(broker)
        self.later(1)
        waiting = [each for each in self.partitions if each.leader == NO_LEADER and each.isr == [broker]]
        self.write(self._turned(broker, fenced=-1), *(self.changed(each, leader=broker) for each in waiting))
        self.later(5)
        lagging = [each for each in self.partitions if broker in each.replicas and broker not in each.isr]
        if lagging:
            self.write(*(self.changed(each, isr=[*each.isr, broker]) for each in lagging))

    def killed(self, broker: int) -> None:
        """Fence a broker that sends no heartbeats any more."""
        self.write(self._turned(broker, fenced=1), *self.without(broker))

    def settled_broker(self) -> int:
        """Choose a broker that was not started lately.

        Raises:
            NoPlace: There is none.
        """
        return self._one_of([broker for broker, began in self._restarted.items() if began + _QUIET_MS < self.time_ms])

    def only_leader(self, partition: _Partition) -> int:
        """Let all followers leave a partition's ISR; return the leader."""
        leader = partition.leader
        self.write(self.changed(partition, isr=[leader]))
        self.later(5)
        return leader

    def grow(self, partition: _Partition) -> None:
        """Let all replicas join the ISR."""
        self.write(self.changed(partition, isr=list(partition.replicas)))

    # ---- events of a healthy cluster

    def _restart(self) -> None:
        broker = self.settled_broker()
        self.write(self._turned(broker, stopping=1), *self.without(broker))
        self.later(2)
        self.write(self._turned(broker, fenced=1))
        self.later(20)
        self.comes_back(broker)

    def _election(self) -> None:
        partition = self.calm()
        others = [broker for broker in partition.isr if broker != partition.leader]
        self.write(self.changed(partition, leader=self.random.choice(others)))

    def _isr_change(self) -> None:
        partition = self.calm()
        leaver = self.random.choice([broker for broker in partition.isr if broker != partition.leader])
        self.write(self.changed(partition, isr=[broker for broker in partition.isr if broker != leaver]))
        self.later(self.random.uniform(10, 60))
        self.grow(partition)

    def _eligible_election(self) -> None:
        """The last in-sync replica goes to the eligible ones, and another of these leads: records are not lost."""
        partition = self.calm()
        if self._restarted[partition.leader] + _QUIET_MS > self.time_ms:
            return
        leader = partition.leader
        eligible = [broker for broker in partition.replicas if broker != leader]
        self.write(self.changed(partition, isr=[leader], eligible_leader_replicas=eligible))
        self.later(5)
        records = [self._turned(leader, fenced=1)]
        records.append(
            self.changed(partition, isr=[], leader=NO_LEADER, eligible_leader_replicas=[*eligible, leader])  # type: ignore[arg-type]
        )
        self.write(*records, *self.without(leader))
        self.later(5)
        chosen = eligible[0]
        rest = [broker for broker in (*eligible, leader) if broker != chosen]
        self.write(self.changed(partition, isr=[chosen], leader=chosen, eligible_leader_replicas=rest))
        self.later(5)
        others = [broker for broker in partition.replicas if broker != leader]
        self.write(self.changed(partition, isr=others, eligible_leader_replicas=[]))
        self.comes_back(leader)

    def _deletion(self) -> None:
        planted = {found.topic for found in self.truth.required}  # a fault must not go with its topic
        topic = self._one_of(sorted({each.topic for each in self.partitions if self._names[each.topic] not in planted}))
        self.write(RemoveTopicRecord(topic_id=self._ids[topic]))
        self.partitions = [each for each in self.partitions if each.topic != topic]

    # ---- faults

    def _plant(self, name: str) -> None:
        self.later(_QUIET_MS / _SECOND + 60)
        began = self.time_ms
        with suppress(NoPlace):
            found = KRAFT_PLANTS[name](self)
            self.truth.planted.append(Planted(name, began * 1_000_000, found))
            self.truth.required += found
        self.later(_QUIET_MS / _SECOND)

    def about(self, rule: str, partition: _Partition) -> list[PlantedFinding]:
        """The finding that a rule must have about a partition."""
        return [PlantedFinding(rule, None, self._names[partition.topic], partition.number)]

    # ---- snapshots

    def _take_snapshot(self) -> None:
        self._idle()
        records: list[MetadataRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=_LEVEL)]
        records += [record.replace(version=1) for record in self._registrations.values()]
        topics: set[int] = set()
        for each in self.partitions:
            if each.topic not in topics:
                topics.add(each.topic)
                records.append(TopicRecord(name=self._names[each.topic], topic_id=self._ids[each.topic]))
            records.append(self._whole(each))
        self._snapshot = self._offset, self._epoch, self._written_ms, records


def _segment(batches: Sequence[_Written]) -> dict[str, bytes]:
    name = f"{batches[0].base_offset if batches else 0:020}.log"
    return {name: b"".join([batch.data for batch in batches])}


def _control(record: ControlRecord) -> tuple[bytes, bytes]:
    return b"\0\0" + record.record_type.to_bytes(2, "big"), record.encode(record.version)


def _checkpoint(records: Sequence[MetadataRecord], epoch: int, time_ms: int) -> bytes:
    header = _control(SnapshotHeaderRecord(version=0, last_contained_log_timestamp=time_ms))
    values = [(None, encode_record(record)) for record in records]
    parts = [
        encode_batch([header], epoch=epoch, time_ms=time_ms, control=True),
        encode_batch(values, base_offset=1, epoch=epoch, time_ms=time_ms),
        encode_batch(
            [_control(SnapshotFooterRecord(version=0))],
            base_offset=1 + len(values), epoch=epoch, time_ms=time_ms, control=True,
        ),
    ]  # fmt: skip
    return b"".join(parts)


# ---- the faults ------------------------------------------------------------------------------------------------------


def _no_leader(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    leader = history.only_leader(partition)
    history.killed(leader)
    history.later(60)
    history.comes_back(leader)
    history.later(5)
    history.grow(partition)
    return history.about("KP010", partition)


def _unclean_election(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    leader = history.only_leader(partition)
    history.killed(leader)
    history.later(10)
    taker = next(broker for broker in partition.replicas if broker != leader)
    history.write(history.changed(partition, isr=[taker], leader=taker, leader_recovery_state=1))
    history.later(2)
    history.write(history.changed(partition, leader_recovery_state=0))
    history.later(20)
    history.comes_back(leader)
    history.later(5)
    history.grow(partition)
    return history.about("KP011", partition)


def _under_replicated(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    history.write(history.changed(partition, isr=[partition.leader]))
    history.later(400)
    history.grow(partition)
    return history.about("KP020", partition)


def _leader_flapping(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    for _ in range(5):
        others = [broker for broker in partition.isr if broker != partition.leader]
        history.write(history.changed(partition, leader=history.random.choice(others)))
        history.later(60)
    return history.about("KP016", partition)


def _isr_flapping(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    for _ in range(3):
        history.write(history.changed(partition, isr=[partition.leader]))
        history.later(45)
        history.grow(partition)
        history.later(45)
    return history.about("KP022", partition)


def _registered_again_often(history: _QuorumHistory) -> list[PlantedFinding]:
    broker = history.settled_broker()
    for _ in range(5):
        history.killed(broker)
        history.later(20)
        history.comes_back(broker)
        history.later(40)
    return [PlantedFinding("KP038", broker)]


def _reassignment_lasts(history: _QuorumHistory) -> list[PlantedFinding]:
    partition = history.calm()
    before = list(partition.replicas)
    free = [broker for broker in range(history.fleet.brokers) if broker not in before]
    new = history.random.choice(free)
    history.write(history.changed(partition, replicas=[*before, new], adding_replicas=[new]))
    history.later(4000)
    history.write(history.changed(partition, isr=[*partition.isr, new], adding_replicas=[]))
    return history.about("KP024", partition)


KRAFT_PLANTS: Final[dict[str, Callable[[_QuorumHistory], list[PlantedFinding]]]] = {
    "no-leader": _no_leader,
    "unclean-election": _unclean_election,
    "under-replicated": _under_replicated,
    "leader-flapping": _leader_flapping,
    "isr-flapping": _isr_flapping,
    "registered-again-often": _registered_again_often,
    "reassignment-lasts": _reassignment_lasts,
}
"""The faults that can be planted, named as the rules that find them."""
