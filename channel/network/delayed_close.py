"""Connections whose clients were refused, and which end ``connection.failed.authentication.delay.ms`` later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["DelayedCloses"]


class DelayedCloses:
    """Refused connections in the order of their ends, so that guessing passwords takes time and holds nobody up.

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
        """Let a connection end when the delay is over."""
        self._due_ns[channel] = now_ns + self._delay_ns

    def forget(self, channel: Channel) -> None:
        """Note that a connection has ended for another reason."""
        self._due_ns.pop(channel, None)

    def remaining_ms(self, now_ns: int) -> int:
        """How long to wait for the first end; ask only if there are any."""
        return max(0, -(-(next(iter(self._due_ns.values())) - now_ns) // 1_000_000))

    def due(self, now_ns: int) -> list[Channel]:
        """Take the connections that end now."""
        found = []
        for channel, due_ns in self._due_ns.items():
            if due_ns > now_ns:
                break
            found.append(channel)
        for channel in found:
            del self._due_ns[channel]
        return found
