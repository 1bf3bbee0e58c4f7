"""Progress shows itself to people only, after a quiet moment, and gives way to what is printed."""

import contextlib
import io

import pytest

from kproto.cli import progress as module
from kproto.cli.progress import ReadingProgress, reading


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_where_nobody_looks_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with reading() as progress:
        assert progress.of("a.pcap") is None


def test_a_bar_comes_up_after_a_quiet_second_and_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setenv("TERM", "xterm")
    with reading() as progress:
        update = progress.of("a.pcap")
        assert update is not None
        update(1_000, 4_000)
        assert terminal.getvalue() == ""  # a second has not passed
        clock.now += 1.5
        update(2_000, 4_000)
        progress.hide()  # a line is to be printed
        assert "a.pcap" in terminal.getvalue()
        shown = len(terminal.getvalue())
        update(2_500, 4_000)
        assert len(terminal.getvalue()) == shown  # it stays away while lines come out
        clock.now += 1.5
        update(3_000, None)
        progress.hide()
        assert len(terminal.getvalue()) > shown


def test_hiding_what_is_not_shown_does_nothing() -> None:
    ReadingProgress(enabled=False).hide()
    ReadingProgress(enabled=True).hide()


def test_a_bar_is_taken_away_when_reading_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.suppress(KeyboardInterrupt), reading() as progress:
        update = progress.of("a.pcap")
        assert update is not None
        clock.now += 1.5
        update(2_000, 4_000)
        raise KeyboardInterrupt
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l") >= 0  # the cursor is back
