"""kproto's commands, run within the process."""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kproto.cli import main

__all__ = [
    "kproto_on_a_terminal", "kproto_prints", "kproto_rows", "kproto_running", "program", "python_prints", "run_kproto",
    "shown_until",
]  # fmt: skip


def program(name: str) -> str:
    """The path of a program that a test needs: it is skipped where there is none, but fails in CI."""
    found = shutil.which(name)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is missing; tools/setup installs it for root")
    return found


def python_prints(text: str, *words: str, **more: Any) -> str:
    """What a program in Python prints, run in a process of its own; ``more`` is what ``subprocess.run`` takes."""
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=500, **more)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def run_kproto(*words: object, **more: Any) -> Result:
    """Run a command; ``more`` is what click's runner takes, such as ``input``."""
    return CliRunner().invoke(main, list(map(str, words)), prog_name="kproto", **more)


def kproto_prints(*words: object, code: int = 0, **more: Any) -> str:
    """What a command prints to standard output when it ends with this code."""
    result = run_kproto(*words, **more)
    assert result.exit_code == code, result.output
    return result.stdout


def kproto_rows(*words: object, **more: Any) -> list[dict[str, Any]]:
    """The JSON lines that a command prints."""
    return [json.loads(line) for line in kproto_prints(*words, "--format", "json", **more).splitlines()]


@contextmanager
def kproto_running(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "kproto", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def shown_until(process: subprocess.Popen[str], text: str) -> str:
    """What a process prints up to the line that has a text."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was not shown: {seen}")


def kproto_on_a_terminal(*words: object, columns: int, notes: bool = True, **environment: str) -> str:
    """What a command, in a process of its own, prints to a terminal of that width; with or without its notes."""
    outer, inner = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "kproto", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=inner if notes else subprocess.DEVNULL,
        env=inherited | {"TERM": "xterm", "COLUMNS": str(columns)} | environment,
    ) as process:
        os.close(inner)
        pieces = []
        while True:
            try:
                piece = os.read(outer, 65_536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
        assert process.wait(timeout=120) == 0
    os.close(outer)
    return b"".join(pieces).decode().replace("\r\n", "\n")
