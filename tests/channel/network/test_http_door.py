"""The rules of every door: few connections, a time limit, and descriptors that no client can take."""

import contextlib
import http.client
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import pytest
from network_peers import frame, until

from channel.metrics import Metrics
from channel.network import http_door, sockets
from channel.network.http_door import DoorHandler, HttpDoor
from channel.network.recorder import PcapngRecorder
from channel.network.server import SocketServer
from channel.tap import Tap, TapMapping
from kproto.cli.controller import _door_of
from kproto.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", 0)


def descriptors() -> list[int]:
    return [int(each.name) for each in Path("/proc/self/fd").iterdir()]


@pytest.fixture
def door():
    metrics = Metrics()
    metrics.gauge("kafka.controller:type=KafkaController", "ActiveControllerCount", lambda: 1.0)
    with _door_of(metrics, "127.0.0.1:0") as made:
        yield made


def get(address, path="/metrics", **headers):
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_the_metrics_are_served_in_the_form_that_prometheus_asks_for(door):
    status, kind, text = get(door.address)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in text
    assert get(door.address, Accept="application/openmetrics-text; version=1.0.0")[2].endswith("# EOF\n")
    assert get(door.address, Accept="application/openmetrics-text; version=newest") == (status, kind, text)
    assert get(door.address, "/") == get(door.address, "/metrics?name=any") == (status, kind, text)
    for path in ("/favicon.ico", "/metrics/", "/metricsx"):
        assert get(door.address, path)[::2] == (404, "there is GET /metrics\n")


class Answering(DoorHandler):
    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, "text/plain", b"here\n")


def test_a_door_opens_at_an_address_of_either_family():
    for host in ("127.0.0.1", "::1", "localhost"):
        with HttpDoor("test-door", host, 0, Answering) as made:
            assert get(made.address)[2] == "here\n"
    with pytest.raises(
        ConfigurationError, match=r"cannot listen at no\.such\.host\.invalid:1: this machine has no such"
    ):
        HttpDoor("test-door", "no.such.host.invalid", 1, Answering)
    with (
        HttpDoor("test-door", "::1", 0, Answering) as made,
        pytest.raises(
            ConfigurationError, match=rf"cannot listen at \[::1\]:{made.address[1]}: the port is in use; stop"
        ),
    ):
        HttpDoor("test-door", *made.address, Answering)


class Failing(DoorHandler):
    def do_GET(self) -> None:
        raise LookupError("a fault of the handler")


def test_a_request_that_the_handler_fails_on_is_answered_and_logged(caplog):
    with HttpDoor("test-door", *LOOPBACK, Failing) as made:
        assert get(made.address)[::2] == (500, "the request could not be answered; the log says why\n")
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.getMessage() == f"a request at port {made.address[1]} could not be answered"


def test_half_sent_requests_take_few_descriptors_and_keep_nobody_out(door):
    before = len(descriptors())
    with contextlib.ExitStack() as stack:
        for number in range(200):
            if number % 40 == 39:
                time.sleep(0.01)
            slow = stack.enter_context(socket.create_connection(door.address, 30))
            with contextlib.suppress(OSError):  # it has had to make room already
                slow.sendall(b"GET /metrics HTTP/1.0\r\nHost:")
        assert get(door.address)[0] == 200
        until(lambda: len(descriptors()) - before <= 200 + http_door.MOST_CONNECTIONS + 2)


def test_a_head_without_end_and_another_method_are_refused(door):
    with socket.create_connection(door.address, 30) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n" + b"X: 1\r\n" * 5_000 + b"\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.0 431")
    with socket.create_connection(door.address, 30) as sock:
        sock.sendall(b"POST /metrics HTTP/1.0\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.0 501")


