"""The partition state machine and its elections, over a store in memory."""

import logging
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from decided_cluster import T0, Channels, broker
from memory_store import MemoryStore

from channel.config import ChannelConfig
from channel.lead.events import ControllerBrokerRequestBatch
from channel.lead.leader_election import ELECTIONS, Elected, Election
from channel.lead.state_machines import (
    PREVIOUS_PARTITION_STATES,
    ControlledCluster,
    PartitionState,
    PartitionStateMachine,
)
from channel.send.context import ControllerContext
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch, LeaderRecoveryState, ReplicaAssignment
from kproto.api import ApiKey
from kproto.types import TopicPartition

EPOCH = 3
NEW, ONLINE, OFFLINE, NON_EXISTENT = (
    PartitionState.NEW,
    PartitionState.ONLINE,
    PartitionState.OFFLINE,
    PartitionState.NON_EXISTENT,
)


class Machine:
    """The machine over partition t-0 with replicas 1, 2 and 3."""

    def __init__(self, live: tuple[int, ...] = (1, 2, 3), store: MemoryStore | None = None, **settings: Any) -> None:
        self.context = ControllerContext()
        self.context.epoch = EPOCH
        self.context.set_live_brokers({broker(b): 1 for b in live})
        self.context.set_all_topics(["t"])
        self.context.update_partition_full_replica_assignment(T0, ReplicaAssignment((1, 2, 3)))
        self.store = store or MemoryStore()
        self.store.create_topic("t", {0: (1, 2, 3)})
        self.channels = Channels()
        config = ChannelConfig(**settings)
        batch = ControllerBrokerRequestBatch(9, config, self.channels, self.channels.put, self.context)
        cluster = ControlledCluster(9, config, self.context, self.store, batch)
        self.partitions = PartitionStateMachine(cluster)

    def lead(self, leader: int, isr: tuple[int, ...], controller_epoch: int = EPOCH) -> None:
        """Store a state that the context knows."""
        info = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, isr), controller_epoch)
        self.store.create_partition_states({T0: info})
        self.context.put_partition_leadership_info(T0, info)

    def be(self, state: PartitionState) -> None:
        """Bring the partition to a state by the shortest way, and forget the requests."""
        ways = {NON_EXISTENT: (), NEW: (NEW,), ONLINE: (NEW, ONLINE), OFFLINE: (NEW, OFFLINE)}
        for step in ways[state]:
            assert self.move(step) == {}
        self.channels.sent.clear()

    def move(self, target: PartitionState, election: Election = Election.OFFLINE) -> Mapping[TopicPartition, str]:
        return self.partitions.change([T0], target, election)

    @property
    def state(self) -> PartitionState:
        return self.partitions.state(T0)

    @property
    def leadership(self) -> LeaderAndIsr:
        info = self.context.partition_leadership_info(T0)
        assert info is not None
        assert self.store.read_partition_states([T0])[T0] == info
        return info.leader_and_isr

    def receivers(self, kind: ApiKey) -> list[int]:
        return [sent.broker_id for sent in self.channels.sent if sent.kind is kind]


VALID = {(NON_EXISTENT, NEW), *product((NEW, ONLINE, OFFLINE), (ONLINE, OFFLINE)), (OFFLINE, NON_EXISTENT)}


@pytest.mark.parametrize(("before", "target"), sorted(set(product(PartitionState, PartitionState)) - VALID, key=str))
def test_an_invalid_move_changes_nothing(
    before: PartitionState, target: PartitionState, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    machine.be(before)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        assert machine.move(target) == {T0: f"it is {before.value}"}
    assert machine.state is before
    assert machine.channels.sent == []
    assert f"t-0 cannot become {target.value}" in caplog.text


def test_the_table_has_the_valid_moves() -> None:
    assert {(before, target) for target, allowed in PREVIOUS_PARTITION_STATES.items() for before in allowed} == VALID


def test_startup_takes_each_partition_for_what_it_is() -> None:
    without_leader = Machine(live=())
    without_leader.partitions.startup(without_leader.context.all_partitions)
    assert without_leader.state is NEW
    led = Machine()
    led.lead(1, (1,))
    led.partitions.startup(led.context.all_partitions)
    assert led.state is ONLINE
    assert led.channels.sent == []
    left = Machine(live=(2, 3))
    left.lead(1, (1,))
    left.partitions.startup(left.context.all_partitions)
    assert left.state is OFFLINE
    assert left.partitions.offline_partitions == [T0]
    left.partitions.shutdown()
    assert left.state is NON_EXISTENT


def test_a_new_partition_is_created_with_its_live_replicas() -> None:
    machine = Machine(live=(2, 3))
    machine.be(NEW)
    assert machine.move(ONLINE) == {}
    assert machine.leadership == LeaderAndIsr(2, (2, 3))
    assert machine.receivers(ApiKey.LEADER_AND_ISR) == [2, 3]


def test_a_new_partition_whose_state_exists_is_not_created_again() -> None:
    machine = Machine()
    machine.be(NEW)
    machine.store.create_partition_states({T0: LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1,)), 1)})
    assert machine.move(ONLINE) == {T0: "its state exists already"}
    assert machine.state is NEW


class FailingStore(MemoryStore):
    """Fails each write, or has it conflict with a write of another."""

    def __init__(self, outcome: str | None) -> None:
        super().__init__()
        self.outcome = outcome

    def create_partition_states(self, states: Any) -> Any:
        super().create_partition_states(states)
        return dict.fromkeys(states, self.outcome)

    def update_partition_states(self, states: Any, controller_epoch: int) -> Any:
        return dict.fromkeys(states, self.outcome)


