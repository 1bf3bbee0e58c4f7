"""Tries mutants and known breakages, on several copies of the tree at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mutations.trial import Outcome, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mutations.operators import Mutant

__all__ = ["Trial", "attempt", "attempts"]

_tree: Tree
"""The copy that a worker process breaks."""


@dataclass(frozen=True)
class Trial:
    """A change of the program and the tests that should notice it.

    Attributes:
        mutant: The change.
        runs: Test ids or conformance rows, run after run.
        seconds: Test id to the time that the test takes unbroken.
        each: Whether every run must notice the change; otherwise the first that does ends the trial.
    """

    mutant: Mutant
    runs: list[list[str]]
    seconds: dict[str, float]
    each: bool = False


def attempt(tree: Tree, trial: Trial) -> Outcome:
    """Apply a change and run its tests."""
    outcome, spent = Outcome("untested"), 0.0
    for names in trial.runs:
        latest = tree.notices(trial.mutant, names, trial.seconds)
        spent += latest.seconds
        if latest.verdict != "untested" or trial.each:
            outcome = latest
        if outcome.killed is not trial.each:
            break
    return replace(outcome, seconds=spent)


def attempts(tree: Tree, folder: Path, jobs: int, trials: list[Trial]) -> Iterator[tuple[Mutant, Outcome]]:
    """What becomes of each change, in the order in which the trials end, on ``jobs`` copies of the tree.

    Workers are forked, as are the runs of tests below them: pytest is loaded once for all.
    """
    forked = multiprocessing.get_context("fork")
    folders = forked.SimpleQueue()
    for number in range(jobs):
        folders.put(tree.copy(folder / str(number)).folder)
    with ProcessPoolExecutor(jobs, forked, _begin, (folders,)) as pool:
        try:
            waiting = {pool.submit(_attempt, trial): trial.mutant for trial in trials}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(folders: multiprocessing.SimpleQueue[Path]) -> None:
    global _tree
    _tree = Tree(folders.get())


def _attempt(trial: Trial) -> Outcome:
    return attempt(_tree, trial)
