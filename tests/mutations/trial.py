"""Breaks a private copy of the tree and runs the tests that should notice."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis  # noqa: F401 - loaded once, before the children that run the tests are forked
import pytest
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
        command = ["-q", "-x", "-p", "mutations.plugin", "-p", "no:cacheprovider"]
        command += [
            "-W",
            "ignore:Module already imported:pytest.PytestAssertRewriteWarning",
        ]  # hypothesis is, on purpose
        command += ["--timeout", f"{one_test:.0f}", *sorted({test_of(test) for test in tests})]
        paths = f"{self.root}{os.pathsep}{self.root / 'tests'}"
        settings = {"PYTHONPATH": paths, "KPROTO_CHOSEN": str(self._chosen), "HYPOTHESIS_PROFILE": "mutations"}
        settings |= {"PYTHONDONTWRITEBYTECODE": "1"} | environment
        began = time.monotonic()
        status = _pytest(command, self.root, settings, limit)
        seconds = time.monotonic() - began
        if status is None:
            return Outcome("timeout", seconds=seconds)
        if not told.exists():
            return Outcome("killed", f"pytest ended with {status}", seconds)
        outcome = json.loads(told.read_text(encoding="utf-8"))
        for ran in outcome["ran"].values():
            if ran and not Path(ran).is_relative_to(self.root):
                raise RuntimeError(f"tests ran against {ran}, not against the copy")
        if status == 0:
            return Outcome("survived", seconds=seconds)
        if status == 5:
            return Outcome("untested", seconds=seconds)
        return Outcome("killed", outcome["red"] or f"pytest ended with {status}", seconds)


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
    return {name for name in names if name == "__pycache__" or (name == "data" and Path(folder).name == "tests")}
