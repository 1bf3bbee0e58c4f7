"""The channel manager and its send threads over real sockets, against brokers that misbehave."""

import dataclasses
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from network_peers import PLAIN_OR_TLS, SECURITY, accepted, greet, until
from scripted_broker import ScriptedBroker, Seen, answer, bound_socket

from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable
from channel.metrics import Metrics
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import GROUP, ControllerChannelManager
from channel.send.send_thread import DroppedRequest, Outcome
from channel.types import Broker, EndPoint, SecurityProtocol
from kproto.codec import decode_request
from kproto.messages import (
    LeaderAndIsrRequest,
    MetadataRequest,
    StopReplicaRequest,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

FAST = ChannelConfig(request_timeout_ms=250, controller_socket_timeout_ms=250)


def request(number: int = 0, broker_epoch: int = 7, controller_epoch: int = 5) -> SingleRequest:
    """An UpdateMetadata request that is known by its controller id."""
    message = UpdateMetadataRequest(controller_id=number, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
    return SingleRequest(message, 8)


def number(seen: Seen) -> int:
    """Which request that was."""
    return int(decode_request(seen.api_key, seen.version, seen.body).controller_id)


class Answers:
    """What came back, in order, and on which thread."""

    def __init__(self) -> None:
        self.codes: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def to(self, n: int) -> Callable[[Any], None]:
        def callback(response: Any) -> None:
            self.threads.add(threading.current_thread().name)
            self.codes.append((n, response.error_code))

        return callback

    @property
    def numbers(self) -> list[int]:
        return [n for n, _ in self.codes]


class Dropped:
    """What was dropped, by broker."""

    def __init__(self) -> None:
        self.items: dict[int, list[DroppedRequest]] = {}

    def __call__(self, broker_id: int, items: list[DroppedRequest]) -> None:
        self.items.setdefault(broker_id, []).extend(items)

    def numbers(self, broker_id: int, outcome: Outcome | None = None) -> list[int]:
        items = self.items.get(broker_id, [])
        return [i.request.message.controller_id for i in items if outcome is None or i.outcome is outcome]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def dropped() -> Dropped:
    return Dropped()


@pytest.fixture(params=[1, "per_broker"], ids=["one-thread", "per-broker"])
def send_thread_count(request: pytest.FixtureRequest) -> int | str:
    """Every row of the send threads holds in both settings."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def make(
    metrics: Metrics, dropped: Dropped, send_thread_count: int | str, protocol: SecurityProtocol
) -> Iterator[Callable[..., ControllerChannelManager]]:
    """Builds managers and shuts them down."""
    made: list[ControllerChannelManager] = []

    def build(*brokers: Broker, config: ChannelConfig | None = None, **options: Any) -> ControllerChannelManager:
        options.setdefault("send_threads", send_thread_count)
        if protocol is not SecurityProtocol.PLAINTEXT:
            config = dataclasses.replace(
                config or ChannelConfig(), security_inter_broker_protocol=protocol.name, security=SECURITY
            )
        made.append(ControllerChannelManager(1, lambda: 5, config, metrics=metrics, on_dropped=dropped, **options))
        made[-1].start(brokers)
        return made[-1]

    yield build
    for manager in made:
        manager.close()


def send_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.endswith("-send-thread")]


def thread_of(broker_id: int, setting: int | str) -> str:
    return f"Controller-1-to-{f'broker-{broker_id}' if setting == 'per_broker' else 'brokers-0'}-send-thread"


def closed(sock: socket.socket, seen: Seen) -> None:
    """The peer goes away after it has read the request."""
    sock.shutdown(socket.SHUT_RDWR)


def reset(sock: socket.socket, seen: Seen) -> None:
    """The connection breaks in the middle of the answer."""
    sock.sendall(seen.answer()[:6])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionResetError  # every reference goes, and the system sends a reset


def byte_by_byte(sock: socket.socket, seen: Seen) -> None:
    for byte in seen.answer():
        sock.sendall(bytes([byte]))
        time.sleep(0.002)


def another_correlation_id(sock: socket.socket, seen: Seen) -> None:
    sock.sendall(seen.answer(correlation_id=seen.correlation_id + 1000))


def garbage(sock: socket.socket, seen: Seen) -> None:
    sock.sendall(b"\0\0\0\x05" + seen.correlation_id.to_bytes(4, "big") + b"\xff")


def negative_size(sock: socket.socket, seen: Seen) -> None:
    sock.sendall(b"\xff\xff\xff\xff")


def twice(sock: socket.socket, seen: Seen) -> None:
    sock.sendall(seen.answer() + seen.answer())


def silent(sock: socket.socket, seen: Seen) -> None:
    """Never answers; the test's end closes the connection."""


# ---- delivery


@pytest.mark.conformance("RST-06")
def test_one_request_at_a_time_in_order_each_called_back_once(make, scripted, send_thread_count) -> None:
    def slowly(sock: socket.socket, seen: Seen) -> None:
        time.sleep(0.05)
        overtaken.append(len(broker.seen))
        answer(sock, seen)

    overtaken: list[int] = []
    broker, answers = scripted(slowly, slowly, slowly), Answers()
    manager = make(broker.broker())
    for n in (1, 2, 3):
        manager.send_request(1, request(n), answers.to(n))
    until(lambda: len(answers.codes) == 3)
    assert [number(s) for s in broker.seen] == answers.numbers == [1, 2, 3]
    assert overtaken == [1, 2, 3], "the next one comes only after the answer"
    assert answers.threads == {thread_of(1, send_thread_count)}
    assert {s.client_id for s in broker.seen} == {"1"}
    ids = [s.correlation_id for s in broker.seen]
    assert ids == [0, 1, 2]


@pytest.mark.conformance("RST-07")
def test_a_request_whose_answer_was_lost_is_sent_again(make, scripted) -> None:
    broker, answers = scripted(closed), Answers()
    manager = make(broker.broker())
    manager.send_request(1, request(1), answers.to(1))
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 2)
    first, again, second = broker.seen
    assert [number(s) for s in broker.seen] == [1, 1, 2]
    assert again.connection == second.connection == first.connection + 1
    assert first.correlation_id < again.correlation_id < second.correlation_id
    assert again.at - first.at >= 0.09
    assert answers.codes == [(1, 0), (2, 0)]


@pytest.mark.conformance("RST-08")
def test_an_error_code_is_an_answer(make, scripted) -> None:
    broker, answers = scripted(lambda sock, seen: sock.sendall(seen.answer(77))), Answers()
    manager = make(broker.broker())
    manager.send_request(1, request(1), answers.to(1))
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 2)
    assert answers.codes == [(1, 77), (2, 0)]
    assert [number(s) for s in broker.seen] == [1, 2]


