#!/usr/bin/env python3
"""Repeats the tests of a change under load: make repeat SINCE=origin/main TIMES=20.

The test functions of tests/ whose text differs from that of a commit, the uncommitted ones included, run again and
again in two ways: while another process keeps each core busy, and on one core alone. Each failure is printed with the
command that repeats it, and makes the exit status 1. A change of a file outside its test functions (a fixture, a
helper) repeats the whole file.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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


def run(tests: list[str], marks: str, cores: set[int]) -> tuple[set[str], str]:
    """Run tests once on some cores; gives those that failed, and the last line of pytest."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-m",
        marks,
        *tests,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE))
    if done.returncode not in (0, 5) or failed:
        print(done.stdout[-6_000:], done.stderr[-2_000:], sep="\n", flush=True)
        failed = failed or {f"pytest ended with {done.returncode}"}
    return failed, (done.stdout.strip().splitlines() or [""])[-1]


def main() -> int:
    """Repeat the tests; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--since", default="HEAD", help="the commit that the tests are compared with (default: %(default)s)"
    )
    parser.add_argument("--times", type=int, default=20, help="how often they run in each way (default: %(default)s)")
    parser.add_argument(
        "--marks", default="not spark and not java and not kafka", help="pytest's -m (default: %(default)s)"
    )
    options = parser.parse_args()
    tests = changed(options.since)
    print(f"{len(tests)} tests or files of tests have changed since {options.since}:", *tests, sep="\n  ", flush=True)
    if not tests:
        return 0
    cores = sorted(os.sched_getaffinity(0))
    load = [multiprocessing.Process(target=keep_busy, args=(core,), daemon=True) for core in cores]
    failures: dict[str, list[str]] = {}
    for way, allowed in ("every core busy", set(cores)), ("one core", {cores[0]}):
        if way == "every core busy":
            for process in load:
                process.start()
        began = time.monotonic()
        for number in range(1, options.times + 1):
            failed, last = run(tests, options.marks, allowed)
            print(f"{way}, {number} of {options.times}: {last.strip('= ')}", flush=True)
            for test in failed:
                failures.setdefault(test, []).append(f"{way}, run {number}")
        print(f"{way}: {time.monotonic() - began:.0f} s", flush=True)
        for process in load:
            if process.is_alive():
                process.terminate()
    for test, runs in sorted(failures.items()):
        print(f"FAILED {len(runs)} of {2 * options.times} ({'; '.join(runs)}); repeat with .venv/bin/pytest '{test}'")
    if not failures:
        print(f"{2 * options.times} runs without a failure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
