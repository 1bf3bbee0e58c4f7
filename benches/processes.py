"""What a program and all its descendants take of the processors: run to its end, or looked at from within."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Cost", "Process", "cost_of", "cpu_s", "descendants"]

_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a program took.

    Attributes:
        cpu_s: CPU time of all processes, in s.
        wall_s: Wall time, in s.
        output: Its standard output.
    """

    cpu_s: float
    wall_s: float
    output: str


def cost_of(command: Sequence[str], *, timeout: float = 1800) -> Cost:
    """Run a program to its end, and wait for the processes that it leaves behind.

    Raises:
        subprocess.SubprocessError: It failed, or did not end.
    """
    # Python workers outlive Spark's JVM for a moment: they become children of this process, and are counted.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    wall = time.monotonic() - started
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall, done.stdout)


class Process(NamedTuple):
    """A process that runs.

    Attributes:
        pid: Its number.
        name: Its program.
        parent: Its parent's number.
        cpu_s: CPU time of itself, and of the children that it has waited for, in s.
    """

    pid: int
    name: str
    parent: int
    cpu_s: float


def cpu_s() -> float:
    """CPU time of this process and all its descendants so far, in s; those that have ended count with their parents."""
    return sum(process.cpu_s for process in descendants(os.getpid()))


def descendants(root: int) -> Iterator[Process]:
    """A process and all below it."""
    running = {process.pid: process for process in _running()}
    for process in running.values():
        above = process.pid
        while above in running and above != root:
            above = running[above].parent
        if above == root:
            yield process


def _running() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(") ")
            except OSError:
                continue  # it has ended meanwhile
            fields = rest.split()
            ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
            yield Process(int(entry.name), head.partition("(")[2], int(fields[1]), ticks / _TICKS)