@pytest.mark.conformance("RST-09")
def test_a_failing_callback_costs_the_connection_and_nothing_else(
    make, scripted, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(response: Any) -> None:
        raise ValueError("no good")

    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.send_request(1, request(1), fail)
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 1)
    assert [(number(s), s.connection) for s in broker.seen] == [(1, 1), (2, 2)]
    error = next(r for r in caplog.records if r.levelno == logging.ERROR)
    assert "no good" in str(error.exc_info)


def test_all_three_requests_pass(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.send_request(1, SingleRequest(LeaderAndIsrRequest(broker_epoch=1), 7), answers.to(4))
    manager.send_request(1, SingleRequest(StopReplicaRequest(broker_epoch=1), 4), answers.to(5))
    manager.send_request(1, request(), answers.to(6))
    until(lambda: len(answers.codes) == 3)
    assert [s.api_key for s in broker.seen] == answers.numbers == [4, 5, 6]


def test_a_request_without_callback_is_sent(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.send_request(1, request(1))
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 1)
    assert [number(s) for s in broker.seen] == [1, 2]


def test_a_callback_may_send_the_next_request(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())

    def following(n: int) -> Callable[[Any], None]:
        def callback(response: Any) -> None:
            answers.to(n)(response)
            if n < 50:
                manager.send_request(1, request(n + 1), following(n + 1))

        return callback

    manager.send_request(1, request(1), following(1))
    until(lambda: len(answers.codes) == 50)
    assert [number(s) for s in broker.seen] == answers.numbers == list(range(1, 51))


def test_a_large_request_passes_whole(make, scripted) -> None:
    live = [
        UpdateMetadataBroker(id=i, endpoints=[UpdateMetadataEndpoint(host="h" * 3000, port=1, listener="PLAINTEXT")])
        for i in range(2000)
    ]
    message = UpdateMetadataRequest(controller_id=9, broker_epoch=3, live_brokers=live)
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.send_request(1, SingleRequest(message, 8), answers.to(9))
    until(lambda: len(answers.codes) == 1)
    assert len(broker.seen[0].body) > 6_000_000
    assert decode_request(6, 8, broker.seen[0].body) == message


# ---- faults


class Unmoved:
    """A recorder that keeps nothing."""

    def opened(self, *args: Any, **options: Any) -> None: ...
    def record(self, *args: Any) -> None: ...
    def flush(self) -> None: ...
    def closed(self, *args: Any) -> None: ...


either_protocol = pytest.mark.parametrize("protocol", PLAIN_OR_TLS, indirect=True, ids=lambda each: each.name)
either_way = pytest.mark.parametrize(
    ("protocol", "options"),
    [
        (SecurityProtocol.PLAINTEXT, {}),
        (SecurityProtocol.PLAINTEXT, {"recorder": Unmoved()}),
        (SecurityProtocol.SSL, {}),
    ],
    indirect=["protocol"],
    ids=["plain", "recorded", "tls"],
)


@either_way
@pytest.mark.parametrize(
    "fault", [closed, reset, another_correlation_id, garbage, negative_size, silent], ids=lambda f: f.__name__
)
def test_after_any_fault_the_request_is_sent_again_and_order_kept(make, scripted, fault, options, caplog) -> None:
    broker, answers = scripted(answer, fault, fault), Answers()
    manager = make(broker.broker(), config=FAST if fault is silent else None, **options)
    for n in (1, 2, 3):
        manager.send_request(1, request(n), answers.to(n))
    until(lambda: len(answers.codes) == 3)
    found = [(number(s), s.connection) for s in broker.seen]
    if fault is not silent:
        assert found == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 3)]
    else:  # on a busy machine an answer too may take longer than the request timeout, and is asked for again
        assert found == sorted(found)
        assert {n for n, _ in found} == {1, 2, 3}
        assert len(found) >= 5
    assert answers.codes == [(1, 0), (2, 0), (3, 0)]
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "send" in r.name + r.msg]
    assert len(warnings) >= 2
    assert max(map(len, warnings)) < 1000


