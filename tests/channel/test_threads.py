"""The stoppable thread contract."""

import logging
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from channel import threads
from channel.errors import IllegalState
from channel.threads import FatalExit, StoppableThread, call_within, close_all


class Worker(StoppableThread):
    """Does what it is given; ``interrupted`` tells whether the shutdown reached it."""

    def __init__(self, work, **options) -> None:
        super().__init__("worker", **options)
        self.work = work
        self.interrupted = threading.Event()

    def do_work(self) -> None:
        self.work()

    def interrupt(self) -> None:
        self.interrupted.set()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that a test that fails leaves no thread."""
    event = threading.Event()
    yield event
    event.set()


def fatal() -> None:
    raise FatalExit


@pytest.mark.conformance("SHT-01")
def test_a_fatal_error_ends_the_process_and_shutdown_still_returns() -> None:
    statuses: list[int] = []
    thread = Worker(fatal, exit_procedure=statuses.append)
    thread.start()
    thread.shutdown()
    thread.join()
    assert statuses == [1]
    assert thread.is_shutdown_complete


def test_a_thread_that_the_system_does_not_give_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    thread = Worker(fatal)
    with pytest.raises(RuntimeError, match="new thread"):
        thread.start()
    thread.initiate_shutdown()
    thread._complete.wait = lambda: pytest.fail("waits for a thread that there is not")  # type: ignore[assignment,method-assign]
    thread.shutdown()


def test_a_thread_that_was_shut_down_before_its_start_is_not_waited_for() -> None:
    thread = Worker(fatal)
    assert thread.initiate_shutdown()
    thread.await_shutdown()
    assert not thread.is_shutdown_complete
    assert thread.error is None


def test_a_thread_that_never_began_ends_with_its_shutdown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[str] = []

    class Tidy(Worker):
        def ended(self) -> None:
            cleaned.append(self.name)

    thread = Tidy(fatal)
    assert [thread.shutdown(), thread.shutdown(), thread.close()] == [True] * 3
    assert (cleaned, thread.is_shutdown_complete) == (["worker"], True)

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    refused = Tidy(fatal)
    with pytest.raises(RuntimeError, match="new thread"):
        refused.start()
    assert refused.shutdown()
    assert cleaned == ["worker", "worker"]


@pytest.mark.conformance("SHT-03")
def test_the_wait_for_a_thread_that_never_ends_can_be_interrupted(gate: threading.Event) -> None:
    thread = Worker(gate.wait)
    thread.start()
    caller = threading.main_thread().ident
    assert caller is not None

    def send_signal() -> None:
        thread.interrupted.wait()
        signal.pthread_kill(caller, signal.SIGINT)

    sender = threading.Thread(target=send_signal)  # it waits for the shutdown
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        thread.shutdown()
    sender.join()
    assert not thread.is_shutdown_complete
    gate.set()
    thread.shutdown()
    assert thread.is_shutdown_complete


@pytest.mark.conformance("SHT-03")
def test_a_signal_that_comes_just_before_the_wait_is_not_missed(gate: threading.Event, monkeypatch) -> None:
    """Python looks for signals before it waits, not while the wait begins: each wait needs an end."""
    thread = Worker(gate.wait)
    thread.start()
    waits: list[float | None] = []

    def wait(timeout: float | None = None) -> bool:
        waits.append(timeout)
        if timeout is None or len(waits) == 3:
            raise KeyboardInterrupt
        return False

    thread.initiate_shutdown()
    with monkeypatch.context() as patch:
        patch.setattr(thread._complete, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            thread.await_shutdown()
    assert len(waits) == 3
    gate.set()
    thread.shutdown()


def test_waiting_before_asking_is_refused() -> None:
    with pytest.raises(IllegalState, match="initiate_shutdown"):
        Worker(fatal).await_shutdown()


def test_only_the_first_request_to_stop_counts(gate: threading.Event) -> None:
    thread = Worker(gate.wait)
    thread.start()
    assert [thread.initiate_shutdown() for _ in range(3)] == [True, False, False]
    gate.set()
    thread.await_shutdown()


def test_an_error_ends_the_thread_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    thread = Worker(lambda: 1 / 0)
    thread.start()
    thread.join()
    assert isinstance(thread.error, ZeroDivisionError)
    assert [r.levelno for r in caplog.records if r.exc_info] == [logging.ERROR]


def test_an_error_during_shutdown_is_silent(gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        gate.wait()
        raise OSError("the socket went away")

    thread = Worker(work)
    thread.start()
    thread.initiate_shutdown()
    gate.set()
    thread.await_shutdown()
    assert thread.error is None
    assert not [r for r in caplog.records if r.exc_info]


def test_a_pause_ends_with_the_shutdown() -> None:
    paused: list[bool] = []
    began = threading.Event()

    def work() -> None:
        began.set()
        paused.append(thread.pause(60_000))

    thread = Worker(work)
    thread.start()
    began.wait()
    start = time.monotonic()
    thread.shutdown()
    assert paused == [True]
    assert time.monotonic() - start < 30


def test_an_error_in_the_clean_up_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Untidy(Worker):
        def ended(self) -> None:
            raise OSError("cannot clean up")

    thread = Untidy(lambda: None)
    thread.start()
    thread.initiate_shutdown()
    assert thread.await_shutdown(30)
    assert "cannot clean up" in caplog.text


def test_a_shutdown_with_a_time_limit_says_what_has_not_ended(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Event()
    thread = Worker(lambda: (began.set(), gate.wait()))
    thread.start()
    assert began.wait(60)
    assert not thread.shutdown(0.05)
    assert "worker has not ended within 0.05 s" in caplog.text
    gate.set()
    assert thread.shutdown()
    assert thread.shutdown(0)


def test_all_parts_are_closed_when_some_fail_and_the_first_failure_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[int] = []

    def part(number: int, error: BaseException | None = None):
        def close() -> None:
            closed.append(number)
            if error is not None:
                raise error

        return close

    with pytest.raises(OSError, match="first"):
        close_all(part(1), part(2, OSError("first")), part(3, ValueError("second")), part(4))
    assert closed == [1, 2, 3, 4]
    assert "second" in caplog.text


def test_a_call_with_a_time_limit_goes_on_behind_it(gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    assert not call_within(0.05, "slow-end", gate.wait)
    assert "slow-end has not ended" in caplog.text
    assert call_within(30, "quick-end", lambda: None)
    with pytest.raises(ZeroDivisionError):
        call_within(30, "failing-end", lambda: 1 / 0)


def test_what_cannot_be_ended_with_the_process_is_named_and_the_others_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Thing:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return self.name

    def end(thing: Thing) -> None:
        ended.append(thing.name)
        if thing.name == "stubborn":
            raise OSError("busy")

    ended: list[str] = []
    monkeypatch.setattr(threads, "_ending", [Thing("stubborn"), Thing("willing")])
    threads._each(end, "%r could not be ended")
    assert ended == ["stubborn", "willing"]
    (record,) = caplog.records
    assert record.getMessage() == "stubborn could not be ended"
    assert isinstance(record.exc_info[1], OSError)
