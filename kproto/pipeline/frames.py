"""The frames of captures as a DataFrame, and what is told by them."""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from kproto.errors import ConfigurationError
from kproto.pipeline.captures import parallelism, shares_of
from kproto.pipeline.options import capture_points_of, checked, columns_of, rows_of
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.tasks import task_each, task_numbers
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.decoding import decode
from kproto.tables.filters import Filters
from kproto.tables.reading import TableReader, stretches
from kproto.tables.relations import broker_ids_of
from kproto.tables.schemas import BODIES, FRAMES, PARTITION_STATES, REQUESTS, SCAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


_OF_REQUESTS: Final = (*FRAMES.names, "broker_epoch", "exchange_id", "request_frame_id", "error", "payload")
"""The columns of frames that ``requests_of`` reads."""

_NO_RESPONSE: Final = "no response among the frames"


def read_frames(spark: SparkSession, captures: Sequence[str], **options: str) -> DataFrame:
    """Read captures as ``spark.read.format("kafka_control")`` does, with as many tasks as the executors run at once.

    Args:
        spark: The session, also one of Spark Connect, whose server has kproto installed.
        captures: Files, directories, patterns, URIs.
        options: Of the format: ``columns``, ``payload``, ``ports``, ``apis``, ``since``, ``until``, ``cluster``,
            ``capture_point``, ``log_zone``, ``log_date``.

    Raises:
        ConfigurationError: An option is unknown, or says nothing that it may.
        CaptureError: A directory or pattern holds no capture.
    """
    if given := sorted({"path", "paths", "workers"} & {name.lower() for name in options}):
        raise ConfigurationError(f"read_frames has no option {given[0]!r}; it takes captures")
    chosen = checked(options)
    if chosen.get("table", "frames") != "frames":
        raise ConfigurationError("read_frames gives frames; spark.read.format('kafka_control') has the other tables")
    schema = spark_schema(columns_of(chosen))
    shares = shares_of(capture_points_of(captures, chosen), parallelism(spark))

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(numbers):
            yield from rows_of(shares[number], chosen)

    return task_each(spark, len(shares)).mapInArrow(read, schema)


def states_of(frames: DataFrame) -> DataFrame:
    """Decode the bodies of frames into partition states, lazily and in the session of the frames.

    Each distinct body is decoded once; what cannot be decoded gives no row. The rows are those of the table
    ``partition_states``, of as many frames as are there: filter them first, and write the rows where you want them.

    Args:
        frames: From ``read_frames`` or ``kafka_control``, with their payloads; other columns are not needed.
    """
    bodies = frames.where("payload IS NOT NULL AND direction = 'request'").select(*BODIES.names)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for kind, rows in decode(batches):
            if kind == "state":
                yield rows

    return bodies.dropDuplicates(["body_id"]).mapInArrow(read, spark_schema(PARTITION_STATES))


def requests_of(frames: DataFrame) -> DataFrame:
    """Join the requests among frames with their responses, lazily and in the session of the frames.

    The rows are those of the table ``requests``, with two differences. ``broker_id`` is what the request's own capture
    point tells, and ``unmatched_reason`` does not say why a response is missing. One task reads the frames of a capture
    point, and holds its requests. A body stands with its first frame in a capture point, so whoever chooses frames by
    time does so by the options ``since`` and ``until``, or reads them with ``payload="all"``.

    Args:
        frames: From ``read_frames`` or ``kafka_control``, with all their columns.
    """
    has_no_body = F.col("payload").isNull()
    rows = frames.select(*_OF_REQUESTS).repartition("capture")
    rows = rows.sortWithinPartitions("capture", "ts_ns", "direction", has_no_body)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _capture, of_capture in groupby(_by_capture(batches), lambda rows: rows["capture"][0]):
            yield from _requests_of_capture(of_capture)

    return rows.mapInArrow(read, spark_schema(REQUESTS))


def _by_capture(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows of one capture point each, from rows that are sorted by it."""
    for batch in batches:
        at = 0
        for run in pc.run_end_encode(batch["capture"]).run_ends.to_pylist() if batch.num_rows else ():
            yield batch.slice(at, run - at)
            at = run


def _requests_of_capture(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rest = iter(batches)
    first = next(rest)
    facts, directory = BrokerFacts(), BrokerDirectory()
    reader = TableReader(Filters(), facts, states=False, cluster=first["cluster"][0].as_py())
    scanned = (_as_scan(batch) for batch in chain([first], rest))
    found = [reader.tables(part, last=last)["requests"] for part, last in stretches(scanned)]
    facts.teach(directory)
    for requests in found:
        answered = pc.is_valid(requests["response_frame_id"])
        values = {
            "broker_id": broker_ids_of(directory, requests),
            "unmatched_reason": pc.if_else(answered, None, _NO_RESPONSE),
        }
        columns = [values.get(name, requests[name]) for name in REQUESTS.names]
        yield from pa.Table.from_arrays(columns, schema=REQUESTS).to_batches()


def _as_scan(frames: pa.RecordBatch) -> pa.RecordBatch:
    """Return frames with the columns of ``SCAN``."""
    columns = [
        frames[field.name].cast(field.type) if field.name in _OF_REQUESTS else pa.nulls(frames.num_rows, field.type)
        for field in SCAN
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCAN)
