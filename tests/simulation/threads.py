"""Threads, locks, events and queues of simulated processes, in place of those of ``threading`` and ``queue``."""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .scheduler import Task, World

__all__ = ["Primitives"]


class Primitives:
    """Makes the primitives of one world.

    Args:
        world: Its scheduler and time.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._main = threading.main_thread()
        self._idents = 1 << 20

        class Local:
            """Attributes of each task."""

            def __init__(self) -> None:
                object.__setattr__(self, "_of", {})

            def __getattr__(self, name: str) -> Any:
                try:
                    return self._of[world.current][name]
                except KeyError:
                    raise AttributeError(name) from None

            def __setattr__(self, name: str, value: Any) -> None:
                self._of.setdefault(world.current, {})[name] = value

        class Lock:
            """A lock; reentrant as ``RLock``."""

            __slots__ = ("_count", "_owner", "_waiting")
            _reentrant = False

            def __init__(self) -> None:
                self._owner: Task | None = None
                self._count = 0
                self._waiting: deque[Task] = deque()

            def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
                if world.preemption and world.draw() < world.preemption and not world.is_over:
                    world.give_way()
                task = world.current
                if self._count and not (self._reentrant and self._owner is task):
                    if world.is_over:
                        return True
                    if not blocking:
                        return False
                    deadline = None if timeout < 0 else world.now + int(timeout * 1e9)
                    while self._count:
                        self._waiting.append(task)
                        if not world.park(deadline, f"a lock that {self._owner} holds"):
                            if task in self._waiting:
                                self._waiting.remove(task)
                            return False
                self._owner = task
                self._count += 1
                return True

            def release(self) -> None:
                if not self._count:
                    if world.is_over:
                        return
                    raise RuntimeError("release unlocked lock")
                self._count -= 1
                if not self._count:
                    self._owner = None
                    if self._waiting:
                        world.wake(self._waiting.popleft())

            def locked(self) -> bool:
                return self._count > 0

            def _is_owned(self) -> bool:
                return self._count > 0 and self._owner is world.current

            def __enter__(self) -> bool:
                return self.acquire()

            def __exit__(self, *_: object) -> None:
                self.release()

        class RLock(Lock):
            __slots__ = ()
            _reentrant = True

            def _release_save(self) -> int:
                count, self._count = self._count, 1
                self.release()
                return count

            def _acquire_restore(self, count: int) -> None:
                self.acquire()
                self._count = count

        class Event:
            """An event."""

            __slots__ = ("_is_set", "_waiting")

            def __init__(self) -> None:
                self._is_set = False
                self._waiting: list[Task] = []

            def is_set(self) -> bool:
                return self._is_set

            def set(self) -> None:
                self._is_set = True
                waiting, self._waiting = self._waiting, []
                for task in waiting:
                    world.wake(task)

            def clear(self) -> None:
                self._is_set = False

            def wait(self, timeout: float | None = None) -> bool:
                if self._is_set or world.is_over:
                    return True
                task = world.current
                assert task is not None
                deadline = None if timeout is None else world.now + max(0, int(timeout * 1e9))
                while not self._is_set:
                    self._waiting.append(task)
                    if not world.park(deadline, "an event"):
                        if task in self._waiting:
                            self._waiting.remove(task)
                        return self._is_set
                return True

        class Condition:
            """A condition."""

            def __init__(self, lock: Any = None) -> None:
                self._lock = lock if lock is not None else RLock()
                self.acquire, self.release = self._lock.acquire, self._lock.release
                self._waiting: list[Task] = []

            def _is_owned(self) -> bool:
                return bool(self._lock._is_owned())

            def __enter__(self) -> bool:
                return bool(self._lock.acquire())

            def __exit__(self, *_: object) -> None:
                self._lock.release()

            def wait(self, timeout: float | None = None) -> bool:
                task = world.current
                assert task is not None
                self._waiting.append(task)
                saved = self._lock._release_save() if hasattr(self._lock, "_release_save") else self._lock.release()
                deadline = None if timeout is None else world.now + max(0, int(timeout * 1e9))
                try:
                    was_notified = world.park(deadline, "a condition")
                finally:
                    if task in self._waiting:
                        self._waiting.remove(task)
                    if saved is None:
                        self._lock.acquire()
                    else:
                        self._lock._acquire_restore(saved)
                return was_notified

            def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
                deadline = None if timeout is None else world.now + int(timeout * 1e9)
                while not (result := predicate()):
                    left = None if deadline is None else (deadline - world.now) / 1e9
                    if left is not None and left <= 0:
                        break
                    self.wait(left)
                return result

            def notify(self, n: int = 1) -> None:
                for task in self._waiting[:n]:
                    self._waiting.remove(task)
                    world.wake(task)

            def notify_all(self) -> None:
                self.notify(len(self._waiting))

        class SimpleQueue:
            """A queue."""

            __slots__ = ("_items", "_waiting")

            def __init__(self) -> None:
                self._items: deque[Any] = deque()
                self._waiting: deque[Task] = deque()

            def put(self, item: Any) -> None:
                self._items.append(item)
                if self._waiting:
                    world.wake(self._waiting.popleft())

            def get(self, block: bool = True, timeout: float | None = None) -> Any:
                deadline = None if timeout is None else world.now + int(timeout * 1e9)
                while not self._items:
                    task = world.current
                    if not block:
                        raise Empty
                    self._waiting.append(task)
                    if not world.park(deadline, "a queue"):
                        if task in self._waiting:
                            self._waiting.remove(task)
                        if not self._items:
                            raise Empty
                world.give_way()  # the thread that takes an item is not at once the one that goes on
                return self._items.popleft() if self._items else self.get(block, timeout)

            def get_nowait(self) -> Any:
                if not self._items:
                    raise Empty
                return self._items.popleft()

            def empty(self) -> bool:
                return not self._items

            def qsize(self) -> int:
                return len(self._items)

        class Timer(threading.Thread):
            """A timer."""

            def __init__(self, interval: float, function: Callable[..., object], args: Any = (), kwargs: Any = None):
                super().__init__()
                self.interval, self.function, self.args, self.kwargs = interval, function, args, kwargs or {}
                self.finished = Event()

            def cancel(self) -> None:
                self.finished.set()

            def run(self) -> None:
                if not self.finished.wait(self.interval):
                    self.function(*self.args, **self.kwargs)
                self.finished.set()

        self.Local, self.Lock, self.RLock, self.Event = Local, Lock, RLock, Event
        self.Condition, self.SimpleQueue, self.Timer = Condition, SimpleQueue, Timer

    # ---- threading.Thread

    def current_thread(self) -> threading.Thread:
        """Return the thread of the current task."""
        task = self.world.current
        return self._main if task is None or task.thread is None else task.thread

    def start(self, thread: Any) -> None:
        """Start a thread as a task of the current task's process."""
        current = self.world.current
        assert current is not None, f"{thread} is started outside a process"
        if current in self.world.without_threads:
            raise RuntimeError("can't start new thread")
        self._idents += 1
        thread._ident = self._idents
        thread.simulated = self.world.spawn(thread.name, thread.run, current.process, thread)

    def join(self, thread: Any, timeout: float | None = None) -> None:
        """Wait for a thread's end."""
        task: Task | None = getattr(thread, "simulated", None)
        deadline = None if timeout is None else self.world.now + max(0, int(timeout * 1e9))
        while task is not None and not task.is_over and not self.world.is_over:
            task.joining.append(self.world.current)
            if not self.world.park(deadline, f"the end of {task}"):
                task.joining.remove(self.world.current)
                return

    def is_alive(self, thread: Any) -> bool:
        """Whether a thread has been started and has not ended."""
        task: Task | None = getattr(thread, "simulated", None)
        return task is not None and not task.is_over
