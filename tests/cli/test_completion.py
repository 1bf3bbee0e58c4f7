"""A real bash completes kproto's commands and options by the printed script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from commands import run_kproto

from kproto.cli import COMMANDS, main
from kproto.query import QUESTIONS
from kproto.verdicts.catalogue import LIMITS, RULES

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


def offered(*words: str) -> list[str]:
    """What every shell is given for the last of some words."""
    *before, incomplete = words
    shell = ShellComplete(main, {}, "kproto", "_KPROTO_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete) if item.type == "plain"]


def test_bash_completes_a_question_behind_a_capture() -> None:
    assert completed("query", "control.pcap", "off") == ["offline", "off-preferred"]


def test_questions_are_offered_behind_a_capture_and_files_before() -> None:
    assert set(offered("query", "control.pcap", "")) == set(QUESTIONS)
    assert offered("query", "off") == []


@pytest.mark.parametrize("option", ["--rule", "--ignore", "--explain"])
def test_rules_are_completed_by_id_and_by_name(option: str) -> None:
    assert offered("doctor", option, "kp01") == [rule for rule in RULES if rule.startswith("KP01")]
    assert offered("doctor", option, "under-m") == [r.name for r in RULES.values() if r.name.startswith("under-m")]
    assert set(RULES) <= set(offered("doctor", option, ""))


def test_limits_are_completed_with_their_defaults() -> None:
    assert offered("doctor", "--limit", "offl") == ["offline=30"]
    assert len(offered("doctor", "--limit", "")) == len(LIMITS)


@pytest.mark.parametrize("command", ["inspect", "query", "summary", "decode", "encode", "send"])
def test_apis_are_completed_whatever_their_case(command: str) -> None:
    assert offered(command, "--api", "leadera") == ["LeaderAndIsr"]
    assert offered(command, "--api", "StopReplica,updatem") == ["StopReplica,UpdateMetadata"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    done = run_kproto("completion", shell)
    assert done.exit_code == 0
    assert "_KPROTO_COMPLETE" in done.output
