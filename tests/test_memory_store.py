"""The store in memory: versions and the fence, as ZooKeeper has them."""

from inspect import signature

import pytest
from decided_cluster import T0, broker
from memory_store import MemoryStore

from channel.errors import ControllerMoved
from channel.lead.zookeeper_store import ZooKeeperStore
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from channel.zookeeper.znodes import ADMIN_DELETE_TOPICS, TopicZnode
from kproto.types import TopicPartition

STATE = LeaderAndIsr(1, (1, 2))
CONFLICT = None


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.elect()
    return store


def test_a_state_is_created_once_and_replaced_by_its_version(store: MemoryStore) -> None:
    info = LeaderIsrAndControllerEpoch(STATE, 1)
    assert store.create_partition_states({T0: info}) == {T0: 0}
    assert store.create_partition_states({T0: info}) == {T0: CONFLICT}
    after = STATE._replace(leader=2)
    assert store.update_partition_states({T0: after}, 1) == {T0: 1}
    assert store.update_partition_states({T0: after}, 1) == {T0: CONFLICT}
    assert store.update_partition_states({TopicPartition("u", 0): after}, 1) == {TopicPartition("u", 0): CONFLICT}
    assert store.read_partition_states([T0]) == {T0: LeaderIsrAndControllerEpoch(after._replace(partition_epoch=1), 1)}


def test_a_deposed_controller_writes_nothing(store: MemoryStore) -> None:
    store.create_topic("t", {0: (1,)})
    store.depose()
    info = LeaderIsrAndControllerEpoch(STATE, 1)
    assignment = TopicZnode({0: ReplicaAssignment((2,))})
    for write in (
        lambda: store.write_assignment("t", assignment),
        lambda: store.delete_topics(["t"]),
        lambda: store.create_partition_states({T0: info}),
        lambda: store.update_partition_states({T0: STATE}, 1),
        lambda: store.check_leadership(),
        lambda: store.write_reassignments({}),
        lambda: store.delete_preferred_elections(),
        lambda: store.delete_children(ADMIN_DELETE_TOPICS, ["t"]),
    ):
        with pytest.raises(ControllerMoved, match="version 2, this controller was elected with 1"):
            write()
    assert store.read_assignments(["t"]) == {"t": TopicZnode({0: ReplicaAssignment((1,))})}
    assert store.read_partition_states([T0]) == {}


def test_each_registration_has_a_later_epoch(store: MemoryStore) -> None:
    first = store.register_broker(broker(1))
    assert store.register_broker(broker(1)) > first
    store.modify_broker(broker(1, port=1))
    assert store.read_brokers() == {broker(1, port=1): first + 1}
    store.unregister_broker(1)
    assert store.read_broker(1) is None


def test_an_assignment_of_a_topic_that_has_gone_is_not_written(store: MemoryStore) -> None:
    assert not store.write_assignment("t", TopicZnode({}))
    assert store.read_topics() == set()


def test_it_has_the_methods_of_the_controllers_store() -> None:
    methods = {name: method for name, method in vars(ZooKeeperStore).items() if not name.startswith("_")}
    assert methods.pop("unwatch")
    for name, method in methods.items():
        assert list(signature(method).parameters) == list(signature(getattr(MemoryStore, name)).parameters), name
