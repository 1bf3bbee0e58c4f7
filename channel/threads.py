"""A thread that can be stopped and waited for, and that ends with the process and in a forked child.

Its states: created, started, shutdown initiated, shutdown complete. Every long-lived thread of the channel package is a
``StoppableThread``, so that all end the same way and none is left behind.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from .errors import IllegalState
from .locks import guards_calls, new_lock
from .logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_EXIT_S: Final = 5.0
_SLICE_S: Final = 0.5  # unlimited waits go in steps: a signal just before a wait begins does not end it
_log = get_logger(__name__)


class _Ending(Protocol):
    def close(self, timeout_s: float | None = None) -> object:
        """Close it within this time; harmless if closed."""

    def forget_in_child(self) -> None:
        """Drop a forked child's copies: threads, connections and queues are the parent's."""


class _Failing(Protocol):
    @property
    def error(self) -> BaseException | None:
        """The error that has ended it, None while it goes on."""


_ending: weakref.WeakSet[_Ending] = weakref.WeakSet()


def ends_with_process(thing: _Ending) -> None:
    """Have an object ended with the interpreter, which waits for no daemon threads, and dropped in a forked child."""
    _ending.add(thing)


def _each(call: Callable[[_Ending], object], failure: str) -> None:
    for thing in list(_ending):
        try:
            call(thing)
        except Exception:  # noqa: BLE001  (the others must end too)
            _log.exception(failure, thing)


def _close(thing: _Ending) -> None:
    if not isinstance(thing, threading.Thread) or thing.is_alive():  # one that was never started does not tell its end
        thing.close(_EXIT_S)


atexit.register(lambda: _each(_close, "%r could not be ended"))
os.register_at_fork(
    after_in_child=lambda: _each(lambda thing: thing.forget_in_child(), "a forked child could not forget %r")
)


class Closeable:
    """An object that a ``with`` closes."""

    def close(self) -> object:
        """Close it; harmless if closed."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Startable(Closeable):
    """An object that a ``with`` starts and closes."""

    def start(self) -> object:
        """Start it; at most once."""
        raise NotImplementedError

    def close(self, timeout_s: float | None = None) -> object:
        """Close it within this time; harmless if closed."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self


def close_all(*parts: Callable[[], object]) -> None:
    """Call each function, which closes a part, in order; the failure of one keeps no other from its call.

    Raises:
        Exception: The first failure, once all were called; later failures are logged.
    """
    failures: list[BaseException] = []
    for part in parts:
        try:
            part()
        except BaseException as e:  # noqa: BLE001  (raised below, when the others are closed)
            if failures:
                _log.error("another part could not be closed", exc_info=e)
            failures.append(e)
    if failures:
        raise failures[0]


def time_left(timeout_s: float | None) -> Callable[[], float | None]:
    """Return a function that tells how much is left of a time limit in seconds; None for no limit."""
    if timeout_s is None:
        return lambda: None
    deadline = time.monotonic() + timeout_s
    return lambda: max(0.0, deadline - time.monotonic())


def close_together(name: str, parts: Iterable[Callable[[], object]]) -> None:
    """Close parts that may wait, each on a thread of this name; returns after all, raises as ``close_all``."""
    close_all(*[begin(name, part) for part in parts])


def call_within(timeout_s: float, name: str, function: Callable[[], object]) -> bool:
    """Call a function that may block, and wait at most this long for its end.

    Args:
        timeout_s: The longest time to wait.
        name: Names the thread on which the function goes on after that time.

    Returns:
        Whether it has ended; a line in the log says if not. Its error is raised.
    """
    has_ended = begin(name, function)(timeout_s)
    if not has_ended:
        _log.warning("%s has not ended within %.3g s", name, timeout_s)
    return has_ended


def begin(name: str, function: Callable[[], object]) -> Callable[..., bool]:
    """Call a function on a thread; returns what waits for its end, raises its error, and tells whether it has ended."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as e:  # noqa: BLE001  (raised by the caller's thread)
            failures.append(e)

    def wait(timeout_s: float | None = None) -> bool:
        if thread.ident is not None:
            thread.join(timeout_s)
        if failures:
            raise failures[0]
        return not thread.is_alive()

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system gives no thread, and what is to end must end all the same
        run()
    return wait


_T = TypeVar("_T")


def once(function: Callable[[_T], object]) -> Callable[[_T], None]:
    """Wrap a function so that only its first call counts, from whichever thread; it is kept no longer than that."""
    left = [function]

    def first(argument: _T) -> None:
        try:
            call = left.pop()  # a list gives its last item to one thread alone
        except IndexError:
            return
        call(argument)

    return first


class FatalExit(Exception):
    """Raised by ``do_work`` when the process must not go on: it ends with status 1."""


def end_process(status: int) -> None:
    """End the whole process from any thread, without waiting for the others."""
    _log.critical("the process ends with status %d", status)
    logging.shutdown()
    os._exit(status)


