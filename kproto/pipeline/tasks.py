"""The stages of ``kproto.pipeline.stages`` as Spark jobs: a task makes files, and tells the driver which in one row."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from kproto.pipeline.parquet import parquet_rows, spark_schema
from kproto.pipeline.stages import CLAIMS, StagedPart, TaskOutput, chosen_of, relate, write_bodies
from kproto.pipeline.staging import StagedTables, read_batch
from kproto.tables.known import KnownTable
from kproto.tables.places import arrow_path, place_of
from kproto.tables.stored import read_parquet
from kproto.verdicts.history import History, most_changed
from kproto.verdicts.summary import MOST_CHANGED, Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kproto.pipeline.stages import BrokersAndEpochs
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place
    from kproto.tables.stored import StoredTables
    from kproto.verdicts.history import Counts

RECEIPT: Final = pa.schema([("receipt", pa.binary())])
"""How a task tells the driver its result: pickled, in one row."""

_STATES_ON_DRIVER: Final = 1_000_000
"""The most distinct states of tasks whose changes the driver counts itself."""

_BODY_BYTES_A_TASK: Final = 32 << 20
"""About the bytes of the bodies that a task settles."""

_MOST_TASKS: Final = 10_000
"""The most tasks that settle bodies, each of which leaves a few files and gives the driver a receipt."""

_RECEIPTS_TOGETHER: Final = 512
"""The most receipts that the driver takes as they are; of more tasks, tasks merge about this number each."""

_CLAIMS_ON_DRIVER: Final = 200_000
"""The most bodies among which the driver itself chooses the first copies."""

SETTLED_ON_DRIVER: Final = 5_000_000
"""The most bodies of which the driver itself reads whether they are stored: some 16 bytes each."""

_MOST_PARTS: Final = 512
"""The most parts in which a task leaves its states: another task counts the changes of a part of all."""

_HISTORY: Final = "history"
_CLAIMS_FILE: Final = "claims.parquet"
_CHOSEN: Final = "chosen"


def make_tables(
    spark: SparkSession,
    pieces: Sequence[StagedPart],
    directory: Place,
    knowledge: BrokersAndEpochs,
    filters: Filters,
    stored: StoredTables | None = None,
) -> TaskOutput:
    """Relate and settle all pieces in a directory, but for bodies that stored tables have; return what tasks made."""
    paths = [piece.path for piece in pieces]
    alone = len(pieces) == 1 and stored is None and pieces[0].body_bytes <= _BODY_BYTES_A_TASK
    firsts = [0, *accumulate(piece.body_bytes for piece in pieces)]
    task_bytes = body_bytes_a_task(firsts[-1])
    tasks = max(1, -(-firsts[-1] // task_bytes))
    parts = min(tasks, _MOST_PARTS)

    def run_relate(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            made, claims = relate(paths[number], place_of(paths[number]).parent, knowledge, filters)
            yield made
            if alone:
                yield _bodies_written(chosen_of(claims), directory, filters, parts)
            else:
                ends = pc.add(pc.cumulative_sum(claims["bytes"]), firsts[number])
                task = pc.divide(pc.subtract(ends, claims["bytes"]), task_bytes).cast(pa.int32())
                path, files = arrow_path(place_of(paths[number]) / _CLAIMS_FILE)
                pq.write_table(claims.append_column("task", task), path, filesystem=files)

    related = _merged(for_each(spark, len(pieces), run_relate), len(pieces))
    if alone:
        return related  # there was little to do: one task did it all

    def run_write_bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            if rows:
                yield receipt(_bodies_written(rows, directory, filters, parts))

    def run_chosen(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            chosen = read_batch(directory / _CHOSEN, _CHOSEN, number)
            yield _bodies_written(chosen.to_pylist(), directory, filters, parts)

    claims = [place_of(path) / _CLAIMS_FILE for path in paths]
    settled = stored.counts()["bodies"] if stored else 0
    if settled <= SETTLED_ON_DRIVER and related.claims <= _CLAIMS_ON_DRIVER:
        tasks = _choose(claims, directory / _CHOSEN, stored)
        if not tasks:
            return related
        receipts = for_each(spark, tasks, run_chosen)
    else:
        chosen = _chosen(spark, claims, stored).repartitionById(tasks, "task")
        receipts = chosen.mapInArrow(run_write_bodies, spark_schema(RECEIPT))
    related.merge(_merged(receipts, tasks))
    return related


def _merged(receipts: DataFrame, tasks: int) -> TaskOutput:
    """The receipts of tasks. Further tasks merge those of many, so that neither driver nor task holds many."""
    if tasks > _RECEIPTS_TOGETHER:
        groups = -(-tasks // _RECEIPTS_TOGETHER)
        receipts = receipts.repartition(groups).mapInArrow(merge_receipts, spark_schema(RECEIPT))
    return merged(pickle.loads(row.receipt) for row in receipts.collect())  # noqa: S301  # our own tasks wrote it


def merge_receipts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the receipts of tasks that made files into one."""
    rows = (row for batch in batches for row in batch.column(0))
    yield receipt(merged(pickle.loads(row.as_buffer()) for row in rows))  # noqa: S301  # our own tasks wrote it


def merged(outputs: Iterable[TaskOutput]) -> TaskOutput:
    """Merge the tasks' receipts."""
    total = TaskOutput(Figures())
    for output in outputs:
        total.merge(output)
    return total


