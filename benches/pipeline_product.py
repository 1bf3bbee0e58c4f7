"""One session of Spark and workloads of ``kproto analyze`` in it; prints JSON.

A workload does its jobs on a tiny capture first: what they take then is their fixed cost, and what they take after is
that of a session that runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow.compute as pc
from processes import CpuMeter, Watcher, descendants

from kproto import tables
from kproto.capture import capture_points
from kproto.pipeline import OutputDirectory, analyze, spark_session
from kproto.pipeline.parquet import spark_schema
from kproto.pipeline.stages import gather, learn
from kproto.pipeline.tasks import for_each, make_tables, results
from kproto.tables.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kproto.pipeline.stages import StagedPart

T = TypeVar("T")

_BODY_ID: Final = tables.SCAN.get_field_index("body_id")
_METER: Final = CpuMeter()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("capture")
    options.add_argument("--tiny", help="the tiny capture")
    options.add_argument("--reverse", action="store_true", help="without shared bodies first")
    options.add_argument("--master", default=f"local[{os.cpu_count() or 1}]")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=Path(given.capture).parent) as directory:
        log = Path(directory) / "events"
        log.mkdir()
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        with _METER, spark_session(given.master, settings=settings) as spark:
            figures = {"start cpu": _METER.cpu_s()} | WORKLOADS[given.workload](spark, given, Path(directory))
        print(json.dumps(figures | {"skew": _skew(next(log.iterdir()))}))


def speed(spark: SparkSession, given: argparse.Namespace, directory: Path) -> dict[str, float]:
    """Every stage for itself, and all of ``kproto analyze``."""
    figures: dict[str, float] = {}

    def run(capture: str, prefix: str) -> None:
        work = _fresh(directory, prefix)
        _measure(figures, f"{prefix} frames", lambda: _to_frames(spark, capture))
        pieces = _measure(figures, f"{prefix} gather", lambda: _staged(spark, capture, work))
        figures[f"{prefix} states"] = _measure(figures, f"{prefix} tables", lambda: _tables(spark, pieces, work))
        _measure(figures, f"{prefix} analyze", lambda: analyze(spark, [capture], OutputDirectory(work / "out")))

    run(given.tiny, "first")
    run(given.tiny, "tiny")
    run(given.capture, "large")
    return figures


def sharing(spark: SparkSession, given: argparse.Namespace, directory: Path) -> dict[str, float]:
    """Frames -> tables with each distinct body decoded and stored once, and the same with each copy for itself."""
    figures: dict[str, float] = {}
    ways = ("shared", "copies")[:: -1 if given.reverse else 1]
    for capture, prefix in ((given.tiny, "first"), (given.tiny, "tiny"), (given.capture, "large")):
        for way in ways:
            name = f"{prefix} {way}"
            work = _fresh(directory, name)
            pieces = _staged(spark, capture, work, shared=way == "shared")
            figures[f"{name} states"] = _measure(figures, name, partial(_tables, spark, pieces, work))
        if prefix != "tiny":
            out = OutputDirectory(_fresh(directory, prefix) / "out")
            _measure(figures, f"{prefix} analyze", partial(analyze, spark, [capture], out))
    return figures


def whole(spark: SparkSession, given: argparse.Namespace, directory: Path) -> dict[str, float]:
    """``kproto analyze`` as the only job of its session."""
    figures: dict[str, float] = {}
    with _Memory() as memory:
        _measure(figures, "analyze", lambda: analyze(spark, [given.capture], OutputDirectory(directory / "out")))
    return figures | {"worker_mib": memory.most_kib / 1024}


WORKLOADS = {"speed": speed, "sharing": sharing, "whole": whole}


def _measure(figures: dict[str, float], name: str, job: Callable[[], T]) -> T:
    """Do a job; keep its CPU time, of all processes, and its wall time."""
    began, started = _METER.cpu_s(), time.monotonic()
    result = job()
    figures |= {f"{name} cpu": _METER.cpu_s() - began, f"{name} wall": time.monotonic() - started}
    return result


def _fresh(directory: Path, name: str) -> Path:
    path = directory / name.replace(" ", "-")
    path.mkdir()
    return path


def _to_frames(spark: SparkSession, capture: str) -> None:
    """pcap -> frames with their bodies, as rows in Spark, to nowhere."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _number in numbers:
            yield from tables.scan([capture])

    each = spark.range(0, 1, 1, numPartitions=1)
    each.mapInArrow(read, spark_schema(tables.SCAN)).write.format("noop").mode("overwrite").save()


def _staged(spark: SparkSession, capture: str, directory: Path, *, shared: bool = True) -> list[StagedPart]:
    """pcap -> frames and bodies on disk."""
    (point,) = capture_points([capture])

    def read(numbers: Iterator[int]) -> Iterator[object]:
        for _number in numbers:  # to the end: Spark ends a worker that leaves some
            batches = tables.scan([point]) if shared else _copies(tables.scan([point], every_payload=True))
            yield gather(batches, directory, Filters())

    return results(for_each(spark, 1, read))


def _copies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Name each frame's body after the frame, so that no two frames share a body."""
    for batch in batches:
        own = pc.if_else(pc.is_valid(batch.column("body_id")), batch.column("frame_id"), None)
        yield batch.set_column(_BODY_ID, tables.SCAN.field(_BODY_ID), own)


def _tables(spark: SparkSession, pieces: list[StagedPart], directory: Path) -> int:
    """Staged frames and bodies -> all tables in Parquet; the number of partition states."""
    filters = Filters()
    made = make_tables(spark, pieces, directory, learn(pieces, filters), filters)
    files = (each for of_task in made.files.values() for each in of_task.items())
    return sum(rows for file, rows in files if file.startswith("partition_states"))


class _Memory(Watcher):
    """Looks twice a second for the most memory that any Python worker has held."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.most_kib = 0

    def look(self) -> None:
        """Look at the workers that run now."""
        own = os.getpid()
        workers = (each.pid for each in descendants(own) if each.pid != own and "java" not in each.name)
        self.most_kib = max([self.most_kib, *map(_most_kib, workers)])


def _most_kib(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _skew(log: Path) -> float:
    """The longest task over the median one, of the stages that take time: the worst of them."""
    times: dict[int, list[int]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and (metrics := event.get("Task Metrics")):
            times.setdefault(event["Stage ID"], []).append(metrics["Executor Run Time"])
    long = [each for each in times.values() if sum(each) > 1000 and len(each) > 1]
    return max((max(each) / max(statistics.median(each), 1) for each in long), default=1.0)


if __name__ == "__main__":
    main()
