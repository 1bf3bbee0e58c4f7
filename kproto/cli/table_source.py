"""Opens the tables that ``kproto query`` and ``kproto report`` read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kproto.cli.footer import saying_zone, warn_of_bad_inputs
from kproto.errors import ConfigurationError
from kproto.tables.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pyarrow as pa

    from kproto.cli.times import Span
    from kproto.tables.places import Place


def tables_of(sources: Sequence[Place], filters: Filters) -> Place | dict[str, pa.Table]:
    """Return the directory of tables, or the tables of captures, in memory.

    Args:
        sources: One directory that ``kproto analyze`` wrote, or captures: files, directories of them, patterns, or -
            for standard input.
        filters: How captures are read: listeners, given brokers, and what logs do not say.

    Raises:
        ConfigurationError: There are no tables in a directory; or a directory of tables is among others.
        CaptureError: See ``kproto.tables.read``.
    """
    from kproto.tables import read

    place = tables_in(sources)
    if place is not None:
        return place
    how = Filters(ports=filters.ports, broker_ids=filters.broker_ids, logs=filters.logs)
    (tables,) = saying_zone([read(*map(str, sources), filters=how)])
    warn_of_bad_inputs(tables["bad_inputs"].to_pylist(), "all stand in the table bad_inputs")
    return tables


def tables_in(sources: Sequence[Place]) -> Place | None:
    """Return the directory of tables that the sources name; None: they are captures.

    Raises:
        ConfigurationError: A directory of tables is among others.
    """
    from kproto.tables.places import MANIFEST

    if len(sources) == 1 and _holds_tables(sources[0]):
        return sources[0]
    for source in sources:
        if isinstance(source, Path) and (source / MANIFEST).exists():
            raise ConfigurationError(f"{source} is a directory of tables; name it alone, or name captures alone")
    return None


def _holds_tables(source: Place) -> bool:
    """Whether a place holds tables rather than captures, or holds neither, which opening the tables explains."""
    from kproto.tables.files import is_pattern
    from kproto.tables.places import MANIFEST, RemotePath, explained_at

    if str(source) == "-":
        return False
    with explained_at(source):
        if isinstance(source, RemotePath):
            return not source.is_file() and not is_pattern(str(source))
        if not source.is_dir():
            return not source.exists() and not is_pattern(str(source))
    from kproto.capture.capture_points import captures_in, deeper_folders
    from kproto.metadata_log.finding import find

    try:
        return (source / MANIFEST).exists() or not (captures_in(source) or find([source])[0] or deeper_folders(source))
    except PermissionError as e:
        e.filename = str(source)  # of the manifest nobody knows
        raise


def span_of_tables(tables: duckdb.DuckDBPyConnection) -> Span:
    """Return when the captures of tables begin and end."""
    sql = "SELECT epoch_us(min(first_ts)), epoch_us(max(last_ts)) FROM captures"
    begin_us, end_us = tables.execute(sql).fetchone() or (None, None)
    return 1000 * (begin_us or 0), 1000 * (end_us or 0) + 999