@pytest.mark.slow
def test_a_request_that_was_given_up_does_not_arrive_on_its_old_connection(make) -> None:
    """A peer that reads again after a while finds the request once, however much of it the system had still to send."""
    size = 16 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        patient = ChannelConfig(request_timeout_ms=2000)  # the second connection must live until it is read from
        manager = make(Broker(1, (EndPoint("127.0.0.1", server.getsockname()[1]),)), config=patient)
        endpoint = UpdateMetadataEndpoint(port=1, host="h" * 30_000, listener="PLAINTEXT")
        live = [UpdateMetadataBroker(id=n, endpoints=[endpoint], rack=None) for n in range(size // 30_000 + 1)]
        message = UpdateMetadataRequest(controller_id=1, controller_epoch=5, broker_epoch=7, live_brokers=live)
        manager.send_request(1, SingleRequest(message, 8), lambda _: None)
        first, _ = server.accept()
        second, _ = server.accept()  # it was given up after two seconds
        with first, second:
            assert int.from_bytes(second.recv(4), "big") > size
            arrived, ended = 0, ""
            while not ended:
                try:
                    more = len(first.recv(1 << 20))
                    arrived, ended = arrived + more, "" if more else "closed"
                except ConnectionResetError:
                    ended = "reset"
            assert (ended, arrived < size) == ("reset", True)


@either_way
def test_an_answer_that_comes_byte_by_byte_is_one_answer(make, scripted, options) -> None:
    broker, answers = scripted(byte_by_byte, byte_by_byte), Answers()
    manager = make(broker.broker(), **options)
    manager.send_request(1, request(1), answers.to(1))
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 2)
    assert [(number(s), s.connection) for s in broker.seen] == [(1, 1), (2, 1)]


@either_way
def test_a_second_answer_to_one_request_is_not_taken_for_the_next_ones(make, scripted, options) -> None:
    broker, answers = scripted(twice), Answers()
    manager = make(broker.broker(), **options)
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 2)
    assert [number(s) for s in broker.seen if s.connection == 2] == [2]
    assert answers.codes == [(1, 0), (2, 0)]


