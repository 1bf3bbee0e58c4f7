"""The output directory: readers see a complete set of tables, new or former, and no file of the user is lost.

    DIR/_kproto.json                         the manifest: names the run that is current
    DIR/kproto-runs/20261121T081500.000000/  the tables of a run
    DIR/current                              a link to that run, for readers that know nothing of manifests
    DIR/requests ...                         links to current/requests ...

A run writes its tables into a fresh directory; the rename of the manifest makes it current. Whatever ends a run before
that rename leaves the former run current; whatever ends it after leaves links to the former run, which is still there.
The former run's tables are removed when the next run begins, so that a reader may finish with them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigurationError
from kproto.tables import TABLES
from kproto.tables.stored import MANIFEST, current_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CHECKPOINT", "OutputDirectory"]

CHECKPOINT: Final = "_checkpoint"
"""The progress of ``follow``, kept with its tables."""

_RUNS: Final = "kproto-runs"
_CURRENT: Final = "current"


class OutputDirectory:
    """A place for tables.

    Args:
        path: The directory; made when it is first needed.
        overwrite: Whether tables may be put into a directory that holds something else.

    Attributes:
        path: The directory.
        run: The directory for the tables of the run that ``writing`` began.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path.absolute()
        self.run = self.path / _RUNS / "none"
        self._overwrite = overwrite

    @property
    def is_written(self) -> bool:
        """Whether it holds tables."""
        return self._current() is not None

    def check(self) -> None:
        """Check early whether tables can be written here.

        Raises:
            ConfigurationError: The path is no directory, or the directory holds files of somebody else.
        """
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise ConfigurationError(f"{self.path} is a file; --out takes a directory")
        found = sorted(entry.name for entry in self.path.iterdir() if entry.name not in (_RUNS, CHECKPOINT))
        if found and MANIFEST not in found and not self._overwrite:
            raise ConfigurationError(
                f"{self.path} holds something else ({', '.join(found[:3])}{' ...' if len(found) > 3 else ''}); "
                f"choose an empty directory, or add --overwrite to replace its {', '.join(TABLES)}"
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Begin a run: hold the directory against a second writer, and leave nothing behind when the run fails.

        Raises:
            ConfigurationError: As ``check``; or another process is writing there.
        """
        self.check()
        made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigurationError(f"another kproto is writing to {self.path}; wait for it") from None
            self._remove_other_runs()
            self.run = self._new_run()
            try:
                yield
            finally:
                if self._current() != self.run:
                    shutil.rmtree(self.run, ignore_errors=True)
                if made and not any((self.path / _RUNS).iterdir()):
                    (self.path / _RUNS).rmdir()
                    self.path.rmdir()
        finally:
            os.close(descriptor)

    def publish(self, facts: Mapping[str, Any]) -> None:
        """Make this run the current one.

        Args:
            facts: The content of the manifest.
        """
        manifest = {"run": str(self.run.relative_to(self.path)), **facts}
        written = self.run / MANIFEST
        with written.open("w", encoding="utf-8") as file:
            file.write(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        written.rename(self.path / MANIFEST)
        self._link_to(self.run)

    def _link_to(self, run: Path) -> None:
        self._link(_CURRENT, run.relative_to(self.path))
        for name in TABLES:
            self._link(name, Path(_CURRENT) / name)

    def _link(self, name: str, target: Path) -> None:
        """Point a link at its target in one rename. A user's files of that name, given up by --overwrite, go."""
        place = self.path / name
        if place.is_symlink() and place.readlink() == target:
            return
        fresh = self.path / _RUNS / f".link-{name}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        fresh.rename(place)

    def _new_run(self) -> Path:
        runs = self.path / _RUNS
        runs.mkdir(exist_ok=True)
        run = runs / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        run.mkdir()
        return run

    def _remove_other_runs(self) -> None:
        """Remove the tables of runs that were killed, and of the run before the current one."""
        runs = self.path / _RUNS
        if not runs.is_dir():
            return
        current = self._current()
        if current is not None:
            self._link_to(current)  # it may have been killed after the rename of its manifest
        for run in runs.iterdir():
            if run != current:
                shutil.rmtree(run, ignore_errors=True)

    def _current(self) -> Path | None:
        try:
            return current_run(self.path)
        except ConfigurationError:
            return None
