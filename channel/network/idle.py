"""Idle connections, and frames that have stopped arriving."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["IdleExpiry", "StalledFrames"]

_SHARE: Final = 64


class IdleExpiry:
    """Connections in the order of their last use; at most one expires at a time."""

    __slots__ = ("_last_used", "_max_idle_ns", "_next_check_ns")

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._next_check_ns = now_ns + self._max_idle_ns
        self._last_used: OrderedDict[str, int] = OrderedDict()

    def touch(self, channel_id: str, now_ns: int) -> None:
        """Note that a connection has just been used."""
        self._last_used[channel_id] = now_ns
        self._last_used.move_to_end(channel_id)

    def remove(self, channel_id: str) -> None:
        """Forget a connection."""
        self._last_used.pop(channel_id, None)

    def oldest(self) -> str | None:
        """The least recently used connection."""
        return next(iter(self._last_used), None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the next call of ``expired``."""
        return max(0, (self._next_check_ns - now_ns) // 1_000_000 + 1)

    def expired(self, now_ns: int) -> str | None:
        """Return the connection that has been idle for longer than the limit, if any."""
        if now_ns <= self._next_check_ns:
            return None
        if not self._last_used:
            self._next_check_ns = now_ns + self._max_idle_ns
            return None
        channel_id, last = next(iter(self._last_used.items()))
        self._next_check_ns = last + self._max_idle_ns
        return channel_id if now_ns > self._next_check_ns else None


class StalledFrames:
    """Incomplete frames, of which a 64th, or the rest, must arrive in each interval.

    Without this limit a peer could announce a frame, send nothing, and hold its share of a memory pool for ever.

    Args:
        interval_ms: The interval.
    """

    __slots__ = ("_interval_ns", "_marks", "_next_check_ns")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ns = interval_ms * 1_000_000
        self._marks: dict[Channel, tuple[int, int]] = {}  # time of the next check, and bytes due by then
        self._next_check_ns = 0

    def __len__(self) -> int:
        return len(self._marks)

    def look(self, channel: Channel, now_ns: int) -> None:
        """Note the state of a channel's frame after a read."""
        unfinished = channel.connection.reader.bytes_read
        if not unfinished:
            self.forget(channel)
        elif not channel.watched:
            channel.watched = True
            self._mark(channel, now_ns)

    def _mark(self, channel: Channel, now_ns: int) -> None:
        reader = channel.connection.reader
        due = now_ns + self._interval_ns
        if not self._marks or due < self._next_check_ns:
            self._next_check_ns = due
        self._marks[channel] = (due, reader.bytes_read + max(1, reader.requested // _SHARE))

    def forget(self, channel: Channel) -> None:
        """Stop watching a channel."""
        channel.watched = False
        self._marks.pop(channel, None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the next check; call only if frames are incomplete."""
        return max(0, (self._next_check_ns - now_ns) // 1_000_000 + 1)

    def stalled(self, now_ns: int) -> list[Channel]:
        """Return the channels whose frames have stopped arriving; muted channels, which are not read, are left out."""
        found: list[Channel] = []
        if not self._marks or now_ns < self._next_check_ns:
            return found
        marks, self._marks = self._marks, {}
        for channel, (due, wanted) in marks.items():
            reader = channel.connection.reader
            if now_ns < due:
                self._marks[channel] = (due, wanted)
            elif reader.bytes_read >= wanted or channel.connection.muted:
                self._mark(channel, now_ns)
            else:
                channel.watched = False
                found.append(channel)
        self._next_check_ns = min((due for due, _ in self._marks.values()), default=0)
        return found
