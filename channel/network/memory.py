"""A budget for the bytes of requests that have been read but not answered yet (``queued.max.request.bytes``)."""

from __future__ import annotations

import weakref

from channel.errors import IllegalState
from channel.logs import get_logger

__all__ = ["MemoryPool"]

_log = get_logger(__name__)


class _Lease(bytearray):
    """A buffer that belongs to a pool: a subclass, so that weak references to it are possible."""

    __slots__ = ("__weakref__",)


class MemoryPool:
    """Allocates buffers while the budget lasts, and tracks each until its release.

    Args:
        size: The budget in bytes.
        max_allocation: The largest single buffer.
        strict: Never exceed the budget. Otherwise one buffer may take the budget below zero, so that a large frame
            does not wait forever.
    """

    def __init__(self, size: int, max_allocation: int, *, strict: bool = False) -> None:
        if size <= 0 or max_allocation <= 0 or max_allocation > size:
            raise ValueError(f"a pool of {size} bytes with buffers up to {max_allocation}: need 0 < buffer <= pool")
        self.size = size
        self.max_allocation = max_allocation
        self._strict = strict
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
        if self._available < (size if self._strict else 1):
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

    def close(self) -> None:
        """Check that every buffer was released.

        Raises:
            IllegalState: Some buffers were not.
        """
        if self._leases:
            raise IllegalState(f"{len(self._leases)} buffers were never given back")

    def _reclaim(self, key: int) -> None:
        """Take back a buffer that was dropped instead of released: a bug, but the budget must not shrink for it."""
        size, _ = self._leases.pop(key)
        self._available += size
        _log.error("a buffer of %d bytes was dropped without being released; the pool takes it back", size)
