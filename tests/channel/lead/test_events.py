"""The event manager: one queue, one thread."""

import threading
from collections.abc import Callable, Iterator

import pytest
from network_peers import FakeClock, until

from channel.clock import SYSTEM_CLOCK
from channel.lead.events import (
    ControllerEvent,
    ControllerEventManager,
    ControllerState,
    QueuedEvent,
    UpdateMetadataResponseReceived,
    controller_stats,
)
from channel.metrics import Metrics

GROUP = "kafka.controller:type=ControllerEventManager"


class TopicChange(ControllerEvent):
    state = ControllerState.TOPIC_CHANGE


class Expire(ControllerEvent):
    state = ControllerState.CONTROLLER_CHANGE


class Recorder:
    """Notes what was processed and preempted, and where."""

    def __init__(self, work: Callable[[ControllerEvent], None] = lambda event: None) -> None:
        self.work = work
        self.processed: list[ControllerEvent] = []
        self.preempted: list[tuple[ControllerEvent, str]] = []

    def process(self, event: ControllerEvent) -> None:
        self.work(event)
        self.processed.append(event)

    def preempt(self, event: ControllerEvent) -> None:
        self.preempted.append((event, threading.current_thread().name))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def make(metrics: Metrics) -> Iterator[Callable[..., ControllerEventManager]]:
    """Builds managers and closes them at the end."""
    made: list[ControllerEventManager] = []

    def build(processor: Recorder, clock=SYSTEM_CLOCK, **options) -> ControllerEventManager:
        made.append(ControllerEventManager(1, processor, clock, metrics, **options))
        made[-1].start()
        return made[-1]

    yield build
    for manager in made:
        manager.close()


def queue_time(metrics: Metrics, attribute: str) -> float:
    return metrics.value(GROUP, "EventQueueTimeMs", attribute=attribute)


@pytest.mark.conformance("CEM-01")
def test_metrics_are_there_until_close(make, metrics: Metrics) -> None:
    manager = make(Recorder())
    assert {m.name for m in metrics.names() if m.group == GROUP} == {"EventQueueTimeMs", "EventQueueSize"}
    manager.close()
    assert not [m for m in metrics.names() if m.group == GROUP]


@pytest.mark.conformance("CEM-03")
def test_queue_time_counts_from_put_to_processing(make, metrics: Metrics) -> None:
    clock, latch = FakeClock(), threading.Event()

    def work(event: ControllerEvent) -> None:
        latch.wait()
        clock.sleep(500)

    recorder = Recorder(work)
    manager = make(recorder, clock)
    manager.put(TopicChange())
    manager.put(TopicChange())
    latch.set()
    until(lambda: len(recorder.processed) == 2)
    assert [queue_time(metrics, a) for a in ("count", "min", "max")] == [2, 0, 500]


@pytest.mark.conformance("CEM-04")
def test_queue_time_is_cleared_when_nothing_comes_for_long(make, metrics: Metrics) -> None:
    clock, latch = FakeClock(), threading.Event()
    counted: list[float] = []

    def work(event: ControllerEvent) -> None:
        latch.wait()
        counted.append(queue_time(metrics, "count"))
        clock.sleep(500)

    manager = make(Recorder(work), clock, event_queue_time_timeout_ms=1)
    manager.put(TopicChange())
    manager.put(TopicChange())
    latch.set()
    until(lambda: len(counted) == 2)
    until(lambda: not queue_time(metrics, "count"))
    assert counted == [1, 2]  # not cleared while an event was waiting, however long it waited
    assert [queue_time(metrics, a) for a in ("count", "min", "max", "mean")] == [0, 0, 0, 0]
    manager.put(TopicChange())
    until(lambda: len(counted) == 3)
    assert counted[2] == 1


@pytest.mark.conformance("CEM-07")
def test_clear_and_put_preempts_what_waits_on_the_callers_thread(make) -> None:
    latch = threading.Event()
    recorder = Recorder(lambda event: latch.wait() if event is first else None)
    manager = make(recorder)
    first = TopicChange()
    manager.put(first)
    until(lambda: manager.is_empty)
    waiting = [TopicChange() for _ in range(3)]
    for event in waiting:
        manager.put(event)
    expire = Expire()
    manager.clear_and_put(expire)
    assert recorder.preempted == [(event, threading.current_thread().name) for event in waiting]
    latch.set()
    until(lambda: len(recorder.processed) == 2)
    assert recorder.processed == [first, expire]