def test_a_request_put_as_its_connection_is_given_up_is_sent_again(make, scripted) -> None:
    """It is put the moment before a connection without requests in flight is closed."""
    broker, answers = scripted(twice), Answers()
    manager = make(broker.broker())

    class Puts(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "nobody has asked for" in record.getMessage():
                manager.send_request(1, request(2), answers.to(2))

    logger, handler = logging.getLogger("channel.network.client"), Puts()
    logger.addHandler(handler)
    try:
        manager.send_request(1, request(1), answers.to(1))
        until(lambda: len(answers.codes) == 2)
    finally:
        logger.removeHandler(handler)
    assert answers.codes == [(1, 0), (2, 0)]


@either_way
def test_a_broker_that_closes_idle_connections_costs_no_request(make, scripted, options) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker(), **options)
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)
    broker.hang_up()
    time.sleep(0.02)
    manager.send_request(1, request(2), answers.to(2))
    until(lambda: len(answers.codes) == 2)
    assert [(number(s), s.connection) for s in broker.seen] == [(1, 1), (2, 2)]


@either_protocol
def test_a_refused_connection_is_tried_until_the_broker_is_there(make, protocol, caplog) -> None:
    with bound_socket() as bound:
        answers, port = Answers(), bound.getsockname()[1]
        manager = make(Broker(1, (EndPoint("127.0.0.1", port, protocol.name, protocol),)))
        for n in (1, 2):
            manager.send_request(1, request(n), answers.to(n))
        until(lambda: sum("no connection" in r.getMessage() for r in caplog.records) >= 2)
        broker = ScriptedBroker(bound=bound, protocol=protocol)
        try:
            until(lambda: len(answers.codes) == 2)
            assert [number(s) for s in broker.seen] == [1, 2]
        finally:
            broker.close()


def test_a_host_that_cannot_be_resolved_stops_nobody(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    manager = make(Broker(2, (EndPoint("no-such-host.invalid", 1),)), broker.broker())
    manager.send_request(2, request(2), answers.to(2))
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: answers.numbers == [1])
    manager.remove_broker(2)
    assert answers.numbers == [1]


@either_protocol
def test_one_slow_broker_holds_up_no_other(make, scripted) -> None:
    slow, quick, answers = scripted(silent), scripted(), Answers()
    manager = make(slow.broker(1), quick.broker(2))
    manager.send_request(1, request(1), answers.to(1))
    for n in range(2, 12):
        manager.send_request(2, request(n), answers.to(n))
    until(lambda: len(answers.codes) == 10)
    assert answers.numbers == list(range(2, 12))


# ---- the end


@either_way
def test_a_broker_can_be_removed_while_it_keeps_its_answer_back(make, scripted, dropped: Dropped, options) -> None:
    broker, answers = scripted(answer, silent), Answers()
    manager = make(broker.broker(), **options)
    for n in (1, 2, 3):
        manager.send_request(1, request(n), answers.to(n))
    until(lambda: len(broker.seen) == 2)
    began = time.monotonic()
    manager.remove_broker(1)
    assert time.monotonic() - began < 10, "a request in flight does not hold up the shutdown"
    until(lambda: send_threads() == [])
    assert answers.numbers == [1]
    assert dropped.numbers(1) == [2, 3]
    assert dropped.numbers(1, Outcome.POSSIBLY_APPLIED) == [2]
    assert dropped.numbers(1, Outcome.NOT_SENT) == [3]
    assert (manager.dropped, manager.possibly_applied) == (2, 1)
    assert manager_value(manager, "PossiblyAppliedRequests") == 1
    assert manager.broker_ids == []


