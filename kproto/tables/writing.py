"""Writes tables as Parquet files in the task that has the rows, which never leave Python."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kproto.tables.places import arrow_path, make_new
from kproto.tables.schemas import KNOWN, METADATA_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.tables.places import Place

BY_BODY: Final = ("bodies", "partition_states")
"""Tables partitioned by the day on which the body was first sent, in the run that stored it."""

DATED: Final = (*(name for name, schema in TABLES.items() if "ts" in schema.names), *BY_BODY)
"""Tables partitioned by day: that of ``ts``, or of the body."""

_MOST_OPEN: Final = 64
"""The most files open at a time: a capture of many days has a file for each day."""

_UNIQUE: Final = ("frame_id", "response_frame_id", "exchange_id", "payload")
"""Columns whose values are too distinct for a dictionary."""


def file_schema(name: str) -> pa.Schema:
    """Return the columns of a table's files; the date stands in the name of the directory."""
    schema = (TABLES | METADATA_TABLES | KNOWN)[name]
    return schema.remove(schema.get_field_index("date")) if name in DATED and "date" in schema.names else schema


def write_table(path: Place, name: str, table: pa.Table) -> None:
    """Write rows of a table into one file."""
    with _writer(path, name) as writer:
        writer.write_table(table.select(writer.schema.names).cast(writer.schema))


def _writer(path: Place, name: str) -> pq.ParquetWriter:
    schema = file_schema(name)
    texts = [field.name for field in schema if _is_text(field.type) and field.name not in _UNIQUE]
    flow = ["flow.src_ip", "flow.dst_ip"] if "flow" in schema.names else []
    path.parent.mkdir(parents=True, exist_ok=True)
    make_new(path)
    where, files = arrow_path(path)
    return pq.ParquetWriter(where, schema, filesystem=files, compression="zstd", use_dictionary=[*texts, *flow])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class TableFiles:
    """Writes a task's rows into one file for each table and day.

    Args:
        directory: The directory of the files, used by this task alone.
        kind: The first part of the files' names. The files of one task have one more part in common, ``token_of``.

    Attributes:
        spans: The first and the last time (us) in each file with times.
    """

    def __init__(self, directory: Place, kind: str = "part") -> None:
        self.spans: dict[str, list[int]] = {}
        self._named = f"{kind}-{uuid.uuid4().hex}"
        self._directory = directory
        self._open: dict[tuple[str, str], tuple[str, pq.ParquetWriter]] = {}
        self._rows: dict[str, int] = {}

    def write(self, name: str, table: pa.Table, day: str = "") -> None:
        """Write rows of a table, and their day, where it is not that of ``ts``."""
        if not table.num_rows:
            return
        for of_day, rows in days_of(table) if name in DATED and "ts" in table.column_names else [(day, table)]:
            path, writer = self._file(name, of_day)
            writer.write_table(rows.select(writer.schema.names))
            self._rows[path] += rows.num_rows
            if "ts" in rows.column_names:
                self.spans[path] = span_of(rows, self.spans.get(path))

    def close(self) -> dict[str, int]:
        """Close the files; return the number of rows of each by its path below the directory."""
        while self._open:
            self._open.popitem()[1][1].close()
        return self._rows

    def _file(self, name: str, day: str) -> tuple[str, pq.ParquetWriter]:
        key = name, day
        found = self._open.pop(key, None)
        if found is None:
            if len(self._open) >= _MOST_OPEN:
                oldest = next(iter(self._open))
                self._open.pop(oldest)[1].close()
            path = "/".join((name, *([f"date={day}"] if day else []), f"{self._named}-{len(self._rows)}.zstd.parquet"))
            self._rows[path] = 0
            found = path, _writer(self._directory / path, name)
        self._open[key] = found
        return found


def kind_of(file: str) -> str:
    """Return the first part of a file's name."""
    return file.rpartition("/")[2].partition("-")[0]


def token_of(file: str) -> str:
    """Return what the files of one task have in common in their names, behind the first part."""
    return file.rpartition("/")[2].partition(".")[0].partition("-")[2].partition("-")[0]


def span_of(rows: pa.Table, known: list[int] | None = None) -> list[int]:
    """Return the first and the last time (us) of rows, and of those before them."""
    found = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
    first, last = found["min"] or 0, found["max"] or 0
    return [first, last] if known is None else [min(first, known[0]), max(last, known[1])]


def days_of(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each day of ``ts``, and the day as text."""
    days = table["ts"].cast(pa.date32())
    different = pc.unique(days)
    for day, text in zip(different, different.cast(pa.string()).to_pylist(), strict=True):
        yield text, table if len(different) == 1 else table.filter(pc.equal(days, day))