def test_preempting_may_put_an_event_and_wait_for_a_thread_that_puts_one(make) -> None:
    latch = threading.Event()
    recorder = Recorder(lambda event: latch.wait() if event is first else None)
    manager = make(recorder)
    first, mine, others, expire = TopicChange(), TopicChange(), TopicChange(), Expire()

    def preempt(event: ControllerEvent) -> None:
        manager.put(mine)
        other = threading.Thread(target=manager.put, args=(others,))
        other.start()
        other.join(60)
        assert not other.is_alive(), "put is blocked while an event is preempted"

    recorder.preempt = preempt  # type: ignore[method-assign]
    manager.put(first)
    until(lambda: manager.is_empty)
    manager.put(TopicChange())
    clearing = threading.Thread(target=manager.clear_and_put, args=(expire,), daemon=True)
    clearing.start()
    clearing.join(60)
    assert not clearing.is_alive(), "clear_and_put waits for itself"
    latch.set()
    until(lambda: len(recorder.processed) == 4)
    assert recorder.processed == [first, expire, mine, others]


def test_an_event_that_cannot_be_preempted_does_not_keep_the_thread_alive(
    make, caplog: pytest.LogCaptureFixture
) -> None:
    latch = threading.Event()
    recorder = Recorder(lambda event: latch.wait() if event is first else None)
    preempted: list[ControllerEvent] = []

    def preempt(event: ControllerEvent) -> None:
        if event is bad:
            raise ValueError("no such request")
        preempted.append(event)

    recorder.preempt = preempt  # type: ignore[method-assign]
    first, bad, good = TopicChange(), TopicChange(), TopicChange()
    manager = make(recorder)
    manager.put(first)
    until(lambda: manager.is_empty)
    manager.put(bad)
    manager.put(good)
    closer = threading.Thread(target=manager.close)
    closer.start()
    until(lambda: preempted == [good])
    latch.set()
    closer.join(60)
    assert not closer.is_alive()
    assert "no such request" in caplog.text


@pytest.mark.conformance("CEM-08")
def test_a_preempted_event_is_never_processed() -> None:
    recorder, event = Recorder(), TopicChange()
    queued = QueuedEvent(event, 0)
    queued.preempt(recorder)
    queued.process(recorder)
    queued.preempt(recorder)
    assert recorder.processed == []
    assert [e for e, _ in recorder.preempted] == [event]


def test_a_failing_event_is_logged_and_the_next_one_processed(make, caplog: pytest.LogCaptureFixture) -> None:
    def work(event: ControllerEvent) -> None:
        if event is bad:
            raise ValueError("no such topic")

    bad, recorder = TopicChange(), Recorder(work)
    manager = make(recorder)
    manager.put(bad)
    manager.put(Expire())
    until(lambda: len(recorder.processed) == 1)
    assert "no such topic" in caplog.text
    until(lambda: manager.state is ControllerState.IDLE)


def test_the_state_and_its_timer_follow_the_event(make, metrics: Metrics) -> None:
    states: list[ControllerState] = []
    recorder = Recorder(lambda event: states.append(manager.state))
    manager = make(recorder, rate_and_time_metrics=controller_stats(metrics))
    manager.put(TopicChange())
    manager.put(UpdateMetadataResponseReceived(None, 1))
    until(lambda: len(recorder.processed) == 2)
    manager.close()
    assert states == [ControllerState.TOPIC_CHANGE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED]
    stats = "kafka.controller:type=ControllerStats"
    assert metrics.value(stats, "TopicChangeRateAndTimeMs", attribute="count") == 1
    assert metrics.value(stats, "LeaderElectionRateAndTimeMs", attribute="count") == 0
    assert not [m for m in metrics.names() if m.name.startswith(("Idle", "UpdateMetadataResponse"))]


def test_closing_preempts_what_waits_and_leaves_no_thread(make) -> None:
    latch = threading.Event()
    recorder = Recorder(lambda event: latch.wait())
    manager = make(recorder)
    manager.put(TopicChange())
    until(lambda: manager.is_empty)
    manager.put(Expire())
    threading.Timer(0.05, latch.set).start()
    manager.close()
    assert len(recorder.processed) == len(recorder.preempted) == 1
    until(lambda: "controller-event-thread" not in {t.name for t in threading.enumerate()})


def test_states_have_kafkas_numbers() -> None:
    assert [s.number for s in ControllerState] == list(range(18))
