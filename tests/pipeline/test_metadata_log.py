"""Stored tables of KRaft's metadata log answer as its files do, and a log that grew goes on; no path is remembered."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import kproto_prints, kproto_rows
from conftest import few
from kraft_runs import capture, metadata
from metadata_batches import batch_of

from kproto.errors import ConfigurationError
from kproto.metadata_log.batches import RecordBatch, batches_in
from kproto.metadata_log.finding import SNAPSHOT
from kproto.metadata_log.records import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from kproto.pipeline import OutputDirectory, analyze
from kproto.pipeline.job import unchanged
from kproto.pipeline.metadata_log import LogPlan, logs_among, plan_log, write_log
from kproto.pipeline.upkeep import compact, expire
from kproto.query import QUESTIONS, ask, ask_sql, open_tables
from kproto.tables import read
from kproto.tables.filters import Filters
from kproto.tables.places import MANIFEST
from kproto.tables.recordings import Recording
from kproto.tables.schemas import KNOWN, METADATA_TABLES, TABLES
from kproto.tables.stored import RUNS, SCHEMA, StoredTables, current_tables, read_parquet
from kproto.tables.writing import write_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

RUN, NODE = "kraft-4.1-a", 1000


def answers(source: tuple[Path, ...], *words: str) -> list[str]:
    """The JSON lines that a command gives about a source, sorted."""
    command, *rest = words
    found = kproto_rows(command, *source, *rest)
    for row in found:  # how to ask for more names the source; who asked for an ISR is not stored
        for name in ("asked_by", "evidence", "command") if command != "summary" else ():
            row.pop(name, None)
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def same(tables: Path, *source: Path) -> None:
    """Stored tables answer every question as their source, and have the same rows of a metadata log."""
    agree(open_tables(tables), open_tables(read(*map(str, source))))


def agree(stored_rows: DuckDBPyConnection, read_rows: DuckDBPyConnection) -> None:
    for name, question in QUESTIONS.items():
        if name == "isr":
            continue  # who asked for a change is not stored
        begin = 1 if question.between else None
        ours, theirs = (ask(each, name, from_ns=begin) for each in (stored_rows, read_rows))
        assert ours.columns == theirs.columns
        assert sorted(ours.rows, key=repr) == sorted(theirs.rows, key=repr), name
    for name in METADATA_TABLES:
        ours, theirs = (ask_sql(each, f"SELECT * FROM {name}") for each in (stored_rows, read_rows))
        assert sorted(ours.rows, key=repr) == sorted(theirs.rows, key=repr), name


def cut_log(place: Path, size: int | None = None) -> Path:
    """A copy of a node's files, of whose segment the first bytes are there."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(metadata(RUN, NODE), place)
    segment = next(place.rglob("*.log"))
    segment.write_bytes(segment.read_bytes()[:size])
    return place


