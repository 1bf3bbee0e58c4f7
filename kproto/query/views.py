"""Opens a DuckDB connection over tables: each stored and each derived table is a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from kproto.query.hints import explained_by_duckdb
from kproto.query.isr_requests import ISR_REQUESTS
from kproto.query.rollups import SESSION, broker_days
from kproto.tables.places import RemotePath, place_of
from kproto.tables.resolved import RESOLVED, changes_rows, resolved_reader
from kproto.tables.schemas import BROKER_DAYS, TABLES
from kproto.tables.stored import Reader, StoredTables, checked_run, reader_of, table_dataset
from kproto.verdicts.derived import VIEWS
from kproto.verdicts.found import facts_of_clusters

if TYPE_CHECKING:
    from kproto.tables.places import Place


def open_tables(
    tables: Place | str | Mapping[str, pa.Table],
    cluster: str | None = None,
    broker_ids: Mapping[tuple[str, int], int] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open tables for questions.

    Times are shown in UTC. The connection reads files while it is used; the caller closes it.

    Args:
        tables: The directory that ``kproto analyze`` wrote, or its URI; or Arrow tables as in ``kproto.tables.read``,
            to which ``isr_requests`` of the same captures may be added under this name.
        cluster: Only rows of this cluster; None: all.
        broker_ids: Broker ids of addresses, which no traffic has to tell.

    Returns:
        A connection with a view for each of ``kproto.tables.resolved.RESOLVED``, whose rows have their cluster, the
        common time and their broker, and for each of ``kproto.verdicts.derived.VIEWS``.

    Raises:
        ConfigurationError: There are no tables in that directory, or files of them are missing or damaged; or there is
            no such cluster.
    """
    run = tables if isinstance(tables, Mapping) else checked_run(place_of(tables))
    connection = duckdb.connect()
    try:
        with explained_by_duckdb():
            connection.execute(SESSION)
            read = resolved_reader(reader_of(run), cluster, broker_ids)
            as_stored = not changes_rows(read) and cluster is None
            for name, schema in RESOLVED.items():
                if as_stored and name in TABLES:
                    _open_table(connection, name, run[name] if isinstance(run, Mapping) else run)
                else:
                    connection.register(name, _Lazy(schema, partial(_whole, read, name, schema)))
            asked = run.get("isr_requests") if isinstance(run, Mapping) else None
            connection.register("isr_requests", ISR_REQUESTS.empty_table() if asked is None else asked)
            _make_views(connection, read)
            directory = None if isinstance(tables, Mapping) else place_of(tables)
            connection.register("broker_days", _Lazy(BROKER_DAYS, partial(_days, run, read, directory)))
    except BaseException:
        connection.close()
        raise
    return connection


def _open_table(connection: duckdb.DuckDBPyConnection, name: str, source: pa.Table | StoredTables) -> None:
    """Give the connection a table: one in memory, or that of a run."""
    if isinstance(source, pa.Table):
        connection.register(name, source)
    elif isinstance(source.run, RemotePath) or not source.files(name):
        # DuckDB itself would fetch an extension from the network for each store
        connection.register(name, table_dataset(source, name))
    else:
        files = ", ".join("'" + str(file).replace("'", "''") + "'" for file in source.files(name))
        columns = ", ".join(f'"{column}"' for column in TABLES[name].names)
        rows = f"read_parquet([{files}], hive_partitioning = true)"
        connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {rows}")  # noqa: S608  # our own names


class _Lazy:
    """A table that is computed when DuckDB first reads rows of it; later readers get the same rows."""

    def __init__(self, schema: pa.Schema, compute: Callable[[], pa.Table]) -> None:
        self._schema = schema
        self._compute = cache(compute)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._compute().to_batches()


def _whole(read: Reader, name: str, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *read(name, schema.names)])


def _days(run: StoredTables | Mapping[str, pa.Table], read: Reader, directory: Place | None) -> pa.Table:
    if isinstance(run, StoredTables):
        return broker_days(run, directory)
    names = ("requests", "responses", "partition_states")
    return broker_days({name: _whole(read, name, RESOLVED[name]) for name in names})


def _make_views(connection: duckdb.DuckDBPyConnection, read: Reader) -> None:
    """Give the connection the derived tables."""
    names = {name: name for name in (*TABLES, *VIEWS)}
    facts = cache(lambda: list(facts_of_clusters(read)))
    for name, derived in VIEWS.items():
        if derived.compute is not None:
            connection.register(name, _Lazy(derived.schema, partial(derived.compute, read)))
        elif derived.judge is not None:
            connection.register(name, _Lazy(derived.schema, partial(lambda judge: judge(facts()), derived.judge)))
        else:
            connection.execute(f"CREATE TEMP VIEW {name} AS {derived.sql.format_map(names)}")
