"""What the controller's store keeps of ZooKeeper's answers; ``tests/kafka`` has a real server."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, cast

import pytest

from channel.errors import NoNode, SessionExpired
from channel.lead import zookeeper_store
from channel.lead.events import (
    BrokerChange,
    BrokerModifications,
    PartitionReassignmentIsrChange,
    TopicChange,
)
from channel.lead.zookeeper_store import ZooKeeperStore
from channel.types import Broker, EndPoint, LeaderAndIsr, ReplicaAssignment
from channel.zookeeper import znodes
from channel.zookeeper.session import Operation, Stat, Transaction, ZooKeeperSession
from kproto.types import TopicPartition


class Contents(bytes):
    """A znode's contents, counted while they are in memory."""

    alive: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        Contents.alive += 1
        Contents.most = max(Contents.most, Contents.alive)

    def __del__(self) -> None:
        Contents.alive -= 1


class Session:
    """A session in which every second partition's state is the same."""

    def get_unwatched(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat]]:
        for i, _ in enumerate(paths):
            state = LeaderAndIsr(1, (1, 2), i * (i % 2))
            yield Contents(znodes.encode_partition_state(state, 1)), Stat(1, 0, 0)


def test_a_read_of_many_states_keeps_the_states_and_not_their_contents() -> None:
    store = ZooKeeperStore(cast("ZooKeeperSession", cast("Any", Session())), lambda event: None, 0)
    partitions = [TopicPartition("t", i) for i in range(5_000)]
    states = store.read_partition_states(partitions)
    assert [states[tp].leader_and_isr.leader_epoch for tp in partitions] == [i * (i % 2) for i in range(5_000)]
    assert states[partitions[0]] is states[partitions[2]]
    assert Contents.most < 1_100


class Transacting:
    """A session whose transactions end with this error, or without one."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def transactions(self, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
        failed = None if self.error is None else len(many[0]) - 1
        return [Transaction([None] * len(operations), failed, self.error) for operations in many]


def test_an_assignment_is_written_or_its_topic_is_gone_or_the_store_fails() -> None:
    def written(error: Exception | None) -> bool:
        store = ZooKeeperStore(cast("ZooKeeperSession", cast("Any", Transacting(error))), lambda event: None, 0)
        return store.write_assignment("t", znodes.TopicZnode({0: ReplicaAssignment((1, 2))}))

    assert written(None)
    assert not written(NoNode("/brokers/topics/t"))
    with pytest.raises(SessionExpired):
        written(SessionExpired("gone"))


class Watched:
    """A session whose permanent znodes have the given children, and whose handlers a test calls."""

    def __init__(self, children: dict[str, list[str]]) -> None:
        self.names = children
        self.handlers: dict[str, Callable[[], object]] = {}

    def watch_children(self, path: str, handler: Callable[[], object]) -> None:
        self.handlers[path] = handler

    watch_node = watch_children

    def unwatch(self, path: str) -> None:
        self.handlers.pop(path, None)

    def children(self, path: str) -> list[str]:
        if path not in self.names:
            raise NoNode(path)
        return self.names[path]

    def ensure(self, path: str) -> None:
        self.names[path] = []

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        contents = znodes.encode_broker(Broker(7, (EndPoint("h", 9092),)), "3.9", 0)
        return [(contents, Stat(5, 0, 1)) if path.startswith(znodes.BROKER_IDS) else None for path in paths]


def _store(session: Watched, events: list[Any]) -> ZooKeeperStore:
    return ZooKeeperStore(cast("ZooKeeperSession", cast("Any", session)), events.append, 0)


def test_children_that_no_broker_or_topic_is_named_after_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    names = {
        znodes.BROKER_IDS: ["7", "007", "99999999999", "abc", "\u0663"],
        znodes.TOPICS: ["orders", "a b", "n" * 250, ".."],
    }
    store = _store(Watched(names), [])
    assert [broker.id for broker in store.read_brokers()] == [7]
    assert store.read_topics() == {"orders"}
    for name in ("/brokers/ids/007", "/brokers/ids/99999999999", "/brokers/ids/abc", "'a b'"):
        assert name in caplog.text


def test_a_permanent_znode_that_was_deleted_is_created_and_watched_again(caplog: pytest.LogCaptureFixture) -> None:
    session = Watched({})
    store = _store(session, [])
    for read, path in [
        (store.read_brokers, znodes.BROKER_IDS), (store.read_topics, znodes.TOPICS),
        (store.read_topic_deletions, znodes.ADMIN_DELETE_TOPICS), (store.read_isr_changes, znodes.ISR_CHANGES),
        (store.read_log_dir_failures, znodes.LOG_DIR_EVENTS),
    ]:  # fmt: skip
        assert not any(cast("Any", read()))
        assert path in session.names
        assert path in session.handlers
        assert f"ZooKeeper has no {path}" in caplog.text


def test_a_watch_that_is_over_is_forgotten() -> None:
    events: list[Any] = []
    session = Watched({})
    store = _store(session, events)
    for i in range(100):
        tp = TopicPartition("t", i)
        store.read_partition_states([tp], watch=True)
        session.handlers[znodes.partition_state_path(tp)]()
        store.read_broker(i)
        store.read_assignments([f"topic-{i}"])
    assert events == [PartitionReassignmentIsrChange(TopicPartition("t", i)) for i in range(100)]
    kept = {znodes.broker_path(i) for i in range(100)}
    assert session.handlers.keys() == store._watched == kept


def test_a_change_of_the_brokers_comes_before_the_topic_that_was_created_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long brokers that go together are waited for; the end of each registration waits for nothing."""
    monkeypatch.setattr(zookeeper_store, "_SETTLING_S", 600)
    events: list[Any] = []
    session = Watched({znodes.BROKER_IDS: ["7"], znodes.TOPICS: []})
    store = _store(session, events)
    store.read_brokers()
    store.read_topics()
    session.handlers[znodes.BROKER_IDS]()
    session.handlers[znodes.broker_path(7)]()
    assert events == [BrokerModifications(7)]
    session.handlers[znodes.TOPICS]()
    session.handlers[znodes.TOPICS]()
    assert events == [BrokerModifications(7), BrokerChange(), TopicChange(), TopicChange()]


def test_a_change_of_the_brokers_waits_for_no_other_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_store, "_SETTLING_S", 0.001)
    events: SimpleQueue[Any] = SimpleQueue()
    session = Watched({znodes.BROKER_IDS: ["7"]})
    store = ZooKeeperStore(cast("ZooKeeperSession", cast("Any", session)), events.put, 0)
    store.read_brokers()
    session.handlers[znodes.BROKER_IDS]()
    assert events.get(timeout=60) == BrokerChange()


def test_a_change_of_the_brokers_is_not_lost_though_the_system_gives_no_thread_for_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    events: list[Any] = []
    session = Watched({znodes.BROKER_IDS: ["7"], znodes.TOPICS: []})
    store = _store(session, events)
    store.read_brokers()
    store.read_topics()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        session.handlers[znodes.BROKER_IDS]()
    session.handlers[znodes.TOPICS]()
    assert events == [BrokerChange(), TopicChange()]
