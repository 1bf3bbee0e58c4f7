"""A session whose server is a script: kazoo's own client takes each answer, and each loss of the connection."""

import struct
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import ReplyHeader
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from network_peers import until

from channel.errors import Disconnected, NodeTooLarge
from channel.zookeeper import session as session_module
from channel.zookeeper.session import NO_NODE, ReadMany, ZooKeeperSession

STAT = struct.pack(">qqqqiiiqiiq", 7, 8, 1, 2, 3, 4, 5, 9, 0, 6, 8)
CHANGED = WatchedEvent(EventType.CHANGED, "CONNECTED", "/n")
LOST = WatchedEvent(EventType.NONE, "CONNECTING", None)
NO_CHILDREN = struct.pack(">i", 0)
DATA = struct.pack(">i", 1) + b"x" + STAT
BULK, OLD = "Zookeeper version: 3.8.4", "Zookeeper version: 3.5.9"


class Server:
    """The far end of a session.

    Attributes:
        script: What becomes of the next requests: an error code, an answer's body, or None for a lost connection.
        version: The server's version.
        kinds: The types of the requests that arrived.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.client = session._client
        self.script: list[int | bytes | None] = []
        self.version = BULK
        self.kinds: list[type] = []
        self.client._call = self.take
        self.client.command = self.command
        self.client._stopped.clear()
        self.client._session_id = 1
        self.client.handler.dispatch_callback = lambda callback: callback.func(*callback.args)
        self.client._session_callback(KeeperState.CONNECTED)

    def take(self, request: Any, answer: Any) -> None:
        self.kinds.append(type(request))
        self.client._pending.append((request, answer, 1))
        outcome = self.script.pop(0) if self.script else self.found(request)
        if outcome is None:
            self.lose()
        else:
            error, body = (outcome, b"") if isinstance(outcome, int) else (0, outcome)
            self.client._connection._read_response(ReplyHeader(1, 0, error), body, 0)

    def command(self, _: bytes) -> str:
        if not self.client.connected:
            raise ConnectionLoss
        return self.version

    @staticmethod
    def found(request: Any) -> bytes:
        if not isinstance(request, ReadMany):
            return DATA
        each = struct.pack(">i?i", 4, False, 0) + DATA
        return each * len(request.paths) + struct.pack(">i?i", -1, True, -1)

    def lose(self) -> None:
        """Lose the connection, and reach a server again."""
        self.client._session_callback(KeeperState.CONNECTING)
        self.client._session_callback(KeeperState.CONNECTED)

    def watches(self) -> int:
        """How many watch functions kazoo holds."""
        tables = self.client._data_watchers, self.client._child_watchers
        return sum(len(found) for table in tables for found in table.values())

    def watch(self) -> Any:
        """The one watch function that kazoo holds."""
        tables = self.client._data_watchers, self.client._child_watchers
        (found,) = (each for table in tables for functions in table.values() for each in functions)
        return found


@pytest.fixture
def server() -> Iterator[Server]:
    session = ZooKeeperSession("127.0.0.1:1")  # never started: the script stands for the connection
    yield Server(session)
    session.forget_in_child()
    session._client.close()


def test_a_read_that_is_sent_again_after_a_lost_connection_registers_its_watch(server: Server) -> None:
    called: list[str] = []
    server.session.watch_children("/n", lambda: called.append("/n"))
    server.script = [None, NO_CHILDREN]
    assert server.session.children("/n") == []
    assert server.watches() == 1
    server.lose()
    assert called == ["/n"]


def test_contents_that_end_each_connection_are_refused(server: Server) -> None:
    server.script = [None] * 3
    with pytest.raises(NodeTooLarge, match=r"1100000 bytes; its limit is jute\.maxbuffer"):
        server.session.set("/n", bytes(1_100_000))


def test_a_read_that_was_answered_before_the_loss_keeps_its_one_call(server: Server) -> None:
    called: list[str] = []
    for path in ("/answered", "/lost"):
        server.session.watch_node(path, partial(called.append, path))
    server.script = [DATA, None, DATA]
    assert [found and found[0] for found in server.session.get_many(["/answered", "/lost"])] == [b"x", b"x"]
    assert called == ["/answered"]
    assert server.watches() == 1
    server.lose()
    assert called == ["/answered", "/lost"]


def test_a_missing_node_s_children_are_watched_by_the_read_that_finds_the_node(server: Server) -> None:
    server.session.watch_children("/n", lambda: None)
    server.script = [NO_NODE, NO_CHILDREN, NO_CHILDREN]
    assert server.session.children_of_many(["/n"]) == [None]
    assert server.watches() == 0
    for _ in range(2):
        assert server.session.children("/n") == []
        assert server.watches() == 1


def test_a_missing_node_is_watched_once(server: Server) -> None:
    server.session.watch_node("/n", lambda: None)
    server.script = [NO_NODE, NO_NODE]
    assert server.session.get_many(["/n"]) == [None]
    assert server.watches() == 1


@pytest.fixture
def watched(server: Server) -> tuple[Any, list[str]]:
    """The watch function of a node that was read, and the calls of the node's handler."""
    called: list[str] = []
    server.session.watch_node("/n", lambda: called.append("/n"))
    server.session.get("/n")
    return server.watch(), called


