"""Which connection has been silent longest, and whether that is too long."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["IdleExpiry"]


class IdleExpiry:
    """Connections in the order of their last use; at most one expires at a time."""

    __slots__ = ("_last_used", "_max_idle_ns", "_next_check_ns")

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._next_check_ns = now_ns + self._max_idle_ns
        self._last_used: OrderedDict[str, int] = OrderedDict()

    def touch(self, channel_id: str, now_ns: int) -> None:
        """It has just been used."""
        self._last_used[channel_id] = now_ns
        self._last_used.move_to_end(channel_id)

    def remove(self, channel_id: str) -> None:
        """It is gone."""
        self._last_used.pop(channel_id, None)

    def oldest(self) -> str | None:
        """The one that was used least recently."""
        return next(iter(self._last_used), None)

    def remaining_ms(self, now_ns: int) -> int:
        """How long to wait before asking who has expired."""
        return max(0, (self._next_check_ns - now_ns) // 1_000_000 + 1)

    def expired(self, now_ns: int) -> str | None:
        """The one that has been silent for more than the limit, if any."""
        if now_ns <= self._next_check_ns:
            return None
        if not self._last_used:
            self._next_check_ns = now_ns + self._max_idle_ns
            return None
        channel_id, last = next(iter(self._last_used.items()))
        self._next_check_ns = last + self._max_idle_ns
        return channel_id if now_ns > self._next_check_ns else None
