"""docs/inputs.md says of logs what the commands do."""

import re
import tracemalloc
from pathlib import Path

import pytest
from commands import run_kproto

from kproto.capture import CaptureSummary
from kproto.capture.log_reader import LogReader
from kproto.errors import CaptureError
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


def test_lines_newest_first_that_wait_are_bounded() -> None:
    assert "64 MiB at most; more: `tac FILE`" in PAGE
    line = "[2026-01-01 00:%02d:%02d,%03d] INFO [Broker id=1] Leader t-0 starts at leader epoch 1 %s (l.logger)\n"
    text = [line % (0, n // 1000, n % 1000, "x" * 50_000) for n in range(1_600, 0, -1)]
    reader = LogReader(CaptureSummary(), capture="", apis=None)
    tracemalloc.start()
    try:
        with pytest.raises(CaptureError, match="whose newest line stands first; turn its lines round: tac FILE"):
            any(reader.feed(each.encode()) for each in text)
        assert 60 << 20 < tracemalloc.get_traced_memory()[1] < 70 << 20
    finally:
        tracemalloc.stop()
