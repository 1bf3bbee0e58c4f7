"""Each thread of the channel is killed in a running system: whoever waits for it gets an end, and its owner sees it."""

from __future__ import annotations

import contextlib
import ctypes
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import run_kproto
from network_peers import until

import channel.broker.cluster
import channel.broker.fleet
import channel.node.controller_node
import channel.zookeeper.session
from channel.broker.cluster import EmbeddedCluster
from channel.broker.fleet import Fleet
from channel.broker.to_controller import ControllerInformation, NodeToControllerThread
from channel.broker.worker import Worker
from channel.clock import FOREVER, SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.errors import ChannelError, IllegalState
from channel.lead.events import ControllerEvent, ControllerEventManager, LeaderAndIsrResponseReceived
from channel.lead.leadership import Leadership
from channel.metadata.clients import MetadataSender
from channel.metrics import Metrics
from channel.network.brief_threads import BriefThreads
from channel.network.http_door import DoorHandler, HttpDoor
from channel.network.request import MessageRequest
from channel.network.server import ANONYMOUS
from channel.network.sockets import NameResolution
from channel.node.controller_node import ControllerNode
from channel.node.frame_relay import FrameRelay, channels_of_clients
from channel.rehearsal.scripted_controller import ScriptedController
from channel.security import SecurityConfig
from channel.tap import Tap, TapMapping
from channel.types import Node, SecurityProtocol
from channel.zookeeper.session import ZooKeeperSession
from kproto.api import ApiKey
from kproto.messages import AlterPartitionRequest

LOOPBACK = ("127.0.0.1", 0)
NO_ZOOKEEPER = "127.0.0.1:1"
REQUEST = MessageRequest(AlterPartitionRequest(broker_id=5), 3)


class Killed(BaseException):
    """No handler of errors expects it."""


def listening() -> socket.socket:
    """A listening socket whose ``accept`` has an end."""
    made = socket.create_server(LOOPBACK)
    made.settimeout(30)
    return made


def kill(thread: threading.Thread, wake: Callable[[], object]) -> None:
    """Raise ``Killed`` in a thread that waits, at its next step in Python; ``wake`` ends its wait.

    A thread that is at work may be within the code that gives back a lock: it would keep that for ever.
    """
    seen = [""]

    def waits() -> bool:
        seen.append(Path(f"/proc/self/task/{thread.native_id}/status").read_text())
        first, last = (re.findall(r"^(?:State:\tS|.*ctxt_switches:\t[0-9]+)", text, re.MULTILINE) for text in seen[-2:])
        return len(last) == 3 and first == last

    until(lambda: thread.native_id is not None and waits(), step=lambda: time.sleep(0.02))
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Killed))

    def step() -> None:
        wake()
        time.sleep(0.002)

    until(lambda: not thread.is_alive(), step=step)


def thread_named(part: str) -> Any:
    return next(each for each in threading.enumerate() if part in each.name)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def send_thread(stack: contextlib.ExitStack) -> None:
    """The requests of its brokers are dropped, with the error, and further ones too."""
    cluster = stack.enter_context(EmbeddedCluster(2))
    controller = stack.enter_context(ScriptedController(cluster))
    controller.wait_all()
    cluster.pause(1)
    controller.create_topic("orders")
    thread = thread_named("send-thread")
    kill(thread, thread.client.wakeup)
    assert controller.manager.failed_threads == [thread.name]
    controller.wait_all(30)
    controller.create_topic("later")
    controller.wait_all(30)
    cluster.resume(1)


def event_thread(stack: contextlib.ExitStack) -> None:
    """Queued events and all further ones are refused, and the owner hears of it."""
    refused: list[ControllerEvent] = []
    died = threading.Event()
    processor = SimpleNamespace(process=lambda event: time.sleep(0.01), preempt=refused.append)
    events = ControllerEventManager(1, processor, SYSTEM_CLOCK, Metrics(), on_died=died.set)
    events.start()
    stack.callback(events.close, 30)
    event = LeaderAndIsrResponseReceived(None, 0)
    kill(events, lambda: events.put(event))
    assert died.is_set()
    refused.clear()
    events.put(event)
    assert refused == [event]
    assert isinstance(events.error, Killed)


def network_thread(stack: contextlib.ExitStack) -> None:
    """Clients' connections end, calls into the thread end, and the cluster shows the error."""
    cluster = stack.enter_context(EmbeddedCluster(1))
    client = stack.enter_context(socket.create_connection((cluster[0].host, cluster[0].port), 30))
    until(lambda: bool(cluster[0].listener and cluster[0].listener.connections))
    kill(cluster._server, cluster._server.selector.wakeup)
    assert client.recv(1) == b""
    assert isinstance(cluster.error, Killed)
    cluster._server.call(lambda: None)


