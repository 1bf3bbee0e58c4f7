"""Which tests run which lines: measured once with coverage.py, and kept for each test file until its inputs change.

The inputs of a test file are itself, the helpers that it imports, and every Python file of the packages that its tests
ran a line of. What has changed is measured again in one run of pytest.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mutations.draw import PACKAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mutations.operators import Mutant

__all__ = ["Covering", "measure", "mirrors", "test_of"]

KEPT = ROOT / "out" / "mutations"
MARKS = "not java and not spark and (not kafka or zookeeper)"
LIMIT = 300.0
"""Seconds that one of the measuring runs of pytest may take: several times what each takes on two cores."""


@dataclass(frozen=True)
class Covering:
    """The tests that run each line.

    Attributes:
        seconds: Test id to the time that the test took.
        lines: Path and line number to test ids.
        files: Path to the ids of the tests that run any line of the file.
        breadth: Test file to the number of the packages' files that its tests run.
    """

    seconds: dict[str, float]
    lines: dict[tuple[str, int], set[str]]
    files: dict[str, set[str]]
    breadth: dict[str, int]

    def stages(self, mutant: Mutant, budget: float) -> list[list[str]]:
        """The tests that may notice a mutant, in runs of at most ``budget`` seconds, each quickest first.

        The first run has the tests of the mutant's lines in the two test files that run least else: collecting a test
        file costs more than most of its tests, and a file that is about the place kills most of its mutants. The
        second has all other tests of the lines. The third holds whatever was measured: the tests of the folders that
        mirror the mutant's. They alone can tell of lines that run in child processes.
        """
        found = self._tests_of(mutant)
        files = sorted({test_of(test) for test in found}, key=lambda file: (self.breadth[file], file))
        near = {test for test in found if test_of(test) in files[:2]}
        mirror = {test for test in self.seconds if mirrors(test_of(test), mutant.path)}
        stages = [self._quickest(tests, budget) for tests in (near, found - near, mirror - found)]
        return [stage for stage in stages if stage]

    def samples(self) -> list[str]:
        """The quickest tests of every file, up to three of each."""
        by_file = defaultdict(list)
        for test in sorted(self.seconds, key=lambda t: (self.seconds[t], t)):
            if self.seconds[test] < 1:
                by_file[test_of(test)].append(test)
        return [test for tests in by_file.values() for test in tests[:3]]

    def _tests_of(self, mutant: Mutant) -> set[str]:
        """The tests that run a mutant's lines; of lines that run at import alone, all tests that run its file."""
        found: set[str] = set()
        if mutant.lines is not None:
            first, last = mutant.lines
            found.update(*(self.lines.get((mutant.path, line), ()) for line in range(first, last + 1)))
        return found or self.files.get(mutant.path, set())

    def _quickest(self, tests: set[str], budget: float) -> list[str]:
        """The tests in the order of their time, as many as take ``budget`` seconds, but at least five."""
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda t: (self.seconds[t], t)):
            total += self.seconds[test]
            if total > budget and len(chosen) >= 5:
                break
            chosen.append(test)
        return chosen


def test_of(test: str) -> str:
    """The file of a test id."""
    return test.partition("::")[0]


def mirrors(test_file: str, path: str) -> bool:
    """Whether a test file stands where the tests of a file's folder stand.

    That is the folder of the same name below tests/, or the nearest above it; both codecs are also held by
    tests/contract, and a module of kproto itself by the test files that are in no folder.
    """
    folder, tests = PurePosixPath(path).parent, PurePosixPath(test_file).parent
    if folder.parts[0] == "kproto":
        folder = folder.relative_to("kproto")
        if folder == PurePosixPath() or folder.name == "reference":
            return tests in (PurePosixPath("tests") / folder, PurePosixPath("tests/contract"))
    mirror = PurePosixPath("tests") / folder
    while not (ROOT / mirror).is_dir():
        mirror = mirror.parent
    return tests.is_relative_to(mirror)


def measure(root: Path = ROOT, kept: Path = KEPT, jobs: int = 1) -> Covering:
    """The tests of every line of ``root``; measures what no kept file in ``kept`` tells, in ``jobs`` runs at a time.

    Raises:
        RuntimeError: pytest could not run the tests.
    """
    kept.mkdir(parents=True, exist_ok=True)
    digests = _Digests(root)
    known: dict[str, dict[str, Any]] = {}
    stale = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith("tests/mutations/"):
            continue  # this tool's own tests run none of the packages
        record = _read(kept, name)
        if record is not None and record["inputs"] == digests.of(name, record["lines"]):
            known[name] = record
        else:
            stale.append(name)
    if stale:
        print(f"measuring which lines the tests of {len(stale)} files run", file=sys.stderr, flush=True)
        count = min(len(stale), 8 * jobs)
        runs = [stale[i::count] for i in range(count)]
        with ThreadPoolExecutor(jobs) as pool:
            for measured in pool.map(lambda files: _measured(root, files), runs):
                for name, record in measured.items():
                    record["inputs"] = digests.of(name, record["lines"])
                    _kept(kept, name).write_text(json.dumps(record), encoding="utf-8")
                    known[name] = record
    return _joined(known)


