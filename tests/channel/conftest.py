"""What every test of the channel shares: a clock that moves by hand, and the check that nothing is left behind."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "conformance(*rows): the rows of the conformance list that a test holds")


class FakeClock:
    """A clock that moves only when it is told to, or slept on."""

    def __init__(self, ms: int = 1_000_000) -> None:
        self.ns = ms * 1_000_000

    def milliseconds(self) -> int:
        return self.ns // 1_000_000

    def nanoseconds(self) -> int:
        return self.ns

    def wall_nanoseconds(self) -> int:
        return 1_700_000_000_000_000_000 + self.ns

    def sleep(self, ms: float) -> None:
        self.ns += int(ms * 1_000_000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _open_sockets() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith(("socket:", "anon_inode:[event")):
            found.add(f"{link.name} {target}")
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Threads end and sockets close with the test that opened them."""
    threads, descriptors = set(threading.enumerate()), _open_sockets()
    yield
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [t.name for t in threading.enumerate() if t not in threads]
        opened = sorted(_open_sockets() - descriptors)
        if not left and not opened:
            return
        time.sleep(0.005)
    pytest.fail(f"left behind: threads {left}, descriptors {opened}")
