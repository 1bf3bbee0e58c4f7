"""Runs a program and tells what it and all its descendants took of the processors."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Cost", "cost_of"]

_SET_CHILD_SUBREAPER = 36


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
