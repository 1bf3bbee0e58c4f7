"""The warning on standard error of inputs that could not be read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kproto.cli.text import counted
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def warn_of_bad_inputs(bad_inputs: Sequence[Mapping[str, Any]], listed: str) -> None:
    """Print one line that names the first bad input with its reason, and how many more there are; none, no line.

    Args:
        bad_inputs: Rows of the table ``bad_inputs``. Whole files come before pieces.
        listed: Where all of them are listed, for instance ``--format json lists all``.
    """
    if not bad_inputs:
        return
    first = min(bad_inputs, key=lambda bad: bad["offset"] is not None)
    text = f"{first['reason']}; skipped"
    if first["offset"] is not None:
        text = f"{first['file']}: {first['reason']}, at byte {first['offset']}; skipped"
    more = len(bad_inputs) - 1
    files = len({bad["file"] for bad in bad_inputs})
    others = f", with {counted(more, 'more bad input')} in {counted(files, 'file')}" if more else ""
    print(f"warning: {printable(text)}{others}; {listed}", file=sys.stderr)
