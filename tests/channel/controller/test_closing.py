"""A controller ends although a ZooKeeper that stays away holds up its event thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from channel.controller import controller as module
from channel.controller.controller import Controller
from channel.errors import IllegalState
from channel.metrics import Metrics


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
        assert self.ended.wait(60)
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
