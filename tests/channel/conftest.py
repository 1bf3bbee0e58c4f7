"""What every test of the channel shares: a clock that moves by hand, and the check that nothing is left behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from network_peers import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _open_sockets() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
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
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = [t.name for t in threading.enumerate() if t not in threads]
        opened = sorted(_open_sockets() - descriptors)
        if not left and not opened:
            return
        time.sleep(0.005)
    pytest.fail(f"left behind: threads {left}, descriptors {opened}")
