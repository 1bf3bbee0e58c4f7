"""Shows snapshots of what changes, on a terminal or in a pipe, for ``kproto top``."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from kproto.cli.sections import lines_of, shortened
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.live import Live

    from kproto.cli.sections import Section
    from kproto.verdicts.doctor import Finding

PLAIN_ROWS: Final = 10
"""The most rows of a table where no height bounds them."""

POLL_S: Final = 0.2
"""The most seconds between two looks for what is new."""

_PLAIN_WIDTH: Final = 80


class Screen:
    """Shows each snapshot: on a terminal in place of the one before, else below it.

    Attributes:
        once: Whether there is one snapshot alone.
    """

    def __init__(self, interval: float, *, once: bool) -> None:
        self.once = once
        self._interval = interval
        self._terminal = sys.stdout.isatty() and not once
        self._live: Live | None = None
        self._stack = ExitStack()
        self._shown: list[str] = []
        self._notes: list[str] = []
        self._next = time.monotonic() + interval

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        print(*self._notes, sep="\n", end="\n" if self._notes else "", file=sys.stderr)

    @property
    def size(self) -> tuple[int, int | None]:
        """Columns and lines."""
        if not sys.stdout.isatty():
            return _PLAIN_WIDTH, None
        width, height = shutil.get_terminal_size()
        return width, None if self.once else height

    def wait_s(self) -> float:
        """Seconds until the next snapshot is due."""
        return max(self._next - time.monotonic(), 0.0)

    def show(self, lines: Sequence[str]) -> None:
        """Show a snapshot."""
        self._next = time.monotonic() + self._interval
        width, height = self.size
        between = [""] if self._shown else []
        self._shown = [shortened(line, width) for line in lines]
        if not self._terminal:
            print(*between, *self._shown, sep="\n", flush=True)
            return
        from rich.text import Text

        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(), screen=True, auto_refresh=False, vertical_overflow="crop")
            self._stack.enter_context(self._live)
        text = Text("\n").join(
            Text(line, style="" if line.startswith(" ") else "bold", no_wrap=True) for line in self._shown[:height]
        )
        self._live.update(text, refresh=True)

    def note(self, text: str) -> None:
        """Tell something on standard error; once the screen is left, where there is one."""
        if self._terminal:
            self._notes.append(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the screen, and print the last snapshot where it stays."""
        self._stack.close()
        if self._terminal:
            print(*self._shown, sep="\n")
            self._terminal = False


def section_lines(section: Section, width: int) -> Iterator[str]:
    """Yield a section's title and its lines."""
    yield section.title
    yield from lines_of(section, width)


def finding_lines(found: Sequence[Finding], rows: int, width: int) -> Iterator[str]:
    """Yield the first findings, a line each, and how many more there are."""
    lines = [f"{f.severity:<8} {f.rule} {printable(f.text)}" for f in found[: rows if len(found) <= rows else rows - 1]]
    if len(found) > len(lines):
        lines.append(f"and {len(found) - len(lines)} more: kproto doctor shows them")
    yield from (f"  {cut(line, width - 2)}" for line in lines or ["none"])


def cut(text: str, width: int) -> str:
    """Cut a sentence at its end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
