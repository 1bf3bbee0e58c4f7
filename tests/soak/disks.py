"""The taps' disks: each a small one of its own, in a mount namespace of the soak, that may be full for a while."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .processes import Program

__all__ = ["Disks", "Hole"]

_CLONE_NEWNS: Final = 0x00020000
_SIZE: Final = "32m"
_PAGE: Final = 4096


class Hole(NamedTuple):
    """A time in which a recording may lack what passed.

    Attributes:
        tap: The name of the tap.
        began, ended: Seconds since the epoch.
    """

    tap: str
    began: float
    ended: float


class Disks(threading.Thread):
    """Where taps record, and a thread that brings finished files from there to the folder of all recordings.

    Args:
        folder: Where the disks are.
        recordings: Where finished files go, as others read them: complete, by renaming.

    Attributes:
        missing: Why they are but folders, which cannot be full; None if they are disks.
        holes: When disks were full.
    """

    def __init__(self, folder: Path, recordings: Path) -> None:
        super().__init__(name="soak-disks", daemon=True)
        self._folder, self._recordings = folder, recordings
        self._over = threading.Event()
        self._bringing = threading.Lock()
        self._disks: list[Path] = []
        self.holes: list[Hole] = []
        self.missing: str | None = None
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS):
            self.missing = f"there can be no mount namespace: {os.strerror(ctypes.get_errno())}"
        else:
            self._mount("--make-rprivate", "/")

    def of(self, tap: str) -> Path:
        """The disk of a tap; made if it is not there."""
        disk = self._folder / tap
        if disk not in self._disks:
            disk.mkdir(parents=True)
            if self.missing is None:
                self._mount("-t", "tmpfs", "-o", f"size={_SIZE}", "soak", str(disk))
            self._disks.append(disk)
        return disk

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False, timeout=20)
        if done.returncode:
            self.missing = f"there can be no mount: {done.stderr.strip()}"

    def run(self) -> None:
        """Bring finished files away."""
        while not self._over.wait(0.5):
            self._bring("*.pcapng")

    def _bring(self, pattern: str) -> None:
        with self._bringing:
            for disk in self._disks:
                for path in sorted(disk.glob(pattern)):
                    part = self._recordings / f"{path.name}.part"
                    shutil.copyfile(path, part)
                    part.rename(self._recordings / path.name)
                    path.unlink()

    @contextlib.contextmanager
    def full(self, tap: Program) -> Iterator[None]:
        """Fill a tap's disk, and free it; waits until the tap records again.

        Raises:
            TimeoutError: It does not.
        """
        disk = self.of(tap.name)
        began = time.time()
        with self._bringing:
            before = {path.name for path in disk.glob("*.part")}
            _fill(disk / "ballast")
            try:
                yield
            finally:
                (disk / "ballast").unlink()
        deadline = time.monotonic() + 120
        while not any(_size(path) and path.name not in before for path in disk.glob("*.part")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{tap.name} does not record again, though its disk has room")
            time.sleep(0.1)
        self.holes.append(Hole(tap.name, began, time.time()))

    def end(self) -> None:
        """Bring the last files, when the taps have ended."""
        self._over.set()
        self.join(60)
        self._bring("*.pcapng")

    def close(self) -> None:
        """Bring what a run leaves that failed, and take the disks away."""
        self._over.set()
        self._bring("*.pcapng*")
        while self._disks and self.missing is None:
            subprocess.run(["umount", "--lazy", str(self._disks.pop())], check=True, timeout=20)


def _fill(ballast: Path) -> None:
    """Write until there is no room."""
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(_PAGE))
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise
                return


def _size(path: Path) -> int:
    """A file's size, 0 if it is renamed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
