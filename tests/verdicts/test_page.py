"""docs/verdicts.md shows what the commands print, and has every rule and limit."""

import re
import shlex
from pathlib import Path

import pytest
from commands import run_kproto

from kproto.verdicts.catalogue import LIMITS, RULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n\$ kproto (.*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _shown in BLOCKS])
def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch, command: str, shown: str) -> None:
    monkeypatch.chdir(ROOT)
    result = run_kproto(*shlex.split(command))
    assert result.exit_code == 0
    assert result.stdout == shown


def test_the_page_has_every_rule_and_limit() -> None:
    for rule in RULES.values():
        assert f"| {rule.id} | {rule.name} | {rule.severity} | {rule.meaning} |" in PAGE
    for limit in LIMITS.values():
        assert f"| {limit.name} | {limit.default:g} {limit.unit} | {limit.meaning} |" in PAGE


def test_the_page_has_every_term() -> None:
    for term in ("Accepted", "Refused", "Stale", "Zombie", "Behind", "Missed", "No leader", "Unclean", "Complete"):
        assert f"**{term}" in PAGE
