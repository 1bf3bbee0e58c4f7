"""README and the pages of docs are true: their commands are run and print what they say, README's Python holds."""

import doctest
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import run_kproto

from kproto import reference
from kproto.api import CONTROL_APIS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIRST = ("README", "quickstart", "on-call")
"""The pages that people read first: their commands are run each time, those of the others in the tier ``slow``."""
CONSOLE = [
    pytest.param(
        block,
        id=f"{page.stem}: {block.splitlines()[0][2:60]}",
        marks=[] if page.stem in FIRST else pytest.mark.slow,
    )
    for page in (README, *sorted((ROOT / "docs").glob("*.md")))
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if page.name != "wireshark.md"  # tests/wireshark has its own
]


@pytest.mark.parametrize("block", CONSOLE)
def test_commands_print_what_the_page_shows(block, monkeypatch):
    command, _, expected = block.partition("\n")
    assert command.startswith("$ kproto "), command
    monkeypatch.chdir(ROOT)
    if set("|;&<>$*?(") & set(command[2:]):  # the shell has something to do
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(command[2:], shell=True, env=environment, capture_output=True, text=True, check=False)
        printed, said = done.stdout, done.stderr
    else:
        told = run_kproto(*shlex.split(command)[2:])
        printed, said = told.stdout, told.stderr
    wanted, got = expected.splitlines(), printed.splitlines()
    if wanted and wanted[-1] == "...":
        wanted, got = wanted[:-1], got[: len(wanted) - 1]
    assert got == wanted, said


def test_the_number_of_apis_is_that_of_the_reference():
    others = {api_key for api_key, _kind in reference._MESSAGES}.difference(CONTROL_APIS)
    assert f"{len(others)} other APIs in" in README.read_text(encoding="utf-8")


def test_the_page_of_the_command_line_has_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (`.*?) \|", page.partition("## Extras")[2].partition("## Settings")[0], re.MULTILINE)
    assert {name for cell in listed for name in re.findall(r"`(\w+)`", cell)} == set(project["optional-dependencies"])


def test_the_python_examples_hold(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = "\n".join(re.findall(r"^```pycon\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    test = doctest.DocTestParser().get_doctest(text, {}, "README.md", str(README), 0)
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert results.attempted >= 5
    assert results.failed == 0


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_make_alone_prints_what_each_target_is_for():
    told = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = re.findall(r"^(?:[a-z]+:| ).*?## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(texts) > 20
    assert [line[18:].strip() for line in told.splitlines()] == texts


def test_the_example_of_a_focused_run_has_a_test():
    for page in ("Makefile", "CONTRIBUTING.md"):
        file, word = re.search(r'TESTS="(\S+) -k (\w+)"', (ROOT / page).read_text(encoding="utf-8")).groups()
        assert re.search(rf"def test_\w*{word}", (ROOT / file).read_text(encoding="utf-8")), page


def test_every_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        named = set(re.findall(r"make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8")))
        named -= {"run", "test"} & targets
        assert named <= targets | {"and"}, (page, named - targets)
