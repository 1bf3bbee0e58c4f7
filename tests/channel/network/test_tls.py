"""TLS as a transport, over real sockets: handshakes that succeed, fail and are cut off, payload, closing."""

import contextlib
import itertools
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from network_peers import until
from tls_certificates import certificates

from channel.errors import AuthenticationFailed
from channel.network import transport as transports
from channel.network.tls import TlsState, TlsTransport
from channel.network.transport import EVENT_READ, EVENT_WRITE, PlaintextTransport
from channel.security import SecurityConfig
from channel.tls_contexts import client_context, server_context

VERSIONS = ["TLSv1.2", "TLSv1.3"]


class Wire:
    """A socket whose every call a test may fail, delay or cut."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.before_read: Callable[[], None] = lambda: None
        self.before_send: Callable[[], None] = lambda: None
        self.most_read = 1 << 20
        self.most_sent = 1 << 20

    def recv_into(self, buffer: memoryview) -> int:
        self.before_read()
        return self.sock.recv_into(buffer[: self.most_read])

    def sendmsg(self, buffers: tuple[memoryview]) -> int:
        self.before_send()
        return self.sock.send(buffers[0][: self.most_sent])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


@dataclass
class Side:
    """One end: its transport, and how its handshake ended."""

    transport: TlsTransport
    wire: Wire
    error: Exception | None = None
    wanted: int = -1

    def step(self) -> None:
        if self.error is None and self.wanted != 0:
            try:
                self.wanted = self.transport.handshake()
            except (OSError, AuthenticationFailed) as e:
                self.error = e
                self.transport.close()

    @property
    def over(self) -> bool:
        return self.error is not None or self.wanted == 0


@dataclass
class Pair:
    client: Side
    server: Side
    sides: list[Side] = field(init=False)

    def __post_init__(self) -> None:
        self.sides = [self.client, self.server]

    def handshake(self) -> None:
        until(lambda: all(side.over for side in self.sides), step=self.step)

    def step(self) -> None:
        for side in self.sides:
            side.step()


def context_of(settings: dict[str, str], *, server: bool) -> ssl.SSLContext:
    security = SecurityConfig.of(settings)
    return server_context(security) if server else client_context(security)


def keystore(pem: str) -> dict[str, str]:
    key, _, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    return {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----" + chain}


@pytest.fixture(autouse=True)
def _calls_of_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes pass by the methods of ``Wire``."""
    monkeypatch.setattr(transports, "send_small", lambda fd, buffers: -1)
    monkeypatch.setattr(transports, "receive_small", lambda fd, buffer: -1)


@pytest.fixture
def make() -> Iterator[Callable[..., Pair]]:
    made: list[TlsTransport] = []

    def pair(
        client: dict[str, str] | None = None,
        server: dict[str, str] | None = None,
        *,
        certificate: str | None = None,
        host: str = "localhost",
        version: str = "TLSv1.3",
    ) -> Pair:
        known = {"ssl.truststore.certificates": certificates().authority}
        ours = context_of({**known, "ssl.enabled.protocols": version, **(client or {})}, server=False)
        theirs = {**keystore(certificate or certificates().server), "ssl.enabled.protocols": version, **(server or {})}
        listening = socket.create_server(("127.0.0.1", 0))
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        listening.close()
        for sock in (near, far):
            sock.setblocking(False)
        wires = Wire(near), Wire(far)
        transports = (
            TlsTransport(wires[0], ours, server_side=False, server_hostname=host, connected=True),  # type: ignore[arg-type]
            TlsTransport(wires[1], context_of({**known, **theirs}, server=True), server_side=True, connected=True),  # type: ignore[arg-type]
        )
        made.extend(transports)
        return Pair(*(Side(transport, wire) for transport, wire in zip(transports, wires, strict=True)))

    yield pair
    for transport in made:
        transport.close()


def received(transport: TlsTransport, count: int) -> bytes:
    """So many bytes of plaintext."""
    buffer = memoryview(bytearray(count))
    at = 0

    def read() -> None:
        nonlocal at
        at += transport.read_into(buffer[at:])

    until(lambda: at == count, step=read)
    return bytes(buffer)


