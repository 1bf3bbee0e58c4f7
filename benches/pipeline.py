"""How fast is the pipeline? One table: beside bare Spark, by the second of processors, shared bodies, workers, growth,
skew, many small captures.

CPU time is that of all processes. "Speed" and "sharing" are jobs of a session that has done the same jobs on a tiny
capture before; the rows named "fixed cost" show what the session's start and the jobs on that tiny capture take.

    python benches/pipeline.py                   captures of 1 and 4 GiB
    python benches/pipeline.py --sizes 512 1024  smaller ones, the last for growth alone
    python benches/pipeline.py --only growth     one group: each takes minutes, and wants the machine for itself
    python benches/pipeline.py --quick           every program once, no limits

Each group of rows keeps its rounds in a result of its own, benches/results/pipeline-GROUP.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Goal, finish, options_of
from measure import machine
from pipeline_input import rotate, write_capture
from processes import cost_of
from standalone_spark import standalone

HERE = Path(__file__).parent
MIB = 1 << 20
PYTHON = sys.executable
COPIES = 100
MANY = 10_000
"""The number of small captures."""
MANY_BYTES = 28_000
MANY_PARTITIONS = 50
WORKER_MEMORY = "1g"
ROTATED = 8
"""The number of files into which a rotated capture is cut."""

BARE = """
import sys
from kproto.pipeline import spark_session

def same(batches):
    yield from batches

with spark_session(small=True) as spark:
    rows = spark.range(0, 1000, 1, numPartitions=1).mapInArrow(same, "id bigint")
    rows.write.mode("overwrite").parquet(sys.argv[1])
"""
"""A session of Spark that runs one ``mapInArrow`` and writes one Parquet table."""

PLAIN = """
import io, sys
from time import process_time
import pyarrow.parquet as pq
from kproto.tables import decode, scan

files, writing = {}, 0.0

def write(name, rows):
    global writing
    began = process_time()
    if name not in files:
        files[name] = pq.ParquetWriter(io.BytesIO(), rows.schema, compression="zstd", use_dictionary=["topic"])
    files[name].write_batch(rows)
    writing += process_time() - began

def written(batches):
    for rows in batches:
        write("bodies", rows.select(["body_id", "payload"]))
        yield rows

for capture in sys.argv[1:]:
    files.clear()
    for name, rows in decode(written(scan([capture], every_payload=True))):
        write(name, rows)
print(writing)
"""
"""A process that reads captures and writes their bodies and what is in them to memory, without Spark and a driver."""


def goals(sizes: list[int]) -> list[Goal]:
    """The rows, for captures of these sizes in MiB."""
    least, most = f"{sizes[0]} MiB", f"{sizes[-1]} MiB"
    small, fleet = "1 MB capture", f"each body to {COPIES} brokers, {least}"
    distinct = f"no body twice, {least}"
    rate = "MB / CPU-s"
    once = "each body once"
    rows = [
        Goal("small", "kproto analyze", small, "s", "analyze wall", "bare wall", "bare Spark", 1.6),
        Goal("small", "kproto analyze: CPU", small, "s", "analyze cpu", "bare cpu", "bare Spark", 1.6),
        Goal("small", "the same again", small, "s", "again wall", "bare wall", "bare Spark"),
        Goal("speed", "pcap to frames in Spark", distinct, rate, "frames rate", limit=100, at_least=True),
        Goal("speed", "frames to tables", distinct, rate, "tables rate", limit=120, at_least=True),
        Goal("speed", "frames to tables: pyarrow's writer alone, in a plain process", distinct, rate, "writer rate"),
        Goal("speed", "frames to tables: states", distinct, "M / CPU-s", "states rate", limit=0.5, at_least=True),
        Goal("speed", "pcap to tables and summary", distinct, rate, "analyze rate", limit=60, at_least=True),
        Goal("speed", "pcap to tables: a plain process instead", distinct, rate, "plain rate"),
        Goal("sharing", "pcap to tables and summary", fleet, rate, "fleet rate", limit=200, at_least=True),
        Goal("speed", "fixed cost: Spark's start", "", "CPU-s", "start cpu"),
        Goal("speed", "fixed cost: kproto analyze after its three stages in one session", small, "CPU-s", "first cpu"),
        Goal("speed", "fixed cost: a later kproto analyze", small, "CPU-s", "later cpu"),
        Goal(
            "sharing", "frames to tables, copy by copy", fleet, "CPU-s", "copies cpu", "shared cpu", once, 25,
            at_least=True,
        ),
        Goal("sharing", "the same less its cost on a tiny capture", fleet, "CPU-s", "copies net", "shared net", once),
        Goal("sharing", "the same with Spark's start", fleet, "CPU-s", "copies whole", "shared whole", once),
        Goal(
            "workers", "kproto analyze by one worker", distinct, "s", "one wall", "two wall", "by two", 1.8,
            at_least=True,
        ),
        Goal("workers", "the same with Spark's start", distinct, "s", "one whole", "two whole", "by two"),
        Goal("workers", f"the same in {ROTATED} rotated files", distinct, "s", "one files", "two files", "by two"),
        Goal("workers", "plain processes that share nothing, one", distinct, "s", "one plain", "two plain", "by two"),
    ]  # fmt: skip
    return [
        *rows,
        Goal("growth", f"CPU a MB at {most}", "", "CPU-s", "most cpu/MB", "least cpu/MB", f"at {least}", 1.15),
        Goal("growth", "memory of a worker", most, "MiB", "most worker", limit=450),
        Goal("growth", f"memory of a worker at {most}", "", "MiB", "most worker", "least worker", f"at {least}", 1.1),
        Goal("growth", "longest task over the median", most, "times", "skew", limit=3),
        Goal("skew", "one connection has 95 % of the bytes: CPU", least, "CPU-s", "one cpu", "even cpu", "even", 1.3),
        Goal("skew", "the same: longest task over the median", least, "times", "one skew", limit=3),
        Goal("many", f"{MANY:,} captures, each a capture point", "28 kB each", "CPU-s", "many cpu", limit=20),
        Goal("many", "the same: a plain process instead", "28 kB each", "CPU-s", "plain cpu"),
    ]


def small(captures: Path, _sizes: list[int], _number: int) -> dict[str, float]:
    """The whole command on a small capture, beside bare Spark."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        bare = [PYTHON, "-c", BARE, f"{directory}/bare"]
        analyze = [PYTHON, "-m", "kproto", "analyze", str(captures / "small.pcap"), "--out", f"{directory}/out"]
        for name, command in (("bare", bare), ("analyze", analyze), ("again", analyze)):
            cost = cost_of(command)
            figures |= {f"{name} wall": cost.wall_s, f"{name} cpu": cost.cpu_s}
    return figures


