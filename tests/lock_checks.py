"""Checks the channel's locks: their order, and that what they guard is used under them alone; see ``channel.locks``."""

import functools
import operator
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from channel import locks

_RANKS: Final = {name: rank for rank, name in enumerate(locks.ORDER)}
_held = threading.local()

_HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that Python made, whose attributes can be replaced."""

_under_construction: Final[Counter[int]] = Counter()

_GUARDED_METHODS: Final = (
    "__delitem__", "__iadd__", "__ior__", "__iter__", "__reversed__", "__setitem__", "add", "append", "appendleft",
    "clear", "copy", "difference_update", "discard", "extend", "insert", "items", "keys", "move_to_end", "pop",
    "popitem", "popleft", "remove", "setdefault", "sort", "update", "values",
)  # fmt: skip
"""The methods of collections that change them, or go through them."""


class UnguardedError(AssertionError):
    """A thread has used what a lock guards without holding the lock."""


class LockOrderError(AssertionError):
    """A thread has taken a lock although it holds one that stands after it in ``ORDER``, or the same one."""


def check_order() -> None:
    """Have all locks that are made from now on check their order, and classes that are defined what locks guard."""
    locks.checks = sys.modules[__name__]


def guards(kind: type, lock: str, *attributes: str) -> None:
    """``channel.locks.guards``: an access without the lock raises ``UnguardedError``."""
    if _watches(kind):
        for name in attributes:
            setattr(kind, name, _GuardedAttribute(kind, name, lock))


def guards_changes(kind: type, lock: str, *attributes: str) -> None:
    """``channel.locks.guards_changes``: a change without the lock raises ``UnguardedError``."""
    if _watches(kind):
        for name in attributes:
            setattr(kind, name, _GuardedChanges(kind, name, lock))


def guards_calls(kind: type, lock: str, *methods: str) -> None:
    """``channel.locks.guards_calls``: a call without the lock raises ``UnguardedError``."""
    if _watches(kind):
        for name in methods:
            setattr(kind, name, _guarded_method(kind, name, lock))


def new_lock(name: str) -> Any:
    return _CheckedLock(name, is_reentrant=False)


def new_reentrant_lock(name: str) -> Any:
    return _CheckedLock(name, is_reentrant=True)


def _watches(kind: type) -> bool:
    """Whether a class can be watched; its constructor then notes its work, once."""
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    made: Any = kind.__init__  # type: ignore[misc]
    if hasattr(made, "notes_construction"):
        return True

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        _under_construction[id(self)] += 1
        try:
            made(self, *args, **kwargs)
        finally:
            _under_construction[id(self)] -= 1
            if not _under_construction[id(self)]:
                del _under_construction[id(self)]

    init.notes_construction = True  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[misc]
    return True


class _GuardedAttribute:
    """An attribute that raises ``UnguardedError`` to a thread that does not hold its lock."""

    def __init__(self, kind: type, name: str, lock: str) -> None:
        self._what = f"{kind.__name__}.{name}"
        self._package = _package(kind.__module__)
        self._name = name
        self._lock = lock
        self._slot: Any = kind.__dict__.get(name)  # of a class with slots

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is None:
            return self
        self._look(instance)
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

    def _look(self, instance: Any) -> None:
        self._check(instance)

    def _check(self, instance: Any) -> None:
        _check_held(instance, instance, self._lock, self._what, self._package)


class _GuardedChanges(_GuardedAttribute):
    """An attribute that only a thread that holds its lock may change, with what is in it."""

    def _look(self, instance: Any) -> None:
        pass

    def __set__(self, instance: Any, value: Any) -> None:
        if type(value) in (dict, list, set, deque):
            kind: Any = type(value)
            value = _watched_collection(kind)(value)
            value.check = functools.partial(self._check, instance)
        super().__set__(instance, value)


@functools.cache
def _watched_collection(kind: Any) -> Any:
    """Make a kind of collection that calls ``check`` before it is changed or gone through."""

    def watched(name: str) -> Callable[..., Any]:
        plain = getattr(kind, name)

        @functools.wraps(plain)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if hasattr(self, "check"):  # else it is being filled
                self.check()
            return plain(self, *args, **kwargs)

        return method

    found = {name: watched(name) for name in _GUARDED_METHODS if hasattr(kind, name)}
    return type(f"Watched{kind.__name__}", (kind,), found)


def _guarded_method(kind: type, name: str, lock: str) -> Callable[..., Any]:
    plain, package, first = getattr(kind, name), _package(kind.__module__), lock.partition(".")[0]

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check_held(self, self if hasattr(self, first) else args[0], lock, f"{kind.__name__}.{name}", package)
        return plain(self, *args, **kwargs)

    return method


def _package(module: str) -> str:
    return module.partition(".")[0]


def _check_held(guarded: Any, owner: Any, lock: str, what: str, package: str) -> None:
    """Raise ``UnguardedError`` to code of a package that uses what its lock guards without holding the lock."""
    if id(guarded) in _under_construction or operator.attrgetter(lock)(owner)._is_owned():
        return
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in (__name__, "simulation.substitution") and frame.f_back is not None:
        frame = frame.f_back
    if _package(frame.f_globals.get("__name__", "")) == package:
        raise UnguardedError(f"{what} is used without {lock}")


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
