"""Fixtures of the controller's half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from controller_cluster import Cluster
from scripted_broker import ScriptedBroker

from channel.types import SecurityProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted_broker import Step


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
