"""Rows of tables that hold log lines, as exports have them: each is a record by the names of its columns."""

from __future__ import annotations

import re
from typing import Final

from .times import whole_stamp

_CELLS: Final = {
    delimiter: re.compile(rb'(?:\A|%b)\s*+(?:"((?:[^"]++|"")*+)"|([^%b]*+))' % (2 * (re.escape(delimiter),)))
    for delimiter in (b",", b";", b"\t", b"|")
}
"""The cells of a row, in quotes or without them, by what divides them."""

_COLUMN: Final = re.compile(r"(?=[@_A-Za-z])(?: ?[\w@.\[\]()/-]{1,60}){1,3}")
_TIME_COLUMN: Final = re.compile(r"(?i)time|date|stamp|(?:^|_)(?:at|ts)(?![a-z])")
"""What the name of a column consists of, and what it holds if it is a time's."""

_DIGIT: Final = re.compile(rb"\d")

_LONGEST_HEAD: Final = 4000
MOST_TRIED: Final = 3
"""The most bytes of a line that names columns, and how many lines may stand before it."""


def holds_line(text: str) -> bool:
    """Whether a text holds a line that is read."""
    return any(mark in text for mark in ("Completed request:", "Broker ", "Controller ", "[Topic Deletion Manager "))


def columns_of(line: bytes) -> tuple[bytes, list[str]] | None:
    """What divides the cells of a table, and the names of its columns, if a line names them, a time's among them."""
    for delimiter in _CELLS if len(line) <= _LONGEST_HEAD else ():
        if delimiter == b"|" and line[:1] not in (b"|", b" "):
            break
        names = [cell.strip() for _, cell in _cells(line, delimiter)]
        if len(names) > 1 and all(map(_COLUMN.fullmatch, names)) and any(map(_TIME_COLUMN.search, names)):
            return delimiter, names
    return None


def _cells(row: bytes, delimiter: bytes) -> list[tuple[bool, str]]:
    """Each cell of a row, and whether it stands in quotes."""
    row = row.rstrip(b"\r\n")
    if delimiter == b"|":
        row = row.strip(b" |")
    return [
        (bool(quoted), (quoted.replace(b'""', b'"') or bare).decode("utf-8", "replace"))
        for quoted, bare in _CELLS[delimiter].findall(row)
    ]


class TableRows:
    """Tells the rows of a table, of which the first names the columns, or of a part of one where none does."""

    def __init__(self) -> None:
        self._delimiter = b""
        self._names: list[str] = []
        self._tried = 0
        self._in_quotes = False

    def may_have(self, line: bytes) -> bool:
        """Whether a line may be a row, as far as it is told in little time."""
        return bool(self._names) or self._tried < MOST_TRIED or line[:1] == b'"' or b"\t" in line

    def goes_on(self, line: bytes) -> bool:
        """Take the next line of a file; whether a cell of its row goes on in the line behind it."""
        self._in_quotes ^= bool(self._names) and line.count(b'"') % 2 == 1
        return self._in_quotes

    def record(self, row: bytes) -> dict[str, str] | None:
        """The cells of a row by their names, or by numbers; empty for the names themselves, None for other lines."""
        self._in_quotes = False
        if self._tried < MOST_TRIED or (self._names and not _DIGIT.search(row)):
            self._tried += 1
            found = columns_of(row)
            if found is not None:
                self._delimiter, self._names = found
                return {}
        if self._names:
            cells = [cell.strip() for _, cell in _cells(row, self._delimiter)]
            return dict(zip(self._names, cells, strict=True)) if len(cells) == len(self._names) else None
        delimiter = b"\t" if b"\t" in row else b","
        if delimiter == b"," and row[:1] != b'"':
            return None
        parts = _cells(row, delimiter)
        lines = [is_quoted for is_quoted, cell in parts if holds_line(cell)]
        if len(lines) != 1 or not (lines[0] or delimiter == b"\t") or not any(whole_stamp(cell) for _, cell in parts):
            return None
        return {str(number): cell for number, (_, cell) in enumerate(parts)}
