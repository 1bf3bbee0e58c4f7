"""Locks with a place in one order: a thread that holds a lock takes only locks that stand after it.

``docs/architecture.md`` says what each lock guards. Tests have locks and classes checked; a run without tests has plain
locks, which cost nothing more.
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

checks: Any = None
"""What makes locks, and has guarded attributes watched, in place of this module's functions: tests set it, before they
import any class that declares what its lock guards."""


def guards(kind: type, lock: str, *attributes: str) -> None:
    """Declare which attributes of a class a lock guards: while locks are checked, an access without the lock raises.

    Only the attribute is watched: what is taken out of it under the lock may be used after the lock's release.
    Construction is free of it, as no other thread knows the object, and so is what tests look at. Attributes of
    compiled classes cannot be watched: ``tests/channel/test_guards.py`` runs their tests on the modules as the Python
    that they are.

    Args:
        lock: The name of the attribute that holds the lock, or a condition around it.
        attributes: The names of what it guards, every read and write of them.
    """
    if checks is not None:
        checks.guards(kind, lock, *attributes)


def guards_changes(kind: type, lock: str, *attributes: str) -> None:
    """Declare attributes that any thread may look at, and only a thread that holds the lock may change.

    A dictionary, list, set or deque in one may be asked for one element without the lock; whoever changes it, or goes
    through it, holds the lock. See ``guards``.
    """
    if checks is not None:
        checks.guards_changes(kind, lock, *attributes)


def guards_calls(kind: type, lock: str, *methods: str) -> None:
    """Declare methods whose caller holds the lock: of the object, or of the first argument. See ``guards``.

    ``lock`` may be a path, as ``_store.lock`` is for the lock of another object.
    """
    if checks is not None:
        checks.guards_calls(kind, lock, *methods)


def new_lock(name: str) -> Any:
    """Make a lock.

    Args:
        name: Its place in ``ORDER``.
    """
    return threading.Lock() if checks is None else checks.new_lock(name)


def new_reentrant_lock(name: str) -> Any:
    """Make a lock that the thread that holds it may take again.

    Args:
        name: Its place in ``ORDER``.
    """
    return threading.RLock() if checks is None else checks.new_reentrant_lock(name)
