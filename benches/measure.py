"""How a call is timed, and on which machine; standard library only, so that every program here shares it."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kproto-bench"
"""What peers are built and installed into."""

KAFKA_JVM = (
    "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
)
"""The options with which Kafka's own scripts start a broker."""


def best_ns(work: Callable[[], Any], seconds: float = 0.3) -> float:
    """The least CPU time of this thread for one call, over batches of about a millisecond; collector as it is."""
    work()
    began = time.perf_counter()
    work()
    batch = range(max(1, int(1e-3 / max(time.perf_counter() - began, 1e-9))))
    least, end = float("inf"), time.perf_counter() + seconds
    while True:
        started = time.thread_time_ns()
        for _ in batch:
            work()
        least = min(least, time.thread_time_ns() - started)
        if time.perf_counter() >= end:
            return least / len(batch)


def machine(*programs: str) -> dict[str, Any]:
    """The machine by its parts, how busy it is, and the versions of "java" and "go" if asked for.

    ``busy_cores`` is how many cores other programs keep busy for two seconds: 0.0 to 0.1 on a quiet machine.
    """
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    cache = re.search(r"cache size\s*: (.*)", cpuinfo)
    return {
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "cache": cache[1] if cache else None,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})",
        "load": [round(x, 1) for x in os.getloadavg()],
        "busy_cores": _busy_cores(2.0),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    } | {program: _version(program) for program in programs}


def _busy_cores(seconds: float) -> float | None:
    """The number of cores that are busy while this process sleeps; None where Linux does not say it."""

    def busy_ticks() -> int:
        fields = [int(field) for field in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]]
        return sum(fields[:3]) + sum(fields[5:8])  # without idle and waiting for disks

    if not Path("/proc/stat").exists():
        return None
    before = busy_ticks()
    time.sleep(seconds)
    return round((busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds, 2)


def _version(program: str) -> str | None:
    """What ``java -version`` or ``go version`` calls itself; None where it cannot be had."""
    command = {"java": ["java", "-version"], "go": ["go", "version"]}[program]
    try:
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    if program == "go":
        return said.split()[2]
    name = re.search(r"^(\w+).* version \"([^\"]+)\"", said, re.MULTILINE)
    return f"{name[1]} {name[2]}" if name else said.strip()


def show(rows: list[tuple[str, ...]]) -> None:
    """Print a table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
