"""The plaintext transport below a channel, and the base of the other, which ``channel.network.tls`` has."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

try:
    from ._socket_calls import receive_small, send_small
except ImportError:  # the channel is not compiled: every frame passes by the methods of ``socket``

    def send_small(fd: int, buffers: Sequence[Bytes]) -> int:
        """Send nothing."""
        return -1

    def receive_small(fd: int, buffer: memoryview) -> int:
        """Read nothing."""
        return -1


EVENT_READ: Final = select.EPOLLIN
EVENT_WRITE: Final = select.EPOLLOUT

COMPUTING: Final = -1
"""In place of the events that an authentication waits for: the next token is being computed on another thread."""

Bytes: TypeAlias = bytes | bytearray | memoryview
"""A buffer of single bytes: ``len`` is its size."""

Address: TypeAlias = tuple[str, int]
"""An IP address as text, and a port."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)

IOV_MAX = os.sysconf("SC_IOV_MAX")
"""The number of buffers that the system takes in one call."""


class PlaintextTransport:
    """A non-blocking byte stream over one socket, its connecting, and its addresses.

    Calls return at once; ``OSError`` means the connection is gone. ``read_into`` is called by the selector's thread
    alone. Everything that writes, and ``close``, is called under the channel's lock, by any thread: a transport whose
    reading and writing share state needs a lock of its own for that.

    Args:
        sock: A non-blocking socket, connecting or connected.
        connected: Whether the socket is connected already.

    Attributes:
        local, remote: The two ends, once connected.
        cipher_information: TLS's cipher suite and protocol by OpenSSL's names; None before the handshake, and without.
    """

    __slots__ = ("_connected", "_fd", "_sock", "cipher_information", "local", "remote")

    has_pending_writes = False
    has_bytes_buffered = False

    def __init__(self, sock: socket.socket, *, connected: bool) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._connected = False
        self.local: Address = ("", 0)
        self.remote: Address = ("", 0)
        self.cipher_information: tuple[str, str] | None = None
        if connected:
            self._note_ends()

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._sock.fileno()

    def _note_ends(self) -> None:
        self.local = socket_address(self._sock.getsockname())
        self.remote = socket_address(self._sock.getpeername())
        self._connected = True

    def finish_connect(self) -> bool:
        """Check whether the TCP connection is established.

        Raises:
            OSError: It could not be made.
        """
        if not self._connected:
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            with contextlib.suppress(OSError):  # no peer yet: a spurious wake-up
                self._note_ends()
        return self._connected

    def reset_on_close(self) -> None:
        """Make ``close`` end the connection by a reset, so that nothing more of it is delivered."""
        reset_on_close(self._sock)

    @property
    def ready(self) -> bool:
        """Whether payload may pass: as soon as the connection is established."""
        return self._connected

    def handshake(self) -> int:
        """Nothing to do."""
        return 0

    def read_into(self, buffer: memoryview) -> int:
        """Read the bytes that have arrived; returns their number, 0 if there are none.

        Raises:
            EOFError: The peer will send no more.
        """
        count = receive_small(self._fd, buffer)
        if count >= 0:
            return count
        try:
            count = self._sock.recv_into(buffer)
        except BlockingIOError:
            return 0
        if not count:
            raise EOFError("the peer has closed the connection")
        return count

    def write(self, buffers: Sequence[Bytes]) -> int:
        """Write as much of the buffers as the socket takes now."""
        count = send_small(self._fd, buffers)
        if count >= 0:
            return count
        if len(buffers) > IOV_MAX:
            buffers = buffers[:IOV_MAX]
        try:
            return self._sock.sendmsg(buffers)
        except BlockingIOError:
            return 0

    def flush(self) -> None:
        """Nothing to do."""

    def end_writing(self) -> None:
        """Shut down the sending half of the connection; reading continues."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._fd = -1  # the system gives the number to another socket
        self._sock.close()

    abandon = close


def reset_on_close(sock: socket.socket) -> None:
    """Make closing this socket reset its connection; bytes that have not been sent are dropped."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def socket_address(name: object) -> Address:
    """Return host and port of a system address, without IPv6's extras; ``("", 0)`` for a socket without addresses."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
