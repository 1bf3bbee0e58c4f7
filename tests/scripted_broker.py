"""Runs a broker by a test's script: it answers, or keeps silent, or breaks the connection."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from network_peers import accepted, greet

from channel.types import Broker, EndPoint, SecurityProtocol

WAIT_S = 30
"""How long a test waits for what must happen."""


def bound_socket(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket with a port that refuses connections, and that no other socket can get, until it is told to listen."""
    sock = socket.socket()
    sock.bind((host, port))
    return sock


_HEAD = struct.Struct(">ihhih")
_BODIES = {4: b"\0\0\1\0", 5: b"\0\0\1\0", 6: b"\0\0\0"}  # no error, no partitions, no tags, in the newest versions


@dataclass(frozen=True)
class Seen:
    """A received request with its connection and time."""

    connection: int
    at: float
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: bytes

    def answer(self, error_code: int = 0, correlation_id: int | None = None) -> bytes:
        """The frame of a response without partitions."""
        body = error_code.to_bytes(2, "big", signed=True) + _BODIES[self.api_key][2:]
        wanted = self.correlation_id if correlation_id is None else correlation_id
        payload = wanted.to_bytes(4, "big", signed=True) + b"\0" + body
        return len(payload).to_bytes(4, "big") + payload


Step = Callable[[socket.socket, Seen], None]


def answer(sock: socket.socket, seen: Seen) -> None:
    sock.sendall(seen.answer())


class ScriptedBroker:
    """Listens on loopback; the n-th request that comes meets the n-th step, later ones are answered.

    A step gets the connection and the request; it may answer, close, or keep silent.

    Args:
        steps: The steps, in their order.
        bound: A socket that has a port already, on which nobody listens yet; None for any free port.
        protocol: How the listener is secured.
    """

    def __init__(
        self,
        *steps: Step,
        bound: socket.socket | None = None,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> None:
        self._protocol = protocol
        self.seen: list[Seen] = []
        self.connections: list[float] = []
        self._steps = list(steps)
        self.sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = bound or bound_socket()
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def broker(self, broker_id: int = 1) -> Broker:
        return Broker(broker_id, (EndPoint("127.0.0.1", self.port, self._protocol.name, self._protocol),))

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="scripted-broker")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock = accepted(self._listener.accept()[0], self._protocol)
                self.connections.append(time.monotonic())
                self.sockets.append(sock)
                self._start(self._serve, sock, len(self.connections))

    def _serve(self, sock: socket.socket, connection: int) -> None:
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as stream:
            greet(sock)
            while len(head := stream.read(_HEAD.size)) == _HEAD.size:
                size, api_key, version, correlation_id, name = _HEAD.unpack(head)
                rest = stream.read(size + 4 - _HEAD.size)
                seen = Seen(
                    connection,
                    time.monotonic(),
                    api_key,
                    version,
                    correlation_id,
                    rest[:name].decode(),
                    rest[name + 1 :],
                )
                with self._lock:
                    step = self._steps[len(self.seen)] if len(self.seen) < len(self._steps) else answer
                    self.seen.append(seen)
                step(sock, seen)

    def hang_up(self) -> None:
        """Close every connection, and go on listening."""
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in (self._listener, *self.sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(WAIT_S)