def node_to_controller_thread(stack: contextlib.ExitStack) -> None:
    """Requests that wait end with the error, others are refused, and the fleet shows it."""
    fleet = Fleet(NO_ZOOKEEPER, [5])
    stack.callback(fleet.close)
    thread = fleet._to_controller
    thread.start()
    answers: list[Any] = []
    asking = thread.channel(5, lambda: ControllerInformation(None, "PLAINTEXT"), FOREVER)
    for _ in range(3):
        asking.send_request(REQUEST, answers.append)
    assert fleet.error is None
    kill(thread, thread.client.wakeup)
    assert [type(each.error) for each in answers] == [Killed] * 3
    assert (thread.is_serving, asking.queue_size) == (False, 0)
    with pytest.raises(IllegalState, match="was ended by an error: Killed"):
        asking.send_request(REQUEST, answers.append)
    assert isinstance(fleet.error, Killed)


def metadata_sender(stack: contextlib.ExitStack) -> None:
    """Callers that wait for a topic get an error, and further ones too."""
    silent = stack.enter_context(listening())
    sender = stack.enter_context(MetadataSender([silent.getsockname()]))
    failures: list[Exception] = []

    def wait() -> None:
        try:
            sender.wait_for_topic("orders")
        except ChannelError as e:
            failures.append(e)

    waiting = threading.Thread(target=wait)
    waiting.start()
    stack.enter_context(silent.accept()[0])  # it has connected, and waits for the answer
    until(lambda: "orders" in sender.metadata._expires)
    kill(sender, sender.client.wakeup)
    waiting.join(30)
    wait()
    assert [type(each) for each in failures] == [IllegalState] * 2


def worker(stack: contextlib.ExitStack) -> None:
    """Tasks that wait are dropped, which their owners hear; others are refused."""
    made, release, dropped = Worker("doomed"), threading.Event(), []
    stack.callback(made.close)
    begun = threading.Event()
    made.submit(lambda: (begun.set(), release.wait(30)))
    assert begun.wait(30)
    made.submit(lambda: None, lambda: dropped.append(1))
    (thread,) = made._threads

    def wake() -> None:
        with contextlib.suppress(IllegalState):
            made.submit(lambda: None, lambda: dropped.append(2))

    # The exception hits the thread outside of a task: within one it would cost the task alone.
    release.set()
    until(lambda: not made._tasks)
    for _ in range(20):
        made._wake_all()
    kill(thread, wake)
    assert isinstance(made.error, Killed)
    with pytest.raises(IllegalState, match="ended by an error"):
        made.submit(lambda: None)
    assert not made._tasks


def frame_relay(stack: contextlib.ExitStack) -> None:
    """Frames that wait for an answer get none, others are refused, and the node sees it."""
    silent = stack.enter_context(listening())
    broker = Node(0, *silent.getsockname())
    plain = channels_of_clients(SecurityProtocol.PLAINTEXT, SecurityConfig())
    relay = stack.enter_context(FrameRelay("doomed-relay", lambda: [broker], plain))
    answers: list[bytes | None] = []
    relay(ANONYMOUS, bytes(20), answers.append)
    stack.enter_context(silent.accept()[0])
    kill(relay, relay._client.wakeup)
    assert isinstance(relay.error, Killed)
    assert answers == [None]
    relay(ANONYMOUS, bytes(20), answers.append)
    assert answers == [None] * 2


def balance(stack: contextlib.ExitStack) -> None:
    """Another takes its place, so that the leaders are balanced all the same, and the log tells of it."""
    checks: list[ControllerEvent] = []
    config = SimpleNamespace(leader_imbalance_check_interval_seconds=0.1)
    made: Any = SimpleNamespace(
        _lock=threading.Lock(), _is_closed=False, _put=checks.append, cluster=SimpleNamespace(config=config)
    )
    made._balance_after = partial(Leadership._balance_after, made)
    made._balance_after(0)
    first = made._scheduler
    kill(first, lambda: None)
    assert isinstance(first.error, Killed)
    assert made._scheduler is not first
    stack.callback(made._scheduler.shutdown, 30)
    seen = len(checks)
    until(lambda: len(checks) > seen)


def door(stack: contextlib.ExitStack) -> None:
    """Its port is closed, so that clients are refused, and its owner sees the error."""
    made = stack.enter_context(HttpDoor("doomed-door", *LOOPBACK, DoorHandler))
    kill(made._thread, lambda: None)
    assert isinstance(made.error, Killed)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(made.address, 30)