@either_protocol
def test_a_broker_can_be_removed_while_it_reads_nothing(make, protocol, dropped: Dropped) -> None:
    live = [
        UpdateMetadataBroker(id=i, endpoints=[UpdateMetadataEndpoint(host="h" * 30000, port=1)]) for i in range(1000)
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        manager = make(Broker(1, (EndPoint("127.0.0.1", listener.getsockname()[1], protocol.name, protocol),)))
        manager.send_request(1, SingleRequest(UpdateMetadataRequest(controller_id=4, live_brokers=live), 8))
        with accepted(listener.accept()[0], protocol) as connection:
            greet(connection)
            time.sleep(0.05)  # let it fill the socket's buffers
            manager.remove_broker(1)
    until(lambda: send_threads() == [])
    assert dropped.numbers(1, Outcome.NOT_SENT) == [4]  # a part of it went out: nobody can have applied that


def test_a_broker_can_be_removed_while_it_cannot_be_reached(make, dropped: Dropped) -> None:
    with bound_socket() as bound:
        manager = make(Broker(1, (EndPoint("127.0.0.1", bound.getsockname()[1]),)))
        manager.send_request(1, request(1))
        time.sleep(0.05)
        manager.remove_broker(1)
    assert dropped.numbers(1, Outcome.NOT_SENT) == [1]


def test_thousands_of_queued_requests_at_shutdown_are_all_accounted_for(
    make, scripted, dropped: Dropped, caplog
) -> None:
    brokers, answers = [scripted(answer, silent) for _ in range(3)], Answers()
    manager = make(*(b.broker(i) for i, b in enumerate(brokers)))
    for n in range(3000):
        manager.send_request(n % 3, request(n), answers.to(n))
    until(lambda: all(len(b.seen) == 2 for b in brokers))
    assert manager_value(manager, "TotalQueueSize") == 3000 - 6
    manager.close()
    until(lambda: send_threads() == [])
    assert sorted(answers.numbers) == [0, 1, 2]
    for broker_id in range(3):
        assert dropped.numbers(broker_id) == list(range(3000))[3 + broker_id :: 3]
    assert manager.dropped == manager_value(manager, "DroppedRequests") == 3000 - 3
    lines = [r.getMessage() for r in caplog.records if "will not be answered" in r.getMessage()]
    assert len(lines) == 3


def manager_value(manager: ControllerChannelManager, name: str, **tags: str) -> float:
    return manager.metrics.value(GROUP, name, tags or None)


def test_no_descriptor_is_left(make, scripted) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    broker, answers = scripted(), Answers()
    manager = make()
    before = descriptors()
    for n in range(1, 4):
        manager.add_broker(broker.broker())
        manager.send_request(1, request(n), answers.to(n))
        until(lambda n=n: len(answers.codes) == n)
        manager.remove_broker(1)
        until(lambda: all(s.fileno() < 0 for s in broker.sockets))
        until(lambda: descriptors() == before)  # the broker may see the end before this side has closed


def test_a_manager_may_be_started_again(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.close()
    manager.close()
    manager.start([broker.broker()])
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)


def test_shutdown_waits_for_threads_and_not_for_each_broker_of_an_ended_one(make, monkeypatch) -> None:
    manager = make(*(Broker(n, (EndPoint("127.0.0.1", 1),)) for n in range(3)))

    class Patience(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert send_threads(), "a thread that has ended closes nothing any more"
            return super().wait(timeout)

    monkeypatch.setattr("channel.send.send_thread.threading.Event", Patience)
    manager.close()
    assert manager.broker_ids == []


# ---- the manager


@pytest.mark.conformance("RST-12")
def test_a_request_to_an_unknown_broker_is_a_warning(make, dropped: Dropped, caplog: pytest.LogCaptureFixture) -> None:
    manager, answers = make(), Answers()
    manager.send_request(9, request(1, broker_epoch=7, controller_epoch=5), answers.to(1))
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    for fact in ("UpdateMetadata", "controller 1", "controller epoch 5", "broker epoch 7", "broker 9"):
        assert fact in line
    assert manager_value(manager, "TotalQueueSize") == 0
    assert answers.codes == []
    assert dropped.numbers(9) == [1]


def test_a_request_after_shutdown_is_a_warning_that_says_so(make, scripted, caplog: pytest.LogCaptureFixture) -> None:
    manager = make(scripted().broker())
    manager.close()
    manager.send_request(1, request())
    assert "shut down" in caplog.records[-1].getMessage()
    assert manager.dropped == 1


@pytest.mark.conformance("RST-13")
def test_adding_a_known_broker_changes_nothing(make, scripted, send_thread_count) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    manager.add_broker(Broker(1, (EndPoint("127.0.0.1", 1),)))
    manager.start([Broker(1, (EndPoint("127.0.0.1", 1),))])
    assert send_threads() == [thread_of(1, send_thread_count)]
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)
    assert len(broker.seen) == 1


def test_a_bare_message_is_sent_in_the_version_of_the_protocol(make, scripted) -> None:
    broker = scripted()
    manager = make(broker.broker(), config=ChannelConfig(inter_broker_protocol_version="2.8"))
    manager.send_request(1, UpdateMetadataRequest())
    until(lambda: len(broker.seen) == 1)
    assert (broker.seen[0].api_key, broker.seen[0].version) == (6, 7)


@pytest.mark.parametrize("message", [MetadataRequest(), UpdateMetadataResponse()])
def test_a_message_that_is_no_control_request_is_refused_at_once(make, dropped: Dropped, message: Any) -> None:
    with pytest.raises(TypeError, match="is no control request"):
        make().send_request(1, message)
    assert dropped.items == {}


def test_removing_an_unknown_broker_is_an_error(make) -> None:
    with pytest.raises(BrokerNotAvailable, match="9"):
        make().remove_broker(9)


def test_a_broker_without_the_controllers_listener_is_refused(make) -> None:
    manager = make(config=ChannelConfig(control_plane_listener_name="CONTROL"))
    with pytest.raises(BrokerNotAvailable, match="CONTROL"):
        manager.add_broker(Broker(1, (EndPoint("h", 1),)))
    assert manager.broker_ids == []


def test_the_control_plane_listener_is_preferred(make, scripted) -> None:
    broker, answers = scripted(), Answers()
    config = ChannelConfig(control_plane_listener_name="CONTROL", inter_broker_listener_name="INTERNAL")
    endpoints = (EndPoint("127.0.0.1", 1, "INTERNAL"), EndPoint("127.0.0.1", broker.port, "CONTROL"))
    manager = make(Broker(1, endpoints), config=config)
    manager.send_request(1, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)


def test_metrics_come_and_go_with_the_broker(make, scripted, metrics: Metrics) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker(7))
    manager.send_request(7, request(1), answers.to(1))
    until(lambda: len(answers.codes) == 1)
    tags = {"broker-id": "7"}
    assert metrics.value(GROUP, "QueueSize", tags) == 0
    assert metrics.value(GROUP, "RequestRateAndQueueTimeMs", tags, "count") == 1
    selector = "controller-channel-metrics"
    size = len(broker.seen[0].body)
    assert metrics.value(selector, "request-total", tags) == 1
    assert metrics.value(selector, "response-total", tags) == 1
    assert metrics.value(selector, "connection-count", tags) == 1
    assert size + 15 <= metrics.value(selector, "outgoing-byte-total", tags) <= size + 17
    assert metrics.value(selector, "incoming-byte-total", tags) == len(broker.seen[0].answer())
    manager.remove_broker(7)
    assert not [m for m in metrics.names() if ("broker-id", "7") in m.tags]
    assert manager_value(manager, "TotalQueueSize") == 0


def test_requests_sent_while_a_broker_is_removed_are_answered_or_dropped_never_both(make, scripted, dropped) -> None:
    broker, answers = scripted(), Answers()
    manager = make(broker.broker())
    started, sent = threading.Barrier(4), []

    def send_many(first: int) -> None:
        started.wait()
        for n in range(first, first + 400):
            manager.send_request(1, request(n), answers.to(n))
            sent.append(n)

    threads = [threading.Thread(target=send_many, args=(k * 1000,)) for k in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    until(lambda: len(answers.codes) > 20)
    manager.remove_broker(1)
    for thread in threads:
        thread.join()
    assert sorted(answers.numbers + dropped.numbers(1)) == sorted(sent)
    assert manager.dropped == len(dropped.numbers(1))
    assert [number(s) for s in broker.seen[: len(answers.numbers)]] == answers.numbers
