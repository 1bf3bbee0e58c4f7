"""Locks with a place in one order: a thread that holds a lock takes only locks that stand after it.

``docs/architecture.md`` says what each lock guards. Tests switch the check of the order on; a run without tests has
plain locks, which cost nothing more.
"""

from __future__ import annotations

import functools
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


_HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that Python made, whose attributes can be replaced."""

_under_construction: Final[set[int]] = set()


class UnguardedError(AssertionError):
    """A thread has used what a lock guards without holding the lock."""


class LockOrderError(AssertionError):
    """A thread has taken a lock although it holds one that stands after it in ``ORDER``, or the same one."""


def check_order() -> None:
    """Have all locks that are made from now on check their order."""
    global _is_checked
    _is_checked = True


def guards(kind: type, lock: str, *attributes: str) -> None:
    """Declare which attributes of a class a lock guards: while order is checked, an access without the lock raises.

    Only the attribute is watched: what is taken out of it under the lock may be used after the lock's release.
    Construction is free of it, as no other thread knows the object. Attributes of compiled classes cannot be watched:
    ``tests/channel/test_guards.py`` runs their tests on the modules as the Python that they are.

    Args:
        kind: The class.
        lock: The name of the attribute that holds the lock, or a condition around it.
        attributes: The names of what it guards, every read and write of them.
    """
    if not _is_checked or not kind.__flags__ & _HEAP_TYPE:
        return
    for name in attributes:
        setattr(kind, name, _GuardedAttribute(kind, name, lock))
    made: Any = kind.__init__  # type: ignore[misc]

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        _under_construction.add(id(self))
        try:
            made(self, *args, **kwargs)
        finally:
            _under_construction.discard(id(self))

    kind.__init__ = init  # type: ignore[misc]


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


class _GuardedAttribute:
    """An attribute that raises ``UnguardedError`` to a thread that does not hold its lock."""

    def __init__(self, kind: type, name: str, lock: str) -> None:
        self._name = name
        self._lock = lock
        self._slot: Any = kind.__dict__.get(name)  # of a class with slots

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is None:
            return self
        self._check(instance)
        if self._slot is not None:
            return self._slot.__get__(instance, kind)
        try:
            return instance.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        self._check(instance)
        if self._slot is not None:
            self._slot.__set__(instance, value)
        else:
            instance.__dict__[self._name] = value

    def __delete__(self, instance: Any) -> None:
        self._check(instance)
        if self._slot is not None:
            self._slot.__delete__(instance)
        else:
            del instance.__dict__[self._name]

    def _check(self, instance: Any) -> None:
        if id(instance) not in _under_construction and not getattr(instance, self._lock)._is_owned():
            raise UnguardedError(f"{type(instance).__name__}.{self._name} is used without {self._lock}")


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
