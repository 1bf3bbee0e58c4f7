"""A candidate for controller goes on, whatever happens to its znodes, its observer, its session or its threads."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from network_peers import until

from channel.config import ChannelConfig
from channel.errors import BadVersion, ControllerMoved, IllegalState, NodeExists, NoNode, SessionExpired
from channel.lead import election as module
from channel.lead.election import NO_CONTROLLER, Controller, ControllerChange
from channel.lead.events import BrokerChange
from channel.lead.leadership import LeadershipSettings
from channel.metrics import Metrics
from channel.zookeeper.cluster_state import WonElection
from channel.zookeeper.session import Check, Create, Delete, SetData, Stat, Transaction, ZooKeeperSession
from channel.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH


class Session:
    """A session with znodes in memory; a watched change calls its handler on the thread of the change."""

    id = 1
    is_connected = True
    is_closed = False

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self._handlers: dict[str, Callable[[], object]] = {}

    def watch_node(self, path: str, handler: Callable[[], object]) -> None:
        self._handlers[path] = handler

    def ensure(self, path: str) -> None:
        self.nodes.setdefault(path, (b"", 0))

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found = [(path, self.nodes.get(path)) for path in paths]
        return [None if node is None else (node[0], Stat(0, node[1], self.id)) for _, node in found]

    def exists(self, path: str) -> Stat | None:
        found = self.get_many([path])[0]
        return None if found is None else found[1]

    def create(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def transactions(self, many: Sequence[Sequence[Any]]) -> list[Transaction]:
        return [self.transaction(each) for each in many]

    def transaction(self, operations: Sequence[Any]) -> Transaction:
        for i, operation in enumerate(operations):
            node = self.nodes.get(operation.path)
            error: Exception | None = None
            match operation:
                case Create() if node is not None:
                    error = NodeExists(operation.path)
                case Check() | SetData() | Delete() if node is None:
                    error = NoNode(operation.path)
                case Check() | SetData() if operation.version not in (-1, node and node[1]):
                    error = BadVersion(operation.path)
            if error is not None:
                return Transaction((), i, cast("Any", error))
        results = []
        for operation in operations:
            match operation:
                case Create() | SetData():
                    self.write(operation.path, operation.data)
                case Delete():
                    del self.nodes[operation.path]
                    self._changed(operation.path)
            results.append(self.exists(operation.path))
        return Transaction(tuple(results), None, None)

    def write(self, path: str, data: bytes) -> None:
        """Write a znode, as somebody else may do."""
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        self.nodes[path] = data, version
        self._changed(path)

    def _changed(self, path: str) -> None:
        if path in self._handlers:
            self._handlers[path]()


class Leading:
    """A leadership that notes its life, and fails as it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.failure: Exception | None = None

    def __call__(self, session: Any, election: WonElection, put: Any) -> Any:
        made, epoch = self, election.epoch

        class Leadership:
            def start(self) -> None:
                made.begun.append(epoch)
                if made.failure is not None:
                    raise made.failure

            def process(self, event: object) -> None:
                if made.failure is not None:
                    raise made.failure

            def close(self, timeout_s: float | None = None) -> None:
                made.ended.append(epoch)

        return Leadership()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def leading() -> Leading:
    return Leading()


@pytest.fixture
def candidate(session: Session, leading: Leading) -> Iterator[Controller]:
    made = Controller(7, cast("ZooKeeperSession", session), leading, Metrics())
    yield made
    made.close()


