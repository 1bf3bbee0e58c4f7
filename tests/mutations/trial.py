"""Breaks a private copy of the tree and runs the tests that should notice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mutations.covering import test_of
from mutations.draw import PACKAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Outcome", "Tree"]


@dataclass(frozen=True)
class Outcome:
    """What became of a broken tree.

    Attributes:
        verdict: ``killed`` by a red test or a crash, killed by ``timeout``, ``survived``, or ``untested`` when no test
            runs the place.
        red: The first test that failed, "" if there is none to name.
        seconds: How long it took.
    """

    verdict: str
    red: str = ""
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether the tests noticed."""
        return self.verdict in ("killed", "timeout")


class Tree:
    """A copy of the packages with their built extensions, and of the tests; what no test writes is linked."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.root = folder / "tree"
        self._chosen = folder / "chosen.txt"
        for name in (*PACKAGES, "tests"):
            shutil.copytree(root / name, self.root / name, ignore=_left_out)
        (self.root / "tests" / "data").symlink_to(root / "tests" / "data")
        for path in root.iterdir():
            if path.name not in (*PACKAGES, "tests", "out") and not path.name.startswith("."):
                (self.root / path.name).symlink_to(path)

    def prepare(self, tests: list[str]) -> None:
        """Run some tests unbroken, which also compiles what the broken runs import.

        Raises:
            RuntimeError: They are not green, or did not run against the copy.
        """
        outcome = self.run(tests, limit=600, PYTHONDONTWRITEBYTECODE="")
        if outcome.verdict != "survived":
            raise RuntimeError(f"the tests must pass before anything is broken: {outcome.red or outcome.verdict}")

    @contextlib.contextmanager
    def broken(self, path: str, text: bytes) -> Iterator[None]:
        """Put another text in the place of a file for a while."""
        target = self.root / path
        whole = target.read_bytes()
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):
            compiled.unlink()  # it is taken for current if size and second agree
        target.write_bytes(text)
        try:
            yield
        finally:
            target.write_bytes(whole)

    def run(self, tests: list[str], limit: float, one_test: float = 60, **environment: str) -> Outcome:
        """Run the tests in their order until one fails, for at most ``limit`` seconds.

        A single test that takes ``one_test`` seconds has found an endless loop: it fails.
        """
        if not tests:
            return Outcome("untested")
        self._chosen.write_text("\n".join(tests), encoding="utf-8")
        told = self._chosen.with_suffix(".outcome")
        told.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "mutations.plugin", "-p", "no:cacheprovider"]
        command += ["--timeout", f"{one_test:.0f}", *sorted({test_of(test) for test in tests})]
        paths = f"{self.root}{os.pathsep}{self.root / 'tests'}"
        settings = {"PYTHONPATH": paths, "KPROTO_CHOSEN": str(self._chosen), "HYPOTHESIS_PROFILE": "mutations"}
        settings |= {"PYTHONDONTWRITEBYTECODE": "1"} | environment
        began = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=self.root,
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as run:
            try:
                run.wait(limit)
            except subprocess.TimeoutExpired:
                return Outcome("timeout", seconds=time.monotonic() - began)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)  # and whatever a broken test has started
        seconds = time.monotonic() - began
        if not told.exists():
            return Outcome("killed", f"pytest ended with {run.returncode}", seconds)
        outcome = json.loads(told.read_text(encoding="utf-8"))
        for ran in outcome["ran"].values():
            if ran and not Path(ran).is_relative_to(self.root):
                raise RuntimeError(f"tests ran against {ran}, not against the copy")
        if run.returncode == 0:
            return Outcome("survived", seconds=seconds)
        if run.returncode == 5:
            return Outcome("untested", seconds=seconds)
        return Outcome("killed", outcome["red"] or f"pytest ended with {run.returncode}", seconds)


def _left_out(folder: str, names: list[str]) -> set[str]:
    return {
        n for n in names if n == "__pycache__" or n.endswith(".c") or (n == "data" and Path(folder).name == "tests")
    }
