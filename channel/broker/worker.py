"""Worker threads for tasks that would block a network thread."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from channel.errors import IllegalState
from channel.locks import new_lock
from channel.logs import get_logger
from channel.threads import LoopThread, close_all, time_left

if TYPE_CHECKING:
    from collections.abc import Callable

_log = get_logger(__name__)

_CLOSE_S: Final = 10.0


class Worker:
    """Runs tasks in order on one thread, or as they come on several, which start with the tasks. Errors are logged.

    Args:
        name: Names the threads.
        threads: The number of tasks that run at a time.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = new_lock("worker")
        self._is_closed = False
        names = [name] if threads == 1 else [f"{name}-{number}" for number in range(threads)]
        self._threads = [LoopThread(each, self._work, interrupt=partial(self._queue.put, None)) for each in names]
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Queue a task.

        Raises:
            IllegalState: The worker is closed.
        """
        with self._lock:
            if self._is_closed:
                raise IllegalState(f"{self._name} is closed")
            self._queue.put(work)
            if self._started < len(self._threads):
                self._threads[self._started].start()
                self._started += 1

    def close(self, timeout_s: float | None = _CLOSE_S) -> bool:
        """End the threads after their present tasks; queued tasks are dropped. Harmless if closed.

        Returns:
            Whether all threads have ended within this time; a line in the log names each that has not. A task that
            closes its own worker does not wait for itself.
        """
        with self._lock:
            self._is_closed = True
        left_s = time_left(timeout_s)
        close_all(*(thread.initiate_shutdown for thread in self._threads))
        ended = [thread.shutdown(left_s()) for thread in self._threads]
        return all(ended)

    def _work(self) -> None:
        work = self._queue.get()
        if work is None or self._is_closed:
            return
        try:
            work()
        except BaseException:  # noqa: BLE001  (the next piece of work belongs to another peer)
            _log.exception("work on %s failed", self._name)
