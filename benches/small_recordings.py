"""What do many small recordings cost: 200 hosts that rotate each minute, until the tables hold 10,000 recordings?

    python benches/small_recordings.py [--hosts 200] [--minutes 50] [--rounds 1] [--quick] [--here] [--json FILE]
    python benches/small_recordings.py --hosts 40 --minutes 250 --here    10,000 recordings, in a few minutes
    python benches/small_recordings.py --hosts 200 --minutes 51           as many by Spark, on a quiet machine

Each minute a run of its own, in one session of Spark, adds a recording of about 20 KB of each host. "First" is the mean
of minutes 2 to 6, "last" that of the last five. CPU time is that of this process and of all below it, beside Spark's
start; --here does the tasks in this process, without Spark. The figures go to benches/results/small_recordings.json;
--quick makes everything small, and judges nothing. Ends with 1 if a limit is missed or a program fails.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import mean
from typing import Any

from figures import Goal, Round, finish, measured_rounds, options_of
from measure import machine
from pipeline_input import write_capture
from processes import CpuMeter

from kproto.pipeline import OutputDirectory, analyze, spark_session

BYTES = 20_000


def goals() -> list[Goal]:
    """The rows."""
    return [
        Goal("small recordings", "add a minute of all hosts", "minutes 2 to 6", "CPU-s", "first", limit=15),
        Goal(
            "small recordings",
            "add a minute of all hosts",
            "last five",
            "CPU-s",
            "last",
            "first",
            "minutes 2 to 6",
            1.25,
        ),
        Goal("small recordings", "files of the tables", "", "files", "files"),
        Goal("small recordings", "manifest", "", "MB", "manifest MB"),
    ]


def measured(options: argparse.Namespace) -> Round:
    """One tables' growth, minute by minute."""
    costs: list[float] = []
    session: AbstractContextManager[Any] = nullcontext(_tasks_here()) if options.here else spark_session(small=True)
    with tempfile.TemporaryDirectory() as directory, CpuMeter() as meter, session as spark:
        place = Path(directory)
        out = OutputDirectory(place / "tables")
        for minute in range(options.minutes):
            files = [place / "hosts" / str(host) / f"control.pcap{minute}" for host in range(options.hosts)]
            for host, file in enumerate(files):
                file.parent.mkdir(parents=True, exist_ok=True)
                seed = minute * options.hosts + host
                write_capture(file, BYTES, seed=seed, first_epoch=minute * 1000, partitions=100, brokers=3)
            before = meter.cpu_s()
            run = analyze(spark, list(map(str, files)), out, whole_summary=False)
            costs.append(meter.cpu_s() - before)
            assert run.captures_read == options.hosts
            for file in files:
                file.unlink()
        few = max(1, min(5, options.minutes // 3))
        return {
            "first": mean(costs[1 : 1 + few]),
            "last": mean(costs[-few:]),
            "files": len([*Path(str(out.path), "current").resolve().rglob("*.parquet")]),
            "manifest MB": Path(str(out.path), "_kproto.json").stat().st_size / 1e6,
        }


def _tasks_here() -> Any:
    """What stands in for Spark in the tests."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    return importlib.import_module("tasks_here").TasksHere()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hosts", type=int, default=200)
    arguments.add_argument("--minutes", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--quick", action="store_true", help="three minutes of a few hosts, no limits")
    arguments.add_argument("--here", action="store_true", help="do the tasks in this process, without Spark")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    if options.quick:
        options.hosts, options.minutes, options.rounds = 5, 3, 1
    at_start = machine()
    began = time.monotonic()
    rounds, failures = measured_rounds(options.rounds, lambda: measured(options))
    settings = {"hosts": options.hosts, "minutes": options.minutes, "seconds": round(time.monotonic() - began)}
    return finish("small_recordings", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
