"""Spark's tables of a generated fleet are those that the generator says must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from expected_tables import STORED, assert_rows, expected_tables

from kproto.generate import PlannedFleet, write_captures
from kproto.pipeline import OutputDirectory, analyze, derived_table, read_table
from kproto.query import ask_sql, open_tables
from kproto.verdicts.derived import DERIVED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLEET = PlannedFleet(
    brokers=4, topics=3, partitions=30, isr_changes=20, elections=25, restarts=2, failovers=2, loss=0.05
)


def test_all_tables_come_out_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    write_captures(FLEET, tmp_path / "captures")
    out = OutputDirectory(tmp_path / "tables")
    analyze(spark, [str(tmp_path / "captures" / "control.pcap")], out)
    wanted = expected_tables(FLEET)
    found = {name: read_table(spark, out.path, name) for name in STORED}
    found |= {name: derived_table(spark, out.path, name) for name in DERIVED}
    for name, frame in found.items():
        rows = frame.select(*wanted[name].column_names).toArrow().cast(wanted[name].schema)
        assert_rows(name, rows, wanted[name])
    columns = "topic", "partition", "changes", "leaders"
    with open_tables(out.path) as sql:
        flaps = ask_sql(sql, f"SELECT {', '.join(columns)} FROM leader_flaps").rows
    assert flaps
    found_flaps = derived_table(spark, out.path, "leader_flaps").select(*columns).collect()
    assert sorted(map(tuple, found_flaps)) == sorted(map(tuple, flaps))
