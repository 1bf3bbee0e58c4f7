"""Watches without a server: which reads register them, and what a lost connection or a new session makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.states import EventType, WatchedEvent

from channel.zookeeper.watches import Watches

CHANGED = WatchedEvent(EventType.CHANGED, "CONNECTED", "/n")
LOST = WatchedEvent(EventType.NONE, "CONNECTING", None)
FIRST, SECOND = object(), object()


class Watched:
    """Watches of one node in the session of ``FIRST``."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_connected = True
        self.watches = Watches(lambda: self.is_connected)
        self.watches.begin_session(FIRST)
        self.watches.add("node", "/n", self.called)

    def called(self) -> None:
        self.calls += 1

    def read(self, client: object = FIRST) -> Any:
        return self.watches.watcher("node", "/n", client)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_one_read_registers_a_watch_until_it_fires(watched: Watched) -> None:
    fired = watched.read()
    assert watched.read() is None
    assert watched.watches.watcher("children", "/n", FIRST) is None
    fired(CHANGED)
    assert watched.calls == 1
    assert watched.read() is not None


def test_a_read_that_failed_has_registered_nothing(watched: Watched) -> None:
    watched.read()
    watched.watches.not_registered("node", "/other", FIRST)
    watched.watches.not_registered("node", "/n", SECOND)  # a read of an ended session
    assert watched.read() is None
    watched.watches.not_registered("node", "/n", FIRST)
    assert watched.read() is not None


def test_watches_that_a_lost_connection_took_along_are_called_once_it_is_back(watched: Watched) -> None:
    fired = watched.read()
    watched.is_connected = False
    fired(LOST)
    assert watched.calls == 0
    watched.is_connected = True
    watched.watches.reconnected()
    watched.watches.reconnected()
    assert watched.calls == 1
    assert watched.read() is not None


def test_a_loss_that_is_told_after_the_reconnection_is_a_change(watched: Watched) -> None:
    watched.read()(LOST)
    assert watched.calls == 1


def test_a_removed_watch_is_not_called(watched: Watched) -> None:
    fired = watched.read()
    watched.watches.remove("/n")
    assert ("node", "/n") not in watched.watches
    fired(CHANGED)
    assert watched.calls == 0


def test_a_session_that_ended_neither_fires_nor_registers(watched: Watched) -> None:
    before = watched.read()
    watched.is_connected = False
    watched.watches.begin_session(SECOND)
    before(CHANGED)
    before(LOST)
    watched.is_connected = True
    watched.watches.reconnected()
    assert watched.read(FIRST) is None  # a late read by the client of the ended session takes no watch from the next
    after = watched.read(SECOND)
    assert watched.calls == 0
    after(CHANGED)
    assert watched.calls == 1


def test_handlers_lost_with_a_session_are_not_called_in_the_next(watched: Watched) -> None:
    fired = watched.read()
    watched.is_connected = False
    fired(LOST)
    watched.watches.begin_session(SECOND)
    watched.is_connected = True
    watched.watches.reconnected()
    assert watched.calls == 0
