"""The format ``kafka_control``: found by Spark itself, reading what the tables are made of."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packets import pcap, pcapng, read_pcap
from pyspark.errors import AnalysisException, StreamingQueryException
from state_runs import logs_of
from table_truth import CAPTURES, name_of

from channel.network.recorder import PcapngRecorder
from kproto import capture
from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.logs import LogReading
from kproto.pipeline import read_frames, requests_of, states_of
from kproto.pipeline.options import checked
from kproto.tables import FRAMES, SCAN, read, scan
from kproto.tables.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CAPTURE = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
LOG = Path(__file__).parents[1] / "data" / "request_log" / "broker-0-kafka-request.log.gz"


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
    assert {row.cluster for row in found.select("cluster").distinct().collect()} == {"default"}
    found = found.drop("cluster")
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


def rows_of(frames: DataFrame, columns: list[str]) -> list[dict[str, object]]:
    return frames.select(columns).toArrow().sort_by("frame_id").to_pylist()  # type: ignore[no-any-return]


def test_large_and_rotated_captures_give_the_same_frames_from_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Parts of 40 kB of one file, of rotated files and of pcapng, beside captures that are too small for parts."""
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "large.pcap").write_bytes(gzip.decompress(CAPTURE.read_bytes()))
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))
    half = len(packets) // 2
    (folder / "control.pcap").write_bytes(pcap(packets[:half], link))
    (folder / "control.pcap1").write_bytes(pcap(packets[half:], link))
    (folder / "blocks.pcapng").write_bytes(pcapng(packets, link))
    (folder / "packed").mkdir()
    shutil.copy(CAPTURE, folder / "packed" / "a.pcap.gz")
    captures = [str(folder), str(folder / "packed")]
    whole = spark.read.format("kafka_control").load(captures)
    parted = read_frames(spark, captures)
    columns = [name for name in whole.columns if name != "payload"]
    expected = rows_of(whole, columns)
    assert len(expected) > 2000
    assert rows_of(parted, columns) == expected
    bodies = [set(frames.where("payload is not null").select("body_id").collect()) for frames in (whole, parted)]
    assert bodies[0] == bodies[1] != set()
    some = read_frames(spark, captures, apis="StopReplica", columns="frame_id,api_key")
    assert some.columns == ["frame_id", "api_key"]
    assert {row.api_key for row in some.collect()} == {ApiKey.STOP_REPLICA}
    with pytest.raises(ConfigurationError, match="no option 'api'"):
        read_frames(spark, captures, api="4")


@pytest.mark.parametrize("name", ["path", "paths", "Workers"])
def test_options_that_frames_have_no_use_for_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no option '{name.lower()}'"):
        read_frames(None, [str(CAPTURE)], **{name: "1"})


@pytest.mark.parametrize("number", ["0", "1,2", "-1", "many"])
def test_a_number_of_tasks_that_is_none_is_refused_before_captures_are_dealt(number: str) -> None:
    with pytest.raises(ConfigurationError, match="is no number of tasks such as 8"):
        checked({"workers": number})


