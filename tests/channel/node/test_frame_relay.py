"""Frames that a node passes to live brokers: whole answers, brokers that are away, and the end."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from network_peers import until
from tls_certificates import certificates

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.network import sockets
from channel.network.server import ANONYMOUS
from channel.node import frame_relay
from channel.node.frame_relay import FrameRelay, channels_of_clients
from channel.security import Password, SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto import codec, headers
from kproto.api import ApiKey
from kproto.messages import MetadataRequest

PLAIN = channels_of_clients(SecurityProtocol.PLAINTEXT, SecurityConfig())


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


CORRELATION_ID = b"\x7f\xff\xff\xfe"
REQUEST = struct.pack(">hh", ApiKey.METADATA, 12) + CORRELATION_ID + b"request"
ANSWER = framed(CORRELATION_ID + b"answer")


class Peer:
    """A broker that answers each frame with what a function returns, and closes a connection after no whole answer."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received: SimpleQueue[bytes] = SimpleQueue()
        self.connections: list[socket.socket] = []
        self._answer = answer
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self._threads.append(threading.Thread(target=self._answer_all, args=[connection], daemon=True))
            self._threads[-1].start()

    def _answer_all(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while frame := connection.recv(65536):
                self.received.put(frame)
                answer = self._answer(frame)
                connection.sendall(answer)
                if answer != ANSWER:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._threads:
            each.join(60)


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[bytes], bytes]], Peer]]:
    made: list[Peer] = []

    def make(answer: Callable[[bytes], bytes]) -> Peer:
        made.append(Peer(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def relaying(*ports: int, host: str = "127.0.0.1") -> FrameRelay:
    return FrameRelay("relay", lambda: [Node(i, host, port) for i, port in enumerate(ports)], PLAIN)


def pass_on(relay: FrameRelay, *frames: bytes) -> list[bytes | None]:
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    for frame in frames:
        relay(ANONYMOUS, frame, answers.put)
    return [answers.get(timeout=60) for _ in frames]


def ask(*ports: int, host: str = "127.0.0.1") -> bytes | None:
    with relaying(*ports, host=host) as relay:
        return pass_on(relay, REQUEST)[0]


def unused() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_frame_and_its_answer_pass_as_they_are(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: ANSWER)
    assert ask(broker.port) == ANSWER[4:]
    assert broker.received.get(timeout=60) == framed(REQUEST)


def test_a_connection_is_kept_for_the_next_frame_and_replaced_when_it_has_ended(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: ANSWER)
    with relaying(broker.port) as relay:
        for _ in range(5):
            assert pass_on(relay, REQUEST) == [ANSWER[4:]]
        (first,) = broker.connections
        first.shutdown(socket.SHUT_RDWR)
        until(lambda: not relay._idle)
        assert pass_on(relay, REQUEST) == [ANSWER[4:]]
    assert len(broker.connections) == 2


def test_many_frames_take_a_bounded_number_of_connections(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_relay, "_MOST_KEPT", 3)
    broker = peer(lambda frame: ANSWER)
    with relaying(broker.port) as relay:
        assert pass_on(relay, *[REQUEST] * 100) == [ANSWER[4:]] * 100
        assert len(relay._lines) <= 3
    assert 1 <= len(broker.connections) <= 100


def test_more_frames_than_may_wait_are_refused_at_once(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_relay, "_MOST_WAITING", 2)
    go_on = threading.Event()

    def slow(frame: bytes) -> bytes:
        go_on.wait(60)
        return ANSWER

    broker, answers = peer(slow), SimpleQueue[bytes | None]()
    with relaying(broker.port) as relay:
        for _ in range(8):
            relay(ANONYMOUS, REQUEST, answers.put)
            broker.received.get(timeout=60)
        refused: list[bytes | None] = []
        for _ in range(4):
            relay(ANONYMOUS, REQUEST, refused.append if len(relay._waiting) >= 2 else answers.put)
        assert refused == [None, None]
        go_on.set()
        assert [answers.get(timeout=60) for _ in range(10)] == [ANSWER[4:]] * 10


def test_a_broker_that_cannot_be_reached_is_passed_over(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: ANSWER)
    assert all(ask(unused(), unused(), broker.port) == ANSWER[4:] for _ in range(5))


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x09half", framed(b""), framed(b"\0\0\0\1other")],
)
def test_no_whole_answer_is_none_and_no_second_broker_is_asked(peer: Callable[..., Peer], answer: bytes) -> None:
    first, second = peer(lambda frame: answer), peer(lambda frame: answer)
    assert ask(first.port, second.port) is None
    assert first.received.qsize() + second.received.qsize() == 1


def test_without_a_broker_there_is_no_answer() -> None:
    assert ask() is None
    assert ask(unused()) is None


def test_the_end_breaks_off_what_a_broker_does_not_answer(peer: Callable[..., Peer]) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def silent(frame: bytes) -> bytes:
        asked.set()
        go_on.wait(60)
        return b""

    broker, answers = peer(silent), SimpleQueue[bytes | None]()
    relay = relaying(broker.port)
    relay.start()
    relay(ANONYMOUS, REQUEST, answers.put)
    assert asked.wait(60)
    relay.close()
    assert answers.get(timeout=60) is None
    relay(ANONYMOUS, REQUEST, answers.put)
    assert answers.get(timeout=60) is None
    relay.close()
    go_on.set()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left_of_a_relay_whether_it_began_or_not(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: ANSWER)
    before = descriptors()
    relaying(broker.port).close()
    assert descriptors() == before
    with relaying(broker.port) as relay:
        pass_on(relay, *[REQUEST] * 20)
        client = relay._client
    assert (relay._lines, relay._idle, relay._under_way) == ({}, {}, {})
    assert not client._selector.channels


@pytest.mark.parametrize(
    ("protocol", "principal", "passes"),
    [
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, True),
        (SecurityProtocol.SSL, ANONYMOUS, True),
        (SecurityProtocol.SSL, "User:CN=client", False),
        (SecurityProtocol.SASL_PLAINTEXT, "User:alice", True),
        (SecurityProtocol.SASL_SSL, "User:alice", True),
        (SecurityProtocol.SASL_SSL, "User:admin", True),
        (SecurityProtocol.SASL_SSL, "User:mallory", False),
    ],
)
def test_a_broker_sees_the_client_and_never_the_node(protocol: SecurityProtocol, principal: str, passes: bool) -> None:
    key, certificate = certificates().server.split("-----BEGIN CERTIFICATE-----", 1)
    users = {"alice": Password("hers"), "admin": Password("secret")}
    security = SecurityConfig(
        ssl_keystore_key=Password(key),
        ssl_keystore_certificate_chain=f"-----BEGIN CERTIFICATE-----{certificate}",
        ssl_truststore_certificates=certificates().authority,
        ssl_client_auth="requested",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_enabled_mechanisms=("SCRAM-SHA-512",),
        sasl_username="admin",
        sasl_password=users["admin"],
        users=users,
    )
    seen: list[str] = []

    def intercept(context: RequestContext, request: object) -> None:
        seen.append(context.principal)

    header = headers.request_header(ApiKey.METADATA, 12, 7, "client")
    frame = headers.encode_request_header(header, 2) + codec.encode(MetadataRequest(topics=[]), 12)
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    with EmbeddedCluster(
        1, protocol=protocol, security=security, hooks=lambda _: BrokerHooks(intercept=intercept)
    ) as cluster:
        node = Node(0, "localhost", cluster[0].port)
        with FrameRelay("relay", lambda: [node], channels_of_clients(protocol, security)) as relay:
            relay(principal, frame, answers.put)
            answer = answers.get(timeout=60)
    assert seen == ([principal] if passes else [])
    assert (answer is not None and answer[:4] == (7).to_bytes(4, "big")) is passes