def test_an_observer_of_elections_that_fails_does_not_hold_up_the_end(session: Session, leading: Leading) -> None:
    def observe(active_id: int, epoch: int) -> None:
        raise OSError("no space left on device")

    controller = Controller(7, cast("ZooKeeperSession", session), leading, Metrics(), on_change=observe)
    controller.start()
    until(lambda: controller.is_active)
    closing = threading.Thread(target=controller.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert leading.ended == [1]
    assert CONTROLLER not in session.nodes


def test_an_observer_of_elections_that_ends_the_event_thread_does_not_hold_up_the_end(
    session: Session, leading: Leading
) -> None:
    def observe(active_id: int, epoch: int) -> None:
        if active_id == NO_CONTROLLER:
            raise SystemExit("the thread ends before the resignation is reported")

    controller = Controller(7, cast("ZooKeeperSession", session), leading, Metrics(), on_change=observe)
    controller.start()
    until(lambda: controller.is_active)
    began = time.monotonic()
    controller.close(90)
    assert time.monotonic() - began < 60
    assert controller.events.has_died
    assert leading.ended == [1]


@pytest.mark.parametrize("contents", [b"rubbish", b"", b"2147483647", b"2147483648", b"9" * 5_000])
def test_a_damaged_controller_epoch_is_counted_on_by_the_version_of_its_znode(
    session: Session, candidate: Controller, contents: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    session.write(CONTROLLER_EPOCH, b"0")
    session.write(CONTROLLER_EPOCH, b"1")
    session.write(CONTROLLER_EPOCH, contents)
    version = session.exists(CONTROLLER_EPOCH).version
    candidate.start()
    until(lambda: candidate.epoch == version + 1)
    assert "which is no controller epoch" in caplog.text
    assert session.nodes[CONTROLLER_EPOCH][0] == str(version + 1).encode()


def test_a_controller_that_cannot_begin_leaves_the_election_to_others_for_a_while(
    candidate: Controller, leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_AFTER_S", 3_600)
    leading.failure = ValueError("a cause that lasts")
    candidate.start()
    until(lambda: leading.ended == [1])
    looks = threading.Semaphore(0)
    monkeypatch.setattr(candidate, "_look", looks.release)
    for _ in range(10):
        candidate.events.put(ControllerChange())  # /controller is free: its deletion was one of these
    assert all(looks.acquire(timeout=60) for _ in range(10))
    assert leading.begun == [1]
    monkeypatch.undo()
    leading.failure = None
    assert candidate._again is not None
    candidate._again.function()  # the pause is over
    until(lambda: candidate.epoch == 2)


def test_each_failure_to_begin_doubles_the_pause_up_to_half_a_minute(
    candidate: Controller, leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Pause:
        name, daemon = "", False

        def __init__(self, seconds: float, stand: Callable[[], None]) -> None:
            pauses.append(seconds)
            self.stand = stand

        def start(self) -> None:
            if len(pauses) < 8:
                threading.Thread(target=self.stand).start()

        def cancel(self) -> None:
            pass

    monkeypatch.setattr(module.threading, "Timer", Pause)
    leading.failure = ValueError("a cause that lasts")
    candidate.start()
    until(lambda: len(pauses) == 8)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_controller_whose_epoch_znode_was_written_stands_again(
    session: Session, candidate: Controller, leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_AFTER_S", 0.01)
    candidate.start()
    until(lambda: candidate.epoch == 1)
    session.write(CONTROLLER_EPOCH, b"41")
    leading.failure = ControllerMoved("the version of /controller_epoch is not 1 any more")
    candidate.events.put(BrokerChange())
    until(lambda: leading.ended == [1])
    leading.failure = None
    until(lambda: candidate.epoch > 41)


def test_a_session_that_expires_while_the_candidate_starts_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Expiring(Session):
        """A session that expires at its first request; its end waits for the thread that renews it, as a real one's."""

        def __init__(self, hosts: str, *, on_expired: Callable[[], None], **_: Any) -> None:
            super().__init__()
            self.renewing = threading.Thread(target=on_expired, daemon=True)

        def start(self) -> None:
            """It begins."""

        def ensure(self, path: str) -> None:
            self.renewing.start()
            raise SessionExpired("the ZooKeeper session has expired")

        def close(self, timeout_s: float | None = None) -> None:
            self.is_closed = True
            self.renewing.join(60)
            assert not self.renewing.is_alive()

    monkeypatch.setattr(module, "ZooKeeperSession", Expiring)
    controller = Controller(7, "127.0.0.1:1", Leading(), Metrics())
    with pytest.raises(SessionExpired):
        controller.start()


def test_a_leadership_whose_send_thread_died_cannot_go_on(session: Session) -> None:
    events: list[Any] = []
    made: dict[str, Any] = {}

    def make_channels(*_: Any, **options: Any) -> Any:
        made.update(options)

    settings = LeadershipSettings(controller_id=7, config=ChannelConfig(), metrics=Metrics(), channels=make_channels)
    leadership = settings(cast("ZooKeeperSession", session), WonElection(1, 1), events.append)
    made["on_thread_failed"]("Controller-7-to-brokers-0-send-thread", [1, 2])
    (event,) = events
    with pytest.raises(IllegalState, match=r"Controller-7-to-brokers-0-send-thread has died, and brokers \[1, 2\]"):
        leadership.process(event)
