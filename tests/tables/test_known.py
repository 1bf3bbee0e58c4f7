"""What runs must know of earlier ones: the newest rows of a key count, and files stay few."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import few

from kproto.tables.known import KnownTable
from kproto.tables.schemas import KNOWN
from kproto.tables.stored import StoredTables
from kproto.tables.writing import write_table

NAME = "known_batches"


class Shelf:
    """A known table, as runs add to it."""

    def __init__(self, folder: Path) -> None:
        self.stored = StoredTables(folder, {}, {})
        self.known = KnownTable(self.stored, NAME)
        self.written = 0

    def add(self, rows: pa.Table) -> None:
        file = self.known.next_file("1")
        rows, taken = self.known.joined(rows)
        for each in taken:
            del self.stored.rows[each]
        write_table(self.stored.run / file, NAME, rows)
        self.stored.rows[file] = rows.num_rows
        self.written += rows.num_rows


def batches(*rows: tuple[str, int, bytes]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(KNOWN[NAME].names, row, strict=True)) for row in rows], KNOWN[NAME])


def values(table: pa.Table) -> list[tuple[str, int, bytes]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("seed", few(range(5)))
def test_the_newest_rows_of_a_key_count(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    shelf, model = Shelf(tmp_path), dict[bytes, list[tuple[str, int, bytes]]]()
    keys = [str(n) for n in range(40)]
    for _ in range(60):
        some = chosen.sample(keys, chosen.randint(1, 8))
        gone = [key for key in some if chosen.random() < 0.3]
        new = {
            key: [(key, 1, b"%d" % chosen.randrange(9)) for _ in range(chosen.randint(1, 2))]
            for key in some
            if key not in gone
        }
        model |= new | {key: [] for key in gone}
        shelf.add(pa.concat_tables([batches(*(row for rows in new.values() for row in rows)), shelf.known.marks(gone)]))
        asked = chosen.sample(keys, 5)
        assert values(shelf.known.rows(asked)) == sorted(row for key in asked for row in model.get(key, []))
        data = b"%d" % chosen.randrange(9)
        every = sorted(row for rows in model.values() for row in rows)
        assert values(shelf.known.rows([data], "data")) == [row for row in every if row[2] == data]
        assert values(shelf.known.all()) == every


def test_files_stay_few_and_rows_are_written_a_few_times(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for run in range(200):
        shelf.add(batches(*((str(run * 10 + n), 1, b"b") for n in range(10))))
    assert shelf.known.all().num_rows == 2000
    assert len(shelf.stored.rows) <= 9
    assert shelf.written <= 2000 * 9
    assert max(shelf.stored.rows) == sorted(shelf.stored.rows)[-1]


def test_without_tables_nothing_is_known() -> None:
    known = KnownTable(None, NAME)
    assert (known.rows(["a"]).num_rows, known.all().num_rows, known.distinct("sent_in")) == (0, 0, [])
    assert known.next_file("r") == "known_batches/00000001-r.parquet"


def test_files_of_other_names_do_not_stop_a_run(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.stored.rows.update({"known_batches/x.parquet": 0, "known_batches/²²²²²²²²-1.parquet": 0})
    assert shelf.known.next_file("r") == "known_batches/00000001-r.parquet"
