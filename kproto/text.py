"""Text that peers, captures and files choose, made fit for terminals and logs."""

from __future__ import annotations

from typing import Final

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
