"""Keeps stored tables for years: old days expire, small files are joined.

Each of these writes the directory of a new run, in which files that stay are links (copies, in a store), and makes it
the current one by the rename of the manifest. Whatever ends it before leaves the former tables; readers of these may
finish, since they are removed when the next run begins.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kproto.pipeline.settling import JOINED
from kproto.tables.known import KnownTable
from kproto.tables.places import RemotePath, arrow_path, at_store, copy, make_new, require_no_link
from kproto.tables.schemas import KNOWN, METADATA_TABLES, TABLES
from kproto.tables.stored import (
    SCHEMA,
    StoredTables,
    current_tables,
    read_parquet,
)
from kproto.tables.writing import DATED, kind_of, span_of, write_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.places import Place

_STILL_GOES_ON_NS: Final = 86_400 * 1_000_000_000
"""A connection may go on behind so long a silence."""

_COMPACT_BYTES: Final = 64 << 20
"""Files of one table and day are joined until they have about this number of bytes."""


class _NewRun:
    """The run that takes the place of stored tables.

    Args:
        out: The output directory, in ``writing``.
        stored: The tables.
    """

    def __init__(self, out: OutputDirectory, stored: StoredTables) -> None:
        self._out = out
        self._from = stored
        self._links: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._spans: dict[str, list[int]] = {}

    def keep(self, files: Iterable[str]) -> None:
        """Keep files as they are."""
        for file in files:
            self._links[file] = file
            if (span := self._from.facts.get("spans", {}).get(file)) is not None:
                self._spans[file] = span
            self._rows[file] = self._from.rows[file]

    def write(self, file: str, table: pa.Table) -> None:
        """Write a file of the table in whose directory it is."""
        write_table(self._out.run / file, file.partition("/")[0], table)
        self._rows[file] = table.num_rows
        if file.startswith("requests/"):
            self._spans[file] = span_of(table)

    def files(self, name: str) -> list[str]:
        """The files of a table that have rows."""
        return [file for file, rows in self._rows.items() if rows and file.startswith(f"{name}/")]

    def place(self, file: str) -> Place:
        """Return where a file stands until the run is the current one."""
        return (self._from.run if file in self._links else self._out.run) / file

    def know(self, name: str, rows: pa.Table) -> None:
        """Write all rows of a table of ``KNOWN``."""
        if rows.num_rows:
            self.write(KnownTable(None, name).next_file(self._out.run.name), rows)

    def publish(self, changes: Mapping[str, Any] | None = None) -> StoredTables:
        """Make it the current run.

        Args:
            changes: What changes in the manifest beside the files.
        """
        facts = self._from.facts | dict(changes or {})
        links = self._links | {name: name for name in facts.get("beside", []) if (self._from.run / name).exists()}
        run = self._out.run
        for folder in {(run / file).parent for file in links}:
            folder.mkdir(parents=True, exist_ok=True)
        at_store(lambda file: _link(self._from.run / file, run / file), links)
        for name, schema in TABLES.items():
            if not any(file.startswith(f"{name}/") for file in self._rows):
                self.write(f"{name}/part-empty.zstd.parquet", schema.empty_table())
        new = StoredTables(run, self._rows, {})
        manifest = facts | {"tables": new.counts()}
        manifest["spans"] = self._spans
        del manifest["run"]
        self._out.publish(manifest | {"schema": SCHEMA, "files": self._rows})
        return new


def _link(file: Place, place: Place) -> None:
    if isinstance(file, RemotePath) and isinstance(place, RemotePath):
        copy(file, place)
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

    Args:
        out: The tables.
        before: The moment.

    Returns:
        The rows removed, by table.

    Raises:
        ConfigurationError: There are no tables, or they cannot be written.
    """
    day = before.astimezone(UTC).date().isoformat()
    stored = current_tables(out.path)
    with out.writing():
        stored = current_tables(out.path)
        new = _NewRun(out, stored)
        kept = [file for file in stored.rows if not ("/date=" in file and _day(file) < day)]
        requests = _column(stored, kept, "requests", "frame_id")
        answers = _column(stored, kept, "requests", "response_frame_id")
        bodies: list[pa.Array] = []
        for file in (file for file in kept if file.partition("/")[0] in DATED):
            if _day(file) > day or file.startswith("requests/"):
                new.keep([file])
            elif file.startswith(("responses/", "partition_errors/", "frames/")):
                # some answer requests of the day before
                table = read_parquet(stored.run / file)
                of_kept = pc.is_in(table["frame_id"], value_set=pa.concat_arrays([requests, answers]))
                wanted = table.filter(of_kept)
                _write_what_stays(new, file, table, wanted)
                if file.startswith("frames/"):
                    bodies.append(wanted["body_id"].combine_chunks())
        later = [file for file in kept if _day(file) > day]
        bodies.append(_column(stored, later, "frames", "body_id"))
        bodies.append(_column(stored, kept, "requests", "body_id"))  # those of a metadata log have no frames
        needed = {
            "bodies": ("body_id", pc.unique(pa.concat_arrays(bodies)).drop_null()),
            "partition_states": ("body_id", _column(stored, kept, "requests", "body_id")),
            "live_brokers": ("live_brokers_id", _column(stored, kept, "requests", "live_brokers_id")),
        }
        for name, (column, values) in needed.items():
            for file in stored.paths(name):
                if _day(file) > day:
                    continue
                table = read_parquet(stored.run / file)
                wanted = table.filter(pc.is_in(table[column], value_set=values))
                _write_what_stays(new, file, table, wanted)
        midnight = pa.scalar(datetime.fromisoformat(f"{day}T00:00:00+00:00"), pa.timestamp("us", "UTC"))
        gone: set[str] = set()
        for file in stored.paths("captures"):
            table = read_parquet(stored.run / file)
            wanted = table.filter(pc.fill_null(pc.greater_equal(table["last_ts"], midnight), True))
            gone.update(set(table["file"].to_pylist()) - set(wanted["file"].to_pylist()))
            _write_what_stays(new, file, table, wanted)
        for file in stored.paths("bad_inputs"):
            table = read_parquet(stored.run / file)
            of_gone = pc.is_in(table["file"], value_set=pa.array(sorted(gone), pa.string()))
            _write_what_stays(new, file, table, table.filter(pc.invert(of_gone)))
        for name in ("brokers", *METADATA_TABLES, "known_recordings", "known_names", "known_places", "known_batches"):
            new.keep(stored.paths(name))
        written = [read_parquet(new.place(file), ["body_id"]) for file in new.files("bodies")]
        new.know("known_bodies", pa.concat_tables([KNOWN["known_bodies"].empty_table(), *written]))
        borders = KnownTable(stored, "known_borders").all()
        seen_ns = int(midnight.value) * 1000 - _STILL_GOES_ON_NS
        borders = borders.filter(pc.greater_equal(borders["time_ns"], seen_ns))
        new.know("known_borders", borders)
        edges = {name for name in stored.facts.get("beside", []) if not name.startswith("edges-")}
        edges |= set(borders["edges"].to_pylist()) & set(stored.facts.get("beside", []))
        clusters = set(KnownTable(stored, "known_places").distinct("cluster"))
        marks = dict(stored.facts.get("watermarks", {}))
        marks |= {name: max(day, marks.get(name, day)) for name in clusters}
        after = new.publish({"watermarks": marks, "beside": sorted(edges)})
    left = after.counts()
    return {name: rows - left.get(name, 0) for name, rows in stored.counts().items()}