class _Digests:
    """Digests of the files that a test file's lines depend on, taken before anything is measured."""

    def __init__(self, root: Path) -> None:
        paths = [p for name in (*PACKAGES, "tests") for p in (root / name).rglob("*.py")]
        self._of = {p.relative_to(root).as_posix(): _digest(p) for p in paths}
        self._root = root
        self._imports: dict[str, set[str]] = {}

    def of(self, test: str, ran: Iterable[str]) -> dict[str, str]:
        """The digests of a test file's inputs, ``ran`` among them."""
        folders = [parent.as_posix() for parent in PurePosixPath(test).parents]
        inputs = {test, *ran, *(f"{folder}/conftest.py" for folder in folders)}
        unread = [name for name in inputs if name in self._of and name.startswith("tests/")]
        while unread:
            helpers = self._imported(unread.pop()) - inputs
            inputs |= helpers
            unread += helpers
        return {name: self._of.get(name, "") for name in sorted(inputs)}

    def _imported(self, name: str) -> set[str]:
        """The helpers below tests/ that a file of tests imports."""
        if name not in self._imports:
            modules = set()
            for node in ast.walk(ast.parse((self._root / name).read_bytes())):
                if isinstance(node, ast.Import):
                    modules.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    modules.add(node.module)
            paths = {f"tests/{module.replace('.', '/')}.py" for module in modules}
            self._imports[name] = paths & self._of.keys()
        return self._imports[name]


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _measured(root: Path, files: list[str], limit: float = LIMIT) -> dict[str, dict[str, Any]]:
    """Run the tests of some files and tell for each what its tests ran.

    When a run does not end in time, its files are measured one by one, and a file whose tests do not end is left out.
    """
    told = _told(root, files, limit)
    if told is None and len(files) == 1:
        print(f"left out, as its tests did not end: {files[0]}", file=sys.stderr)
        return {}
    if told is None:
        alone = [_measured(root, [name], limit) for name in files]
        return {name: record for records in alone for name, record in records.items()}
    red = sorted(test for test, record in told["tests"].items() if record["outcome"] == "failed")
    if red:
        print(f"left out, as they did not pass unbroken: {', '.join(red)}", file=sys.stderr)
    records: dict[str, dict[str, Any]] = {name: {"seconds": {}, "lines": {}} for name in files}
    passed: dict[str, list[str]] = defaultdict(list)  # by context: a test, or a file whose tests share fixtures
    for test, record in told["tests"].items():
        if record["outcome"] == "passed":
            records[test_of(test)]["seconds"][test] = record["seconds"]
            passed[test] = [test]
            passed[test_of(test)].append(test)
    for path, lines in told["lines"].items():
        for line, contexts in lines.items():
            by_file: dict[str, set[str]] = defaultdict(set)
            for context in contexts:
                by_file[test_of(context)].update(passed[context])
            for name, tests in by_file.items():
                if tests:
                    records[name]["lines"].setdefault(path, {})[line] = sorted(tests)
    return records


def _told(root: Path, files: list[str], limit: float) -> dict[str, Any] | None:
    """What the plugin tells of a run of some test files, None if it was ended because its time ran out.

    Raises:
        RuntimeError: The run failed as a whole.
    """
    # Without kproto's own plugin: its modules would be imported before any is measured.
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "120", "-p", "mutations.plugin", "-p", "no:kproto"]
    command += ["-m", MARKS]
    with tempfile.TemporaryDirectory(prefix="kproto-measure-") as folder:
        target, output = Path(folder) / "measured.json", Path(folder) / "output.txt"
        environment = {**os.environ, "PYTHONPATH": str(root / "tests"), "KPROTO_MEASURE": str(target)}
        with output.open("wb") as out:  # no pipe: a process that outlives the run would hold it open
            run = subprocess.Popen(
                [*command, *files], cwd=root, env=environment, stdout=out, stderr=out, start_new_session=True
            )
            try:
                status = run.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
                run.send_signal(signal.SIGABRT)  # pytest's faulthandler writes where every thread stands
                time.sleep(1)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        said = output.read_text(encoding="utf-8", errors="replace")[-4000:]
        if status is None:
            print(f"the tests of {', '.join(files)} did not end within {limit:.0f} s: {said}", file=sys.stderr)
        elif status not in (0, 1, 5) or not target.exists():
            raise RuntimeError(f"pytest ended with {status}: {said}")
        return None if status is None else json.loads(target.read_text(encoding="utf-8"))


def _joined(records: dict[str, dict[str, Any]]) -> Covering:
    seconds: dict[str, float] = {}
    lines, files = defaultdict(set), defaultdict(set)
    for record in records.values():
        seconds.update(record["seconds"])
        for path, by_line in record["lines"].items():
            for line, tests in by_line.items():
                lines[path, int(line)].update(tests)
                files[path].update(tests)
    breadth = {name: len(record["lines"]) for name, record in records.items()}
    return Covering(seconds, dict(lines), dict(files), breadth)


def _kept(kept: Path, test: str) -> Path:
    return kept / (test.replace("/", ".") + ".json")


def _read(kept: Path, test: str) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(_kept(kept, test).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return record
