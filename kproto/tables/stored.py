"""Reads the tables that Spark wrote on disk, by pyarrow alone.

A directory of tables has a manifest, ``_kproto.json``, which names the subdirectory of the current tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kproto.errors import ConfigurationError
from kproto.tables.schemas import TABLES
from kproto.tables.summary import SUMMARY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MANIFEST", "SUMMARY", "current_run", "stored_pieces"]

MANIFEST: Final = "_kproto.json"

SUMMARY: Final = "summary.json"
"""The summary of a run, beside its tables."""

_BATCH_ROWS: Final = 1 << 18


def current_run(tables: Path) -> Path:
    """Return the directory that holds the current tables, a directory for each table.

    Args:
        tables: The directory that ``kproto analyze`` wrote.

    Raises:
        ConfigurationError: It has no manifest, or the manifest cannot be read.
    """
    try:
        run = json.loads((tables / MANIFEST).read_bytes())["run"]
        assert isinstance(run, str)
    except FileNotFoundError:
        raise ConfigurationError(f"{tables} has no tables; make them: kproto analyze CAPTURE --out {tables}") from None
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as e:
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto ({type(e).__name__}: {e})") from None
    return tables / run


def stored_pieces(run: Path) -> Iterator[dict[str, pa.Table]]:
    """Yield the tables of a run for ``summarize``: partition states in pieces, the others whole.

    Args:
        run: The directory in which the tables lie, see ``current_run``.
    """
    names = [name for name in SUMMARY_COLUMNS if name != "partition_states"]
    yield {name: _whole(run, name) for name in names}
    for file in sorted((run / "partition_states").rglob("*.parquet")):
        batches = pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=list(SUMMARY_COLUMNS["partition_states"]))
        for batch in batches:
            yield {"partition_states": pa.Table.from_batches([batch])}


def _whole(run: Path, name: str) -> pa.Table:
    columns = list(SUMMARY_COLUMNS[name])
    schema = pa.schema([TABLES[name].field(column) for column in columns])
    files = sorted((run / name).rglob("*.parquet"))
    parts = [pq.ParquetFile(file).read(columns=columns).cast(schema) for file in files]
    return pa.concat_tables(parts) if parts else schema.empty_table()
