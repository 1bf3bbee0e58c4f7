"""What do the doctor's findings cost beside a summary, and does a stream that never ends stay cheap?

    python benches/doctor_ratios.py [--pairs 2] [--bodies 2000000] [--size 588] [--brokers 300] [--quick] [--json FILE]

- small: ``kproto summary`` and ``kproto doctor`` of a capture of 1 MB, imports included.
- large: the same of a generated capture of a large fleet; peak memory of the doctor.
- tables: ``kproto doctor`` of the tables that ``kproto analyze`` made of a capture of 50 MB, beside ``analyze``.
- stream: ``kproto summary -`` reads a growing number of distinct bodies. CPU a body in the last four tenths beside
  that in the second to fifth; peak memory of the second half beside that of the first; peak memory of ``kproto doctor
  -`` over them all beside that over the first half.

CPU time is that of a whole process and of all below it. The figures go to benches/results/doctor.json; --quick makes
everything small, and judges nothing. Ends with 1 if a limit is missed or a program fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from figures import Goal, Round, finish, options_of
from growing_stream import pieces
from measure import machine
from processes import cost_of

if TYPE_CHECKING:
    from collections.abc import Iterable

KPROTO = [sys.executable, "-m", "kproto"]
TENTHS = 10
TABLES_MB = 50
_TICKS = os.sysconf("SC_CLK_TCK")


def goals() -> list[Goal]:
    """The rows."""
    return [
        Goal("doctor", "summary", "capture of 1 MB", "CPU-s", "small summary", limit=1),
        Goal("doctor", "doctor", "capture of 1 MB", "CPU-s", "small doctor", limit=1),
        Goal("doctor", "doctor", "large fleet", "CPU-s", "large doctor", "large summary", "summary", 1.5),
        Goal("doctor", "doctor, peak memory", "large fleet", "MB", "large MB", limit=400),
        Goal("doctor", "doctor of tables", f"{TABLES_MB} MB", "CPU-s", "tables doctor", "analyze", "analyze", 0.2),
        Goal("doctor", "summary of a stream", "late bodies", "us a body", "late us", "early us", "early bodies", 1.2),
        Goal("doctor", "summary of a stream, memory", "second half", "MB", "late MB", "early MB", "first half", 1.2),
        Goal("doctor", "doctor of a stream, memory", "all bodies", "MB", "all MB", "half MB", "the first half", 1.2),
    ]


class Cost(NamedTuple):
    """What a program without children took: CPU time in s and peak memory in MB."""

    cpu_s: float
    peak_mb: float


def cost(*arguments: str, given: Iterable[bytes] = ()) -> Cost:
    """Run kproto to its end, with something on its standard input.

    Raises:
        subprocess.SubprocessError: It failed.
    """
    command = [*KPROTO, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.writelines(given)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.SubprocessError(f"kproto {' '.join(arguments)}: exit code {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)


class Moment(NamedTuple):
    """CPU time in s and memory in MB of a process at a moment."""

    cpu_s: float
    mb: float


def at(pid: int) -> Moment:
    """What a process has taken so far, and holds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    held = next(line for line in lines if line.startswith("VmRSS"))
    return Moment((int(fields[11]) + int(fields[12])) / _TICKS, int(held.split()[1]) / 1000)


def stream(bodies: int) -> dict[str, float]:
    """Let a summary read a stream of distinct bodies."""
    with subprocess.Popen([*KPROTO, "summary", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        written, moments, peaks = 0, [at(process.pid)], [0.0] * TENTHS
        for piece in pieces(bodies):
            process.stdin.write(piece)
            tenth = min(written * TENTHS // bodies, TENTHS - 1)
            written += 1000
            if written % 10_000 == 0:
                peaks[tenth] = max(peaks[tenth], at(process.pid).mb)
            if written >= len(moments) * bodies // TENTHS and len(moments) < TENTHS:
                moments.append(at(process.pid))
        moments.append(at(process.pid))
    if process.returncode:
        raise subprocess.SubprocessError(f"kproto summary -: exit code {process.returncode}")
    spent = [(after.cpu_s - before.cpu_s) / bodies * TENTHS * 1e6 for before, after in pairwise(moments)]
    return {
        "early us": sum(spent[1:5]) / 4,
        "late us": sum(spent[-4:]) / 4,
        "early MB": max(peaks[: TENTHS // 2]),
        "late MB": max(peaks[TENTHS // 2 :]),
    }


def generated(directory: str, name: str, *options: str) -> str:
    """Generate a capture; gives its path."""
    out = Path(directory, name)
    command = [*KPROTO, "generate", "--out", str(out), *options]
    subprocess.run(command, check=True, capture_output=True)
    return str(out / "control.pcap")


def measured(small: str, large: str, middle: str, directory: str, bodies: int) -> Round:
    """One run of each."""
    found = {f"small {name}": cost(name, small).cpu_s for name in ("summary", "doctor")}
    found["large summary"] = cost("summary", large).cpu_s
    found["large doctor"], found["large MB"] = cost("doctor", large)
    tables = str(Path(directory, "tables"))
    shutil.rmtree(tables, ignore_errors=True)  # analyze does nothing where the tables hold the capture already
    found["analyze"] = cost_of([*KPROTO, "analyze", middle, "--out", tables]).cpu_s
    found["tables doctor"] = cost("doctor", tables).cpu_s
    for name, count in (("half", bodies // 2), ("all", bodies)):
        found[f"{name} MB"] = cost("doctor", "-", given=pieces(count)).peak_mb
    return found | stream(bodies)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=2)
    arguments.add_argument("--bodies", type=int, default=2_000_000, help="distinct bodies of the stream")
    arguments.add_argument("--size", type=int, default=588, metavar="MB", help="of the large capture")
    arguments.add_argument("--brokers", type=int, default=300, help="of the large fleet")
    arguments.add_argument("--quick", action="store_true", help="small captures, one round, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    if options.quick:
        options.pairs, options.bodies, options.size, options.brokers = 1, 20_000, 8, 20
    at_start = machine()
    rounds: list[Round] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        small = generated(directory, "small", "--size", "1M", "--brokers", "5", "--partitions", "200")
        middle = small if options.quick else generated(directory, "middle", "--size", f"{TABLES_MB}M")
        large = generated(directory, "large", "--size", f"{options.size}M", "--brokers", str(options.brokers))
        for _ in range(options.pairs):
            try:
                rounds.append(measured(small, large, middle, directory, options.bodies))
            except (subprocess.SubprocessError, OSError) as e:
                failures.append(str(e))
    settings = {
        "pairs": len(rounds), "bodies": options.bodies, "size_mb": options.size, "brokers": options.brokers,
    }  # fmt: skip
    return finish("doctor", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
