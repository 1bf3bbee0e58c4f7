"""One analysis of all sample captures: what it says of itself, what readers find, and what it did only once."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES

import kproto.tables
from kproto.pipeline import OutputDirectory, analyze, job, tasks
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.stages import TaskOutput
from kproto.tables import TABLES, chunks
from kproto.verdicts import summarize
from kproto.verdicts.summary import Figures

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from table_truth import Analyzed

pytestmark = pytest.mark.spark

LABELS = {"capture", "file", "conn_id", "payload", "first_ts"}
DATED = {"requests", "responses", "partition_errors", "frames", "bodies", "partition_states"}


def test_each_capture_is_read_exactly_once(analyzed: Analyzed) -> None:
    assert analyzed.run.captures_read == len(CAPTURES)


def test_each_distinct_body_is_decoded_exactly_once(analyzed: Analyzed) -> None:
    bodies = analyzed.rows("bodies")
    assert len({body["body_id"] for body in bodies}) == len(bodies) == analyzed.run.bodies_decoded
    named = {frame["body_id"] for frame in analyzed.rows("frames")} - {None}
    assert named == {body["body_id"] for body in bodies}
    whole = sum(frame["body_id"] is not None for frame in analyzed.rows("frames"))
    assert whole > 2 * len(bodies)


def test_receipts_of_many_tasks_are_merged_before_the_driver_takes_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_RECEIPTS_TOGETHER", 2)
    of_each = tasks.for_each(
        spark, 5, lambda numbers: (TaskOutput(Figures(), {f"task-{n}": {"file": n}}, bodies=n) for n in numbers)
    )
    made = tasks._merged(of_each, 5)
    assert made.files == {f"task-{n}": {"file": n} for n in range(5)}
    assert made.bodies == 10


@pytest.mark.parametrize("name", TABLES)
def test_files_have_exactly_the_columns_of_their_table(analyzed: Analyzed, name: str) -> None:
    files = sorted((analyzed.path / name).rglob("*.parquet"))
    assert files
    expected = [(field.name, field.type) for field in TABLES[name] if name not in DATED or field.name != "date"]
    for file in files:
        assert [(field.name, field.type) for field in pq.read_schema(file)] == expected
        for group in range(pq.read_metadata(file).num_row_groups):  # none in an empty table
            assert pq.read_metadata(file).row_group(group).column(0).compression == "ZSTD"
        assert ("date=" in str(file)) == (name in DATED)


@pytest.mark.parametrize("name", TABLES)
def test_readers_agree_on_the_number_of_rows(analyzed: Analyzed, spark: SparkSession, name: str) -> None:
    rows = analyzed.run.rows[name]
    assert len(analyzed.rows(name)) == rows
    assert rows > 0 or name == "bad_inputs"
    query = "select count(*) from read_parquet(?)"
    assert duckdb.execute(query, [f"{analyzed.path}/{name}/**/*.parquet"]).fetchone() == (rows,)
    found = spark.read.parquet(str(analyzed.path / name))
    assert found.count() == rows
    wanted = spark_schema(TABLES[name])
    assert dict(found.dtypes) == {f.name: f.dataType.simpleString() for f in wanted} | (
        {"date": "date"} if name in DATED else {}
    )


def test_the_manifest_says_what_was_done(analyzed: Analyzed) -> None:
    manifest = json.loads((analyzed.path / "_kproto.json").read_text())
    assert manifest["tables"] == analyzed.run.rows
    assert manifest["inputs"] == [str(path) for path in CAPTURES]
    assert manifest["bodies_decoded"] == analyzed.run.bodies_decoded
    assert (analyzed.path / manifest["run"] / "requests").is_dir()
    found = sorted(path.name for path in analyzed.path.iterdir())
    assert found == sorted(["_kproto.json", "current", "kproto-runs", *TABLES])


def test_requests_that_nobody_can_read_have_their_row_and_no_states(analyzed: Analyzed) -> None:
    unreadable = [row for row in analyzed.rows("requests") if row["decode_error"]]
    captures = {frame["frame_id"]: frame["capture"] for frame in analyzed.rows("frames")}
    odd = [row for row in unreadable if captures[row["frame_id"]].startswith("external-controller")]
    assert sorted((row["api_key"], row["api_version"]) for row in odd) == [
        (4, 7), (4, 8), (4, 99), (5, 5), (6, -1), (6, 8), (6, 8), (6, 9),
    ]  # fmt: skip
    states = {state["body_id"] for state in analyzed.rows("partition_states")}
    for row in odd:
        assert row["controller_id"] is None
        assert row["error_code"] is None
        assert row["unmatched_reason"]
        assert row["body_id"] not in states
    assert {captures[row["frame_id"]] for row in unreadable} <= {
        "external-controller-a.pcap",
        "ibp-3.9-a-lossy.pcap",
    }


def test_refusals_are_in_the_tables_with_their_codes(analyzed: Analyzed) -> None:
    codes = {row["error_code"] for row in analyzed.rows("requests")}
    assert {0, -1, 11, 77} <= codes
    assert {3, 11, 74, 77, 103, -1} <= {row["error_code"] for row in analyzed.rows("partition_errors")}
    names = {row["topic"] for row in analyzed.rows("partition_errors")}
    assert "made.by-python_1" in names  # from its id, by way of the request


def test_a_migration_shows_both_controllers_and_full_updates(analyzed: Analyzed) -> None:
    captures = {frame["frame_id"]: frame["capture"] for frame in analyzed.rows("frames")}
    rows = [r for r in analyzed.rows("requests") if captures[r["frame_id"]].startswith("ibp-3.9-migration")]
    kraft = [row for row in rows if row["is_kraft_controller"]]
    assert {row["controller_id"] for row in kraft} == {3000}
    assert {row["controller_id"] for row in rows if not row["is_kraft_controller"]} == {1}
    assert {row["type"] for row in kraft if row["api_key"] == 4} == {1, 2}
    assert {row["type"] for row in kraft if row["api_key"] == 6} == {0, 1, 2}


def test_gaps_are_marked_never_guessed(analyzed: Analyzed) -> None:
    frames = {frame["frame_id"]: frame for frame in analyzed.rows("frames")}
    for row in analyzed.rows("requests"):
        if frames[row["frame_id"]]["status"] != 0:
            assert row["body_id"] is None
            assert "not in the capture" in row["decode_error"]


def test_one_name_joins_all_that_is_said_of_a_request(analyzed: Analyzed) -> None:
    requests = {row["frame_id"]: row for row in analyzed.rows("requests")}
    responses = {row["frame_id"]: row for row in analyzed.rows("responses")}
    frames = {row["frame_id"] for row in analyzed.rows("frames")}
    answered = {frame_id for frame_id, row in requests.items() if row["response_frame_id"]}
    assert set(responses) == answered
    for row in [*responses.values(), *analyzed.rows("partition_errors")]:
        assert row["response_frame_id"] == requests[row["frame_id"]]["response_frame_id"]
        assert row["response_frame_id"] in frames
    counts = Counter(row["frame_id"] for row in analyzed.rows("partition_errors"))
    assert {frame_id: row["n_partition_errors"] or 0 for frame_id, row in responses.items()} == {
        frame_id: counts[frame_id] for frame_id in responses
    }


def test_the_summary_counts_what_the_tables_hold(analyzed: Analyzed) -> None:
    requests, summary = analyzed.rows("requests"), analyzed.summary
    counted = {(r["api_key"], r["api_version"], r["error_code"]): r["count"] for r in summary["requests"]}
    assert counted == Counter((r["api_key"], r["api_version"], r["error_code"]) for r in requests)
    assert len(counted) == len(summary["requests"])
    unanswered = sum(row["response_frame_id"] is None for row in requests)
    assert sum(row["count"] for row in summary["unanswered"]) == unanswered > 0
    assert sum(row["unanswered"] for row in summary["requests"]) == unanswered
    assert sum(row["count"] for row in summary["partition_errors"]) == len(analyzed.rows("partition_errors"))


def test_the_summary_counts_leader_and_isr_changes_by_epoch(analyzed: Analyzed) -> None:
    """Counted again here, in plain Python, from the tables of all captures."""
    bodies = {row["body_id"] for row in analyzed.rows("requests") if row["error_code"] in (0, None)}
    steps: dict[tuple[str, bytes, int], set[Any]] = {}
    for s in analyzed.rows("partition_states"):
        if s["body_id"] in bodies and s["api_key"] != 5 and s["leader"] != -2:
            epochs = (s["controller_epoch"], s["leader_epoch"], s["partition_epoch"])
            key = (s["topic"], s["topic_id"], s["partition"])
            steps.setdefault(key, set()).add((epochs, s["leader"], ",".join(map(str, s["isr"]))))
    changes: Counter[tuple[str, int]] = Counter()
    for (topic, _topic_id, partition), states in steps.items():
        changes[topic, partition] += sum(a[1] != b[1] for a, b in pairwise(sorted(states)))
    assert analyzed.summary["changes"]["leader_changes"] == changes.total() > 100
    listed = analyzed.summary["most_changed"]
    assert [row["leader_changes"] for row in listed] == sorted(changes.values(), reverse=True)[:10]
    for row in listed:
        assert row["leader_changes"] == changes[row["topic"], row["partition"]]


def test_tasks_that_each_count_a_part_of_the_partitions_count_as_the_driver_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States are left in parts, which two pieces cut alike; a part's task reads that of each."""
    parts: list[int] = []

    def count_changes(_spark: SparkSession, made: TaskOutput) -> Any:
        parts.append(made.history_parts)
        here = tasks.count_changes(_spark, made)
        monkeypatch.setattr(tasks, "_STATES_ON_DRIVER", 0)
        totals, listed = tasks.count_changes(_spark, made)
        assert (totals, listed) == here
        assert listed
        return here

    monkeypatch.setattr(tasks, "_BODY_BYTES_A_TASK", 1 << 15)
    monkeypatch.setattr(job, "count_changes", count_changes)
    analyze(spark, [str(path) for path in CAPTURES[:2]], OutputDirectory(tmp_path / "tables"))
    assert parts[0] > 2


