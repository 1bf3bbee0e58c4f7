"""Peers for tests of the network: an echo server over real sockets, and a selector that does what a test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Any

from channel.errors import IllegalState
from channel.network.channel import ChannelState, Disconnection
from channel.network.frames import Receive, Send

WAIT_S = 10


def until(condition, *, step=lambda: time.sleep(0.001), what: str = "what was awaited") -> None:
    """Repeat ``step`` until the condition holds, for ten seconds at most."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        step()


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class FakeClock:
    """A clock that moves only when it is told to, or slept on."""

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


class EchoServer:
    """Sends every byte back; a thread for each connection. Closes everything at the end of a ``with``."""

    def __init__(self) -> None:
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
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets.append(sock)
            thread = threading.Thread(target=self._echo, args=(sock,), name="echo")
            self._threads.append(thread)
            thread.start()

    def _echo(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := sock.recv(65536):
                sock.sendall(data)

    def close_connections(self) -> None:
        """End every connection; what was echoed before still arrives."""
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self.sockets.clear()


class FakeSelector:
    """Connects at once, completes every send at the next poll, and delivers what a test has put in."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.completed_sends: list[Send] = []
        self.completed_receives: list[Receive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnection] = {}
        self.channels: dict[str, Any] = {}
        self.open: set[str] = set()
        self.not_ready: set[str] = set()
        self.blocked: set[str] = set()
        self.refused: set[str] = set()
        self.attempts: list[tuple[str, Any]] = []
        self.sends: list[Send] = []
        self.polls: list[int] = []
        self.closed = False
        self._sends: list[Send] = []
        self._receives: list[Receive] = []
        self._connected: list[str] = []
        self._disconnected: dict[str, Disconnection] = {}

    # ---- what a client calls

    def connect(self, node_id, address, send_buffer=-1, receive_buffer=-1):
        if node_id in self.open:
            raise IllegalState(f"there is a connection {node_id} already")
        self.attempts.append((node_id, address))
        if address in self.refused:
            raise ConnectionRefusedError(111, "Connection refused")
        self.open.add(node_id)
        if node_id not in self.blocked:
            self._connected.append(node_id)

    def send(self, send):
        assert send.destination in self.open
        self.sends.append(send)
        self._sends.append(send)

    def poll(self, timeout_ms, *, for_sends=True):
        self.polls.append(timeout_ms)
        for send in self._sends:
            send.write_to(self)
        self.completed_sends, self._sends = self._sends, []
        self.completed_receives, self._receives = self._receives, []
        self.connected, self._connected = self._connected, []
        self.disconnected, self._disconnected = self._disconnected, {}

    def close_channel(self, node_id):
        self.open.discard(node_id)
        self._sends = [send for send in self._sends if send.destination != node_id]
        if node_id in self._connected:
            self._connected.remove(node_id)

    def is_channel_ready(self, node_id):
        return node_id in self.open and node_id not in self.blocked | self.not_ready

    def wakeup(self):
        pass

    def close(self):
        self.closed = True

    # ---- what a test calls

    def write(self, buffers):
        return sum(map(len, buffers))

    def receives(self, node_id: str, payload: bytes) -> None:
        """The node's next frame, header included."""
        receive = Receive(node_id)
        receive.requested, receive.payload = len(payload), bytearray(payload)
        self._receives.append(receive)

    def answers(self, node_id: str, correlation_id: int, body: bytes, *, flexible: bool = True) -> None:
        """The node's answer to a request."""
        self.receives(node_id, struct.pack(">i", correlation_id) + (b"\0" if flexible else b"") + body)

    def drops(self, node_id: str, state: ChannelState = ChannelState.READY, error: Any = None) -> None:
        """The node ends the connection."""
        self.open.discard(node_id)
        self._disconnected[node_id] = Disconnection(state, ("127.0.0.1", 9092), error)
