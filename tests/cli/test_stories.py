"""Five questions of an engineer on call, over captures of real clusters: one command each, its output kept."""

import os
import re
import shutil
from pathlib import Path

import pytest
from commands import kproto_on_a_terminal, kproto_prints, run_kproto
from conftest import DATA, few
from kraft_runs import metadata
from state_runs import logs_of

ROOT = Path(__file__).parents[2]
GOLDEN = DATA / "golden"
CAPTURES = "tests/data/captures"

STORIES = {
    "new-leader": f"inspect {CAPTURES}/ibp-3.9-a.pcap.gz --broker 1 --partition tVPM9N8d-0 --changes --until 19:35:10",
    "lagging-broker": f"inspect {CAPTURES}/ibp-2.8-a.pcap.gz --slow 750ms",
    "zombie": f"inspect {CAPTURES}/external-controller-a.pcap.gz --errors request --since 19:47:45",
    "fenced-broker": f"inspect {CAPTURES}/external-controller-a.pcap.gz --errors request --broker 0 --until 19:47:14.6",
    "migration": f"summary {CAPTURES}/ibp-3.9-migration-a.pcap.gz",
}
"""Question -> the command that answers it."""

WIDTHS = {"80": 80, "120": 120, "200": 200, "pipe": None}


@pytest.mark.parametrize("width", few(WIDTHS))
@pytest.mark.parametrize("story", STORIES)
def test_one_command_answers(story: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words, columns = STORIES[story].split(), WIDTHS[width]
    printed = (
        kproto_on_a_terminal(*words, columns=columns, notes=False, NO_COLOR="1") if columns else kproto_prints(*words)
    )
    file = GOLDEN / f"{story}.{width}.txt"
    if os.environ.get("KPROTO_WRITE_GOLDEN"):
        file.write_text(printed, encoding="utf-8")
    assert printed == file.read_text(encoding="utf-8")
    if columns is not None:
        assert max(map(len, printed.splitlines())) <= columns


@pytest.mark.parametrize("story", STORIES)
def test_the_answer_is_whole_at_every_width(story: str) -> None:
    """Leaders, ISRs, errors and epochs of the widest output are in the narrowest."""
    facts = re.compile(r"leader \S+→\S+|isr \S+→\S+|STALE_[A-Z_]+|epoch \d+ is older than \d+|\d+\.\d ms")
    whole = facts.findall((GOLDEN / f"{story}.pipe.txt").read_text(encoding="utf-8"))
    narrow = " ".join((GOLDEN / f"{story}.80.txt").read_text(encoding="utf-8").split())
    assert whole or story == "migration"
    assert facts.findall(narrow) == whole


@pytest.mark.parametrize("story", STORIES)
def test_the_page_shows_what_the_command_prints(story: str) -> None:
    page = (ROOT / "docs" / "on-call.md").read_text(encoding="utf-8")
    printed = (GOLDEN / f"{story}.pipe.txt").read_text(encoding="utf-8")
    assert f"```console\n$ kproto {STORIES[story]}\n{printed}```" in page


@pytest.mark.slow
def test_the_page_begins_with_a_command_for_what_people_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "on-call.md").read_text(encoding="utf-8")
    section = page.split("\n## ")[1]
    assert section.startswith("What do you have?")
    commands = [command.split() for command in re.findall(r"`kproto ([^`]+)`", section)]
    commands = [command for command in commands if len(command) > 1 and "..." not in command]
    monkeypatch.chdir(tmp_path)
    shutil.copy(DATA / "captures" / "ibp-3.9-a.pcap.gz", "control.pcap")
    shutil.copytree(DATA / "request_log", "request-logs")
    for name, data in logs_of("kafka-2.8.2", "TRACE").items():
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    shutil.copytree(metadata("kraft-3.9-a"), "metadata")
    assert {command[1] for command in commands} == {"control.pcap", "request-logs", "logs", "metadata"}
    for command in commands:
        result = run_kproto(*command)
        assert result.exit_code == 0, (command, result.stderr)
        assert "without a zone" not in result.stderr
        assert result.stdout or command[0] in ("doctor", "inspect"), command


def test_the_readme_begins_with_the_first_story() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = (GOLDEN / "new-leader.pipe.txt").read_text(encoding="utf-8")
    block = f"```console\n$ kproto {STORIES['new-leader']}\n{printed}```"
    assert block in readme
    assert readme[: readme.index(block)].count("\n") < 25


def test_the_page_of_tables_is_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert page.endswith(kproto_prints("tables", "--format", "markdown"))
