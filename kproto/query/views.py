"""Opens a DuckDB connection over tables: each stored and each derived table is a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import duckdb

from kproto.tables.derived import VIEWS
from kproto.tables.places import RemotePath, place_of
from kproto.tables.schemas import TABLES
from kproto.tables.stored import current_run, table_dataset

if TYPE_CHECKING:
    import pyarrow as pa

    from kproto.tables.places import Place

__all__ = ["open_tables"]

_SPARK_FUNCTIONS: Final = """
    CREATE MACRO array_except(a, b) AS [x for x in a if not list_contains(b, x)];
    CREATE MACRO collect_set(x) AS list(DISTINCT x);
    CREATE MACRO size(a) AS len(a);
    CREATE MACRO timestamp_micros(n) AS make_timestamptz(n);
    CREATE MACRO unix_micros(t) AS epoch_us(t);
"""
"""Defines the functions that the derived tables' SQL calls by Spark's names."""


def open_tables(tables: Place | str | Mapping[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """Open tables for questions.

    Times are shown in UTC. The connection reads files while it is used; the caller closes it.

    Args:
        tables: The directory that ``kproto analyze`` wrote, or its URI; or Arrow tables as of ``kproto.tables.read``.

    Returns:
        A connection with a view for each of ``kproto.tables.TABLES`` and ``kproto.tables.derived.VIEWS``.

    Raises:
        ConfigurationError: There are no tables in that directory.
    """
    run = None if isinstance(tables, Mapping) else current_run(place_of(tables))
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(_SPARK_FUNCTIONS)
        for name, schema in TABLES.items():
            if isinstance(tables, Mapping):
                connection.register(name, tables[name])
                continue
            assert run is not None
            if isinstance(run, RemotePath):  # DuckDB itself would fetch an extension from the network for each store
                connection.register(name, table_dataset(run, name))
                continue
            files = str(run / name / "**" / "*.parquet").replace("'", "''")
            columns = ", ".join(f'"{column}"' for column in schema.names)
            source = f"read_parquet('{files}', hive_partitioning = true)"
            connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {source}")  # noqa: S608  # our own names
        names = {name: name for name in (*TABLES, *VIEWS)}
        for name, derived in VIEWS.items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {derived.sql.format_map(names)}")
    except BaseException:
        connection.close()
        raise
    return connection
