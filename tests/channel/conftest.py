"""What all tests of the channel share: a clock that moves by hand, brokers, the check that nothing is left behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from controller_cluster import Cluster
from network_peers import FakeClock
from scripted_broker import ScriptedBroker

from channel.types import SecurityProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted_broker import Step


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def protocol(request: pytest.FixtureRequest) -> SecurityProtocol:
    """How the brokers' listeners are secured: not at all, unless a test says so."""
    protocol: SecurityProtocol = getattr(request, "param", SecurityProtocol.PLAINTEXT)
    return protocol


@pytest.fixture
def scripted(protocol: SecurityProtocol) -> Iterator[Callable[..., ScriptedBroker]]:
    """Builds scripted brokers and closes them."""
    made: list[ScriptedBroker] = []

    def build(*steps: Step) -> ScriptedBroker:
        made.append(ScriptedBroker(*steps, protocol=protocol))
        return made[-1]

    yield build
    for broker in made:
        broker.close()


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