def test_a_connection_whose_thread_cannot_be_started_is_forgotten(door, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(20):
            with socket.create_connection(door.address, 30) as sock, contextlib.suppress(ConnectionError):
                assert sock.recv(1) == b""
        assert not door._server._deadlines
    assert get(door.address)[0] == 200


@pytest.fixture
def few_descriptors():
    """A limit that leaves 48 descriptors to connections that others make, and 16 to those of the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(descriptors())
    limit = highest + 1 + 48
    limit += limit // 7 + 1  # an eighth of it is reserved
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FLOOD = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for number in range(int(sys.argv[2])):
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
    try:
        sock.sendall(b"\\0\\0\\0")
    except OSError:
        pass
    held.append(sock)
    if number % 40 == 39:
        time.sleep(0.01)  # a full backlog would cost a second
print("flooded", flush=True)
sys.stdin.read()
"""


def ask(sock):
    sock.sendall(frame(b"a controller's request"))
    assert sock.recv(100) == frame(b"a controller's request")


@contextlib.contextmanager
def flooded(port, connections, first=lambda: None):
    """Another process opens connections, and sends half a request on each."""
    first()
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD, str(port), str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"flooded\n"
            yield
        finally:
            process.stdin.close()
            process.wait(60)


def first_bytes(node):
    """What the next of a node's connections has sent."""
    accepted, _ = node.accept()
    with accepted:
        accepted.settimeout(30)
        try:
            return accepted.recv(100)
        except ConnectionError:
            return b""


def left(limit):
    """The number of descriptors that the process can still open."""
    opened = []
    try:
        for _ in range(limit):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return len(opened)
    finally:
        for each in opened:
            os.close(each)


def test_connections_to_a_server_leave_descriptors_and_a_new_one_takes_the_place_of_the_idlest(few_descriptors, caplog):
    with SocketServer("test") as server:
        listener = server.listen(lambda request: request.respond([bytes(request.payload)]))
        with (
            socket.create_connection((listener.host, listener.port), 30) as used,
            flooded(listener.port, few_descriptors, first=lambda: ask(used)),
        ):
            assert left(few_descriptors) >= few_descriptors // 8 - 1
            with socket.create_connection((listener.host, listener.port), 30) as peer:
                peer.sendall(frame(b"a broker's request"))
                assert peer.recv(100) == frame(b"a broker's request")
            ask(used)  # though it has been idle the longest: it has brought a request, which the others have not
        until(lambda: not listener.connections)
    lines = [record for record in caplog.records if "the limit is" in record.getMessage()]
    assert len(lines) == 1
    assert f"the limit is {few_descriptors} open files, ulimit -n raises it" in lines[0].getMessage()


@pytest.mark.parametrize("kind", ["door", "tap"])
def test_no_door_takes_the_last_descriptors(kind, few_descriptors, tmp_path, caplog):
    with contextlib.ExitStack() as stack:
        if kind == "tap":
            node = stack.enter_context(socket.create_server(LOOPBACK, backlog=1024))
            recorder = stack.enter_context(PcapngRecorder(tmp_path / "recording.pcapng"))
            made = stack.enter_context(Tap([TapMapping(LOOPBACK, node.getsockname())], recorder))
            port = made.listening[0][1]
        else:
            made = stack.enter_context(HttpDoor("test-door", *LOOPBACK, Answering))
            port = made.address[1]
        if kind == "tap":
            used = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            accepted = stack.enter_context(node.accept()[0])
            used.sendall(b"asked")
            assert accepted.recv(100) == b"asked"
            accepted.sendall(b"answered")
            assert used.recv(100) == b"answered"
        stack.enter_context(flooded(port, few_descriptors))
        until(lambda: left(few_descriptors) >= few_descriptors // 8 - 2)
        assert made.error is None
        if kind == "door":
            assert get(made.address)[2] == "here\n"
        else:  # a new connection takes the place of the idlest
            with socket.create_connection(("127.0.0.1", port), 30) as peer:
                peer.sendall(b"a controller's")
                until(lambda: first_bytes(node) == b"a controller's")
            used.sendall(b"asked again")  # idle the longest, but answered, which the others are not
            assert accepted.recv(100) == b"asked again"


def test_a_door_answers_while_a_flood_of_another_server_takes_the_descriptors(few_descriptors):
    with SocketServer("test") as server, HttpDoor("test-door", *LOOPBACK, Answering) as door:
        listener = server.listen(lambda request: request.respond([bytes(request.payload)]))
        with flooded(listener.port, few_descriptors):
            for _ in range(5):
                assert get(door.address)[2] == "here\n"


def test_a_server_without_any_descriptor_waits_and_logs_once(monkeypatch, caplog):
    class Full:
        def accept(self):
            raise OSError(24, "Too many open files")

        def getsockname(self):
            return LOOPBACK

    acceptor = sockets.Acceptor(Full())
    for _ in range(100):
        with pytest.raises(sockets.OutOfDescriptors):
            acceptor.accept()
    assert len(caplog.records) == 1
    assert "too many open files" in caplog.text