def sent(transport: TlsTransport, data: bytes, drain: Callable[[], None] = lambda: None) -> None:
    at = 0
    while at < len(data) or transport.has_pending_writes:
        at += transport.write([memoryview(data)[at:]])
        drain()


def moved(pair: Pair, buffers: list[bytes]) -> bytes:
    """Send the buffers from client to server; gives what arrived."""
    at, got = 0, b""

    def move() -> None:
        nonlocal at, got
        rest, skip = [], at
        for buffer in buffers:
            rest.append(buffer[skip:])
            skip = max(0, skip - len(buffer))
        at += pair.client.transport.write(rest)
        buffer = memoryview(bytearray(100_000))
        got += bytes(buffer[: pair.server.transport.read_into(buffer)])

    until(lambda: len(got) == sum(map(len, buffers)), step=move)
    return got


# ---- handshakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ends_agree_and_exchange_payload(make: Callable[..., Pair], version: str) -> None:
    pair = make(version=version)
    pair.handshake()
    assert [side.error for side in pair.sides] == [None, None]
    assert (pair.client.transport.cipher_information or ("", ""))[1] == version
    for sender, receiver in (pair.sides, pair.sides[::-1]):
        sent(sender.transport, b"hello")
        assert received(receiver.transport, 5) == b"hello"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_goes_through_byte_by_byte(make: Callable[..., Pair], version: str) -> None:
    pair = make(version=version)
    for side in pair.sides:
        side.wire.most_read = side.wire.most_sent = 1
    pair.handshake()
    assert all(side.transport.ready for side in pair.sides)
    sent(pair.client.transport, b"hello")
    assert received(pair.server.transport, 5) == b"hello"


