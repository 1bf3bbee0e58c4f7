#!/usr/bin/env python3
"""Repeats tests under load: make repeat SINCE=origin/main TIMES=20, or SINCE=all for the whole suite.

The test functions of tests/ whose text differs from that of a commit, the uncommitted ones included, run again and
again in two ways: while another process keeps each core busy, and on one core alone. Each failure is printed with the
command that repeats it, and makes the exit status 1. A change of a file outside its test functions (a fixture, a
helper) repeats the whole file. With a budget each way ends after half of it; a round that is cut short then has run
some of the tests, and each round begins with another file. A run with SINCE=all writes tests/repeated.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

END_S = 60
"""How long a round that is cut short may take to end."""


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


def run(tests: list[str], marks: str, cores: set[int], limit_s: float | None = None) -> tuple[set[str], str, bool]:
    """Run tests once on some cores.

    Args:
        tests: Ids of tests, or files.
        marks: pytest's ``-m``.
        cores: The numbers of the cores.
        limit_s: The time after which the tests that have not begun are left out; None for no limit.

    Returns:
        The tests that failed, the last line of pytest, and whether all of them ran.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-m", marks]
    process = subprocess.Popen(
        [*command, *tests],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    is_whole = True
    try:
        told, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        is_whole = False
        process.send_signal(signal.SIGINT)  # pytest ends, and tells what it has run
        try:
            told, errors = process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            told, errors = process.communicate()
    failed = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told, re.MULTILINE))
    if failed or (process.returncode not in (0, 5) and is_whole):
        print(told[-6_000:], errors[-2_000:], sep="\n", flush=True)
        failed = failed or {f"pytest ended with {process.returncode}"}
    lines = [line for line in told.splitlines() if re.search(r" in \d+\.\d+s", line)]
    return failed, (lines or [""])[-1].strip("= "), is_whole


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD", help="compare the tests with this commit, or take all of them: all")
    parser.add_argument("--under", nargs="+", default=["tests"], help="with --since all: the folders (default: tests)")
    parser.add_argument("--times", type=int, default=20, help="how often they run in each way (default: %(default)s)")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="end after this time, however many rounds ran")
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
    cores = sorted(os.sched_getaffinity(0))
    load = [multiprocessing.Process(target=keep_busy, args=(core,), daemon=True) for core in cores]
    failures: dict[str, list[str]] = {}
    rounds: dict[str, list[str]] = {}
    for way, allowed in ("every core busy", set(cores)), ("one core", {cores[0]}):
        if way == "every core busy":
            for process in load:
                process.start()
        ends = time.monotonic() + options.budget * 30 if options.budget else None
        told = rounds[way] = []
        while len(told) < options.times:
            left_s = None if ends is None else ends - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            first = len(told) * max(1, len(tests) // options.times) % len(tests)
            failed, last, is_whole = run([*tests[first:], *tests[:first]], options.marks, allowed, left_s)
            told.append(last if is_whole else f"{last}, cut short")
            print(f"{way}, {len(told)} of {options.times}: {told[-1]}", flush=True)
            for test in failed:
                failures.setdefault(test, []).append(f"{way}, run {len(told)}")
        for process in load:
            if process.is_alive():
                process.terminate()
    ran = sum(map(len, rounds.values()))
    for test, runs in sorted(failures.items()):
        print(f"FAILED {len(runs)} of {ran} ({'; '.join(runs)}); repeat with .venv/bin/pytest '{test}'")
    print(f"{ran} rounds, {'none' if not failures else len(failures)} of the tests failed")
    if is_all:
        result = {"commit": git("rev-parse", "--short=10", "HEAD").strip(), "cores": len(cores), "under": options.under}
        text = json.dumps({**result, "rounds": rounds, "failures": failures}, indent=2)
        (ROOT / "tests" / "repeated.json").write_text(text + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
