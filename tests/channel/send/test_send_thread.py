"""The send threads' inside: wrong answers, the order of taking down, faults that must end no thread, or be told."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from network_peers import until
from scripted_broker import answer

from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, ClientClosed, Disconnected, IllegalState
from channel.metrics import Metrics
from channel.network.request import ClientRequest, ClientResponse
from channel.send import manager as channel_manager
from channel.send.encoded_requests import ControlRequest, ListenerNotExpressible, SharedRequest, SingleRequest
from channel.send.manager import GROUP, ControllerChannelManager
from channel.send.send_thread import BrokerRequests, DroppedRequest, Outcome, RequestSendThread
from channel.types import Broker, EndPoint, Node
from kproto.api import ApiKey
from kproto.codec import encode
from kproto.errors import ConfigurationError, OutOfRange
from kproto.fanout import SharedBody
from kproto.messages import UpdateMetadataRequest, UpdateMetadataResponse

BROKER = Broker(1, (EndPoint("127.0.0.1", 1),))


class FakeClient:
    """Always ready; answers at once, to another api than it was asked as often as told."""

    clock = SYSTEM_CLOCK

    def __init__(self, notes: list[str], wrong_answers: int = 0) -> None:
        self.notes = notes
        self.wrong_answers = wrong_answers
        self.active = True
        self.newly_ready: list[str] = []
        self.correlation_id = 0
        self._pending: list[ClientRequest] = []
        self._changed = threading.Event()

    def ready(self, node: Node) -> bool:
        return True

    is_ready = ready

    def request(self, node_id: str, builder: Any, callback: Any, now: int) -> ClientRequest:
        if not self.active:
            raise ClientClosed("closed")
        self.correlation_id += 1
        request = ClientRequest(node_id, builder, self.correlation_id, 0, 1000, callback=callback)
        self._pending.append(request)
        self._changed.set()
        return request

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        self._changed.wait(min(timeout_ms, 10_000) / 1000)
        self._changed.clear()
        if not self.active:
            raise ClientClosed("closed")
        pending, self._pending = self._pending, []
        responses = [ClientResponse(r, 0, UpdateMetadataResponse()) for r in pending]
        for response in responses:
            if self.wrong_answers:
                self.wrong_answers -= 1
                response.request.api_key = ApiKey.METADATA
            response.complete()
        return responses

    def wakeup(self) -> None:
        self._changed.set()

    def close_node(self, node_id: str) -> None:
        self.notes.append(f"close connection {node_id}")

    forget_node = close_node

    def initiate_close(self) -> None:
        self.active = False
        self.wakeup()

    def close(self) -> None:
        self.notes.append("client closed")


def request(number: int, **fields: Any) -> SingleRequest:
    return SingleRequest(UpdateMetadataRequest(controller_id=number, **fields), 8)


@pytest.fixture
def dropped() -> list[tuple[int, DroppedRequest]]:
    return []


@pytest.fixture(params=[1, "per_broker"], ids=["one-thread", "per-broker"])
def make(request: pytest.FixtureRequest, dropped: list[Any]) -> Iterator[Callable[..., ControllerChannelManager]]:
    """Builds managers, in both settings of their threads, and shuts them down."""
    made: list[ControllerChannelManager] = []

    def build(*brokers: Broker, epoch: Callable[[], int] = lambda: 5, **options: Any) -> ControllerChannelManager:
        def hear(broker_id: int, items: list[DroppedRequest]) -> None:
            dropped.extend((broker_id, item) for item in items)

        options.setdefault("send_threads", request.param)
        made.append(ControllerChannelManager(1, epoch, on_dropped=hear, **options))
        made[-1].start(brokers)
        return made[-1]

    yield build
    for manager in made:
        manager.close()


@pytest.fixture
def with_client(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], FakeClient]], None]:
    """Gives each send thread a client that a function makes."""
    return lambda new: monkeypatch.setattr(ControllerChannelManager, "_new_client", lambda *_, **__: new())


@pytest.mark.conformance("RST-10")
def test_an_answer_to_another_api_is_an_error_and_no_answer(
    make, with_client, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []
    with_client(lambda: FakeClient(notes, wrong_answers=1))
    manager = make(BROKER)
    manager.send_request(1, request(1), lambda response: notes.append("called back for 1"))
    manager.send_request(1, request(2), lambda response: notes.append("called back for 2"))
    until(lambda: "called back for 2" in notes)
    manager.close()
    assert notes == ["close connection 1", "called back for 2", "client closed"]
    error = next(r for r in caplog.records if r.levelname == "ERROR")
    assert "unexpected" in str(error.exc_info)
    assert "UpdateMetadata" in str(error.exc_info)


@pytest.mark.conformance("RST-14")
def test_a_broker_is_taken_down_in_order(make, with_client, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    class NotedMetrics(Metrics):
        def remove(self, group: str, name: str | None = None, tags: Any = None) -> None:
            if group == GROUP:
                notes.append(f"remove {name} {dict(tags)}")
            super().remove(group, name, tags)

    class NotedRequests(BrokerRequests):
        def close(self) -> list[DroppedRequest]:
            notes.append("queue cleared")
            return super().close()

    monkeypatch.setattr(channel_manager, "BrokerRequests", NotedRequests)
    with_client(lambda: FakeClient(notes))
    manager = make(BROKER, metrics=NotedMetrics())
    shutdown = RequestSendThread.shutdown

    def noted_shutdown(thread: RequestSendThread, timeout_s: float | None = None) -> bool:
        has_ended = shutdown(thread, timeout_s)
        notes.append(f"thread shut down: {has_ended}")
        return has_ended

    monkeypatch.setattr(RequestSendThread, "shutdown", noted_shutdown)
    manager.remove_broker(1)
    tags = {"broker-id": "1"}
    assert notes == [
        "thread shut down: True",
        "client closed",
        "queue cleared",
        f"remove QueueSize {tags}",
        f"remove RequestRateAndQueueTimeMs {tags}",
    ]
    assert manager.broker_ids == []


def test_one_of_several_brokers_leaves_a_thread_that_goes_on(scripted, dropped: list[Any]) -> None:
    first, second, answered = scripted(), scripted(), []
    with ControllerChannelManager(1, lambda: 5, send_threads=1) as manager:
        manager.start([first.broker(1), second.broker(2)])
        for broker_id in (1, 2):
            manager.send_request(broker_id, request(broker_id), answered.append)
        until(lambda: len(answered) == 2)
        (thread,) = [t for t in threading.enumerate() if t.name.endswith("-send-thread")]
        manager.remove_broker(1)
        assert thread.is_alive()
        until(lambda: all(s.fileno() < 0 for s in first.sockets))
        manager.send_request(2, request(3), answered.append)
        until(lambda: len(answered) == 3)
        manager.add_broker(first.broker(1))
        manager.send_request(1, request(4), answered.append)
        until(lambda: len(answered) == 4)
        assert first.seen[-1].correlation_id == 0  # its ids begin again with its channel
    assert not thread.is_alive()


def test_brokers_are_spread_over_the_threads_there_may_be(scripted) -> None:
    brokers, threads, answered = [scripted() for _ in range(5)], set(), []

    def callback(response: Any) -> None:
        threads.add(threading.current_thread().name)
        answered.append(response)

    with ControllerChannelManager(1, lambda: 5, send_threads=2) as manager:
        manager.start([broker.broker(n) for n, broker in enumerate(brokers)])
        for n in range(5):
            manager.send_request(n, request(n), callback)
        until(lambda: len(answered) == 5)
    assert threads == {f"Controller-1-to-brokers-{n}-send-thread" for n in (0, 1)}


def test_a_client_that_cannot_be_closed_keeps_no_dead_broker(
    make, with_client, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(FakeClient):
        def close(self) -> None:
            raise OSError("not now")

    answered: list[Any] = []
    with_client(lambda: Stubborn([]))
    manager = make(BROKER)
    manager.remove_broker(1)
    assert manager.broker_ids == []
    assert "not now" in caplog.text
    assert manager.metrics.value(GROUP, "TotalQueueSize") == 0
    manager.add_broker(BROKER)
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)


def test_a_broker_that_is_added_while_its_thread_dies_loses_no_request_in_silence(
    make, scripted, dropped: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are dropped and reported, or another thread sends them."""
    first, second, answered = scripted(), scripted(), []
    manager = make(first.broker(1))
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    thread = manager._brokers[1].serving.thread
    reports, added = manager._thread_failed, threading.Event()

    def die() -> None:
        raise MemoryError("a fault in the thread itself")

    def report(dying: RequestSendThread) -> None:
        reports(dying)
        assert added.wait(60)  # the broker is added between the report and the thread's end

    monkeypatch.setattr(thread, "_on_failed", report)
    thread.call_soon(die)
    until(lambda: manager.failed_threads == [thread.name])
    manager.add_broker(second.broker(2))
    manager.send_request(2, request(2), answered.append)
    added.set()
    until(lambda: len(answered) + len(dropped) == 2)
    assert manager.metrics.value(GROUP, "TotalQueueSize") == 0