def body_bytes_a_task(body_bytes: int) -> int:
    """Return about how many bytes of bodies a task settles, given the bytes of all."""
    return max(_BODY_BYTES_A_TASK, -(-body_bytes // _MOST_TASKS))


def _choose(claims: Sequence[Place], directory: Place, stored: StoredTables | None) -> int:
    """Stage the first copy of each distinct body, a batch for each task; return the number of tasks.

    That takes less than to start Spark's own jobs.
    """
    order = [(name, "ascending") for name in ("ts_ns", "frame_id", "piece", "batch", "row")]
    every = pa.concat_tables([read_parquet(path) for path in claims]).sort_by(order)
    if stored is not None:
        known = KnownTable(stored, "known_bodies").rows(pc.unique(every["body_id"]))["body_id"].combine_chunks()
        every = every.filter(pc.invert(pc.is_in(every["body_id"], value_set=known)))
    every = every.append_column("rank", pa.array(range(every.num_rows), pa.int64()))
    bodies = every.group_by("body_id", use_threads=False)
    first = bodies.aggregate([("kept", "any"), ("accepted_us", "min"), ("rank", "min")])
    first = first.filter(first["kept_any"])
    places = every.select(["ts_ns", "piece", "batch", "row", "task"]).take(first["rank_min"])
    columns = [first["body_id"], first["accepted_us_min"], *places.columns]
    chosen = pa.Table.from_arrays(columns, ["body_id", "accepted_us", *places.column_names]).sort_by("task")
    staged = StagedTables(directory)
    tasks = pc.value_counts(chosen["task"].combine_chunks())
    at = 0
    for rows in tasks.field("counts").to_pylist():
        staged.write(_CHOSEN, chosen.slice(at, rows).combine_chunks().to_batches()[0])
        at += rows
    staged.close()
    return len(tasks)


def _chosen(spark: SparkSession, claims: list[Place], stored: StoredTables | None) -> DataFrame:
    """The first copy of each distinct body."""
    chosen = (
        parquet_rows(spark, CLAIMS.append(pa.field("task", pa.int32())), claims)
        .groupBy("body_id")
        .agg(
            F.bool_or("kept").alias("kept"),
            F.min("accepted_us").alias("accepted_us"),
            F.min(F.struct("ts_ns", "frame_id", "piece", "batch", "row", "task")).alias("first"),
        )
        .where("kept")
        .select("body_id", "accepted_us", "first.ts_ns", "first.piece", "first.batch", "first.row", "first.task")
    )
    if stored is not None:
        known = parquet_rows(spark, pa.schema([("body_id", pa.binary())]), stored.files("bodies"))
        chosen = chosen.join(known, "body_id", "left_anti")
    return chosen


def _bodies_written(chosen: list[dict[str, Any]], directory: Place, filters: Filters, parts: int) -> TaskOutput:
    """Settle bodies; the distinct states in them stay in a file beside theirs, a batch for each part."""
    made = write_bodies(chosen, directory, filters)
    states = made.figures.history.reduced().combine_chunks()
    made.figures.history = History()
    if states.num_rows:
        place = place_of(*made.files) / _HISTORY
        made.histories[str(place)] = states.num_rows
        made.history_parts = parts
        part = _part_of(states, parts)
        counts = pc.value_counts(part)
        rows = dict(zip(*(counts.field(name).to_pylist() for name in ("values", "counts")), strict=True))
        in_order, at = states.take(pc.sort_indices(part)).combine_chunks().to_batches()[0], 0
        staged = StagedTables(place)
        for number in range(parts):
            staged.write(_HISTORY, in_order.slice(at, rows.get(number, 0)))
            at += rows.get(number, 0)
        staged.close()
    return made


def count_changes(spark: SparkSession, made: TaskOutput) -> Counts:
    """Count the changes in the states that the tasks of a run left in files."""
    places = [place_of(path) for path in made.histories]
    parts = range(made.history_parts)

    def counted(numbers: Iterable[int]) -> Counts:
        history = History()
        for place, number in product(places, numbers):
            history.add(pa.Table.from_batches([read_batch(place, _HISTORY, number)]))
        return history.counts(MOST_CHANGED)

    def run(numbers: Iterator[int]) -> Iterator[object]:
        for number in numbers:
            yield counted([number])

    if sum(made.histories.values()) <= _STATES_ON_DRIVER:
        return counted(parts)
    totals: Counter[str] = Counter()
    listed = []
    for total, most in results(for_each(spark, len(parts), run)):
        totals.update(total)
        listed += most
    return dict(totals), most_changed(listed, MOST_CHANGED)


def _part_of(states: pa.Table, parts: int) -> pa.Array:
    """The part of each state's partition, the same in every task."""
    topics = states["topic"].combine_chunks()
    topic = pa.array([crc32(name.encode()) for name in topics.dictionary.to_pylist()], pa.int64()).take(topics.indices)
    number = pc.add(topic, pc.bit_wise_and(states["partition"].combine_chunks().cast(pa.int64()), 0xFFFFFFFF))
    return pc.subtract(number, pc.multiply(pc.divide(number, parts), parts))


def for_each(spark: SparkSession, count: int, run: Callable[[Iterator[int]], Iterator[object]]) -> DataFrame:
    """Run a task for each number; return its result as a row."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in run(task_numbers(batches)):
            yield receipt(result)

    return task_each(spark, count).mapInArrow(work, spark_schema(RECEIPT))


def task_each(spark: SparkSession, count: int) -> DataFrame:
    """The numbers up to a count, a task for each."""
    return spark.range(0, count, 1, numPartitions=count)


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers that a task of ``task_each`` was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def receipt(result: object) -> pa.RecordBatch:
    """A task's result as a row for the driver."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], schema=RECEIPT)


def results(receipts: DataFrame) -> list[Any]:
    """The tasks' results."""
    return [pickle.loads(row.receipt) for row in receipts.collect()]  # noqa: S301  # our own tasks wrote it
