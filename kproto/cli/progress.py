"""Shows on standard error, if that is a terminal, how far reading is, or that a command is at work."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.progress import Progress

_T = TypeVar("_T")

_QUIET_SECONDS: Final = 1.0
"""Seconds before the bar appears, and after each line of output."""


class ReadingProgress:
    """A bar that appears when nothing was printed for a while, and disappears before the next output."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._bar: Progress | None = None
        self._quiet_since = time.monotonic()

    def of(self, name: str) -> Callable[[int, int | None], None] | None:
        """Return a callback for the bytes read so far and their total; None where standard error is no terminal."""
        if not self._enabled:
            return None

        def update(done: int, total: int | None) -> None:
            if self._bar is None and time.monotonic() - self._quiet_since > _QUIET_SECONDS:
                self._bar = self._started()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=name)

        return update

    def hide(self) -> None:
        """Remove the bar before output is printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._enabled:
            self._quiet_since = time.monotonic()

    @staticmethod
    def _started() -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        bar.add_task("", total=None)
        bar.start()
        return bar


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what a command does, and for how long, once that takes a while; what is printed meanwhile overwrites it."""
    terminal, begun, over = sys.stderr, time.monotonic(), threading.Event()
    if not terminal.isatty():
        yield
        return

    def show() -> None:
        said = ""
        while not over.wait(_QUIET_SECONDS):
            said = f"{what}, {time.monotonic() - begun:.0f} s"
            print(said, end="\r", file=terminal, flush=True)
        print(" " * len(said), end="\r" * bool(said), file=terminal, flush=True)

    shows = threading.Thread(target=show, name="kproto-waiting", daemon=True)
    shows.start()
    try:
        yield
    finally:
        over.set()
        shows.join()


def waited(items: Iterable[_T], what: str) -> Iterator[_T]:
    """Yield items; while one of them takes a while, say what is done."""
    found = iter(items)
    while True:
        with waiting(what):
            item = list(islice(found, 1))
        if not item:
            return
        yield item.pop()


@contextmanager
def reading() -> Iterator[ReadingProgress]:
    """Show progress while a command reads; shows nothing unless standard error is a terminal."""
    progress = ReadingProgress(enabled=sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.hide()
