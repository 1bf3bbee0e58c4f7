"""Sockets as the selector wants them, and what ends its wait."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

from .channel import Channel
from .transport import PlaintextTransport

if TYPE_CHECKING:
    from .memory import MemoryPool
    from .transport import Address

__all__ = ["ChannelBuilder", "Waker", "begin_connect", "configure", "new_socket", "plaintext_channel"]


class ChannelBuilder(Protocol):
    """Makes a channel of a socket: where TLS and SASL come in."""

    def __call__(
        self, channel_id: str, sock: socket.socket, max_receive_size: int, pool: MemoryPool | None, *, accepted: bool
    ) -> Channel:
        """A channel over this socket, which is connecting or, if ``accepted``, connected."""


def plaintext_channel(
    channel_id: str, sock: socket.socket, max_receive_size: int, pool: MemoryPool | None, *, accepted: bool
) -> Channel:
    """The channel builder for bytes as they are."""
    return Channel(channel_id, PlaintextTransport(sock, connected=accepted), None, max_receive_size, pool)


def new_socket(address: Address) -> tuple[socket.socket, Any]:
    """A socket for this address, and the address as the system wants it.

    Raises:
        OSError: It is no IP address: names are resolved above, where their failure can be counted.
    """
    family, *_, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    return socket.socket(family, socket.SOCK_STREAM), target


def configure(sock: socket.socket, send_buffer: int = -1, receive_buffer: int = -1) -> None:
    """Non-blocking, kept alive, without delay; buffers of these sizes in bytes unless -1."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if send_buffer != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    if receive_buffer != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)


def begin_connect(sock: socket.socket, target: Any) -> bool:
    """Start connecting; tells whether the connection stands already."""
    try:
        sock.connect(target)
    except BlockingIOError:
        return False
    return True


class Waker:
    """A descriptor that any thread can make readable."""

    __slots__ = ("_fd", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """What to wait on."""
        return self._fd

    def wake(self) -> None:
        """Make it readable; nothing once it is closed."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Make it quiet again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