def resolve(monkeypatch: pytest.MonkeyPatch, **found: list[str]) -> None:
    def addresses(host: str) -> list[str]:
        if host not in found:
            raise OSError("Name or service not known")
        return found[host]

    monkeypatch.setattr(sockets, "resolve", addresses)


def test_every_address_of_a_broker_is_tried(peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    broker = peer(lambda frame: ANSWER)
    resolve(monkeypatch, broker=["127.0.0.2", "127.0.0.3", "127.0.0.1"])  # the others are not served
    assert ask(broker.port, host="broker") == ANSWER[4:]
    resolve(monkeypatch, broker=["127.0.0.2", "127.0.0.3"])
    assert ask(broker.port, host="broker") is None


def test_a_broker_whose_name_is_not_resolved_is_passed_over(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, unknown = peer(lambda frame: ANSWER), Node(7, "unknown", 9092)
    resolve(monkeypatch)
    monkeypatch.setattr(frame_relay.random, "sample", lambda brokers, count: brokers)
    with FrameRelay("relay", lambda: [Node(1, "127.0.0.1", broker.port), unknown], PLAIN) as relay:
        assert pass_on(relay, REQUEST) == [ANSWER[4:]]


def test_a_broker_that_does_not_finish_the_handshake_is_given_up(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of reaching a broker holds for its authentication too."""
    monkeypatch.setattr(frame_relay, "_CONNECT_MS", 50)
    tls = channels_of_clients(
        SecurityProtocol.SSL, SecurityConfig(ssl_truststore_certificates=certificates().authority)
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = Node(0, "localhost", silent.getsockname()[1])
        with FrameRelay("relay", lambda: [broker], tls) as relay:
            assert pass_on(relay, REQUEST) == [None]
            assert not relay._lines
