"""What does a month of a fleet cost: thirty daily captures added, rolled up, expired, compacted and asked?

    python benches/month.py [--days 30] [--brokers 50] [--partitions 5000] [--rounds 1] [--quick] [--json FILE]

One fleet is generated for all days, and its capture is cut at each midnight: most connections of a day began on an
earlier one. Each day is added by a run of its own in one session of Spark, and rolled up; "late" is the mean of the
last five days, "early" that of days 2 to 6. Then a week expires, small files are joined, and a new process asks for the
worst brokers of each week. CPU time is that of this process and of all below it. The figures go to
benches/results/month.json; --quick makes everything small, and judges nothing. Ends with 1 if a limit is missed or a
program fails.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from figures import Goal, Round, finish, measured_rounds, options_of
from measure import machine
from processes import CpuMeter

from kproto.generate import PlannedFleet, write_captures
from kproto.pipeline import OutputDirectory, analyze, spark_session
from kproto.pipeline.upkeep import compact, expire
from kproto.query.rollups import roll_up

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
DAY_S = 86_400
_RECORD = struct.Struct("<IIII")
_HEADER_BYTES = 24


def goals() -> list[Goal]:
    """The rows."""
    return [
        Goal("month", "add a day", "last five days", "CPU-s", "late add", "early add", "days 2 to 6", 1.1),
        Goal("month", "roll up a day", "last five days", "CPU-s", "late roll up", "early roll up", "days 2 to 6", 1.1),
        Goal("month", "add all days", "", "CPU-s", "add"),
        Goal("month", "roll up all days", "", "CPU-s", "roll up"),
        Goal("month", "expire a week", "", "CPU-s", "expire"),
        Goal("month", "compact", "", "CPU-s", "compact"),
        Goal("month", "worst broker, week by week", "a process of its own", "s", "ask"),
        Goal("month", "captures", "", "MB", "captures MB"),
        Goal("month", "tables", "", "MB", "tables MB"),
        Goal("month", "files of the tables", "", "files", "files"),
        Goal("month", "files, compacted", "", "files", "compacted files"),
        Goal("month", "rollups, with the states held", "", "MB", "rollups MB"),
    ]


def daily(capture: Path, directory: Path) -> list[Path]:
    """Cut a capture at each midnight."""
    data = memoryview(capture.read_bytes())
    files: list[Path] = []
    at = begin = _HEADER_BYTES
    day = None
    while at <= len(data):
        here = _RECORD.unpack_from(data, at)[0] // DAY_S if at < len(data) else None
        if here != day:
            if day is not None:
                path = directory / f"{datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m-%d}.pcap"
                path.write_bytes(bytes(data[:_HEADER_BYTES]) + bytes(data[begin:at]))
                files.append(path)
            begin, day = at, here
        if here is None:
            break
        at += _RECORD.size + _RECORD.unpack_from(data, at)[2]
    return files


def measured(options: argparse.Namespace) -> Round:
    """One month."""
    found: dict[str, float] = {}
    days = options.days
    fleet = PlannedFleet(
        brokers=options.brokers, topics=max(1, options.partitions // 100), partitions=options.partitions,
        hours=24 * days - 1, failovers=days // 3 + 1, restarts=days * 2, elections=days * 10, isr_changes=days * 50,
        start_ns=round(BEGIN.timestamp()) * 1_000_000_000,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        out = OutputDirectory(place / "tables")
        (place / "whole").mkdir()
        write_captures(fleet, place / "whole")
        files = daily(place / "whole" / "control.pcap", place)
        assert len(files) == days, [file.name for file in files]
        found["captures MB"] = sum(file.stat().st_size for file in files) / 1e6
        _kept(files, out, found)
        began = time.monotonic()
        command = [sys.executable, "-m", "kproto", "query", str(out.path), "worst", "--format", "json"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        found["ask"] = time.monotonic() - began
        assert asked.stdout.count("\n") >= fleet.brokers
    return found


def _kept(files: list[Path], out: OutputDirectory, found: dict[str, float]) -> None:
    """Keep tables of the days: add and roll up each, expire some, join files."""
    spent: dict[str, list[float]] = {"add": [], "roll up": []}
    days = len(files)
    with CpuMeter() as meter, spark_session(small=True) as spark:

        def cost(work: Callable[[], object]) -> float:
            before = meter.cpu_s()
            work()
            return meter.cpu_s() - before

        for file in files:
            spent["add"].append(
                cost(lambda file=file: analyze(spark, [str(file)], out, cluster="month", whole_summary=False))  # type: ignore[misc]
            )
            spent["roll up"].append(cost(lambda: roll_up(out.path)))
        few = max(1, min(5, days // 3))
        for name, costs in spent.items():
            found[name] = sum(costs)
            found[f"early {name}"], found[f"late {name}"] = mean(costs[1 : 1 + few]), mean(costs[-few:])
        found["files"] = len([*_files(out)])
        found["tables MB"] = sum(file.stat().st_size for file in _files(out)) / 1e6
        rollups = [*(out.path / "kproto-rollups").rglob("*.parquet")]
        found["rollups MB"] = sum(file.stat().st_size for file in rollups) / 1e6
        found["expire"] = cost(lambda: expire(out, BEGIN + timedelta(days=min(7, days // 3))))
        found["compact"] = cost(lambda: compact(out))
        found["compacted files"] = len([*_files(out)])


def _files(out: OutputDirectory) -> list[Path]:
    return [*Path(str(out.path), "current").resolve().rglob("*.parquet")]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--days", type=int, default=30)
    arguments.add_argument("--brokers", type=int, default=50)
    arguments.add_argument("--partitions", type=int, default=5_000)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--quick", action="store_true", help="three days of a small fleet, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    if options.quick:
        options.days, options.brokers, options.partitions, options.rounds = 3, 5, 200, 1
    at_start = machine()
    began = time.monotonic()
    rounds, failures = measured_rounds(options.rounds, lambda: measured(options))
    settings = {
        "days": options.days, "brokers": options.brokers, "partitions": options.partitions,
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip
    return finish("month", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
