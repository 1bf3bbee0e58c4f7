"""What the benches' bare programs do with sockets."""

from __future__ import annotations

import socket

__all__ = ["LOOPBACK", "at_once", "received_into"]

LOOPBACK = ("127.0.0.1", 0)


def at_once(sock: socket.socket) -> socket.socket:
    """The same socket, which sends small frames without waiting for more."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def received_into(sock: socket.socket, buffer: memoryview) -> bool:
    """Fill the buffer; False at the end of the stream."""
    while buffer:
        count = sock.recv_into(buffer)
        if not count:
            return False
        buffer = buffer[count:]
    return True
