"""How a command that runs in the foreground ends: by SIGTERM too, and with an error where its recording has a hole."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from kproto.cli.text import print_line
from kproto.errors import ConfigurationError
from kproto.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from channel.network.recorder import PcapngRecorder

    _Wait = Callable[[Callable[[], object], Callable[[float], object]], None]

_POLL_S: Final = 0.2
"""How long a wait may go on after SIGTERM. The handler cannot set an event: the main thread may hold its lock."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM has come; where Python drops it, SIGTERM is remembered."""


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[_Wait]:
    """Let the first SIGTERM end a command as Ctrl-C does, and ignore those that come during its clean end.

    Python drops an exception of a signal handler that runs inside a weak reference's callback or ``__del__``. So
    SIGTERM is also remembered: the wait ends because of it, whether or not its exception was dropped before.

    Yields:
        A function that waits until the command is over, or for Ctrl-C or SIGTERM, and returns; the clean end follows
        it. Its first argument announces that the command has started; a signal may answer the announcement at once,
        and ends the wait from then on instead of breaking off the command. Its second argument waits for a
        number of seconds, and returns whether the command is over, as ``Event.wait`` does. Before the announcement,
        while the command starts, SIGTERM raises KeyboardInterrupt.
    """
    is_asked = is_waiting = False

    def end(*_: object) -> None:
        nonlocal is_asked
        is_first, is_asked = not is_asked, True
        if is_first and not is_waiting:
            raise _Terminated

    def wait(announce: Callable[[], object], is_over: Callable[[float], object]) -> None:
        nonlocal is_asked, is_waiting
        is_waiting = True
        with contextlib.suppress(KeyboardInterrupt):
            announce()
            while not is_asked and not is_over(_POLL_S):
                pass
        is_asked = True

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield wait
    finally:
        signal.signal(signal.SIGTERM, previous)


class Reader:
    """Who reads what a command prints; the command ends if it goes away.

    Attributes:
        stop: Set once the command shall end.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._is_gone = False

    def tell(self, value: dict[str, Any]) -> None:
        """Print a JSON object as one line, from any thread."""
        try:
            print_line(value)
        except BrokenPipeError:
            self._is_gone = True
            self.stop.set()

    def check(self) -> None:
        """Raise ``BrokenPipeError``, as any command does, if it has gone."""
        if self._is_gone:
            raise BrokenPipeError


def check_threads(what: str, error: BaseException | None) -> None:
    """End a command whose thread an error has ended, with a status that makes a service start again.

    Args:
        what: What has ended, such as "the controller".
        error: The error; None if all ended as asked.

    Raises:
        ConfigurationError: There is an error.
    """
    if error is not None:
        reason = str(error) or type(error).__name__
        raise ConfigurationError(f"{what} has ended by itself: {reason}; start it again") from error


def check_recording(recorder: PcapngRecorder, noun: str) -> None:
    """Refuse a recording that lacks something.

    Args:
        recorder: Has ended.
        noun: What it records.

    Raises:
        ConfigurationError: Something could not be written.
    """
    if recorder.lost or recorder.error is not None:
        why = "" if recorder.error is None else f": {recorder.error.strerror}"
        raise ConfigurationError(
            f"the recording is incomplete, {counted(recorder.lost, noun)} could not be written{why}; "
            "make room and start again"
        )