def piece(place: Path, begin: int, end: int, *, snapshots: bool = True) -> Path:
    """A node's directory with some offsets, from which Kafka has deleted what is before them."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    whole = next(metadata(RUN, NODE).rglob("*.log"))
    batches = [each for each in batches_in(whole.read_bytes()) if isinstance(each, RecordBatch)]
    kept = [each for each in batches if begin <= each.base_offset and each.last_offset < end]
    (place / f"{kept[0].base_offset:020}.log").write_bytes(b"".join(each.data for each in kept))
    for file in metadata(RUN, NODE).rglob("*.checkpoint"):
        name = SNAPSHOT.fullmatch(file.name)
        if snapshots and name is not None and begin <= int(name[1]) < end:
            shutil.copy(file, place)
    return place


def plan_of(
    sources: tuple[Path, ...], stored: StoredTables | None, cluster: str = "default"
) -> tuple[LogPlan | None, list[str]]:
    files, others = logs_among([str(each) for each in sources])
    recordings = {
        each: Recording(f"of {each}", Path(each).name.removesuffix(".pcap.gz"), cluster, "") for each in others
    }
    return plan_log(files, recordings, stored, cluster, is_more_shown=bool(others))


def planned(*sources: Path, held: dict[str, Any] | None = None, cluster: str = "default") -> LogPlan | None:
    return plan_of(sources, None if held is None else StoredTables(sources[0], {}, {"logs": held}), cluster)[0]


def held_of(*sources: Path) -> dict[str, Any]:
    plan = planned(*sources)
    assert plan is not None
    held: dict[str, Any] = json.loads(json.dumps(plan.held_with([]).to_json()))
    return {"default": held}


def stored(place: Path, *sources: Path, former: Path | None = None) -> Path:
    """The tables of a log, or of what it adds to former ones, written without Spark."""
    plan, notes = plan_of(sources, current_tables(former) if former else None)
    assert plan is not None
    assert not notes
    run = place / RUNS / "one"
    made = write_log(plan, run, Filters(), "default", live_from_us=0)
    rows = made.rows
    for name, schema in TABLES.items():
        if not any(file.startswith(f"{name}/") for file in rows):
            rows[f"{name}/part-empty.zstd.parquet"] = 0
            write_table(run / f"{name}/part-empty.zstd.parquet", name, schema.empty_table())
    manifest = {
        "run": f"{RUNS}/one", "schema": SCHEMA, "files": rows, "tables": StoredTables(run, rows, {}).counts(),
        "logs": {"default": plan.held_with(made.shown_by).to_json()}, "seconds": 1.0, "bodies_decoded": 0,
        "recordings": [], "spans": {}, "base": "one",
    }  # fmt: skip
    (place / MANIFEST).write_text(json.dumps(manifest))
    return place


def test_stored_tables_answer_as_the_files_do(tmp_path: Path) -> None:
    tables = stored(tmp_path / "tables", metadata(RUN, NODE))
    same(tables, metadata(RUN, NODE))
    assert answers((tables,), "doctor") == answers((metadata(RUN, NODE),), "doctor")


def test_expiry_and_compaction_keep_what_a_log_tells_of_brokers_and_the_quorum(tmp_path: Path) -> None:

    tables = stored(tmp_path / "tables", metadata(RUN, NODE))
    before = current_tables(tables).counts()
    compact(OutputDirectory(tables))
    assert current_tables(tables).counts() == before
    kept = current_tables(tables).paths("known_batches")
    assert kept
    expire(OutputDirectory(tables), datetime(2026, 11, 26, 12, tzinfo=UTC))  # the day of the run stays
    assert current_tables(tables).counts() == before
    expire(OutputDirectory(tables), datetime(2026, 11, 28, tzinfo=UTC))
    after = current_tables(tables).counts()
    assert current_tables(tables).paths("known_batches") == kept
    assert (after["requests"], after["partition_states"]) == (0, 0)
    assert {name: after[name] for name in METADATA_TABLES if name in after} == {
        name: before[name] for name in METADATA_TABLES if name in before
    }


def test_a_log_that_is_as_it_was_is_not_read_again(tmp_path: Path) -> None:
    node = cut_log(tmp_path / "n")
    held = held_of(node)
    assert planned(node, held=held) is None
    elsewhere = cut_log(tmp_path / "copy")
    assert planned(elsewhere, held=held) is None  # known by its content
    (elsewhere / "__cluster_metadata-0").mkdir(exist_ok=True)
    next(elsewhere.rglob("quorum-state")).write_text('{"leaderId": 1002, "leaderEpoch": 9}')
    assert planned(elsewhere, held=held) is not None


def test_a_log_that_grew_takes_the_place_of_the_former(tmp_path: Path) -> None:
    held = held_of(cut_log(tmp_path / "n", 30_000))
    plan = planned(cut_log(tmp_path / "n", 40_000), held=held)
    assert plan is not None
    assert plan.replaced == ["default"]
    renamed = planned(cut_log(tmp_path / "n", 40_000), held=held, cluster="prod")
    assert renamed is not None
    assert renamed.replaced == ["default"]  # one log has one place


@pytest.mark.parametrize("snapshots", few([True, False]))
def test_a_log_goes_on_where_its_old_segments_are_gone(tmp_path: Path, *, snapshots: bool) -> None:
    whole = piece(tmp_path / "whole" / "n", 0, 1000, snapshots=snapshots)
    one = stored(tmp_path / "one", piece(tmp_path / "n", 0, 450))
    two = stored(tmp_path / "two", piece(tmp_path / "n", 400, 560, snapshots=snapshots), former=one)
    shutil.rmtree(tmp_path / "one")
    three = stored(tmp_path / "three", piece(tmp_path / "n", 560, 1000, snapshots=snapshots), former=two)
    same(three, whole)
    assert ask_sql(open_tables(three), "SELECT * FROM bad_inputs").rows == []


@pytest.mark.slow
def test_what_a_log_lacks_between_the_tables_and_its_beginning_is_told(tmp_path: Path) -> None:
    former = stored(tmp_path / "one", piece(tmp_path / "n", 0, 300))
    tables = stored(tmp_path / "two", piece(tmp_path / "n", 500, 1000), former=former)
    both = piece(tmp_path / "both" / "n", 0, 300)
    shutil.copytree(piece(tmp_path / "n", 500, 1000), both, dirs_exist_ok=True)
    same(tables, both)
    (reason,) = ask_sql(open_tables(tables), "SELECT reason FROM bad_inputs WHERE reason LIKE '%no file holds%'").rows
    assert reason == ("no file holds the offsets 288 to 507",)


def test_what_captures_showed_stays_with_its_cluster_alone(tmp_path: Path) -> None:
    """Rows name their cluster: one that is called otherwise now is not given those of the former name."""
    tables = stored(tmp_path / "tables", cut_log(tmp_path / "n", 30_000))
    manifest = json.loads((tables / MANIFEST).read_text())
    manifest["logs"]["default"]["captures"] = ["a recording"]
    (tables / MANIFEST).write_text(json.dumps(manifest))
    plan, notes = plan_of((cut_log(tmp_path / "n"),), current_tables(tables))
    assert plan is not None
    assert (plan.held.captures, set(plan.shown), notes) == ({"a recording"}, set(METADATA_TABLES), [])
    plan, (note,) = plan_of((cut_log(tmp_path / "n"),), current_tables(tables), "other")
    assert plan is None
    assert "1 captures of it are not named" in note


@pytest.mark.slow
@pytest.mark.parametrize(("run", "node"), [("kraft-4.1-c", 1001), (RUN, NODE)])
def test_a_log_and_a_capture_that_come_one_after_the_other_are_those_that_come_together(
    run: str, node: int, tmp_path: Path
) -> None:
    sources = capture(run), metadata(run, node)
    together = open_tables(stored(tmp_path / "both", *sources))
    for number, (first, second) in enumerate((sources, sources[::-1])):
        former = stored(tmp_path / f"one {number}", first)
        tables = stored(tmp_path / f"two {number}", second, former=former)
        agree(open_tables(tables), together)
        held = json.loads((tables / MANIFEST).read_text())["logs"]["default"]
        assert len(held["captures"]) == 1
        assert held["segments"]
        files = "SELECT file, capture FROM captures WHERE format = 'metadata log' ORDER BY file"
        assert ask_sql(open_tables(tables), files).rows == ask_sql(together, files).rows


def test_a_capture_that_shows_no_record_makes_no_log(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    with gzip.open(capture(RUN)) as file:
        empty.write_bytes(file.read(24))
    plan, _notes = plan_of((empty,), None)
    assert plan is not None
    made = write_log(plan, tmp_path / "run", Filters(), "default", live_from_us=0)
    assert (made.rows, made.shown_by) == ({}, [])
    assert "without a fetch of the metadata log" in made.bad_inputs["reason"][0].as_py()


def test_another_log_leaves_that_of_the_tables_as_it_is(tmp_path: Path) -> None:
    tables = current_tables(stored(tmp_path / "one", metadata(RUN, NODE)))
    plan, notes = plan_of((metadata("kraft-3.9-a", 1000),), tables)
    assert plan is None
    assert notes == [
        "the metadata log of cluster 'default' is left as the tables have it; what is named is another one: name its "
        "cluster with --cluster, or make new tables with --overwrite"
    ]


def test_tables_keep_no_secrets_of_a_log(tmp_path: Path) -> None:
    node = tmp_path / "n"
    node.mkdir()
    level = FeatureLevelRecord(name="metadata.version", feature_level=20)
    password = ConfigRecord(resource_type=4, resource_name="1", name="ssl.key.password", value="gone-fishing")
    scram = UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"pepper", stored_key=b"key-one", server_key=b"key-two", iterations=4096
    )
    (node / f"{0:020}.log").write_bytes(batch_of(level, password) + batch_of(scram, base_offset=2))
    tables = stored(tmp_path / "one", node)
    (file,) = current_tables(tables).files("known_batches")
    data = b"".join(read_parquet(file)["data"].to_pylist())
    assert b"metadata.version" in data
    for secret in (b"gone-fishing", b"pepper", b"key-one", b"key-two"):
        assert secret not in data
    grown = (node / f"{0:020}.log").read_bytes() + batch_of(level, base_offset=3)
    (node / f"{0:020}.log").write_bytes(grown)
    again = stored(tmp_path / "two", node, former=tables)  # a batch is the same with its secrets and without
    records = "SELECT * FROM metadata_records ORDER BY log_offset"
    assert ask_sql(open_tables(again), records).rows == ask_sql(open_tables(read(str(node))), records).rows
    assert len(ask_sql(open_tables(again), records).rows) == 4
    assert ask_sql(open_tables(again), "SELECT * FROM bad_inputs").rows == []


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"no Parquet at all",
        {"a": [1]},
        {"snapshot": [{"a": 1}], "sent_in": [{"a": 1}], "data": [{"a": 1}]},
        {"snapshot": [None], "sent_in": [1], "data": [b"short"]},
        {"snapshot": [None], "sent_in": [1], "data": [None]},
        {"snapshot": [None], "sent_in": [None], "data": [bytes(61)]},
        {"snapshot": ["one"], "sent_in": [1], "data": [bytes(61)]},
    ],
)
def test_a_damaged_log_in_the_tables_is_an_error_of_one_line(damage: Any, tmp_path: Path) -> None:
    tables = stored(tmp_path / "one", piece(tmp_path / "n", 0, 100))
    (file,) = current_tables(tables).files("known_batches")
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    elif "data" in damage and damage["sent_in"] != [{"a": 1}]:
        pq.write_table(pa.table(damage, KNOWN["known_batches"]), file)
    else:
        pq.write_table(pa.table(damage), file)
    with pytest.raises(ConfigurationError) as caught:
        stored(tmp_path / "two", piece(tmp_path / "n", 50, 200), former=tables)
    assert "\n" not in str(caught.value)


def test_a_log_of_which_former_tables_kept_nothing_is_left_as_it_is(tmp_path: Path) -> None:
    held = held_of(cut_log(tmp_path / "n"))
    plan, notes = plan_of((metadata("kraft-3.9-a", 1000),), StoredTables(tmp_path, {}, {"logs": held}))
    assert plan is None
    assert "1 segments of it are not named: name them too" in notes[0]
    both = planned(metadata("kraft-3.9-a", 1000), tmp_path / "n", held=held)
    assert both is not None
    longer = planned(metadata(RUN, 1002), held=held)  # another node's copy, which begins as the one that is held
    assert longer is not None
    other = planned(metadata("kraft-3.9-a", 1000), held=held, cluster="other")
    assert other is not None
    assert other.replaced == []


@pytest.mark.parametrize(
    "entry",
    [
        {"segments": ["/etc/passwd"], "others": [], "captures": [], "blank": []},
        {"segments": [[1, 2]], "others": [], "captures": [], "blank": []},
        {"segments": [[-1, "a"]], "others": [], "captures": [], "blank": []},
        {"segments": [], "others": [], "captures": [3], "blank": []},
        {"segments": [], "others": []},
        [],
        "x",
    ],
)
def test_what_a_manifest_says_of_a_log_is_checked(entry: object, tmp_path: Path) -> None:
    manifest = {"run": f"{RUNS}/one", "schema": SCHEMA, "files": {}, "tables": {}, "logs": {"default": entry}}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ConfigurationError, match="its 'logs' says"):
        current_tables(tmp_path)


def test_no_table_of_a_log_remembers_a_path_that_is_read() -> None:
    assert str(metadata(RUN, NODE)) not in json.dumps(held_of(metadata(RUN, NODE)))


@pytest.mark.spark
def test_analyze_stores_a_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "tables")
    node = cut_log(tmp_path / "n", 30_000)
    analyze(spark, [str(node)], out)
    same(out.path, node)
    assert unchanged([str(node)], out) is not None
    node = cut_log(tmp_path / "n")
    assert unchanged([str(node)], out) is None
    run = analyze(spark, [str(node)], out)
    same(out.path, node)
    assert run.rows == current_tables(out.path).counts()
    again = analyze(spark, [str(node)], out)
    assert (again.rows, again.captures_read) == (run.rows, 0)
    node = piece(node, 400, 1000)  # Kafka has deleted the old segments
    whole = piece(tmp_path / "whole" / "n", 0, 1000)
    analyze(spark, [str(node)], out)
    same(out.path, whole)
    node = cut_log(node)
    analyze(spark, [str(node)], out)
    (summary,) = answers((node,), "summary")
    told = json.loads(summary)
    assert {name: run.summary[name] for name in told if name in run.summary} == {
        name: told[name] for name in told if name in run.summary
    }
    kproto_prints("report", out.path, "--out", tmp_path / "page.html")


@pytest.mark.spark
def test_analyze_stores_a_log_beside_captures(spark: SparkSession, tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "tables")
    sources = (capture(RUN), metadata(RUN, NODE))
    run = analyze(spark, list(map(str, sources)), out)
    same(out.path, *sources)
    assert not run.bad_inputs
    assert unchanged(list(map(str, sources)), out) is not None
    analyze(spark, [str(metadata(RUN, NODE))], out)
    same(out.path, *sources)
    grows = OutputDirectory(tmp_path / "grows")
    node = cut_log(tmp_path / "n", 30_000)
    analyze(spark, [str(capture(RUN)), str(node)], grows)
    node = cut_log(node)
    run = analyze(spark, [str(node)], grows)  # the capture stays where it was recorded
    assert (run.notes, run.rows) == ([], current_tables(grows.path).counts())
    same(grows.path, capture(RUN), node)
    alone = OutputDirectory(tmp_path / "alone")
    analyze(spark, [str(metadata(RUN, NODE))], alone)
    run = analyze(spark, [str(capture(RUN))], alone)  # it comes later
    assert (run.notes, run.bad_inputs) == ([], [])
    same(alone.path, *sources)
    first = OutputDirectory(tmp_path / "first")
    run = analyze(spark, [str(capture(RUN))], first)
    assert (run.notes, run.bad_inputs) == ([], [])
    same(first.path, capture(RUN))
    assert unchanged([str(capture(RUN))], first) is not None
    analyze(spark, [str(metadata(RUN, NODE))], first)
    same(first.path, *sources)
