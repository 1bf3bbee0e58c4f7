"""A directory where recordings arrive -> the tables of one run over all of them, kept up to date."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import CaptureError
from kproto.pipeline.job import analyze, unchanged
from kproto.pipeline.options import capture_points_of, checked, columns_of, rows_of
from kproto.pipeline.parquet import spark_schema
from kproto.tables.files import is_uri
from kproto.tables.points import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    once: bool = False,
    seconds: float = 10,
    on_run: Callable[[Run], object] = lambda _run: None,
    on_nothing: Callable[[str], object] = lambda _reason: None,
    stop: threading.Event | None = None,
) -> None:
    """Keep the tables of the captures in a directory up to date: look at what is there again and again.

    What is new is added, under whatever name and with whatever time it came, and what files have grown by. Names that
    begin with a dot or an underscore, or end in ``.part``, are left alone.

    Args:
        spark: The session.
        directory: A directory, or its URI.
        out: The directory of the tables.
        filters: See ``analyze``.
        capture_point, cluster: See ``analyze``.
        once: Whether to end when all that is there now is in the tables.
        seconds: The interval at which to look.
        on_run: Told each run that added something, and the first.
        on_nothing: Told why there are no tables yet, where that is another reason than before.
        stop: Ends it.

    Raises:
        ConfigurationError: ``out`` holds something else, or was made otherwise.
    """
    out.check()
    stop = stop or threading.Event()
    named: dict[str, Any] = {"filters": filters, "capture_point": capture_point, "cluster": cluster}
    said, is_first = "", True
    while not stop.is_set():
        try:
            run = None if is_first else unchanged([directory], out, **named)
            if run is None:
                run = analyze(spark, [directory], out, **named, whole_summary=False)
                on_run(run)
                is_first = False
        except (CaptureError, FileNotFoundError) as e:  # a file may go while it is looked at
            if str(e) != said:
                said = str(e)
                on_nothing(said)
        if once:
            return
        stop.wait(seconds)


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
    schema = spark_schema(columns_of(chosen))
    place = directory if is_uri(directory) else str(Path(directory).absolute())

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from rows_of(capture_points_of([_named(path)], chosen), chosen)

    arriving = spark.readStream.format("binaryFile").schema(_FILES).load(place)
    return arriving.select("path").mapInArrow(read, schema)


def _named(path: str) -> str:
    """Return a path as kproto takes it, from one as Spark lists it."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
