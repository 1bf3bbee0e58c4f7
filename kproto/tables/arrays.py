"""Builds Arrow columns from lists without ``pyarrow.array``, which imports pandas where that is installed.

That import takes longer than reading a capture of some ten megabytes.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["array_of"]

_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Codes of ``array.array`` by bytes of a value."""


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column.

    Args:
        values: Integers, booleans, text, bytes, lists, or dictionaries of a struct's fields; None for null.
        kind: The column's type. Times are integers in the type's unit.
    """
    count = len(values)
    missing = values.count(None)
    if missing == count:
        return pa.nulls(count, kind)
    validity = _bits([value is not None for value in values]) if missing else None
    if pa.types.is_struct(kind):
        fields = [
            array_of([None if value is None else value.get(field.name) for value in values], field.type)
            for field in kind
        ]
        return pa.Array.from_buffers(kind, count, [validity], missing, children=fields)
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values] if missing else values
        elements = array_of(list(chain.from_iterable(lists)), kind.value_type)
        return pa.Array.from_buffers(kind, count, [validity, _offsets(lists)], missing, children=[elements])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [validity, _bits([bool(value) for value in values])], missing)
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


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """The bitmap of some booleans, the first one lowest."""
    number = int("".join("1" if value else "0" for value in reversed(values)), 2)
    return pa.py_buffer(number.to_bytes((len(values) + 7) // 8, "little"))
