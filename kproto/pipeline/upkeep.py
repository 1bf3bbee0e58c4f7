"""Keeps stored tables for years: old days expire, small files are joined.

Each of these writes the directory of a new run, in which files that stay are links (copies, in a store), and makes it
the current one by the rename of the manifest. Whatever ends it before leaves the former tables; readers of these may
finish, since they are removed when the next run begins.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.pipeline.changed import ChangedTables
from kproto.pipeline.settling import JOINED
from kproto.tables.files import file_size
from kproto.tables.known import KnownTable
from kproto.tables.places import RemotePath, at_store, make_new, require_no_link
from kproto.tables.schemas import KNOWN
from kproto.tables.stored import StoredTables, current_tables, opened_parquet, read_parquet, whole_table
from kproto.tables.writing import BY_BODY, kind_of

if TYPE_CHECKING:
    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.places import Place

_STILL_GOES_ON_NS: Final = 86_400 * 1_000_000_000
"""A connection may go on behind so long a silence."""

_COMPACT_BYTES: Final = 64 << 20
"""Files of one table and day are joined until they have about this number of bytes."""


def _publish(out: OutputDirectory, new: ChangedTables, **changes: Any) -> None:
    """Make changed tables those of a new run, with changes in the manifest beside the files."""
    former, run = new.tables.run, out.run
    links = {name for name in new.beside if (former / name).exists()} | (
        new.tables.rows.keys() - new.tables.moves.keys()
    )
    for folder in {(run / file).parent for file in links}:
        folder.mkdir(parents=True, exist_ok=True)
    at_store(lambda file: _link(former / file, run / file), links)
    new.publish(out, run, **changes)


def _link(file: Place, place: Place) -> None:
    if isinstance(file, RemotePath) and isinstance(place, RemotePath):
        files, path = file.arrow()
        files.copy_file(path, place.arrow()[1])
        return
    assert isinstance(file, Path)
    assert isinstance(place, Path)
    require_no_link(file, file.parent)
    try:
        os.link(file, place)
    except OSError:
        make_new(place)
        shutil.copyfile(file, place)


def expire(out: OutputDirectory, before: datetime) -> dict[str, int]:
    """Remove the rows of days before a moment's day (UTC).

    Bodies and their states go with the last request that has them, and what is known of a connection that went on last
    more than a day before the moment's day. A capture keeps its place among the captures that were read, so that it is
    not read again.

    Returns:
        The rows removed, by table.

    Raises:
        ConfigurationError: There are no tables, or they cannot be written.
    """
    day = before.astimezone(UTC).date().isoformat()
    stored = current_tables(out.path)
    with out.writing():
        stored = current_tables(out.path)
        new = ChangedTables(stored, out.run, out.run)
        for file in stored.rows:
            if "" < _day(file) < day and file.partition("/")[0] not in BY_BODY:
                new.drop(file)
        asked = [new.distinct("requests", name) for name in ("frame_id", "response_frame_id")]
        for file in [file for name in ("responses", "partition_errors", "frames") for file in new.tables.paths(name)]:
            if _day(file) == day:  # some answer requests of the day before
                new.narrow(file, "frame_id", partial(pc.is_in, value_set=pa.concat_arrays(asked)))
        new.forget_bodies()
        listed = new.distinct("requests", "live_brokers_id")
        for file in stored.paths("live_brokers"):
            new.narrow(file, "live_brokers_id", partial(pc.is_in, value_set=listed))
        midnight = pa.scalar(datetime.fromisoformat(f"{day}T00:00:00+00:00"), pa.timestamp("us", "UTC"))
        for file in stored.paths("captures"):
            new.narrow(file, "last_ts", lambda ts: pc.fill_null(pc.greater_equal(ts, midnight), True))
        files, left = (
            set(whole_table(tables, "captures", ["file"])["file"].to_pylist()) for tables in (stored, new.tables)
        )
        gone = pa.array(list(files - left), pa.string())
        for file in stored.paths("bad_inputs"):
            new.narrow(file, "file", lambda names: pc.invert(pc.is_in(names, value_set=gone)))
        borders = KnownTable(stored, "known_borders").all()
        seen_ns = int(midnight.value) * 1000 - _STILL_GOES_ON_NS
        borders = borders.filter(pc.greater_equal(borders["time_ns"], seen_ns))
        new.know("known_borders", borders, alone=True)
        new.beside -= {name for name in new.beside if name.startswith("edges-")} - set(borders["edges"].to_pylist())
        clusters = KnownTable(stored, "known_recordings").distinct("cluster")
        marks = dict(stored.facts.get("watermarks", {}))
        marks |= {name: max(day, marks.get(name, day)) for name in clusters}
        _publish(out, new, watermarks=marks)
        after = new.tables.counts()
    return {name: rows - after.get(name, 0) for name, rows in stored.counts().items()}


def compact(out: OutputDirectory) -> tuple[int, int]:
    """Join the small files of each table, day and cluster; return the number of files before and after.

    Raises:
        ConfigurationError: There are no tables, or they cannot be written.
    """
    current_tables(out.path)  # before anything is locked or made
    with out.writing():
        stored = current_tables(out.path)
        new = ChangedTables(stored, out.run, out.run)
        for number, group in enumerate(group for group in _groups(stored) if len(group) > 1):
            joined = pa.concat_tables([read_parquet(stored.place(file)) for file in group])
            for file in group:
                new.drop(file)
            name = f"{kind_of(group[0])}-{JOINED}-{out.run.name}.{number}.zstd.parquet"
            new.write(f"{group[0].rpartition('/')[0]}/{name}", joined)
        for name in KNOWN.keys() - {"known_batches"}:
            new.know(name, KnownTable(stored, name).all(), alone=True)
        _publish(out, new)
        return len(stored.rows), len(new.tables.rows)


def _groups(stored: StoredTables) -> list[list[str]]:
    """The files to join: of one table, day, kind and cluster, of about ``_COMPACT_BYTES`` together; one alone stays."""
    groups: list[list[str]] = []
    sizes: dict[tuple[object, ...], tuple[int, list[str]]] = {}
    for file in stored.rows:
        if file.partition("/")[0] in KNOWN:
            continue
        key = file.rpartition("/")[0], kind_of(file), *_clusters(stored.run / file)
        size = file_size(str(stored.run / file))
        of_group, group = sizes.get(key, (_COMPACT_BYTES, []))
        if of_group + size > _COMPACT_BYTES:
            of_group, group = 0, []
            groups.append(group)
        group.append(file)
        sizes[key] = of_group + size, group
    return groups


def _clusters(file: Place) -> tuple[bytes, ...]:
    """The first and the last cluster of a file's rows, if its footer says: readers skip files without their cluster."""
    with opened_parquet(file) as opened:
        footer = opened.metadata
    names = footer.schema.names
    if "cluster" not in names or not footer.num_rows:
        return ()
    of_groups = [footer.row_group(n).column(names.index("cluster")).statistics for n in range(footer.num_row_groups)]
    if not all(each is not None and each.has_min_max for each in of_groups):
        return ()
    return min(each.min_raw for each in of_groups), max(each.max_raw for each in of_groups)


def _day(file: str) -> str:
    return file.partition("/date=")[2].partition("/")[0]
