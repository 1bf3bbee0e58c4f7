"""The worker beside a network thread: order, failures, end."""

import threading

import pytest
from network_peers import until

from channel.broker.worker import Worker
from channel.errors import IllegalState


def test_work_is_done_in_order_and_a_failure_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    worker, done, last = Worker("worker-under-test"), [], threading.Event()

    def fail() -> None:
        raise ValueError("no such topic")

    for number in range(5):
        worker.submit(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
        worker.submit(fail)
    worker.submit(last.set)
    assert last.wait(60)
    worker.close()
    worker.close()
    assert done == [(number, "worker-under-test") for number in range(5)]
    assert "no such topic" in caplog.text
    until(lambda: "worker-under-test" not in {t.name for t in threading.enumerate()})
    with pytest.raises(IllegalState, match="is closed"):
        worker.submit(last.set)


def test_queued_work_is_dropped_at_the_end() -> None:
    worker, begun, go_on, done = Worker("worker-under-test"), threading.Event(), threading.Event(), []
    worker.submit(lambda: (begun.set(), go_on.wait(60), done.append(1)))  # type: ignore[func-returns-value]
    worker.submit(lambda: done.append(2))
    assert begun.wait(60)
    closer = threading.Thread(target=worker.close)
    closer.start()
    until(lambda: worker._is_closed)
    go_on.set()
    closer.join(60)
    assert not closer.is_alive()
    assert done == [1]


def test_work_that_closes_its_own_worker_is_the_last() -> None:
    worker, done = Worker("worker-under-test"), []
    worker.submit(lambda: (worker.close(), done.append(1)))  # type: ignore[func-returns-value]
    (thread,) = worker._threads
    thread.join(60)
    assert not thread.is_alive()
    assert done == [1]
    worker.close()


def test_without_a_thread_a_task_is_refused_and_without_a_further_one_it_waits_for_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, first, second = Worker("worker-under-test", threads=2), threading.Event(), threading.Event()
    starts = threading.Thread.start

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        worker.submit(second.set)
    monkeypatch.setattr(threading.Thread, "start", starts)
    worker.submit(first.set)
    assert first.wait(60)
    assert not second.is_set()  # what was refused is not done later
    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker.submit(second.set)
    assert second.wait(60)
    worker.close()


def test_a_task_that_would_end_its_thread_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    worker, last = Worker("worker-under-test"), threading.Event()

    def leave() -> None:
        raise SystemExit("the thread ends")

    worker.submit(leave)
    worker.submit(last.set)
    assert last.wait(60)
    worker.close()
    assert "the thread ends" in caplog.text
