"""The send threads of a channel manager, and their assignment to brokers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from channel.network.selector_metrics import PollTimes
from kproto.errors import ConfigurationError

from .send_thread import RequestSendThread, send_thread_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.clock import Clock

__all__ = ["SendThreadPool", "SendThreads", "ServingThread"]

SendThreads = int | Literal["per_broker"]
"""The number of send threads, or one for each broker as in Kafka."""


@dataclass(slots=True)
class ServingThread:
    """A send thread, the times of its selector's polls, and the number of brokers it serves."""

    thread: RequestSendThread
    polls: PollTimes
    brokers: int = 0


class SendThreadPool:
    """The send threads of one channel manager. The owner must let only one thread at a time change the pool.

    Args:
        count: The largest number of threads.
        controller_id: The controller's broker id, for the threads' names.
        prefix: Stands before every thread's name.
        clock: Time.
        new_thread: Makes a send thread from its name and the counters of its selector's polls.

    Raises:
        ConfigurationError: The number of threads is below 1.
    """

    def __init__(
        self,
        count: SendThreads,
        controller_id: int,
        prefix: str | None,
        clock: Clock,
        new_thread: Callable[[str, PollTimes], RequestSendThread],
    ) -> None:
        if count != "per_broker" and count < 1:
            raise ConfigurationError(f"send_threads is {count}; it must be a number from 1, or 'per_broker'")
        self._count = count
        self._controller_id = controller_id
        self._prefix = prefix
        self._clock = clock
        self._new_thread = new_thread
        self._serving: list[ServingThread] = []

    def __len__(self) -> int:
        return len(self._serving)

    def for_broker(self, broker_id: int) -> ServingThread:
        """Assign a new broker to a send thread: a new thread as long as the limit allows."""
        alive = [serving for serving in self._serving if not serving.thread.has_died]
        if self._count != "per_broker" and len(alive) >= self._count:
            return min(alive, key=lambda serving: serving.brokers)
        polls = PollTimes(self._clock)
        serving = ServingThread(self._new_thread(self._free_name(broker_id), polls), polls)
        self._serving.append(serving)
        return serving

    def _free_name(self, broker_id: int) -> str:
        used = {serving.thread.name for serving in self._serving}
        named_after = broker_id if self._count == "per_broker" else None
        names = (
            send_thread_name(self._controller_id, named_after, number, self._prefix) for number in range(len(used) + 1)
        )
        return next((name for name in names if name not in used), self._prefix or "send-thread")

    def end(self, serving: ServingThread, timeout_s: float | None = None) -> None:
        """Shut a send thread down and forget it; returns when it has ended, or after ``timeout_s``."""
        try:
            if serving.thread.shutdown(timeout_s):  # the thread alone uses its client until it has ended
                serving.thread.client.close()
        finally:
            self._serving.remove(serving)

    def initiate_shutdown(self) -> None:
        """Initiate the shutdown of all threads, so that to wait for all takes as long as the slowest."""
        for serving in self._serving:
            serving.thread.initiate_shutdown()

    @property
    def has_current_thread(self) -> bool:
        """Whether the caller runs on one of the threads."""
        current = threading.current_thread()
        return any(serving.thread is current for serving in list(self._serving))

    def callback_ms_max(self) -> float:
        """The longest time that a callback held its send thread up."""
        return max((serving.thread.callback_max_ns for serving in self._serving), default=0) / 1e6

    def callback_ms_mean(self) -> float:
        """The mean time that callbacks held their send threads up."""
        calls = sum(serving.thread.callbacks for serving in self._serving)
        return sum(serving.thread.callback_ns for serving in self._serving) / max(1, calls) / 1e6

    def forget(self) -> None:
        """Drop all threads in a forked child: they are the parent's."""
        self._serving = []
