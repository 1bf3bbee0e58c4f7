"""Shows that tests of conformance rows notice when the behaviour breaks: ``make mutations``.

Twenty rows are drawn by seed from those that are tested. For each, ``<row>.patch`` breaks just that behaviour in a
copy of the tree, where all conformance tests are run then: the row's must go red, those of other groups must not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conformance.coverage import read_coverage  # noqa: E402

SEED = 391  # Kafka 3.9.1
COUNT = 20
CODE = ("kproto", "channel", "tests")
GIT = ("git", "-c", "core.autocrlf=false", "apply")


@dataclass(frozen=True)
class Outcome:
    """What became of the conformance tests.

    Attributes:
        ran: The rows whose tests were run.
        red: Each test that failed with the rows that it holds.
        error: Why the run tells nothing, "" if it does.
    """

    ran: frozenset[str]
    red: dict[str, list[str]]
    error: str = ""


def drawn_rows(seed: int = SEED) -> list[str]:
    """The rows to be proved."""
    coverage = read_coverage()
    return sorted(random.Random(seed).sample(sorted(coverage.rows.keys() & coverage.tested.keys()), COUNT))


def patch_of(row: str) -> Path:
    """Where the patch of a row is."""
    return HERE / f"{row}.patch"


def copy_tree(target: Path) -> None:
    """The code, its built extensions and the tests; data is linked, as no test of a row writes it."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {
            n for n in names if n == "__pycache__" or n.endswith(".c") or (n == "data" and Path(folder).name == "tests")
        }

    for name in CODE:
        shutil.copytree(ROOT / name, target / name, ignore=left_out)
    (target / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    shutil.copy(ROOT / "pyproject.toml", target)


def run_conformance_tests(tree: Path) -> Outcome:
    """Run what holds a row, in a tree of its own."""
    files = sorted({f"tests/{name}" for names in read_coverage().tested.values() for name in names})
    told = tree / "outcomes.json"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "conformance", "--timeout", "60", "-p", "mutations.outcomes"]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}", "KPROTO_OUTCOMES": str(told)}
    run = subprocess.run([*command, *files], cwd=tree, env=environment, capture_output=True, text=True, timeout=900)
    if run.returncode not in (0, 1) or not told.exists():
        return Outcome(frozenset(), {}, f"pytest ended with {run.returncode}: {run.stdout[-2000:]}{run.stderr[-1000:]}")
    found = json.loads(told.read_text(encoding="utf-8"))
    if not Path(found["kproto"]).is_relative_to(tree):
        return Outcome(frozenset(), {}, f"tests ran against {found['kproto']}, not against the copy")
    return Outcome(frozenset(found["ran"]), found["red"])


def verdict(row: str, outcome: Outcome) -> str:
    """What is wrong with a mutation's outcome; "" if it proves the row."""
    if outcome.error:
        return outcome.error
    if not any(row in rows for rows in outcome.red.values()):
        return "the row's test stays green"
    others = [test for test, rows in outcome.red.items() if row[:3] not in {r[:3] for r in rows}]
    return f"other groups go red too: {', '.join(others)}" if others else ""


def prove(row: str, base: Path) -> tuple[Outcome, str]:
    """Break one row's behaviour in a copy of ``base`` and see."""
    with tempfile.TemporaryDirectory(prefix=f"kproto-{row}-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(base, tree, symlinks=True)
        subprocess.run(
            [*GIT, str(patch_of(row))], cwd=tree, check=True, env={**os.environ, "GIT_DIR": str(tree / "no")}
        )
        outcome = run_conformance_tests(tree)
    return outcome, verdict(row, outcome)


def main() -> int:
    """Prove all, or the rows that are named; the exit status is 1 if one is not proved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="rows that have a patch; those drawn by seed if left out")
    rows = parser.parse_args().rows or drawn_rows()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on a deaf ear
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kproto-mutations-") as folder:
        base = Path(folder)
        copy_tree(base)
        whole = run_conformance_tests(base)
        if whole.error or whole.red:
            print(f"the tests must pass before anything is broken: {whole.error or sorted(whole.red)}", file=sys.stderr)
            return 1
        print(f"{len(whole.ran)} rows are green; {len(rows)} are broken, one after the other (seed {SEED})\n")
        print(
            "| row | its tests red | others of its group | other groups | s | proved |\n|---|---:|---:|---:|---:|---|"
        )
        for row in rows:
            began = time.monotonic()
            outcome, wrong = prove(row, base)
            own = sum(row in held for held in outcome.red.values())
            group = sum(row[:3] in {r[:3] for r in held} for held in outcome.red.values())
            took = time.monotonic() - began
            line = f"| {row} | {own} | {group - own} | {len(outcome.red) - group} | {took:.0f} | {wrong or 'yes'} |"
            print(line, flush=True)
            failures += bool(wrong)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
