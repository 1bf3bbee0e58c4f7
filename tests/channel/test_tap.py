"""The tap over real sockets: bytes go on as they came, the recording reads like a capture, whatever breaks."""

import contextlib
import errno
import json
import os
import random
import signal
import socket
import ssl
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_kproto
from control_messages import update_metadata
from hypothesis import given
from hypothesis import strategies as st
from network_peers import SECURITY, EchoServer, FakeClock, frame, sasl_answers, until
from scripted_broker import bound_socket

from channel.broker.cluster import EmbeddedCluster
from channel.network.recorder import PcapngRecorder, SecretMask
from channel.network.sasl import SaslClient, SaslServer
from channel.network.sockets import dial
from channel.security import Credentials, Password
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.tap import Tap, TapMapping
from channel.tap.rotation import RotatingRecorder
from channel.tls_contexts import client_context, server_context
from channel.types import Broker, EndPoint
from kproto.api import ApiKey
from kproto.capture import CaptureSummary, exchanges, frames
from kproto.codec import message_class
from kproto.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", 0)


class CountingTap(Tap):
    """Counts how often an event woke it."""

    dispatched = 0

    def _dispatch(self, descriptor: int, events: int) -> None:
        self.dispatched += 1
        super()._dispatch(descriptor, events)


def connect(tap: Tap, at: int = 0) -> socket.socket:
    sock = socket.create_connection(tap.listening[at], timeout=30)
    sock.settimeout(30)
    return sock


def listening() -> socket.socket:
    """A listening socket whose ``accept`` has an end."""
    node = socket.create_server(LOOPBACK)
    node.settimeout(30)
    return node


def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"the stream ended after {len(data)} of {count} bytes"
        data += piece
    return data


@contextlib.contextmanager
def through(recorder: Any, kind: type[Tap] = Tap) -> Iterator[tuple[Any, socket.socket, socket.socket, socket.socket]]:
    """A tap, and the client's and the node's end of a connection through it, and where the node listens."""
    with (
        listening() as node,
        recorder,
        kind([TapMapping(LOOPBACK, node.getsockname())], recorder) as tap,
        connect(tap) as sock,
        node.accept()[0] as far,
    ):
        far.settimeout(30)
        yield tap, sock, far, node


def ends_one_after_the_other(sock: socket.socket, far: socket.socket) -> None:
    """The end of one direction is handed on, and the other one goes on."""
    sock.sendall(b"question")
    sock.shutdown(socket.SHUT_WR)
    assert received(far, 8) == b"question"
    assert far.recv(1) == b""
    far.sendall(b"answer")
    far.close()
    assert received(sock, 6) == b"answer"
    assert sock.recv(1) == b""


def damages(*files: Path) -> list[Path]:
    """The files that ``kproto check`` finds damaged."""
    result = run_kproto("check", "--format", "json", *files)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(each["file"]) for each in found] == list(files)
    assert result.exit_code == (not all(each["whole"] for each in found))
    return [Path(each["file"]) for each in found if not each["whole"]]


def is_reset(sock: socket.socket) -> bool:
    """Wait for the end of a connection; whether a reset ended it."""
    try:
        while sock.recv(1000):
            pass
    except ConnectionResetError:
        return True
    return False


def server_tls() -> ssl.SSLContext:
    return server_context(SECURITY)


def client_tls() -> ssl.SSLContext:
    return client_context(SECURITY)


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        yield server


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return tmp_path / "tap.pcapng"


@pytest.fixture
def tap(echo: EchoServer, recording: Path) -> Iterator[Tap]:
    with PcapngRecorder(recording) as recorder, Tap([TapMapping(LOOPBACK, echo.address)], recorder) as tap:
        yield tap


# ---- relaying --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 300_000, 5_000_000])
def test_bytes_go_there_and_back_unchanged(tap: Tap, size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    with connect(tap) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data[:size],))
        sender.start()
        assert received(sock, size) == data[:size]
        sender.join()
    until(lambda: tap.relayed == 2 * size)


def test_many_connections_are_relayed_side_by_side(tap: Tap) -> None:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(tap)) for _ in range(50)]
        for i, sock in enumerate(socks):
            sock.sendall(b"%03d" % i * 1000)
        for i, sock in enumerate(socks):
            assert received(sock, 3000) == b"%03d" % i * 1000
    assert tap.connections == 50


def test_the_end_of_one_direction_is_handed_on_and_the_other_goes_on(recording: Path) -> None:
    with through(PcapngRecorder(recording)) as (_, sock, far, *_):
        ends_one_after_the_other(sock, far)


