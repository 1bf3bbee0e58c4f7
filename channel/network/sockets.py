"""Sockets: names and addresses, connecting and listening, and the descriptor that wakes a selector."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from channel.addresses import show_address
from channel.locks import guards, new_lock
from channel.logs import get_logger
from kproto.errors import ConfigurationError

from .brief_threads import BriefThreads
from .transport import PlaintextTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .authenticator import SaslAuthenticator
    from .tls import Transport
    from .transport import Address

_log = get_logger(__name__)

_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_MOST_RESERVED: Final = 128
_TOLD_EVERY_S: Final = 10.0


def resolve(host: str) -> list[str]:
    """Look up the addresses of a host, in the order of the system's resolver; an IP address is its own.

    Raises:
        OSError: The name is malformed, or cannot be resolved.
    """
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]  # the resolver would drop the interface of fe80::1%eth0
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as e:
        raise OSError(f"{host!r} is no host name: {e}") from e
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class NameResolution:
    """Looks names up on threads of its own, at most 32 at the same time."""

    def __init__(self) -> None:
        self._threads = BriefThreads("name-resolution", 32)

    def start(self, host: str, done: Callable[[Sequence[str] | OSError], None]) -> None:
        """Look a host up; ``done`` takes its addresses or the error on any thread, at once if it is an IP address."""
        try:
            literal = str(ipaddress.ip_address(host))
        except ValueError:
            try:
                self._threads.submit(lambda: done(_looked_up(host)))
            except OSError as e:
                done(e)
        else:
            done([literal])


def _looked_up(host: str) -> Sequence[str] | OSError:
    try:
        return resolve(host) or OSError(f"{host} has no address")
    except OSError as e:
        return e


UNIX: Final = socket.AF_UNIX


class Peer(NamedTuple):
    """The configured address of a connection's other end.

    Attributes:
        host: The host's name as the caller gave it (for SNI and host-name checks); an accepted peer's IP address.
        listener: The name of the peer's listener, or of our listener if the peer connected to us.
        accepted: Whether the peer connected to us.
        node_id: The id of the node that was dialled.
    """

    host: str
    port: int
    listener: str = "PLAINTEXT"
    accepted: bool = False
    node_id: str = ""


class ChannelBuilder(Protocol):
    """Puts a transport on a socket, and an authenticator for SASL; TLS and SASL are added here."""

    def __call__(self, sock: socket.socket, peer: Peer) -> tuple[Transport, SaslAuthenticator | None]:
        """Make a transport over this socket, which is connecting or, if the peer was accepted, connected.

        Any exception is treated as an I/O error of this connection.
        """


def plaintext_channel(sock: socket.socket, peer: Peer) -> tuple[Transport, SaslAuthenticator | None]:
    """Build a plaintext transport."""
    return PlaintextTransport(sock, connected=peer.accepted), None


def configure(sock: socket.socket, send_buffer: int = -1, receive_buffer: int = -1) -> None:
    """Make a socket non-blocking, with keep-alive and no delay; buffers have these sizes in bytes unless -1."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if send_buffer != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    if receive_buffer != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)


def dial(address: Address, send_buffer: int, receive_buffer: int) -> tuple[socket.socket, bool]:
    """Make a socket that begins to connect; returns whether the connection is established already.

    Raises:
        OSError: The host is no IP address (the client resolves names, and counts their failures), or the system
            refuses at once.
    """
    family, *_, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        configure(sock, send_buffer, receive_buffer)
        sock.connect(target)
    except BlockingIOError:
        return sock, False
    except BaseException:
        sock.close()
        raise
    return sock, True


class Waker:
    """A descriptor that any thread can make readable."""

    __slots__ = ("_fd", "_is_open", "_lock")

    def __init__(self) -> None:
        self._lock = new_lock("waker")
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_open = True

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._fd

    def wake(self) -> None:
        """Make the descriptor readable; does nothing once it is closed."""
        with self._lock:
            if self._is_open:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def abandon(self) -> None:
        """Close a forked child's copy without the lock, which another thread may have held at the fork."""
        self._lock = new_lock("waker")
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._fd)
                self._fd = -1


