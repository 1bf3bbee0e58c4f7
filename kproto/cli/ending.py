"""How SIGTERM ends a command that runs in the foreground."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

__all__ = ["ended_by_sigterm"]


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[Callable[[threading.Event], None]]:
    """Let the first SIGTERM end a command as Ctrl-C does, and ignore those that come during its clean end.

    The handler raises instead of setting an event: the main thread may hold the event's lock.

    Yields:
        A function that waits until an event is set, Ctrl-C or SIGTERM, and returns; the clean end follows it. Before,
        while the command starts, SIGTERM raises KeyboardInterrupt.
    """
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise KeyboardInterrupt

    def wait(stop: threading.Event) -> None:
        nonlocal is_ending
        try:
            while not stop.wait(1):
                pass
            is_ending = True
        except KeyboardInterrupt:
            is_ending = True

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield wait
    finally:
        signal.signal(signal.SIGTERM, previous)
