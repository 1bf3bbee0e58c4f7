"""kproto's commands, run within the process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from kproto.cli import main

__all__ = ["kproto_prints", "kproto_rows", "run_kproto"]


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