def session_renewal(stack: contextlib.ExitStack) -> None:
    """A session that is not renewed is an error of its owner."""
    session = ZooKeeperSession(NO_ZOOKEEPER, on_expired=lambda: None)
    stack.callback(session.close)

    def stop() -> None:
        raise Killed

    session._renew(SimpleNamespace(stop=stop))
    assert isinstance(session.error, Killed)
    node = ControllerNode(7, NO_ZOOKEEPER)
    stack.callback(node.close, 30)
    assert node.error is None
    node.controller.session.error = session.error
    assert node.error is session.error


def zookeeper_client(stack: contextlib.ExitStack) -> None:
    """Another session begins: the former one would keep its nodes, and tell of no change. It begins after a pause."""
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(channel.zookeeper.session, "PAUSE_S", 0.0)
    expired: list[object] = []
    session = ZooKeeperSession(NO_ZOOKEEPER, on_expired=lambda: expired.append(session._client))
    stack.callback(session.close, 30)
    session._client.start_async()

    def kill_thread(which: int) -> object:
        client = session._client
        handler = client.handler
        until(lambda: len(handler._workers) == 2 and client._connection._connection_routine is not None)
        queues = handler.completion_queue, handler.callback_queue
        thread = [*handler._workers, client._connection._connection_routine][which]
        kill(thread, lambda: [each.put(lambda: None) for each in queues])
        until(lambda: bool(expired))
        assert expired.pop() is client
        return client

    for which in range(3):
        former = kill_thread(which)
        until(lambda: session._client is not former)  # noqa: B023
    patch.setattr(channel.zookeeper.session, "PAUSE_S", 600.0)
    former = kill_thread(0)
    session.close(30)
    assert session._client is former
    assert session.error is None


def tap(stack: contextlib.ExitStack) -> None:
    """Its connections end, and the command that runs it ends with a status."""
    node = stack.enter_context(listening())
    recorder: Any = SimpleNamespace(
        opened=lambda *_, **__: None, record=lambda *_: None, closed=lambda *_: None, flush=lambda: None
    )
    made = stack.enter_context(Tap([TapMapping(LOOPBACK, node.getsockname())], recorder))
    client = stack.enter_context(socket.create_connection(made.listening[0], 30))
    stack.enter_context(node.accept()[0])
    until(lambda: made.connections == 1)
    kill(made._thread, made._waker.wake)
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    assert isinstance(made.error, Killed)


def name_resolution(stack: contextlib.ExitStack) -> None:
    """The next call gets a thread again."""
    threads, begun, release = BriefThreads("doomed-brief", 1), threading.Event(), threading.Event()
    first = threads.submit(lambda: (begun.set(), release.wait(30)))
    assert begun.wait(30)
    thread = thread_named("doomed-brief")
    kill_call = threading.Thread(target=kill, args=(thread, release.set))
    kill_call.start()
    kill_call.join(60)
    assert first.done()
    assert threads.submit(lambda: 7).result(30) == 7


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_brief_thread_that_dies_between_two_calls_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, original = BriefThreads("doomed-brief", 1), BriefThreads._next
    dead = threading.Event()

    def die(of: BriefThreads) -> None:
        dead.set()
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(BriefThreads, "_next", die)
        left = threads.submit(lambda: 6)
        assert dead.wait(30)
        until(lambda: not any(thread.name == "doomed-brief" for thread in threading.enumerate()))
    assert BriefThreads._next is original
    assert threads.submit(lambda: 7).result(30) == 7
    assert left.result(30) == 6


CASES = {
    "send thread": send_thread,
    "event thread": event_thread,
    "network thread": network_thread,
    "node-to-controller thread": node_to_controller_thread,
    "metadata sender": metadata_sender,
    "worker": worker,
    "frame relay": frame_relay,
    "scheduler of the leaders' balance": balance,
    "HTTP door": door,
    "session renewal, session's notice and end": session_renewal,
    "ZooKeeper client": zookeeper_client,
    "tap": tap,
    "name resolution, SASL computation": name_resolution,
}


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.__name__)
def test_whoever_waits_for_a_dead_thread_gets_an_end(case: Any, stack: contextlib.ExitStack) -> None:
    case(stack)


def test_every_thread_of_the_page_is_killed_here_but_those_that_only_queue_an_event() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Threads")[2].partition("## Locks")[0]
    rows = re.findall(r"^\| ([^|`]+?) \| `channel[^|]*\| ([^|]*) \|", table, flags=re.MULTILINE)
    assert {name for name, owns in rows if not owns.startswith("nothing: a timer")} == set(CASES)


# ---- the node-to-controller thread: one request that cannot be sent ends alone ---------------------------------------


