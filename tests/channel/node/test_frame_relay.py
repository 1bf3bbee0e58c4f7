"""Frames that a node passes to live brokers: whole answers, brokers that are away, and the end."""

from __future__ import annotations

import socket
import struct
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest
from tls_certificates import certificates

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.network.server import ANONYMOUS
from channel.node import frame_relay
from channel.node.frame_relay import FrameRelay, channels_of_clients
from channel.security import Password, SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto import codec, headers
from kproto.api import ApiKey
from kproto.messages import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAIN = channels_of_clients(SecurityProtocol.PLAINTEXT, SecurityConfig())


class Peer:
    """A broker that answers each connection's first bytes with what a function returns."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received: SimpleQueue[bytes] = SimpleQueue()
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                frame = connection.recv(65536)
                self.received.put(frame)
                connection.sendall(self._answer(frame))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[bytes], bytes]], Peer]]:
    made: list[Peer] = []

    def make(answer: Callable[[bytes], bytes]) -> Peer:
        made.append(Peer(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ask(frame: bytes, *ports: int) -> bytes | None:
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    relay = FrameRelay("relay", lambda: [Node(i, "127.0.0.1", port) for i, port in enumerate(ports)], PLAIN)
    try:
        relay(ANONYMOUS, frame, answers.put)
        return answers.get(timeout=60)
    finally:
        relay.close()


def unused() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_frame_and_its_answer_pass_as_they_are(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: struct.pack(">i", 6) + b"answer")
    assert ask(b"request", broker.port) == b"answer"
    assert broker.received.get(timeout=60) == struct.pack(">i", 7) + b"request"


def test_a_broker_that_cannot_be_reached_is_passed_over(peer: Callable[..., Peer]) -> None:
    broker = peer(lambda frame: struct.pack(">i", 0))
    assert all(ask(b"request", unused(), unused(), broker.port) == b"" for _ in range(5))


@pytest.mark.parametrize("answer", [b"", b"\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x09half"])
def test_no_whole_answer_is_none_and_no_second_broker_is_asked(peer: Callable[..., Peer], answer: bytes) -> None:
    first, second = peer(lambda frame: answer), peer(lambda frame: answer)
    assert ask(b"request", first.port, second.port) is None
    assert first.received.qsize() + second.received.qsize() == 1


def test_without_a_broker_there_is_no_answer() -> None:
    assert ask(b"request") is None
    assert ask(b"request", unused()) is None


def test_the_end_breaks_off_what_a_broker_does_not_answer(peer: Callable[..., Peer]) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def silent(frame: bytes) -> bytes:
        asked.set()
        go_on.wait(60)
        return b""

    broker, answers = peer(silent), SimpleQueue[bytes | None]()
    relay = FrameRelay("relay", lambda: [Node(0, "127.0.0.1", broker.port)], PLAIN)
    relay(ANONYMOUS, b"request", answers.put)
    assert asked.wait(60)
    relay.close()
    assert answers.get(timeout=60) is None
    relay(ANONYMOUS, b"late", answers.put)
    assert answers.get(timeout=60) is None
    relay.close()
    go_on.set()


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
        relay = FrameRelay("relay", lambda: [node], channels_of_clients(protocol, security))
        try:
            relay(principal, frame, answers.put)
            answer = answers.get(timeout=60)
        finally:
            relay.close()
    assert seen == ([principal] if passes else [])
    assert (answer is not None and answer[:4] == (7).to_bytes(4, "big")) is passes


def test_every_address_of_a_broker_is_tried(peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    broker = peer(lambda frame: struct.pack(">i", 6) + b"answer")
    monkeypatch.setattr(frame_relay, "resolve", lambda host: ["127.0.0.2", "127.0.0.1"])  # the first is not served
    assert ask(b"request", broker.port) == b"answer"


def test_a_broker_whose_name_is_not_resolved_is_passed_over(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, unknown = peer(lambda frame: struct.pack(">i", 6) + b"answer"), Node(7, "no.such.host.invalid", 9092)

    def resolve(host: str) -> list[str]:
        if host == unknown.host:
            raise OSError("Name or service not known")
        return [host]

    monkeypatch.setattr(frame_relay, "resolve", resolve)
    monkeypatch.setattr(frame_relay.random, "shuffle", lambda brokers: brokers.sort(key=lambda node: -node.id))
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    relay = FrameRelay("relay", lambda: [Node(1, "127.0.0.1", broker.port), unknown], PLAIN)
    try:
        relay(ANONYMOUS, b"request", answers.put)
        assert answers.get(timeout=60) == b"answer"
    finally:
        relay.close()
