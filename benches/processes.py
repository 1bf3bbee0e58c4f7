"""What a program and all its descendants take of the processors: run to its end, or looked at from within."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

__all__ = ["Cost", "CpuMeter", "Process", "Watcher", "cost_of", "descendants"]

_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """The resources that a program took.

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
        began: The time at which it began, in ticks; the system gives the number of an ended process to a new one.
        cpu_s: CPU time of itself alone, in s.
    """

    pid: int
    name: str
    parent: int
    began: int
    cpu_s: float


class Watcher(ABC):
    """Looks again and again at something that runs, while it is entered.

    Args:
        every_s: The time between two looks, in s.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @abstractmethod
    def look(self) -> None:
        """Take one look."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            self.look()


class CpuMeter(Watcher):
    """CPU time of this process and of all that were ever below it.

    Spark's workers end between two jobs, and their parent need not wait for them: what a process took counts as it was
    last seen. The meter looks five times a second while it is entered, and whenever it is asked.
    """

    def __init__(self) -> None:
        super().__init__(0.2)
        self._seen: dict[tuple[int, int], float] = {}
        self._own = 0.0
        self._lock = threading.Lock()

    def cpu_s(self) -> float:
        """CPU time so far, in s, without the meter's own."""
        began = time.thread_time()
        with self._lock:
            for process in descendants(os.getpid()):
                self._seen[process.pid, process.began] = process.cpu_s
            self._own += time.thread_time() - began
            return sum(self._seen.values()) - self._own

    def look(self) -> None:
        """Keep what every process has taken so far."""
        self.cpu_s()


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
            ticks = int(fields[11]) + int(fields[12])  # utime, stime
            name = head.partition("(")[2]
            yield Process(int(entry.name), name, int(fields[1]), int(fields[19]), ticks / _TICKS)
