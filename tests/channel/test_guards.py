"""What a lock guards is used under the lock: an access without it raises, in every test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Condition

import pytest

from channel.locks import UnguardedError, guards, new_lock, new_reentrant_lock

ROOT = Path(__file__).parents[2]


class Counter:
    def __init__(self) -> None:
        self._lock = new_lock("worker")
        self.count = 0
        self._changed = Condition(new_reentrant_lock("journal"))
        self.entries: list[int] = []

    def add(self) -> None:
        with self._lock:
            self.count += 1

    def add_unguarded(self) -> None:
        self.count += 1


class Slotted:
    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.lock = new_lock("worker")
        self.count = 0


guards(Counter, "_lock", "count")
guards(Counter, "_changed", "entries")
guards(Slotted, "lock", "count")


def test_what_is_guarded_is_used_under_its_lock_alone() -> None:
    counter = Counter()
    counter.add()
    with counter._lock:
        assert counter.count == 1
    for use in (counter.add_unguarded, lambda: counter.count, lambda: delattr(counter, "count")):
        with pytest.raises(UnguardedError, match=r"Counter\.count is used without _lock"):
            use()


def test_a_condition_guards_as_its_lock_does() -> None:
    counter = Counter()
    with counter._changed:
        counter.entries.append(1)
    with pytest.raises(UnguardedError, match=r"Counter\.entries"):
        counter.entries.append(2)


def test_a_slot_is_guarded_too() -> None:
    slotted = Slotted()
    with slotted.lock:
        slotted.count += 1
    with pytest.raises(UnguardedError, match=r"Slotted\.count"):
        slotted.count += 1


def test_compiled_classes_use_what_their_locks_guard_under_them() -> None:
    files = ["network/test_recorder.py", "send/test_send_thread.py", "test_metrics.py", "network/test_tls.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "uncompiled", "-p", "no:kproto", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", "-n", "0", *(f"tests/channel/{name}" for name in files)]
    paths = os.pathsep.join(map(str, (ROOT / "tests", ROOT)))
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]
