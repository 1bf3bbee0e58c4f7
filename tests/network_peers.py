"""Provides peers for tests of the network: an echo server over real sockets, transports, a scripted network."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import struct
import threading
import time
from typing import Any

from tls_certificates import certificates

from channel.network.frames import Send
from channel.network.sasl import SaslClient
from channel.network.secured import client_channels, server_channels
from channel.network.selector import Selector
from channel.network.sockets import resolve
from channel.network.transport import EVENT_READ, EVENT_WRITE, PlaintextTransport
from channel.security import Password, SecurityConfig
from channel.tls_contexts import server_context
from channel.types import SecurityProtocol

WAIT_S = 30


def until(condition, *, step=lambda: time.sleep(0.001), what: str = "what was awaited") -> None:
    """Repeat ``step`` until the condition holds, for half a minute at most: on a busy machine all takes long."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        step()


class BodyRequest:
    """A request whose body is these pieces of bytes, in one version."""

    def __init__(self, api_key: int, version: int, pieces: list[bytes]) -> None:
        self.api_key = api_key
        self.oldest_version = self.latest_version = version
        self.pieces = pieces

    def build(self, version: int) -> list[bytes]:
        return self.pieces


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class FakeClock:
    """A clock that moves only when a test sets ``ns`` or something sleeps on it."""

    def __init__(self, ms: int = 1_000_000) -> None:
        self.ns = ms * 1_000_000

    def milliseconds(self) -> int:
        return self.ns // 1_000_000

    def nanoseconds(self) -> int:
        return self.ns

    def wall_nanoseconds(self) -> int:
        return 1_700_000_000_000_000_000 + self.ns

    def sleep(self, ms: float) -> None:
        self.ns += int(ms * 1_000_000)


_KEY, _, _CHAIN = certificates().server.partition("-----BEGIN CERTIFICATE-----")
SECURITY = SecurityConfig(
    ssl_keystore_key=Password(_KEY),
    ssl_keystore_certificate_chain="-----BEGIN CERTIFICATE-----" + _CHAIN,
    ssl_truststore_certificates=certificates().authority,
)
"""Both ends' settings where a test runs over TLS."""


PLAIN_OR_TLS = [SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL]
"""The security protocols over which tests of faults run."""


def accepted(sock: socket.socket, protocol: SecurityProtocol) -> socket.socket:
    """A blocking peer's end of an accepted connection; over TLS the handshake is still to do."""
    if not protocol.uses_tls:
        return sock
    return server_context(SECURITY).wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def greet(sock: socket.socket) -> None:
    """Do the handshake of a connection that ``accepted`` gave."""
    if isinstance(sock, ssl.SSLSocket):
        sock.do_handshake()


def sasl_answers(client: SaslClient, payload: bytes) -> list[bytes]:
    """Hand a server's payload to a client that authenticates, and compute its next token if it has to."""
    answers = client.receive(payload)
    return answers if client.computation is None else client.computed(client.computation())


