"""A fleet leaves its owner's hooks as they are, though one object may serve all brokers and each of their starts."""

from typing import Any

import pytest

from channel.broker import fleet as fleet_module
from channel.broker import links
from channel.broker.fleet import Fleet
from channel.broker.hooks import BrokerHooks, RequestContext


@pytest.fixture
def _no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def start(self) -> None: ...
        def close(self, timeout_s: float | None = None) -> None: ...

    for each in (fleet_module, links):
        monkeypatch.setattr(each, "ZooKeeperSession", Session)
    monkeypatch.setattr(fleet_module, "create_persistent_nodes", lambda session: None)
    monkeypatch.setattr(fleet_module, "cluster_id", lambda session: "cluster")
    monkeypatch.setattr(links, "register_broker", lambda session, broker_id, contents: 1)


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