class StoppableThread(threading.Thread, ABC):
    """A thread that calls ``do_work`` again and again until its shutdown.

    A subclass implements ``do_work`` and, if that can block, ``interrupt``, which makes it return early. The caller of
    ``start`` should call ``shutdown``; otherwise the thread ends with the interpreter, which it does not keep alive.

    Args:
        name: The thread's name, as debuggers and logs show it.
        log_prefix: Stands before every line logged; ``[<name>]:`` by default.
        exit_procedure: Ends the process after ``FatalExit``; tests replace it.

    Attributes:
        error: The error that ended the thread, None if a shutdown did.
    """

    _life_level = logging.INFO
    """The level of the lines that tell of the thread's beginning and end."""

    def __init__(
        self,
        name: str,
        *,
        log_prefix: str | None = None,
        exit_procedure: Callable[[int], None] = end_process,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.log = get_logger(__name__, log_prefix or f"[{name}]:")
        self._exit_procedure = exit_procedure
        self._initiate = new_lock("thread shutdown")
        self._initiated = threading.Event()
        self._complete = threading.Event()
        self._was_started = False
        self.error: BaseException | None = None
        ends_with_process(self)

    @abstractmethod
    def do_work(self) -> None:
        """Do one round of work. An error ends the thread."""

    def interrupt(self) -> None:
        """Make a blocked ``do_work`` return; called at most once, from the thread that initiates the shutdown."""

    def ended(self) -> None:
        """Clean up; called on the thread as its last act, however it ended, or by ``shutdown`` if it never began."""

    @property
    def is_running(self) -> bool:
        """Whether no shutdown was initiated yet; also true before the start and after a failure."""
        return not self._initiated.is_set()

    @property
    def is_shutdown_complete(self) -> bool:
        """Whether the thread has ended, or will not begin."""
        return self._complete.is_set()

    def start(self) -> None:
        """Begin; at most once."""
        self._was_started = True
        try:
            super().start()
        except BaseException:
            self._was_started = False  # the system could not create the thread: there is no end to wait for
            raise

    def initiate_shutdown(self) -> bool:
        """Initiate the shutdown without waiting for its end.

        Returns:
            True for the first call, False for every later one.
        """
        with self._initiate:
            return self._begin_shutdown()

    def _begin_shutdown(self) -> bool:
        if self._initiated.is_set():
            return False
        self.log.log(self._life_level, "shutting down")
        self._initiated.set()
        self.interrupt()
        return True

    def _end_unused(self) -> bool:
        if self._was_started or self._complete.is_set():
            return False
        self._complete.set()
        return True

    def await_shutdown(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended; return at once if it was never started.

        Returns:
            Whether the thread has ended within the time given.

        Raises:
            IllegalState: No shutdown was initiated.
        """
        if not self._initiated.is_set():
            raise IllegalState(f"{self.name}: initiate_shutdown() must be called before await_shutdown()")
        if self._was_started:
            while timeout_s is None and not self._complete.wait(_SLICE_S):
                pass
            if not self._complete.wait(timeout_s):
                return False
        self.log.log(self._life_level, "shut down")
        return True

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Initiate the shutdown, and wait until the thread has ended, at most this long; harmless if it has.

        A thread that never began ends here: its ``ended`` is called by the caller.

        Returns:
            Whether the thread has ended. If not, a line in the log says so, and the thread ends after its present work.
            A thread does not wait for itself: it ends after its present work.
        """
        self.initiate_shutdown()
        if threading.current_thread() is self:
            return False
        with self._initiate:
            is_unused = self._end_unused()
        if is_unused:
            self._clean_up()
        has_ended = self.await_shutdown(timeout_s)
        if not has_ended:
            self.log.warning("%s has not ended within %g s; it ends after its present work", self.name, timeout_s)
        return has_ended

    def close(self, timeout_s: float | None = None) -> object:
        """End the thread within this time; harmless if it has ended."""
        return self.shutdown(timeout_s)

    def forget_in_child(self) -> None:
        """Count as ended in a forked child: the thread runs in the parent alone."""
        self._initiate = new_lock("thread shutdown")
        self._initiated, self._complete = threading.Event(), threading.Event()
        self._initiated.set()
        self._complete.set()

    def pause(self, timeout_ms: float) -> bool:
        """Wait this long, but no longer than until a shutdown is initiated.

        Returns:
            Whether a shutdown was initiated.
        """
        return self._initiated.wait(timeout_ms / 1000)

    def run(self) -> None:
        """The loop itself; not to be called by hand."""
        self.log.log(self._life_level, "starting")
        try:
            ends, do_work = self._initiated.is_set, self.do_work
            while not ends():
                do_work()
        except FatalExit as e:
            self.error = e.__cause__ or e
            self._initiated.set()
            self._complete.set()
            self.log.critical("ended by a fatal error: %s", self.error)
            self._exit_procedure(1)
        except BaseException as e:
            if self.is_running:
                self.error = e
                self.log.exception("ended by an error")
        finally:
            try:
                self._clean_up()
            finally:
                self._complete.set()
        self.log.log(self._life_level, "stopped")

    def _clean_up(self) -> None:
        try:
            self.ended()
        except BaseException as e:
            self.error = self.error or e
            self.log.exception("could not clean up at its end")


guards_calls(StoppableThread, "_initiate", "_begin_shutdown", "_end_unused")


class LoopThread(StoppableThread):
    """A thread that calls a function of its owner's again and again until its shutdown.

    Args:
        name: The thread's name.
        work: Does one round of work; an error ends the thread.
        interrupt: Makes ``work`` return early.
        ended: Cleans up, on the thread itself, as its last act.
    """

    _life_level = logging.DEBUG

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        interrupt: Callable[[], object] = lambda: None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(name)
        self._work = work
        self._interrupt = interrupt
        self._ended = ended

    def do_work(self) -> None:
        """Call the owner's function."""
        self._work()

    def interrupt(self) -> None:
        """Have the owner's function return early."""
        self._interrupt()

    def ended(self) -> None:
        """Have the owner clean up."""
        self._ended()


def first_error(*threads: _Failing | None) -> BaseException | None:
    """Return the error of the first of these threads that one has ended; None if all go on or were closed."""
    return next((each.error for each in threads if each is not None and each.error is not None), None)
