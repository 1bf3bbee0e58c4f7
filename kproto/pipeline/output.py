"""The output directory: readers see a complete set of tables, new or former, and no file of the user is lost.

    DIR/_kproto.json                         the manifest: names the current run, and lists its files
    DIR/kproto-runs/20261121T081500.000000/  the tables of a run, and the files that later runs added to them
    DIR/current                              a link to that run, for readers that know nothing of manifests
    DIR/requests ...                         links to current/requests ...
    DIR/kproto-locks/                        on a store: the lock of the run that is writing

A run writes its tables into a fresh directory; the rename of the manifest makes it current. Whatever ends a run before
that rename leaves the former run current; whatever ends it after leaves links to the former run, which is still there.
The former run's tables are removed when the next run begins, so that a reader may finish with them.

A run that adds captures writes their files into a fresh directory, too, moves them beside those of the current run, and
renames a manifest that lists all: what was there is not touched. Files that the manifest does not list count for
nothing; a run that fails removes its own, and the next run those of a run that was killed.

DIR may be a URI. An object store has no rename, and needs none: the manifest appears whole when it has been written, in
place of the former one. Other file systems rename it; where that fails since the former manifest is there, the former
is deleted first, and for that moment readers take the newest run that holds a manifest of its own. Only directories of
this machine get links.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigurationError
from kproto.pipeline.locks import LOCKS, locked
from kproto.tables.files import explained
from kproto.tables.places import (
    MANIFEST,
    RemotePath,
    at_store,
    explained_at,
    make_new,
    place_of,
    remove_tree,
    require_no_link,
)
from kproto.tables.schemas import METADATA_TABLES, TABLES
from kproto.tables.stored import BESIDE, ROLLUPS, RUNS, current_run, current_tables, readable, table_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kproto.tables.places import Place

_CURRENT: Final = "current"

_PROBE: Final = 1 << 16
"""The number of bytes that are written to see whether a directory can be written to."""

FULL: Final = {errno.ENOSPC, errno.EDQUOT}
"""The errors of a full disk, or of a user's full share of it."""

NO_SPACE: Final = "free some space (df -h shows the disks), or choose a directory on another disk with --out"


