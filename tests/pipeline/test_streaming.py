"""A directory that is followed: the tables are those of one run over it, in whatever order its files come."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from packets import pcap, read_pcap
from table_truth import CAPTURES, name_of

from kproto.pipeline import OutputDirectory, follow, stream_frames
from kproto.tables import TABLES, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FOLLOW = """
import sys
from pathlib import Path
from kproto.pipeline import OutputDirectory, follow, spark_session
with spark_session("local[1]", small=True) as spark:
    follow(spark, sys.argv[1], OutputDirectory(Path(sys.argv[2])), seconds=0.1)
"""


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    """Three files of one capture point, and one of another; none is where it is looked for yet."""
    made = tmp_path / "recorded"
    made.mkdir()
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a"))
    third = len(packets) // 3
    for n in range(3):
        part = packets[n * third : (n + 1) * third if n < 2 else None]
        (made / f"control.pcap{n or ''}").write_bytes(pcap(part, link))
    other = next(path for path in CAPTURES if name_of(path) == "ibp-0.9.0-a")
    (made / "other.pcap").write_bytes(gzip.decompress(other.read_bytes()))
    return sorted(made.iterdir())


def arrive(file: Path, folder: Path) -> None:
    shutil.copy(file, folder / f".{file.name}")
    (folder / f".{file.name}").rename(folder / file.name)


def assert_holds(out: Path, folder: Path) -> None:
    expected = read(folder)
    found = {name: pq.read_table(out / name).to_pylist() for name in TABLES}
    for name in ("requests", "responses", "partition_states"):
        assert len(found[name]) == expected[name].num_rows > 0
    ids = [row["frame_id"] for row in found["requests"]]
    assert sorted(ids) == sorted(expected["requests"]["frame_id"].to_pylist())


def test_the_file_that_a_tap_is_writing_is_read_once_it_has_its_name(
    spark: SparkSession, recordings: list[Path], tmp_path: Path
) -> None:
    folder, out = tmp_path / "arriving", OutputDirectory(tmp_path / "tables")
    folder.mkdir()
    for number in range(2):
        arrive(recordings[number], folder)
        being_written = folder / f"{recordings[number + 1].name}.part"
        shutil.copy(recordings[number + 1], being_written)
        runs: list[Any] = []
        follow(spark, str(folder), out, once=True, on_run=runs.append)
        being_written.unlink()
        assert [run.bad_inputs for run in runs] == [[]]
        assert_holds(out.path, folder)


def test_files_that_come_late_and_out_of_order_make_the_tables_of_one_run(
    spark: SparkSession, recordings: list[Path], tmp_path: Path
) -> None:
    folder, out = tmp_path / "arriving", OutputDirectory(tmp_path / "tables")
    folder.mkdir()
    first, second, third, other = recordings
    for files in ([third], [other, first], [second]):
        for file in files:
            arrive(file, folder)
        runs: list[Any] = []
        follow(spark, str(folder), out, once=True, on_run=runs.append)
        assert len(runs) == 1
        assert_holds(out.path, folder)
    follow(spark, str(folder), out, once=True, on_run=runs.append)
    assert [run.captures_read for run in runs] == [1, 0]


def test_a_stream_of_frames_that_is_started_again_gives_each_file_once(
    spark: SparkSession, recordings: list[Path], tmp_path: Path
) -> None:
    folder, out = tmp_path / "arriving files", tmp_path / "frames"
    folder.mkdir()
    first, second, _third, other = recordings

    def run() -> None:
        frames = stream_frames(spark, str(folder), columns="frame_id,direction,file", payload="none")
        writer = frames.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()

    arrived: list[bytes] = []
    for files in ([first], [], [second, other]):
        for file in files:
            arrive(file, folder)
            arrived += read(folder / file.name)["frames"]["frame_id"].to_pylist()
        run()
        found = spark.read.parquet(str(out)).toArrow()
        assert sorted(found["frame_id"].to_pylist()) == sorted(arrived)
    assert {*found["file"].to_pylist()} == {file.name for file in (first, second, other)}


def test_a_kill_loses_and_repeats_nothing(spark: SparkSession, recordings: list[Path], tmp_path: Path) -> None:
    folder, out = tmp_path / "arriving", tmp_path / "tables"
    folder.mkdir()
    arrive(recordings[0], folder)
    follower = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(folder), str(out)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    try:
        for _ in range(2400):
            if list(out.glob("kproto-runs/*/tasks")):
                break
            assert follower.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(follower.pid, signal.SIGKILL)
        follower.wait(timeout=120)
    for file in recordings[1:]:
        arrive(file, folder)
    follow(spark, str(folder), OutputDirectory(out), once=True)
    assert_holds(out, folder)