def speed(captures: Path, sizes: list[int], _number: int) -> dict[str, float]:
    """Each stage, where no body is there twice."""
    capture = captures / f"distinct-{sizes[0]}.pcap"
    said = _product("speed", capture, "--tiny", str(captures / "small.pcap"))
    megabytes = capture.stat().st_size / 1e6
    plain = cost_of([PYTHON, "-c", PLAIN, str(capture)])
    return {
        **{f"{job} rate": megabytes / said[f"large {job} cpu"] for job in ("frames", "tables", "analyze")},
        "writer rate": megabytes / float(plain.output),
        "plain rate": megabytes / plain.cpu_s,
        "states rate": said["large states"] / said["large tables cpu"] / 1e6,
        "start cpu": said["start cpu"],
        "first cpu": said["first analyze cpu"],
        "later cpu": said["tiny analyze cpu"],
    }


def sharing(captures: Path, sizes: list[int], number: int) -> dict[str, float]:
    """The same frames with shared bodies and with each copy for itself, in turns first."""
    capture = captures / f"shared-{sizes[0]}.pcap"
    turns = ["--reverse"] if number % 2 else []
    said = _product("sharing", capture, "--tiny", str(captures / "shared-tiny.pcap"), *turns)
    if said["large copies states"] != COPIES * said["large shared states"]:
        raise ValueError(f"both ways must have the same states: {said}")
    figures = {"fleet rate": capture.stat().st_size / 1e6 / said["large analyze cpu"]}
    for way in ("shared", "copies"):
        cpu = said[f"large {way} cpu"]
        net = max(cpu - said[f"tiny {way} cpu"], 0.01)
        figures |= {f"{way} cpu": cpu, f"{way} net": net, f"{way} whole": said["start cpu"] + cpu}
    return figures


