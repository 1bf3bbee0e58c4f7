"""The derived tables come out of Spark as they come out of DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kproto.errors import ConfigurationError
from kproto.pipeline import derived_table, read_table
from kproto.pipeline.parquet import spark_schema
from kproto.query import ask_sql, open_tables
from kproto.verdicts.derived import VIEWS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from table_truth import Analyzed

pytestmark = pytest.mark.spark


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
    assert wanted or name in ("missed_updates", "behind", "brokers_down")  # nobody missed anything in these captures
    assert sorted(map(_key, found)) == sorted(map(_key, wanted))


def _key(row: dict[str, Any]) -> str:
    return repr([(key, str(row[key]).replace("+00:00", "")) for key in sorted(row)])


def test_a_table_that_is_not_derived_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no derived table 'requests'; try changes, leadership"):
        derived_table(spark, tmp_path, "requests")
    with pytest.raises(ConfigurationError, match="has no tables; make them: kproto analyze"):
        derived_table(spark, tmp_path, "leadership")
    with pytest.raises(ConfigurationError, match="no stored table 'leadership'; try requests, "):
        read_table(spark, tmp_path, "leadership")
