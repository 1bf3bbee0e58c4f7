"""Commands that are named exist: in the rules' texts and in the pages; and the doctor's commands show something."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import kraft_runs
import pytest
from commands import run_kproto
from conftest import DATA, few

from kproto.cli import main
from kproto.generate import PlannedFleet, write_captures
from kproto.generate.plants import PLANTS
from kproto.query import QUESTIONS
from kproto.verdicts.catalogue import RULES

ROOT = Path(__file__).parents[2]
CAPTURES = [
    DATA / "captures" / f"{name}.pcap.gz" for name in ("external-controller-a", "ibp-3.9-a-lossy", "ibp-3.9-a-cut")
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def text_of(rule_id: str) -> str:
    rule = RULES[rule_id]
    return " ".join((rule.meaning, rule.cause, rule.action, rule.harmless))


def shell_lines(page: Path) -> Iterator[str]:
    """The lines of a page's blocks that call kproto, and its spans of code that do."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        if found := re.match(r"\s*\$?\s*(kproto [a-z].*)", line):
            yield found[1]
    yield from re.findall(r"`(kproto [a-z][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def check(line: str) -> None:
    """The words of a call name a command, its options, and a question."""
    call = re.split(r"\s[|>;#]|\s{3,}", line.replace("\n", " "))[0]
    words = re.findall(r"[^\s\"'()]+", call)[1:]
    command: click.Command = main
    while words and isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"{line!r}: no command {name}"
        command = found
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        option = word.rstrip(".,;:").partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", option):
            assert option in {*options, "--help"}, f"{line!r}: no option {option}"


@pytest.mark.parametrize("rule_id", RULES)
def test_a_rules_text_names_commands_that_exist(rule_id: str) -> None:
    for call in re.findall(r"kproto [a-z][^;:.,)?]*", text_of(rule_id)):
        check(call)
        if question := re.match(r"kproto query ([a-z-]+)", call):
            assert question[1] in QUESTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_commands_that_exist(page: Path) -> None:
    for line in shell_lines(page):
        check(line)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for line in ("kproto analyse x", "kproto query x leader --att 3"):
        with pytest.raises(AssertionError, match=r"no (command|option)"):
            check(line)


def commands_of(capture: Path, *options: str) -> list[tuple[str, list[str]]]:
    """What the doctor prints of a capture: each rule, and the command below it."""
    result = run_kproto("doctor", capture, *options)
    lines = result.stdout.splitlines()
    return [(line.split()[1], shlex.split(below)) for line, below in pairwise(lines) if line[0] != " "]


def run(words: list[str]) -> str:
    assert words[0] == "kproto"
    result = run_kproto(*words[1:])
    assert result.exit_code == 0, (words, result.stderr)
    return result.stdout


@pytest.mark.parametrize("name", few(PLANTS, 5))
def test_the_doctors_command_shows_something_of_a_planted_fault(name: str, tmp_path: Path) -> None:
    (rule_id,) = (rule.id for rule in RULES.values() if rule.name == name)
    fleet = PlannedFleet(
        seed=2, brokers=6, topics=20, partitions=60, isr_changes=160 if name == "slow-broker" else 15, elections=4,
        batch=5, protocol="3.9" if "3.9" in PLANTS[name].protocols else "2.4", plants=(name,),
    )  # fmt: skip
    (capture,) = write_captures(fleet, tmp_path).files
    shown = commands_of(capture, "--rule", rule_id, "--limit", "reassigning=60")  # a fleet lasts for minutes
    assert shown
    for _rule, words in shown:
        printed = run(words)
        assert printed
        assert "\n  nothing" not in printed


@pytest.mark.slow
def test_the_doctors_commands_show_something_of_faults_that_are_not_planted() -> None:
    found = {
        rule_id: words
        for capture in (*CAPTURES, *map(kraft_runs.capture, ("kraft-4.1-b", "kraft-4.1-r")))
        for rule_id, words in commands_of(capture, "--limit", "min-isr=2")
        if RULES[rule_id].name not in PLANTS
    }
    unplanted = {rule.id for rule in RULES.values() if rule.name not in PLANTS}
    # tests/verdicts and tests/capture/test_tunnels.py show them
    elsewhere = {"KP008", "KP024", "KP037", "KP038", "KP063", "KP064", "KP065", "KP066"}
    elsewhere |= {"KP071", "KP072", "KP074", "KP076"}
    assert found.keys() == unplanted - elsewhere
    for words in found.values():
        printed = run(words)
        assert printed
        assert "\n  nothing" not in printed
