"""The simulated network: sockets, epoll and eventfd of simulated processes, as the product's own calls see them.

Each connection is a pair of byte streams with latency and a limited window. Bytes arrive in pieces that are cut
anywhere; a connection can be reset, stall, or be cut off without either end being told.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .scheduler import Process, World

__all__ = ["Epoll", "EventFd", "Network", "Socket"]

IN, OUT, ERR, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR, select.EPOLLHUP
FIRST_DESCRIPTOR = 1_000_000
WINDOWS = (48, 200, 1_000, 5_000, 65_536, 1_000_000, 1_000_000)


class EventFd:
    """A descriptor that wakes an epoll."""

    __slots__ = ("count", "watcher")

    def __init__(self) -> None:
        self.count = 0
        self.watcher: Epoll | None = None

    def readiness(self) -> int:
        """Return the events that are due."""
        return IN if self.count else 0


class Socket:
    """A TCP socket of a simulated process."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.fd = network.descriptor(self)
        process.sockets[self.fd] = self
        self.family = socket.AF_INET
        self.watcher: Epoll | None = None
        self.name: tuple[str, int] = (process.address, 0)
        self.peer_name: tuple[str, int] | None = None
        self.peer: Socket | None = None
        self.backlog: deque[Socket] | None = None
        self.error = 0
        self.closed = False
        self.connected = False
        self.at_end = False  # the peer will send no more
        self.has_ended = False  # this end will send no more
        self.cut_off = False  # what this end sends is lost
        self.resets = False
        self.is_reset = False
        self.inbox: deque[bytes] = deque()
        self.unread = 0
        self.outstanding = 0
        self.window = network.draw_window()
        self.due = 0
        self.tap: Callable[[bytes], None] | None = None
        self.tap_of_plaintext: Callable[[bytes], None] | None = None

    # ---- the calls of the product

    def fileno(self) -> int:
        return -1 if self.closed else self.fd

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if option == socket.SO_LINGER and isinstance(value, bytes):
            self.resets = struct.unpack("ii", value) == (1, 0)

    def getsockopt(self, level: int, option: int) -> int:
        if option == socket.SO_ERROR:
            error, self.error = self.error, 0
            return error
        return 0

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def getpeername(self) -> tuple[str, int]:
        if self.peer_name is None or not self.connected:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.peer_name

    def connect(self, address: tuple[str, int]) -> None:
        self.peer_name = (address[0], address[1])
        self.network.connect(self, self.peer_name)
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        found = self.backlog.popleft()
        assert found.peer_name is not None
        return found, found.peer_name

    def recv_into(self, buffer: memoryview) -> int:
        if self.error:
            raise self._failed()
        room = len(buffer)
        if not self.inbox or not room:
            if self.at_end and not self.inbox:
                return 0
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken, inbox = 0, self.inbox
        while inbox and taken < room:
            piece = inbox.popleft()
            size = len(piece)
            if size > room - taken:
                inbox.appendleft(piece[room - taken :])
                piece = piece[: room - taken]
                size = room - taken
            buffer[taken : taken + size] = piece
            taken += size
        self.unread -= taken
        peer = self.peer
        if peer is not None:
            was_full = peer.outstanding >= peer.window
            peer.outstanding -= taken
            if was_full:
                peer.changed()
        return taken

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def sendmsg(self, buffers: Sequence[Any]) -> int:
        if self.error:
            raise self._failed()
        if self.has_ended or not self.connected:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self.window - self.outstanding
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = b"".join(buffers)
        if len(data) > room:
            data = data[:room]
        if data:
            self.network.transmit(self, data)
        return len(data)

    def send(self, data: Any) -> int:
        return self.sendmsg([data])

    def shutdown(self, how: int) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.network.deliver_later(self, self._arrived_end)

    def close(self) -> None:
        if self.closed:
            return
        self.network.close(self, reset=self.resets or self.unread > 0)
        if self.network.failing_close is self.process and self.peer is not None:
            self.network.failing_close = None
            raise OSError(errno.EIO, "planned: the close fails")

    # ---- what happens to it

    def _failed(self) -> OSError:
        error = self.error
        return OSError(error, os.strerror(error))

    def _arrived_end(self, target: Socket) -> None:
        target.at_end = True
        target.changed()

    def break_off(self, error: int) -> None:
        """Fail as if the peer had reset the connection."""
        if not self.closed and not self.error:
            self.error = error
            self.inbox.clear()
            self.unread = 0
            self.changed()

    def readiness(self) -> int:
        """Return the events that are due."""
        if self.backlog is not None:
            return IN if self.backlog else 0
        if self.error:
            return IN | OUT | ERR | HUP
        events = 0
        if self.inbox or self.at_end:
            events = IN
        if self.connected and self.outstanding < self.window:
            events |= OUT
        return events

    def changed(self) -> None:
        """Tell the epoll that watches this socket."""
        if self.watcher is not None:
            self.watcher.touch(self.fd)


