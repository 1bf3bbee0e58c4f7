"""The format ``kafka_control``: found by Spark itself, reading what the tables are made of."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from table_truth import CAPTURES, name_of

from kproto.tables import SCAN, scan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CAPTURE = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture, the same with its end cut off, and a file that is none."""
    made = tmp_path_factory.mktemp("kafka control")
    shutil.copy(CAPTURE, made / "a.pcap.gz")
    (made / "cut.pcap").write_bytes(gzip.decompress(CAPTURE.read_bytes())[:-5])
    (made / "notes.txt").write_text("not a capture")
    return made


def test_frames_are_those_of_the_scan(spark: SparkSession, folder: Path) -> None:
    found = spark.read.format("kafka_control").load(f"file://{folder}/a.pcap.gz")
    expected = pa.Table.from_batches(scan([str(folder / "a.pcap.gz")]), SCAN)
    expected = expected.filter(expected["frame_id"].is_valid()).select(found.columns)
    assert found.toArrow().sort_by("frame_id").to_pylist() == expected.sort_by("frame_id").to_pylist()
    assert expected.num_rows > 100


def test_sql_reads_a_view_with_options(spark: SparkSession, folder: Path) -> None:
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW control USING kafka_control OPTIONS (
        path '{folder}/a.pcap.gz', apis 'LeaderAndIsr, 5', columns 'api_key, direction, ts, payload', payload 'all')"""
    )
    (row,) = spark.sql(
        "SELECT collect_set(api_key) AS apis, count(*) AS frames, count(payload) AS payloads, max(ts) AS last "
        "FROM control"
    ).collect()
    assert set(row.apis) == {4, 5}
    assert row.frames == row.payloads > 50
    few = spark.read.format("kafka_control").options(since=row["last"].isoformat() + "+00:00", payload="none")
    later = few.load(f"{folder}/a.pcap.gz").select("direction", "payload").collect()
    assert 0 < len(later) < row.frames
    assert {frame.payload for frame in later} == {None}


def test_what_is_damaged_or_no_capture_costs_itself_alone(spark: SparkSession, folder: Path) -> None:
    load = spark.read.format("kafka_control").option("table", "bad_inputs").load
    bad = {row.file: row for row in load([f"{folder}/cut.pcap", f"{folder}/notes.txt"]).collect()}
    assert bad["cut.pcap"].reason == "the file ends within a packet"
    assert bad["cut.pcap"].offset > 100_000
    assert "not a capture" in bad["notes.txt"].reason
    assert bad["notes.txt"].offset is None
    captures = spark.read.format("kafka_control").option("table", "captures").load(str(folder)).collect()
    assert {row.file for row in captures} == {"a.pcap.gz", "cut.pcap"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tabel": "frames"}, "no option 'tabel'"),
        ({"table": "frame"}, "no table 'frame'"),
        ({"apis": "LeaderAndIsrs"}, "no api"),
        ({"columns": "ts,tz"}, "no column 'tz'"),
        ({"since": "yesterday"}, "is no moment"),
        ({"ports": "kafka"}, "not a list of numbers"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, folder: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(AnalysisException, match=said):
        spark.read.format("kafka_control").options(**options).load(str(folder))