class Unwritable:
    """A request whose body cannot be made."""

    api_key, oldest_version, latest_version = ApiKey.METADATA, 4, 9

    def build(self, version: int) -> list[bytes]:
        raise ValueError("no such broker")

    def __str__(self) -> str:
        return "a request without a body"


def test_a_request_that_cannot_be_written_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(1) as cluster:
        here = ControllerInformation(Node(0, cluster[0].host, cluster[0].port), "PLAINTEXT")
        thread = NodeToControllerThread("to-controller", "alter-partition", ChannelConfig(), SecurityConfig(), here)
        thread.start()
        try:
            ends: list[Any] = []
            first, second = (thread.channel(i, lambda: here, FOREVER) for i in (5, 6))

            def failing() -> ControllerInformation:
                raise KeyError("no snapshot")

            lost = thread.channel(7, failing, FOREVER)
            lost.send_request(REQUEST, ends.append)
            first.send_request(Unwritable(), ends.append)  # type: ignore[arg-type]
            until(lambda: len(ends) == 1)
            assert str(ends[0].error) == "no such broker"
            second.send_request(REQUEST, ends.append)  # no such API here: the version tells
            first.send_request(REQUEST, ends.append)
            until(lambda: len(ends) == 3)
            assert all(end.error is None and end.version_mismatch for end in ends[1:])
            assert thread.is_serving
        finally:
            thread.shutdown()
    assert len(ends) == 4
    assert "has ended" in str(ends[3].error)
    assert caplog.text.count("broker 7 cannot look for its controller") == 1


# ---- commands --------------------------------------------------------------------------------------------------------


def test_kproto_brokers_ends_with_a_status_when_a_thread_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[EmbeddedCluster] = []

    class Observed(EmbeddedCluster):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(channel.broker.cluster, "EmbeddedCluster", Observed)

    def end() -> None:
        until(lambda: bool(made) and made[0]._server.is_alive())
        kill(made[0]._server, made[0]._server.selector.wakeup)

    killer = threading.Thread(target=end)
    killer.start()
    ended = run_kproto("brokers", "--count", "1")
    killer.join(60)
    assert ended.exit_code not in (0, None)
    assert "the cluster has ended by itself: Killed; start it again" in ended.output


class StandIn:
    """Stands for a fleet or a node whose thread dies after its start."""

    metrics, endpoint, controller = Metrics(), SimpleNamespace(host="127.0.0.1", port=1), SimpleNamespace()
    error: BaseException | None = None
    left = False

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> StandIn:
        self.error = RuntimeError("the network client failed")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shut_down(self, **_: Any) -> None:
        pytest.fail("nobody can be asked for a controlled shutdown")


@pytest.mark.parametrize(
    ("module", "name", "arguments", "says"),
    [
        (channel.broker.fleet, "Fleet", ["brokers", "--zookeeper", NO_ZOOKEEPER], "the cluster"),
        (
            channel.node.controller_node,
            "ControllerNode",
            ["controller", "--id", "1", "--zookeeper", NO_ZOOKEEPER],
            "the controller",
        ),
    ],
)
def test_a_command_ends_with_a_status_when_its_owner_shows_an_error(
    module: Any, name: str, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, StandIn)
    monkeypatch.setattr("kproto.cli.controller._log_to_stderr", lambda **_: None)  # other tests have their own levels
    ended = run_kproto(*arguments)
    assert ended.exit_code not in (0, None)
    assert f"{says} has ended by itself: the network client failed; start it again" in ended.output


# ---- relatives: the system gives no thread, a start that fails -------------------------------------------------------


def test_names_are_resolved_again_once_the_system_gives_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    resolution, found = NameResolution(), []

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(40):  # more than may run at a time
            resolution.start("localhost", found.append)
    assert [type(each) for each in found] == [BlockingIOError] * 40
    found.clear()
    resolution.start("localhost", found.append)
    until(lambda: len(found) == 1)
    assert "127.0.0.1" in found[0] or "::1" in found[0]


def test_a_worker_without_threads_takes_no_task_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = Worker("starved", 2), threading.Event()

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            made.submit(done.set)
    assert not made._tasks
    made.submit(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        made.submit(done.set)  # the thread that there is takes it
    assert done.wait(30)
    assert made.close()


def test_a_worker_of_several_threads_always_ends() -> None:
    for _ in range(60):
        made = Worker("crowd", 8)
        for _ in range(8):
            made.submit(lambda: None)
        assert made.close(30)


def test_a_node_whose_start_fails_leaves_no_thread() -> None:
    node = ControllerNode(7, NO_ZOOKEEPER, quorum=[Node(3000, "127.0.0.1", 1)])

    def fail() -> None:
        raise OSError("no ZooKeeper")

    node.controller.start = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no ZooKeeper"):
        node.start()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("controller-7")]