guards(Waker, "_lock", "_is_open")


def listening_socket(host: str, port: int, backlog: int = 128) -> socket.socket:
    """Make a non-blocking listening socket.

    Raises:
        ConfigurationError: The port is taken, or the host is not this machine's; the text says what to try.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.create_server(address[:2], family=family, backlog=backlog)
    except (OSError, UnicodeError, OverflowError) as e:
        code = e.errno if isinstance(e, OSError) else None
        if code == errno.EADDRINUSE:
            why = "the port is in use; stop the process that uses it, or choose another"
        elif code == errno.EACCES:
            why = "permission denied; choose a port above 1023"
        elif code == errno.EADDRNOTAVAIL or isinstance(e, (socket.gaierror, UnicodeError)):
            why = "this machine has no such address; try 127.0.0.1"
        else:
            why = getattr(e, "strerror", None) or str(e)
        raise ConfigurationError(f"cannot listen at {show_address((host, port))}: {why}") from e
    sock.setblocking(False)
    return sock


class Acceptor:
    """Accepts the connections of a listening socket, but none that would take one of the process's last descriptors.

    An eighth of the descriptors that the process may have, and at most 128, is kept for the connections that it makes
    itself, for files and for ZooKeeper: however many clients connect, a controller reaches its brokers. The log says
    that connections are refused, in a line every ten seconds at most.

    Args:
        make_room: Ends another connection at once, in place of which a new one is accepted; returns whether it has.
        is_bounded: The listener has few connections, whoever connects, which may take the last descriptors.
    """

    def __init__(
        self, sock: socket.socket, make_room: Callable[[], bool] = lambda: False, *, is_bounded: bool = False
    ) -> None:
        self._sock = sock
        self._is_bounded = is_bounded
        self._make_room = make_room
        self._refused = 0
        self._told_at = -_TOLD_EVERY_S

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept the next connection.

        Raises:
            BlockingIOError: There is none.
            OutOfDescriptors: The system has no descriptor. The connection still waits, so the caller should pause.
            OSError: The connection has ended, or was refused.
        """
        try:
            sock, address = self._sock.accept()
        except OSError as e:
            if e.errno not in _NO_DESCRIPTORS:
                raise
            self._tell(str(e.strerror).lower())
            raise OutOfDescriptors(e.errno, e.strerror) from e
        if not self._is_bounded and _is_reserved(sock):
            sock = self._in_place_of_another(sock)
        return sock, (str(address[0]), int(address[1]))

    def _in_place_of_another(self, sock: socket.socket) -> socket.socket:
        """Return a socket of this connection whose descriptor is not reserved."""
        self._tell("only the descriptors for the process's own connections are left")
        with sock:
            if self._make_room():
                moved = sock.dup()
                if not _is_reserved(moved):
                    return moved
                moved.close()
        raise ConnectionRefusedError("there are too many connections")

    def _tell(self, why: str) -> None:
        self._refused += 1
        now = time.monotonic()
        if now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            limit, where = resource.getrlimit(resource.RLIMIT_NOFILE)[0], self._sock.getsockname()
            _log.error(
                "connections to %s:%s are refused or take the place of others (%d so far): %s; the limit is %d open "
                "files, ulimit -n raises it",
                *where[:2], self._refused, why, limit,
            )  # fmt: skip


class OutOfDescriptors(OSError):
    """The system has no descriptor for a waiting connection."""


def _is_reserved(sock: socket.socket) -> bool:
    """Whether a socket has one of the last descriptors: the system always gives the lowest that is free."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit != resource.RLIM_INFINITY and sock.fileno() >= limit - min(_MOST_RESERVED, limit // 8)
