"""A controller's node without ZooKeeper: which thread does what, and what a candidate of a fleet reports."""

import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from channel.config import ChannelConfig
from channel.network.node_client import NodeClient
from channel.node import controller_node
from channel.node.controller_node import Candidate, ControllerNode, NodeRequests, PassedRequests
from channel.types import EndPoint, Node
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResource, UnregisterBrokerRequest


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


def test_delayed_answers_get_the_servers_clock_and_the_workers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def delayed(*arguments: Any) -> Any:
        given.extend(arguments)
        return original(*arguments)

    original = controller_node.DelayedAnswers
    monkeypatch.setattr(controller_node, "DelayedAnswers", delayed)
    node, names, later = ControllerNode(7, "127.0.0.1:1"), [], threading.Event()
    node.controller.start = lambda: None  # type: ignore[method-assign]
    node.start()
    try:
        call_later, submit = given
        call_later(1, lambda: (names.append(threading.current_thread().name), later.set()))
        assert later.wait(30)
        done = threading.Event()
        submit(lambda: (names.append(threading.current_thread().name), done.set()))
        assert done.wait(30)
    finally:
        node.close(30)
    assert "worker" not in names[0]
    assert names[1].startswith("controller-7-worker-thread")


def test_a_node_is_registered_with_its_address_and_the_time_in_ms(
    node: ControllerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, bytes]] = []

    def register(_session: object, broker_id: int, contents: bytes) -> int:
        written.append((broker_id, contents))
        return 77

    monkeypatch.setattr(controller_node, "cluster_id", lambda _session: "a-cluster")
    monkeypatch.setattr(controller_node, "register_broker", register)
    before = time.time()
    node._register(SimpleNamespace(exists=lambda _path: None))  # type: ignore[arg-type]
    ((broker_id, contents),) = written
    told = json.loads(contents)
    assert before - 1 <= int(told["timestamp"]) / 1000 <= time.time() + 1
    assert node.endpoint is not None
    assert (broker_id, told["host"], told["port"]) == (7, node.endpoint.host, node.endpoint.port)
    assert node._broker.broker_epoch == 77


def test_a_node_registers_with_the_quorum_once_and_has_itself_forgotten_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []

    def send(request: Any, answered: Any) -> None:
        done.append(request.message)
        answered(SimpleNamespace(body=None))

    channel = SimpleNamespace(send_request=send)
    kraft = SimpleNamespace(channel=channel, start=lambda: done.append("start"), close=lambda: done.append("close"))
    monkeypatch.setattr(controller_node, "cluster_id", lambda _session: "a-cluster")
    monkeypatch.setattr(controller_node, "register_broker", lambda *_: 77)
    node = ControllerNode(7, "127.0.0.1:1", quorum=[Node(3000, "127.0.0.1", 1)])
    monkeypatch.setattr(node._quorum, "registration", lambda *_: kraft)
    node.endpoint = EndPoint("127.0.0.1", 9092)
    session: Any = SimpleNamespace(exists=lambda _path: None)
    node._register(session)
    node._register(session)  # of the session after that
    node._broker.kraft_epoch = 5
    node.close(30)
    assert done == ["start", UnregisterBrokerRequest(broker_id=7), "close"]


def test_what_a_node_answers_is_told_before_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def channels(_protocol: object, _security: object, versions: Any) -> Any:
        given.append(versions)
        return original(_protocol, _security, versions)

    original = controller_node.server_channels
    monkeypatch.setattr(controller_node, "server_channels", channels)
    ControllerNode(7, "127.0.0.1:1").close(30)
    told = {each.api_key for each in given[0](3).api_keys}
    assert told >= NodeRequests.keys | PassedRequests.keys


def test_a_candidate_reports_its_broker_and_each_epoch_once() -> None:
    elections: list[tuple[int, int]] = []
    session: Any = SimpleNamespace(watch_node=lambda *_: None)
    candidate = Candidate(3, session, ChannelConfig(), lambda *election: elections.append(election))
    for active_id, epoch in ((3, 8), (3, 8), (-1, 0)):
        candidate._on_change(active_id, epoch)
    assert elections == [(3, 8), (3, 0)]
