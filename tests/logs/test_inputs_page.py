"""docs/inputs.md says of logs what the commands do."""

import re
from pathlib import Path

import pytest
from commands import run_kproto

from kproto.logs.wrappers import Unwrapper

PAGE = (Path(__file__).parents[2] / "docs" / "inputs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["inspect", "summary", "analyze"])
def test_every_option_of_the_page_is_there(command: str) -> None:
    about_logs = PAGE[PAGE.index("## Times") :]
    named = set(re.findall(r"--[a-z-]+", about_logs)) & {"--log-zone", "--log-date", "--broker-of", "--brokers"}
    assert len(named) == 4
    text = run_kproto(command, "--help").output
    assert all(option in text for option in named)


@pytest.mark.parametrize(
    "named", ["json-file", "fluentd", "filebeat", "JsonLayout", "journald", "CRI", "RFC 3164", "CSV"]
)
def test_every_form_that_the_page_names_has_its_test(named: str) -> None:
    assert named in PAGE
    assert named in (Path(__file__).parent / "test_posted_forms.py").read_text(encoding="utf-8")


def test_pieces_that_never_end_are_bounded() -> None:
    unwrapper = Unwrapper()
    piece = b"2023-11-20T18:35:15.1Z stdout P " + b"x" * (1 << 16) + b"\n"
    most = 0
    for number in range(600):
        for message in unwrapper.line(piece, number * len(piece), len(piece)):
            most = max(most, len(message.text))
    assert 1 << 24 < most < (1 << 24) + (1 << 17)
