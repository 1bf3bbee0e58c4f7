"""Delayed closes after failed authentications, as ``connection.failed.authentication.delay.ms`` demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["DelayedCloses"]


class DelayedCloses:
    """Refused connections in the order of their ends: the delay slows password guessing and blocks no other connection.

    Args:
        delay_ms: How long after the refusal a connection is answered and closed.
    """

    __slots__ = ("_delay_ns", "_due_ns")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ns = delay_ms * 1_000_000
        self._due_ns: dict[Channel, int] = {}

    def __len__(self) -> int:
        return len(self._due_ns)

    def __contains__(self, channel: object) -> bool:
        return channel in self._due_ns

    def add(self, channel: Channel, now_ns: int) -> None:
        """Add a connection, to be closed when the delay is over."""
        self._due_ns[channel] = now_ns + self._delay_ns

    def forget(self, channel: Channel) -> None:
        """Note that a connection has ended for another reason."""
        self._due_ns.pop(channel, None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the first close; call only if there are connections."""
        return max(0, -(-(next(iter(self._due_ns.values())) - now_ns) // 1_000_000))

    def due(self, now_ns: int) -> list[Channel]:
        """Remove and return the connections whose delay is over."""
        found = []
        for channel, due_ns in self._due_ns.items():
            if due_ns > now_ns:
                break
            found.append(channel)
        for channel in found:
            del self._due_ns[channel]
        return found
