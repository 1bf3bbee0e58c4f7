"""Locks with a place in one order: a thread that holds a lock takes only locks that stand after it.

``docs/architecture.md`` says what each lock guards. Tests switch the check of the order on; a run without tests has
plain locks, which cost nothing more.
"""

from __future__ import annotations

import threading
from typing import Any, Final

ORDER: Final = (
    "fleet commands",
    "fleet steps",
    "HTTP door",
    "scripted decisions",
    "replicas",
    "metadata cache",
    "shared updates",
    "records",
    "changes of brokers",
    "thread shutdown",
    "ZooKeeper session",
    "leadership",
    "event queue",
    "cluster metadata",
    "controller channels",
    "delayed answers",
    "frame relay",
    "worker",
    "broker requests",
    "channel",
    "TLS contexts",
    "TLS connection",
    "brief threads",
    "rotation",
    "recorder",
    "metrics",
    "brokers by id",
    "dropped requests",
    "journal",
    "waker",
)
"""The names of all locks, outermost first."""

_RANKS: Final = {name: rank for rank, name in enumerate(ORDER)}
_held = threading.local()
_is_checked = False


class LockOrderError(AssertionError):
    """A thread has taken a lock although it holds one that stands after it in ``ORDER``, or the same one."""


def check_order() -> None:
    """Have all locks that are made from now on check their order."""
    global _is_checked
    _is_checked = True


def new_lock(name: str) -> Any:
    """Make a lock.

    Args:
        name: Its place in ``ORDER``.
    """
    return _CheckedLock(name, is_reentrant=False) if _is_checked else threading.Lock()


def new_reentrant_lock(name: str) -> Any:
    """Make a lock that the thread that holds it may take again.

    Args:
        name: Its place in ``ORDER``.
    """
    return _CheckedLock(name, is_reentrant=True) if _is_checked else threading.RLock()


class _CheckedLock:
    """A lock that raises ``LockOrderError`` instead of being taken out of order.

    An attempt that does not wait cannot block another thread for ever, and is not checked.
    """

    def __init__(self, name: str, is_reentrant: bool) -> None:
        self._name = name
        self._rank = _RANKS[name]
        self._is_reentrant = is_reentrant
        self._lock: Any = threading.RLock() if is_reentrant else threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        held = _held_locks()
        if blocking and not (self._is_reentrant and self in held):
            for other in held:
                if other._rank >= self._rank:
                    raise LockOrderError(f"the lock {self._name!r} is taken by a thread that holds {other._name!r}")
        taken: bool = self._lock.acquire(blocking, timeout)
        if taken:
            held.append(self)
        return taken

    def release(self) -> None:
        self._lock.release()
        held = _held_locks()
        if self in held:  # else another thread has taken it
            held.remove(self)

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # ---- for threading.Condition, whose wait releases the lock however often it was taken

    def _is_owned(self) -> bool:
        return self in _held_locks()

    def _release_save(self) -> int:
        times = _held_locks().count(self)
        for _ in range(times):
            self.release()
        return times

    def _acquire_restore(self, times: int) -> None:
        for _ in range(times):
            self.acquire(blocking=True)


def _held_locks() -> list[_CheckedLock]:
    try:
        found: list[_CheckedLock] = _held.locks
    except AttributeError:
        found = _held.locks = []
    return found
