"""What happens to a run when its disk fills or its input changes: the former tables stay, and the next run is right."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES, name_of

from kproto.generate import PlannedFleet, sized, write_captures
from kproto.pipeline import OutputDirectory, analyze
from kproto.tables import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SMALL = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
LARGEST_FILE = 100_000


def assert_holds(out: Path, capture: Path) -> None:
    expected = read(capture)
    for name in ("requests", "partition_states", "frames"):
        found = pq.read_table(out / name)
        assert found.num_rows == expected[name].num_rows > 0, name
    assert sorted(pq.read_table(out / "requests")["frame_id"].to_pylist()) == sorted(
        expected["requests"]["frame_id"].to_pylist()
    )


def test_a_disk_that_fills_leaves_the_former_tables_and_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """No file of the run may have more than 100 kB, as on a full disk each write fails beyond that."""
    (tmp_path / "captures").mkdir()
    (large,) = write_captures(sized(PlannedFleet(bodies="distinct"), 4_000_000), tmp_path / "captures").files
    out = tmp_path / "tables"
    analyze(spark, [str(SMALL)], OutputDirectory(out))
    command = [sys.executable, "-m", "kproto", "analyze", str(large), "--out", str(out)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE)),  # no threads
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "File too large" in line
    assert_holds(out, SMALL)
    assert len(list((out / "kproto-runs").iterdir())) == 1
    analyze(spark, [str(large)], OutputDirectory(out, overwrite=True))
    assert_holds(out, large)


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_a_capture_that_changes_while_it_is_read_is_read_again_by_the_next_run(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    whole = gzip.decompress(SMALL.read_bytes())
    before, after = (whole[:200_000], whole) if change == "grows" else (whole, whole[:200_000])  # it is read so far
    capture = tmp_path / "control.pcap"
    capture.write_bytes(before)
    out = OutputDirectory(tmp_path / "tables")

    def change_it(step: str) -> None:
        if step == "reading captures":
            capture.write_bytes(after)

    run = analyze(spark, [str(capture)], out, on_step=change_it)
    assert run.rows["requests"] > 0
    analyze(spark, [str(capture)], out)
    assert_holds(out.path, capture)
