"""Events that are never processed: they are preempted when the controller ends, and their senders answered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from channel.clock import SYSTEM_CLOCK
from channel.controller.cluster_events import (
    AlterPartition,
    AlterPartitionResult,
    ApiPartitionReassignment,
    ControlledShutdown,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    TopicChange,
)
from channel.controller.controller import refuse
from channel.controller.events import ControllerEvent, ControllerEventManager, ControllerState
from channel.errors import ControllerMoved
from channel.metrics import Metrics
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(frozen=True, slots=True)
class Running(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """Keeps the event thread until it may end."""

    begun: threading.Event
    may_end: threading.Event


class Processor:
    """Runs ``Running``; refuses as the controller does."""

    def __init__(self) -> None:
        self.preempted: list[ControllerEvent] = []
        self.processed: list[ControllerEvent] = []

    def process(self, event: ControllerEvent) -> None:
        self.processed.append(event)
        assert isinstance(event, Running)
        event.begun.set()
        assert event.may_end.wait(60)

    def preempt(self, event: ControllerEvent) -> None:
        self.preempted.append(event)
        refuse(event)


class Held:
    """An event manager whose thread is held by an event; ``close`` is the controller's shutdown."""

    def __init__(self) -> None:
        self.processor = Processor()
        self.manager = ControllerEventManager(1, self.processor, SYSTEM_CLOCK, Metrics())
        self.manager.start()
        self.running = Running(threading.Event(), threading.Event())
        self.manager.put(self.running)
        assert self.running.begun.wait(60)

    def close(self) -> None:
        """Shut down while the event runs, which ends once the queue has been cleared."""
        closing = threading.Thread(target=self.manager.close)
        closing.start()
        while not self.processor.preempted:
            closing.join(0.01)
        self.running.may_end.set()
        closing.join(60)
        assert not closing.is_alive()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.running.may_end.set()


@pytest.mark.conformance("CIT-26")
def test_queued_events_are_preempted_when_the_controller_ends(held: Held) -> None:
    queued = [TopicChange(), TopicChange()]
    for event in queued:
        held.manager.put(event)
    held.close()
    assert held.processor.preempted == queued
    assert held.processor.processed == [held.running]


@pytest.mark.conformance("CIT-27")
def test_preempted_requests_are_answered(held: Held) -> None:
    answers: list[Any] = []

    def answer(*values: Any) -> None:
        answers.append(values)

    held.manager.put(ReplicaLeaderElection(ElectionType.PREFERRED, {T0, T1}, answer))
    held.manager.put(ControlledShutdown(0, 1, answer))
    held.manager.put(ApiPartitionReassignment({T0: (1,)}, answer))
    held.manager.put(ListPartitionReassignments(None, answer))
    held.manager.put(AlterPartition(0, 1, 3, {}, answer))
    held.close()
    elections, (shutdown,), reassigned, listed, altered = answers
    assert elections == ({T0: ErrorCode.NOT_CONTROLLER, T1: ErrorCode.NOT_CONTROLLER},)
    assert isinstance(shutdown, ControllerMoved)
    assert reassigned == listed == (ErrorCode.NOT_CONTROLLER, {})
    assert altered == (AlterPartitionResult(ErrorCode.NOT_CONTROLLER),)
