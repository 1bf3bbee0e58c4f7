"""What a selector waits for. Changes are collected and told to the system once, before it waits."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from .transport import Transport

__all__ = ["Interests", "Watched"]

_LONGEST: Final = 2**31 - 1  # ms that the system's wait can take; anything longer is for ever


class Watched(Protocol):
    """What is waited for: a channel.

    Attributes:
        interest: Which of ``EVENT_READ | EVENT_WRITE`` it wants.
        registered: Which the system knows of; written here alone.
        dropped: It is waited for no more, whatever it wants; written here alone.
    """

    interest: int
    registered: int
    dropped: bool

    @property
    def transport(self) -> Transport:
        """Tells the descriptor."""


class Interests:
    """The system's selector, and what it has not been told yet."""

    __slots__ = ("_changed", "_selector", "register", "unregister")

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._changed: list[Watched] = []
        self.register = self._selector.register
        self.unregister = self._selector.unregister

    def changed(self, watched: Watched) -> None:
        """Its interest may have changed."""
        if watched.interest != watched.registered:
            self._changed.append(watched)

    def apply(self) -> None:
        """Tell the system what still differs. Raises ``OSError`` if it refuses a descriptor."""
        while self._changed:
            watched = self._changed.pop()
            wanted, registered = watched.interest, watched.registered
            if wanted == registered or watched.dropped:
                continue
            if not registered:
                self._selector.register(watched.transport, wanted, watched)
            elif not wanted:
                self._selector.unregister(watched.transport)
            else:
                self._selector.modify(watched.transport, wanted, watched)
            watched.registered = wanted

    def drop(self, watched: Watched) -> None:
        """Wait for it no more."""
        watched.dropped = True
        if watched.registered:
            self._selector.unregister(watched.transport)
            watched.registered = 0

    def select(self, timeout_ms: int) -> list[tuple[Any, int]]:
        """Wait; gives what was registered with each descriptor that is ready, and for what it is."""
        if self._changed:
            self.apply()
        ready = self._selector.select(timeout_ms / 1000 if timeout_ms <= _LONGEST else None)
        return [(key.data, mask) for key, mask in ready]

    def close(self) -> None:
        """Close the system's selector."""
        self._selector.close()
