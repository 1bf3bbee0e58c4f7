"""Prints titled tables of text: unshortened in a pipe, fitted to a terminal without breaking words."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Section", "print_sections", "shortened"]

_INDENT: Final = "  "
_SHORTEST: Final = 12
"""The least width to which a column may be shortened."""


@dataclass(slots=True)
class Section:
    """A title, a sentence, and a table.

    Attributes:
        title: The heading.
        names: The columns' names; ``>`` before a column of numbers, ``~`` before one that may be shortened,
            ``_`` before a last column of sentences, which are continued below.
        rows: The cells.
        text: A sentence below the title.
    """

    title: str
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""


def shortened(text: str, width: int) -> str:
    """Shorten a text to a width by cutting its middle: names that begin alike often differ at their end.

    >>> shortened("a-long-topic-name-17", 12)
    'a-long…me-17'
    """
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}" if width > 1 else "…"


def print_sections(sections: Iterable[Section]) -> None:
    """Print sections to standard output; on a terminal with bold titles, and lines cut to its width."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    bold = terminal and "NO_COLOR" not in os.environ
    for number, section in enumerate(sections):
        print("\n" * (number > 0) + (click.style(section.title, bold=True) if bold else section.title))
        for line in lines_of(section, width):
            print(line)


def lines_of(section: Section, width: int | None) -> Iterator[str]:
    """Return the lines below a section's title."""
    if section.text:
        yield from _wrapped(section.text, width)
    if section.rows:
        yield from _table(section, width)


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [_INDENT + text]
    return textwrap.wrap(
        text, max(width, 20), initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _table(section: Section, width: int | None) -> Iterator[str]:
    names = [name.lstrip(">~_") for name in section.names]
    right = [name.startswith(">") for name in section.names]
    sizes = [max(map(len, column)) for column in zip(names, *section.rows, strict=True)]
    if width is not None:
        fixed = [0 if name.startswith("_") else size for name, size in zip(section.names, sizes, strict=True)]
        _fit(fixed, [name.startswith("~") for name in section.names], width - len(_INDENT) - 2 * (len(sizes) - 1))
        sizes = [size or sizes[number] for number, size in enumerate(fixed)]
    for row in (names, *section.rows):
        yield from _row(row, sizes, right, width)


def _fit(sizes: list[int], gives_way: Sequence[bool], width: int) -> None:
    """Narrow the columns that may be shortened until all fit, the widest first."""
    while sum(sizes) > width:
        widest = max(
            (size, number) for number, size in enumerate([s * g for s, g in zip(sizes, gives_way, strict=True)])
        )
        if widest[0] <= _SHORTEST:
            return
        sizes[widest[1]] -= 1


def _row(row: Sequence[str], sizes: Sequence[int], right: Sequence[bool], width: int | None) -> Iterator[str]:
    """Format a row; a last cell that does not fit is continued below, in its own column."""
    *cells, last = row
    parts = [
        (shortened(cell, size).rjust(size) if at_right else shortened(cell, size).ljust(size))
        for cell, size, at_right in zip(cells, sizes, right, strict=False)
    ]
    start = _INDENT + "".join(f"{part}  " for part in parts)
    last = shortened(last, sizes[-1]).rjust(sizes[-1]) if right[-1] else last
    if width is None or len(start) + len(last) <= width:
        yield (start + last).rstrip()
        return
    indent = start if width - len(start) >= 24 else _INDENT * 3
    pieces = textwrap.wrap(last, max(width - len(indent), 20), break_on_hyphens=False)
    if indent != start:
        yield start.rstrip()[:width]
        yield from (indent + piece for piece in pieces)
        return
    for number, piece in enumerate(pieces):
        yield (start if number == 0 else " " * len(start)) + piece
