"""Daemon threads that live only while there is something to do: for calls that block, or compute for long.

Nobody ends them: what blocks cannot be interrupted, and the process must not wait for it, as it does for an executor of
the standard library.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from channel.locks import guards, new_lock

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


class BriefThreads:
    """A few threads that make calls in their order, and end when none waits.

    Args:
        most_threads: The number of calls that are made at the same time; further calls wait.
    """

    def __init__(self, name: str, most_threads: int) -> None:
        self._name = name
        self._most_threads = most_threads
        self._lock = new_lock("brief threads")
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function as soon as a thread is free.

        Raises:
            OSError: The system gives no thread, and there is none that could call it.
        """
        result: Future[T] = Future()
        call = (result, function)
        with self._lock:
            self._waiting.append(call)
            if self._threads == self._most_threads:
                return result
            self._threads += 1
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError as e:
            with self._lock:
                self._threads -= 1
                if not self._threads and call in self._waiting:  # else another thread calls it
                    self._waiting.remove(call)
                    raise OSError(errno.EAGAIN, f"no thread for {self._name}: {e}") from e
        return result

    def _run(self) -> None:
        try:
            while (call := self._next()) is not None:
                result, function = call
                if result.set_running_or_notify_cancel():
                    try:
                        result.set_result(function())
                    except BaseException as e:  # noqa: BLE001  (raised to who asks for the result)
                        result.set_exception(e)
        except BaseException:
            with self._lock:
                self._threads -= 1
            raise

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next call, None if this thread ends as none waits."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


guards(BriefThreads, "_lock", "_threads", "_waiting")
