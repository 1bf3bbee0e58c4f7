"""Draws mutants by seed, evenly over operators, packages and files.

A mutant's rank is a hash of the seed and of its place, so a change elsewhere moves no other mutant. The draw takes
operators and packages in turn, and of each the lowest rank in the file drawn from least often, so that one long table
of constants does not fill it. The first twenty of a draw of two hundred are the draw of twenty.
"""

import hashlib
from collections import Counter, defaultdict
from itertools import cycle
from pathlib import Path

from mutations.operators import OPERATORS, Mutant, mutants_of

__all__ = ["PACKAGES", "ROOT", "all_mutants", "draw"]

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("channel", "kproto")


def all_mutants(root: Path = ROOT, only: tuple[str, ...] = PACKAGES) -> list[Mutant]:
    """The mutants of every Python file below ``only``, which are paths or beginnings of paths."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(only):
                found += mutants_of(name, path.read_bytes())
    return found


def draw(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """The first ``count`` of the mutants in the order that the seed gives."""

    def rank(mutant: Mutant) -> str:
        return hashlib.blake2b(repr((seed, mutant.key)).encode(), digest_size=8).hexdigest()

    groups: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=rank, reverse=True):  # the lowest rank is popped first
        groups[mutant.operator, mutant.path.partition("/")[0]].append(mutant)
    drawn: list[Mutant] = []
    from_file: Counter[str] = Counter()
    for group in cycle([(operator, package) for operator in OPERATORS for package in PACKAGES]):
        if len(drawn) == min(count, len(mutants)):
            return drawn
        left = groups[group]
        if left:
            # The last of the list among equals: min() takes the first that it meets.
            at = min(range(len(left) - 1, -1, -1), key=lambda i: from_file[left[i].path])
            drawn.append(left.pop(at))
            from_file[drawn[-1].path] += 1
    return drawn
