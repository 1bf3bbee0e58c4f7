"""Filters choose the same rows of every table with Spark and without, and every table alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES

from kproto.pipeline import OutputDirectory, analyze, read_table
from kproto.tables import TABLES, Filters, read
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PATHS = [str(path) for path in CAPTURES if path.name.startswith(("external-controller-a", "ibp-3.9-a."))]
PARTITION = TopicPartition("0r-jnuWj87v-p", 1)

FILTERS = {
    "a partition": Filters(partitions=frozenset({PARTITION})),
    "errors of a topic's partitions at one broker": Filters(
        topics=("made.*", "0r-*"), errors="partition", brokers=frozenset({0})
    ),
    "refused requests of a controller": Filters(errors="request", controllers=frozenset({77}), apis=frozenset({4, 6})),
}


@pytest.mark.parametrize("name", FILTERS)
def test_spark_and_pyarrow_keep_the_same_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    out = OutputDirectory(tmp_path / "tables")
    run = analyze(spark, PATHS, out, filters=FILTERS[name])
    found = read(*PATHS, filters=FILTERS[name])
    assert found["requests"].num_rows > 0
    for table, schema in TABLES.items():
        written = pq.read_table(out.path / table).select(schema.names).cast(schema)
        assert sorted(map(repr, written.to_pylist())) == sorted(map(repr, found[table].to_pylist())), table
        assert run.rows[table] == found[table].num_rows
        assert read_table(spark, out.path, table).count() == run.rows[table]


def test_a_partition_is_chosen_in_every_table() -> None:
    tables = read(*PATHS, filters=FILTERS["a partition"])
    for name in ("partition_states", "partition_errors"):
        assert {(row["topic"], row["partition"]) for row in tables[name].to_pylist()} == {PARTITION}
    bodies = set(tables["partition_states"]["body_id"].to_pylist())
    assert set(tables["requests"]["body_id"].to_pylist()) == bodies
    frames = set(tables["frames"]["frame_id"].to_pylist())
    requests = tables["requests"].to_pylist()
    assert frames == {r["frame_id"] for r in requests} | {r["response_frame_id"] for r in requests}
    assert set(tables["responses"]["frame_id"].to_pylist()) == {r["frame_id"] for r in requests}
    assert set(tables["bodies"]["body_id"].to_pylist()) == set(tables["frames"]["body_id"].to_pylist())


def test_errors_of_partitions_are_those_of_the_chosen_ones() -> None:
    """A request whose error is of another partition did not fail for the one that is asked for."""
    everything = read(*PATHS, filters=Filters(errors="partition"))
    chosen = read(*PATHS, filters=Filters(errors="partition", partitions=frozenset({PARTITION})))
    failed = {row["frame_id"] for row in chosen["partition_errors"].to_pylist()}
    assert set(chosen["requests"]["frame_id"].to_pylist()) == failed
    assert 0 < chosen["requests"].num_rows < everything["requests"].num_rows
