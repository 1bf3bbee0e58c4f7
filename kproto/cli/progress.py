"""Shows the progress of reading on standard error, if that is a terminal."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

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
def reading() -> Iterator[ReadingProgress]:
    """Show progress while a command reads; shows nothing unless standard error is a terminal."""
    progress = ReadingProgress(enabled=sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.hide()
