"""Stored tables of KRaft's metadata log answer as its files do, and a log that grew goes on; no path is remembered."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from kraft_runs import capture, metadata

from kproto.cli import main
from kproto.errors import ConfigurationError
from kproto.pipeline import OutputDirectory, analyze
from kproto.pipeline.job import unchanged
from kproto.pipeline.metadata_log import LogPlan, logs_among, plan_log, write_log
from kproto.pipeline.upkeep import compact, expire
from kproto.query import QUESTIONS, ask, ask_sql, open_tables
from kproto.tables import read
from kproto.tables.filters import Filters
from kproto.tables.places import MANIFEST
from kproto.tables.schemas import METADATA_TABLES, TABLES
from kproto.tables.stored import RUNS, SCHEMA, StoredTables, current_tables
from kproto.tables.writing import write_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RUN, NODE = "kraft-4.1-a", 1000


def answers(source: tuple[Path, ...], *words: str) -> list[str]:
    """The JSON lines that a command gives about a source, sorted."""
    command, *rest = words
    result = CliRunner().invoke(main, [command, *map(str, source), *rest, "--format", "json"], prog_name="kproto")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    for row in found:  # how to ask for more names the source; who asked for an ISR is not stored
        for name in ("asked_by", "evidence", "command") if command != "summary" else ():
            row.pop(name, None)
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def same(tables: Path, *source: Path) -> None:
    """Stored tables answer every question as their source, and have the same rows of a metadata log."""
    stored_rows, read_rows = open_tables(tables), open_tables(read(*map(str, source)))
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


def planned(*sources: Path, held: dict[str, Any] | None = None, cluster: str = "default") -> LogPlan | None:
    files, others = logs_among([str(each) for each in sources])
    assert files
    assert not others
    stored = None if held is None else StoredTables(sources[0], {}, {"logs": held})
    return plan_log(files, {}, {}, stored, cluster, is_more_shown=False)


def held_of(*sources: Path) -> dict[str, Any]:
    plan = planned(*sources)
    assert plan is not None
    held: dict[str, Any] = json.loads(json.dumps(plan.held_with([]).to_json()))
    return {"default": held}


def stored(place: Path, *sources: Path) -> Path:
    """The tables of a log, written without Spark."""
    plan = planned(*sources)
    assert plan is not None
    run = place / RUNS / "one"
    rows = write_log(plan, run, Filters(), "default", lists_live=True).rows
    for name, schema in TABLES.items():
        if not any(file.startswith(f"{name}/") for file in rows):
            rows[f"{name}/part-empty.zstd.parquet"] = 0
            write_table(run / f"{name}/part-empty.zstd.parquet", name, schema.empty_table())
    manifest = {
        "run": f"{RUNS}/one", "schema": SCHEMA, "files": rows, "tables": StoredTables(run, rows, {}).counts(),
        "logs": held_of(*sources), "seconds": 1.0, "bodies_decoded": 0, "recordings": [], "spans": {}, "base": "one",
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
    expire(OutputDirectory(tables), datetime(2026, 11, 26, 12, tzinfo=UTC))  # the day of the run stays
    assert current_tables(tables).counts() == before
    expire(OutputDirectory(tables), datetime(2026, 11, 28, tzinfo=UTC))
    after = current_tables(tables).counts()
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


def test_a_log_of_which_files_are_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    held = held_of(cut_log(tmp_path / "n"))
    with pytest.raises(ConfigurationError, match="of which 1 segments are not named: name them too"):
        planned(metadata("kraft-3.9-a", 1000), held=held)
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
    (summary,) = answers((node,), "summary")
    told = json.loads(summary)
    assert {name: run.summary[name] for name in told if name in run.summary} == {
        name: told[name] for name in told if name in run.summary
    }
    page = CliRunner().invoke(main, ["report", str(out.path), "--out", str(tmp_path / "page.html")])
    assert page.exit_code == 0, page.output


@pytest.mark.spark
def test_analyze_stores_a_log_beside_captures(spark: SparkSession, tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "tables")
    sources = (capture(RUN), metadata(RUN, NODE))
    run = analyze(spark, list(map(str, sources)), out)
    same(out.path, *sources)
    assert not run.bad_inputs
    assert unchanged(list(map(str, sources)), out) is not None
    with pytest.raises(ConfigurationError, match="of which 1 captures are not named"):
        analyze(spark, [str(metadata(RUN, NODE))], out)
    alone = OutputDirectory(tmp_path / "alone")
    analyze(spark, [str(metadata(RUN, NODE))], alone)  # the capture comes later
    analyze(spark, list(map(str, sources)), alone)
    same(alone.path, *sources)
