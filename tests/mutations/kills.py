"""The tests that killed mutants, kept between campaigns.

The last whole campaign's are committed as ``killed.json``: ``--replay`` breaks some of those places again and expects
the same tests to go red. Those of the last run stay in out/: ``--resume`` takes over what no changed file has put in
doubt.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mutations.covering import test_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mutations.operators import Mutant

__all__ = ["Kills"]


class Kills:
    """The tests that killed mutants, by what names a mutant in any version of its file.

    Args:
        path: The JSON file that keeps them.
        root: The repository.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._killers: dict[str, dict[str, str]] = {}
        if path.exists():
            self._killers = json.loads(path.read_text(encoding="utf-8"))

    def of(self, mutant: Mutant, *, unchanged: bool = False) -> str:
        """The test that killed a mutant, if one did; on demand only while its file and the mutant's are unchanged."""
        killer = self._killers.get(repr(mutant.key), {"test": ""})
        if unchanged and killer.get("inputs") != self._digest(mutant, killer["test"]):
            return ""
        return killer["test"]

    def add(self, mutant: Mutant, test: str) -> None:
        """Keep a kill."""
        self._killers[repr(mutant.key)] = {"test": test, "inputs": self._digest(mutant, test)}

    def write(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._killers), encoding="utf-8")

    def commit(self, mutants: Iterable[Mutant], path: Path) -> None:
        """Write the tests that killed some mutants to another file, for whatever becomes of the mutants' files."""
        kept = {key: {"test": self._killers[key]["test"]} for key in (repr(m.key) for m in mutants)}
        path.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")

    def _digest(self, mutant: Mutant, test: str) -> str:
        paths = (self._root / mutant.path, self._root / test_of(test))
        text = b"\0".join(path.read_bytes() if path.is_file() else b"" for path in paths)
        return hashlib.blake2b(text, digest_size=16).hexdigest()
