"""Daemon threads that live only while there is something to do: for tasks that block, or compute for long.

Nobody ends them: what blocks cannot be interrupted, and the process must not wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from channel.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable


class BriefThreads:
    """A few threads that run tasks in their order, and end when none waits.

    Args:
        name: The threads' name.
        most_threads: The number of tasks that run at the same time; further tasks wait.
    """

    def __init__(self, name: str, most_threads: int) -> None:
        self._name = name
        self._most_threads = most_threads
        self._lock = new_lock("brief threads")
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads = 0

    def add(self, task: Callable[[], object]) -> None:
        """Run a task as soon as a thread is free; it must not raise."""
        with self._lock:
            self._waiting.append(task)
            if self._threads == self._most_threads:
                return
            self._threads += 1
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                task = self._waiting.popleft()
            task()
