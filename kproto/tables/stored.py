"""Reads the tables that ``kproto analyze`` stored, by pyarrow alone.

A directory of tables has a manifest, ``_kproto.json``, which names the subdirectory of the current tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kproto.errors import ConfigurationError
from kproto.tables.files import explained
from kproto.tables.places import Place, RemotePath, arrow_path
from kproto.tables.schemas import TABLES
from kproto.tables.writing import file_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "MANIFEST",
    "RUNS",
    "SUMMARY",
    "Reader",
    "checked_run",
    "current_run",
    "read_parquet",
    "reader_of",
    "stored_pieces",
    "table_dataset",
    "table_files",
]

MANIFEST: Final = "_kproto.json"

RUNS: Final = "kproto-runs"
"""The directory of the runs' directories."""

SUMMARY: Final = "summary.json"
"""The summary of a run, beside its tables."""

_BATCH_ROWS: Final = 1 << 18


def current_run(tables: Place) -> Place:
    """Return the directory that holds the current tables, a directory for each table.

    Args:
        tables: The directory that ``kproto analyze`` wrote.

    Raises:
        ConfigurationError: It has no manifest, or the manifest cannot be read.
    """
    run: Place = tables / _facts(tables)["run"]
    return run


def checked_run(tables: Place) -> Place:
    """Return ``current_run`` if the tables on this machine's file systems are as they were written.

    The footers of the Parquet files are read. Tables in an object store are not checked: each footer costs a request.

    Raises:
        ConfigurationError: As of ``current_run``; or a file is missing, damaged, or of another format.
    """
    facts = _facts(tables)
    run: Place = tables / facts["run"]
    if isinstance(run, RemotePath):
        return run
    if not isinstance(facts.get("tables"), dict):
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto (it names no tables)")
    again = f"make the tables again: kproto analyze CAPTURE --out {tables} --overwrite"
    for name in TABLES:
        rows = 0
        for file in table_files(run / name):
            try:
                footer = pq.read_metadata(str(file))
            except (pa.ArrowException, OSError) as e:
                raise ConfigurationError(f"{file} cannot be read ({str(e).splitlines()[0]}); {again}") from None
            missing = set(file_schema(name).names) - set(footer.schema.to_arrow_schema().names)
            if missing:
                raise ConfigurationError(
                    f"{file} has no column {min(missing)}: another version or program wrote it; {again}"
                )
            rows += footer.num_rows
        written = facts["tables"].get(name, rows)
        if rows != written:
            raise ConfigurationError(
                f"{run / name} has {rows} rows, where {written} were written: files are missing or new; {again}"
            )
    return run


def _facts(tables: Place) -> dict[str, Any]:
    """Return the manifest."""
    try:
        facts = json.loads(_manifest(tables).read_bytes())
        assert isinstance(facts["run"], str)
    except FileNotFoundError:
        raise ConfigurationError(_no_tables(tables)) from None
    except (ValueError, TypeError, KeyError, AssertionError) as e:
        if isinstance(e, ConfigurationError):
            raise
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto ({type(e).__name__}: {e})") from None
    except OSError:
        with explained(tables / MANIFEST):
            raise
    assert isinstance(facts, dict)
    return facts


def _no_tables(place: Place) -> str:
    """Tell what a place without a manifest lacks, and how to make tables."""
    if isinstance(place, RemotePath):
        return f"{place} has no tables; make them: kproto analyze CAPTURE --out {place}"
    if not place.exists():
        return (
            f"{place}: no such file or directory; check the path, or make tables: kproto analyze CAPTURE --out {place}"
        )
    if any(place.iterdir()):
        return f"{place} has no tables; make them: kproto analyze CAPTURE --out DIR (if captures lie there, of {place})"
    return f"{place} has no tables; make them: kproto analyze CAPTURE --out {place}"


def _manifest(tables: Place) -> Place:
    """Return the manifest; that of the newest complete run where a killed run had just deleted it to rename its own."""
    manifest = tables / MANIFEST
    if isinstance(manifest, RemotePath) and not manifest.is_stored_whole and not manifest.is_file():
        complete = [run / MANIFEST for run in (tables / RUNS).iterdir() if (run / MANIFEST).is_file()]
        return max(complete, key=str, default=manifest)
    return manifest


def stored_pieces(run: Place, columns: Mapping[str, Sequence[str]]) -> Iterator[dict[str, pa.Table]]:
    """Yield the tables of a run: partition states in pieces, the others whole.

    Args:
        run: The directory in which the tables lie, see ``current_run``.
        columns: The columns to read, by table.
    """
    yield {name: _whole(run, name, columns[name]) for name in columns if name != "partition_states"}
    for file in table_files(run / "partition_states"):
        with _opened(file) as opened:
            for batch in opened.iter_batches(_BATCH_ROWS, columns=list(columns["partition_states"])):
                yield {"partition_states": pa.Table.from_batches([batch])}


def table_files(table: Place) -> list[Place]:
    """Return the Parquet files below a directory, in the order of their names."""
    return sorted(table.rglob("*.parquet"), key=str)


def table_dataset(run: Place, name: str) -> pa.dataset.Dataset:
    """Return a table of a run as a dataset, of which readers fetch the columns and rows they need."""
    from pyarrow import dataset

    path, files = arrow_path(run / name)
    return dataset.dataset(path, TABLES[name], "parquet", filesystem=files, partitioning="hive")


Reader = Callable[[str, Sequence[str]], "Iterable[pa.Table]"]
"""Reads columns of a stored table by their names, in pieces."""


def reader_of(source: Place | Mapping[str, pa.Table]) -> Reader:
    """Return what reads the tables of a run, or tables in memory."""

    def read(name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        if isinstance(source, Mapping):
            yield source[name].select(columns)
            return
        for batch in table_dataset(source, name).to_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])

    return read


def read_parquet(file: Place) -> pa.Table:
    """Return the rows of a Parquet file, or of a directory of them."""
    path, files = arrow_path(file)
    return pq.read_table(path, filesystem=files)


def _opened(file: Place) -> pq.ParquetFile:
    path, files = arrow_path(file)
    return pq.ParquetFile(path, filesystem=files)


def _whole(run: Place, name: str, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([TABLES[name].field(column) for column in columns])
    parts = []
    for file in table_files(run / name):
        with _opened(file) as opened:
            parts.append(opened.read(columns=list(columns)).cast(schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()
