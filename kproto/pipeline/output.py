"""The directory that the tables go to: nothing of the user's is lost, and readers see whole tables or none.

Tables are written beside their place and moved in when all are there. The manifest, ``_kproto.json``, is what makes a
directory ours; it is taken away before the first table is replaced and written again after the last.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigurationError
from kproto.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MANIFEST", "OutputDirectory"]

MANIFEST: Final = "_kproto.json"
_STAGING: Final = ".kproto-staging"  # readers of Parquet directories pass over names that begin with a dot


class OutputDirectory:
    """A place for tables.

    Args:
        path: The directory; made when it is first needed.
        overwrite: Whether tables may be put into a directory that holds something else.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path.absolute()
        self.staging = self.path / _STAGING
        self._overwrite = overwrite

    def check(self) -> None:
        """Say early what would stop the writing later.

        Raises:
            ConfigurationError: It is no directory, or holds what is not ours.
        """
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise ConfigurationError(f"{self.path} is a file; --out takes a directory")
        found = sorted(entry.name for entry in self.path.iterdir() if entry.name != _STAGING)
        if found and MANIFEST not in found and not self._overwrite:
            raise ConfigurationError(
                f"{self.path} holds something else ({', '.join(found[:3])}{' ...' if len(found) > 3 else ''}); "
                f"choose an empty directory, or add --overwrite to replace its {', '.join(TABLES)}"
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While tables are written to ``staging``: holds the directory against a second writer, leaves no rest behind.

        Raises:
            ConfigurationError: As ``check``; or somebody else is writing there.
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
            try:
                shutil.rmtree(self.staging, ignore_errors=True)  # of a run that was killed
                self.staging.mkdir()
                yield
            finally:
                shutil.rmtree(self.staging, ignore_errors=True)
                if made and not any(self.path.iterdir()):
                    self.path.rmdir()
        finally:
            os.close(descriptor)

    def publish(self, facts: Mapping[str, Any]) -> None:
        """Move the staged tables to their place, and the old ones away.

        Args:
            facts: What the manifest says of this run.
        """
        manifest = self.path / MANIFEST
        manifest.unlink(missing_ok=True)
        for name in TABLES:
            place = self.path / name
            if place.is_symlink() or place.exists():
                place.rename(self.staging / f"old-{name}")
            (self.staging / name).rename(place)
        written = self.staging / MANIFEST
        written.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        written.rename(manifest)
