"""Builds Arrow tables and record batches from rows, and gives rows of them.

Batches end by their bytes, since one frame can be larger than ten thousand others.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Rows = TypeVar("Rows", "pa.Table", "pa.RecordBatch")

_ROWS: Final = 1 << 16
"""The most rows of a table that are made of it at a time."""


def rows_of(table: pa.Table | pa.RecordBatch, names: Iterable[str] | None = None) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table as tuples of Python's values, in the order of the columns' names; None: all.

    Lists of int32, unless a null is in one, come as tuples. One object stands for equal texts, bytes and tuples that
    are near each other, and some rows are made at a time: who keeps those of a million requests keeps little twice.
    """
    chosen = table.schema.names if names is None else list(names)
    batches = table.to_batches(max_chunksize=_ROWS) if isinstance(table, pa.Table) else [table]
    return chain.from_iterable(zip(*[_values(batch.column(name)) for name in chosen], strict=True) for batch in batches)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column as ``rows_of`` gives them."""
    kind = column.type
    is_list = pa.types.is_list(kind) and kind.value_type == pa.int32() and not column.values.null_count
    if not (is_list or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        values: list[Any] = column.to_pylist()
        return values
    coded = (as_binary(column) if is_list else column).dictionary_encode()
    values = [*map(numbers_in, coded.dictionary.to_pylist())] if is_list else coded.dictionary.to_pylist()
    return [None if at is None else values[at] for at in coded.indices.to_pylist()]


def as_binary(lists: pa.Array) -> pa.Array:
    """Convert lists of int32 to the bytes of their items, which compare and hash faster than lists."""
    offsets = pc.multiply(lists.offsets, pa.scalar(4, pa.int32()))
    items = lists.values
    values = items.buffers()[1]
    start = items.offset * 4
    data = values.slice(start) if values else pa.py_buffer(b"")  # no items: perhaps a buffer without an address
    found = pa.Array.from_buffers(pa.binary(), len(lists), [None, offsets.buffers()[1], data])
    return pc.if_else(pc.is_valid(lists), found, None) if lists.null_count else found


def numbers_in(items: bytes) -> tuple[int, ...]:
    """Convert the bytes that ``as_binary`` makes of a list to its numbers."""
    return struct.unpack(f"={len(items) // 4}i", items)


BATCH_BYTES: Final = 8 << 20
"""Bytes of a full batch. Spark and Arrow work best with 4 to 16 MiB."""


class RowBuffer:
    """A buffer of rows for the next batch of a fixed schema."""

    def __init__(self, schema: pa.Schema, limit: int = BATCH_BYTES) -> None:
        self._schema = schema
        self._limit = limit
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._bytes = 0

    def add(self, row: tuple[Any, ...], size: int) -> None:
        """Add a row, in the schema's order, of about ``size`` bytes."""
        columns = self._columns
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} values in a batch of {len(columns)} columns")
        for at, value in enumerate(row):
            column = columns[at]
            column.append(value)
        self._bytes += size

    @property
    def full(self) -> bool:
        """Whether the batch is full."""
        return self._bytes >= self._limit

    def take(self) -> Iterator[pa.RecordBatch]:
        """Return the rows so far as a batch, or no batch, and start an empty one."""
        if self._columns[0]:
            arrays = [pa.array(c, f.type) for c, f in zip(self._columns, self._schema, strict=True)]
            self._columns = [[] for _ in self._schema]
            self._bytes = 0
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class TableBuilder:
    """Builds a table from rows that give some of its columns.

    The rows become Arrow columns piece by piece, so that many cost little more memory than the table.

    Args:
        schema: The table's schema.
        names: The columns that a row gives, in its order.
        same: Columns that are the same in all rows; the others are null.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str], same: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._same = same or {}
        self._given = pa.schema([schema.field(name) for name in names])
        self._rows = RowBuffer(self._given, _ROWS)
        self._pieces: list[pa.RecordBatch] = []

    def add(self, *row: Any) -> None:
        """Add a row, in the order of ``names``."""
        self._rows.add(row, 1)
        if self._rows.full:
            self._pieces += self._rows.take()

    def table(self) -> pa.Table:
        """Return the table of all rows."""
        self._pieces += self._rows.take()
        if not self._pieces:
            return self._schema.empty_table()  # with a chunk of each column: PySpark takes no column without one
        rows = pa.Table.from_batches(self._pieces, self._given)
        columns = [
            rows[each.name]
            if each.name in self._given.names
            else pa.repeat(pa.scalar(self._same.get(each.name), each.type), rows.num_rows)
            for each in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)


def table_of(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return the table of rows that give all columns in their order."""
    builder = TableBuilder(schema, schema.names)
    for row in rows:
        builder.add(*row)
    return builder.table()


def with_column(rows: Rows, name: str, values: Any) -> Rows:
    """Return rows with other values, of the same type, in a column."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def plain_text(text: str | None) -> str | None:
    """Make text valid for Arrow: a lone surrogate, which Java accepts, becomes a question mark."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def slices(batch: pa.RecordBatch, size: int, limit: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut a batch of about ``size`` bytes into pieces of about ``limit``, without a copy."""
    rows = max(1, batch.num_rows * limit // max(size, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
