"""Text that peers, captures and files choose, made fit for terminals and logs."""

from __future__ import annotations

import difflib
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_TEXT: Final = 2_000
"""The longest text that is shown, in characters."""


def printable(text: str | None, limit: int = LONGEST_TEXT) -> str:
    """Return a text as one line of printable characters, of at most ``limit``.

    A text with other characters is escaped: those that control a terminal, change the direction of writing, end a line
    or have no glyph. A longer one is cut off, and ends in three dots.

    >>> printable("orders"), printable("\\x1b[2J"), printable(None)
    ('orders', '\\\\x1b[2J', 'null')
    """
    if text is None:
        return "null"
    if len(text) <= limit and text.isprintable():
        return text
    shown = text[: limit + 1]  # what follows is cut off in any case
    if not shown.isprintable():
        shown = shown.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def pasted(words: Iterable[str]) -> str:
    """Return words as a command line to paste into a shell; what could control a terminal is written as its bytes.

    >>> pasted(["kproto", "query", "a b.pcap"]), pasted(["\\x1b[2J"])
    ("kproto query 'a b.pcap'", "$'\\\\x1b[2J'")
    """
    return " ".join(shlex.quote(word) if word.isprintable() else _escaped(word) for word in words)


def _escaped(word: str) -> str:
    def shown(c: str) -> str:
        if c.isprintable() and c not in "\\'":
            return c
        return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))

    return f"$'{''.join(map(shown, word))}'"


def from_here(text: str) -> str:
    """Return a text that begins with a path as it is seen from the working directory, where the path lies below it."""
    with suppress(FileNotFoundError):  # the directory was removed
        return text.removeprefix(f"{Path.cwd()}/")
    return text


def csv_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula: such a text gets an apostrophe before it.

    >>> csv_cell("=1+1"), csv_cell("-orders"), csv_cell("-1"), csv_cell("@a")
    ("'=1+1", '-orders', '-1', "'@a")
    """
    if text[:1] in ("=", "+", "@", "\t", "\r") or (text[:1] == "-" and not re.fullmatch(r"[-.\w]+", text, re.ASCII)):
        return f"'{text}"
    return text


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "byte"), counted(2_000, "byte"), counted(2, "entry")
    ('1 byte', '2,000 bytes', '2 entries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers in order, as ranges.

    >>> ranges([4, 1, 2, 0, 7])
    '0-2,4,7'
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def there(known: Sequence[str]) -> str:
    """Say what is there, where something else was asked for.

    >>> there([]), there(["0"]), there(["a", "b", "c", "d"])
    ('there is none', 'there is 0', 'there are a, b, c and 1 more')
    """
    more = f" and {len(known) - 3:,} more" if len(known) > 3 else ""
    return f"there {'is' if len(known) < 2 else 'are'} {', '.join(known[:3]) or 'none'}{more}"


def meant(word: str, words: Iterable[str], otherwise: str | None = None) -> str:
    """Return what to try in place of a word: those that look alike, whatever their case, else another text, or all.

    >>> meant("Leadr", ["leader", "offline"]), meant("who", ["leader", "offline"])
    ('did you mean leader?', 'try leader, offline')
    """
    some = {each.lower(): each for each in words}
    alike = [some[each] for each in difflib.get_close_matches(word.lower(), some, 2)]
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    return f"try {', '.join(some.values())}" if otherwise is None else otherwise
