"""The controller's store in a real ZooKeeper: what is written is read again, and every watched change is an event."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from network_peers import until

from channel.errors import ControllerMoved
from channel.lead import zookeeper_store
from channel.lead.events import (
    BrokerChange,
    BrokerModifications,
    ConfigChangeNotification,
    ControllerEvent,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    PreferredReplicaLeaderElection,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from channel.lead.zookeeper_store import ConfigChanges, ZooKeeperStore
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from channel.zookeeper import cluster_state as cluster
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKER = Broker(5, (EndPoint("h", 1),), "rack")


class Elected:
    """A store of a controller that was elected, beside the administrator who changes znodes."""

    def __init__(self, session: ZooKeeperSession, admin: ZooKeeperSession) -> None:
        self.admin = admin
        self.events: list[ControllerEvent] = []
        cluster.create_persistent_nodes(session)
        fence = cluster.register_controller(session, 1).epoch_zk_version
        self.store = ZooKeeperStore(session, self.events.append, fence)

    def event(self, event: ControllerEvent) -> None:
        """Wait for the one event of a change."""
        until(lambda: bool(self.events))
        assert self.events == [event]
        self.events.clear()


@pytest.fixture
def elected(zookeeper: str) -> Iterator[Elected]:
    with ZooKeeperSession(zookeeper) as session, ZooKeeperSession(zookeeper) as admin:
        yield Elected(session, admin)


def test_registered_brokers_are_read_with_their_epochs(elected: Elected) -> None:
    store = elected.store
    assert store.read_brokers() == {}
    epoch = cluster.register_broker(elected.admin, 5, znodes.encode_broker(BROKER, "3.9", 0))
    elected.event(BrokerChange())
    assert store.read_brokers() == {BROKER: epoch}
    assert store.read_broker(5) == BROKER
    assert store.read_broker(6) is None
    moved = Broker(5, (EndPoint("elsewhere", 2),))
    elected.admin.set(znodes.broker_path(5), znodes.encode_broker(moved, "3.9", 0))
    elected.event(BrokerModifications(5))
    assert store.read_broker(5) == moved
    elected.admin.set(znodes.broker_path(5), b"no registration")
    elected.event(BrokerModifications(5))
    assert store.read_brokers() == {}


def test_brokers_that_go_together_are_one_change(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Any] = []

    class Timer:
        """A timer whose time a test lets pass."""

        def __init__(self, delay_s: float, function: Callable[..., object], arguments: list[Any]) -> None:
            self.pass_by = lambda: function(*arguments)

        def start(self) -> None:
            waiting.append(self)

    monkeypatch.setattr(zookeeper_store, "threading", SimpleNamespace(Timer=Timer))
    with ZooKeeperSession(zookeeper) as session, ZooKeeperSession(zookeeper) as admin:
        elected = Elected(session, admin)
        for broker_id in range(5):
            cluster.register_broker(admin, broker_id, znodes.encode_broker(BROKER, "3.9", 0))
        assert len(elected.store.read_brokers()) == 5
        for broker_id in range(4):
            admin.delete(znodes.broker_path(broker_id))
        until(lambda: bool(waiting))
        (timer,) = waiting
        changes = [event for event in elected.events if isinstance(event, BrokerChange)]
        assert changes == []
        timer.pass_by()
        assert elected.events[-1] == BrokerChange()
        assert {broker.id for broker in elected.store.read_brokers()} == {4}


def test_topics_come_change_and_go(elected: Elected) -> None:
    store, admin = elected.store, elected.admin
    assert store.read_topics() == set()
    first = znodes.TopicZnode({0: ReplicaAssignment((1, 2))}, bytes(range(16)))
    admin.create(znodes.topic_path("t"), znodes.encode_topic(*first))
    elected.event(TopicChange())
    assert store.read_topics() == {"t"}
    assert store.read_assignments(["none", "t"]) == {"t": first}
    second = znodes.TopicZnode(
        {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3, 1), (3,), (1,))}, first.topic_id
    )
    assert store.write_assignment("t", second)
    elected.event(PartitionModifications("t"))
    assert store.read_assignments(["t"]) == {"t": second}
    assert not store.write_assignment("none", second)

    assert store.read_topic_deletions() == set()
    admin.create(f"{znodes.TOPIC_CONFIGS}/t", znodes.encode_config({"retention.ms": "1"}))
    admin.create(f"{znodes.ADMIN_DELETE_TOPICS}/t")
    elected.event(TopicDeletion())
    store.create_partition_states({T0: LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1,)), 1)})
    assert store.read_topic_deletions() == {"t"}
    assert store.read_topic_configs(["t", "none"]) == {"t": {"retention.ms": "1"}}
    store.delete_topics(["t"])
    assert admin.exists(znodes.topic_path("t")) is None
    assert store.read_topic_configs(["t"]) == {}
    assert admin.children(znodes.ADMIN_DELETE_TOPICS) == []
    until(lambda: len(elected.events) == 2)  # and none of the topic's own znode
    assert set(map(type, elected.events)) == {TopicChange, TopicDeletion}
    elected.events.clear()
    store.delete_children(znodes.ADMIN_DELETE_TOPICS, ["none"])


@pytest.mark.parametrize("count", [1, 101])
def test_partition_states_are_written_by_version(elected: Elected, count: int) -> None:
    """101 partitions are two transactions, and those of a refused transaction are written one by one."""
    store = elected.store
    states = {
        TopicPartition("t", i): LeaderIsrAndControllerEpoch(LeaderAndIsr(i, (i, 1000), i), 1) for i in range(count)
    }
    elected.admin.create(znodes.topic_path("t"))
    assert store.create_partition_states(states) == dict.fromkeys(states, 0)
    assert store.read_partition_states([*states, TopicPartition("t", count)]) == states
    assert store.create_partition_states(states) == dict.fromkeys(states, 0)
    others = {tp: state._replace(controller_epoch=2) for tp, state in states.items()}
    again = store.create_partition_states(others)
    assert set(again.values()) == {None}
    last = TopicPartition("t", count - 1)
    next_states = {tp: info.leader_and_isr for tp, info in states.items()}
    next_states[last] = next_states[last]._replace(partition_epoch=7)
    written = store.update_partition_states(next_states, 2)
    assert written.pop(last) is None
    assert set(written.values()) <= {1}
    read = store.read_partition_states(list(states))
    assert read.pop(last) == states[last]
    assert read == {
        tp: LeaderIsrAndControllerEpoch(states[tp].leader_and_isr._replace(partition_epoch=1), 2) for tp in read
    }


def test_a_partition_state_is_watched_on_demand_and_once(elected: Elected) -> None:
    store = elected.store
    elected.admin.create(znodes.topic_path("t"))
    states = {tp: LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1,)), 1) for tp in (T0, T1)}
    store.create_partition_states(states)
    store.read_partition_states([T0])
    store.read_partition_states([T1], watch=True)
    for version in range(2):
        changed = {tp: LeaderAndIsr(2, (2,), 1, partition_epoch=version) for tp in (T0, T1)}
        store.update_partition_states(changed, 1)
        store.read_partition_states([T0, T1])
    elected.event(PartitionReassignmentIsrChange(T1))


def test_what_administrators_ask_for_is_read_and_taken_away(elected: Elected) -> None:
    store, admin = elected.store, elected.admin
    assert store.read_reassignments() == {}
    admin.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({T0: [1, 2]}))
    elected.event(ZkPartitionReassignment())
    assert store.read_reassignments() == {T0: (1, 2)}
    store.write_reassignments({T1: (3,)})
    elected.event(ZkPartitionReassignment())
    assert store.read_reassignments() == {T1: (3,)}
    store.write_reassignments({})
    elected.event(ZkPartitionReassignment())
    assert admin.exists(znodes.REASSIGN_PARTITIONS) is None
    store.write_reassignments({T0: (3,)})  # without the znode
    assert store.read_reassignments() == {T0: (3,)}

    assert store.read_preferred_elections() == set()
    admin.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([T0, T1]))
    elected.event(PreferredReplicaLeaderElection())
    assert store.read_preferred_elections() == {T0, T1}
    store.delete_preferred_elections()
    assert admin.exists(znodes.PREFERRED_ELECTION) is None


def test_notifications_of_brokers_are_read_in_their_order_and_taken_away(elected: Elected) -> None:
    store, admin = elected.store, elected.admin
    assert store.read_isr_changes() == ([], [])
    names = []
    for partitions in ([T1], [T0, T1]):
        data = znodes.encode_partitions(partitions)
        path = admin.create(f"{znodes.ISR_CHANGES}/isr_change_", data, sequence=True)
        names.append(path.rpartition("/")[2])
        elected.event(IsrChangeNotification())
        found = store.read_isr_changes()
    assert found == (names, [T1, T0])
    store.delete_children(znodes.ISR_CHANGES, names)
    elected.event(IsrChangeNotification())
    assert store.read_isr_changes() == ([], [])

    assert store.read_log_dir_failures() == ([], [])
    path = admin.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", b'{"version":1,"broker":7,"event":1}', sequence=True)
    elected.event(LogDirEventNotification())
    found = store.read_log_dir_failures()
    assert found == ([path.rpartition("/")[2]], [7])
    store.delete_children(znodes.LOG_DIR_EVENTS, found[0])
    assert admin.children(znodes.LOG_DIR_EVENTS) == []


def test_changes_of_settings_are_read_from_the_last_that_was_seen(elected: Elected) -> None:
    store, admin = elected.store, elected.admin
    assert store.read_default_config() == {}
    admin.create("/config/brokers/<default>", znodes.encode_config({"a": "b"}))
    assert store.read_default_config() == {"a": "b"}

    def change(entity: str) -> None:
        data = b'{"version":2,"entity_path":"%s"}' % entity.encode()
        admin.create(f"{znodes.CONFIG_CHANGES}/config_change_", data, sequence=True)

    assert store.read_config_changes(None) == ConfigChanges(-1, (), False)
    assert store.read_config_changes(4) == ConfigChanges(4, (), False)
    change("topics/old")
    elected.event(ConfigChangeNotification())
    seen = store.read_config_changes(None)
    assert seen == ConfigChanges(0, (), False)
    for entity in ("topics/t", "users/u", "topics/t", "brokers/<default>"):
        change(entity)
    elected.event(ConfigChangeNotification())
    assert store.read_config_changes(seen.last) == ConfigChanges(4, ("t",), True)
    assert store.read_config_changes(4) == ConfigChanges(4, (), False)


def test_a_resigned_controller_hears_and_changes_nothing(elected: Elected) -> None:
    store, admin = elected.store, elected.admin
    store.read_topics()
    store.check_leadership()
    store.unwatch()
    admin.create(znodes.topic_path("t"))
    admin.delete(znodes.CONTROLLER)
    cluster.register_controller(admin, 2)
    writes: list[Any] = [
        lambda: store.check_leadership(),
        lambda: store.write_assignment("t", znodes.TopicZnode({}, None)),
        lambda: store.delete_topics(["t"]),
        lambda: store.write_reassignments({T0: (1,)}),
        lambda: store.delete_children(znodes.ADMIN_DELETE_TOPICS, ["t"]),
        lambda: store.update_partition_states({T0: LeaderAndIsr(1, (1,))}, 1),
    ]
    for write in writes:
        with pytest.raises(ControllerMoved):
            write()
    assert store.read_topics() == {"t"}
    assert elected.events == []