def test_a_partition_whose_state_cannot_be_written_stays_as_it_was() -> None:
    machine = Machine(store=FailingStore("no quorum"))
    machine.be(NEW)
    assert machine.move(ONLINE) == {T0: "no quorum"}
    assert machine.state is NEW
    machine = Machine(live=(2, 3), store=FailingStore("no quorum"))
    machine.lead(1, (1, 2))
    machine.be(OFFLINE)
    assert machine.move(ONLINE) == {T0: "no quorum"}
    assert machine.state is OFFLINE
    assert machine.channels.sent == []


def test_a_write_that_conflicts_for_ever_ends() -> None:
    machine = Machine(live=(2, 3), store=FailingStore(None))
    machine.lead(1, (1, 2))
    machine.be(OFFLINE)
    assert "changed under each of 20 writes" in machine.move(ONLINE)[T0]


def test_the_state_of_a_newer_controller_is_not_overwritten() -> None:
    machine = Machine(live=(2, 3))
    machine.lead(1, (1, 2), controller_epoch=EPOCH + 1)
    machine.be(OFFLINE)
    assert machine.move(ONLINE) == {T0: f"a controller with epoch {EPOCH + 1} has written its state"}


def test_another_isr_in_the_znode_decides_the_election() -> None:
    machine = Machine(live=(2, 3))
    machine.lead(1, (1, 2))
    machine.be(OFFLINE)
    machine.store.change_isr(T0, (1, 3))
    assert machine.move(ONLINE) == {}
    assert machine.leadership == LeaderAndIsr(3, (3,), 1, 2)
    assert machine.receivers(ApiKey.LEADER_AND_ISR) == [2, 3]


@pytest.mark.parametrize(
    ("ibp", "recovery"), [("3.2", LeaderRecoveryState.RECOVERING), ("3.1", LeaderRecoveryState.RECOVERED)]
)
def test_an_unclean_leader_has_to_recover_where_brokers_know_of_it(ibp: str, recovery: LeaderRecoveryState) -> None:
    machine = Machine(live=(2, 3), unclean_leader_election_enable=True, inter_broker_protocol_version=ibp)
    machine.lead(1, (1,))
    machine.be(OFFLINE)
    assert machine.move(ONLINE) == {}
    assert machine.leadership == LeaderAndIsr(2, (2,), 1, 1, recovery)
    assert machine.partitions.unclean_elections == 1


def test_only_waiting_partitions_of_the_topic_are_elected() -> None:
    machine = Machine(live=(2, 3))
    machine.lead(1, (1, 2))
    machine.be(OFFLINE)
    assert machine.partitions.elect_for_waiting_partitions("other") == set()
    assert machine.partitions.elect_for_waiting_partitions("t") == {T0}
    assert machine.partitions.elect_for_waiting_partitions() == set()


# ---- the elections alone

STATE = LeaderAndIsr(1, (1, 2, 3), 5, 7)


def elect(
    kind: Election,
    live: tuple[int, ...],
    isr: tuple[int, ...] = (1, 2, 3),
    assignment: ReplicaAssignment = ReplicaAssignment((1, 2, 3)),  # noqa: B008  (a tuple)
    leaving: tuple[int, ...] = (),
) -> Elected | None:
    machine = Machine(live)
    machine.context.update_partition_full_replica_assignment(T0, assignment)
    machine.context.shutting_down_broker_ids.update(leaving)
    return ELECTIONS[kind](machine.context, T0, STATE._replace(isr=isr))


def won(leader: int, isr: tuple[int, ...], *recipients: int, unclean: bool = False) -> Elected:
    return Elected(LeaderAndIsr(leader, isr, 6, 7, LeaderRecoveryState(unclean)), recipients)


MOVING = ReplicaAssignment((3, 1, 2), (3,), (1,))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (elect(Election.OFFLINE, (2, 3)), won(2, (2, 3), 2, 3)),
        (elect(Election.OFFLINE, (2, 3), isr=(1, 3)), won(3, (3,), 2, 3)),
        (elect(Election.OFFLINE, (2, 3), isr=(1,)), None),
        (elect(Election.UNCLEAN, (2, 3), isr=(1, 3)), won(3, (3,), 2, 3)),
        (elect(Election.UNCLEAN, (2, 3), isr=(1,)), won(2, (2,), 2, 3, unclean=True)),
        (elect(Election.UNCLEAN, (), isr=(1,)), None),
        (elect(Election.REASSIGNMENT, (1, 2, 3), assignment=MOVING), won(3, (1, 2, 3), 3, 2)),
        (elect(Election.REASSIGNMENT, (1, 2), assignment=MOVING), won(2, (1, 2, 3), 3, 2)),
        (elect(Election.REASSIGNMENT, (1, 2, 3), isr=(1,), assignment=MOVING), None),
        (elect(Election.PREFERRED, (1, 2, 3), isr=(3, 1)), won(1, (3, 1), 1, 2, 3)),
        (elect(Election.PREFERRED, (1, 2, 3), isr=(2, 3)), None),
        (elect(Election.PREFERRED, (2, 3)), None),
        (elect(Election.CONTROLLED_SHUTDOWN, (1, 2, 3), leaving=(1,)), won(2, (2, 3), 1, 2, 3)),
        (elect(Election.CONTROLLED_SHUTDOWN, (1, 3), leaving=(1,)), won(3, (2, 3), 1, 3)),
        (elect(Election.CONTROLLED_SHUTDOWN, (1, 2), isr=(1,), leaving=(1,)), None),
    ],
)
def test_an_election(outcome: Elected | None, expected: Elected | None) -> None:
    assert outcome == expected
