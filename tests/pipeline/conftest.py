"""One Spark for all, and one analysis of every sample capture that most tests ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from table_truth import CAPTURES, Analyzed

from kproto.pipeline import OutputDirectory, analyze, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]", small=True) as session:
        yield session


@pytest.fixture(scope="session")
def analyzed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    """Every sample capture, as ``kproto analyze`` does it."""
    out = OutputDirectory(tmp_path_factory.mktemp("analyzed") / "tables")
    run = analyze(spark, [str(path) for path in CAPTURES], out)
    return Analyzed(out.path, run, run.summary)
