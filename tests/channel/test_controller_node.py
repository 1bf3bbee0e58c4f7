"""The controller's listener lets clients go that ask it nothing."""

from __future__ import annotations

import threading

import pytest

from channel import controller_node
from channel.config import ChannelConfig
from channel.errors import NodeExists
from channel.types import EndPoint


@pytest.mark.parametrize(("configured", "used"), [(600_000, 10_000), (-1, 10_000), (10_001, 10_000), (500, 500)])
def test_a_silent_connection_ends_after_ten_seconds_at_the_latest(configured: int, used: int) -> None:
    config = controller_node._with_short_idle(ChannelConfig(connections_max_idle_ms=configured))
    assert config.connections_max_idle_ms == used


def test_a_node_that_ends_waits_no_longer_for_the_former_registration_of_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = threading.Event()

    def registered(*_: object) -> int:
        waiting.set()
        raise NodeExists("broker id 7 is registered in ZooKeeper by another process")

    monkeypatch.setattr(controller_node, "cluster_id", lambda session: "an id")
    monkeypatch.setattr(controller_node, "register_broker", registered)
    node = controller_node.ControllerNode(
        7, "127.0.0.1:1", config=ChannelConfig(zookeeper_session_timeout_ms=3_600_000)
    )
    node.endpoint = EndPoint("127.0.0.1", 9092)
    failures: list[BaseException] = []

    def register() -> None:
        try:
            node._register(node.controller.session)
        except NodeExists as e:
            failures.append(e)

    thread = threading.Thread(target=register, daemon=True)
    thread.start()
    assert waiting.wait(60)
    node.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(failures) == 1