def test_the_handshake_says_for_which_event_it_waits(make: Callable[..., Pair]) -> None:
    pair = make()
    pair.client.step()
    assert pair.client.wanted == EVENT_READ

    def full() -> None:
        raise BlockingIOError

    pair.server.wire.before_send = full
    until(lambda: pair.server.wanted == EVENT_WRITE, step=pair.server.step)
    assert pair.server.transport.has_pending_writes
    pair.server.wire.before_send = lambda: None
    pair.handshake()
    assert all(side.transport.ready for side in pair.sides)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [("other_host", "hostname mismatch"), ("expired", "expired")],
    ids=["wrong host", "expired"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_that_is_not_accepted_fails_both_ends(
    make: Callable[..., Pair], certificate: str, reason: str, version: str
) -> None:
    pair = make(certificate=getattr(certificates(), certificate), version=version)
    pair.handshake()
    assert isinstance(pair.client.error, AuthenticationFailed)
    assert reason in str(pair.client.error).lower()
    if pair.server.error is None:
        with pytest.raises(AuthenticationFailed):  # TLS 1.3: the server was done before the client looked
            received(pair.server.transport, 1)
    else:
        assert isinstance(pair.server.error, AuthenticationFailed)


def test_an_unknown_authority_is_not_trusted(make: Callable[..., Pair]) -> None:
    pair = make(certificate=certificates().stranger)
    pair.handshake()
    assert isinstance(pair.client.error, AuthenticationFailed)
    assert "unable to get local issuer certificate" in str(pair.client.error)


@pytest.mark.conformance("STL-13")
def test_without_endpoint_identification_another_hosts_certificate_will_do(make: Callable[..., Pair]) -> None:
    pair = make({"ssl.endpoint.identification.algorithm": ""}, certificate=certificates().other_host)
    pair.handshake()
    sent(pair.client.transport, b"echo")
    assert received(pair.server.transport, 4) == b"echo"


@pytest.mark.conformance("STL-10")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_the_certificate_that_is_required_is_refused(make: Callable[..., Pair], version: str) -> None:
    pair = make(server={"ssl.client.auth": "required"}, version=version)
    pair.handshake()
    assert isinstance(pair.server.error, AuthenticationFailed)
    assert_client_learns(pair)


@pytest.mark.conformance("STL-09")
@pytest.mark.parametrize("delays", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_learns_of_the_refusal_even_if_the_alert_goes_out_late(
    make: Callable[..., Pair], version: str, delays: int
) -> None:
    pair = make(keystore(certificates().stranger), {"ssl.client.auth": "required"}, version=version)
    until(lambda: pair.server.transport.state is not TlsState.NOT_INITIALIZED, step=pair.step)
    left = [0]

    def late() -> None:
        if pair.server.transport.state is TlsState.HANDSHAKE_FAILED and left[0] < delays:
            left[0] += 1
            raise BlockingIOError

    pair.server.wire.before_send = late
    pair.handshake()
    assert left[0] == delays
    assert isinstance(pair.server.error, AuthenticationFailed)
    assert_client_learns(pair)


def assert_client_learns(pair: Pair) -> None:
    """By its handshake, or (TLS 1.3) by its first read."""
    if pair.client.error is None:
        with pytest.raises(AuthenticationFailed):
            received(pair.client.transport, 1)
    else:
        assert isinstance(pair.client.error, AuthenticationFailed)


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_a_client_with_a_certificate_of_a_known_authority_is_accepted(make: Callable[..., Pair], auth: str) -> None:
    pair = make(keystore(certificates().client), {"ssl.client.auth": auth})
    pair.handshake()
    sent(pair.client.transport, b"x")
    assert received(pair.server.transport, 1) == b"x"
    certificate = pair.server.transport.peer_certificate
    assert certificate is not None
    assert ("email", "client@example.org") in certificate["subjectAltName"]  # type: ignore[operator]


def test_versions_without_overlap_fail_both_ends(make: Callable[..., Pair]) -> None:
    pair = make({"ssl.enabled.protocols": "TLSv1.2"}, {"ssl.enabled.protocols": "TLSv1.3"})
    pair.handshake()
    assert [type(side.error) for side in pair.sides] == [AuthenticationFailed, AuthenticationFailed]


def test_a_plaintext_peer_fails_the_handshake(make: Callable[..., Pair]) -> None:
    pair = make()
    pair.client.wire.sock.send(b"\x00\x00\x00\x0cnot a hello")
    until(lambda: pair.server.over, step=pair.server.step)
    assert isinstance(pair.server.error, AuthenticationFailed)


def pull_the_cable(_pair: Pair) -> None:
    raise OSError("the cable was pulled")


def vanish(pair: Pair) -> None:
    pair.server.wire.sock.close()
    pair.server.error = ConnectionError()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(pull_the_cable, marks=pytest.mark.conformance("STL-05")),
        pytest.param(vanish, marks=pytest.mark.conformance("STL-07")),
    ],
)
def test_an_end_of_the_connection_in_the_handshake_is_no_failed_authentication(
    make: Callable[..., Pair], fault: Callable[[Pair], None], version: str, call: int
) -> None:
    pair = make(version=version)
    pair.client.wire.most_read = 200
    calls = iter(range(1, 10_000))
    pair.client.wire.before_read = lambda: fault(pair) if next(calls) == call else None
    until(lambda: pair.client.over, step=pair.step)
    assert not isinstance(pair.client.error, AuthenticationFailed)
    assert pair.client.error is not None or pair.client.transport.ready


# ---- payload ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(make: Callable[..., Pair]) -> Pair:
    pair = make()
    pair.handshake()
    return pair


@pytest.mark.conformance("STL-02")
def test_large_messages_pass_however_little_is_read_at_once(ready: Pair) -> None:
    ready.server.wire.most_read = 10
    data = bytes(range(256)) * 250
    for _ in range(10):
        assert moved(ready, [data]) == data


@pytest.mark.conformance("STL-17")
@pytest.mark.parametrize("secured", [True, False], ids=["tls", "plaintext"])
def test_buffers_are_gathered_in_order(ready: Pair, secured: bool) -> None:
    buffers = [b"Hello, ", b"World", b"!"]
    if secured:
        assert ready.client.transport.write(buffers[1:]) == 6
        assert received(ready.server.transport, 6) == b"World!"
        return
    near, far = socket.socketpair()
    with near, far:
        assert PlaintextTransport(near, connected=True).write(buffers[1:]) == 6
        assert far.recv(100) == b"World!"


@pytest.mark.parametrize("sizes", [[3, 20_000, 5], [16_384, 1], [1] * 40, [70_000, 70_000], [10_000, 10_000, 0, 7]])
def test_buffers_of_any_size_arrive_whole_and_in_order(ready: Pair, sizes: list[int]) -> None:
    buffers = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    assert moved(ready, buffers) == b"".join(buffers)


