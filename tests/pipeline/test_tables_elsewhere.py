"""The programs of docs/tables-elsewhere.md read what kproto stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from table_truth import CAPTURES, name_of
from tasks_here import TasksHere

from kproto.pipeline import OutputDirectory, analyze
from kproto.tables import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tables-elsewhere.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
CAPTURE = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analyze(TasksHere(), [str(CAPTURE)], OutputDirectory(tmp_path / "tables"))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
def test_duckdb_and_polars_read_the_files_of_the_manifest() -> None:
    files, duckdb, polars, _spark, _delta = BLOCKS
    names: dict[str, object] = {}
    expected = read(CAPTURE)["requests"]
    exec(files + duckdb, names)
    assert names["requests"].shape[0] == expected.num_rows  # type: ignore[attr-defined]
    exec(files + polars, names)
    assert names["requests"].collect().height == expected.num_rows  # type: ignore[attr-defined]
    assert names["slow"].collect().height == pc.sum(pc.greater(expected["latency_us"], 100_000)).as_py()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("here")
def test_delta_has_their_rows_and_days(capsys: pytest.CaptureFixture[str]) -> None:
    expected = read(CAPTURE)["requests"]
    exec(BLOCKS[0] + BLOCKS[4], {})
    assert capsys.readouterr().out == f"{expected.num_rows}\n"
    rows = deltalake.DeltaTable("delta/requests").to_pyarrow_dataset().to_table(columns=["frame_id", "date"])
    assert set(rows["frame_id"].to_pylist()) == set(expected["frame_id"].to_pylist())
    assert set(rows["date"].to_pylist()) == set(expected["ts"].cast(pa.date32()).to_pylist())


@pytest.mark.spark
@pytest.mark.usefixtures("here")
def test_spark_reads_them(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = BLOCKS[3].replace('"tables"', repr(str(tmp_path / "tables")))  # this Spark was started elsewhere
    exec(block, {"spark": spark})
    assert "refused" in capsys.readouterr().out
