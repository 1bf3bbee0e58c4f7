"""The two lists that go with the drawn mutants, as data: breakages that tests must notice, mutants that none can.

``known.toml`` holds known breakages. Each is the mutant that an operator makes of the place in a function that has a
name in its text; files and lines are not named, so that code may move. One that names conformance rows must turn a test
of each of those rows red, any other one of the tests that it names.
``equivalent.toml`` holds mutants that behave as the program does, each with the reason. A breakage whose place is not
found, one that survives and an equivalent that is killed fail the run.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mutations.operators import Mutant

__all__ = ["Breakage", "equivalents", "known_breakages"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Breakage:
    """A known breakage.

    Attributes:
        name: What no longer holds.
        rows: The conformance rows of which a test must go red each.
        tests: The tests of which one must go red, where no row tells of the behaviour.
        change: The mutant that makes it.
    """

    name: str
    rows: tuple[str, ...]
    tests: tuple[str, ...]
    change: Mutant

    @property
    def runs(self) -> list[list[str]]:
        """The runs of tests that must notice, each by rows or test ids."""
        return [[row] for row in self.rows] or [list(self.tests)]


def known_breakages(mutants: Iterable[Mutant], text: str | None = None) -> list[Breakage]:
    """The breakages of ``known.toml``.

    Raises:
        LookupError: No mutant is the place that an entry names.
    """
    by_function: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        for name in {mutant.function, mutant.function.rpartition(".")[2]}:  # with its class or without it
            by_function.setdefault((name, mutant.operator), []).append(mutant)
    found = []
    for entry in tomllib.loads(text or (HERE / "known.toml").read_text(encoding="utf-8"))["breakage"]:
        here = [m for m in by_function.get((entry["function"], entry["operator"]), []) if entry["names"] in m.before]
        if not here:
            raise LookupError(
                f"known.toml: {entry['name']!r}: no {entry['operator']} with {entry['names']!r} in "
                f"{entry['function']}; mend the entry"
            )
        found.append(Breakage(entry["name"], tuple(entry.get("rows", ())), tuple(entry.get("tests", ())), here[0]))
    return found


def equivalents(mutants: Iterable[Mutant], text: str | None = None) -> dict[Mutant, str]:
    """The mutants of ``equivalent.toml``, each with the reason why no test can notice it.

    An entry whose place is gone, or is no longer the only one, excuses nothing.
    """
    listed = tomllib.loads(text or (HERE / "equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    found: dict[Mutant, str] = {}
    by_place: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        for name in {mutant.function, mutant.function.rpartition(".")[2]}:
            by_place.setdefault((name, mutant.operator, mutant.line), []).append(mutant)
    for entry in listed:
        place = (entry["function"], entry["operator"], entry["line"])
        same = [m for m in by_place.get(place, []) if entry.get("before", m.before) == m.before]
        same = [m for m in same if entry.get("nth", m.nth) == m.nth]
        if len(same) == 1:
            found[same[0]] = entry["why"]
    return found
