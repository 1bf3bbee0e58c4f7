"""What a lock guards is used under the lock: an access without it raises, in every test."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Condition

import guarded_blocks
import pytest
from lock_checks import UnguardedError

from channel.locks import guards, guards_calls, guards_changes, new_lock, new_reentrant_lock

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


class Members:
    def __init__(self) -> None:
        self.lock = new_lock("worker")
        self.by_id = {1: "one"}
        self.names = ["one"]
        self.is_closed = False

    def end(self) -> None:
        self.is_closed = True

    def add(self, number: int) -> None:
        self.by_id[number] = str(number)

    def all(self) -> list[int]:
        return sorted(self.by_id)

    def append(self, name: str) -> None:
        self.names += [name]

    def change(self) -> None:
        """The caller holds the lock."""


class Owner:
    def take(self, members: Members) -> None:
        """The caller holds the lock of the members."""


guards_changes(Members, "lock", "by_id", "is_closed", "names")
guards_calls(Members, "lock", "change")
guards_calls(Owner, "lock", "take")
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


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (Members.end, "Members.is_closed"),
        (lambda members: members.add(2), "Members.by_id"),
        (Members.all, "Members.by_id"),
        (lambda members: members.append("two"), "Members.names"),
        (Members.change, "Members.change"),
        (lambda members: Owner().take(members), "Owner.take"),
    ],
)
def test_what_is_looked_at_without_a_lock_is_changed_under_it_alone(
    use: Callable[[Members], object], what: str
) -> None:
    members = Members()
    assert (members.by_id[1], 1 in members.by_id, len(members.names), members.is_closed) == ("one", True, 1, False)
    with pytest.raises(UnguardedError, match=f"{what} is used without lock"):
        use(members)
    with members.lock:
        use(members)


def test_every_lock_is_held_over_something_that_is_guarded() -> None:
    """A lock that is left out must turn tests red: each block under a lock uses what that lock is declared to guard."""
    blocks, bare = guarded_blocks.find(ROOT / "channel")
    assert blocks > 100
    assert bare == guarded_blocks.HELD_BY_OTHER_TESTS


def test_compiled_classes_use_what_their_locks_guard_under_them() -> None:
    files = ["network/test_recorder.py", "send/test_send_thread.py", "test_metrics.py", "network/test_tls.py"]
    files += ["network/test_selector.py", "network/test_reauthentication.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "uncompiled", "-p", "no:kproto", "-m", "not slow"]
    command += [
        "-k",
        "not script and not interpreter and not byte and not little and not SSL and not wants and not ciphertext",
    ]  # of bytes, or processes of their own
    command += ["-p", "no:cacheprovider", "-n", "0", *(f"tests/channel/{name}" for name in files)]
    paths = os.pathsep.join(map(str, (ROOT / "tests", ROOT)))
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]
