"""A network namespace that a test makes for itself, in which it may drop packets."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["NetworkNamespace"]

_CLONE_NEWNET: Final = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_TABLE: Final = """
table inet faults {
  set ports { type inet_service; }
  chain input {
    type filter hook input priority 0;
    tcp dport @ports drop
    tcp sport @ports drop
  }
}
"""
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkNamespace:
    """Loopback alone, and nftables that drop packets; a context manager.

    The calling thread is inside from entry to exit, and so is whatever it starts: threads, processes, sockets.
    """

    @staticmethod
    def missing() -> str | None:
        """Why there cannot be one here, None if there can."""
        if os.geteuid() != 0:
            return "only root may make a network namespace"
        return None if shutil.which("nft") else "nftables is not installed (Debian, Ubuntu: apt-get install nftables)"

    def __enter__(self) -> NetworkNamespace:
        self._outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _check(_libc.unshare(_CLONE_NEWNET))
        except OSError:
            os.close(self._outside)
            raise
        with socket.socket() as any_socket:
            request = struct.pack("16sh", b"lo", 0)
            (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))
        _nft(_TABLE)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            _check(_libc.setns(self._outside, _CLONE_NEWNET))
        finally:
            os.close(self._outside)

    @contextlib.contextmanager
    def dropped(self, port: int) -> Iterator[None]:
        """Drop every TCP packet to and from a port."""
        _nft(f"add element inet faults ports {{ {port} }}\n")
        try:
            yield
        finally:
            _nft(f"delete element inet faults ports {{ {port} }}\n")

    @staticmethod
    def unacknowledged(port: int) -> list[str]:
        """The closed connections to a port whose bytes the system still tries to deliver, as ``/proc`` has them."""
        rows = [line.split() for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]]
        return [" ".join(row) for row in rows if row[2].endswith(f":{port:04X}") and row[3] in _CLOSING]


_CLOSING: Final = frozenset(("04", "09", "0B"))  # FIN-WAIT-1, LAST-ACK, CLOSING


def _nft(commands: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=commands, text=True, check=True, timeout=60)


def _check(outcome: int) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
