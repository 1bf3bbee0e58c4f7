"""Events that are never processed: they are preempted when the controller ends, and their senders answered."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from channel.clock import SYSTEM_CLOCK
from channel.lead.election import refuse
from channel.lead.events import ApiRequest, ControllerEvent, ControllerEventManager, ControllerState, TopicChange
from channel.metrics import Metrics
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode


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
    asked = [messages.ElectLeadersTopic(topic="t", partitions=[0, 1])]
    requests = {
        ApiKey.ELECT_LEADERS: messages.ElectLeadersRequest(topic_partitions=asked),
        ApiKey.CONTROLLED_SHUTDOWN: messages.ControlledShutdownRequest(broker_id=0, broker_epoch=1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: messages.AlterPartitionReassignmentsRequest(),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: messages.ListPartitionReassignmentsRequest(topics=None),
        ApiKey.ALTER_PARTITION: messages.AlterPartitionRequest(broker_id=0, broker_epoch=1),
    }
    for api_key, request in requests.items():
        held.manager.put(ApiRequest(api_key, 0, request, answers.append))
    held.close()
    elections, *others = answers
    (topic,) = elections.replica_election_results
    refused = [(row.partition_id, row.error_code) for row in topic.partition_result]
    assert refused == [(0, ErrorCode.NOT_CONTROLLER), (1, ErrorCode.NOT_CONTROLLER)]
    assert [answer.error_code for answer in others] == [
        ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("api_key", "state"),
    [
        (ApiKey.ELECT_LEADERS, ControllerState.MANUAL_LEADER_BALANCE),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ControllerState.ALTER_PARTITION_REASSIGNMENT),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, ControllerState.LIST_PARTITION_REASSIGNMENT),
        (ApiKey.UPDATE_FEATURES, ControllerState.UPDATE_FEATURES),
        (ApiKey.ALLOCATE_PRODUCER_IDS, ControllerState.IDLE),
        (ApiKey.ALTER_PARTITION, ControllerState.ISR_CHANGE),
        (ApiKey.CONTROLLED_SHUTDOWN, ControllerState.CONTROLLED_SHUTDOWN),
        (ApiKey.ALTER_CONFIGS, ControllerState.IDLE),
    ],
)
def test_a_request_is_timed_as_kafka_times_it(api_key: ApiKey, state: ControllerState) -> None:
    assert ApiRequest(api_key, 0, None, lambda _: None).state is state
