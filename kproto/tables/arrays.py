"""Builds Arrow columns from lists without ``pyarrow.array``, which imports pandas where that is installed.

That import takes longer than reading a capture of some ten megabytes.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["array_of", "rows_of"]

_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Codes of ``array.array`` by bytes of a value."""

_MOST_BYTES: Final = (1 << 31) - 1
"""The most bytes of text, and items of lists, in a column, whose offsets have 32 bits."""


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column.

    Args:
        values: Integers, booleans, text, bytes, lists, or dictionaries of a struct's fields; None for null.
        kind: The column's type. Times are integers in the type's unit.
    """
    count = len(values)
    missing = _missing(values)
    if missing == count:
        return pa.nulls(count, kind)
    validity = _bits([value is not None for value in values]) if missing else None
    if pa.types.is_struct(kind):
        fields = [_field(values, field) for field in kind]
        return pa.Array.from_buffers(kind, count, [validity], missing, children=fields)
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values] if missing else values
        elements = array_of(list(chain.from_iterable(lists)), kind.value_type)
        return pa.Array.from_buffers(kind, count, [validity, _offsets(lists)], missing, children=[elements])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [validity, _bits(values)], missing)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if pa.types.is_string(kind):
            pieces: Sequence[bytes] = [value.encode() if value else b"" for value in values]
        else:
            pieces = [value or b"" for value in values] if missing else values
        data = pa.py_buffer(b"".join(pieces))
        return pa.Array.from_buffers(kind, count, [validity, _offsets(pieces), data], missing)
    code = "d" if pa.types.is_floating(kind) else _CODES[kind.bit_width // 8]
    numbers = array(code, [value or 0 for value in values] if missing else values)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(numbers)], missing)


def rows_of(table: pa.Table | pa.RecordBatch, names: Iterable[str] | None = None) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table as tuples of Python's values.

    Args:
        table: The table.
        names: The columns, in the order of the tuples; None: all.
    """
    columns = table.columns if names is None else [table.column(name) for name in names]
    return zip(*[column.to_pylist() for column in columns], strict=True)


def _field(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Make the column of a struct's field."""
    name = field.name
    return array_of([None if value is None else value.get(name) for value in values], field.type)


def _missing(values: Sequence[Any]) -> int:
    """Count the nulls."""
    missing = 0
    for value in values:
        if value is None:
            missing += 1
    return missing


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    """Where each value ends among all, behind a 0."""
    offsets = array("i", bytes(4 * len(values) + 4))
    view = memoryview(offsets)
    end = 0
    for at, value in enumerate(values, 1):
        end += len(value)
        if end > _MOST_BYTES:
            raise OverflowError(f"a column's values are longer than {_MOST_BYTES} together")
        view[at] = end
    return pa.py_buffer(offsets)


def _bits(values: Sequence[Any]) -> pa.Buffer:
    """The bitmap of some truth values, the first one lowest."""
    bits = bytearray((len(values) + 7) // 8)
    for at, value in enumerate(values):
        if value:
            bits[at >> 3] |= 1 << (at & 7)
    return pa.py_buffer(bits)
