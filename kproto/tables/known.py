"""What runs must know of earlier ones: small tables beside the others, of which a run reads what concerns it.

The first column of each is its key. The newest file that holds a key has all its rows; a row of nothing but its key
says that there are none. A run adds a file with what is new to it, joined with the newest files that are as small: so
there are few files, whose names are in the order of their age, and a row is written anew a few times only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.tables.schemas import KNOWN
from kproto.tables.stored import read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproto.tables.stored import StoredTables

_DIGITS: Final = 8


class KnownTable:
    """A table of ``KNOWN`` beside stored tables.

    Args:
        stored: The tables; None: there are none yet.
        name: The table's name.
    """

    def __init__(self, stored: StoredTables | None, name: str) -> None:
        self._stored, self._name = stored, name
        self._schema = KNOWN[name]
        self._key: str = self._schema.names[0]

    def rows(self, values: Iterable[Any] | pa.Array, column: str | None = None) -> pa.Table:
        """Return the rows whose key, or whose value in another column, is one of some values.

        Raises:
            pa.ArrowException: A file is damaged, or is no such table.
        """
        if column is not None:
            wanted = self._array(values, column)
            keys = [table[self._key] for table in self._found(column, wanted)]
            rows = self.rows(pc.unique(pa.chunked_array(keys, self._schema.field(0).type)))
            return rows.filter(pc.is_in(rows[column], value_set=wanted))
        left = self._array(values, self._key)
        found = []
        for table in self._found(self._key, left):
            newest = table.filter(pc.is_in(table[self._key], value_set=left))
            found.append(newest)
            left = left.filter(pc.invert(pc.is_in(left, value_set=newest[self._key].combine_chunks())))
            if not len(left):
                break
        return self._without_marks(pa.concat_tables([self._schema.empty_table(), *found]))

    def all(self) -> pa.Table:
        """Return all rows."""
        return self._without_marks(self.joined(self._schema.empty_table(), every=True)[0])

    def distinct(self, column: str) -> list[Any]:
        """Return the values of a column, those that do not hold any more too."""
        found = [self._read(file, [column])[column] for file in self._files()]
        return pc.unique(pa.chunked_array(found, self._schema.field(column).type)).drop_null().to_pylist()  # type: ignore[no-any-return]

    def marks(self, keys: Iterable[Any]) -> pa.Table:
        """Return rows that say that there are none of some keys."""
        return pa.Table.from_pylist([{self._key: key} for key in keys], self._schema)

    def joined(self, rows: pa.Table, *, every: bool = False) -> tuple[pa.Table, list[str]]:
        """Return the rows of a file that is to be added, and the files whose place it takes.

        Args:
            rows: All rows of their keys, or the marks of these.
            every: Whether it takes the place of all files.
        """
        taken: list[str] = []
        files = self._files()
        for file in files:
            if not every and self._stored is not None and self._stored.rows[file] > 2 * rows.num_rows:
                break
            former = self._read(file)
            newer = rows[self._key].combine_chunks()
            rows = pa.concat_tables([former.filter(pc.invert(pc.is_in(former[self._key], value_set=newer))), rows])
            taken.append(file)
        return (self._without_marks(rows) if len(taken) == len(files) else rows), taken

    def next_file(self, run: str) -> str:
        """Return the name of a file that a run adds."""
        numbers = (file.rpartition("/")[2].partition("-")[0] for file in self._files())
        last = max(
            (int(each) for each in numbers if len(each) == _DIGITS and each.isdigit() and each.isascii()), default=0
        )
        return f"{self._name}/{last + 1:0{_DIGITS}}-{run}.parquet"

    def _files(self) -> list[str]:
        """The files, the newest first."""
        return sorted(self._stored.paths(self._name), reverse=True) if self._stored is not None else []

    def _found(self, column: str, values: pa.Array) -> Iterator[pa.Table]:
        """Yield the rows of each file whose value in a column is one of some, the newest file first."""
        for file in self._files() if len(values) else ():
            table = self._read(file).filter(pc.field(column).isin(values))
            if table.num_rows:
                yield table

    def _read(self, file: str, columns: list[str] | None = None) -> pa.Table:
        assert self._stored is not None
        return read_parquet(self._stored.place(file), columns or self._schema.names)

    def _without_marks(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_valid(rows[1])) if len(self._schema) > 1 else rows

    def _array(self, values: Iterable[Any] | pa.Array, column: str) -> pa.Array:
        if isinstance(values, pa.ChunkedArray):
            return values.combine_chunks()
        return values if isinstance(values, pa.Array) else pa.array(list(values), self._schema.field(column).type)
