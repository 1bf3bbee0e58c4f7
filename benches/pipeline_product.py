"""One session of Spark and one workload of ``kproto analyze`` in it; prints JSON. CPU time is counted from outside."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kproto import tables
from kproto.capture import capture_points
from kproto.pipeline import OutputDirectory, analyze, spark_session
from kproto.pipeline.stored import spark_schema
from kproto.pipeline.tasks import gather_pieces, make_tables
from kproto.tables.filters import Filters
from kproto.tables.stages import learn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kproto.tables.stages import Piece


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("captures", nargs="+")
    options.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=Path(given.captures[0]).parent) as directory:
        log = Path(directory) / "events"
        log.mkdir()
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        with spark_session(f"local[{given.cores}]", settings=settings) as spark, _Memory() as memory:
            started = time.monotonic()
            rows = WORKLOADS[given.workload](spark, given.captures, Path(directory))
            wall = time.monotonic() - started
        figures = {"rows": rows, "wall_s": wall, "worker_mib": memory.most_kib / 1024}
        print(json.dumps(figures | {"skew": _skew(next(log.iterdir()))}))


def frames(spark: SparkSession, captures: list[str], _directory: Path) -> int:
    """pcap -> frames with their bodies, as rows in Spark, to nowhere."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from tables.scan([captures[number]])

    each = spark.range(0, len(captures), 1, numPartitions=len(captures))
    each.mapInArrow(read, spark_schema(tables.SCAN)).write.format("noop").mode("overwrite").save()
    return 0


def gathered(spark: SparkSession, captures: list[str], directory: Path) -> int:
    """pcap -> frames, staged."""
    return sum(piece.rows["frames"] for piece in _pieces(spark, captures, directory))


def states(spark: SparkSession, captures: list[str], directory: Path) -> int:
    """The same, and frames -> all tables in Parquet, most of all partition states."""
    pieces = _pieces(spark, captures, directory)
    filters = Filters()
    made = make_tables(spark, pieces, directory, learn(pieces, filters), filters)
    return sum(rows for each in made for file, rows in each.files.items() if file.startswith("partition_states"))


def everything(spark: SparkSession, captures: list[str], directory: Path) -> int:
    """What ``kproto analyze`` does once Spark has started."""
    return analyze(spark, captures, OutputDirectory(directory / "out")).rows["partition_states"]


WORKLOADS = {"frames": frames, "gathered": gathered, "states": states, "analyze": everything}


def _pieces(spark: SparkSession, captures: list[str], directory: Path) -> list[Piece]:
    points = capture_points(captures)
    return gather_pieces(spark, [partial(tables.scan, [point]) for point in points], directory, Filters())


class _Memory:
    """Looks twice a second for the most memory that any Python worker has held."""

    def __init__(self) -> None:
        self.most_kib = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.most_kib = max([self.most_kib, *map(_most_kib, _workers(os.getpid()))])


def _workers(root: int) -> Iterator[int]:
    """The Python processes below this one."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(") ")
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry.name)] = int(rest.split()[1])
            names[int(entry.name)] = name
    for pid, name in names.items():
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root and "java" not in name:
            yield pid


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