class Epoll:
    """An epoll of a simulated process."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._world = network.world
        self._masks: dict[int, int] = {}
        self._candidates: dict[int, None] = {}
        self._waiting: Any = None

    def register(self, fd: int, eventmask: int) -> None:
        thing = self._network.descriptors.get(fd)
        if thing is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        thing.watcher = self
        self._masks[fd] = eventmask
        self.touch(fd)

    def modify(self, fd: int, eventmask: int) -> None:
        if fd not in self._masks:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._masks[fd] = eventmask
        self.touch(fd)

    def unregister(self, fd: int) -> None:
        if self._masks.pop(fd, None) is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._candidates.pop(fd, None)
        thing = self._network.descriptors.get(fd)
        if thing is not None:
            thing.watcher = None

    def forget(self, fd: int) -> None:
        """Drop a closed descriptor."""
        self._masks.pop(fd, None)
        self._candidates.pop(fd, None)

    def touch(self, fd: int) -> None:
        """Look at a descriptor in the next poll, and end the present one."""
        self._candidates[fd] = None
        waiting = self._waiting
        if waiting is not None and self._is_due(fd):
            self._waiting = None
            self._world.wake(waiting)

    def _is_due(self, fd: int) -> int:
        thing = self._network.descriptors.get(fd)
        return 0 if thing is None else thing.readiness() & (self._masks.get(fd, 0) | ERR | HUP)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        world = self._world
        world.give_way()
        events = self._due()
        if events or timeout == 0:
            return events
        deadline = None if timeout is None or timeout < 0 else world.now + int(timeout * 1e9)
        self._waiting = world.current
        try:
            world.park(deadline, "a poll")
        finally:
            self._waiting = None
        return self._due()

    def _due(self) -> list[tuple[int, int]]:
        events: list[tuple[int, int]] = []
        for fd in list(self._candidates):
            due = self._is_due(fd)
            if due:
                events.append((fd, due))
            else:
                del self._candidates[fd]
        if len(events) > 1:
            self._world.random.shuffle(events)
        return events

    def close(self) -> None:
        network = self._network
        process = None if self._world.current is None else self._world.current.process
        if network.failing_epoll is not None and network.failing_epoll is process:
            network.failing_epoll = None
            raise OSError(errno.EIO, "planned: closing an epoll fails")
        for fd in list(self._masks):
            thing = self._network.descriptors.get(fd)
            if thing is not None:
                thing.watcher = None
        self._masks.clear()
        self._candidates.clear()


class Network:
    """The network of one world.

    Args:
        world: Its scheduler, time and draws.

    Attributes:
        descriptors: All open sockets and event descriptors.
        listeners: The listening sockets, by address.
        connections: The established connections, as pairs of the connecting and the accepting socket.
        latency_ns: The shortest and the longest latency.
        failing_close, failing_epoll: The process whose next close of a connection, or of an epoll, fails.
        silent: Addresses of machines that answer nothing at all.
        on_connection: Called with each new connection.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.descriptors: dict[int, Any] = {}
        self.listeners: dict[tuple[str, int], Socket] = {}
        self.connections: dict[Socket, Socket] = {}
        self.latency_ns = (20_000, 2_000_000)
        self.splits = world.random.choice((0.0, 0.05, 0.4))
        self.small_windows = world.random.random() < 0.5
        self.silent: set[str] = set()
        self.failing_close: Process | None = None
        self.failing_epoll: Process | None = None
        self.on_connection: Callable[[Socket, Socket], None] | None = None
        self._next = FIRST_DESCRIPTOR
        self._port = 40_000

    def descriptor(self, thing: object) -> int:
        """Give a socket or event descriptor its number."""
        self._next += 1
        self.descriptors[self._next] = thing
        return self._next

    def draw_window(self) -> int:
        """Draw how many bytes a connection takes that its peer has not read."""
        return self.world.random.choice(WINDOWS) if self.small_windows else WINDOWS[-1]

    def _latency(self) -> int:
        low, high = self.latency_ns
        return low + int(self.world.draw() ** 3 * (high - low))

    # ---- connecting

    def listen(self, process: Process, address: tuple[str, int], backlog: int) -> Socket:
        """Open a listening socket."""
        host, port = address[0], address[1]
        if not port:
            self._port += 1
            port = self._port
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        sock = Socket(self, process)
        sock.name = (host, port)
        sock.backlog = deque()
        self.listeners[host, port] = sock
        return sock

    def connect(self, sock: Socket, address: tuple[str, int]) -> None:
        """Begin to connect."""
        self._port += 1
        sock.name = (sock.process.address, self._port)
        if address[0] in self.silent:
            return
        self.world.after(self._latency() * 2, partial(self._connect, sock, address))

    def _connect(self, sock: Socket, address: tuple[str, int]) -> None:
        if sock.closed:
            return
        listener = self.listeners.get(address)
        if listener is None or listener.backlog is None:
            sock.break_off(errno.ECONNREFUSED)
            return
        accepted = Socket(self, listener.process)
        accepted.name, accepted.peer_name = address, sock.name
        accepted.peer, sock.peer = sock, accepted
        accepted.connected = sock.connected = True
        self.connections[sock] = accepted
        listener.backlog.append(accepted)
        if self.on_connection is not None:
            self.on_connection(sock, accepted)
        listener.changed()
        sock.changed()

    # ---- bytes

    def transmit(self, sock: Socket, data: bytes) -> None:
        """Send bytes to the peer; they may arrive in pieces."""
        sock.outstanding += len(data)
        if sock.cut_off:
            return
        world = self.world
        if self.splits and len(data) > 1 and world.draw() < self.splits:
            cut = 1 + int(world.draw() * (len(data) - 1))
            self.deliver_later(sock, partial(self._arrived, data[:cut]))
            data = data[cut:]
        self.deliver_later(sock, partial(self._arrived, data))

    def deliver_later(self, sock: Socket, arrive: Callable[[Socket], None]) -> None:
        """Let something arrive at the peer, after everything that was sent before."""
        peer = sock.peer
        if peer is None or sock.cut_off:
            return
        due = max(sock.due, self.world.now + self._latency())
        sock.due = due

        def deliver() -> None:
            if sock.cut_off or (sock.is_reset and not is_last):
                return
            if peer.closed:
                sock.break_off(errno.ECONNRESET)
            else:
                arrive(peer)

        is_last = sock.closed
        self.world.at(due, deliver)

    def _arrived(self, data: bytes, target: Socket) -> None:
        if target.error:
            return
        if target.tap is not None:
            target.tap(data)
        target.inbox.append(data)
        target.unread += len(data)
        target.changed()

    # ---- ending

    def close(self, sock: Socket, *, reset: bool) -> None:
        """Close a socket."""
        if sock.closed:
            return
        sock.closed = True
        self.descriptors.pop(sock.fd, None)
        sock.process.sockets.pop(sock.fd, None)
        if sock.watcher is not None:
            sock.watcher.forget(sock.fd)
        if sock.backlog is not None:
            self.listeners.pop(sock.name, None)
            for waiting in list(sock.backlog):
                self.close(waiting, reset=True)
            return
        self.connections.pop(sock, None)
        peer = sock.peer
        if peer is None:
            return
        if peer in self.connections:
            del self.connections[peer]
        if reset:
            if not sock.cut_off:
                sock.due = 0  # what is still under way is lost
                self.deliver_later(sock, lambda target: target.break_off(errno.ECONNRESET))
            sock.is_reset = True
        elif not sock.has_ended:
            self.deliver_later(sock, sock._arrived_end)

    def kill(self, process: Process, *, reset: bool) -> None:
        """End a process at once: the system closes its sockets."""
        process.dead = True
        for sock in list(process.sockets.values()):
            self.close(sock, reset=reset or sock.unread > 0)

    def reset(self, sock: Socket) -> None:
        """Reset a connection at both ends."""
        for each in (sock, sock.peer):
            if each is not None:
                each.break_off(errno.ECONNRESET)

    def stall(self, sock: Socket, ns: int) -> None:
        """Hold up what both ends send for a while, as lost packets do."""
        for each in (sock, sock.peer):
            if each is not None:
                each.due = max(each.due, self.world.now) + ns

    def cut_off(self, sock: Socket) -> None:
        """Lose from now on what both ends send; neither is told."""
        for each in (sock, sock.peer):
            if each is not None:
                each.cut_off = True
