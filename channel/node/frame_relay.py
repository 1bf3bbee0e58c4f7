"""Requests that any broker may answer, passed frame by frame from a node that does not serve them to a live broker."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from channel.broker.worker import Worker
from channel.errors import IllegalState
from channel.locks import new_lock
from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.types import Node

__all__ = ["FrameRelay"]

_log = get_logger(__name__)

_AT_ONCE: Final = 8
"""The number of requests that wait for brokers at a time."""

_ATTEMPTS: Final = 3
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 60.0
_LARGEST_ANSWER: Final = 100 * 1024 * 1024


class FrameRelay:
    """Passes frames to brokers without TLS and SASL, each over a connection of its own, and their answers back.

    A frame goes to another broker if its broker cannot be reached, but never twice.

    Args:
        name: Names the threads, which start with the first frame.
        brokers: Returns the brokers that can be asked; called on the relay's threads.
    """

    def __init__(self, name: str, brokers: Callable[[], Sequence[Node]]) -> None:
        self._name = name
        self._brokers = brokers
        self._worker = Worker(name, _AT_ONCE)
        self._lock = new_lock("frame relay")
        self._open: set[socket.socket] = set()
        self._is_closed = False

    def __call__(self, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Pass a request on, without its size; ``answer`` takes the response, or None, on a thread of the relay."""
        try:
            self._worker.submit(partial(self._ask, frame, answer))
        except IllegalState:  # closed
            answer(None)

    def close(self, timeout_s: float | None = None) -> bool:
        """Close the connections, and end the threads. Harmless if closed.

        Returns:
            Whether the threads have ended within this time; a line in the log names each that has not.
        """
        with self._lock:
            self._is_closed = True
            for each in self._open:
                with contextlib.suppress(OSError):  # its broker has closed it
                    each.shutdown(socket.SHUT_RDWR)
        return self._worker.close(timeout_s)

    def _ask(self, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        response = None
        try:
            response = self._response(frame)
        except OSError as e:
            _log.warning("%s: a request to a broker was not answered: %s", self._name, e)
        finally:
            answer(response)

    def _response(self, frame: bytes) -> bytes:
        brokers = list(self._brokers())
        random.shuffle(brokers)
        error = OSError("there is no live broker")
        for broker in brokers[:_ATTEMPTS]:
            try:
                connection = socket.create_connection((broker.host, broker.port), _CONNECT_S)
            except OSError as e:
                error = e
                continue
            with connection:
                self._opened(connection)
                try:
                    connection.settimeout(_ANSWER_S)
                    connection.sendall(struct.pack(">i", len(frame)) + frame)
                    return _read(connection)
                finally:
                    with self._lock:
                        self._open.discard(connection)
        raise error

    def _opened(self, connection: socket.socket) -> None:
        with self._lock:
            if self._is_closed:
                raise OSError("the relay is closed")
            self._open.add(connection)


def _read(connection: socket.socket) -> bytes:
    """Read one frame, and return it without its size."""
    with connection.makefile("rb") as stream:
        start = stream.read(4)
        size = struct.unpack(">i", start)[0] if len(start) == 4 else -1
        if not 0 <= size <= _LARGEST_ANSWER:
            raise OSError("the broker closed the connection, or sent no response of Kafka's protocol")
        frame = stream.read(size)
    if len(frame) < size:
        raise OSError("the broker closed the connection in the middle of its response")
    return frame