def workers(captures: Path, sizes: list[int], number: int) -> dict[str, float]:
    """One large capture, whole and in rotated files, by one worker of one core and by two, in turns first; and read
    twice by plain processes.
    """
    figures: dict[str, float] = {}
    cores = sorted(os.sched_getaffinity(0))
    capture = captures / f"distinct-{sizes[0]}.pcap"
    rotated = captures / "rotated"
    if not rotated.exists():
        rotated.mkdir()
        rotate(capture, rotated, ROTATED)
    for name, count in (("one", 1), ("two", 2))[:: -1 if number % 2 else 1]:
        pinned = cores[:count] if len(cores) >= count else None
        for said, whole, named in (("wall", "whole", capture), ("files", "files whole", rotated)):
            figures[f"{name} {said}"], figures[f"{name} {whole}"] = _by_workers(named, count, pinned)
        started = time.monotonic()
        share = [str(capture)] * (2 // count)
        plain = [
            subprocess.Popen(["taskset", "-c", str(core), PYTHON, "-c", PLAIN, *share], stdout=subprocess.DEVNULL)
            for core in cores[:count]
        ]
        codes = [process.wait(1800) for process in plain]
        if any(codes):
            raise RuntimeError(f"{name} plain: a process failed")
        figures[f"{name} plain"] = time.monotonic() - started
    return figures


def _by_workers(captures: Path, count: int, cores: list[int] | None) -> tuple[float, float]:
    """Seconds that ``analyze`` takes on a standalone cluster of workers, and those of its whole process."""
    with (
        tempfile.TemporaryDirectory(dir=captures.parent) as directory,
        standalone(Path(directory), workers=count, memory=WORKER_MEMORY, cores=cores) as master,
    ):
        command = [PYTHON, str(HERE / "pipeline_product.py"), "whole", str(captures), "--master", master]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        whole = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"{captures.name} by {count}: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])["analyze wall"], whole


def growth(captures: Path, sizes: list[int], _number: int) -> dict[str, float]:
    """The smallest and the largest capture, each as the only job of its session."""
    figures: dict[str, float] = {}
    for name, size in (("least", sizes[0]), ("most", sizes[-1])):
        capture = captures / f"distinct-{size}.pcap"
        said = _product("whole", capture)
        cost = said["analyze cpu"] / (capture.stat().st_size / 1e6)
        figures |= {f"{name} cpu/MB": cost, f"{name} worker": said["worker_mib"], "skew": said["skew"]}
    return figures


def skew(captures: Path, sizes: list[int], number: int) -> dict[str, float]:
    """A capture in which one connection has 95 % of the bytes, and one in which all have the same, in turns first."""
    figures: dict[str, float] = {}
    for name, prefix in (("one", "skewed"), ("even", "distinct"))[:: -1 if number % 2 else 1]:
        said = _product("whole", captures / f"{prefix}-{sizes[0]}.pcap")
        figures |= {f"{name} cpu": said["analyze cpu"], f"{name} skew": said["skew"]}
    return figures


def many(captures: Path, _sizes: list[int], _number: int) -> dict[str, float]:
    """A directory of small captures: the driver's planning and each capture's fixed cost are nearly all of it."""
    said = _product("whole", captures / "many")
    plain = cost_of([PYTHON, "-c", PLAIN, *map(str, (captures / "many").iterdir())])
    return {"many cpu": said["analyze cpu"], "many wall": said["analyze wall"], "plain cpu": plain.cpu_s}


GROUPS = {group.__name__: group for group in (small, speed, sharing, workers, growth, skew, many)}


def _product(workload: str, capture: Path, *arguments: str) -> dict[str, float]:
    """What a session of Spark in a process of its own measures of itself."""
    cost = cost_of([PYTHON, str(HERE / "pipeline_product.py"), workload, str(capture), *arguments])
    found: dict[str, float] = json.loads(cost.output.splitlines()[-1])
    return found


def main() -> int:
    """Measure, print the table, keep the result; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small captures, one round, no limits")
    parser.add_argument("--rounds", type=int, default=3, help="of each group")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="MIB", help="of the captures; the last for growth")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="groups of rows")
    parser.add_argument("--json", type=Path, help="the result file, of a single group")
    options = options_of(parser)
    if options.json and len(options.only) > 1:
        parser.error("--json takes the result of one group: name it with --only")
    sizes = sorted(options.sizes or ([8, 16] if options.quick else [1024, 4096]))
    # Not where temporary files may be memory: many gigabytes are written.
    with tempfile.TemporaryDirectory(dir=os.environ.get("KPROTO_BENCH_DIR")) as directory:
        captures = Path(directory)
        write_capture(captures / "small.pcap", MIB, copies=3)
        write_capture(captures / "shared-tiny.pcap", MIB, copies=COPIES)
        for size in sizes if "growth" in options.only else sizes[:1]:
            write_capture(captures / f"distinct-{size}.pcap", size * MIB)
        if "sharing" in options.only:
            write_capture(captures / f"shared-{sizes[0]}.pcap", sizes[0] * MIB, copies=COPIES)
        if "skew" in options.only:
            write_capture(captures / f"skewed-{sizes[0]}.pcap", sizes[0] * MIB, first_share=0.95)
        if "many" in options.only:
            (captures / "many").mkdir()
            for number in range(MANY // 100 if options.quick else MANY):
                path = captures / "many" / f"of-{number}-alone.pcap"  # a number at the end would make it a rotated file
                write_capture(path, MANY_BYTES, seed=number, partitions=MANY_PARTITIONS)
        return max([_measured(name, captures, sizes, options) for name in options.only])


def _measured(name: str, captures: Path, sizes: list[int], options: argparse.Namespace) -> int:
    """Measure a group of rows, print its table and keep its result; gives the exit code."""
    at_start = machine("java")
    rounds: list[dict[str, float]] = []
    failures: list[str] = []
    for number in range(1 if options.quick else options.rounds):
        try:
            rounds.append(GROUPS[name](captures, sizes, number))
        except Exception as e:  # noqa: BLE001 - the other groups are measured all the same
            failures.append(f"{name} in round {number + 1}: {e}")
        else:
            figures = ", ".join(f"{key} {figure:.3g}" for key, figure in rounds[-1].items())
            print(f"{name}, round {number + 1}: {figures}", file=sys.stderr, flush=True)
    rows = [goal for goal in goals(sizes) if goal.group == name]
    return finish(f"pipeline-{name}", rows, rounds, at_start, failures, options)


if __name__ == "__main__":
    sys.exit(main())
