"""An epoll wrapper that follows the events that each channel is interested in."""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .channel import Channel

__all__ = ["Poller", "SystemPoller"]

_LONGEST: Final = 2**31 - 1  # longest wait of the system in ms; a longer one has no time limit


class SystemPoller(Protocol):
    """The part of ``select.epoll`` that the poller uses; tests bring their own."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Wait for these events of a descriptor."""

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Wait for other events of the descriptor."""

    def unregister(self, fd: int, /) -> None:
        """Stop waiting for the descriptor."""

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Wait this many seconds; returns descriptors and their events."""

    def close(self) -> None:
        """Close epoll's own descriptor."""


class Poller:
    """Waits for events of channels, and of other descriptors with a callback each.

    ``changed`` may be called from any thread, everything else by the selector's thread alone.

    Args:
        system: Waits; ``select.epoll`` if None.

    Attributes:
        channels: The registered channels, by descriptor.
        callbacks: The callbacks of other descriptors.
    """

    __slots__ = ("_changed", "_system", "callbacks", "changed", "channels")

    def __init__(self, system: SystemPoller | None = None) -> None:
        self._system: Any = select.epoll() if system is None else system
        self._changed: deque[Channel] = deque()
        self.changed = self._changed.append
        self.channels: dict[int, Channel] = {}
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever the descriptor is readable."""
        self._system.register(fd, select.EPOLLIN)
        self.callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop watching the descriptor."""
        del self.callbacks[fd]
        self._system.unregister(fd)

    def apply(self) -> None:
        """Register the changed interests of channels with the system. Raises ``OSError`` if it refuses a descriptor."""
        while self._changed:
            self.update(self._changed.popleft())

    def update(self, channel: Channel) -> None:
        """Register a channel's present interest with the system."""
        wanted, registered = channel.interest, channel.registered
        if wanted == registered or channel.closed:
            return
        if registered:
            if wanted:
                self._system.modify(channel.fd, wanted)
            else:
                del self.channels[channel.fd]
                self._system.unregister(channel.fd)
        else:
            channel.fd = channel.transport.fileno()
            self._system.register(channel.fd, wanted)
            self.channels[channel.fd] = channel
        channel.registered = wanted

    def drop(self, channel: Channel) -> None:
        """Stop waiting for a channel whose descriptor is still open."""
        if channel.registered:
            channel.registered = 0
            del self.channels[channel.fd]
            self._system.unregister(channel.fd)

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait for events; returns the ready descriptors with their events."""
        if self._changed:
            self.apply()
        ready: list[tuple[int, int]] = self._system.poll(timeout_ms / 1000 if timeout_ms <= _LONGEST else None)
        return ready

    def close(self) -> None:
        """Close the system's poller."""
        self._system.close()