def test_a_node_has_one_watch_however_often_it_is_read(server: Server, watched: tuple[Any, list[str]]) -> None:
    for _ in range(3):
        assert server.session.get("/n")
        assert server.session.exists("/n")
    assert server.watch() == watched[0]


def test_a_loss_that_is_told_after_the_reconnection_is_a_change(watched: tuple[Any, list[str]]) -> None:
    fire, called = watched
    fire(LOST)
    assert called == ["/n"]


def test_a_lost_watch_is_told_once(server: Server, watched: tuple[Any, list[str]]) -> None:
    _, called = watched
    server.client._session_callback(KeeperState.CONNECTING)
    assert called == []
    server.client._session_callback(KeeperState.CONNECTED)
    server.session._state_changed(server.client, KazooState.CONNECTED)
    assert called == ["/n"]


def test_a_removed_watch_is_not_called(server: Server, watched: tuple[Any, list[str]]) -> None:
    fire, called = watched
    server.session.unwatch("/n")
    fire(CHANGED)
    server.session.get("/n")
    assert server.watch() == fire  # that of the read before
    assert called == []


def test_watches_of_a_session_that_ended_are_not_called(server: Server, watched: tuple[Any, list[str]]) -> None:
    fire, called = watched
    server.session._connected.clear()
    fire(LOST)
    with server.session._lock:
        server.session._make_client()
    fire(CHANGED)
    fire(LOST)
    server.session._client._session_callback(KeeperState.CONNECTED)
    assert called == []
    fire._replace(client=server.session._client)(CHANGED)
    assert called == ["/n"]


def test_no_watch_is_called_after_the_end(server: Server, watched: tuple[Any, list[str]]) -> None:
    fire, called = watched
    server.session.forget_in_child()
    fire(CHANGED)
    assert called == []


def test_a_bulk_read_is_not_sent_again_to_a_server_that_answers_none(server: Server) -> None:
    paths = [f"/{i}" for i in range(1_500)]
    reading = server.session.get_unwatched(paths)
    found = [next(reading) for _ in range(10)]
    server.version = OLD
    server.script = [None]
    found += reading
    assert [each and each[0] for each in found] == [b"x"] * 1_500
    assert server.kinds.count(ReadMany) == 6  # the last was lost; later requests name single nodes


def test_a_bulk_read_waits_for_the_next_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def reconnect(_: float) -> bool:
        server.client._session_callback(KeeperState.CONNECTED)
        return True

    monkeypatch.setattr(server.session._connected, "wait", reconnect)
    reading = server.session.get_unwatched([f"/{i}" for i in range(1_500)])
    found = [next(reading)]
    server.client._session_callback(KeeperState.CONNECTING)
    assert [each and each[0] for each in [*found, *reading]] == [b"x"] * 1_500
    assert server.kinds == [ReadMany] * 6


