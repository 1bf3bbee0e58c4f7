"""Breaks a private copy of the tree and runs the tests that should notice."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis  # noqa: F401 - loaded once, before the children that run the tests are forked
import pytest
from mutations.covering import test_of
from mutations.draw import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutations.operators import Mutant

__all__ = ["Outcome", "Tree"]

LIMIT = 120.0
"""Seconds that a run of tests may take to begin, on however busy a machine."""


@dataclass(frozen=True)
class Outcome:
    """What became of a broken tree.

    Attributes:
        verdict: ``killed`` by a red test or a crash, killed by ``timeout``, ``survived``, or ``untested`` when no test
            runs the place.
        red: The first test that failed, "" if there is none to name.
        seconds: How long it took.
        tests: Test id to the time that the test took.
    """

    verdict: str
    red: str = ""
    seconds: float = 0.0
    tests: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def killed(self) -> bool:
        """Whether the tests noticed."""
        return self.verdict in ("killed", "timeout")


class Tree:
    """A copy of the packages with the built codec, and of the tests; what no test writes is linked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "tree"
        self._chosen = folder / "chosen.txt"

    @classmethod
    def of(cls, root: Path, folder: Path) -> Tree:
        """Copy a repository."""
        tree = cls(folder)
        for name in (*PACKAGES, "tests"):
            shutil.copytree(root / name, tree.root / name, ignore=_left_out)
        (tree.root / "tests" / "data").symlink_to(root / "tests" / "data")
        for path in root.iterdir():
            if path.name not in (*PACKAGES, "tests", "out") and (path.name == ".github" or path.name[0] != "."):
                (tree.root / path.name).symlink_to(path)
        for name in PACKAGES:
            compileall.compile_dir(tree.root / name, quiet=1)
        return tree

    def copy(self, folder: Path) -> Tree:
        """Copy this tree, with whatever was compiled in it."""
        shutil.copytree(self.root, folder / "tree", symlinks=True)
        return Tree(folder)

    def prepare(self, names: list[str]) -> dict[str, float]:
        """Run some tests unbroken, which compiles them too, and tell how long each takes.

        Raises:
            RuntimeError: They are not green, or did not run against the copy.
        """
        for _ in range(3):  # a busy machine may make a test fail, hardly the same three times
            outcome = self.run(names, PYTHONDONTWRITEBYTECODE="")
            if outcome.verdict == "survived":
                break
        else:
            raise RuntimeError(f"the tests must pass before anything is broken: {outcome.red or outcome.verdict}")
        return outcome.tests

    @contextlib.contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant for a while."""
        target = self.root / mutant.path
        whole = target.read_bytes()
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):
            compiled.unlink()  # it is taken for current if size and second agree
        target.write_bytes(mutant.applied_to(whole))
        try:
            yield
        finally:
            target.write_bytes(whole)

    def notices(self, mutant: Mutant, names: list[str], seconds: dict[str, float]) -> Outcome:
        """Apply a mutant and run tests until one fails.

        What a busy machine does to the tests is no kill: the test that failed must fail again by itself (or the same
        tests once more, if it needs what ran before it), and where time ran out, the same tests must pass unbroken in
        a third of that time.

        Args:
            mutant: What is broken.
            names: Test ids or conformance rows, in the order in which they run.
            seconds: Test id to the time that the test takes unbroken.
        """
        times = [seconds.get(name, 2.0) for name in names]
        limit, one_test = LIMIT + 5 * sum(times), 20 + 5 * max(times, default=0)
        with self.broken(mutant):
            outcome = self.run(names, limit, one_test)
            if outcome.verdict == "killed" and outcome.red:
                again = self.run([outcome.red], limit, one_test)
                if not again.killed:
                    again = self.run(names, limit, one_test)
                outcome = replace(again, red=again.red or outcome.red, seconds=outcome.seconds + again.seconds)
        if outcome.verdict == "timeout":
            unbroken = self.run(names, limit, one_test)
            verdict = "timeout" if unbroken.verdict == "survived" and unbroken.seconds < limit / 3 else "survived"
            outcome = replace(outcome, verdict=verdict, seconds=outcome.seconds + unbroken.seconds)
        return outcome

    def run(self, names: list[str], limit: float = 600, one_test: float = 60, **environment: str) -> Outcome:
        """Run tests in the order of their ids or rows until one fails, for at most ``limit`` seconds.

        A single test that takes ``one_test`` seconds has found an endless loop: it fails.
        """
        files = self._files(names)
        if not files:
            return Outcome("untested")
        self._chosen.write_text("\n".join(names), encoding="utf-8")
        told = self._chosen.with_suffix(".outcome")
        told.unlink(missing_ok=True)
        command = ["-q", "-x", "-p", "mutations.plugin", "-p", "no:kproto", "-p", "no:cacheprovider"]
        command += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]  # hypothesis, on purpose
        command += ["--timeout", f"{one_test:.0f}", *files]
        paths = f"{self.root}{os.pathsep}{self.root / 'tests'}"
        settings = {"PYTHONPATH": paths, "KPROTO_CHOSEN": str(self._chosen), "HYPOTHESIS_PROFILE": "mutations"}
        settings |= {"PYTHONDONTWRITEBYTECODE": "1"} | environment
        began = time.monotonic()
        status = _pytest(command, self.root, settings, limit)
        seconds = time.monotonic() - began
        if status is None:
            return Outcome("timeout", seconds=seconds)
        if not told.exists():
            return Outcome("killed", "", seconds)
        outcome = json.loads(told.read_text(encoding="utf-8"))
        for ran in outcome["ran"]:
            if ran and not Path(ran).is_relative_to(self.root):
                raise RuntimeError(f"tests ran against {ran}, not against the copy")
        verdict = {0: "survived", 5: "untested"}.get(status, "killed")
        return Outcome(verdict, outcome["red"], seconds, outcome["seconds"])

    def _files(self, names: list[str]) -> list[str]:
        """The test files of some test ids, and all that name one of the rows."""
        files = {test_of(name) for name in names if "::" in name}
        rows = [f'"{name}"' for name in names if "::" not in name]
        for path in (self.root / "tests").rglob("test_*.py") if rows else ():
            text = path.read_text(encoding="utf-8")
            if any(row in text for row in rows):
                files.add(path.relative_to(self.root).as_posix())
        return sorted(name for name in files if (self.root / name).exists())


def _pytest(arguments: list[str], folder: Path, environment: dict[str, str], limit: float) -> int | None:
    """Run pytest in a child process that need not load it again; gives the exit status, None if time ran out."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()  # so that whatever a broken test starts can be ended with it
            os.chdir(folder)
            os.environ.update(environment)
            sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
            sys.dont_write_bytecode = bool(environment["PYTHONDONTWRITEBYTECODE"])
            for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
                del sys.modules[name]  # none, unless this tool is itself under test
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            os._exit(int(pytest.main(arguments)))
        finally:
            os._exit(70)
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], limit)
    finally:
        os.close(handle)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Caches, the tests' data, and compiled modules whose sources are Python: what is broken must be what runs."""
    compiled = {f"{name.removesuffix('.py')}." for name in names if name.endswith(".py")}
    return {
        name
        for name in names
        if name == "__pycache__"
        or (name == "data" and Path(folder).name == "tests")
        or (name.endswith(".so") and name[: name.index(".") + 1] in compiled)
    }
