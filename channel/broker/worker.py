"""Worker threads for tasks that would block a network thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.locks import guards, new_lock
from channel.logs import get_logger
from channel.threads import LoopThread, close_all, first_error, time_left

if TYPE_CHECKING:
    from collections.abc import Callable

_log = get_logger(__name__)

_CLOSE_S: Final = 10.0


class Worker:
    """Runs tasks in order on one thread, or as they come on several, which start with the tasks. Errors are logged.

    Args:
        name: Names the threads.
        threads: The number of tasks that run at a time.
        most_waiting: The number of tasks that may wait for a thread; None for no limit.
    """

    def __init__(self, name: str, threads: int = 1, most_waiting: int | None = None) -> None:
        self._name = name
        self._most_waiting = most_waiting
        self._tasks: deque[tuple[Callable[[], object], Callable[[], object]]] = deque()
        self._changed = threading.Condition(new_lock("worker"))
        self._is_closed = False
        names = [name] if threads == 1 else [f"{name}-{number}" for number in range(threads)]
        self._threads = [
            LoopThread(each, self._work, interrupt=self._wake_all, ended=self._thread_ended) for each in names
        ]
        self._started = 0

    @property
    def error(self) -> BaseException | None:
        """The error that has ended a thread, after which no task is taken any more; None without one."""
        return first_error(*self._threads)

    def submit(self, work: Callable[[], object], dropped: Callable[[], object] = lambda: None) -> None:
        """Queue a task.

        Args:
            dropped: Called instead if the worker ends before the task's turn, on the thread that ends it.

        Raises:
            IllegalState: The worker is closed, one of its threads has died, or too many tasks wait.
            RuntimeError: The system gives no thread, and the worker has none yet.
        """
        with self._changed:
            if self._is_closed:
                why = "closed" if self.error is None else f"ended by an error: {self.error}"
                raise IllegalState(f"{self._name} is {why}")
            if self._most_waiting is not None and len(self._tasks) >= self._most_waiting:
                raise IllegalState(f"{len(self._tasks)} tasks wait for {self._name} already")
            if self._started < len(self._threads):
                try:
                    self._threads[self._started].start()
                    self._started += 1
                except RuntimeError:
                    if not self._started:
                        raise
            self._tasks.append((work, dropped))
            self._changed.notify()

    def close(self, timeout_s: float | None = _CLOSE_S) -> bool:
        """End the threads after their present tasks; queued tasks are dropped. Harmless if closed.

        Returns:
            Whether all threads have ended within this time; a line in the log names each that has not. A task that
            closes its own worker does not wait for itself.
        """
        self._drop_all()
        left_s = time_left(timeout_s)
        close_all(*(thread.initiate_shutdown for thread in self._threads))
        ended = [thread.shutdown(left_s()) for thread in self._threads]
        return all(ended)

    def _drop_all(self) -> None:
        with self._changed:
            self._is_closed = True
            tasks, self._tasks = self._tasks, deque()
            self._changed.notify_all()
        for _, dropped in tasks:
            self._call(dropped)

    def _wake_all(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _thread_ended(self) -> None:
        if self.error is not None:
            _log.critical("%s takes no tasks any more: %s", self._name, self.error)
            self._drop_all()
            close_all(*(thread.initiate_shutdown for thread in self._threads))

    def _work(self) -> None:
        thread: Any = threading.current_thread()
        with self._changed:
            while not self._tasks:
                if self._is_closed or not thread.is_running:
                    return
                self._changed.wait()
            if not thread.is_running:
                return
            work, _ = self._tasks.popleft()
        self._call(work)

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001  (the next piece of work belongs to another peer)
            _log.exception("work on %s failed", self._name)


guards(Worker, "_changed", "_is_closed", "_started", "_tasks")
