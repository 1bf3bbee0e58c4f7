"""epoll, and what it has not been told yet: a channel's events follow from what the channel wants."""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .channel import Channel

__all__ = ["Poller", "SystemPoller"]

_LONGEST: Final = 2**31 - 1  # ms that the system's wait can take; anything longer is for ever


class SystemPoller(Protocol):
    """The part of ``select.epoll`` that is used; tests bring their own."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Wait for these events of a descriptor."""

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Wait for other events of it."""

    def unregister(self, fd: int, /) -> None:
        """Wait for it no more."""

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Wait so many seconds; gives descriptors and events."""

    def close(self) -> None:
        """Give its own descriptor back."""


class Poller:
    """Waits for events of channels, and of other descriptors with a callback each.

    ``changed`` may be called from any thread, everything else by the selector's thread alone.

    Args:
        system: Waits; ``select.epoll`` if None.

    Attributes:
        channels: The channels that are waited for, by descriptor.
        callbacks: What is called for other descriptors.
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
        """Watch the descriptor no more."""
        del self.callbacks[fd]
        self._system.unregister(fd)

    def apply(self) -> None:
        """Tell the system what channels want that have changed. Raises ``OSError`` if it refuses a descriptor."""
        while self._changed:
            self.update(self._changed.popleft())

    def update(self, channel: Channel) -> None:
        """Tell the system what a channel wants now."""
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
        """Wait for a channel no more; its descriptor is still open."""
        if channel.registered:
            channel.registered = 0
            del self.channels[channel.fd]
            self._system.unregister(channel.fd)

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait; gives descriptors that are ready, and for what they are."""
        if self._changed:
            self.apply()
        ready: list[tuple[int, int]] = self._system.poll(timeout_ms / 1000 if timeout_ms <= _LONGEST else None)
        return ready

    def close(self) -> None:
        """Close the system's poller."""
        self._system.close()
