"""Prints titled tables of text: unshortened in a pipe, fitted to a terminal without breaking words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import click

from kproto.cli.text import is_styled, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_INDENT: Final = "  "
_SHORTEST: Final = 12
"""The least width to which a column may be shortened."""

_READABLE: Final = 24
"""Columns become narrower than this only after columns with one value in every row have moved above the table."""

_SENTENCE: Final = 24
"""The least width of a column of sentences; where there is less room they stand below their row."""

_LONGEST_NAME: Final = 40
"""In a pipe a column is padded to this width at most, so that one long name does not pad every row."""


@dataclass(slots=True)
class Section:
    """A title, a sentence, and a table.

    Attributes:
        title: The heading.
        names: The columns' names; ``>`` before a column of numbers, ``~`` before one that may be shortened,
            ``_`` before a last column of sentences, which are continued below.
        rows: The cells.
        text: A sentence below the title.
        below: A line below the table.
    """

    title: str
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""
    below: str = ""


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
    width, bold = terminal_width(), is_styled()
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
    if section.below:
        yield from _wrapped(section.below, width)


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [_INDENT + text]
    return textwrap.wrap(
        text, max(width, 20), initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _table(section: Section, width: int | None) -> Iterator[str]:
    columns = [_Column(name, cells) for name, *cells in zip(section.names, *section.rows, strict=True)]
    if width is None:
        sizes = [column.size if column.right else min(column.size, _LONGEST_NAME) for column in columns]
        yield _line([column.name for column in columns], sizes, columns)
        yield from (_line(row, sizes, columns) for row in section.rows)
        return
    room = width - len(_INDENT)
    if _needed(columns, _READABLE) > room and len(section.rows) > 1:
        alike = [column for column in columns if not column.sentence and len(set(column.cells)) == 1]
        if alike and len(alike) < len(columns):
            yield from _wrapped(
                "in every row: " + ", ".join(f"{c.name} {shortened(c.cells[0], _LONGEST_NAME)}" for c in alike), width
            )
            columns = [column for column in columns if column not in alike]
    left_out: list[str] = []
    while _needed(columns, _SHORTEST) > room and len(columns) > 2:
        left_out.insert(0, columns.pop().name)
    sizes = _fitted(columns, room)
    for heading in zip_longest(*(column.heading for column in columns), fillvalue=""):
        yield _line(heading, sizes, columns)
    for row in zip(*(column.cells for column in columns), strict=True):
        yield from _folded(row, sizes, columns, width)
    if left_out:
        yield from _wrapped(f"no room for {', '.join(left_out)}: a wider terminal or a pipe shows all", width)


class _Column:
    """A column: its name, its cells, and how it may be narrowed."""

    def __init__(self, name: str, cells: Sequence[str]) -> None:
        self.name = name.lstrip(">~_")
        self.cells = cells
        self.right = name.startswith(">")
        self.gives_way = name.startswith("~")
        self.sentence = name.startswith("_")
        self.size = max(map(len, (self.name, *cells)))
        self.heading = self.name.replace("_", " ").split() if "_" in self.name else [self.name]
        self.folded = max(map(len, (*self.heading, *cells)))

    def least(self, shortest: int) -> int:
        """The width that it needs with its heading on several lines, cut to a width if it gives way."""
        if self.sentence:
            return min(self.folded, _SENTENCE)
        return min(self.folded, shortest) if self.gives_way else self.folded


def _needed(columns: Sequence[_Column], shortest: int) -> int:
    """Return the room that columns need, with headings folded and columns that give way cut to a width."""
    return sum(column.least(shortest) for column in columns) + 2 * (len(columns) - 1)


def _fitted(columns: Sequence[_Column], room: int) -> list[int]:
    """Return the columns' widths: headings are folded first, then columns shortened, the widest first."""
    room -= 2 * (len(columns) - 1)
    sizes = [min(column.size, _SENTENCE) if column.sentence else column.size for column in columns]
    if sum(sizes) > room:
        sizes = [column.least(column.folded) for column in columns]
    while sum(sizes) > room:
        size, number = max((sizes[n] * column.gives_way, n) for n, column in enumerate(columns))
        if size <= _SHORTEST:
            break
        sizes[number] -= 1
    return sizes


def _line(row: Sequence[str], sizes: Sequence[int], columns: Sequence[_Column]) -> str:
    """Format a row; a cell beyond its column's width shifts this row alone."""
    cells = (
        cell.rjust(size) if column.right else cell.ljust(size)
        for cell, size, column in zip(row, sizes, columns, strict=True)
    )
    return (_INDENT + "  ".join(cells)).rstrip()


def _folded(row: Sequence[str], sizes: Sequence[int], columns: Sequence[_Column], width: int) -> Iterator[str]:
    """Format a row for a terminal: long cells are shortened, a last sentence is continued below, in its own column."""
    *cells, last = row
    shown = [shortened(cell, size) for cell, size in zip(cells, sizes, strict=False)]
    if not columns[-1].sentence:
        yield _line([*shown, shortened(last, sizes[-1])], sizes, columns)
        return
    start = _line([*shown, "|"], sizes, columns)[:-1]
    indent = " " * len(start) if width - len(start) >= _SENTENCE else _INDENT * 3
    pieces = textwrap.wrap(last, max(width - len(indent), 20), break_on_hyphens=False) or [""]
    if len(start) + len(last) <= width:
        yield (start + last).rstrip()
    elif len(indent) == len(start):
        yield (start + pieces[0]).rstrip()
        yield from (indent + piece for piece in pieces[1:])
    else:
        yield start.rstrip()[:width]
        yield from (indent + piece for piece in pieces)
