"""The two lists that go with the drawn mutants, as data: breakages that tests must notice, mutants that none can.

``known.toml`` holds deliberate breakages, each larger than an operator's change: a text of a file and what replaces it.
One that names conformance rows must turn a test of each of those rows red, any other one of the tests that it names.
``equivalent.toml`` holds mutants that behave as the program does, each with the reason. Neither can go stale: a place
that is not found exactly once, a breakage that survives and an equivalent that is killed all fail the run.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mutations.draw import ROOT
from mutations.operators import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Breakage", "equivalents", "known_breakages"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Breakage:
    """A deliberate breakage.

    Attributes:
        name: What no longer holds.
        rows: The conformance rows of which a test must go red each.
        tests: The tests of which one must go red, where no row tells of the behaviour.
        change: The change of text that makes it.
    """

    name: str
    rows: tuple[str, ...]
    tests: tuple[str, ...]
    change: Mutant

    @property
    def runs(self) -> list[list[str]]:
        """The runs of tests that must notice, each by rows or test ids."""
        return [[row] for row in self.rows] or [list(self.tests)]


def known_breakages(root: Path = ROOT, text: str | None = None) -> list[Breakage]:
    """The breakages of ``known.toml``.

    Raises:
        LookupError: A text to be replaced does not stand exactly once in its file.
    """
    listed = tomllib.loads(text or (HERE / "known.toml").read_text(encoding="utf-8"))["breakage"]
    return [
        Breakage(
            entry["name"],
            tuple(entry.get("rows", ())),
            tuple(entry.get("tests", ())),
            _change(root, entry["name"], entry),
        )
        for entry in listed
    ]


def equivalents(mutants: Iterable[Mutant], text: str | None = None) -> dict[Mutant, str]:
    """The mutants of ``equivalent.toml``, each with the reason why no test can notice it.

    Raises:
        LookupError: A listed mutant is not among ``mutants``, or several agree with it.
    """
    listed = tomllib.loads(text or (HERE / "equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    found: dict[Mutant, str] = {}
    by_place: dict[tuple[str, str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        by_place.setdefault((mutant.path, mutant.function, mutant.operator, mutant.line), []).append(mutant)
    for entry in listed:
        place = (entry["file"], entry["function"], entry["operator"], entry["line"])
        same = [m for m in by_place.get(place, []) if entry.get("before", m.before) == m.before]
        same = [m for m in same if entry.get("nth", m.nth) == m.nth]
        if len(same) != 1:
            raise LookupError(f"equivalent.toml: {len(same)} mutants are {': '.join(place)!r}, not one; mend the entry")
        found[same[0]] = entry["why"]
    return found


def _change(root: Path, name: str, entry: dict[str, str]) -> Mutant:
    source = (root / entry["file"]).read_bytes()
    wanted = entry["text"].encode()
    if source.count(wanted) != 1:
        raise LookupError(
            f"known.toml: the text of {name!r} stands {source.count(wanted)} times in {entry['file']}, not once; "
            "mend the entry"
        )
    begin = source.index(wanted)
    first = source.count(b"\n", 0, begin) + 1
    last = first + wanted.rstrip(b"\n").count(b"\n")
    span = (begin, begin + len(wanted))
    return Mutant(entry["file"], "", "known", name, entry["text"], entry["becomes"], 0, span, first, (first, last))
