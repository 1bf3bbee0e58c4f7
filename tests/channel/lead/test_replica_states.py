"""The replica state machine alone, with a batch that keeps what is added to it."""

import logging
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from decided_cluster import T0, DecidedCluster, broker
from memory_store import MemoryStore

from channel.config import ChannelConfig
from channel.lead.state_machines import (
    PREVIOUS_REPLICA_STATES,
    ControlledCluster,
    ReplicaStateMachine,
    ReplicaStatus,
)
from channel.send.context import ControllerContext
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.api import ApiKey
from kproto.types import TopicPartition

B = 5
EPOCH = 50


class RecordingBatch:
    """Keeps the calls of a batch, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def new_batch(self) -> None:
        self.calls.append(("new",))

    def clear(self) -> None:
        self.calls.append(("clear",))

    def add_stop_replica_request_for_brokers(
        self, broker_ids: Iterable[int], tp: TopicPartition, delete_partition: bool
    ) -> None:
        self.calls.append(("SR", list(broker_ids), tp, delete_partition))

    def add_leader_and_isr_request_for_brokers(
        self,
        broker_ids: Iterable[int],
        tp: TopicPartition,
        leadership: LeaderIsrAndControllerEpoch,
        assignment: ReplicaAssignment,
        is_new: bool,
    ) -> None:
        self.calls.append(("LISR", list(broker_ids), tp, leadership.leader_and_isr, assignment.replicas, is_new))

    def add_update_metadata_request_for_brokers(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        self.calls.append(("UMR", sorted(broker_ids), list(partitions)))

    def send_requests_to_brokers(self, controller_epoch: int) -> None:
        self.calls.append(("send", controller_epoch))


class Machine:
    """The machine over partition t-0 with a replica on broker b."""

    def __init__(self, live: tuple[int, ...] = (B,), replicas: tuple[int, ...] = (B,)) -> None:
        self.context = ControllerContext()
        self.context.epoch = EPOCH
        self.context.set_live_brokers({broker(b): 1 for b in live})
        self.context.set_all_topics(["t"])
        self.context.update_partition_full_replica_assignment(T0, ReplicaAssignment(replicas))
        self.store = MemoryStore()
        self.store.create_topic("t", {0: replicas})
        self.batch = RecordingBatch()
        cluster = ControlledCluster(1, ChannelConfig(), self.context, self.store, self.batch)  # type: ignore[arg-type]
        self.replicas = ReplicaStateMachine(cluster)

    def lead(self, leader: int, isr: tuple[int, ...], leader_epoch: int = 0) -> LeaderAndIsr:
        """Store a state, and let the context know it."""
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, isr, leader_epoch), EPOCH)
        self.store.create_partition_states({T0: state})
        self.context.put_partition_leadership_info(T0, state)
        return state.leader_and_isr

    def be(self, state: ReplicaStatus) -> None:
        """Bring the replica to a state by the shortest way, and forget the requests."""
        ways = {
            ReplicaStatus.NON_EXISTENT: (),
            ReplicaStatus.NEW: (ReplicaStatus.NEW,),
            ReplicaStatus.ONLINE: (ReplicaStatus.NEW, ReplicaStatus.ONLINE),
            ReplicaStatus.OFFLINE: (ReplicaStatus.NEW, ReplicaStatus.OFFLINE),
        }
        started = (*ways[ReplicaStatus.OFFLINE], ReplicaStatus.DELETION_STARTED)
        ways[ReplicaStatus.DELETION_STARTED] = started
        ways[ReplicaStatus.DELETION_SUCCESSFUL] = (*started, ReplicaStatus.DELETION_SUCCESSFUL)
        ways[ReplicaStatus.DELETION_INELIGIBLE] = (*started, ReplicaStatus.DELETION_INELIGIBLE)
        for step in ways[state]:
            self.move(step)
        assert self.state is state
        self.batch.calls.clear()

    def move(self, target: ReplicaStatus) -> None:
        self.replicas.change({B: [T0]}, target)

    @property
    def state(self) -> ReplicaStatus:
        return self.replicas.state(B, T0)


@pytest.mark.conformance("RSM-01")
def test_a_replica_on_a_live_broker_starts_online() -> None:
    machine = Machine()
    machine.replicas.startup(machine.context.all_partitions)
    assert machine.state is ReplicaStatus.ONLINE


@pytest.mark.conformance("RSM-02")
def test_a_replica_on_a_dead_broker_starts_offline() -> None:
    machine = Machine(live=())
    machine.replicas.startup(machine.context.all_partitions)
    assert machine.state is ReplicaStatus.OFFLINE


@pytest.mark.conformance("RSM-03")
def test_a_new_replica_without_a_leader_goes_offline() -> None:
    machine = Machine()
    machine.be(ReplicaStatus.NEW)
    machine.move(ReplicaStatus.OFFLINE)
    assert machine.batch.calls == [("new",), ("SR", [B], T0, False), ("UMR", [B], [T0]), ("send", EPOCH)]
    assert machine.state is ReplicaStatus.OFFLINE


@pytest.mark.conformance("RSM-04")
def test_an_online_replica_is_told_again_that_it_is_online() -> None:
    machine = Machine()
    machine.be(ReplicaStatus.ONLINE)
    state = machine.lead(B, (B,))
    machine.move(ReplicaStatus.ONLINE)
    assert machine.batch.calls == [("new",), ("LISR", [B], T0, state, (B,), False), ("send", EPOCH)]
    assert machine.state is ReplicaStatus.ONLINE


@pytest.mark.conformance("RSM-05")
def test_a_leader_that_goes_offline_leaves_its_isr_to_the_others() -> None:
    machine = Machine(live=(B, B + 1), replicas=(B, B + 1))
    machine.be(ReplicaStatus.ONLINE)
    machine.lead(B, (B, B + 1))
    machine.move(ReplicaStatus.OFFLINE)
    after = LeaderAndIsr(-1, (B + 1,), leader_epoch=1, partition_epoch=1)
    assert machine.batch.calls == [
        ("new",),
        ("SR", [B], T0, False),
        ("LISR", [B + 1], T0, after, (B, B + 1), False),
        ("send", EPOCH),
    ]
    expected = LeaderIsrAndControllerEpoch(after, EPOCH)
    assert machine.store.read_partition_states([T0]) == {T0: expected}
    assert machine.context.partition_leadership_info(T0) == expected
    assert machine.state is ReplicaStatus.OFFLINE


@pytest.mark.conformance("RSM-06")
def test_the_deletion_of_a_replica_stops_and_deletes_it() -> None:
    machine = Machine()
    machine.be(ReplicaStatus.OFFLINE)
    machine.move(ReplicaStatus.DELETION_STARTED)
    assert machine.batch.calls == [("new",), ("SR", [B], T0, True), ("send", EPOCH)]
    assert machine.state is ReplicaStatus.DELETION_STARTED


S = ReplicaStatus
VALID = {
    (S.NON_EXISTENT, S.NEW),
    *product((S.NEW, S.ONLINE, S.OFFLINE, S.DELETION_INELIGIBLE), (S.ONLINE, S.OFFLINE)),
    (S.OFFLINE, S.DELETION_STARTED),
    (S.DELETION_STARTED, S.DELETION_SUCCESSFUL),
    (S.OFFLINE, S.DELETION_INELIGIBLE),
    (S.DELETION_STARTED, S.DELETION_INELIGIBLE),
    (S.DELETION_SUCCESSFUL, S.NON_EXISTENT),
}


@pytest.mark.conformance("RSM-08")
@pytest.mark.parametrize(("before", "target"), sorted(set(product(S, S)) - VALID, key=str))
def test_an_invalid_move_changes_nothing(
    before: ReplicaStatus, target: ReplicaStatus, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    machine.be(before)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        machine.move(target)
    assert machine.state is before
    assert machine.batch.calls == [("new",), ("send", EPOCH)]
    assert f"cannot become {target.value}: it is {before.value}" in caplog.text


@pytest.mark.parametrize(("before", "target"), sorted(VALID, key=str))
def test_a_valid_move_is_made(before: ReplicaStatus, target: ReplicaStatus) -> None:
    machine = Machine()
    machine.be(before)
    machine.move(target)
    assert machine.state is target
    assert before in PREVIOUS_REPLICA_STATES[target]


def test_a_new_replica_gets_the_leader_unless_it_leads_itself(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(live=(B, 6), replicas=(6, B))
    state = machine.lead(6, (6,))
    machine.move(ReplicaStatus.NEW)
    assert machine.batch.calls == [("new",), ("LISR", [B], T0, state, (6, B), True), ("send", EPOCH)]
    leader = Machine()
    leader.lead(B, (B,))
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        leader.move(ReplicaStatus.NEW)
    assert leader.state is ReplicaStatus.NON_EXISTENT
    assert "it leads the partition already" in caplog.text


def test_the_last_replica_of_an_isr_stays_in_it() -> None:
    machine = Machine()
    machine.be(ReplicaStatus.ONLINE)
    machine.lead(B, (B,))
    machine.move(ReplicaStatus.OFFLINE)
    info = machine.context.partition_leadership_info(T0)
    assert info is not None
    assert info.leader_and_isr == LeaderAndIsr(-1, (B,), 1, 1)


def test_a_replica_outside_the_isr_goes_offline_without_a_new_leader_epoch() -> None:
    machine = Machine(live=(B, 6), replicas=(B, 6))
    machine.be(ReplicaStatus.ONLINE)
    machine.lead(6, (6,), leader_epoch=3)
    machine.move(ReplicaStatus.OFFLINE)
    assert machine.batch.calls == [("new",), ("SR", [B], T0, False), ("UMR", [B, 6], [T0]), ("send", EPOCH)]
    assert machine.state is ReplicaStatus.OFFLINE


def test_a_state_that_another_has_written_is_read_again() -> None:
    machine = Machine(live=(B, 6, 7), replicas=(B, 6, 7))
    machine.be(ReplicaStatus.ONLINE)
    machine.lead(6, (6, B, 7))
    machine.store.change_isr(T0, (6, B))
    machine.move(ReplicaStatus.OFFLINE)
    info = machine.context.partition_leadership_info(T0)
    assert info is not None
    assert info.leader_and_isr == LeaderAndIsr(6, (6,), 1, 2)


def test_a_partition_without_a_znode_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.be(ReplicaStatus.ONLINE)
    machine.lead(B, (B,))
    machine.store.delete_topics(["t"])
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        machine.move(ReplicaStatus.OFFLINE)
    assert machine.state is ReplicaStatus.ONLINE
    assert "it has no state in ZooKeeper" in caplog.text


def test_the_states_of_a_deletion_are_counted_by_topic() -> None:
    machine = Machine()
    machine.be(ReplicaStatus.DELETION_STARTED)
    assert machine.replicas.count_in_state("t", ReplicaStatus.DELETION_STARTED)
    machine.move(ReplicaStatus.DELETION_SUCCESSFUL)
    assert not machine.replicas.count_in_state("t", ReplicaStatus.DELETION_STARTED)
    assert machine.replicas.count_in_state("t", ReplicaStatus.DELETION_SUCCESSFUL) == 1
    assert machine.replicas.replicas_in_state("t", ReplicaStatus.DELETION_SUCCESSFUL) == {B: [T0]}
    machine.move(ReplicaStatus.NON_EXISTENT)
    assert machine.replicas.count_in_state("t", ReplicaStatus.DELETION_SUCCESSFUL) == 0
    assert machine.context.partition_replica_assignment(T0) == ()


def test_a_partition_of_any_number_of_replicas_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A znode may name thousands of replicas on brokers that there are not: each goes offline at the start."""
    cluster = DecidedCluster((0, 1, 2))
    cluster.create(list(range(2_000)))
    looks = []
    found = ControllerContext.partition_state
    monkeypatch.setattr(
        ControllerContext, "partition_state", lambda context, tp: (looks.append(tp), found(context, tp))[1]
    )
    cluster.elect()
    assert len(looks) < 10
    updates = [sent for sent in cluster.channels.sent if sent.kind is ApiKey.UPDATE_METADATA and sent.partitions]
    (told,) = {tuple(sent.partitions[T0].offline_replicas) for sent in updates}
    assert len(told) == 1_997
