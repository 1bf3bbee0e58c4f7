"""A fleet leaves its owner's hooks as they are, though one object may serve all brokers and each of their starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from channel.broker import fleet as module
from channel.broker.fleet import Fleet
from channel.broker.hooks import BrokerHooks, RequestContext


class Registration:
    """A registration that needs no ZooKeeper."""

    def __init__(self, *_: object, **__: object) -> None:
        self.session = SimpleNamespace()

    def start(self) -> int:
        """Return a broker epoch."""
        return 1

    def close(self, timeout_s: float | None = None) -> None:
        """Nothing to end."""


@pytest.fixture
def _no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session(SimpleNamespace):
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "ZooKeeperSession", lambda hosts: Session())
    monkeypatch.setattr(module, "create_persistent_nodes", lambda session: None)
    monkeypatch.setattr(module, "cluster_id", lambda session: "cluster")
    monkeypatch.setattr(module, "BrokerRegistration", Registration)


@pytest.mark.usefixtures("_no_zookeeper")
def test_each_start_of_each_broker_serves_requests_to_its_own_controller() -> None:
    def note(context: RequestContext, request: Any, answer: Any) -> None:
        noted.append(context.client_id)

    noted: list[str] = []
    reported: list[int] = []
    stored = BrokerHooks(answered=note)
    with Fleet("unused:1", range(2), hooks=lambda broker_id: stored) as fleet:
        fleet.on_answered = lambda broker_id, context: reported.append(broker_id)
        former = [fleet[i].broker.hooks.controller for i in range(2)]
        fleet.restart(0)
        controllers = [*former, fleet[0].broker.hooks.controller]
        assert None not in controllers
        assert len(set(map(id, controllers))) == 3
        answered = fleet[0].broker.hooks.answered
        assert answered is not None
        answered(RequestContext(6, 8, 1, "client", "PLAINTEXT"), None, None)
    assert (noted, reported) == (["client"], [0])
    assert stored == BrokerHooks(answered=note)