def test_a_client_waits_for_a_node_that_does_not_read(recording: Path) -> None:
    """Back-pressure: what the node does not take stays in the client, not in the tap."""
    with through(PcapngRecorder(recording)) as (tap, sock, far, node):
        sock.settimeout(0.2)
        piece, sent = random.Random(1).randbytes(1 << 20), 0
        with contextlib.suppress(TimeoutError):
            while sent < 200_000_000:
                sent += sock.send(memoryview(piece)[sent % len(piece) :])
        assert sent < 100_000_000
        relayed = tap.relayed
        # The bytes of another connection pass, and leave those that are held back as they are.
        with connect(tap) as other, node.accept()[0] as others_far:
            other.sendall(bytes(len(piece)))
            assert received(others_far, len(piece)) == bytes(len(piece))
        assert received(far, sent) == (piece * (sent // len(piece) + 1))[:sent]
        until(lambda: tap.relayed == sent + len(piece))
        assert relayed < sent


def test_a_node_that_is_down_resets_its_clients_and_nobody_else(echo: EchoServer, recording: Path) -> None:
    gone = bound_socket()
    mappings = [TapMapping(LOOPBACK, gone.getsockname()), TapMapping(LOOPBACK, echo.address)]
    with gone, PcapngRecorder(recording) as recorder, Tap(mappings, recorder) as tap:
        with pytest.raises(ConnectionResetError), connect(tap, 0) as sock:  # on connecting or on reading
            sock.recv(1)
        with connect(tap, 1) as sock:
            sock.sendall(b"fine")
            assert received(sock, 4) == b"fine"


@pytest.mark.parametrize("refuses", ["127.0.0.2", "255.255.255.255"])  # after a while, and at once
def test_each_address_of_a_node_is_tried(refuses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[str] = []

    def noted(address: Any, *sizes: int) -> Any:
        dialled.append(address[0])
        return dial(address, *sizes)

    monkeypatch.setattr("channel.network.sockets.resolve", {"node": [refuses, "127.0.0.1"]}.__getitem__)
    monkeypatch.setattr("channel.tap.relay.dial", noted)
    recorder = WaitingRecorder()
    recorder.arrived.set()
    with (
        listening() as node,
        bound_socket("127.0.0.2", node.getsockname()[1]),
        Tap([TapMapping(LOOPBACK, ("node", node.getsockname()[1]))], recorder) as tap,
    ):
        for _ in range(2):
            with connect(tap) as sock, node.accept()[0] as far:
                sock.sendall(b"ping")
                assert received(far, 4) == b"ping"
        assert recorder.nodes == [node.getsockname()] * 2
        node.close()
        with contextlib.suppress(ConnectionResetError), connect(tap) as sock:
            assert is_reset(sock)
    assert dialled == [refuses, "127.0.0.1", "127.0.0.1", "127.0.0.1", refuses]  # what has refused comes last


def test_an_address_that_never_answers_is_passed_over_in_time(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr("channel.network.sockets.resolve", {"node": ["127.0.0.2", "127.0.0.1"]}.__getitem__)
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(listening())
        port = node.getsockname()[1]
        full = stack.enter_context(bound_socket("127.0.0.2", port))
        full.listen(0)
        stack.enter_context(socket.create_connection(("127.0.0.2", port), 30))  # no further one is answered
        recorder = stack.enter_context(PcapngRecorder(recording))
        tap = stack.enter_context(Tap([TapMapping(LOOPBACK, ("node", port))], recorder, clock=clock))
        sock = stack.enter_context(connect(tap))
        until(lambda: len(tap._links) == 2)
        clock.sleep(31_000)
        tap._waker.wake()
        sock.sendall(b"ping")
        far = stack.enter_context(node.accept()[0])
        far.settimeout(30)
        assert received(far, 4) == b"ping"


def test_a_name_is_looked_up_for_each_connection(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has moved is found again."""
    addresses = ["127.0.0.1"]
    monkeypatch.setattr("channel.network.sockets.resolve", lambda _: list(addresses))
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(listening())
        port = node.getsockname()[1]
        moved = stack.enter_context(bound_socket("127.0.0.2", port))
        moved.listen()
        moved.settimeout(30)
        recorder = stack.enter_context(PcapngRecorder(recording))
        tap = stack.enter_context(Tap([TapMapping(LOOPBACK, ("node", port))], recorder))
        for address, there in (("127.0.0.1", node), ("127.0.0.2", moved)):
            addresses[:] = [address]
            with connect(tap) as sock, there.accept()[0] as far:
                sock.sendall(b"ping")
                assert received(far, 4) == b"ping"


def test_a_name_that_leads_back_or_nowhere_resets_its_client_alone(
    recording: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[list[str] | OSError] = [["127.0.0.9"]]

    def answer(_: str) -> list[str]:
        if isinstance(answers[0], OSError):
            raise answers[0]
        return answers[0]

    monkeypatch.setattr("channel.network.sockets.resolve", answer)
    with bound_socket() as free:
        port = free.getsockname()[1]
    with PcapngRecorder(recording) as recorder, Tap([TapMapping(("127.0.0.1", port), ("node", port))], recorder) as tap:
        for found, why in (([f"127.0.0.{n}" for n in (9, 1)], "own listening address"), (OSError("gone"), "gone")):
            answers[0] = found
            with contextlib.suppress(ConnectionResetError), connect(tap) as sock:
                assert is_reset(sock)
            until(lambda why=why: why in caplog.text)
        assert tap.is_alive


@pytest.mark.parametrize("at_once", [True, False])
def test_any_number_of_addresses_is_tried(at_once: bool, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"127.1.{n // 250}.{n % 250 + 1}" for n in range(1500)]
    monkeypatch.setattr("channel.network.sockets.resolve", lambda _: [*many, "127.0.0.1"])

    def refused(address: Any, *sizes: int) -> Any:
        if at_once and address[0] in many:
            raise ConnectionRefusedError("no")
        return dial(address, *sizes)

    monkeypatch.setattr("channel.tap.relay.dial", refused)
    with (
        listening() as node,
        PcapngRecorder(recording) as recorder,
        Tap([TapMapping(LOOPBACK, ("node", node.getsockname()[1]))], recorder) as tap,
        connect(tap) as sock,
        node.accept()[0] as far,
    ):
        sock.sendall(b"ping")
        assert received(far, 4) == b"ping"


def test_a_name_that_is_not_looked_up_in_time_resets_the_client(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked, may_answer = FakeClock(), [], threading.Event()

    def resolve(name: str) -> list[str]:
        asked.append(name)
        if len(asked) > 1:
            may_answer.wait(60)
        return ["127.0.0.1"]

    monkeypatch.setattr("channel.network.sockets.resolve", resolve)
    with (
        listening() as node,
        PcapngRecorder(recording) as recorder,
        Tap([TapMapping(LOOPBACK, ("node", node.getsockname()[1]))], recorder, clock=clock) as tap,
    ):
        with connect(tap) as sock:
            until(lambda: len(asked) == 2)
            clock.sleep(31_000)
            tap._waker.wake()
            assert is_reset(sock)
        may_answer.set()
        with connect(tap) as sock, node.accept()[0] as far:
            sock.sendall(b"ping")
            assert received(far, 4) == b"ping"


def test_a_tap_is_closed_while_a_name_is_looked_up(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def resolve(_: str) -> list[str]:
        if tap is not None:
            asked.set()
            may_answer.wait(60)
        return ["127.0.0.1"]

    tap = None
    monkeypatch.setattr("channel.network.sockets.resolve", resolve)
    with PcapngRecorder(recording) as recorder:
        tap = Tap([TapMapping(LOOPBACK, ("node", 1))], recorder)
        tap.start()
        with connect(tap) as sock:
            assert asked.wait(60)
            assert tap.close(60)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""
        may_answer.set()


def test_a_client_that_resets_before_it_is_accepted_ends_nobody_else(echo: EchoServer, recording: Path) -> None:
    with PcapngRecorder(recording) as recorder:
        tap = Tap([TapMapping(LOOPBACK, echo.address)], recorder)
        early = connect(tap)  # the system has taken the connection, and the tap accepts it once it is started
        early.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        early.close()
        with tap, connect(tap) as client:
            client.sendall(b"ping")
            assert received(client, 4) == b"ping"
            assert tap.error is None


def test_a_tap_without_a_descriptor_for_the_node_resets_the_client_and_goes_on(tap: Tap, monkeypatch: Any) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(socket, name)

        def socket(self, *_: Any) -> socket.socket:
            raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("channel.network.sockets.socket", Full())
        with contextlib.suppress(ConnectionResetError), connect(tap) as client:  # the reset may come at once
            assert is_reset(client)
    with connect(tap) as client:
        client.sendall(b"ping")
        assert received(client, 4) == b"ping"


def test_a_killed_node_ends_its_connection(echo: EchoServer, tap: Tap) -> None:
    with connect(tap) as sock:
        sock.sendall(b"x")
        received(sock, 1)
        echo.close_connections()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""


def test_a_client_that_resets_while_the_node_is_slow_costs_no_cpu(recording: Path) -> None:
    with through(PcapngRecorder(recording), CountingTap) as (tap, sock, *_):
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                sock.sendall(bytes(1 << 20))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        before = tap.dispatched
        time.sleep(0.5)
        assert tap.dispatched - before < 1000  # what it had still to read; without rest it would be tens of thousands


def test_ports_that_are_taken_and_hosts_that_are_not_there_are_named(recording: Path) -> None:
    with socket.create_server(LOOPBACK) as taken, PcapngRecorder(recording) as recorder:
        with pytest.raises(ConfigurationError, match="the port is in use; stop the process that uses it"):
            Tap([TapMapping(taken.getsockname(), ("127.0.0.1", 1))], recorder)
        with pytest.raises(ConfigurationError, match=r"a\.\.b"):
            Tap([TapMapping(LOOPBACK, ("a..b", 9092))], recorder)
        with pytest.raises(ConfigurationError, match="at least one"):
            Tap([], recorder)


@pytest.mark.parametrize("text", ["", "127.0.0.1:1", "x=y", "127.0.0.1:1=:2", "127.0.0.1:99999=a:1", "a:b=c:1"])
def test_a_mapping_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        TapMapping.of(text)


def test_mappings_are_read() -> None:
    assert TapMapping.of("[::1]:19092=kafka-1:9092") == TapMapping(("::1", 19092), ("kafka-1", 9092))
    assert TapMapping.of(":19092=kafka-1:9092").listen == ("0.0.0.0", 19092)
    assert str(TapMapping.of("[::1]:19092=kafka-1:9092")) == "[::1]:19092=kafka-1:9092"


# ---- recording -------------------------------------------------------------------------------------------------------


def test_a_controllers_conversation_reads_like_a_capture(recording: Path) -> None:
    with EmbeddedCluster(2) as cluster, PcapngRecorder(recording) as recorder:
        mappings = [TapMapping(LOOPBACK, (member.host, member.port)) for member in cluster]
        with Tap(mappings, recorder) as tap, ControllerChannelManager(9, lambda: 1) as manager:
            answers: list[Any] = []
            manager.start(Broker(i, (EndPoint(*address),)) for i, address in enumerate(tap.listening))
            for i in range(2):
                for _ in range(5):
                    message = update_metadata({}, broker_epoch=cluster[i].epoch)
                    manager.send_request(i, SingleRequest(message, 8), answers.append)
            until(lambda: len(answers) == 10)
        ports = {member.port for member in cluster}
    seen = list(exchanges(recording))
    assert len(seen) == 10
    assert {int(str(e.server).rpartition(":")[2]) for e in seen} == ports
    assert all(e.response_message.error_code == 0 for e in seen)


class FailingRecorder:
    """A recorder that raises whatever it is asked."""

    def opened(self, *_: object, **__: object) -> None:
        raise ValueError("opened")

    def record(self, *_: object) -> None:
        raise OSError("record")

    closed = flush = record


def test_a_recorder_that_raises_ends_neither_connections_nor_the_tap(echo: EchoServer) -> None:
    with Tap([TapMapping(LOOPBACK, echo.address)], FailingRecorder()) as tap:
        for _ in range(2):
            with connect(tap) as sock:
                for _ in range(3):
                    sock.sendall(b"still here")
                    assert received(sock, 10) == b"still here"
        assert tap.is_alive
        assert str(tap.recording_error) == "opened"
    assert tap.error is None


class WaitingRecorder:
    """A recorder that takes its time."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.recorded: list[tuple[bool, bytes]] = []
        self.nodes: list[object] = []

    def record(self, direction: str, local: object, remote: object, time_ns: int, buffers: list[memoryview]) -> None:
        self.recorded.append((self.arrived.wait(60), b"".join(buffers)))

    def opened(self, _: object, node: object, __: object) -> None:
        self.nodes.append(node)

    def flush(self, *_: object) -> None:
        pass

    closed = flush


def test_bytes_are_recorded_before_they_are_relayed_in_both_directions() -> None:
    recorder = WaitingRecorder()
    with (
        listening() as node,
        Tap([TapMapping(LOOPBACK, node.getsockname())], recorder) as tap,
        connect(tap) as sock,
        node.accept()[0] as far,
    ):
        for source, target, data in ((sock, far, b"request"), (far, sock, b"answer")):
            recorder.arrived.clear()
            source.sendall(data)
            target.settimeout(0.1)
            with pytest.raises(TimeoutError):
                target.recv(1)
            recorder.arrived.set()
            target.settimeout(30)
            assert received(target, len(data)) == data
            assert recorder.recorded[-1] == (True, data)


def test_a_finished_file_that_cannot_be_renamed_keeps_its_name_and_traffic_goes_on(
    echo: EchoServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RotatingRecorder(tmp_path / "t", max_bytes=1000) as recorder:
        for number in (1, 3):
            (tmp_path / f"t-0000{number}.pcapng").mkdir()
        with Tap([TapMapping(LOOPBACK, echo.address)], recorder) as tap, connect(tap) as sock:
            for _ in range(20):
                sock.sendall(bytes(900))
                received(sock, 900)
            assert tap.recording_error is None
    assert [path.name for path in tmp_path.glob("*.part")] == ["t-00001.pcapng.part"]
    assert (tmp_path / "t-00002.pcapng").is_file()
    assert (tmp_path / "t-00004.pcapng").is_file()  # a number whose final name is taken is passed over
    assert "keeps its name" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_tap_that_would_relay_to_itself_is_refused(
    host: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bound_socket() as one, bound_socket() as other:
        ports = one.getsockname()[1], other.getsockname()[1]
    first, second = (TapMapping((host, port), ("127.0.0.1", other)) for port, other in (ports, ports[::-1]))
    with PcapngRecorder(recording) as recorder:
        with pytest.raises(ConfigurationError, match="own listening address"):
            Tap([TapMapping((host, ports[0]), ("127.0.0.1", ports[0]))], recorder)
        with pytest.raises(ConfigurationError, match="own listening address"):
            Tap([first, second], recorder)
        with monkeypatch.context() as patch:
            patch.setattr("channel.network.sockets.resolve", lambda _: ["127.0.0.9", "127.0.0.1"])
            with pytest.raises(ConfigurationError, match="own listening address"):
                Tap([first, second], recorder)
        Tap([first], recorder).close()
        chained = TapMapping((host, ports[1]), ("127.0.0.1", 1))
        Tap([first, chained], recorder).close()


@pytest.mark.parametrize("ends", ["client", "node"])
def test_a_connection_that_stays_half_open_is_reset_in_time(ends: str, recording: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(listening())
        recorder = stack.enter_context(PcapngRecorder(recording))
        mapping = TapMapping(LOOPBACK, ("127.0.0.1" if ends == "client" else "localhost", node.getsockname()[1]))
        tls = {"listener_tls": server_tls()} if ends == "client" else {"upstream_tls": client_tls()}
        tap = Tap([mapping], recorder, clock=clock, **tls)
        stack.callback(tap.close)
        sock = stack.enter_context(connect(tap))
        tap.start()
        stack.enter_context(node.accept()[0])
        until(lambda: len(tap._links) == 2)
        clock.sleep(29_000)
        with connect(tap) as late:  # wakes the tap
            until(lambda: len(tap._links) == 4)
            assert sock.fileno() >= 0
            clock.sleep(1_500)
            tap._waker.wake()
            assert is_reset(sock)
            until(lambda: len(tap._links) == 2)
            assert late.fileno() >= 0


def test_a_killed_tap_leaves_a_recording_that_reads(echo: EchoServer, recording: Path) -> None:
    program = [
        sys.executable,
        "-m",
        "kproto",
        "tap",
        f"--map=127.0.0.1:0=127.0.0.1:{echo.address[1]}",
        "--out",
        recording,
    ]
    tap = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        assert tap.stderr is not None
        port = int(tap.stderr.readline().split()[1].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
            data = frame(bytes(100_000))
            sock.sendall(data)
            received(sock, len(data))
            tap.send_signal(signal.SIGKILL)
            tap.wait(60)
    finally:
        tap.kill()
        tap.communicate()
    assert recording.stat().st_size > 2 * len(data)
    assert damages(recording) in ([], [recording])  # in the last packet, if at all
    summary = CaptureSummary()
    assert list(frames(recording, apis=(), summary=summary)) == []
    assert summary.packets > 2
    assert summary.bad_input_count <= 1


# ---- rotation --------------------------------------------------------------------------------------------------------


def test_a_conversation_that_rotation_cuts_reads_as_one_stream(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    with (
        EmbeddedCluster(1) as cluster,
        RotatingRecorder(recorded / "t.pcapng", max_bytes=2_000) as recorder,
        Tap([TapMapping(LOOPBACK, (cluster[0].host, cluster[0].port))], recorder) as tap,
        ControllerChannelManager(9, lambda: 1) as manager,
    ):
        answers: list[Any] = []
        manager.start([Broker(0, (EndPoint(*tap.listening[0]),))])
        for _ in range(50):
            manager.send_request(0, SingleRequest(update_metadata({}, broker_epoch=1), 8), answers.append)
        until(lambda: len(answers) == 50)
    files = sorted(recorded.iterdir())
    assert len(files) > 3
    assert damages(*files) == []
    seen = list(exchanges(recorded))
    assert [each.response_message.error_code for each in seen] == [0] * 50


def test_a_file_is_finished_by_age_unless_it_is_empty(tmp_path: Path) -> None:
    clock = FakeClock()
    ends = ("127.0.0.1", 1), ("127.0.0.1", 2)
    with RotatingRecorder(tmp_path / "t", max_seconds=10, clock=clock) as recorder:
        clock.sleep(11_000)
        recorder.rotate_if_due()
        assert recorder.finished == 0
        recorder.record("sent", *ends, 0, [METADATA])
        assert recorder.finished == 1
        recorder.record("sent", *ends, 0, [METADATA])
        recorder.rotate_if_due()
        assert recorder.finished == 1
        clock.sleep(11_000)
        recorder.rotate_if_due()
        assert recorder.finished == 2


@pytest.mark.parametrize("limits", [{"max_bytes": 10**6}, {"max_seconds": 60}], ids=["size", "time"])
def test_another_file_is_tried_while_the_disk_is_full(limits: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    clock, writev, is_full = FakeClock(), os.writev, [False]

    def written(fd: int, pieces: list[Any]) -> int:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writev(fd, pieces)

    monkeypatch.setattr(os, "writev", written)
    ends = ("127.0.0.1", 1), ("127.0.0.1", 2)
    with RotatingRecorder(tmp_path / "t", clock=clock, **limits) as recorder:
        recorder.record("sent", *ends, 0, [METADATA])
        is_full[0] = True
        for _ in range(8):
            clock.sleep(4_000)
            recorder.record("sent", *ends, 0, [METADATA])
        is_full[0] = False
        clock.sleep(10_000)
        recorder.rotate_if_due()
        assert recorder.error is None
        assert (recorder.frames, recorder.lost) == (1, 8)
        recorder.record("sent", *ends, 0, [METADATA])
    files = sorted(tmp_path.iterdir())
    assert recorder.finished == len(files) == 2  # those that had no room for a beginning are gone
    summary = CaptureSummary()
    assert list(frames(tmp_path, apis=(), summary=summary)) == []
    assert (summary.packets, summary.bad_input_count) == (2, 0)


def test_a_recording_goes_on_in_its_file_while_no_other_can_begin(tmp_path: Path) -> None:
    clock, folder, away = FakeClock(), tmp_path / "here", tmp_path / "away"
    folder.mkdir()
    with RotatingRecorder(folder / "t", max_bytes=1, clock=clock) as recorder:
        folder.rename(away)
        recorder.record("sent", ("127.0.0.1", 1), ("127.0.0.1", 2), 0, [METADATA])
        away.rename(folder)
        recorder.rotate_if_due()  # not at once again
        assert recorder.path.name == "t-00001.pcapng.part"
        clock.sleep(10_000)
        recorder.rotate_if_due()
    assert sorted(path.name for path in folder.iterdir()) == ["t-00001.pcapng", "t-00002.pcapng"]
    assert recorder.lost == 0


def test_numbers_go_on_after_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "t-00007.pcapng").write_bytes(b"earlier")
    (tmp_path / "t-00009.pcapng.part").write_bytes(b"killed")
    with RotatingRecorder(tmp_path / "t", max_bytes=1000) as recorder:
        assert recorder.path.name == "t-00010.pcapng.part"
    assert (tmp_path / "t-00007.pcapng").read_bytes() == b"earlier"


def test_two_rotating_recorders_of_one_name_share_no_file(tmp_path: Path) -> None:
    with RotatingRecorder(tmp_path / "t", max_bytes=1) as first, RotatingRecorder(tmp_path / "t") as second:
        names = [first.path.name, second.path.name]
        (tmp_path / "t-00003.pcapng").symlink_to(tmp_path / "elsewhere")
        first.rotate_if_due()
        names.append(first.path.name)
    assert names == ["t-00001.pcapng.part", "t-00002.pcapng.part", "t-00004.pcapng.part"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"t-0000{number}.pcapng" for number in (1, 2, 3, 4)]
    assert not (tmp_path / "elsewhere").exists()


# ---- security --------------------------------------------------------------------------------------------------------


def test_tls_ends_at_the_tap_and_begins_anew(echo: EchoServer, recording: Path, tmp_path: Path) -> None:
    """Two taps in a row: TLS between them, plaintext at both ends, and both recordings readable."""
    data = frame(b"\0\x12\0\0\0\0\0\7\xff\xff") * 20_000
    with contextlib.ExitStack() as stack:
        far_recorder = stack.enter_context(PcapngRecorder(recording))
        near_recorder = stack.enter_context(PcapngRecorder(tmp_path / "near.pcapng"))
        far = stack.enter_context(Tap([TapMapping(LOOPBACK, echo.address)], far_recorder, listener_tls=server_tls()))
        upstream = ("localhost", far.listening[0][1])
        near = stack.enter_context(Tap([TapMapping(LOOPBACK, upstream)], near_recorder, upstream_tls=client_tls()))
        sock = stack.enter_context(connect(near))
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        assert received(sock, len(data)) == data
        sender.join()
    assert data[:1000] in recording.read_bytes()
    assert data[:1000] in (tmp_path / "near.pcapng").read_bytes()


def test_the_end_of_one_direction_is_handed_on_over_tls_too(recording: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(listening())
        recorder = stack.enter_context(PcapngRecorder(recording))
        far = stack.enter_context(Tap([TapMapping(LOOPBACK, node.getsockname())], recorder, listener_tls=server_tls()))
        upstream = ("localhost", far.listening[0][1])
        near = stack.enter_context(Tap([TapMapping(LOOPBACK, upstream)], recorder, upstream_tls=client_tls()))
        sock = stack.enter_context(connect(near))
        behind = stack.enter_context(node.accept()[0])
        behind.settimeout(30)
        ends_one_after_the_other(sock, behind)


def test_many_tls_records_that_come_at_once_all_pass(recording: Path, tmp_path: Path) -> None:
    """More than the tap reads of one connection in one turn, and no event that would announce the rest."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_tls().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with (
        listening() as node,
        PcapngRecorder(recording) as recorder,
        Tap([TapMapping(LOOPBACK, node.getsockname())], recorder, listener_tls=server_tls()) as tap,
        connect(tap) as sock,
    ):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65_536))
        for _ in range(100):
            tls.write(b"x")
        sock.sendall(outgoing.read())
        with node.accept()[0] as far:
            far.settimeout(30)
            assert received(far, 100) == b"x" * 100


def test_a_plaintext_client_of_a_tls_listener_is_reset(echo: EchoServer, recording: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        recorder = stack.enter_context(PcapngRecorder(recording))
        tap = stack.enter_context(Tap([TapMapping(LOOPBACK, echo.address)], recorder, listener_tls=server_tls()))
        sock = stack.enter_context(connect(tap))
        sock.sendall(frame(b"no hello"))
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(100):
                pass
        assert tap.connections == 0


def sasl_frames(mechanism: str, handshake: int) -> list[tuple[str, bytes]]:
    """The frames of one authentication and of a request after it, in order."""
    response = message_class(ApiKey.API_VERSIONS, "response")
    one = {"errorCode": 0, "apiKeys": [{"apiKey": 1, "minVersion": 0, "maxVersion": 0}]}
    api = type(response.from_json(one, 0).api_keys[0])
    known = [api(api_key=17, min_version=0, max_version=handshake), api(api_key=36, min_version=0, max_version=2)]
    client = SaslClient(mechanism, Credentials("admin", Password("hunter2")), "1")
    server = SaslServer([mechanism], {"admin": Password("hunter2")}, lambda _: response(error_code=0, api_keys=known))
    frames, outgoing = [], client.start()
    while outgoing:
        answers = []
        for payload in outgoing:
            frames.append(("sent", frame(payload)))
            answers += server.receive(payload)
        outgoing = []
        for payload in answers:
            frames.append(("received", frame(payload)))
            outgoing += sasl_answers(client, payload)
    assert client.complete
    request = b"\0\3\0\0\0\0\0\7\xff\xff\0\0\0\0hunter2 in a request stays"
    return [*frames, ("sent", frame(request)), ("received", frame(b"\0\0\0\7answer"))]


def masked(steps: list[tuple[str, bytes]], size: int) -> dict[str, bytes]:
    """The two streams as a mask leaves them, if the bytes of each step come in pieces of this size."""
    mask, streams = SecretMask(), {"sent": b"", "received": b""}
    for direction, data in steps:
        for at in range(0, len(data), size):
            for piece in mask.masked([data[at : at + size]], is_request=direction == "sent"):
                streams[direction] += bytes(piece)
    return streams


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_tokens_are_hidden_and_all_else_stays(mechanism: str, handshake: int, size: int) -> None:
    frames = sasl_frames(mechanism, handshake)
    streams = masked(frames, size)
    for direction, recorded in streams.items():
        original = b"".join(data for way, data in frames if way == direction)
        assert len(recorded) == len(original)
        assert recorded.endswith(frames[-2 if direction == "sent" else -1][1])
    assert streams["sent"].count(b"hunter2") == 1
    assert b"n=admin" not in streams["sent"]
    assert mechanism.encode() in streams["sent"]
    assert b"i=4096" not in streams["received"]


HANDSHAKE = frame(b"\0\x11\0\0\0\0\0\5\0\1a\0\5PLAIN")
ACCEPTED = frame(b"\0\0\0\5\0\0\0\0\0\1\0\5PLAIN")
REFUSED = frame(b"\0\0\0\5\0\x21\0\0\0\0")
TOKEN = frame(b"\0admin\0hunter2")
METADATA = frame(b"\0\3\0\0\0\0\0\6\0\1a\0\0\0\0")
ANSWER = frame(b"\0\0\0\6\0\0\0\0\0\0\0\0")
TAGGED = b"\0\x24\0\2\0\0\0\7\0\1a\1\x20\7hunter2\6token\0"  # SaslAuthenticate v2, a field in its header
LEAKS = {
    "a token in the handshake's own write": [("sent", HANDSHAKE + TOKEN), ("received", ACCEPTED + frame(b""))],
    "a token before the handshake's answer": [
        ("sent", HANDSHAKE), ("sent", TOKEN), ("received", ACCEPTED), ("received", frame(b"")),
    ],
    "a token after a handshake with padding": [
        ("sent", frame(HANDSHAKE[4:] + b"hunter2")), ("received", ACCEPTED), ("sent", TOKEN), ("received", frame(b"")),
    ],
    "a token after a long handshake": [
        ("sent", frame(HANDSHAKE[4:] + bytes(70_000) + b"hunter2")), ("received", ACCEPTED), ("sent", TOKEN),
        ("received", frame(b"")),
    ],
    "a token after a refusal": [("sent", HANDSHAKE), ("received", REFUSED), ("sent", TOKEN), ("received", frame(b""))],
    "a second token": [
        ("sent", HANDSHAKE), ("received", ACCEPTED), ("sent", TOKEN), ("received", frame(b"")), ("sent", TOKEN),
        ("received", frame(b"")),
    ],
    "a token without a length": [("sent", HANDSHAKE + b"\xff\xff\xff\xff" + TOKEN[4:]), ("received", ACCEPTED)],
    "a handshake of no version": [("sent", frame(b"\0\x11\x7f\xff" + HANDSHAKE[8:]) + TOKEN), ("received", ACCEPTED)],
    "a field in a header": [("sent", frame(TAGGED)), ("received", frame(b"\0\0\0\7\1\x20\7hunter2" + bytes(12)))],
    "a token longer than any": [("sent", frame(b"\0\x24\0\2\0\0\0\7" + b"hunter2" * 100_000))],
    "a user's credentials": [("sent", frame(b"\0\x33\0\0\0\0\0\7\0\1ahunter2"))],
    "a delegation token": [
        ("sent", frame(b"\0\x26\0\0\0\0\0\7\0\1a\0\0\0\0")), ("received", frame(b"\0\0\0\7hunter2")),
    ],
    "credentials in an envelope": [
        ("sent", frame(b"\0\x3a\0\0\0\0\0\7\0\1a\0\x14\0\x33\0\0\0\0\0\x08\0\1ahunter2\1\1\0")),
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("steps", LEAKS.values(), ids=LEAKS)
def test_a_recording_has_no_password_however_it_was_sent(steps: list[tuple[str, bytes]], recording: Path) -> None:
    with through(PcapngRecorder(recording)) as (_, sock, far, *_):
        rest = [] if b"\xff\xff\xff\xff" in steps[0][1] else [("sent", METADATA), ("received", ANSWER)]
        for direction, data in steps + rest:
            source, target = (sock, far) if direction == "sent" else (far, sock)
            sender = threading.Thread(target=source.sendall, args=(data,))
            sender.start()
            assert received(target, len(data)) == data
            sender.join()
    recorded = recording.read_bytes()
    assert b"hunter2" not in recorded
    assert not rest or (METADATA in recorded and ANSWER in recorded)
    for size in (1, 3, 12, 50):
        streams = masked(steps + rest, size)
        for direction, stream in streams.items():
            assert len(stream) == sum(len(data) for way, data in steps + rest if way == direction)
            assert b"hunter2" not in stream
            assert not rest or stream.endswith(METADATA if direction == "sent" else ANSWER)


@given(st.lists(st.tuples(st.sampled_from(["sent", "received"]), st.binary(max_size=60))), st.integers(1, 20))
def test_no_bytes_break_the_mask(steps: list[tuple[str, bytes]], size: int) -> None:
    whole = [("sent", HANDSHAKE), *steps, ("sent", bytes(16)), ("received", bytes(16))]
    for direction, stream in masked(whole, size).items():
        assert len(stream) <= sum(len(data) for way, data in whole if way == direction)


@given(
    requests=st.lists(st.tuples(st.sampled_from([0, 1, 3, 4, 18, 19]), st.integers(0, 12), st.binary(max_size=40))),
    size=st.integers(1, 40),
)
def test_what_is_no_secret_passes_as_it_is(requests: list[tuple[int, int, bytes]], size: int) -> None:
    steps = [("sent", HANDSHAKE), ("sent", TOKEN), ("received", ACCEPTED + frame(b"n\0\0\0token"))]
    for i, (api_key, version, body) in enumerate(requests):
        correlation_id = (100 + i).to_bytes(4, "big")
        head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
        steps += [("sent", frame(head + correlation_id + body)), ("received", frame(correlation_id + body))]
    streams = masked(steps, size)
    assert streams["sent"] == HANDSHAKE + frame(bytes(14)) + b"".join(data for way, data in steps[2:] if way == "sent")
    assert streams["received"] == ACCEPTED + frame(bytes(9)) + b"".join(
        data for w, data in steps[3:] if w == "received"
    )


def test_only_its_owner_may_read_a_recording(recording: Path, tmp_path: Path) -> None:
    recording.touch(0o644)
    umask = os.umask(0)
    try:
        with PcapngRecorder(recording) as made, RotatingRecorder(tmp_path / "rotated", max_bytes=1) as rotating:
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (recording, made.path, rotating.path)]
    finally:
        os.umask(umask)
    assert modes == [0o644, 0o600, 0o600]
