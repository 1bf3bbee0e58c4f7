"""The order in which locks are taken, and the page that states it."""

import re
import threading
from pathlib import Path

import pytest
from lock_checks import LockOrderError

from channel import locks
from channel.locks import ORDER, new_lock, new_reentrant_lock

ROOT = Path(__file__).parent.parent.parent
OUTER, INNER = ORDER[0], ORDER[-1]


def test_locks_may_be_taken_in_their_order() -> None:
    with new_lock(OUTER), new_reentrant_lock(ORDER[1]), new_lock(INNER):
        pass


def test_a_lock_out_of_order_is_an_error_and_is_not_taken() -> None:
    outer, inner = new_lock(OUTER), new_lock(INNER)
    with inner, pytest.raises(LockOrderError, match=f"{OUTER!r} is taken by a thread that holds {INNER!r}"):
        outer.acquire()
    assert not outer.locked()
    assert not inner.locked()
    with outer, inner:
        pass


def test_two_locks_of_one_name_are_never_held_together() -> None:
    with new_lock(INNER), pytest.raises(LockOrderError):
        new_lock(INNER).acquire()


def test_a_lock_taken_twice_is_an_error_unless_it_is_reentrant() -> None:
    lock, reentrant = new_lock(OUTER), new_reentrant_lock(OUTER)
    with lock, pytest.raises(LockOrderError):
        lock.acquire()
    with reentrant, reentrant, new_lock(INNER):
        pass
    with lock:
        pass


def test_an_attempt_that_does_not_wait_is_no_error() -> None:
    outer, inner = new_lock(OUTER), new_lock(INNER)
    with inner:
        assert outer.acquire(blocking=False)
    outer.release()
    with outer, inner:
        pass


def test_what_one_thread_holds_does_not_concern_another() -> None:
    outer, inner, errors = new_lock(OUTER), new_lock(INNER), []

    def take() -> None:
        try:
            with outer:
                pass
        except LockOrderError as e:
            errors.append(e)

    with inner:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(60)
    assert errors == []


def test_a_condition_releases_its_lock_while_it_waits_however_often_it_was_taken() -> None:
    condition, outer = threading.Condition(new_reentrant_lock(INNER)), new_lock(OUTER)
    with condition, condition:
        assert not condition.wait(0.001)
        with pytest.raises(LockOrderError):
            outer.acquire()
    with outer, condition:
        condition.notify_all()


def test_without_the_check_locks_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "checks", None)
    assert type(new_lock(INNER)) is type(threading.Lock())
    assert type(new_reentrant_lock(INNER)) is type(threading.RLock())


def test_every_lock_of_the_channel_has_its_place_and_its_line_on_the_page() -> None:
    made = [
        name
        for path in sorted((ROOT / "channel").rglob("*.py"))
        for name in re.findall(r'new_(?:reentrant_)?lock\("([^"]+)"\)', path.read_text())
    ]
    assert set(made) == set(ORDER)
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert tuple(re.findall(r"^\d+\. \*\*([^*]+)\*\*", page, flags=re.MULTILINE)) == ORDER


def test_no_lock_of_the_channel_is_without_its_place() -> None:
    """The bare locks of events are flags: nothing is done while one is held."""
    bare = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "channel").rglob("*.py")
        if re.search(r"threading\.(R?Lock|Condition)\(\)", path.read_text())
    }
    assert bare == {"channel/locks.py", "channel/lead/events.py"}


def test_every_thread_of_the_channel_is_on_the_page() -> None:
    begins = re.compile(r"(threading\.(Thread|Timer)|\bLoopThread)\(|\(StoppableThread\b")
    makers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "channel").rglob("*.py")
        if begins.search(path.read_text()) and path.name != "threads.py"
    }
    named = set(re.findall(r"`(channel/[\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert named == makers