def test_the_slowest_brokers_come_first(analyzed: Analyzed) -> None:
    rows = analyzed.summary["slowest"]
    assert [row["p99_ms"] for row in rows] == sorted((row["p99_ms"] for row in rows), reverse=True)
    assert all(0 <= row["median_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows)
    assert all(row["broker_id"] is not None for row in rows)
    latencies = sorted(
        row["latency_us"]
        for row in analyzed.rows("requests")
        if (row["server_ip"], row["server_port"]) == (rows[0]["ip"], rows[0]["port"]) and row["latency_us"] is not None
    )
    assert len(latencies) == rows[0]["answered"]
    assert rows[0]["max_ms"] == latencies[-1] / 1000
    assert rows[0]["median_ms"] == latencies[ceil(len(latencies) / 2) - 1] / 1000


@pytest.mark.parametrize("name", TABLES)
def test_tables_read_without_spark_are_those_that_spark_writes(
    analyzed: Analyzed, in_process: dict[str, pa.Table], name: str
) -> None:
    """Equal in names, types and rows, labels apart: of a packet in several captures either may be named."""
    written = pq.read_table(analyzed.path / name).select(TABLES[name].names)
    read = in_process[name]
    assert read.schema == TABLES[name]
    assert read.schema == written.schema.remove_metadata() or name in DATED
    columns = [column for column in TABLES[name].names if column not in LABELS]
    kind = set if name == "brokers" else sorted
    found, wanted = (table.select(columns).to_pylist() for table in (_of_schema(written, TABLES[name]), read))
    assert kind(map(repr, found)) == kind(map(repr, wanted))


def _of_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table read from partitioned files, whose dates came from the names of directories."""
    return table.cast(schema)


def test_the_summary_is_the_same_without_spark(analyzed: Analyzed) -> None:
    paths = [str(path) for path in CAPTURES]
    assert summarize(chunks(paths)) == analyzed.summary
    assert summarize(chunks(paths, chunk_bytes=100_000)) == analyzed.summary


@pytest.fixture(scope="module")
def in_process() -> dict[str, pa.Table]:
    return kproto.tables.read(*CAPTURES)