class EchoServer:
    """Sends every byte back; a thread for each connection. Closes everything at the end of a ``with``."""

    def __init__(self, *, tls: bool = False) -> None:
        self._context = server_context(SECURITY) if tls else None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="echo-accept")

    def __enter__(self) -> EchoServer:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        self.close_connections()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):  # of a client that has left
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if (
                    self._context is not None
                ):  # without the handshake, so that no other socket comes into the list later
                    sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self.sockets.append(sock)
            thread = threading.Thread(target=self._echo, args=(sock,), name="echo")
            self._threads.append(thread)
            thread.start()

    def _echo(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            while data := sock.recv(65536):
                sock.sendall(data)

    def is_serving(self) -> bool:
        """Whether its first connection stands, over TLS with the handshake behind it."""
        return bool(self.sockets) and (
            not isinstance(self.sockets[0], ssl.SSLSocket) or self.sockets[0].version() is not None
        )

    def close_connections(self) -> None:
        """End every connection; what was echoed before still arrives."""
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own would change the object under its thread
            sock.close()
        self.sockets.clear()


class CipherTransport(PlaintextTransport):
    """A transport that behaves like TLS without encryption: a handshake, and bytes held back in both directions.

    Args:
        handshake: What each step of the handshake waits for. Reading steps wait for an echo of what they have sent.
        holds: Whether writes are kept back until the transport is flushed, and reads come in small pieces.
        fails: What the last step of the handshake raises.
    """

    def __init__(self, sock, *, connected, handshake=(), holds=False, fails=None):
        self._handshake = list(handshake)
        self._asked = False
        self._holds = holds
        self._fails = fails
        self._out = bytearray()
        self._in = bytearray()
        self._ended = None
        super().__init__(sock, connected=connected)

    @property
    def ready(self):
        return self._connected and not self._handshake and self._fails is None

    def handshake(self):
        while self._handshake:
            step = self._handshake[0]
            if step == EVENT_READ:
                if not self._asked:
                    self._asked = True
                    self._sock.send(b"?")
                    return EVENT_READ
                try:
                    assert self._sock.recv(1) == b"?"
                except BlockingIOError:
                    return EVENT_READ
                self._asked = False
            elif not self._asked:
                self._asked = True
                return EVENT_WRITE
            else:
                self._asked = False
            del self._handshake[0]
        if self._fails is not None:
            raise self._fails
        return 0

    @property
    def has_pending_writes(self):
        return bool(self._out)

    @property
    def has_bytes_buffered(self):
        return bool(self._in)

    def write(self, buffers):
        if not self._holds:
            return super().write(buffers)
        if self._out:
            self.flush()
            return 0
        self._out += b"".join(buffers)[:5000]
        return len(self._out)

    def flush(self):
        if self._out:
            with contextlib.suppress(BlockingIOError):
                del self._out[: self._sock.send(self._out)]

    def read_into(self, buffer):
        if not self._holds:
            return super().read_into(buffer)
        if not self._in:
            with contextlib.suppress(BlockingIOError):
                self._in += self._sock.recv(5000)
                if not self._in:
                    raise EOFError("the end")
        count = min(len(self._in), len(buffer), 700)
        buffer[:count] = self._in[:count]
        del self._in[:count]
        return count


TRANSPORTS = {
    "plain": {},
    "wants-read": {"handshake": [EVENT_READ, EVENT_READ]},
    "wants-write": {"handshake": [EVENT_WRITE]},
    "wants-both": {"handshake": [EVENT_WRITE, EVENT_READ, EVENT_WRITE]},
    "ciphertext": {"handshake": [EVENT_READ], "holds": True},
    "tls": {"tls": True},
}
"""The kinds of transports that every row of the selector runs over."""


def cipher_builder(*, tls=False, **habits):
    """Return a channel builder for such transports, or for TLS itself."""
    if tls:
        near = client_channels(SecurityProtocol.SSL, SECURITY, None)
        far = server_channels(SecurityProtocol.SSL, SECURITY, None)
        return lambda sock, peer: (far if peer.accepted else near)(sock, peer)
    return lambda sock, peer: (CipherTransport(sock, connected=peer.accepted, **habits), None)


class ScriptedTransport:
    """A transport without a socket, for the clients of a ``ScriptedSelector``."""

    local = ("127.0.0.1", 50000)
    has_bytes_buffered = False

    def __init__(self, network, peer, handshake=(), holds=False):
        self.network = network
        self.remote = (peer.host, peer.port)
        self.fd = next(network.numbers)
        self.node_id = network.dialling
        self.handshakes = list(handshake)
        self.asked = False
        self.holds = holds
        self.held = 0
        self.connected = False
        self.inbox = bytearray()
        self.ended = None
        network.transports[self.fd] = self

    def fileno(self):
        return self.fd

    @property
    def ready(self):
        return self.connected and not self.handshakes and self.node_id not in self.network.failing

    def finish_connect(self):
        if self.ended is not None:
            raise ConnectionRefusedError(111, "Connection refused")
        self.connected = self.node_id not in self.network.blocked
        return self.connected

    def handshake(self):
        if self.handshakes:
            if not self.asked:
                self.asked = True
                return self.handshakes[0]
            self.asked = False
            del self.handshakes[0]
            return self.handshake() if self.handshakes else 0
        if self.node_id in self.network.failing:
            raise self.network.failing[self.node_id]
        return 0

    def readiness(self):
        """Return the readiness that an event would report."""
        if self.ended is not None:
            return EVENT_READ | EVENT_WRITE
        if not self.connected:
            return 0 if self.node_id in self.network.blocked else EVENT_WRITE
        asks = bool(self.handshakes) or self.node_id in self.network.failing
        return EVENT_WRITE | (EVENT_READ if self.inbox or asks else 0)

    @property
    def has_pending_writes(self):
        return self.held > 0

    def write(self, buffers):
        count = min(sum(map(len, buffers)), self.network.takes)
        self.held = count if self.holds else 0
        return count

    def flush(self):
        self.held = 0

    def read_into(self, buffer):
        if self.inbox:
            count = min(len(buffer), len(self.inbox))
            buffer[:count] = self.inbox[:count]
            del self.inbox[:count]
            return count
        if self.ended is not None:
            raise self.ended
        return 0

    def reset_on_close(self):
        """Nothing to do."""

    def close(self):
        self.network.transports.pop(self.fd, None)

    abandon = close


class ObservedSelector(Selector):
    """The real selector over a network that a test owns; it records its calls.

    A connection stands at the next poll unless its node is ``blocked``; it is refused at once if its address is in
    ``refused``; its handshake fails with the error that ``failing`` has for its node.
    """

    def __init__(self, clock: Any, **parts: Any) -> None:
        self.blocked: set[str] = set()
        self.refused: set[Any] = set()
        self.failing: dict[str, Exception] = {}
        self.attempts: list[tuple[str, Any]] = []
        self.sends: list[Send] = []
        self.polls: list[int] = []
        self.dialling = ""
        self.closed = False
        super().__init__(clock=clock, dial=self._observed_dial, **parts)

    def _observed_dial(self, address, send_buffer, receive_buffer):
        if address in self.refused:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.new_connection(), False

    def connect(self, channel_id, address, *args, **kwargs):
        self._ensure_new(channel_id)
        self.attempts.append((channel_id, address))
        self.dialling = channel_id
        super().connect(channel_id, address, *args, **kwargs)

    def send(self, send):
        self.sends.append(send)
        super().send(send)

    def poll(self, timeout_ms, for_sends=True):
        self.polls.append(timeout_ms)
        super().poll(timeout_ms, for_sends=for_sends)

    def close(self):
        self.closed = True
        super().close()

    @property
    def open(self):
        """The nodes that there are connections to."""
        return set(self.channels)

    # ---- what a test calls

    def answers(self, node_id: str, correlation_id: int, body: bytes, *, flexible: bool = True) -> None:
        """Let the node's answer to a request arrive."""
        self.receives(node_id, struct.pack(">i", correlation_id) + (b"\0" if flexible else b"") + body)

    # ---- what each network has

    def new_connection(self) -> Any:
        """The socket, or the like of one, of a new connection to the node that is being dialled."""
        raise NotImplementedError

    def receives(self, node_id: str, payload: bytes) -> None:
        """Let the node's next frame arrive, header included."""
        raise NotImplementedError

    def drops(self, node_id: str) -> None:
        """Let the node end the connection."""
        raise NotImplementedError


class InlineResolution:
    """Looks names up on the calling thread."""

    def __init__(self, resolver=resolve):
        self._resolver = resolver

    def start(self, host, done):
        try:
            done(self._resolver(host))
        except OSError as e:
            done(e)


class ScriptedSelector(ObservedSelector):
    """The selector over transports and events that a test scripts; it never waits."""

    def __init__(self, clock: Any, **habits: Any) -> None:
        self.numbers = itertools.count(10_000)
        self.takes = 2**31  # the number of bytes that each write takes
        self.transports: dict[int, ScriptedTransport] = {}
        self._registered: dict[int, int] = {}

        def builder(sock, peer):
            return ScriptedTransport(self, peer, **habits), None

        super().__init__(clock, channel_builder=builder, system=self.Events(self))

    class Events:
        """The readiness events that the system would report."""

        def __init__(self, network):
            self.network = network

        def register(self, fd, mask):
            assert fd not in self.network._registered
            self.network._registered[fd] = mask

        def modify(self, fd, mask):
            assert fd in self.network._registered
            self.network._registered[fd] = mask

        def unregister(self, fd):
            del self.network._registered[fd]

        def poll(self, timeout=None):
            ready = []
            for fd, mask in self.network._registered.items():
                transport = self.network.transports.get(fd)
                if transport is None:
                    found = mask if select.select([fd], [], [], 0)[0] else 0
                else:
                    found = transport.readiness() & mask
                if found:
                    ready.append((fd, found))
            return ready

        def close(self):
            self.network._registered.clear()

    def new_connection(self):
        return contextlib.closing(None)

    def receives(self, node_id: str, payload: bytes) -> None:
        self.channels[node_id].transport.inbox += frame(payload)

    def drops(self, node_id: str) -> None:
        self.channels[node_id].transport.ended = EOFError("the end")


SCRIPTED = {
    "plain": {},
    "wants-read": {"handshake": [EVENT_READ, EVENT_READ]},
    "wants-write": {"handshake": [EVENT_WRITE]},
    "ciphertext": {"handshake": [EVENT_READ, EVENT_WRITE], "holds": True},
}
"""The kinds of transports that every row of the client runs over."""
