"""Stored tables are kept for years: days expire and files are joined, each at once or not."""

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commands import kproto_prints, run_kproto
from conftest import DATA, few
from pyarrow import dataset

from kproto.pipeline import OutputDirectory
from kproto.pipeline.upkeep import compact, expire
from kproto.query import ask, ask_sql, open_tables
from kproto.tables import TABLES, read
from kproto.tables.known import KnownTable
from kproto.tables.schemas import KNOWN
from kproto.tables.stored import SCHEMA, current_run, current_tables, table_dataset
from kproto.tables.writing import DATED, TableFiles, write_table

NAMES = ("external-controller-a", "ibp-3.9-a")
DAY_US = 86_400_000_000


def later(table: pa.Table, days: int) -> pa.Table:
    """The rows some days later."""
    for name in table.column_names:
        field = table.schema.field(name)
        if pa.types.is_timestamp(field.type):
            moved = pa.array([None if t is None else t + days * DAY_US for t in table[name].cast("int64").to_pylist()])
            table = table.set_column(table.column_names.index(name), field, moved.cast(field.type))
    return table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two days, of each of which another capture tells, as two runs of ``kproto analyze`` leave them."""
    path = tmp_path_factory.mktemp("kept") / "out"
    run = path / "kproto-runs" / "1"
    files: dict[str, int] = {}
    for number, name in enumerate(NAMES):
        read_tables = read(str(DATA / "captures" / f"{name}.pcap.gz"))
        day = f"{later(read_tables['requests'], number)['ts'][0].as_py():%Y-%m-%d}"
        for table_name, table in read_tables.items():
            if table_name in DATED:
                written = TableFiles(run)
                written.write(table_name, later(table, number), "" if "ts" in table.column_names else day)
                files |= written.close()
            else:
                file = f"{table_name}/part-{number}.zstd.parquet"
                write_table(run / file, table_name, later(table, number))
                files[file] = table.num_rows
        (run / f"brokers-{number}.json").write_text(
            json.dumps({"lists": [], "listeners": [], "replicas": [], "addresses": [[name, "10.0.0.1", number]]})
        )
    rows = {name: sum(n for file, n in files.items() if file.startswith(f"{name}/")) for name in TABLES}
    recordings = [{"id": name, "cluster": "default", "capture": name} for name in NAMES]
    known = pa.Table.from_pylist(recordings, KNOWN["known_recordings"])
    write_table(run / (file := "known_recordings/00000001-1.parquet"), "known_recordings", known)
    files[file] = len(NAMES)
    manifest = {
        "schema": SCHEMA, "run": "kproto-runs/1", "tables": rows, "files": files, "base": "first",
        "beside": ["brokers-0.json", "brokers-1.json"], "filters": "[]", "bodies_decoded": 0,
        "seconds": 0,
    }  # fmt: skip
    (path / "_kproto.json").write_text(json.dumps(manifest))
    return path


@pytest.fixture
def tables(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def rows(path: Path, where: str = "") -> dict[str, list[Any]]:
    with open_tables(path) as sql:
        return {name: ask_sql(sql, f"FROM {name} {where} ORDER BY ALL").rows for name in TABLES}


def days(path: Path) -> list[str]:
    return sorted(
        {file.partition("date=")[2][:10] for file in current_tables(path).paths("requests") if "date=" in file}
    )


def rolled_up(path: Path) -> str:
    return kproto_prints("tables", "rollup", path).removeprefix(f"{path}: ").strip()


@pytest.mark.slow
def test_figures_of_days_are_stored_once_and_stay_when_the_days_expire(tables: Path) -> None:
    def worst() -> list[Any]:
        with open_tables(tables) as sql:
            return ask(sql, "worst").rows

    computed, dates = worst(), days(tables)
    assert computed
    assert rolled_up(tables) == "2 of 2 days rolled up"
    assert worst() == computed
    assert rolled_up(tables) == "0 of 2 days rolled up"
    expire(OutputDirectory(tables), datetime.fromisoformat(f"{dates[1]}T00:00:00+00:00"))
    assert rolled_up(tables) == "0 of 2 days rolled up"
    assert worst() == computed
    (tables / "kproto-rollups" / f"date={dates[1]}" / "brokers.parquet").write_bytes(b"cut off")
    assert rolled_up(tables) == "1 of 2 days rolled up"
    assert worst() == computed


def test_a_rollup_opens_no_file_of_the_days_that_are_stored(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled_up(tables)
    opened: list[object] = []

    def counted(path: object, real: Any = pq.read_schema, **options: Any) -> pa.Schema:
        opened.append(path)
        return real(path, **options)

    monkeypatch.setattr(pq, "read_schema", counted)
    assert rolled_up(tables) == "0 of 2 days rolled up"
    assert opened == []
    index = tables / "kproto-rollups" / "days.json"
    for text in ("", "{}"):  # damaged, or of a kproto that wrote none
        index.write_text(text)
        opened.clear()
        assert rolled_up(tables) == "0 of 2 days rolled up"
        assert len(opened) == 2


def test_rollups_of_other_tables_in_the_same_directory_count_for_nothing(tables: Path) -> None:
    rolled_up(tables)
    manifest = json.loads((tables / "_kproto.json").read_text())
    manifest["base"] = "made anew"
    (tables / "_kproto.json").write_text(json.dumps(manifest))
    assert rolled_up(tables) == "2 of 2 days rolled up"


def test_rollups_of_another_version_are_made_anew(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled_up(tables)
    monkeypatch.setattr("kproto.query.rollups._VERSION", 2)
    assert rolled_up(tables) == "2 of 2 days rolled up"
    assert rolled_up(tables) == "0 of 2 days rolled up"


def without_cluster(name: str, of: list[Any]) -> set[str]:
    """Rows without the cluster, which is found anew where rows are read."""
    names = TABLES[name].names
    return {repr([value for column, value in zip(names, row, strict=True) if column != "cluster"]) for row in of}


def test_days_expire_with_all_that_no_later_request_needs(tables: Path) -> None:
    before, dates = rows(tables), days(tables)
    assert len(dates) == 2
    removed = expire(OutputDirectory(tables), datetime.fromisoformat(f"{dates[1]}T12:00:00+00:00"))
    assert days(tables) == dates[1:]
    after = rows(tables)
    for name in TABLES:
        assert removed[name] == len(before[name]) - len(after[name])
        assert without_cluster(name, after[name]) <= without_cluster(name, before[name])
    for name in ("requests", "frames", "bodies", "partition_states", "captures"):
        assert 0 < len(after[name]) < len(before[name]), name
    with open_tables(tables) as sql:
        dangling = "SELECT count(*) FROM frames WHERE body_id NOT IN (SELECT body_id FROM bodies)"
        needless = "SELECT count(*) FROM bodies WHERE body_id NOT IN (SELECT body_id FROM frames WHERE body_id NOTNULL)"
        stateless = (
            "SELECT count(*) FROM requests WHERE n_partitions > 0 AND decode_error IS NULL "
            "AND body_id NOT IN (SELECT body_id FROM partition_states)"
        )
        for query in (dangling, needless, stateless):
            assert ask_sql(sql, query).rows == [(0,)]
    assert set(KnownTable(current_tables(tables), "known_recordings").all()["capture"].to_pylist()) == set(NAMES)
    assert current_tables(tables).facts["watermarks"] == {"default": days(tables)[0]}
    assert sum(expire(OutputDirectory(tables), datetime(2000, 1, 1, tzinfo=UTC)).values()) == 0


def test_all_days_may_expire(tables: Path) -> None:
    expire(OutputDirectory(tables), datetime(2100, 1, 1, tzinfo=UTC))
    assert {name: len(found) for name, found in rows(tables).items() if found} == {
        "brokers": len(rows(tables)["brokers"])
    }


def test_small_files_are_joined_and_rows_stay(tables: Path) -> None:
    before = rows(tables)
    stored = current_tables(tables)
    several = [name for name in TABLES if name not in DATED]
    assert compact(OutputDirectory(tables)) == (len(stored.rows), len(stored.rows) - len(several))
    assert rows(tables) == before
    assert all(len(current_tables(tables).paths(name)) == 1 for name in several)
    assert compact(OutputDirectory(tables))[0] == len(stored.rows) - len(several)


@pytest.mark.slow
def test_files_of_one_cluster_are_joined_and_readers_skip_those_of_the_others(tables: Path) -> None:
    manifest = json.loads((tables / "_kproto.json").read_text())
    run = current_run(tables)
    for file in list(manifest["files"]):
        table = pq.read_table(run / file, partitioning=None)
        if "cluster" not in table.column_names:
            continue
        at = table.column_names.index("cluster")
        for n, cluster in enumerate(("default", "other", "other")):
            copied = f"{file.rpartition('/')[0]}/part-{cluster}-{n}-{Path(file).name}"
            named = pa.repeat(pa.scalar(cluster), table.num_rows)
            pq.write_table(table.set_column(at, table.schema.field("cluster"), named), run / copied)
            manifest["files"][copied] = table.num_rows
    (tables / "_kproto.json").write_text(json.dumps(manifest))
    before = rows(tables)
    compact(OutputDirectory(tables))
    assert rows(tables) == before
    stored = current_tables(tables)
    for name in ("frames", "requests", "captures", "brokers"):
        folders = [file.rpartition("/")[0] for file in stored.paths(name)]
        assert {folders.count(folder) for folder in folders} == {2}, name  # one for each cluster
        for cluster in ("default", "other"):
            fragments = table_dataset(stored, name).get_fragments()
            groups = [fragment.subset(pc.field("cluster") == cluster).row_groups for fragment in fragments]
            assert [len(each) for each in groups].count(0) == len(groups) // 2, name
    assert compact(OutputDirectory(tables)) == (len(stored.rows), len(stored.rows))


def test_a_day_of_a_dated_table_is_read_from_its_files_alone(tables: Path) -> None:
    compact(OutputDirectory(tables))
    for name in DATED:
        whole = dataset.dataset(tables / name, partitioning="hive")
        for day in days(tables):
            files = [Path(each.path) for each in whole.get_fragments(filter=pc.field("date") == day)]
            assert [file.parent.name for file in files] == [f"date={day}"], name
            assert whole.count_rows(filter=pc.field("date") == day) == sum(map(count_rows, files)) > 0


def count_rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


@pytest.mark.parametrize("change", few(["compact", "expire"]))
def test_a_reader_that_had_opened_the_former_tables_reads_them_whole(change: str, tables: Path) -> None:
    before, dates = rows(tables), days(tables)
    with open_tables(tables) as sql:
        if change == "compact":
            compact(OutputDirectory(tables))
        else:
            expire(OutputDirectory(tables), datetime.fromisoformat(f"{dates[1]}T00:00:00+00:00"))
        assert {name: ask_sql(sql, f"FROM {name} ORDER BY ALL").rows for name in TABLES} == before
    assert (rows(tables) == before) == (change == "compact")


@pytest.mark.parametrize(
    "change",
    [lambda out: expire(out, datetime(2100, 1, 1, tzinfo=UTC)), compact],
    ids=["expire", "compact"],
)
def test_a_change_that_fails_at_any_step_leaves_the_former_tables(
    change: Callable[[OutputDirectory], object], tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = (tables / "_kproto.json").read_bytes()
    run = current_run(tables)
    files = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()}
    real: dict[str, Any] = {"link": os.link, "write": write_table, "publish": OutputDirectory.publish}
    for step in ("link", "write", "publish"):
        calls = 0

        def fails(*arguments: Any, real_one: Any = real[step]) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2 or real_one is real["publish"]:
                raise KeyboardInterrupt
            return real_one(*arguments)

        with monkeypatch.context() as patched:
            match step:
                case "link":
                    patched.setattr("kproto.pipeline.upkeep.os.link", fails)
                case "write":
                    patched.setattr("kproto.pipeline.changed.write_table", fails)
                case "publish":
                    patched.setattr(OutputDirectory, "publish", fails)
            with pytest.raises(KeyboardInterrupt):
                change(OutputDirectory(tables))
        assert (tables / "_kproto.json").read_bytes() == manifest
        assert {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()} == files
        assert [entry.name for entry in (tables / "kproto-runs").iterdir()] == [run.name]
    change(OutputDirectory(tables))
    assert current_run(tables) != run
    assert {file: file.stat().st_mtime_ns for file in files} == files  # a reader of the former tables may finish


def test_the_command_says_what_was_done(tables: Path) -> None:
    def said(*arguments: str) -> str:
        result = run_kproto("tables", *arguments)
        assert result.exit_code == 0, result.output
        return result.output

    assert "now" in said("compact", str(tables))
    assert "removed" in said("expire", str(tables), "--before", days(tables)[1])
    assert "no rows before 2000-01-01" in said("expire", str(tables), "--before", "2000-01-01")
    absent = run_kproto("tables", "compact", tables / "absent")
    assert absent.exit_code == 2
    assert "no such file or directory" in absent.stderr


@pytest.mark.parametrize("arguments", [["compact"], ["expire", "--before", "2100-01-01"], ["rollup"]])
def test_a_full_disk_is_named(arguments: list[str], tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **_options: object) -> None:
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", full)
    result = run_kproto("tables", *arguments, tables)
    assert result.exit_code == 2
    assert result.stderr == f"kproto: {tables}: no space left on device; free some space (df -h shows the disks)\n"
