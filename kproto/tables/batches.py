"""Gathers rows into record batches by their bytes, since one frame can be larger than ten thousand others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.tables.arrays import array_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BATCH_BYTES", "RowBuffer", "plain_text", "slices"]

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
            arrays = [array_of(c, f.type) for c, f in zip(self._columns, self._schema, strict=True)]
            self._columns = [[] for _ in self._schema]
            self._bytes = 0
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def plain_text(text: str | None) -> str | None:
    """Make text valid for Arrow: a lone surrogate, which Java accepts, becomes a question mark."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def slices(batch: pa.RecordBatch, size: int, limit: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut a batch of about ``size`` bytes into pieces of about ``limit``, without a copy."""
    rows = max(1, batch.num_rows * limit // max(size, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