class OutputDirectory:
    """A place for tables.

    Args:
        path: The directory, or its URI; made when it is first needed.
        overwrite: Whether tables may be put into a directory that holds something else.

    Attributes:
        path: The directory.
        overwrite: As given.
        run: The directory for the tables of the run that ``writing`` began.
    """

    def __init__(self, path: Place | str, *, overwrite: bool = False) -> None:
        self.path: Place = place_of(path).absolute()
        self.run: Place = self.path / RUNS / "none"
        self.overwrite = overwrite
        self._check_lock: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Check early whether tables can be written here.

        Raises:
            ConfigurationError: The path is no directory, or the directory holds files of somebody else; or its runs lie
                behind a link, and may be somebody else's.
        """
        for name in (RUNS, ROLLUPS, MANIFEST):
            require_no_link(self.path / name, self.path)
        with explained_at(self.path):
            if not self.path.exists():
                if isinstance(self.path, RemotePath):
                    self.path.require_store()
                return
            if not self.path.is_dir():
                raise ConfigurationError(f"{self.path} is a file; --out takes a directory")
            found = sorted(entry.name for entry in self.path.iterdir() if entry.name not in (RUNS, LOCKS, ROLLUPS))
        if found and MANIFEST not in found and not self.overwrite:
            raise ConfigurationError(
                f"{self.path} holds something else ({', '.join(found[:3])}{' ...' if len(found) > 3 else ''}); "
                f"choose an empty directory, or add --overwrite to replace its {', '.join(TABLES)}"
            )

    def check_writable(self) -> None:
        """Check before Spark starts that the directory can be made and written to; leaves nothing there.

        On a store nothing is written: ``check`` has asked for its bucket.

        Raises:
            ConfigurationError: It cannot; says why, and what to try.
        """
        if not isinstance(self.path, Path):
            return
        try:
            nearest = next(place for place in (self.path, *self.path.parents) if place.exists())
            with TemporaryFile(dir=nearest) as file:  # it never gets a name
                file.write(bytes(_PROBE))
                file.flush()
                os.fsync(file.fileno())
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            advice = NO_SPACE if e.errno in FULL else "choose another directory, or see who may write there: ls -ld"
            raise ConfigurationError(f"{self.path}: tables cannot be written there: {reason}; {advice}") from None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Begin a run: hold the directory against a second writer, and leave nothing behind when the run fails.

        Raises:
            ConfigurationError: As ``check``; or another process is writing there.
        """
        self.check()
        made = isinstance(self.path, Path) and not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path) as self._check_lock:
            self._remove_other_runs()
            self.run = self.path / RUNS / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
            self.run.mkdir(parents=True)
            try:
                with readable(self.path):
                    yield
            except BaseException:
                with suppress(Exception):  # the first error is the one to tell
                    self._check_lock()
                    self._remove_unlisted()
                raise
            finally:
                if self._current() != self.run:
                    remove_tree(self.run)
                if made and isinstance(self.path, Path) and not any((self.path / RUNS).iterdir()):
                    (self.path / RUNS).rmdir()
                    self.path.rmdir()

    def publish(self, facts: Mapping[str, Any], run: Place | None = None) -> None:
        """Write the manifest.

        Args:
            facts: Its content.
            run: The directory of the run that it makes the current one; None: this run's.
        """
        run = run or self.run
        manifest = {**facts, "run": str(run.relative_to(self.path))}  # type: ignore[arg-type]  # of one kind
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in manifest.items())
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        self._check_lock()
        if isinstance(self.path, RemotePath):
            assert isinstance(self.run, RemotePath)
            with explained(self.path):
                _put(self.path / MANIFEST, text, self.run)
            return
        assert isinstance(self.run, Path)
        written = self.run / MANIFEST
        with written.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written.rename(self.path / MANIFEST)
        assert isinstance(run, Path)
        _link_tables(self.path, run, overwrite=self.overwrite)

    def _remove_other_runs(self) -> None:
        """Remove the tables of runs that were killed, and of the run before the current one."""
        runs = self.path / RUNS
        if not runs.is_dir():
            return
        current = self._current()
        if isinstance(self.path, Path) and isinstance(current, Path):
            _link_tables(
                self.path, current, overwrite=self.overwrite
            )  # the run may have been killed after the rename of its manifest
        others: list[Place] = [run for run in runs.iterdir() if run != current]
        if others:
            self._remove_unlisted()
        for run in others:
            if isinstance(run, Path) and (run.is_symlink() or not run.is_dir()):
                run.unlink()
            else:
                remove_tree(run)

    def _remove_unlisted(self) -> None:
        """Remove the files beside those of the current run that a failed run had added, or was about to remove."""
        try:
            stored = current_tables(self.path)
        except ConfigurationError:
            return
        if isinstance(stored.run, Path) and stored.run.is_symlink():
            return
        listed = {stored.run / file for file in (*stored.rows, *stored.facts.get("beside", []))}
        aside = (file for file in stored.run.iterdir() if file.name.startswith(BESIDE))
        for file in (*table_files(stored.run), *aside):
            if file not in listed:
                file.unlink(missing_ok=True)

    def _current(self) -> Place | None:
        try:
            return current_run(self.path)
        except ConfigurationError:
            return None


def move_files(moves: Mapping[str, Place], run: Place) -> None:
    """Move files into the directory of a run: each by its path below a directory, which it keeps."""
    for parent in {path.rpartition("/")[0] for path in moves}:
        (run / parent).mkdir(parents=True, exist_ok=True)
        require_no_link(run / parent, run)
    at_store(lambda path: _move(moves[path] / path, run / path), moves)


def _move(file: Place, place: Place) -> None:
    """Move a file to a place where nothing is."""
    make_new(place)
    file.rename(place)  # type: ignore[arg-type]  # of one kind


def _put(place: RemotePath, text: str, run: RemotePath) -> None:
    """Replace the manifest, so that readers find the former manifest, or the new one whole."""
    if place.is_stored_whole:
        place.write_text(text)
        return
    written = run / MANIFEST
    written.write_text(text)
    try:
        written.rename(place)
    except OSError:
        place.unlink(missing_ok=True)
        written.rename(place)


def _link_tables(directory: Path, run: Path, *, overwrite: bool) -> None:
    """Point the links ``current`` and ``requests`` ... at a run."""
    _link(directory, _CURRENT, run.relative_to(directory), overwrite=overwrite)
    for name in (*TABLES, *(name for name in METADATA_TABLES if (run / name).is_dir())):
        _link(directory, name, Path(_CURRENT) / name, overwrite=overwrite)


def _link(directory: Path, name: str, target: Path, *, overwrite: bool) -> None:
    """Point a link at its target in one rename. A user's files of that name, given up by --overwrite, go."""
    place = directory / name
    if (place.is_symlink() and place.readlink() == target) or (
        place.exists() and not place.is_symlink() and not overwrite
    ):
        return
    fresh = directory / RUNS / f".link-{uuid.uuid4().hex}"
    fresh.symlink_to(target)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    fresh.rename(place)