def test_an_answer_about_bulk_reads_holds_for_its_connection_alone(server: Server) -> None:
    def lost_meanwhile(_: bytes) -> str:
        server.lose()
        return BULK

    server.client.command = lost_meanwhile
    assert not server.session._serves_bulk_reads()
    server.client.command = lambda _: OLD
    assert not server.session._serves_bulk_reads()


def test_an_owner_that_fails_at_the_end_of_a_session_gets_the_next_session(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("the owner's fault")

    session = ZooKeeperSession("127.0.0.1:1", on_expired=fail)
    expired = session._client
    renewing = threading.Thread(target=session._renew, args=(expired,), daemon=True)
    renewing.start()
    until(lambda: session._client is not expired)
    session.close()
    renewing.join(60)
    assert not renewing.is_alive()
    assert "the owner's fault" in caplog.text


def test_a_start_that_waits_for_zookeeper_says_so(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr(session_module, "_NOTICE_S", 0.05)
    session = ZooKeeperSession("127.0.0.1:1")
    with pytest.raises(Disconnected, match="no ZooKeeper answers at 127"):
        session.start(0.5)
    assert "no ZooKeeper answers at 127.0.0.1:1 yet; still trying, for 0.5 s" in caplog.text


def test_the_end_of_a_session_with_a_time_limit_does_not_wait_for_its_renewal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = threading.Event()
    session = ZooKeeperSession("127.0.0.1:1")
    session._renewing = threading.Thread(target=gate.wait, daemon=True)
    session._renewing.start()
    session.close(0.1)
    assert "zookeeper-session-closing has not ended within 0.1 s" in caplog.text
    gate.set()
    session.close(0.1)


def test_a_session_that_is_closed_while_its_renewal_stops_it_is_closed_once_it_has_stopped() -> None:
    session = ZooKeeperSession("127.0.0.1:1")
    stopping, may_stop, calls = threading.Event(), threading.Event(), list[str]()

    class Client:
        """As kazoo's: of two calls of ``stop`` the second returns at once, and ``close`` fails before the first has."""

        def stop(self) -> None:
            if stopping.is_set():
                may_stop.set()
                return
            stopping.set()
            may_stop.wait(60)
            calls.append("stopped")

        def close(self) -> None:
            calls.append("closed")

    client = Client()
    session._client = client
    session._renewing = threading.Thread(target=session._renew, args=(client,), daemon=True)
    session._renewing.start()
    assert stopping.wait(60)
    session.close()
    assert calls[0] == "stopped"
    assert "closed" in calls


def test_a_client_that_begins_a_session_by_itself_before_it_is_stopped_is_renewed_once() -> None:
    """As kazoo's does at once, where its renewal is slow to begin: then the stop ends that session, too."""
    told, may_go_on = list[int](), threading.Event()

    def expired() -> None:
        told.append(session.id)
        may_go_on.wait(60)

    session = ZooKeeperSession("127.0.0.1:1", on_expired=expired)
    client = session._client
    session._state_changed(client, KazooState.LOST)
    renewing = session._renewing
    until(lambda: told)
    client._session_id, client._session_passwd = 7, b""
    client._live.set()
    for state in (KazooState.CONNECTED, KazooState.LOST):
        session._state_changed(client, state)
    assert session._renewing is renewing
    assert not session._connected.is_set()
    may_go_on.set()
    until(lambda: session._client is not client)
    session.close()
    assert told == [0]
    assert session.error is None


def test_an_owner_that_closes_its_expired_session_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def close() -> None:
        session.close(0.2)
        ended.set()

    session = ZooKeeperSession("127.0.0.1:1", on_expired=close)
    session._state_changed(session._client, KazooState.LOST)
    assert ended.wait(60)
    session._renewing.join(60)
    assert "has not ended" not in caplog.text
