"""Tables on disk, as Spark writes them, read by pyarrow alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kproto.tables.schemas import TABLES
from kproto.tables.summary import SUMMARY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["stored_pieces"]

_BATCH_ROWS: Final = 1 << 18


def stored_pieces(tables: Path) -> Iterator[dict[str, pa.Table]]:
    """The tables in a directory as ``summarize`` takes them: partition states in pieces, the others whole.

    Args:
        tables: The directory that ``kproto analyze`` wrote.
    """
    names = [name for name in SUMMARY_COLUMNS if name != "partition_states"]
    yield {name: _whole(tables, name) for name in names}
    for file in sorted((tables / "partition_states").rglob("*.parquet")):
        batches = pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=list(SUMMARY_COLUMNS["partition_states"]))
        for batch in batches:
            yield {"partition_states": pa.Table.from_batches([batch])}


def _whole(tables: Path, name: str) -> pa.Table:
    columns = list(SUMMARY_COLUMNS[name])
    schema = pa.schema([TABLES[name].field(column) for column in columns])
    files = sorted((tables / name).rglob("*.parquet"))
    parts = [pq.ParquetFile(file).read(columns=columns).cast(schema) for file in files]
    return pa.concat_tables(parts) if parts else schema.empty_table()
