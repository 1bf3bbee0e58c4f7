"""A later run reads what is new; it gives what one run over everything gives, in few Spark jobs."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from packets import pcap, read_pcap
from table_truth import CAPTURES

from kproto.errors import ConfigurationError
from kproto.pipeline import OutputDirectory, analyze, unchanged
from kproto.pipeline.facts import changes_ids, facts_as_bytes, stored_facts
from kproto.pipeline.upkeep import compact, expire
from kproto.tables import TABLES, Filters, read
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.stored import current_run, current_tables
from kproto.tables.writing import DATED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = ("ibp-3.9-a.", "external-controller-a.", "ibp-2.8-a.")


@pytest.fixture
def captures(tmp_path: Path) -> list[str]:
    """Copies that a test may change."""
    (tmp_path / "captures").mkdir()
    found = [path for name in NAMES for path in CAPTURES if path.name.startswith(name)]
    return [str(shutil.copy2(path, tmp_path / "captures")) for path in found]


def rows(path: Path) -> dict[str, list[str]]:
    """All rows of all tables, labels apart; of a body that was sent again its broker epoch may be that of any."""
    found: dict[str, list[str]] = {}
    for name in TABLES:
        table = pq.read_table(path / name)
        columns = [
            column for column in table.column_names if column not in ("payload", "conn_id", "losses", "all_requests")
        ]
        found[name] = sorted(map(repr, table.select(columns).to_pylist()))
    return found


def inodes(path: Path) -> dict[str, int]:
    run = current_run(path)
    return {str(file.relative_to(run)): file.stat().st_ino for file in run.rglob("*.parquet")}


def test_a_second_run_over_the_same_captures_changes_nothing(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    out = OutputDirectory(tmp_path / "out")
    first = analyze(spark, captures, out)
    manifest, files = (out.path / "_kproto.json").read_bytes(), inodes(out.path)
    known = unchanged(captures, out)
    assert known is not None
    again = analyze(spark, captures, out)
    for run in (known, again):
        assert run.captures_read == 0
        assert (run.rows, run.summary, run.bad_inputs) == (first.rows, first.summary, first.bad_inputs)
    assert (out.path / "_kproto.json").read_bytes() == manifest
    assert inodes(out.path) == files
    assert len(list((out.path / "kproto-runs").iterdir())) == 1


def test_new_captures_are_added_without_reading_the_others(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    out, whole = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    analyze(spark, captures[:1], out)
    before, base = inodes(out.path), current_run(out.path)
    run = analyze(spark, captures, out)
    assert run.captures_read == 2
    assert current_run(out.path) == base
    once = analyze(spark, captures, whole)
    assert rows(out.path) == rows(whole.path)
    assert (run.rows, run.summary, run.bodies_decoded) == (once.rows, once.summary, once.bodies_decoded)
    small = ("brokers/", "captures/", "bad_inputs/", "known_")  # a run writes small files anew, with its own rows
    assert {(file, inode) for file, inode in before.items() if not file.startswith(small)} <= inodes(out.path).items()
    assert unchanged(captures, out) is not None


def test_adding_a_capture_reads_no_row_of_the_others(spark: SparkSession, captures: list[str], tmp_path: Path) -> None:
    """But for the ids of sets of live brokers."""
    out = OutputDirectory(tmp_path / "out")
    analyze(spark, captures[:1], out)
    for file in current_run(out.path).rglob("*.parquet"):
        if file.relative_to(current_run(out.path)).parts[0] in {*DATED}:
            file.write_bytes(b"not read")
    run = analyze(spark, captures[1:2], out)
    assert (run.captures_read, run.rows["captures"]) == (1, 2)
    assert [row["file"] for row in run.summary["captures"]] == [Path(captures[1]).name]


def test_another_capture_under_a_known_name_is_added(spark: SparkSession, captures: list[str], tmp_path: Path) -> None:
    out, whole = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    analyze(spark, captures, whole)
    analyze(spark, captures[:2], out)
    shutil.copyfile(captures[2], captures[1])
    assert unchanged(captures[:2], out) is None
    assert analyze(spark, captures[:2], out).captures_read == 1
    found, wanted = (pq.read_table(of.path / "requests")["frame_id"].to_pylist() for of in (out, whole))
    assert sorted(found) == sorted(wanted)
    os.utime(captures[0], ns=(1, 1))  # its bytes may have changed
    assert unchanged(captures[:2], out) is None
    assert analyze(spark, captures[:2], out).captures_read == 0
    assert unchanged(captures[:2], out) is not None


def test_other_filters_are_refused_and_rows_leave_by_overwrite_alone(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    out = OutputDirectory(tmp_path / "out")
    analyze(spark, captures[:2], out)
    before = rows(out.path)
    some = Filters(apis=frozenset({4}))
    assert unchanged(captures[:1], out) is not None
    with pytest.raises(ConfigurationError, match="were made with other filters"):
        analyze(spark, captures[:2], out, filters=some)
    Path(captures[0]).unlink()
    assert analyze(spark, captures[1:2], out).captures_read == 0
    assert rows(out.path) == before
    only = analyze(spark, captures[1:2], OutputDirectory(out.path, overwrite=True), filters=some)
    assert only.rows["captures"] == 1
    assert 0 < only.rows["requests"] < len(before["requests"])


def test_files_of_any_names_are_one_capture_where_its_place_is_named(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    """The frames between two files, too."""
    link, packets = read_pcap(Path(captures[0]))
    files, third = [], len(packets) // 3
    for n, name in enumerate(("monday", "evening", "second-try")):
        files.append(str(tmp_path / f"{name}.pcap"))
        Path(files[-1]).write_bytes(pcap(packets[n * third : (n + 1) * third if n < 2 else None], link))
    whole = analyze(spark, captures[:1], OutputDirectory(tmp_path / "whole"))
    out = OutputDirectory(tmp_path / "out")
    run = analyze(spark, files[::-1], out, capture_point="broker-1")
    assert {**run.rows, "captures": 1, "brokers": 1} == {**whole.rows, "captures": 1, "brokers": 1}
    assert set(pq.read_table(out.path / "frames", columns=["capture"])["capture"].to_pylist()) == {"broker-1"}
    assert unchanged(files, out, None, "broker-1") is not None
    assert unchanged(files, out) is not None


def test_what_new_captures_tell_of_the_brokers_changes_former_requests(tmp_path: Path) -> None:
    known, new = BrokerFacts(), BrokerFacts()
    known.learn_listeners(5, "a", [(1, "10.0.0.1", 9092)])
    new.learn_listeners(7, "b", [(2, "10.0.0.2", 9092)])
    together = BrokerDirectory()
    BrokerFacts.joined([known, new]).teach(together)
    known.addresses.add(("a", "10.0.0.1", 9092))
    assert not changes_ids(known, together, Filters())
    known.addresses.add(("a", "10.0.0.2", 9092))  # nothing told its id when the former run was made
    (tmp_path / "brokers-1").write_bytes(facts_as_bytes(known))
    assert changes_ids(stored_facts(tmp_path, "brokers-1"), together, Filters())


@pytest.mark.parametrize("count", [1, 3])
def test_all_tables_take_few_spark_jobs(spark: SparkSession, captures: list[str], tmp_path: Path, count: int) -> None:
    """Each job costs a person a moment, however little there is to do."""
    context: Any = spark.sparkContext
    group = f"count {count}"
    context.setJobGroup(group, "counted")
    try:
        analyze(spark, captures[:count], OutputDirectory(tmp_path / "out"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert 0 < len(context.statusTracker().getJobIdsForGroup(group)) <= (2 if count == 1 else 10)


def test_a_later_run_may_change_the_cluster_and_no_name_of_one_has_a_slash(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    out = OutputDirectory(tmp_path / "out")
    analyze(spark, captures[:1], out, cluster="east")
    east = pq.read_table(tmp_path / "out/requests").to_pylist()
    assert {row["cluster"] for row in east} == {"east"}
    analyze(spark, captures[:1], out, cluster="west")
    west = pq.read_table(tmp_path / "out/requests").to_pylist()
    assert {row["cluster"] for row in west} == {"west"}
    assert {row["capture"].partition("/")[0] for row in west} == {"west"}
    assert sorted(row["frame_id"] for row in west) == sorted(row["frame_id"] for row in east)
    with pytest.raises(ConfigurationError, match="without a slash"):
        analyze(spark, captures[:1], out, cluster="a/b")


def cut_within_requests(name: str, folder: Path) -> list[Path]:
    """A sample capture as rotated files, each of which ends between a request's first packet and its response."""
    capture = next(path for path in CAPTURES if path.name.startswith(name))
    link, packets = read_pcap(capture)
    asked = [row["ts_ns"] for row in read(capture)["frames"].to_pylist() if row["direction"] == "request"]
    asked = sorted(asked)[len(asked) // 5 :: len(asked) // 5]
    ends = [next(n for n, packet in enumerate(packets) if packet.time_ns > ts) for ts in asked]
    files = []
    folder.mkdir()
    for number, (begin, end) in enumerate(zip([0, *ends], [*ends, None], strict=True)):
        files.append(folder / f"control.pcap{number or ''}")
        files[-1].write_bytes(pcap(packets[begin:end], link))
    return files


def test_a_rotated_capture_goes_on_with_its_new_files_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Added file by file, of which the first are gone soon, it gives the tables of one run over all."""
    files = cut_within_requests("ibp-3.9-migration-a.", tmp_path / "recorded")
    folder, out, whole = tmp_path / "captures", OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    folder.mkdir()
    for number, file in enumerate(files):
        if number > 1:
            (folder / files[number - 2].name).unlink()  # reading it again would fail
        shutil.copy2(file, folder)
        run = analyze(spark, [str(folder)], out)
        assert run.captures_read == 1
        assert unchanged([str(folder)], out) is not None
    analyze(spark, [str(file) for file in files], whole)
    assert rows(out.path) == rows(whole.path)
    stored, once = current_tables(out.path), current_tables(whole.path)
    assert stored.counts() == once.counts()
    assert len(rows(out.path)["requests"]) > 100


def test_other_captures_and_upkeep_leave_a_rotated_capture_where_it_was(
    spark: SparkSession, captures: list[str], tmp_path: Path
) -> None:
    files = cut_within_requests("ibp-2.8-a.", tmp_path / "recorded")
    out, whole = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    three, four, every = ([str(file) for file in files[:count]] for count in (3, 4, None))
    analyze(spark, three, out)
    assert analyze(spark, captures[:1], out).captures_read == 1
    compact(out)
    assert analyze(spark, [*four, captures[1]], out).captures_read == 2
    expire(out, datetime(2020, 1, 1, tzinfo=UTC))
    assert analyze(spark, every, out).captures_read == len(every) - 4
    analyze(spark, [*every, *captures[:2]], whole)
    assert rows(out.path) == rows(whole.path)


def test_a_state_that_is_damaged_costs_what_stands_on_both_sides_of_a_border(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = cut_within_requests("ibp-2.8-a.", tmp_path / "recorded")
    out, whole = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    analyze(spark, [str(file) for file in files[:2]], out)
    for edges in current_run(out.path).glob("edges-*"):
        edges.write_bytes(edges.read_bytes()[:-100])
    analyze(spark, [str(file) for file in files], out)
    analyze(spark, [str(file) for file in files], whole)
    lost = set(rows(whole.path)["requests"]) - set(rows(out.path)["requests"])
    assert 0 < len(lost) < 10


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_kill_around_the_commit_leaves_goes_with_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """Copies made before the manifest is written, or before former files are removed, are what a kill leaves."""
    files = cut_within_requests("ibp-2.8-a.", tmp_path / "recorded")
    out, whole = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "whole")
    killed, upkept = OutputDirectory(tmp_path / "killed"), OutputDirectory(tmp_path / "upkept")
    three, every = [str(file) for file in files[:3]], [str(file) for file in files]
    analyze(spark, three[:2], out)
    publish = OutputDirectory.publish

    def stopped(self: OutputDirectory, *arguments: Any) -> None:
        if committed:
            publish(self, *arguments)
        for other in (killed, upkept):
            shutil.copytree(out.path, other.path, symlinks=True)
        if not committed:
            publish(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(OutputDirectory, "publish", stopped)
        analyze(spark, three, out)
    for other in (killed, upkept):
        assert unnamed(other.path)
    assert (unchanged(three, killed) is not None) == committed
    analyze(spark, every, killed)
    compact(upkept)
    assert unnamed(killed.path) == unnamed(upkept.path) == set()
    analyze(spark, every, upkept)
    analyze(spark, every, whole)
    assert rows(killed.path) == rows(upkept.path) == rows(whole.path)


def unnamed(path: Path) -> set[str]:
    """The files of the current run that its manifest does not name."""
    stored = current_tables(path)
    named = {*stored.rows, *stored.facts["beside"], "summary.json"}
    return {str(file.relative_to(stored.run)) for file in stored.run.rglob("*") if file.is_file()} - named
