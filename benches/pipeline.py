"""How fast is the pipeline? One table: a small capture beside bare Spark, and megabytes for a second of processors.

CPU time is that of all processes, Spark's start left out: that of a bare session in the same round is taken off.

The largest capture, which shows how cost grows, is analyzed once: its figures stand in every round beside that round's.

python benches/pipeline.py            captures of 10 GiB in all; benches/results/pipeline.json keeps every round
python benches/pipeline.py --quick    a few minutes, no limits
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Goal, finish
from measure import machine
from pipeline_input import write_capture
from processes import cost_of

HERE = Path(__file__).parent
MIB = 1 << 20

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


def goals(sizes: list[int]) -> list[Goal]:
    """The rows, for captures of these sizes in MiB."""
    least, most = f"{sizes[0]} MiB", f"{sizes[-1]} MiB"
    small = "1 MB capture"
    rate = "MB / CPU-s"
    return [
        Goal("small", "kproto analyze", small, "s", "analyze wall", "bare wall", "bare Spark", 1.6),
        Goal("small", "kproto analyze: CPU", small, "s", "analyze cpu", "bare cpu", "bare Spark", 1.6),
        Goal("small", "the same again", small, "s", "again wall", "bare wall", "bare Spark"),
        Goal("speed", "pcap to frames in Spark", least, rate, "frames rate", limit=100, at_least=True),
        Goal("speed", "frames to tables, no body twice", least, rate, "states rate", limit=25, at_least=True),
        Goal("speed", "frames to tables: states", least, "M / CPU-s", "states rows", limit=0.5, at_least=True),
        Goal("speed", "pcap to tables and summary, no body twice", least, rate, "whole rate", limit=25, at_least=True),
        Goal("speed", "pcap to tables and summary, each to 100 brokers", least, rate, "fleet rate"),
        Goal(
            "speed", "frames to tables, no body shared", least, "CPU-s", "states cpu", "shared cpu", "to 100 brokers",
            20, at_least=True,
        ),
        Goal("growth", f"CPU a MB at {most}", most, "CPU-s", "most cpu/MB", "least cpu/MB", f"at {least}", 1.15),
        Goal("growth", "memory of a worker", most, "MiB", "most worker", limit=1024),
        Goal("growth", "longest task over the median", most, "times", "skew", limit=3),
    ]  # fmt: skip


def growth_of(captures: Path, sizes: list[int]) -> dict[str, float]:
    """The figures of the largest capture."""
    large = captures / f"distinct-{sizes[-1]}.pcap"
    bare = cost_of([sys.executable, "-c", BARE, str(captures / "bare")])
    cpu_s, said = _product("analyze", str(large))
    return {
        "most cpu/MB": max(cpu_s - bare.cpu_s, 0.01) / (large.stat().st_size / 1e6),
        "most worker": said["worker_mib"],
        "skew": said["skew"],
    }


def round_of(captures: Path, sizes: list[int]) -> dict[str, float]:
    """One round of all other figures."""
    figures: dict[str, float] = {}
    python = sys.executable
    with tempfile.TemporaryDirectory() as directory:
        bare = cost_of([python, "-c", BARE, f"{directory}/bare"])
        analyze = [python, "-m", "kproto", "analyze", str(captures / "small.pcap"), "--out", f"{directory}/out"]
        for name, cost in (("bare", bare), ("analyze", cost_of(analyze)), ("again", cost_of(analyze))):
            figures |= {f"{name} wall": cost.wall_s, f"{name} cpu": cost.cpu_s}
    least = sizes[0]
    distinct, shared = str(captures / f"distinct-{least}.pcap"), str(captures / f"shared-{least}.pcap")
    megabytes = {path: Path(path).stat().st_size / 1e6 for path in (distinct, shared)}
    cpu: dict[tuple[str, str], float] = {}
    said: dict[tuple[str, str], dict[str, float]] = {}
    for path in (distinct, shared):
        for workload in ("gathered", "states", "analyze"):
            cpu[workload, path], said[workload, path] = _product(workload, path)
    cpu["frames", distinct], _ = _product("frames", distinct)

    def alone(workload: str, path: str, before: float = bare.cpu_s) -> float:
        """CPU time without that of a bare session, or of the stages before."""
        return max(cpu[workload, path] - before, 0.01)

    distinct_s = alone("states", distinct, cpu["gathered", distinct])
    return figures | {
        "frames rate": megabytes[distinct] / alone("frames", distinct),
        "states rate": megabytes[distinct] / distinct_s,
        "states rows": said["states", distinct]["rows"] / distinct_s / 1e6,
        "states cpu": distinct_s,
        "shared cpu": alone("states", shared, cpu["gathered", shared]),
        "whole rate": megabytes[distinct] / alone("analyze", distinct),
        "fleet rate": megabytes[shared] / alone("analyze", shared),
        "least cpu/MB": alone("analyze", distinct) / megabytes[distinct],
    }


def _product(workload: str, capture: str) -> tuple[float, dict[str, float]]:
    """CPU time of all processes, and what the program says."""
    cost = cost_of([sys.executable, str(HERE / "pipeline_product.py"), workload, capture])
    return cost.cpu_s, json.loads(cost.output.splitlines()[-1])


def main() -> int:
    """Measure, print the table, keep the result; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small captures, one round, no limits")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="MIB", help="of the captures; the last for growth")
    parser.add_argument("--json", type=Path, help="the result file")
    options = parser.parse_args()
    sizes = sorted(options.sizes or ([16, 32] if options.quick else [1024, 8192]))
    at_start = machine("java")
    rounds: list[dict[str, float]] = []
    failures: list[str] = []
    # Not where temporary files may be memory: eight gigabytes are written.
    with tempfile.TemporaryDirectory(dir=os.environ.get("KPROTO_BENCH_DIR")) as directory:
        captures = Path(directory)
        write_capture(captures / "small.pcap", MIB, copies=3)
        for size in sizes:
            write_capture(captures / f"distinct-{size}.pcap", size * MIB)
        write_capture(captures / f"shared-{sizes[0]}.pcap", sizes[0] * MIB, copies=100)
        growth: dict[str, float] = {}
        for _ in range(1 if options.quick else options.rounds):
            try:
                growth = growth or growth_of(captures, sizes)
                rounds.append(round_of(captures, sizes) | growth)
            except (subprocess.SubprocessError, ValueError) as e:
                failures.append(str(e))
    return finish("pipeline", goals(sizes), rounds, at_start, failures, options, sizes_mib=sizes)


if __name__ == "__main__":
    sys.exit(main())