def test_request_logs_and_recordings_of_the_tap_are_read(spark: SparkSession, tmp_path: Path) -> None:
    recording = tmp_path / "recording.pcapng"
    exchanges = [e for e in capture.exchanges(CAPTURE) if e.request is not None and e.response is not None]
    with PcapngRecorder(recording) as recorder:
        for exchange in exchanges:
            client, server = exchange.request.connection.client, exchange.request.connection.server
            for way, frame in (("sent", exchange.request), ("received", exchange.response)):
                data = len(frame.payload).to_bytes(4, "big") + bytes(frame.payload)
                recorder.record(way, client, server, frame.time_ns, [data])
    load = spark.read.format("kafka_control").load
    recorded = load(str(recording))
    assert recorded.count() == 2 * len(exchanges) > 300
    bodies = {row.body_id for row in load(str(CAPTURE)).where("error is null").collect()}
    assert {row.body_id for row in recorded.collect()} <= bodies
    logged = load(str(LOG), log_zone="UTC").drop("cluster")
    expected = pa.Table.from_batches(scan([str(LOG)], logs=LogReading("UTC")), SCAN)
    expected = expected.filter(expected["frame_id"].is_valid()).select(logged.columns)
    assert rows_of(logged, logged.columns) == expected.sort_by("frame_id").to_pylist()
    assert expected.num_rows > 10
    nameless = spark.read.format("kafka_control").load(str(LOG), table="bad_inputs")
    (bad,) = {row.reason for row in nameless.where("offset is not null").collect()}
    assert bad == "a time without a zone; name the zone of the log: --log-zone Europe/Berlin"


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
        ({"apis": "99"}, "no api 99"),
        ({"columns": "ts,tz"}, "no column 'tz'"),
        ({"since": "yesterday"}, "is no moment"),
        ({"ports": "kafka"}, "not a list of numbers"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, folder: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(AnalysisException, match=said):
        spark.read.format("kafka_control").options(**options).load(str(folder))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


FILTERS = (
    "api_key = 4",
    "api_key IN (4, 5) AND direction = 'request'",
    "ts >= '{middle}' AND ts < '{later}'",
    "cluster = 'default' AND flow.dst_port > 1024",
    "cluster = 'another'",
    "capture = 'nowhere' OR api_key = 6",
)


def test_filters_are_applied_where_captures_are_read_and_change_no_row(pushing: SparkSession, folder: Path) -> None:
    def found(text: str) -> tuple[list[Any], str]:
        rows = load(str(folder / "a.pcap.gz")).where(text)
        plan = rows._jdf.queryExecution().executedPlan().toString()
        return rows.select("frame_id", "payload").toArrow().sort_by("frame_id").to_pylist(), plan

    load = pushing.read.format("kafka_control").load
    times = [row.ts for row in load(str(folder / "a.pcap.gz")).select("ts").sort("ts").collect()]
    asked = [text.format(middle=times[len(times) // 3], later=times[len(times) // 2]) for text in FILTERS]
    pushed = [found(text) for text in asked]
    pushing.conf.set(PUSHDOWN, "false")
    plain = [found(text) for text in asked]
    assert [rows for rows, _plan in pushed] == [rows for rows, _plan in plain]
    assert [bool(rows) for rows, _plan in pushed] == [True, True, True, True, False, True]
    kept = [plan.count("Filter (") for _rows, plan in pushed]
    assert kept[:5] == [0] * 5, "Spark looks at these rows again"
    assert all(plan.count("Filter (") for _rows, plan in plain)


def test_frames_become_partition_states_where_they_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """Lazily, so that a query's filters come first and its sink may be any; a body that is there twice counts once."""
    frames = read_frames(spark, [str(CAPTURE)])
    frames = frames.union(frames)
    expected = read(str(CAPTURE))["partition_states"]
    states_of(frames).write.parquet(str(tmp_path / "states"))
    found = pq.read_table(tmp_path / "states").cast(expected.schema)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    stops = states_of(frames.where("api_key = 5"))
    assert stops.count() == sum(row["api_key"] == 5 for row in expected.to_pylist()) > 0


def test_frames_become_requests_where_they_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """Of several captures in one task; those of a capture whose end is missing lack their responses."""
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(pcap(packets[: len(packets) // 3], link))
    expected = []
    for path in (CAPTURE, cut):
        rows = read(str(path))["requests"].to_pylist()
        expected += [
            {**row, "unmatched_reason": row["unmatched_reason"] and "no response among the frames"} for row in rows
        ]
    frames = read_frames(spark, [str(CAPTURE), str(cut)])
    found = requests_of(frames.coalesce(1)).toArrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert len({row["broker_id"] for row in found} - {None}) > 1
    assert requests_of(frames.where("api_key = 5")).count() == sum(row["api_key"] == 5 for row in expected) > 0


def test_columns_have_their_descriptions_as_comments(spark: SparkSession, folder: Path) -> None:
    schema = spark.read.format("kafka_control").load(str(folder / "a.pcap.gz")).schema
    assert schema["direction"].metadata["comment"].startswith("request: controller to broker")
    assert all("comment" in field.metadata for field in schema if field.name in FRAMES.names)


def test_a_stream_is_refused_with_what_to_do(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("kafka_control").load(str(folder))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(
        StreamingQueryException, match=r"kafka_control reads no stream: use kproto\.pipeline\.stream_frames"
    ):
        query.awaitTermination(60)


def test_state_logs_make_the_rows_that_a_local_reading_makes(spark: SparkSession, tmp_path: Path) -> None:
    """The logs of three brokers of Kafka 1.0, rows and what the controllers' logs tell beside them."""
    for name, data in logs_of("kafka-1.0.2", "TRACE").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    load = spark.read.format("kafka_control").option("log_zone", "UTC").load
    local = read(str(tmp_path), filters=Filters(logs=LogReading("UTC")))
    frames = load(str(tmp_path))
    of_requests = frames.where("direction = 'request'").select("frame_id").collect()
    assert {bytes(row.frame_id) for row in of_requests} == set(local["requests"]["frame_id"].to_pylist())
    assert len(of_requests) > 400
    captures = (
        spark.read.format("kafka_control").option("table", "captures").option("log_zone", "UTC").load(str(tmp_path))
    )
    found = sorted((row.file, row.format, len(row.controller_events)) for row in captures.collect())
    rows = local["captures"].to_pylist()
    assert found == sorted((row["file"], row["format"], len(row["controller_events"])) for row in rows)
    assert sum(events for _file, _form, events in found) > 5
