"""Keeps two runs from writing to one directory: by the kernel on this machine, by lock files elsewhere.

A store without locks, and without a create that fails where the file exists, still lists every file that was written
before. So each writer writes a lock file of its own, then lists the lock files, and gives up if there is another: of
two writers the later one to list sees both files. Both may give up when they begin at the same moment; they never both
go on. A lock file is written again every few seconds; one that was not for a minute, by the store's clock, belongs to
a writer that was killed, as does one of a dead process of this machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.errors import ConfigurationError
from kproto.tables.files import explained
from kproto.tables.places import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kproto.tables.places import Place, RemotePath

LOCKS: Final = "kproto-locks"

_REFRESH_SECONDS: Final = 10.0
_STALE_SECONDS: Final = 60.0


@contextmanager
def locked(directory: Place) -> Iterator[Callable[[], None]]:
    """Hold a directory against other writers.

    Args:
        directory: It exists, where its file system has directories.

    Yields:
        A function that raises if the lock was lost, for another writer took this one for dead.

    Raises:
        ConfigurationError: Another process is writing there, or the store cannot be written to.
    """
    with _locked_here(directory) if isinstance(directory, Path) else _locked_there(directory) as check:
        yield check


@contextmanager
def _locked_here(directory: Path) -> Iterator[Callable[[], None]]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"another kproto is writing to {directory}; wait for it") from None
        yield lambda: None
    finally:
        os.close(descriptor)


@contextmanager
def _locked_there(directory: RemotePath) -> Iterator[Callable[[], None]]:
    locks = directory / LOCKS
    mine = locks / uuid.uuid4().hex
    owner = json.dumps(_this_process())

    def check() -> None:
        if not mine.exists():
            raise ConfigurationError(
                f"{directory}: the lock of this run was lost, since the store did not answer for a minute; run it again"
            )

    def refresh() -> None:
        while not over.wait(_REFRESH_SECONDS):
            try:
                if mine.exists():
                    mine.write_text(owner)
            except OSError:
                continue  # the next attempt may succeed; ``check`` tells whether the lock was lost

    over = threading.Event()
    refresher = threading.Thread(target=refresh, name="kproto-lock", daemon=True)
    with explained(directory):
        locks.mkdir(parents=True, exist_ok=True)
        mine.write_text(owner)
    try:
        with explained(directory):
            for other in locks.iterdir():
                if other != mine:
                    _require_dead(directory, other, mine)
        refresher.start()
        yield check
    finally:
        over.set()
        if refresher.is_alive():
            refresher.join(timeout=60)
        with explained(directory):
            mine.unlink(missing_ok=True)


def _require_dead(directory: RemotePath, other: RemotePath, mine: RemotePath) -> None:
    """Remove the lock file of a writer that was killed.

    Raises:
        ConfigurationError: The writer may be alive.
    """
    try:
        age = other.age_beside(mine)
        owner = _owner_in(read_whole(other))
    except FileNotFoundError:
        return  # its writer has ended
    except (OSError, ValueError, RecursionError):  # it is being written, or deleted
        age, owner = 0.0, {}
    if age <= _STALE_SECONDS and not _is_dead(owner):
        raise ConfigurationError(
            f"another kproto is writing to {directory} (process {owner.get('pid', '?')} on {owner.get('host', '?')}, "
            f"last sign {max(age, 0):.0f} s ago); wait for it, or for {_STALE_SECONDS:.0f} s if it was killed"
        )
    other.unlink(missing_ok=True)


def _owner_in(content: bytes) -> dict[str, str | int]:
    """Return what a lock file says of its writer; nothing where it is none of ours.

    Raises:
        ValueError: It is no JSON, since it is being written.
    """
    owner = json.loads(content)
    return owner if isinstance(owner, dict) and isinstance(owner.get("pid"), int) else {}


def _this_process() -> dict[str, str | int]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid(), "started": _started(os.getpid())}


def _is_dead(owner: dict[str, str | int]) -> bool:
    """Whether a lock's owner ran on this machine and has ended; a process id may belong to another process by now."""
    here = (socket.gethostname(), _boot())
    return (owner.get("host"), owner.get("boot")) == here and _started(int(owner["pid"])) != owner.get("started")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(time.time() - time.monotonic())[:9]


def _started(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
