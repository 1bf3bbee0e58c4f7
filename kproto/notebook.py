"""How messages, findings and tables look in a notebook: HTML tables, the first rows of each list.

Messages and findings show themselves. Arrow tables do after ``%load_ext kproto.notebook``.
"""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from .text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROWS: Final = 20
"""Rows that are shown of one table."""


def table_html(names: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """Return an HTML table of the first rows; below it the number of those left out. Every text is escaped.

    Args:
        names: The columns.
        rows: Their values; only the first are taken.
        count: The number of rows.
    """
    rows = islice(rows, _ROWS)
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    more = f"<p>{count - _ROWS:,} more rows</p>" if count > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def message_html(message: Any) -> str:
    """Return the HTML of a message or struct of either codec: its fields, then a table for each list of structs."""
    plain, lists = [], []
    for name in _names(message):
        value = getattr(message, name)
        if isinstance(value, (list, tuple)) and value and _names(value[0]):
            lists.append((name, value))
        elif name != "unknown_tagged_fields" or value:
            plain.append((name, value))
    parts = [f"<b>{type(message).__name__}</b>"]
    if plain:
        parts.append(table_html([name for name, _ in plain], [[value for _, value in plain]], 1))
    for name, value in lists:
        names = [n for n in _names(value[0]) if n != "unknown_tagged_fields"]
        rows = ([getattr(item, n) for n in names] for item in value)
        parts.append(f"<p>{escape(name)}</p>{table_html(names, rows, len(value))}")
    return "".join(parts)


def arrow_html(table: Any) -> str:
    """Return the HTML of an Arrow table's first rows."""
    rows = (row.values() for row in table.slice(0, _ROWS).to_pylist())
    return table_html(table.column_names, (list(row) for row in rows), table.num_rows)


def load_ipython_extension(shell: Any) -> None:
    """Let a notebook show Arrow tables; IPython calls it at ``%load_ext kproto.notebook``."""
    shell.display_formatter.formatters["text/html"].for_type_by_name("pyarrow.lib", "Table", arrow_html)


def _names(value: object) -> Sequence[str]:
    """The names of a struct's fields, in order; empty for what is no struct."""
    if fields := getattr(value, "_fields", None):  # of the compiled codec
        return tuple(fields)
    return tuple(getattr(getattr(value, "fields", None), "all", ()))


def _cell(value: object) -> str:
    if isinstance(value, (list, tuple)):
        shown = ", ".join(repr(item) if _names(item) else str(item) for item in value[:_ROWS])
        value = f"{shown}, … ({len(value)})" if len(value) > _ROWS else shown
    elif isinstance(value, bytes):
        value = value.hex()
    return escape(printable("" if value is None else str(value)))
