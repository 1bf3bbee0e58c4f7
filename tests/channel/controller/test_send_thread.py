"""What no real socket shows: an answer to the wrong api, and the order in which a broker's parts are taken down."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import until

from channel.controller import manager as manager_module
from channel.controller.manager import GROUP, ControllerChannelManager
from channel.controller.requests import SingleRequest
from channel.errors import BrokerNotAvailable
from channel.metrics import Metrics
from channel.network._outbox import Outbox
from channel.network.request import BodyRequest, ClientRequest, ClientResponse
from channel.types import Broker, EndPoint
from kproto.api import ApiKey
from kproto.messages import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from channel.types import Node

BROKER = Broker(1, (EndPoint("127.0.0.1", 1),))


class FakeClient:
    """Always ready; answers at once, to another api than it was asked as often as told."""

    def __init__(self, notes: list[str], wrong_answers: int = 0) -> None:
        self.notes = notes
        self.wrong_answers = wrong_answers
        self.active = True
        self.correlation_id = 0
        self.clock: Any = None
        self._pending: list[ClientRequest] = []

    def ready(self, node: Node) -> bool:
        return True

    is_ready = ready

    def new_request(self, node_id: str, builder: Any, **options: Any) -> ClientRequest:
        self.correlation_id += 1
        return ClientRequest(node_id, builder, self.correlation_id, 0, 1000)

    def send(self, request: ClientRequest) -> None:
        self._pending.append(request)

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        responses = [ClientResponse(r, 0, UpdateMetadataResponse()) for r in self._pending]
        self._pending.clear()
        for response in responses:
            if self.wrong_answers:
                self.wrong_answers -= 1
                response.request.api_key = ApiKey.METADATA
        return responses

    def close_node(self, node_id: str) -> None:
        self.notes.append(f"close connection {node_id}")

    def initiate_close(self) -> None:
        self.active = False

    def close(self) -> None:
        self.notes.append("client closed")


def request(number: int) -> SingleRequest:
    return SingleRequest(UpdateMetadataRequest(controller_id=number), 8)


@pytest.mark.conformance("RST-10")
def test_an_answer_to_another_api_is_an_error_and_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    client = FakeClient(notes, wrong_answers=1)
    with ControllerChannelManager(1, lambda: 1, client_factory=lambda node: client) as manager:  # type: ignore[arg-type]
        manager.startup([BROKER])
        manager.send_request(1, request(1), lambda response: notes.append("called back for 1"))
        manager.send_request(1, request(2), lambda response: notes.append("called back for 2"))
        until(lambda: "called back for 2" in notes)
    assert notes == ["close connection 1", "called back for 2", "client closed"]
    error = next(r for r in caplog.records if r.levelname == "ERROR")
    assert "unexpected" in str(error.exc_info)
    assert "UpdateMetadata" in str(error.exc_info)


@pytest.mark.conformance("RST-14")
def test_a_broker_is_taken_down_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    client = FakeClient(notes)
    metrics = Metrics()

    class NotedMetrics(Metrics):
        def remove(self, group: str, name: str | None = None, tags: Any = None) -> None:
            if group == GROUP:
                notes.append(f"remove {name} {dict(tags)}")
            super().remove(group, name, tags)

    metrics.__class__ = NotedMetrics

    class NotedThread(manager_module.RequestSendThread):
        def shutdown(self) -> None:
            super().shutdown()
            notes.append(f"thread shut down, {threading.active_count() - before} left")

    class NotedQueue:
        def __init__(self, *arguments: Any) -> None:
            self.outbox: Outbox[Any] = Outbox(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.outbox, name)

        def __len__(self) -> int:
            return len(self.outbox)

        def drain(self) -> list[Any]:
            notes.append("queue cleared")
            return self.outbox.drain()

    monkeypatch.setattr(manager_module, "RequestSendThread", NotedThread)
    monkeypatch.setattr(manager_module, "Outbox", NotedQueue)
    before = threading.active_count()
    manager = ControllerChannelManager(1, lambda: 1, metrics=metrics, client_factory=lambda node: client)  # type: ignore[arg-type]
    manager.startup([BROKER])
    manager.remove_broker(1)
    tags = {"broker-id": "1"}
    assert list(dict.fromkeys(notes)) == [
        "thread shut down, 0 left",
        "client closed",
        "queue cleared",
        f"remove QueueSize {tags}",
        f"remove RequestRateAndQueueTimeMs {tags}",
    ]
    assert manager.broker_ids == []


def test_a_client_that_cannot_be_closed_keeps_its_broker_listed(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(FakeClient):
        def close(self) -> None:
            if not self.notes:
                self.notes.append("refused")
                raise OSError("not now")

    manager = ControllerChannelManager(1, lambda: 1, client_factory=lambda node: Stubborn([]))  # type: ignore[arg-type,return-value]
    manager.startup([BROKER])
    manager.remove_broker(1)
    assert manager.broker_ids == [1]
    assert "not now" in caplog.text
    manager.shutdown()
    assert manager.broker_ids == []


def test_a_builder_that_fails_is_tried_again_until_it_does_not(caplog: pytest.LogCaptureFixture) -> None:
    class Reluctant(FakeClient):
        def new_request(self, node_id: str, builder: Any, **options: Any) -> ClientRequest:
            if self.correlation_id < 2:
                self.correlation_id += 1
                raise ValueError("not yet")
            return super().new_request(node_id, BodyRequest(6, 8, [b""]))

    notes: list[str] = []
    with ControllerChannelManager(1, lambda: 1, client_factory=lambda node: Reluctant(notes)) as manager:  # type: ignore[arg-type,return-value]
        manager.startup([BROKER])
        manager.send_request(1, request(1), lambda response: notes.append("called back"))
        until(lambda: "called back" in notes)
    assert notes == ["close connection 1", "close connection 1", "called back", "client closed"]
    assert sum("not yet" in r.getMessage() for r in caplog.records) == 2


def test_a_broker_whose_thread_cannot_be_started_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    notes: list[str] = []
    manager = ControllerChannelManager(1, lambda: 1, client_factory=lambda node: FakeClient(notes))  # type: ignore[arg-type,return-value]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            manager.startup([BROKER])
    assert manager.broker_ids == []
    assert notes == ["client closed"]
    manager.startup([BROKER])
    assert manager.broker_ids == [1]
    manager.shutdown()


@pytest.mark.parametrize("second", [BROKER, Broker(2, (EndPoint("127.0.0.1", 1, "OTHER"),))], ids=["twice", "unfit"])
def test_starting_up_leaves_nothing_that_a_shutdown_does_not_end(second: Broker) -> None:
    manager = ControllerChannelManager(1, lambda: 1)
    with contextlib.suppress(BrokerNotAvailable):
        manager.startup([BROKER, second])
    assert manager.broker_ids == [1]
    manager.shutdown()  # threads and descriptors are counted by the fixture of all channel tests
