"""A controller ends although a ZooKeeper that stays away holds up its event thread."""

import threading
import time
from typing import Any

import pytest
from network_peers import until

from channel.errors import ControllerMoved, IllegalState, NoNode, SessionExpired
from channel.lead import election as module
from channel.lead.election import Controller
from channel.lead.events import ApiRequest
from channel.metrics import Metrics
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode


class LostSession:
    """A broker's session whose ZooKeeper is away: requests wait until its owner closes it."""

    is_connected = False
    is_closed = False
    id = 1

    def __init__(self) -> None:
        self.asked, self.ended = threading.Event(), threading.Event()

    def watch_node(self, path: str, handler: object) -> None:
        """Nothing changes."""

    def ensure(self, path: str) -> None:
        """All permanent znodes are there."""

    def get(self, path: str) -> Any:
        """Wait for the end."""
        self.asked.set()
        assert self.ended.wait(90)
        raise IllegalState("the ZooKeeper session is closed")

    get_many = exists = get

    def close(self) -> None:
        """End all requests."""
        self.is_closed = True
        self.ended.set()


@pytest.mark.parametrize("end", [Controller.close, Controller.abandon])
def test_a_brokers_session_is_left_to_the_broker(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SECONDS_AWAY", 1)
    session = LostSession()
    before = set(threading.enumerate())
    controller = Controller(7, session, None, Metrics())
    controller.start()
    assert session.asked.wait(60)
    (thread,) = set(threading.enumerate()) - before
    end(controller)
    assert not session.is_closed
    session.close()
    thread.join(60)
    assert not thread.is_alive()


def test_an_own_session_whose_zookeeper_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests end as soon as the session is being closed; its threads may take a dozen seconds more."""
    monkeypatch.setattr(module, "_MOST_SECONDS_AWAY", 1)
    limits: list[float | None] = []

    class OwnSession(LostSession):
        def start(self) -> None:
            """It has begun."""

        def close(self, timeout_s: float | None = None) -> None:
            limits.append(timeout_s)
            super().close()

    monkeypatch.setattr(module, "ZooKeeperSession", lambda *_, **__: OwnSession())
    controller = Controller(7, "127.0.0.1:1", None, Metrics())
    controller.start()
    session: Any = controller.session
    assert session.asked.wait(60)
    controller.close()
    assert limits[0] == 1
    until(lambda: controller.events.is_shutdown_complete)


class DyingSession(LostSession):
    """A broker's session whose first request ends the thread that asks."""

    is_connected = True

    def get(self, path: str) -> Any:
        """End the event thread."""
        self.asked.set()
        raise SystemExit("the thread ends")

    get_many = exists = get


@pytest.mark.parametrize("end", [Controller.close, Controller.abandon])
def test_a_controller_whose_event_thread_has_died_is_closed_and_refuses_requests(end: Any) -> None:
    session = DyingSession()
    controller = Controller(7, session, None, Metrics())
    controller.start()
    assert session.asked.wait(60)
    (thread,) = [t for t in threading.enumerate() if t.name == "controller-event-thread"] or [None]
    if thread is not None:
        thread.join(60)
    assert controller.events.has_died
    controller.session_expired()  # does not wait for a thread that is dead
    end(controller)
    end(controller)


def test_a_controller_whose_event_thread_dies_gives_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gave_up: list[str] = []
    monkeypatch.setattr(Controller, "_give_up", lambda self: gave_up.append(threading.current_thread().name))
    controller = Controller(7, DyingSession(), None, Metrics())
    controller.start()
    until(lambda: gave_up)
    assert gave_up == ["controller-event-thread"]
    controller.close()


class RefusingSession(LostSession):
    """A broker's session whose requests fail at once."""

    is_connected = True

    def get(self, path: str) -> Any:
        """Refuse."""
        self.asked.set()
        raise IllegalState("not now")

    get_many = exists = get


def test_a_controller_whose_event_thread_has_ended_with_the_process_resigns_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gave_up: list[str] = []
    monkeypatch.setattr(Controller, "_give_up", lambda self: gave_up.append(threading.current_thread().name))
    session = RefusingSession()
    controller = Controller(7, session, None, Metrics())
    controller.start()
    assert session.asked.wait(60)
    assert controller.events.close(60)  # as the interpreter's end may do before it closes the controller
    gave_up.clear()
    began = time.monotonic()
    controller.close(90)
    assert time.monotonic() - began < 60
    assert gave_up == [threading.current_thread().name]


def test_the_end_of_a_controller_with_a_time_limit_does_not_wait_for_zookeeper(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = LostSession()
    session.is_connected = True  # it answers nothing all the same
    controller = Controller(7, session, None, Metrics())
    controller.start()
    assert session.asked.wait(60)
    began = time.monotonic()
    try:
        controller.close(0.1)
        assert time.monotonic() - began < 50
        assert "has not ended" in caplog.text
    finally:
        session.close()


class FailingLeadership:
    """A leadership that cannot serve a request."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def process(self, event: object) -> None:
        """Fail."""
        raise self.error

    def close(self, timeout_s: float | None = None) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (NoNode("it has gone"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ControllerMoved("another was elected"), ErrorCode.NOT_CONTROLLER),
        (SessionExpired("it is over"), ErrorCode.NOT_CONTROLLER),
        (IllegalState("no request can be sent"), ErrorCode.NOT_CONTROLLER),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_of_its_own_send_nobody_to_another_controller(
    error: Exception, code: ErrorCode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR, and NOT_CONTROLLER where it resigns."""
    monkeypatch.setattr(Controller, "_lose", lambda self: None)
    monkeypatch.setattr(Controller, "_move", lambda self: None)
    controller, answers = Controller(7, RefusingSession(), None, Metrics()), []
    controller._leadership = FailingLeadership(error)
    request = messages.ElectLeadersRequest(topic_partitions=None)
    controller.events.start()
    controller.ask(ApiRequest(ApiKey.ELECT_LEADERS, 1, request, answers.append))
    until(lambda: answers)
    controller.events.close()
    assert [answer.error_code for answer in answers] == [code]
    assert type(error).__name__ in caplog.text or code == ErrorCode.NOT_CONTROLLER
