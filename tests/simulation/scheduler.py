"""The scheduler: virtual time, and the threads of all simulated processes as tasks on one thread.

A task is a greenlet that runs a thread's own ``run``. It gives way where a thread may be held up: at a wait, a lock, a
poll. The scheduler draws which task goes on, and time jumps to the next event when none can.
"""

import contextlib
import heapq
import random
import threading
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["Process", "Task", "Violation", "World"]

START_NS = 1_000_000_000_000
WALL_NS = 1_700_000_000_000_000_000
MOST_STEPS = 400_000
"""The number of steps after which a run counts as one that never ends."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Process:
    """A simulated process: its tasks stand still while it is paused, and for ever once it is dead.

    Attributes:
        name: The process, for the timeline.
        address: Its IP address.
        sockets: Its open sockets, by descriptor.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.paused = False
        self.dead = False
        self.stopped: list[Task] = []
        self.sockets: dict[int, Any] = {}

    def __repr__(self) -> str:
        return self.name


class Task:
    """A thread of a simulated process."""

    __slots__ = ("error", "glet", "is_over", "joining", "name", "process", "thread", "timed_out", "token", "waits")

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.glet: greenlet | None = None
        self.thread: threading.Thread | None = None
        self.token = 0
        self.waits: str | None = None
        self.timed_out = False
        self.error: Exception | None = None
        self.is_over = False
        self.joining: list[Task] = []

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


class World:
    """One run: its time, tasks and random draws.

    Args:
        seed: Decides every draw.

    Attributes:
        now: Elapsed virtual time, in ns.
        random: The generator of all draws.
        steps: How many scheduled steps were made.
        events: The timeline: time in ns and what happened.
        problems: The invariants that do not hold.
        preemption: How likely a task gives way at a lock, and at an access to what one guards.
        without_threads: The tasks that cannot start a thread now.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = START_NS
        self.wall_offset = 0
        self.random = random.Random(seed)
        self.draw = self.random.random
        self.steps = 0
        self.events: list[tuple[int, str]] = []
        self.problems: list[str] = []
        self.preemption = 0.0
        self.without_threads: set[Task] = set()
        self.current: Task | None = None
        self.tasks: list[Task] = []
        self.is_over = False
        self._ready: list[Task] = []
        self._heap: list[tuple[int, int, Task | None, Any]] = []
        self._number = 0
        self._hub = getcurrent()

    # ---- telling

    def note(self, what: str) -> None:
        """Add a line to the timeline."""
        self.events.append((self.now, what))

    def problem(self, what: str) -> None:
        """Note an invariant that does not hold; the run ends."""
        if not self.is_over:
            self.problems.append(what)
            self.note(f"PROBLEM: {what}")

    # ---- tasks

    def spawn(
        self, name: str, run: Callable[[], object], process: Process, thread: threading.Thread | None = None
    ) -> Task:
        """Start a task."""
        task = Task(name, process)
        task.thread = thread

        def main() -> None:
            try:
                run()
            except GreenletExit:
                pass
            except Exception as e:
                self.problem(f"{task} died of {type(e).__name__}: {e}")
            finally:
                task.is_over = True
                self.tasks.remove(task)
                for joining in task.joining:
                    self.wake(joining)

        task.glet = greenlet(main, self._hub)
        self.tasks.append(task)
        self._ready.append(task)
        return task

    def park(self, deadline: int | None, waits: str) -> bool:
        """Stop the current task until ``wake``, or this time; returns whether it was woken.

        Args:
            deadline: The latest time, in ns.
            waits: What the task waits for, for the report of a run that cannot go on.
        """
        task = self.current
        if self.is_over or task is None:
            raise GreenletExit
        task.token += 1
        task.waits = waits
        if deadline is not None:
            self._number += 1
            heapq.heappush(self._heap, (deadline, self._number, task, task.token))
        self._hub.switch()
        if self.is_over:
            raise GreenletExit
        task.waits = None
        if task.error is not None:
            error, task.error = task.error, None
            raise error
        timed_out, task.timed_out = task.timed_out, False
        return not timed_out

    def wake(self, task: Task) -> None:
        """Let a parked task go on; harmless if it was woken already."""
        if task.waits is not None and not task.is_over:
            task.waits = None
            task.token += 1
            self._ready.append(task)

    def fail(self, task: Task, error: Exception) -> None:
        """Let a parked task's wait raise an error."""
        if task.waits is not None:
            task.error = error
            self.wake(task)

    def give_way(self) -> None:
        """Let other tasks go first."""
        task = self.current
        if task is None:
            return
        if self.is_over:
            raise GreenletExit
        self._ready.append(task)
        self._hub.switch()
        if self.is_over:
            raise GreenletExit

    def at(self, when: int, call: Callable[[], object]) -> None:
        """Call a function at a time, in ns."""
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, None, call))

    def after(self, ns: float, call: Callable[[], object]) -> None:
        """Call a function after this many ns."""
        self.at(self.now + int(ns), call)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the current task."""
        self.park(self.now + max(0, int(seconds * 1e9)), "sleep")

    # ---- processes

    def pause(self, process: Process) -> None:
        """Stop a process as SIGSTOP does."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
        process.paused = False
        self._ready.extend(process.stopped)
        process.stopped = []

    # ---- the loop

    def run(self, until: Callable[[], bool]) -> None:
        """Step tasks and events until a condition holds, an invariant does not, or nothing can happen any more."""
        ready, heap, draw, pop = self._ready, self._heap, self.draw, heapq.heappop
        while not until() and not self.problems:
            self.steps += 1
            if heap and (heap[0][0] <= self.now or not ready):
                when, _, task, what = pop(heap)
                if task is None:
                    if when > self.now:
                        self.now = when
                    self.current = None
                    what()
                elif task.token == what and task.waits is not None:
                    if when > self.now:
                        self.now = when
                    task.timed_out = True
                    task.waits = None
                    ready.append(task)
                else:
                    self.steps -= 1
            elif ready:
                index = int(draw() * len(ready))
                task = ready[index]
                ready[index] = ready[-1]
                ready.pop()
                if task.is_over or task.process.dead:
                    continue
                if task.process.paused:
                    task.process.stopped.append(task)
                    continue
                self.now += 1_000 + int(draw() * 20_000)  # the time that the step takes
                self.current = task
                assert task.glet is not None
                task.glet.switch()
                self.current = None
            else:
                self.problem(f"nothing can happen any more; {self.waiting()}")
            if self.steps > MOST_STEPS:
                self.problem(f"the run does not end: {self.steps} steps in {self.elapsed_s():.1f} virtual s")

    def elapsed_s(self) -> float:
        """The virtual time of the run, in s."""
        return (self.now - START_NS) / 1e9

    def waiting(self) -> str:
        """List what each task waits for."""
        return "; ".join(f"{t} waits for {t.waits}" for t in self.tasks if t.waits and not t.process.dead) or "no task"

    def close(self) -> None:
        """End all tasks that are left."""
        self.is_over = True
        for _ in range(5):
            left = [task for task in self.tasks if task.glet is not None and not task.is_over]
            for task in left:
                self.current = task
                assert task.glet is not None
                with contextlib.suppress(BaseException):
                    task.glet.throw(GreenletExit)
            self.current = None
            if not left:
                return