def _write_what_stays(new: _NewRun, file: str, table: pa.Table, wanted: pa.Table) -> None:
    if wanted.num_rows == table.num_rows:
        new.keep([file])
    elif wanted.num_rows:
        new.write(file, wanted)


def compact(out: OutputDirectory) -> tuple[int, int]:
    """Join the small files of each table, day and cluster.

    Args:
        out: The tables.

    Returns:
        The number of files before and after.

    Raises:
        ConfigurationError: There are no tables, or they cannot be written.
    """
    current_tables(out.path)  # before anything is locked or made
    with out.writing():
        stored = current_tables(out.path)
        new = _NewRun(out, stored)
        number = 0
        for group in _groups(stored):
            if len(group) == 1:
                new.keep(group)
                continue
            joined = pa.concat_tables([read_parquet(stored.run / file) for file in group])
            new.write(
                f"{group[0].rpartition('/')[0]}/{kind_of(group[0])}-{JOINED}-{out.run.name}.{number}.zstd.parquet",
                joined,
            )
            number += 1
        new.keep(stored.paths("known_batches"))
        for name in KNOWN.keys() - {"known_batches"}:
            new.know(name, KnownTable(stored, name).all())
        after = new.publish()
    return len(stored.rows), len(after.rows)


def _groups(stored: StoredTables) -> list[list[str]]:
    """The files to join: of one table, day, kind and cluster, of about ``_COMPACT_BYTES`` together; one alone stays."""
    groups: list[list[str]] = []
    sizes: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    for file in stored.rows:
        if file.partition("/")[0] in KNOWN:
            continue
        key = file.rpartition("/")[0], kind_of(file), *_clusters(stored.run / file)
        size = _size(stored.run / file)
        of_group, group = sizes.get(key, (_COMPACT_BYTES, []))
        if of_group + size > _COMPACT_BYTES:
            of_group, group = 0, []
            groups.append(group)
        group.append(file)
        sizes[key] = of_group + size, group
    return groups


def _clusters(file: Place) -> tuple[str, ...]:
    """The first and the last cluster of a file's rows, by its footer: readers skip files without their cluster."""
    path, files = arrow_path(file)
    footer = pq.read_metadata(path, filesystem=files)
    names = footer.schema.names
    if "cluster" not in names or not footer.num_rows:
        return ()
    of_groups = [footer.row_group(n).column(names.index("cluster")).statistics for n in range(footer.num_row_groups)]
    return min(each.min for each in of_groups), max(each.max for each in of_groups)


def _size(file: Place) -> int:
    if isinstance(file, Path):
        return file.stat().st_size
    files, path = file.arrow()
    return int(files.get_file_info(path).size or 0)


def _day(file: str) -> str:
    return file.partition("/date=")[2].partition("/")[0]


def _column(stored: StoredTables, files: Collection[str], name: str, column: str) -> pa.Array:
    """The distinct values of a column in some files of a table."""
    found = [
        pc.unique(read_parquet(stored.run / file, [column])[column])
        for file in files
        if file.startswith(f"{name}/") and stored.rows[file]
    ]
    return pc.unique(pa.chunked_array(found, pa.binary())).drop_null()
