"""Stored tables that someone damaged: one line that names the file or the table, never an answer from the rest."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_kproto
from conftest import DATA
from table_truth import DAY, store

from kproto.errors import ConfigurationError
from kproto.query import ask, open_tables
from kproto.report import report_facts
from kproto.tables import read
from kproto.tables.stored import SCHEMA, checked_run

CAPTURE = DATA / "captures" / "external-controller-a.pcap.gz"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The tables of a capture, stored as ``kproto analyze`` stores them."""
    store(tmp_path, CAPTURE)
    return tmp_path


def requests_of(tables: Path) -> Path:
    return tables / "kproto-runs" / "1" / "requests" / DAY / "part-0.zstd.parquet"


def remove(file: Path) -> None:
    file.unlink()


def double(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([table, table]), file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def replace_by_another_programs(file: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), file)


def drop_a_column(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.drop_columns(["broker_epoch"]), file)


def test_whole_tables_are_read(tables: Path) -> None:
    assert checked_run(tables).run == tables / "kproto-runs" / "1"
    with open_tables(tables) as stored, open_tables(read(str(CAPTURE))) as direct:
        assert ask(stored, "leader") == ask(direct, "leader")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove, "part-0.zstd.parquet is missing"),
        (double, "part-0.zstd.parquet has 190 rows, where 95 were written"),
        (cut, "part-0.zstd.parquet cannot be read ("),
        (replace_by_another_programs, "part-0.zstd.parquet has no column api_key: another version or program wrote it"),
        (drop_a_column, "part-0.zstd.parquet has no column broker_epoch: another version or program wrote it"),
    ],
)
@pytest.mark.parametrize("command", [["query", "leader"], ["report"]], ids=lambda command: command[0])
def test_damaged_tables_are_refused_in_one_line(
    damage: Callable[[Path], None], words: str, command: list[str], tables: Path
) -> None:
    damage(requests_of(tables))
    name, *more = command
    result = run_kproto(name, tables, *more)
    assert result.exit_code == 2
    assert words in result.stderr
    assert f"kproto analyze CAPTURE --out {tables} --overwrite" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_the_manifest_does_not_list_counts_for_nothing(tables: Path) -> None:
    with open_tables(tables) as sql:
        before = ask(sql, "leader")
    file = requests_of(tables)
    file.with_name("part-1.zstd.parquet").write_bytes(file.read_bytes())
    with open_tables(tables) as sql:
        assert ask(sql, "leader") == before


@pytest.mark.parametrize(("version", "words"), [(1, "analyze the captures again"), (SCHEMA + 1, "a newer kproto")])
def test_tables_of_another_version_are_refused_with_what_to_do(tables: Path, version: int, words: str) -> None:
    manifest = tables / "_kproto.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": version}))
    with pytest.raises(ConfigurationError, match=f"are of version {version}.*{words}"):
        open_tables(tables)


@pytest.mark.parametrize("manifest", ['{"run": "../..", "tables": {}}', '{"run": "x", "tables": 7}', '{"run": ', "[]"])
def test_a_damaged_manifest_is_named(manifest: str, tables: Path) -> None:
    (tables / "_kproto.json").write_text(manifest)
    with pytest.raises(ConfigurationError, match=r"_kproto\.json is no manifest of kproto"):
        open_tables(tables)


@pytest.mark.parametrize("name", ["requests", "partition_states"])
@pytest.mark.parametrize("read_tables", [report_facts, lambda tables: ask(open_tables(tables), "events")])
def test_rows_that_cannot_be_unpacked_are_refused_when_they_are_read(
    name: str, read_tables: Callable[[Path], object], tables: Path
) -> None:
    file = tables / "kproto-runs" / "1" / name / DAY / "part-0.zstd.parquet"
    data = bytearray(file.read_bytes())
    data[4:100] = bytes(96)
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"^the tables cannot be read: (?!.*(Traceback|stream registered))"):
        read_tables(tables)
