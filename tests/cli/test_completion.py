"""A real bash completes kproto's commands and options by the printed script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproto.cli import COMMANDS, main

BASH = """
source <("$KPROTO" completion bash)
COMP_WORDS=(kproto {words}); COMP_CWORD={last}
_kproto_completion kproto
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(*words: str) -> list[str]:
    """What bash offers for the last of some words."""
    program = Path(sys.executable).with_name("kproto")
    env = {**os.environ, "KPROTO": str(program), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    quoted = " ".join(f"'{word}'" for word in words)
    script = BASH.format(words=quoted, last=len(words))
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()


def test_bash_completes_a_command() -> None:
    assert completed("ins") == ["inspect"]
    assert set(COMMANDS) <= set(completed(""))


def test_bash_completes_an_option() -> None:
    assert completed("inspect", "--unans") == ["--unanswered"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_KPROTO_COMPLETE" in done.output
