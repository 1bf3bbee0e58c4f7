"""A directory where recordings arrive -> the tables of one run over all of them, kept up to date.

Structured Streaming notices new files, and remembers over restarts which it has noticed. For each batch of them
``analyze`` runs over the directory: it reads the files that the tables do not hold yet, or all of them where a capture
cannot go on behind its former files, and commits once. A batch that was killed is done again; where it had been
committed before, that changes nothing. So the tables are at each moment those of one run, and after the last file
those of the whole directory, in whatever order the files came.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.errors import CaptureError, ConfigurationError
from kproto.pipeline.job import analyze
from kproto.pipeline.options import capture_points_of, checked, columns_of, rows_of, scan_arguments
from kproto.pipeline.output import CHECKPOINT
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.splitting import SPLIT_BYTES
from kproto.tables.files import is_uri
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.scanning import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kproto.pipeline.job import Run
    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.filters import Filters

_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
"""The columns in which Spark lists files. It opens none of them, since ``content`` is not selected."""


def follow(
    spark: SparkSession,
    directory: str,
    out: OutputDirectory,
    *,
    filters: Filters | None = None,
    split_bytes: int = SPLIT_BYTES,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    once: bool = False,
    seconds: float = 10,
    on_run: Callable[[Run], object] = lambda _run: None,
    on_nothing: Callable[[str], object] = lambda _reason: None,
) -> StreamingQuery:
    """Keep the tables of the captures in a directory up to date.

    Files must be renamed into the directory when they are complete, and stay there. They may come late, in any order.
    Names that begin with a dot or an underscore, or end in ``.part``, are left alone.

    Args:
        spark: The session.
        directory: A directory, or its URI.
        out: The directory of the tables, and of what was noticed.
        filters: See ``analyze``.
        split_bytes, capture_point, cluster: See ``analyze``.
        once: Whether to end when all files that are there now are in the tables.
        seconds: The interval at which to look for new files.
        on_run: Told each run.
        on_nothing: Told why there are no tables yet, where the captures so far hold no wanted request.

    Returns:
        The running query; its ``awaitTermination`` waits for its end, and raises what ended it.

    Raises:
        ConfigurationError: ``out`` holds something else, or is no directory of a mounted file system.
    """
    check_followable(out)
    place = directory if is_uri(directory) else str(Path(directory).absolute())

    def add(_files: DataFrame, _batch: int) -> None:
        try:
            run = analyze(
                spark,
                [place],
                out,
                filters=filters,
                split_bytes=split_bytes,
                capture_point=capture_point,
                cluster=cluster,
                whole_summary=False,
            )
            on_run(run)
        except CaptureError as e:
            if out.is_written:
                raise
            on_nothing(str(e))

    files = _arriving(spark, place).select("path", "length")
    writer = files.writeStream.foreachBatch(add).option("checkpointLocation", str(out.path / CHECKPOINT))
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
    return trigger.start()


def stream_frames(spark: SparkSession, directory: str, **options: str) -> DataFrame:
    """Return the frames of captures as a stream: of each file once, when it arrives in a directory.

    Structured Streaming remembers in the query's checkpoint which files were read. Each file is read by itself, so the
    frames between two rotated files are lost; ``follow`` joins them.

    Args:
        spark: The session.
        directory: A directory, or its URI, into which complete files are renamed.
        options: See ``read_frames``.

    Raises:
        ConfigurationError: An option is unknown, or says nothing that it may.
    """
    chosen = checked(options)
    schema, arguments = columns_of(chosen), scan_arguments(chosen)
    place = directory if is_uri(directory) else str(Path(directory).absolute())

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from rows_of(scan(capture_points_of([_named(path)], chosen), **arguments), chosen, schema)

    return _arriving(spark, place).select("path").mapInArrow(read, spark_schema(schema))


def _arriving(spark: SparkSession, place: str) -> DataFrame:
    """The files that arrive in a directory, as a stream."""
    return spark.readStream.format("binaryFile").schema(_FILES).load(place)


def _named(path: str) -> str:
    """Return a path as kproto takes it, from one as Spark lists it."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def check_followable(out: OutputDirectory) -> None:
    """Check early whether a directory can be followed into an output directory.

    Raises:
        ConfigurationError: As ``follow``.
    """
    if not isinstance(out.path, Path):
        raise ConfigurationError(
            f"{out.path}: --follow needs tables on a mounted file system, where Spark keeps its checkpoint; "
            "follow into a local directory, or run kproto analyze without --follow again and again: it adds the new "
            "captures"
        )
    out.check()
