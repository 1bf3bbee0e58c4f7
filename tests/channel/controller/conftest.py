"""Fixtures of the controller's half; every test of it must leave no thread behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from controller_cluster import Cluster
from scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted_broker import Step


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    """Builds scripted brokers and closes them."""
    made: list[ScriptedBroker] = []

    def build(*steps: Step) -> ScriptedBroker:
        made.append(ScriptedBroker(*steps))
        return made[-1]

    yield build
    for broker in made:
        broker.close()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test does, its send threads end."""
    yield
    left = [t.name for t in threading.enumerate() if "-send-thread" in t.name or t.name == "controller-event-thread"]
    assert not left
