"""Outgoing and incoming frames, without I/O, and the memory pool for received frames.

Pieces are never joined, and memory is taken as bytes arrive.
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from channel.errors import InvalidReceive
from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transport import Bytes

_log = get_logger(__name__)


class _Lease(bytearray):
    """A buffer that belongs to a pool: a subclass, so that weak references to it are possible."""

    __slots__ = ("__weakref__",)


class MemoryPool:
    """Allocates buffers while the budget lasts, and tracks each until its release.

    Args:
        size: The budget in bytes.
        max_allocation: The largest single buffer. One buffer may take the budget below zero, so that a large frame
            does not wait forever.
    """

    def __init__(self, size: int, max_allocation: int) -> None:
        if size <= 0 or max_allocation <= 0 or max_allocation > size:
            raise ValueError(f"a pool of {size} bytes with buffers up to {max_allocation}: need 0 < buffer <= pool")
        self.size = size
        self.max_allocation = max_allocation
        self._available = size
        self._leases: dict[int, tuple[int, weakref.ref[_Lease]]] = {}

    def __repr__(self) -> str:
        return f"MemoryPool({self._available} of {self.size} bytes left, {len(self._leases)} buffers out)"

    @property
    def available(self) -> int:
        """Bytes left; below zero after a buffer that exceeded the budget."""
        return self._available

    @property
    def out_of_memory(self) -> bool:
        """Whether the budget is used up."""
        return self._available <= 0

    def allocate(self, size: int, at_once: int | None = None) -> bytearray | None:
        """Allocate a buffer, or return None if the budget is used up.

        Args:
            size: The bytes to take from the budget.
            at_once: The buffer's length at first; the caller lets it grow to ``size`` as bytes arrive.

        Raises:
            ValueError: The size is below 1 or above the largest buffer.
        """
        if not 1 <= size <= self.max_allocation:
            raise ValueError(f"{size} bytes asked of a pool that gives 1 to {self.max_allocation} at a time")
        if self._available <= 0:
            return None
        lease = _Lease(size if at_once is None else at_once)
        key = id(lease)
        self._available -= size
        self._leases[key] = (size, weakref.ref(lease, lambda _: self._reclaim(key)))
        return lease

    def release(self, buffer: bytearray | None) -> None:
        """Give a buffer back.

        Raises:
            ValueError: The buffer is not from this pool, or was released already.
        """
        size, reference = self._leases.get(id(buffer), (0, None))
        if buffer is None or reference is None or reference() is not buffer:
            raise ValueError("released a buffer that this pool has not given out, or has back already")
        del self._leases[id(buffer)], reference  # the last reference to it: the buffer may die with this call
        self._available += size

    def _reclaim(self, key: int) -> None:
        """Take back a buffer that was dropped instead of released: a bug, but the budget must not shrink for it."""
        size, _ = self._leases.pop(key)
        self._available += size
        _log.error("a buffer of %d bytes was dropped without being released; the pool takes it back", size)


UNLIMITED: Final = -1

_length = struct.Struct(">i")
_unpack_length = _length.unpack_from
_MOST: Final = 2**31 - 1
_MOST_UNSIGNED: Final = 2**32
_FIRST: Final = 4096  # most bytes of memory to allocate when only the length of a frame has arrived


def int32_at(data: Bytes, at: int) -> int:
    """Return the big-endian int32 in these bytes."""
    if type(data) is not bytearray:
        return int(_unpack_length(data, at)[0])
    exact = data  # compiled, its bytes are read without a call
    value = exact[at]
    value = value << 8 | exact[at + 1]
    value = value << 8 | exact[at + 2]
    value = value << 8 | exact[at + 3]
    return value - _MOST_UNSIGNED if value > _MOST else value


def put_int32(data: bytearray, at: int, value: int) -> None:
    """Write a big-endian int32."""
    data[at] = value >> 24 & 255
    data[at + 1] = value >> 16 & 255
    data[at + 2] = value >> 8 & 255
    data[at + 3] = value & 255


class Send:
    """A frame to be sent: its length, then buffers that may be shared with other sends and are never joined or copied.

    Args:
        destination: The channel's id.
        buffers: The whole frame, its 4 bytes of length included. ``Send.framed`` puts them in front.
        request: The ``ClientRequest`` in the frame, if the peer's answer is to be matched with it; None once it is
            in flight.
        size: The size of the buffers together, if it is known already.

    Attributes:
        left: The buffers that have not been written yet; the first may be a view of a buffer's rest.
        remaining: The number of bytes in ``left``.
        completed: Whether every byte has left the transport too, encrypted bytes that it held back included.
    """

    __slots__ = ("buffers", "completed", "destination", "left", "remaining", "request", "size")

    def __init__(self, destination: str, buffers: Sequence[Bytes], request: Any = None, size: int = -1) -> None:
        self.destination = destination
        self.buffers = buffers
        self.request = request
        self.left = buffers
        self.size = self.remaining = sum(map(len, buffers)) if size < 0 else size
        self.completed = False

    @classmethod
    def framed(cls, destination: str, payload: Sequence[Bytes], request: Any = None) -> Send:
        """Make a send of this payload with its length in front."""
        return cls(destination, [_length.pack(sum(map(len, payload))), *payload], request)

    def __repr__(self) -> str:
        return f"Send({self.size} bytes to {self.destination}, {self.remaining} remaining)"

    def written(self, count: int) -> None:
        """Note that this many more bytes have been written."""
        self.remaining -= count
        for at, buffer in enumerate(self.left):
            if count < len(buffer):
                head = memoryview(buffer)[count:] if count else buffer
                self.left = [head, *self.left[at + 1 :]]
                return
            count -= len(buffer)


class Window:
    """A buffer that the connections of one thread share for reading, one after the other.

    Args:
        size: Its size in bytes: the most that one read takes.
    """

    __slots__ = ("buffer", "view")

    def __init__(self, size: int = 65_536) -> None:
        self.buffer = bytearray(size)
        self.view = memoryview(self.buffer)


class FrameReader:
    """Cuts a connection's bytes into frames: it offers the buffer to read into, and takes the count.

    Small frames are read many at once into a window that connections share, and copied out of it; a frame of which a
    part has arrived gets a buffer of its own, which grows with what arrives, and is read into directly. With a pool
    the length is read alone and the pool is asked for the frame's size before a byte of the frame is read.

    Args:
        max_size: Largest payload in bytes; ``UNLIMITED`` for none.
        pool: The pool that accounts for payloads, None for the heap.
        window: The shared buffer for small frames; None reads each length by itself.

    Attributes:
        into: The buffer for the next bytes; empty while the pool has no memory.
        bytes_read: Bytes of an unfinished frame that have arrived, its length included; 0 between two frames.
        requested: The unfinished frame's payload size; -1 while unknown.
        lacks_memory: Whether the pool had no memory for the announced frame.
        waiting: Whole frames that have arrived and were not taken; an error behind them is the last.
    """

    __slots__ = (
        "_head", "_payload", "_pool", "_window", "_window_view", "bytes_read", "into", "lacks_memory", "limit",
        "requested", "waiting",
    )  # fmt: skip

    def __init__(self, max_size: int = UNLIMITED, pool: MemoryPool | None = None, window: Window | None = None) -> None:
        self.limit = max_size if max_size >= 0 else _MOST
        self._pool = pool
        self._head = bytearray(4)
        self._window = self._window_view = None
        if window is not None and pool is None:
            self._window, self._window_view = window.buffer, window.view
        self._payload: bytearray | None = None
        self.waiting: deque[bytearray | InvalidReceive] = deque()
        self.lacks_memory = False
        self._begin()

    def _begin(self) -> None:
        """Expect the next frame's length."""
        self.requested = -1
        self.bytes_read = 0
        self.into = memoryview(self._head) if self._window_view is None else self._window_view

    @property
    def memory(self) -> int:
        """Bytes of memory allocated for the unfinished frame."""
        return 0 if self._payload is None else len(self._payload)

    @property
    def arrived(self) -> int:
        """The number of frames that have arrived and were not taken, a frame that has begun to arrive included."""
        return len(self.waiting) + (self.bytes_read > 0)

    def next_frame(self) -> bytearray | None:
        """Return the next whole frame that has arrived already.

        Raises:
            InvalidReceive: The length behind the last whole frame is negative or above the limit.
        """
        if not self.waiting:
            return None
        following = self.waiting.popleft()
        if isinstance(following, InvalidReceive):
            raise following
        return following

    def received(self, count: int) -> bytearray | None:
        """Take this many bytes that were read into ``into``.

        Returns:
            The first whole frame, None if there is none yet; others wait for ``next_frame``.

        Raises:
            InvalidReceive: A frame's length is negative or above the limit, and no whole frame came before it.
        """
        window = self._window
        if window is not None and self._payload is None:
            if count >= 4 and not self.bytes_read:
                size = int32_at(window, 0)
                if size + 4 == count and size <= self.limit:
                    return window[4:count]  # exactly one frame: the common case
            self._cut(count)
            return self.next_frame()
        return self._fill(count)

    def _cut(self, count: int) -> None:
        """Cut frames out of the window."""
        assert self._window_view is not None
        data: memoryview = self._window_view[:count]
        if self.bytes_read:
            data = memoryview(bytes(self._head[: self.bytes_read]) + bytes(data))
        at, end = 0, len(data)
        while end - at >= 4:
            size = int32_at(data, at)
            if not 0 <= size <= self.limit:
                self.waiting.append(self._invalid(size))
                return
            if at + 4 + size > end:
                self._payload = bytearray(min(size, max(_FIRST, 2 * (end - at))))
                self._payload[: end - at - 4] = data[at + 4 :]
                self.requested = size
                self.bytes_read = end - at
                self.into = memoryview(self._payload)[end - at - 4 :]
                return
            self.waiting.append(bytearray(data[at + 4 : at + 4 + size]))
            at += 4 + size
        self._head[: end - at] = data[at:]
        self.bytes_read = end - at

    def _fill(self, count: int) -> bytearray | None:
        """Go on with a length, or a payload, that is read by itself."""
        self.bytes_read += count
        if self.requested < 0:
            if self.bytes_read < 4:
                self.into = memoryview(self._head)[self.bytes_read :]
                return None
            size = int32_at(self._head, 0)
            if not 0 <= size <= self.limit:
                raise self._invalid(size)
            self.requested = size
            self.into = memoryview(b"")
            if not size:
                self._begin()
                return bytearray()
            self.allocate()
            return None
        payload = self._payload
        assert payload is not None
        have = self.bytes_read - 4
        if have == self.requested:
            self.into.release()
            self._payload = None
            self._begin()
            return payload
        if have < len(payload):
            self.into = self.into[count:]
        else:  # doubles the buffer: each byte is moved once on average
            self.into.release()
            payload += bytes(min(have, self.requested - have))
            self.into = memoryview(payload)[have:]
        return None

    def allocate(self) -> bool:
        """Allocate the announced frame's memory; returns False if the pool has none."""
        if self.requested <= 0 or self._payload is not None:
            return True
        at_once = min(self.requested, _FIRST)
        if self._pool is None:
            self._payload = bytearray(at_once)
        else:
            self._payload = self._pool.allocate(self.requested, at_once)
        self.lacks_memory = self._payload is None
        if self._payload is not None:
            self.into = memoryview(self._payload)
        return not self.lacks_memory

    def _invalid(self, size: int) -> InvalidReceive:
        limit = f"; the limit is {self.limit}" if size > 0 else ""
        return InvalidReceive(f"the peer announced a frame of {size} bytes{limit}")

    def close(self) -> None:
        """Give the memory of an unfinished frame back."""
        payload, self._payload = self._payload, None
        if payload is not None:
            self.into.release()
            if self._pool is not None:
                self._pool.release(payload)
        self.waiting.clear()
        self.into = memoryview(b"")
