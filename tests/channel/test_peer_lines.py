"""Lines of which peers decide how many there are."""

import logging

import pytest

from channel import logs
from channel.logs import PeerLines, get_logger


def test_a_flood_of_lines_of_one_kind_is_cut_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    tell = PeerLines(get_logger("channel.tests"))
    for number in range(5_000):
        tell(logging.WARNING, "closing %d", number)
    tell(logging.ERROR, "closing %d", 7)
    tell(logging.WARNING, "resetting %d", 7)
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == ["closing 0", "closing 1"]
    assert said[99:] == ["closing 99; more lines like this are left out for a while", "closing 7", "resetting 7"]
    caplog.clear()
    now[0] += 10
    tell(logging.WARNING, "closing %d", 5_000)
    assert [record.getMessage() for record in caplog.records] == [
        "4900 lines like the next were left out",
        "closing 5000",
    ]
