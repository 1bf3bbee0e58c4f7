#!/usr/bin/env python3
"""Repeats tests under load: make repeat SINCE=origin/main TIMES=20, or SINCE=all for the whole suite.

The test functions of tests/ whose text differs from that of a commit, the uncommitted ones included, run again and
again in two ways: while another process keeps each core busy, and on one core alone. Each failure is printed with the
command that repeats it, and makes the exit status 1. A change of a file outside its test functions (a fixture, a
helper) repeats the whole file. With a budget each way ends after half of it: the test that runs then is the last of its
round, and one that goes on much longer is killed and counts as failed. The seed decides the order of the files in each
round. A run with SINCE=all writes out/repeated.json.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

END_S = 300
"""How long a round whose time is over may take to end; a single test may take minutes under load."""


def git(*words: str) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def parts(source: str) -> dict[str, str]:
    """The text of each test function by its name, and of the rest of the module as ""."""
    found: dict[str, str] = {"": ""}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                walk(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[prefix + node.name] = ast.dump(node)
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                found[""] += prefix + ast.dump(node)

    walk(ast.parse(source).body, "")
    return found


def every(under: list[str]) -> list[str]:
    """All files of tests in these folders."""
    return sorted(path.relative_to(ROOT).as_posix() for each in under for path in (ROOT / each).rglob("test_*.py"))


def changed(since: str) -> list[str]:
    """The ids of the tests that are new or differ."""
    names = git("diff", "--name-only", "--diff-filter=d", since, "--", "tests").split()
    names += git("ls-files", "--others", "--exclude-standard", "--", "tests").split()
    found = []
    for name in sorted(name for name in names if re.fullmatch(r"test_\w+\.py", Path(name).name)):
        before = subprocess.run(
            ["git", "show", f"{since}:{name}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        old = parts(before.stdout) if before.returncode == 0 else {}
        new = parts((ROOT / name).read_text(encoding="utf-8"))
        if old.get("") != new[""]:
            found.append(name)
        else:
            found += [f"{name}::{test}" for test, text in new.items() if old.get(test) != text]
    return found


def keep_busy(core: int) -> None:
    """Compute for ever on a core, until the parent ends."""
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


class Watch:
    """A plugin of pytest that writes down how far its round is, and ends it after the test that runs at its end.

    Args:
        progress: Where each line has an event, and the id of a test or how many there are.
        ends: The end by the monotonic clock, None for none.
    """

    def __init__(self, progress: Path, ends: float | None) -> None:
        self._progress, self._ends = progress.open("a", buffering=1, encoding="utf-8"), ends
        self._session: pytest.Session | None = None

    def _note(self, event: str, what: object) -> None:
        self._progress.write(f"{event} {what}\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note("failed", report.nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session = session
        self._note("collected", len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note("began", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._note("ended", nodeid)
        if self._session is not None and self._ends is not None and time.monotonic() > self._ends:
            self._session.shouldstop = "the time of this round is over"


class Round(NamedTuple):
    """How a round went.

    Attributes:
        collected: How many tests there were to run.
        ran: The tests that ended, in any way.
        failed: Those that failed, or did not end.
        told: One line.
    """

    collected: int
    ran: set[str]
    failed: set[str]
    told: str


def run(tests: list[str], marks: str, cores: set[int], limit_s: float | None = None) -> Round:
    """Run tests once on some cores.

    Args:
        tests: Ids of tests, or files.
        marks: pytest's ``-m``.
        cores: The numbers of the cores.
        limit_s: The time after which no other test begins; None for no limit.
    """
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        ends = None if limit_s is None else time.monotonic() + limit_s
        process = subprocess.Popen(
            [sys.executable, __file__, "--watched", json.dumps([str(progress), ends]),
             "-q", "--tb=short", "-p", "no:cacheprovider", "-m", marks, *tests],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip
        is_killed = False
        try:
            told, errors = process.communicate(timeout=None if limit_s is None else limit_s + END_S)
        except subprocess.TimeoutExpired:
            is_killed = True
            told, errors = killed(process)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        noted = [line.split(" ", 1) for line in progress.read_text(encoding="utf-8").splitlines()]
    ids = {
        event: {what for noted_event, what in noted if noted_event == event} for event in ("began", "ended", "failed")
    }
    collected = sum(int(what) for event, what in noted if event == "collected")
    failed, ran = ids["failed"], ids["ended"]
    lines = [line for line in told.splitlines() if re.search(r" in \d+\.\d+s", line)]
    summary = (lines or [""])[-1].strip("= ")
    if is_killed:
        running = ids["began"] - ran or {"pytest before the first test or after the last"}
        summary = f"killed, as {', '.join(running)} did not end; {len(ran)} ended before, {len(failed)} of them failed"
        failed |= running
    elif not failed and process.returncode not in (0, 5):
        is_cut = process.returncode == 2 and ends is not None and time.monotonic() > ends
        failed |= set() if is_cut else {f"pytest itself, with exit code {process.returncode}"}
    if failed:
        print(told[-6_000:], errors[-6_000:], sep="\n", flush=True)
    if len(ran) < collected:
        summary += f"; {collected - len(ran)} of {collected} did not run"
    return Round(collected, ran, failed, summary)


def killed(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a round with all that it started; gives what it has printed, with the stack of each thread."""
    process.send_signal(signal.SIGABRT)  # pytest's faulthandler prints the stacks
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD", help="compare the tests with this commit, or take all of them: all")
    parser.add_argument("--under", nargs="+", default=["tests"], help="with --since all: the folders (default: tests)")
    parser.add_argument("--times", type=int, default=20, help="how often they run in each way (default: %(default)s)")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="end after this time, however many rounds ran")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() // 1_000_000 % 10**9, help="decides the order of files"
    )
    parser.add_argument("--marks", default="not spark and not java and not kafka", help="pytest's -m (%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Repeat the tests; 1 if any failed."""
    options = parsed()
    is_all = options.since == "all"
    tests = every(options.under) if is_all else changed(options.since)
    if is_all:
        print(f"{len(tests)} files of tests")
    else:
        print(f"{len(tests)} tests or files of tests have changed since {options.since}:", *tests, sep="\n  ")
    if not tests:
        return 0
    print(f"repeat: SEED={options.seed} gives the same order", flush=True)
    cores = sorted(os.sched_getaffinity(0))
    load = [multiprocessing.Process(target=keep_busy, args=(core,), daemon=True) for core in cores]
    failures: dict[str, list[str]] = {}
    rounds: list[dict[str, Any]] = []
    for way, allowed in ("every core busy", set(cores)), ("one core", {cores[0]}):
        if way == "every core busy":
            for process in load:
                process.start()
        ends = time.monotonic() + options.budget * 30 if options.budget else None
        for number in range(1, options.times + 1):
            left_s = None if ends is None else ends - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            order = random.Random(f"{options.seed} {way} {number}").sample(tests, len(tests))
            done = run(order, options.marks, allowed, left_s)
            rounds.append({"way": way, "load": round(os.getloadavg()[0], 1), "tests": done.collected,
                           "ran": len(done.ran), "told": done.told})  # fmt: skip
            print(f"{way}, {number} of {options.times}: {done.told}", flush=True)
            for test in done.failed:
                failures.setdefault(test, []).append(f"{way}, round {number}")
        for process in load:
            if process.is_alive():
                process.terminate()
    for test, where in sorted(failures.items()):
        print(f"FAILED {len(where)} of {len(rounds)} ({'; '.join(where)}); repeat with .venv/bin/pytest '{test}'")
    print(f"{len(rounds)} rounds, {len(failures) or 'none'} of the tests failed")
    if is_all:
        result = {
            "commit": git("rev-parse", "--short=10", "HEAD").strip(), "seed": options.seed, "cores": len(cores),
            "under": options.under, "rounds": rounds, "failures": failures,
        }  # fmt: skip
        (ROOT / "out").mkdir(exist_ok=True)
        (ROOT / "out" / "repeated.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        sys.path.pop(0)  # this folder
        progress, ends = json.loads(sys.argv[2])
        sys.exit(pytest.main(sys.argv[3:], plugins=[Watch(Path(progress), ends)]))
    sys.exit(main())
