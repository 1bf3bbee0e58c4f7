"""One analysis of all sample captures: what it says of itself, what readers find, and what it did only once."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES

from kproto.pipeline.relations import spark_schema
from kproto.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from table_truth import Analyzed

pytestmark = pytest.mark.spark

DATED = {"frames", "requests", "responses"}


def test_each_capture_is_read_exactly_once(analyzed: Analyzed) -> None:
    assert analyzed.run.captures_read == len(CAPTURES)


def test_each_distinct_body_is_decoded_exactly_once(analyzed: Analyzed) -> None:
    bodies = analyzed.rows("bodies")
    assert len({body["body_id"] for body in bodies}) == len(bodies) == analyzed.run.bodies_decoded
    named = {frame["body_id"] for frame in analyzed.rows("frames")} - {None}
    assert named == {body["body_id"] for body in bodies}
    whole = sum(frame["body_id"] is not None for frame in analyzed.rows("frames"))
    assert whole > 3 * len(bodies)


@pytest.mark.parametrize("name", TABLES)
def test_files_have_exactly_the_columns_of_their_table(analyzed: Analyzed, name: str) -> None:
    files = sorted((analyzed.path / name).rglob("*.parquet"))
    assert files
    expected = [(field.name, field.type) for field in TABLES[name] if name not in DATED or field.name != "date"]
    for file in files:
        assert [(field.name, field.type) for field in pq.read_schema(file)] == expected
        assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
        assert ("date=" in str(file)) == (name in DATED)


@pytest.mark.parametrize("name", TABLES)
def test_readers_agree_on_the_number_of_rows(analyzed: Analyzed, spark: SparkSession, name: str) -> None:
    rows = analyzed.run.rows[name]
    assert len(analyzed.rows(name)) == rows > 0
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
    assert sorted(path.name for path in analyzed.path.iterdir()) == sorted(["_kproto.json", *TABLES])


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
        "external-controller-a.pcap.gz",
        "ibp-3.9-a-lossy.pcap.gz",
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
    kraft = [row for row in rows if row["is_kraft"]]
    assert {row["controller_id"] for row in kraft} == {3000}
    assert {row["controller_id"] for row in rows if not row["is_kraft"]} == {1}
    assert {row["type"] for row in kraft if row["api_key"] == 4} == {1, 2}
    assert {row["type"] for row in kraft if row["api_key"] == 6} == {0, 1, 2}


def test_gaps_are_marked_never_guessed(analyzed: Analyzed) -> None:
    frames = {frame["frame_id"]: frame for frame in analyzed.rows("frames")}
    for row in analyzed.rows("requests"):
        if frames[row["frame_id"]]["status"] != 0:
            assert row["body_id"] is None
            assert "not in the capture" in row["decode_error"]


def test_the_summary_counts_what_the_tables_hold(analyzed: Analyzed) -> None:
    requests, summary = analyzed.rows("requests"), analyzed.summary
    assert sum(row["requests"] for row in summary["requests"]) == len(requests)
    stale = [row for row in summary["requests"] if (row["api_key"], row["error_code"]) == (6, 77)]
    assert [(row["api_version"], row["requests"]) for row in stale] == [(8, 3)]
    assert sum(row["requests"] for row in summary["unanswered"]) == sum(
        row["response_frame_id"] is None for row in requests
    )
    assert sum(row["partitions"] for row in summary["partition_errors"]) == len(analyzed.rows("partition_errors"))


def test_the_summary_knows_controllers_and_epochs(analyzed: Analyzed) -> None:
    seen = [
        (row["controller_id"], row["controller_epoch"], row["is_kraft"])
        for row in analyzed.summary["controllers"]
        if row["capture"] == "ibp-3.9-migration-a.pcap.gz"
    ]
    assert seen == [(1, 1, False), (3000, 2, True)]


def test_the_summary_counts_leader_and_isr_changes_by_epoch(analyzed: Analyzed) -> None:
    """Counted again here, in plain Python, from the tables of one capture."""
    name = "ibp-2.2-a.pcap.gz"
    frames = {frame["frame_id"] for frame in analyzed.rows("frames") if frame["capture"] == name}
    bodies = {
        r["body_id"] for r in analyzed.rows("requests") if r["frame_id"] in frames and r["error_code"] in (0, None)
    }
    steps: dict[tuple[str, int], set[Any]] = {}
    for s in analyzed.rows("partition_states"):
        if s["body_id"] in bodies and s["api_key"] != 5 and s["leader"] != -2:
            epochs = (s["controller_epoch"], s["leader_epoch"], s["partition_epoch"])
            key = (s["topic"], s["partition"])
            steps.setdefault(key, set()).add((epochs, s["leader"], tuple(sorted(s["isr"]))))
    changes = {}
    for key, states in steps.items():
        ordered = sorted(states)
        changes[key] = sum(a[1] != b[1] for a, b in pairwise(ordered))
    listed = [row for row in analyzed.summary["restless"] if row["capture"] == name]
    for row in listed:
        assert row["leader_changes"] == changes[row["topic"], row["partition"]]
    assert max(changes.values()) >= 3
    assert analyzed.summary["totals"][0]["leader_changes"] >= sum(changes.values()) > 0


def test_the_slowest_brokers_come_first(analyzed: Analyzed) -> None:
    rows = analyzed.summary["brokers"]
    assert len(rows) == 10
    assert [row["p99_us"] for row in rows] == sorted((row["p99_us"] for row in rows), reverse=True)
    assert all(0 <= row["median_us"] <= row["p99_us"] <= row["max_us"] for row in rows)
    assert all(row["broker"] is not None for row in rows)
