"""A controller's node without ZooKeeper: which thread does what, and what a candidate of a fleet reports."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from channel.config import ChannelConfig
from channel.network.node_client import NodeClient
from channel.node import controller_node
from channel.node.controller_node import Candidate, ControllerNode
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[ControllerNode]:
    made = ControllerNode(7, "127.0.0.1:1")
    made.controller.start = lambda: None  # type: ignore[method-assign]
    made.start()
    yield made
    made.close(30)


def test_settings_are_read_on_the_threads_for_them(node: ControllerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def read(*_: object) -> dict[str, str]:
        threads.append(threading.current_thread().name)
        return {"max.message.bytes": "5"}

    monkeypatch.setattr(controller_node, "read_settings", read)
    assert node.endpoint is not None
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="7")])
    with NodeClient((node.endpoint.host, node.endpoint.port), "test") as client:
        answer = client.ask(asked, 4)
    assert answer.results[0].error_code == 0
    assert [name.startswith("controller-7-settings-thread") for name in threads] == [True]


def test_a_candidate_reports_its_broker_and_each_epoch_once() -> None:
    elections: list[tuple[int, int]] = []
    session: Any = SimpleNamespace(watch_node=lambda *_: None)
    candidate = Candidate(3, session, ChannelConfig(), lambda *election: elections.append(election))
    for active_id, epoch in ((3, 8), (3, 8), (-1, 0)):
        candidate._on_change(active_id, epoch)
    assert elections == [(3, 8), (3, 0)]