def test_a_callback_that_adds_a_broker_is_refused_while_another_thread_waits_for_it(make, scripted) -> None:
    """The other thread holds the lock that both need, until the callback has returned."""
    broker, called, removing, errors = scripted(), threading.Event(), threading.Event(), []
    manager = make(broker.broker())

    def callback(response: Any) -> None:
        called.set()
        assert removing.wait(60)
        while manager._changing.acquire(timeout=0.001):  # not yet the remover's, who waits for this thread with it
            manager._changing.release()
        for call in (lambda: manager.add_broker(BROKER), lambda: manager.start([BROKER]), manager.close):
            try:
                call()
            except IllegalState as e:
                errors.append(str(e))

    manager.send_request(1, request(1), callback)
    assert called.wait(60)

    def remove() -> None:
        removing.set()
        manager.remove_broker(1)

    remover = threading.Thread(target=remove)
    remover.start()
    remover.join(60)
    assert not remover.is_alive()
    assert ["do it on another thread" in error for error in errors] == [True] * 3
    assert manager.broker_ids == []


def test_a_shutdown_with_a_time_limit_does_not_wait_for_a_callback_that_blocks(
    make, scripted, dropped: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    blocked, called, gate = scripted(), threading.Event(), threading.Event()
    manager = make(blocked.broker(1), scripted().broker(2))

    def block(response: Any) -> None:
        called.set()
        gate.wait(60)

    manager.send_request(1, request(1), block)
    manager.send_request(1, request(2))
    assert called.wait(60)
    thread = manager._brokers[1].serving.thread
    try:
        began = time.monotonic()
        manager.close(0.2)
        assert time.monotonic() - began < 50
        assert thread.is_alive()
        assert manager.broker_ids == []
        assert [item.request.message.controller_id for _, item in dropped] == [2]
        assert any(thread.name in r.getMessage() and "has not ended" in r.getMessage() for r in caplog.records)
        manager.close(0.2)
    finally:
        gate.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_callback_that_blocks_does_not_hold_up_the_end_of_the_interpreter() -> None:
    program = """
        import threading
        from scripted_broker import ScriptedBroker
        from channel import threads
        from channel.send.manager import ControllerChannelManager
        from channel.send.encoded_requests import SingleRequest
        from kproto.messages import UpdateMetadataRequest

        threads._EXIT_S = 0.5
        broker, called = ScriptedBroker(), threading.Event()
        manager = ControllerChannelManager(1, lambda: 5)
        manager.start([broker.broker()])

        def block(response):
            called.set()
            threading.Event().wait()

        manager.send_request(1, SingleRequest(UpdateMetadataRequest(), 8), block)
        assert called.wait(60)
        broker.close()
        print("at its end")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "at its end\n"


class Large(ControlRequest):
    """A request that no socket's buffers take at once."""

    api_key, oldest_version, latest_version, controller_epoch, broker_epoch = 6, 8, 8, 5, 7  # type: ignore[misc]
    message = None

    def build(self, version: int) -> Any:
        return (bytes(64 << 20),)


class EarlyBroker:
    """Answers its first connection's first request after 12 bytes of it, and reads no more there."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.broker = Broker(1, (EndPoint("127.0.0.1", self._listener.getsockname()[1]),))
        self.connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="early-broker")
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections.append(sock)
                stream = sock.makefile("rb")
                head = stream.read(12)
                if len(self.connections) > 1:
                    stream.read(int.from_bytes(head[:4], "big") - 8)
                sock.sendall(b"\0\0\0\x08" + head[8:12] + b"\0" + b"\0\0\0")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self.connections:
            sock.close()
        self._thread.join(60)


def test_a_broker_that_answers_before_it_has_read_the_request_gets_the_next_over_a_new_connection(make) -> None:
    early, answered = EarlyBroker(), []
    try:
        manager = make(early.broker)
        manager.send_request(1, Large(), lambda response: answered.append(1))
        manager.send_request(1, request(2), lambda response: answered.append(2))
        until(lambda: answered == [1, 2])
        assert len(early.connections) == 2
        assert manager.failed_threads == []
    finally:
        early.close()


class Unwritable(ControlRequest):
    """A request whose body cannot be written, at once or when its turn comes."""

    api_key, oldest_version, latest_version, controller_epoch, broker_epoch = 6, 8, 8, 5, 7  # type: ignore[misc]
    __slots__ = ("builds",)

    message = None

    def __init__(self, builds: int) -> None:
        self.builds = builds

    def build(self, version: int) -> Any:
        if not self.builds:
            raise OutOfRange("a host of 40,000 bytes")
        self.builds -= 1
        return (b"",)


def test_a_request_that_cannot_be_encoded_is_told_to_its_caller_at_once_and_the_queue_goes_on(
    make, scripted, dropped: list[Any]
) -> None:
    broker, answered = scripted(), []
    manager = make(broker.broker())
    with pytest.raises(OutOfRange, match="40,000"):
        manager.send_request(1, Unwritable(0), answered.append)
    ((broker_id, item),) = dropped
    assert broker_id == 1
    assert item.outcome is Outcome.NOT_SENT
    assert isinstance(item.error, OutOfRange)
    assert manager.dropped == 1
    manager.send_request(1, request(2), answered.append)
    until(lambda: len(answered) == 1)
    assert len(broker.seen) == 1


def test_a_request_whose_version_cannot_name_a_listener_is_retried_and_holds_up_no_other_broker(
    make, scripted, dropped: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, answered = scripted(), scripted(), []
    manager = make(first.broker(1), second.broker(2))
    body = SharedBody(ApiKey.UPDATE_METADATA, 8, (encode(request(1).message, 8),))
    unwritable = SharedRequest(body, 5, 1, ListenerNotExpressible(2, 1, "REPLICATION"))
    manager.send_request(1, unwritable, answered.append)
    manager.send_request(1, request(2), answered.append)
    until(lambda: caplog.text.count("cannot name listener REPLICATION of broker 1") >= 3)
    manager.send_request(2, request(3), answered.append)
    until(lambda: len(answered) == 1)
    assert (len(first.seen), len(second.seen), manager.dropped) == (0, 1, 0)
    manager.remove_broker(1)
    assert [(broker_id, item.outcome) for broker_id, item in dropped] == [(1, Outcome.NOT_SENT)] * 2


@pytest.mark.parametrize("many", [1, 300])
def test_a_request_that_cannot_be_encoded_when_its_turn_comes_is_dropped_and_the_queue_goes_on(
    make, scripted, dropped: list[Any], many: int
) -> None:
    broker, answered, gate = scripted(lambda sock, seen: (gate.wait(60), answer(sock, seen))), [], threading.Event()
    manager = make(broker.broker())
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(broker.seen) == 1)
    for _ in range(many):
        manager.send_request(1, Unwritable(1), answered.append)
    manager.send_request(1, request(2), answered.append)
    gate.set()
    until(lambda: len(answered) == 2)
    assert len(broker.seen) == 2
    assert [type(item.error) for _, item in dropped] == [OutOfRange] * many
    assert {item.outcome for _, item in dropped} == {Outcome.NOT_SENT}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_no_callback_can_end_its_send_thread(make, scripted, error: BaseException, caplog) -> None:
    def leave(response: Any) -> None:
        raise error

    broker, answered = scripted(), []
    manager = make(broker.broker())
    manager.send_request(1, request(1), leave)
    manager.send_request(1, request(2), answered.append)
    until(lambda: len(answered) == 1)
    assert manager.failed_threads == []
    assert any(r.levelname == "ERROR" and r.exc_info for r in caplog.records)


def test_an_epoch_that_cannot_be_told_costs_no_request(make, scripted, caplog) -> None:
    def fails() -> int:
        raise SystemExit("no epoch")

    broker, answered = scripted(lambda sock, seen: sock.shutdown(socket.SHUT_RDWR)), []
    manager = make(broker.broker(), epoch=fails)
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    assert "does not tell its epoch" in caplog.text


def test_a_failure_that_comes_after_the_answer_is_no_failure_of_a_request(make, scripted) -> None:
    broker, answered = scripted(answer), []
    manager = make(broker.broker())
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    requests = manager._brokers[1].requests
    until(lambda: not requests._busy)
    requests.failed(Disconnected("interrupted while it was sent"))
    manager.send_request(1, request(2), answered.append)
    until(lambda: len(answered) == 2)
    assert len(broker.seen) == 2


def test_a_send_thread_that_dies_is_told_and_so_are_its_requests(make, scripted, dropped: list[Any], caplog) -> None:
    died: list[tuple[str, list[int]]] = []
    broker, answered = scripted(answer, lambda sock, seen: None), []
    manager = make(broker.broker(), on_thread_failed=lambda name, ids: died.append((name, ids)))
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    for n in (2, 3):
        manager.send_request(1, request(n), answered.append)
    until(lambda: len(broker.seen) == 2)
    thread = manager._brokers[1].serving.thread

    def die() -> None:
        raise MemoryError("a fault in the thread itself")

    thread.call_soon(die)
    until(lambda: len(died) == 1)
    assert died == [(thread.name, [1])]
    assert manager.failed_threads == [thread.name]
    assert manager.metrics.value(GROUP, "FailedSendThreads") == 1
    assert [(item.request.message.controller_id, item.outcome) for _, item in dropped] == [
        (2, Outcome.POSSIBLY_APPLIED),
        (3, Outcome.NOT_SENT),
    ]
    assert {type(item.error) for _, item in dropped} == {MemoryError}
    manager.send_request(1, request(4), answered.append)  # to a dead thread: dropped, not kept for ever
    assert dropped[-1][1].request.message.controller_id == 4
    manager.remove_broker(1)
    manager.add_broker(broker.broker())
    manager.send_request(1, request(5), answered.append)
    until(lambda: len(answered) == 2)


def test_the_time_of_callbacks_is_told_by_metrics(make, scripted) -> None:
    broker, answered = scripted(), []
    manager = make(broker.broker())
    assert manager.metrics.value(GROUP, "CallbackTimeMsMean") == 0
    manager.send_request(1, request(1), lambda response: time.sleep(0.05))
    until(lambda: manager.metrics.value(GROUP, "CallbackTimeMsMean") > 0)
    assert manager.metrics.value(GROUP, "CallbackTimeMsMean") >= 50
    manager.send_request(1, request(2), answered.append)
    until(lambda: len(answered) == 1)
    assert manager.metrics.value(GROUP, "CallbackTimeMsMax") >= 50


def test_a_callback_cannot_remove_a_broker_of_its_own_thread_nor_shut_down(make, scripted) -> None:
    broker, errors = scripted(), []
    manager = make(broker.broker())

    def remove(response: Any) -> None:
        for call in (lambda: manager.remove_broker(1), manager.close):
            try:
                call()
            except IllegalState as e:
                errors.append(str(e))

    manager.send_request(1, request(1), remove)
    until(lambda: len(errors) == 2)
    assert manager.broker_ids == [1]


def test_a_name_that_takes_long_to_look_up_holds_up_no_other_broker(scripted, monkeypatch) -> None:
    broker, answered, gate = scripted(), [], threading.Event()

    def slow(host: str, *args: Any, **options: Any) -> Any:
        gate.wait(60)
        raise OSError("no such name")

    with ControllerChannelManager(1, lambda: 5, send_threads=1) as manager:
        manager.start([Broker(2, (EndPoint("slow.invalid", 1),)), broker.broker(1)])
        with monkeypatch.context() as patch:
            patch.setattr("channel.network.sockets.socket.getaddrinfo", slow)
            manager.send_request(2, request(2))
            time.sleep(0.02)
        manager.send_request(1, request(1), answered.append)
        until(lambda: len(answered) == 1)
        gate.set()


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", ""])
def test_a_host_that_is_no_name_is_tried_again_and_stops_nobody(make, scripted, host: str, caplog) -> None:
    broker, answered = scripted(), []
    manager = make(Broker(2, (EndPoint(host, 1),)), broker.broker(1))
    manager.send_request(2, request(2))
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    until(lambda: sum("no connection" in r.getMessage() for r in caplog.records) >= 2)
    assert manager.failed_threads == []


def test_a_listener_that_cannot_be_secured_is_refused_before_anything_is_sent(make, scripted) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.username"):
        make(config=ChannelConfig(security_inter_broker_protocol="SASL_PLAINTEXT"))
    mapped = ChannelConfig(inter_broker_listener_name="INTERNAL", listener_security_protocol_map="INTERNAL:SASL_SSL")
    with pytest.raises(ConfigurationError, match=r"sasl\.username"):
        make(config=mapped)


def test_removing_one_broker_leaves_the_metrics_of_the_others(make, scripted) -> None:
    metrics = Metrics()
    manager = make(scripted().broker(1), scripted().broker(2), metrics=metrics)
    answered: list[Any] = []
    for broker_id in (1, 2):
        manager.send_request(broker_id, request(broker_id), answered.append)
    until(lambda: len(answered) == 2)

    def of(broker_id: int) -> set[str]:
        return {name.name for name in metrics.names() if ("broker-id", str(broker_id)) in name.tags}

    before = of(2)
    assert "request-total" in before
    manager.remove_broker(1)
    assert of(1) == set()
    assert of(2) == before
    assert metrics.value("controller-channel-metrics", "response-total", {"broker-id": "2"}) == 1


def test_an_answer_above_the_limit_is_no_answer(make, scripted) -> None:
    def announces(sock: Any, seen: Any) -> None:
        sock.sendall((101).to_bytes(4, "big"))

    broker, answered = scripted(announces), []
    manager = make(broker.broker(), config=ChannelConfig(receive_max=100))
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)
    assert [seen.connection for seen in broker.seen] == [1, 2]


def test_a_broker_whose_thread_cannot_be_started_is_not_kept(
    make, with_client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    notes: list[str] = []
    with_client(lambda: FakeClient(notes))
    manager = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            manager.start([BROKER])
    assert manager.broker_ids == []
    assert notes == ["client closed"]
    manager.start([BROKER])
    assert manager.broker_ids == [1]


@pytest.mark.parametrize("second", [BROKER, Broker(2, (EndPoint("127.0.0.1", 1, "OTHER"),))], ids=["twice", "unfit"])
def test_starting_up_leaves_nothing_that_a_shutdown_does_not_end(make, second: Broker) -> None:
    manager = make()
    with contextlib.suppress(BrokerNotAvailable):
        manager.start([BROKER, second])
    assert manager.broker_ids == [1]
    manager.close()  # threads and descriptors are counted by the fixture of all channel tests


# ---- the end of the process


SCRIPT = """
    import os, sys, threading
    from channel.send.manager import ControllerChannelManager
    from channel.send.encoded_requests import SingleRequest
    from channel.types import Broker, EndPoint
    from kproto.messages import UpdateMetadataRequest

    answered = threading.Event()
    manager = ControllerChannelManager(1, lambda: 5, send_threads=SETTING)
    manager.start([Broker(1, (EndPoint("127.0.0.1", PORT),))])
    manager.send_request(1, SingleRequest(UpdateMetadataRequest(controller_id=1), 8), lambda _: answered.set())
    assert answered.wait(60)
"""


def run_script(text: str, port: int, setting: int | str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(SCRIPT).replace("PORT", str(port)).replace("SETTING", repr(setting)) + text
    return subprocess.run([sys.executable, "-c", script], timeout=120, check=check, capture_output=True, text=True)


@pytest.mark.parametrize("setting", [1, "per_broker"])
def test_a_script_that_ends_without_a_shutdown_ends(scripted, setting: int | str) -> None:
    broker = scripted()
    run_script("print('done')", broker.port, setting)
    assert len(broker.seen) == 1
    until(lambda: all(s.fileno() < 0 for s in broker.sockets))


def test_a_forked_child_has_no_channels_and_the_parents_go_on(scripted) -> None:
    broker = scripted()
    child = textwrap.dedent(
        """
        with manager:
            pid = os.fork()
            if not pid:
                assert manager.broker_ids == []
                manager.send_request(1, SingleRequest(UpdateMetadataRequest(controller_id=2), 8))
                assert manager.dropped == 1
                manager.close()
                sys.exit(0)  # by way of everything that ends with the process
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            answered.clear()
            manager.send_request(1, SingleRequest(UpdateMetadataRequest(controller_id=3), 8), lambda _: answered.set())
            assert answered.wait(60)
        print("the parent is done")
        """
    )
    assert "the parent is done" in run_script(child, broker.port, 1).stdout
    assert [(seen.connection, seen.correlation_id) for seen in broker.seen] == [(1, 0), (1, 1)]


def test_a_put_that_is_interrupted_loses_no_request(make, scripted) -> None:
    """A signal's exception may come at any point of sending; the request is sent, perhaps twice, as after any fault."""
    broker, answered = scripted(), []
    manager = make(broker.broker())
    manager.send_request(1, request(1), answered.append)
    until(lambda: len(answered) == 1)

    class Interrupted(SingleRequest):
        builds = 0

        def build(self, version: int) -> Any:
            self.builds += 1
            if self.builds == 2:  # the first is the manager's, before the request is in the queue
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
                raise AssertionError("no signal came")
            return super().build(version)

    until(lambda: not manager._brokers[1].requests._busy)
    with pytest.raises(KeyboardInterrupt):
        manager.send_request(1, Interrupted(UpdateMetadataRequest(controller_id=2), 8), answered.append)
    until(lambda: len(answered) == 2)
