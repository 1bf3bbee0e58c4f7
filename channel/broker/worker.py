"""A worker thread for tasks that would block a network thread."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from channel.errors import IllegalState
from channel.locks import new_lock
from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Worker"]

_log = get_logger(__name__)

_CLOSE_S: Final = 10.0


class Worker:
    """Runs tasks in order on one thread, which starts with the first task. Errors are logged.

    Args:
        name: Names the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = new_lock("worker")
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Queue a task.

        Raises:
            IllegalState: The worker is closed.
        """
        with self._lock:
            if self._is_closed:
                raise IllegalState(f"{self._name} is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(work)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """End the thread after its present task; queued tasks are dropped. Harmless if closed.

        A task that closes its own worker returns at once, and the thread ends after the task.

        Raises:
            IllegalState: The present task took too long; the thread ends after it.
        """
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is None:
            return
        self._queue.put(None)
        if thread is threading.current_thread():
            return
        thread.join(timeout_s)
        if thread.is_alive():
            raise IllegalState(f"{self._name} has not ended: the work in hand takes more than {timeout_s:g} s")

    def _work(self) -> None:
        while (work := self._queue.get()) is not None and not self._is_closed:
            try:
                work()
            except BaseException:  # noqa: BLE001  (the next piece of work belongs to another peer)
                _log.exception("work on %s failed", self._name)
