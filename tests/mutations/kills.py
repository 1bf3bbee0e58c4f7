"""The kills of an earlier campaign, for ``--resume``: a mutant stays killed while its file and its killer's stay."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mutations.covering import KEPT, test_of
from mutations.trial import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from mutations.operators import Mutant

__all__ = ["Kills"]


class Kills:
    """The tests that killed mutants, by a digest of the mutant, of its file and of the killer's.

    Args:
        root: The tree that is broken, or the repository.
        path: Where they are kept between campaigns; None keeps them nowhere.
    """

    def __init__(self, root: Path, path: Path | None = KEPT / "kills.json") -> None:
        self._root = root
        self._path = path
        self._killers: dict[str, str] = {}
        if path is not None and path.exists():
            self._killers = json.loads(path.read_text(encoding="utf-8"))

    def of(self, mutant: Mutant) -> Outcome | None:
        """What killed a mutant, unless it survived or one of the files has changed since."""
        killer = self._killers.get(repr(mutant.key))
        if killer is None:
            return None
        test, digest = killer.rsplit(" ", 1)
        return Outcome("killed", test) if digest == self._digest(mutant, test) else None

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Keep a kill by a test that can be named."""
        if self._path is not None and outcome.verdict == "killed" and "::" in outcome.red:
            self._killers[repr(mutant.key)] = f"{outcome.red} {self._digest(mutant, outcome.red)}"
            self._path.write_text(json.dumps(self._killers), encoding="utf-8")

    def _digest(self, mutant: Mutant, test: str) -> str:
        paths = (self._root / mutant.path, self._root / test_of(test))
        text = b"\0".join(path.read_bytes() if path.exists() else b"" for path in paths)
        return hashlib.blake2b(text, digest_size=16).hexdigest()
