"""The store in memory: versions and the fence, as ZooKeeper has them."""

from __future__ import annotations

from inspect import signature

import pytest
from decided_cluster import T0, broker
from memory_store import MemoryStore

from channel.controller.store import StateWrite, TopicAssignment, WriteOutcome
from channel.controller.zookeeper_store import ZooKeeperStore
from channel.errors import ControllerMoved
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.types import TopicPartition

STATE = LeaderAndIsr(1, (1, 2))
CONFLICT = StateWrite(WriteOutcome.CONFLICT)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.elect()
    return store


def test_a_state_is_created_once_and_replaced_by_its_version(store: MemoryStore) -> None:
    info = LeaderIsrAndControllerEpoch(STATE, 1)
    assert store.create_partition_states({T0: info}, 1) == {T0: StateWrite(WriteOutcome.WRITTEN, 0)}
    assert store.create_partition_states({T0: info}, 1) == {T0: CONFLICT}
    after = STATE._replace(leader=2)
    assert store.update_partition_states({T0: after}, 1, 1) == {T0: StateWrite(WriteOutcome.WRITTEN, 1)}
    assert store.update_partition_states({T0: after}, 1, 1) == {T0: CONFLICT}
    assert store.update_partition_states({TopicPartition("u", 0): after}, 1, 1) == {TopicPartition("u", 0): CONFLICT}
    assert store.read_partition_states([T0]) == {T0: LeaderIsrAndControllerEpoch(after._replace(partition_epoch=1), 1)}


def test_a_deposed_controller_writes_nothing(store: MemoryStore) -> None:
    old = store.fence
    store.create_topic("t", {0: (1,)})
    assert store.elect() == (2, 2)
    info = LeaderIsrAndControllerEpoch(STATE, 1)
    assignment = TopicAssignment({0: ReplicaAssignment((2,))})
    for write in (
        lambda: store.write_assignment("t", assignment, old),
        lambda: store.delete_topics(["t"], old),
        lambda: store.create_partition_states({T0: info}, old),
        lambda: store.update_partition_states({T0: STATE}, 1, old),
        lambda: store.delete_topic_deletions(["t"], old),
        lambda: store.check_leadership(old),
        lambda: store.write_reassignments({}, old),
        lambda: store.delete_preferred_elections(old),
        lambda: store.delete_isr_changes([], old),
        lambda: store.delete_log_dir_failures([], old),
    ):
        with pytest.raises(ControllerMoved, match="version 2, this controller was elected with 1"):
            write()
    assert store.read_assignments(["t"]) == {"t": TopicAssignment({0: ReplicaAssignment((1,))})}
    assert store.read_partition_states([T0]) == {}


def test_each_registration_has_a_later_epoch(store: MemoryStore) -> None:
    first = store.register_broker(broker(1))
    assert store.register_broker(broker(1)) > first
    store.modify_broker(broker(1, port=1))
    assert store.read_brokers() == {broker(1, port=1): first + 1}
    store.unregister_broker(1)
    assert store.read_broker(1) is None


def test_an_assignment_of_a_topic_that_has_gone_is_not_written(store: MemoryStore) -> None:
    assert not store.write_assignment("t", TopicAssignment({}), store.fence)
    assert store.read_topics() == set()


def test_it_has_the_methods_of_the_controllers_store() -> None:
    methods = {name: method for name, method in vars(ZooKeeperStore).items() if not name.startswith("_")}
    assert methods.pop("unwatch")
    for name, method in methods.items():
        assert list(signature(method).parameters) == list(signature(getattr(MemoryStore, name)).parameters), name
