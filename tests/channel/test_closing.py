"""Whatever has threads ends by ``close(timeout_s)``, twice if need be, and names a thread that has not ended."""

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from network_peers import until

import channel
from channel.broker.cluster import EmbeddedCluster
from channel.broker.fleet import Fleet
from channel.broker.worker import Worker
from channel.clock import SYSTEM_CLOCK
from channel.lead.events import (
    ControllerEvent,
    ControllerEventManager,
    LeaderAndIsrResponseReceived,
)
from channel.metrics import Metrics
from channel.network.server import ANONYMOUS, SocketServer
from channel.network.sockets import plaintext_channel
from channel.node.controller_node import ControllerNode
from channel.node.frame_relay import FrameRelay
from channel.rehearsal.command_server import CommandServer
from channel.rehearsal.scripted_controller import ScriptedController
from channel.tap import Tap, TapMapping
from channel.types import Node

LOOPBACK = ("127.0.0.1", 0)
NO_ZOOKEEPER = "127.0.0.1:1"

ENDS_BY_ITSELF = {
    ("channel/threads.py", "Thread"),  # calls a function within a time limit, for a caller that waits
    ("channel/network/brief_threads.py", "Thread"),  # ends when no name or token waits
    ("channel/zookeeper/session.py", "Thread"),  # renews one session; its close waits for it
    ("channel/zookeeper/session.py", "Timer"),
    ("channel/lead/election.py", "Timer"),
    ("channel/lead/zookeeper_store.py", "Timer"),
}


def test_every_thread_that_lives_on_is_a_stoppable_one() -> None:
    root = Path(channel.__file__).parent
    made = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            kind = re.fullmatch(r"(?:threading\.|.*(?=Executor))(Thread|Timer|Executor)", name)
            if kind:
                made.add((str(path.relative_to(root.parent)), kind[1]))
    assert made == ENDS_BY_ITSELF


WITHOUT_THREADS = {"KafkaConnection", "KRaftRegistration"}


def living() -> Iterator[type]:
    """Every class that is started and closed, and has threads."""
    for found in pkgutil.walk_packages(channel.__path__, "channel."):
        for name, each in vars(importlib.import_module(found.name)).items():
            is_made_there = inspect.isclass(each) and each.__module__ == found.name
            if is_made_there and hasattr(each, "start") and hasattr(each, "close") and name not in WITHOUT_THREADS:
                yield each


@pytest.mark.parametrize("each", list(living()), ids=lambda each: each.__name__)
def test_what_is_started_is_closed_within_a_time_limit(each: Any) -> None:
    assert "timeout_s" in inspect.signature(each.close).parameters


class Processor:
    """Has events processed by the blocked part."""

    def __init__(self, block: Callable[[], object]) -> None:
        self.block = block

    def process(self, event: ControllerEvent) -> None:
        self.block()

    def preempt(self, event: ControllerEvent) -> None:
        pass


EVENT = LeaderAndIsrResponseReceived(None, 0)


def server(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = SocketServer("blocked")
    made.start()
    made.call_soon(block)
    return made


def tap(block: Callable[[], object], stack: contextlib.ExitStack) -> Any:
    node = stack.enter_context(socket.create_server(LOOPBACK))
    recorder = SimpleNamespace(opened=lambda *_, **__: block(), record=None, closed=lambda *_: None, flush=None)
    made = Tap([TapMapping(LOOPBACK, node.getsockname())], recorder)  # type: ignore[arg-type]
    made.start()
    stack.enter_context(socket.create_connection(made.listening[0]))
    return made


def worker(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = Worker("blocked")
    made.submit(block)  # type: ignore[arg-type]
    return made


def relay(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    def brokers() -> list[Node]:
        block()
        return []

    made = FrameRelay("blocked", brokers, lambda _: plaintext_channel)
    made.start()
    made(ANONYMOUS, b"frame", lambda _: None)
    return made


def commands(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = CommandServer(SimpleNamespace(), "127.0.0.1", 0, lambda: None)  # type: ignore[arg-type]
    made._server.service_actions = block  # type: ignore[method-assign,assignment]
    made.start()
    return made


def events(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = ControllerEventManager(1, Processor(block), SYSTEM_CLOCK, Metrics())
    made.start()
    made.put(EVENT)
    return made


def embedded(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = EmbeddedCluster(1).start()
    made._worker.submit(block)  # type: ignore[arg-type]
    return made


def fleet(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = Fleet(NO_ZOOKEEPER, [0])
    made._worker.submit(block)  # type: ignore[arg-type]
    return made


def node(block: Callable[[], object], _: contextlib.ExitStack) -> Any:
    made = ControllerNode(7, NO_ZOOKEEPER)
    made._worker.submit(block)  # type: ignore[arg-type]
    return made


def decisions(block: Callable[[], object], stack: contextlib.ExitStack) -> Any:
    made = stack.enter_context(EmbeddedCluster(1))
    controller = ScriptedController(made).start()

    def decide() -> None:
        with controller.deciding:
            block()

    asker = threading.Thread(target=decide)
    asker.start()
    stack.callback(asker.join, 60)
    return controller


PARTS = [server, tap, worker, relay, commands, events, embedded, fleet, node, decisions]


@pytest.mark.parametrize("make", PARTS, ids=lambda make: make.__name__)
def test_a_part_that_is_stuck_is_named_and_keeps_nobody_waiting(
    make: Callable[[Callable[[], object], contextlib.ExitStack], Any], caplog: pytest.LogCaptureFixture
) -> None:
    entered, released = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        released.wait(120)

    with contextlib.ExitStack() as stack:
        made = make(block, stack)
        stack.callback(made.close, 60)
        stack.callback(released.set)
        assert entered.wait(60)
        began = time.monotonic()
        made.close(0.05)
        assert time.monotonic() - began < 30
        assert re.search(r"has not ended within 0(\.\d+)? s", caplog.text)
        released.set()
        made.close(60)
        made.close(60)
        caplog.clear()
    assert "has not ended" not in caplog.text


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (lambda: EmbeddedCluster(1).start(), "_server", "_worker"),
        (partial(ControllerNode, 7, NO_ZOOKEEPER), "controller", "_worker"),
        (partial(ControllerNode, 7, NO_ZOOKEEPER), "_server", "_worker"),
        (partial(ControllerNode, 7, NO_ZOOKEEPER), "_relay", "_server"),
        (partial(ScriptedController, []), "manager", "_worker"),
    ],
)
def test_the_rest_is_closed_if_one_part_fails(
    make: Callable[[], Any], first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = make(), []
    close_first, close_second = getattr(made, first).close, getattr(made, second).close

    def fail(_: float | None = None) -> None:
        raise RuntimeError("this part failed")

    monkeypatch.setattr(getattr(made, first), "close", fail)
    monkeypatch.setattr(getattr(made, second), "close", lambda timeout_s: closed.append(close_second(timeout_s)))
    with pytest.raises(RuntimeError, match="this part failed"):
        made.close(60)
    assert len(closed) == 1
    monkeypatch.setattr(getattr(made, first), "close", close_first)
    made.close(60)


def test_a_thread_does_not_wait_for_itself() -> None:
    answers: list[bool] = []
    made = Worker("its-own-end")
    made.submit(lambda: answers.append(made.close()))
    until(lambda: answers == [False])
    assert made.close(60)
