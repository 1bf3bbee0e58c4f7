"""Fixtures of the controller's half."""

from __future__ import annotations

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
