"""The derived tables come out of Spark as they come out of DuckDB."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES, Analyzed, name_of

from kproto.errors import ConfigurationError
from kproto.pipeline import (
    OutputDirectory,
    analyze,
    derived_table,
    read_frames,
    read_table,
    requests_of,
    states_of,
    verdicts_of,
)
from kproto.pipeline.derived import _stale
from kproto.pipeline.parquet import spark_schema
from kproto.query import ask_sql, open_tables
from kproto.tables import read
from kproto.verdicts.derived import VIEWS
from kproto.verdicts.stale import STALE_COLUMNS, known_epochs
from tests.hosts import by_host, recorded, servers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"


def plain(value: Any) -> Any:
    """A value as both engines' rows are compared: bytes are bytes, times in UTC, sets without their order."""
    match value:
        case bytearray():
            return bytes(value)
        case list():
            return sorted(value)
    return value


@pytest.mark.parametrize("name", VIEWS)
def test_spark_and_duckdb_derive_the_same_rows(analyzed: Analyzed, spark: SparkSession, name: str) -> None:
    frame = derived_table(spark, analyzed.path, name)
    assert frame.dtypes == [(field.name, field.dataType.simpleString()) for field in spark_schema(VIEWS[name].schema)]
    found = [{key: plain(value) for key, value in row.items()} for row in frame.toArrow().to_pylist()]
    with open_tables(analyzed.path) as sql:
        answer = ask_sql(sql, f"SELECT {', '.join(VIEWS[name].schema.names)} FROM {name}")
    wanted = [dict(zip(answer.columns, map(plain, row), strict=True)) for row in answer.rows]
    assert len(found) == len(wanted)
    assert wanted or name in ("missed_updates", "behind", "brokers_down", "leader_flaps")  # of these captures no row
    assert sorted(map(_key, found)) == sorted(map(_key, wanted))


def test_an_epoch_of_a_host_whose_clock_cannot_be_compared_replaces_nobody_at_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    capture = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
    first, *others = by_host(recorded(capture), servers_of(capture)).values()
    paths = [first.write(tmp_path / "first.pcap", ahead_ns=600 * 10**9)]
    for number, of in enumerate(others):
        last = of._replace(packets=of.packets[-len(of.packets) // 8 :])
        paths.append(last.write(tmp_path / f"host-{number}-last.pcap"))
    out = OutputDirectory(tmp_path / "tables")
    analyze(spark, [*map(str, paths)], out)
    with open_tables(out.path) as sql:
        assert len(ask_sql(sql, "SELECT DISTINCT reference FROM clocks").rows) > 1
        wanted = ask_sql(sql, "SELECT frame_id, reason FROM stale_requests").rows
    found = derived_table(spark, out.path, "stale_requests").select("frame_id", "reason").collect()
    assert sorted((bytes(frame), reason) for frame, reason in found) == sorted(wanted)


def test_frames_become_verdicts_where_they_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """As from tables that were stored."""
    capture = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-migration-a"))
    out = OutputDirectory(tmp_path / "tables")
    analyze(spark, [capture], out)
    frames = read_frames(spark, [capture])
    requests, states = requests_of(frames).cache(), states_of(frames).cache()
    for name in ("leadership", "isr_events", "stale_requests", "spans"):
        stored = derived_table(spark, out.path, name)
        found = verdicts_of(name, requests, states)
        assert found.schema == stored.schema
        assert sorted(map(repr, found.toArrow().to_pylist())) == sorted(map(repr, stored.toArrow().to_pylist()))
    assert verdicts_of("leadership", requests, states).count() > 100
    assert requests.storageLevel.useMemory
    assert states.storageLevel.useMemory
    requests.unpersist()
    states.unpersist()
    with pytest.raises(ConfigurationError, match="no table 'propagation'; try changes, leadership"):
        verdicts_of("propagation", requests, states)


def test_stale_requests_are_judged_batch_by_batch() -> None:
    """A partition of Spark's may hold more of them than memory does."""
    requests = read(str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a")))["requests"]
    regressed = requests.set_column(
        requests.column_names.index("controller_epoch"), "controller_epoch", pa.array([0] * len(requests), pa.int32())
    )
    (batch,) = regressed.select(STALE_COLUMNS).combine_chunks().to_batches()
    pulled: list[int] = []
    batches = (pulled.append(n) or batch for n in range(3))  # type: ignore[func-returns-value]
    found = _stale(batches, known_epochs([requests], None), None)
    assert next(found).num_rows
    assert len(pulled) == 1


def test_what_a_notebook_does_first(spark: SparkSession, tmp_path: Path) -> None:
    """The code of docs/notebook.md, but for the directory."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "notebook.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "captures").mkdir()
    capture = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
    shutil.copy(capture, tmp_path / "captures")
    code = code.replace("/shared", str(tmp_path))
    exec(compile(code, "notebook.md", "exec"), {"spark": spark})  # our own page
    spark.catalog.clearCache()
    asked = read(str(capture))["partition_states"].to_pylist()
    assert pq.read_table(tmp_path / "states").num_rows == sum(row["api_key"] == 4 for row in asked) > 0


def _key(row: dict[str, Any]) -> str:
    return repr([(key, str(row[key]).replace("+00:00", "")) for key in sorted(row)])


def test_a_table_that_is_not_derived_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no derived table 'requests'; try deliveries, changes, leadership"):
        derived_table(spark, tmp_path, "requests")
    with pytest.raises(ConfigurationError, match=r"is an empty directory; .* make tables of one there: kproto analyze"):
        derived_table(spark, tmp_path, "leadership")
    with pytest.raises(ConfigurationError, match="no stored table 'leadership'; try requests, "):
        read_table(spark, tmp_path, "leadership")