def test_a_peer_that_does_not_read_costs_bounded_memory(ready: Pair) -> None:
    data = bytes(1 << 20)
    taken = 0
    for _ in range(200):
        taken += ready.client.transport.write([data])
    assert ready.client.transport.has_pending_writes
    assert ready.client.transport.write([data]) == 0
    with ready.client.transport._lock:
        assert ready.client.transport._outgoing.pending < 100_000
    got = received(ready.server.transport, 1)
    assert got == b"\0"


def test_plaintext_left_behind_is_announced_until_a_read_makes_no_progress(ready: Pair) -> None:
    sent(ready.client.transport, b"x" * 1000)
    transport = ready.server.transport
    assert received(transport, 10) == b"x" * 10
    assert transport.has_bytes_buffered
    assert transport.read_into(memoryview(bytearray(5000))) == 990
    assert transport.read_into(memoryview(bytearray(10))) == 0
    assert not transport.has_bytes_buffered


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_close_is_the_end_of_the_stream(make: Callable[..., Pair], version: str) -> None:
    pair = make(version=version)
    pair.handshake()
    sent(pair.client.transport, b"last")
    pair.client.transport.close()
    assert received(pair.server.transport, 4) == b"last"
    with pytest.raises(EOFError):
        received(pair.server.transport, 1)


def test_a_cut_connection_is_the_end_of_the_stream_too(ready: Pair) -> None:
    sent(ready.client.transport, b"last")
    ready.client.wire.sock.close()
    assert received(ready.server.transport, 4) == b"last"
    with pytest.raises((EOFError, OSError)):
        received(ready.server.transport, 1)


@pytest.mark.conformance("STL-16")
def test_closing_before_the_handshake_or_twice_is_harmless(make: Callable[..., Pair]) -> None:
    pair = make()
    transport = pair.client.transport
    transport.close()
    transport.close()
    assert transport.state is TlsState.CLOSING
    assert transport.fileno() == -1


def test_bytes_that_are_no_tls_end_the_connection(ready: Pair) -> None:
    sent(ready.client.transport, b"fine")
    assert received(ready.server.transport, 4) == b"fine"
    ready.client.wire.sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ConnectionResetError):
        received(ready.server.transport, 1)


def test_a_client_that_sends_nothing_costs_a_server_little_memory() -> None:
    context = context_of(keystore(certificates().server), server=True)
    with contextlib.ExitStack() as stack:
        pairs = [[stack.enter_context(sock) for sock in socket.socketpair()] for _ in range(100)]
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        silent = [TlsTransport(near, context, server_side=True, connected=True) for near, _ in pairs]
        for (near, far), transport in zip(pairs, silent, strict=True):
            near.setblocking(False)
            assert transport.handshake() == EVENT_READ
            assert (transport.cipher_information, transport.peer_certificate) == (None, None)
            assert far.fileno() >= 0
        assert tracemalloc.get_traced_memory()[0] < 100 * 2_000 + 65_536  # and a buffer that all share
        for transport in silent:
            transport.close()


def test_the_end_of_a_stream_after_records_is_met_by_the_next_read(ready: Pair) -> None:
    sent(ready.client.transport, b"last")
    ready.client.transport.close()
    buffer = memoryview(bytearray(100))
    transport = ready.server.transport
    until(lambda: len(ready.server.wire.sock.recv(1000, socket.MSG_PEEK)) > 40)
    assert transport.read_into(buffer) == 4
    assert transport.has_bytes_buffered
    with pytest.raises(EOFError):
        transport.read_into(buffer)


def test_an_error_of_the_socket_after_records_is_met_by_the_next_read(ready: Pair) -> None:
    wire, transport = ready.server.wire, ready.server.transport
    sent(ready.client.transport, b"x" * 80_000, lambda: None)
    until(lambda: len(wire.sock.recv(100_000, socket.MSG_PEEK)) > 80_000)
    reads = itertools.count()

    def fail_after_the_first() -> None:
        if next(reads):
            raise ConnectionResetError("reset")

    wire.before_read = fail_after_the_first
    buffer = memoryview(bytearray(100_000))
    count = transport.read_into(buffer)
    assert count >= 49_152
    assert bytes(buffer[:count]) == b"x" * count
    with pytest.raises(ConnectionResetError, match="reset"):
        transport.read_into(buffer)
