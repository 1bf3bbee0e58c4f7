"""The stages of ``kproto.tables.stages`` as Spark jobs: a task makes files, and tells the driver which in one row."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from kproto.pipeline.stored import spark_schema
from kproto.tables.changes import PartitionHistory
from kproto.tables.stages import CLAIMS, chosen_of, gather, relate, settle
from kproto.tables.summary import MOST_CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kproto.tables.changes import Changes
    from kproto.tables.filters import Filters
    from kproto.tables.stages import Knowledge, Made, Piece

__all__ = ["RECEIPT", "count_changes", "gather_pieces", "make_tables", "receipt", "results", "task_each"]

RECEIPT: Final = pa.schema([("receipt", pa.binary())])
"""How a task tells the driver its result: pickled, in one row."""

_HISTORY_ROWS: Final = 1_000_000
"""Partition histories of more states than this stay on disk, and are joined in parts."""

_BATCHES_A_TASK: Final = 4
"""Batches of staged bodies, of about 8 MiB, that a task settles. Spark would join tasks by the size of their ids."""

_HISTORY_PARTS: Final = 32


def gather_pieces(
    spark: SparkSession, reads: Sequence[Callable[[], Iterable[pa.RecordBatch]]], directory: Path, filters: Filters
) -> list[Piece]:
    """Stage scans, a task for each of them.

    Args:
        spark: The session.
        reads: Functions, one for each task, that yield batches of the schema ``kproto.tables.SCAN``.
        directory: The directory for the pieces; every worker must see it.
        filters: Which requests to keep.
    """

    def run(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            yield gather(reads[number](), directory, filters)

    return results(_for_each(spark, len(reads), run))


def make_tables(
    spark: SparkSession,
    pieces: Sequence[str],
    directory: Path,
    knowledge: Knowledge,
    filters: Filters,
    stored: Path | None = None,
) -> list[Made]:
    """Relate and settle pieces.

    Args:
        spark: The session.
        pieces: Their directories.
        directory: The directory for the tasks' files.
        knowledge: Of all pieces.
        filters: Which requests to keep.
        stored: Files of the table ``bodies`` whose bodies are settled already.
    """
    alone = len(pieces) == 1 and stored is None

    def run_relate(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            made, claims = relate(pieces[number], directory, knowledge, filters)
            yield made
            if alone and made.batches <= _BATCHES_A_TASK:
                yield _settled(chosen_of(claims), directory, filters)
            else:
                pq.write_table(claims, Path(pieces[number]) / "claims.parquet")

    def run_settle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        if rows:
            yield receipt(_settled(rows, directory, filters))

    related: list[Made] = results(_for_each(spark, len(pieces), run_relate))
    if len(related) > len(pieces):
        return related  # there was little to do: one task did it all
    chosen = _chosen(spark, [str(Path(piece) / "claims.parquet") for piece in pieces], stored)
    batches = sum(made.batches for made in related)
    chosen = chosen.repartition(max(1, batches // _BATCHES_A_TASK), "piece", "batch")
    return related + results(chosen.mapInArrow(run_settle, spark_schema(RECEIPT)))


def _chosen(spark: SparkSession, claims: list[str], stored: Path | None) -> DataFrame:
    """The first copy of each distinct body."""
    chosen = (
        spark.read.schema(spark_schema(CLAIMS))
        .parquet(*claims)
        .groupBy("body_id")
        .agg(
            F.bool_or("kept").alias("kept"),
            F.bool_or("accepted").alias("accepted"),
            F.min(F.struct("ts_ns", "frame_id", "piece", "batch")).alias("first"),
        )
        .where("kept")
        .select("body_id", "accepted", "first.piece", "first.batch")
    )
    if stored is not None:
        known = spark.read.schema("body_id binary").parquet(str(stored))
        chosen = chosen.join(known, "body_id", "left_anti")
    return chosen


def _settled(chosen: list[dict[str, Any]], directory: Path, filters: Filters) -> Made:
    made = settle(chosen, directory, filters)
    history = made.figures.history
    if len(history) > _HISTORY_ROWS:
        for number, part in enumerate(history.split(_HISTORY_PARTS)):
            (Path(made.path) / f"history-{number}").write_bytes(pickle.dumps(part))
        made.figures.history = PartitionHistory()
    return made


def count_changes(spark: SparkSession, tasks: Sequence[str]) -> list[Changes]:
    """The changes in the partition histories that tasks left on disk: of disjoint partitions, to be merged.

    Args:
        spark: The session.
        tasks: The directories of the tasks.
    """
    places = [path for path in tasks if (Path(path) / "history-0").exists()]
    if not places:
        return []

    def run(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            history = PartitionHistory()
            for place in places:
                history.merge(pickle.loads((Path(place) / f"history-{number}").read_bytes()))  # noqa: S301  # our own
            yield history.changes(MOST_CHANGED)

    return results(_for_each(spark, _HISTORY_PARTS, run))


def _for_each(spark: SparkSession, count: int, run: Callable[[Iterator[int]], Iterator[object]]) -> DataFrame:
    """Run a task for each number; return its result as a row."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in run(number for batch in batches for number in batch.column(0).to_pylist()):
            yield receipt(result)

    return task_each(spark, count).mapInArrow(work, spark_schema(RECEIPT))


def task_each(spark: SparkSession, count: int) -> DataFrame:
    """The numbers up to a count, a task for each."""
    return spark.range(0, count, 1, numPartitions=count)


def receipt(result: object) -> pa.RecordBatch:
    """A task's result as a row for the driver."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], schema=RECEIPT)


def results(receipts: DataFrame) -> list[Any]:
    """The tasks' results."""
    return [pickle.loads(row.receipt) for row in receipts.collect()]  # noqa: S301  # our own tasks wrote it
