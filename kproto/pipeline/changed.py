"""Stored tables as a run changes them: files come and go, and nothing of it counts before a manifest says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kproto.pipeline.output import move_files
from kproto.tables.known import KnownTable
from kproto.tables.places import remove_tree
from kproto.tables.schemas import KNOWN, TABLES
from kproto.tables.stored import SCHEMA, SUMMARY, StoredTables, read_parquet
from kproto.tables.writing import kind_of, span_of, token_of, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.places import Place


class ChangedTables:
    """The files of tables, less those that a run leaves out, and with those that it makes.

    Args:
        stored: The tables.
        run: The directory of the run; its name is in the names of its files.
        folder: The directory below which it writes them.

    Attributes:
        tables: The tables as they are now; ``moves`` names the directories of files that the run has made.
        spans: The first and the last time (us) in each file of requests.
        beside: The names of the files beside the tables.
        dropped: The files of the former tables, and beside them, that are left out.
    """

    def __init__(self, stored: StoredTables, run: Place, folder: Place) -> None:
        self.tables = replace(stored, rows=dict(stored.rows), moves={})
        self.spans: dict[str, list[int]] = dict(stored.facts.get("spans", {}))
        self.beside: set[str] = set(stored.facts.get("beside", []))
        self.dropped: list[str] = []
        self._run = run.name
        self._folder = folder
        self._rewritten = 0

    def drop(self, file: str) -> None:
        """Leave a file out."""
        del self.tables.rows[file]
        self.spans.pop(file, None)
        if self.tables.moves.pop(file, None) is None:
            self.dropped.append(file)

    def keep(self, folder: Place, rows: Mapping[str, int], spans: Mapping[str, list[int]]) -> None:
        """Add files that are below a directory, with their rows and times."""
        self.tables.rows.update(rows)
        self.tables.moves.update(dict.fromkeys(rows, folder))
        self.spans |= {file: span for file, span in spans.items() if file.startswith("requests/")}

    def write(self, file: str, table: pa.Table) -> None:
        """Write a file of the table in whose directory it is to be."""
        name = file.partition("/")[0]
        write_table(self._folder / file, name, table)
        self.keep(
            self._folder,
            {file: table.num_rows},
            {file: span_of(table)} if name == "requests" and table.num_rows else {},
        )

    def rewrite(self, file: str, table: pa.Table) -> None:
        """Put other rows in the place of a file; of no rows there is none."""
        self.drop(file)
        if table.num_rows:
            self._rewritten += 1
            name = f"{kind_of(file)}-{token_of(file)}-{self._run}-{self._rewritten}.zstd.parquet"
            self.write(f"{file.rpartition('/')[0]}/{name}", table)

    def narrow(self, file: str, column: str, is_wanted: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> None:
        """Keep the rows of a file whose values in a column are wanted."""
        place = self.tables.place(file)
        wanted = is_wanted(read_parquet(place, [column])[column])
        if not pc.all(wanted).as_py():
            self.rewrite(file, read_parquet(place).filter(wanted))

    def distinct(self, name: str, column: str) -> pa.Array:
        """Return the distinct values of a column of a table with ids."""
        found = [pc.unique(read_parquet(file, [column])[column]) for file in self.tables.files(name)]
        return pc.unique(pa.chunked_array(found, pa.binary())).drop_null()

    def forget_bodies(self) -> None:
        """Drop the bodies that no request or frame has any more, and their states."""
        held = self.distinct("bodies", "body_id")
        used = [self.distinct(name, "body_id") for name in ("frames", "requests")]  # a metadata log has no frames
        gone = held.filter(pc.invert(pc.is_in(held, value_set=pa.concat_arrays(used))))
        for name in ("bodies", "partition_states") if len(gone) else ():
            for file in self.tables.paths(name):
                self.narrow(file, "body_id", lambda ids: pc.invert(pc.is_in(ids, value_set=gone)))
        self.know("known_bodies", pa.table([self.distinct("bodies", "body_id")], KNOWN["known_bodies"]), alone=True)

    def know(self, name: str, rows: pa.Table, *, alone: bool = False) -> None:
        """Add rows to a table of ``KNOWN``, or put them ``alone`` in the place of all that it has."""
        known = KnownTable(self.tables, name)
        file, taken = known.next_file(self._run), self.tables.paths(name)
        if not alone:
            rows, taken = known.joined(rows) if rows.num_rows else (rows, [])
        for each in taken:
            self.drop(each)
        if rows.num_rows:
            self.write(file, rows)

    def keep_beside(self, name: str, folder: Place) -> None:
        """Add a file beside the tables, which is in a directory."""
        self.beside.add(name)
        self.tables.moves[name] = folder

    def drop_beside(self, names: set[str]) -> None:
        """Leave files beside the tables out."""
        self.dropped += sorted(names & self.beside)
        self.beside -= names

    def publish(self, out: OutputDirectory, run: Place, **changes: Any) -> None:
        """Make these the current tables, in the directory of a run, with changes in the manifest beside the files.

        A table without any file gets one, by which readers find its columns.
        """
        for name, schema in TABLES.items():
            if not self.tables.paths(name):
                self.write(f"{name}/part-{self._run}.empty.zstd.parquet", schema.empty_table())
        (run / SUMMARY).unlink(missing_ok=True)
        move_files({file: folder for file, folder in self.tables.moves.items() if folder != run}, run)
        for folder in ("tasks", "small"):
            remove_tree(out.run / folder)
        files = {
            "schema": SCHEMA,
            "tables": self.tables.counts(),
            "beside": sorted(self.beside),
            "spans": self.spans,
            "files": self.tables.rows,
        }
        out.publish(self.tables.facts | changes | files, run)
