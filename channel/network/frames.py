"""One frame on its way out, one on its way in. Nothing is joined, nothing allocated before its length is checked.

A large frame's buffer grows with what has arrived: who only announces 100 MiB does not get them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from channel.errors import InvalidReceive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .memory import MemoryPool
    from .transport import Bytes, Transport

__all__ = ["UNLIMITED", "Receive", "Send"]

UNLIMITED = -1

_length = struct.Struct(">i")
_AT_ONCE = 1 << 20  # bytes that a frame gets for its announcement alone


class Send:
    """A frame to be sent: its length, then buffers that may be shared with other sends and are never joined or copied.

    Args:
        destination: The channel's id.
        buffers: The whole frame, its 4 bytes of length included. ``Send.framed`` puts them in front.
    """

    __slots__ = ("_left", "buffers", "destination", "remaining", "size")

    def __init__(self, destination: str, buffers: Sequence[Bytes]) -> None:
        self.destination = destination
        self.buffers = buffers
        self._left = buffers
        self.size = self.remaining = sum(map(len, buffers))

    @classmethod
    def framed(cls, destination: str, payload: Sequence[Bytes]) -> Send:
        """A send of this payload with its length in front."""
        return cls(destination, [_length.pack(sum(map(len, payload))), *payload])

    def __repr__(self) -> str:
        return f"Send({self.size} bytes to {self.destination}, {self.remaining} remaining)"

    @property
    def completed(self) -> bool:
        """Whether every byte has been written."""
        return self.remaining == 0

    def write_to(self, transport: Transport) -> int:
        """Write what the transport takes now; tells how many bytes that was."""
        written = transport.write(self._left)
        if written:
            self.remaining -= written
            if self.remaining:
                self._advance(written)
        return written

    def _advance(self, written: int) -> None:
        """Drop what has been written: whole buffers, and the head of one (a view, not a copy)."""
        for at, buffer in enumerate(self._left):
            if written < len(buffer):
                head = memoryview(buffer)[written:] if written else buffer
                self._left = [head, *self._left[at + 1 :]]
                return
            written -= len(buffer)


class Receive:
    """A frame being received; when it is complete, ``payload`` is exactly its size.

    Args:
        source: The channel's id.
        max_size: Largest payload in bytes; ``UNLIMITED`` for none.
        pool: Who gives the buffer, None for the heap.
    """

    __slots__ = ("_header", "_pool", "_read", "_view", "max_size", "payload", "requested", "source")

    def __init__(self, source: str, max_size: int = UNLIMITED, pool: MemoryPool | None = None) -> None:
        self.source = source
        self.max_size = max_size
        self._pool = pool
        self._header = bytearray(4)
        self._view = memoryview(self._header)
        self._read = 0
        self.requested = -1  # the payload's size, once it is known
        self.payload: bytearray | None = None

    def __repr__(self) -> str:
        return f"Receive({self._read} of {self.size or '?'} bytes from {self.source})"

    @property
    def size(self) -> int:
        """Bytes of the whole frame, length included; 0 while unknown."""
        return self.requested + 4 if self.requested >= 0 else 0

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, length included."""
        return self._read

    @property
    def complete(self) -> bool:
        """Whether the payload is all there."""
        return self.payload is not None and self._read == self.requested + 4

    @property
    def size_known(self) -> bool:
        """Whether the length has been read."""
        return self.requested >= 0

    @property
    def memory_allocated(self) -> bool:
        """Whether the payload has its buffer; not so while the pool refuses."""
        return self.payload is not None

    def read_from(self, transport: Transport) -> int:
        """Read what is there, the length first; tells how many bytes that was.

        Raises:
            InvalidReceive: A length below zero or above the limit.
            EOFError: The peer ended before the frame did.
        """
        count = 0
        if self.requested < 0:
            count = transport.read_into(self._view)
            self._read += count
            if self._read < 4:
                self._view = self._view[count:]
                return count
            (size,) = _length.unpack(self._header)
            if size < 0:
                raise InvalidReceive(f"{self.source} announced a frame of {size} bytes")
            if size > self.max_size >= 0:
                raise InvalidReceive(f"{self.source} announced a frame of {size} bytes; the limit is {self.max_size}")
            self.requested = size
        if self.payload is None and not self._allocate():
            return count
        if self._read < self.requested + 4:
            if not self._view:
                self._grow()
            more = transport.read_into(self._view)
            self._read += more
            if self._read < self.requested + 4:
                self._view = self._view[more:]
            count += more
        return count

    def _allocate(self) -> bool:
        if self.requested == 0:
            self.payload = bytearray()
        elif self._pool is None:
            self.payload = bytearray(min(self.requested, _AT_ONCE))
        else:
            self.payload = self._pool.allocate(self.requested)
            if self.payload is None:
                return False
        self._view = memoryview(self.payload)
        return True

    def _grow(self) -> None:
        """As much again as has come, up to the whole: each byte is moved once on average."""
        assert self.payload is not None
        have = len(self.payload)
        self._view.release()
        self.payload += bytes(min(have, self.requested - have))
        self._view = memoryview(self.payload)[have:]

    def close(self) -> None:
        """Give the buffer back to its pool; the payload must not be used any more."""
        if self.payload is not None and self._pool is not None and self.requested > 0:
            self._view.release()
            self._pool.release(self.payload)
        self.payload = None
