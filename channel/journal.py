"""A controller's own account of its requests and their answers, to be compared with a recording of the wire."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from channel.controller.manager import ControllerChannelManager
from channel.controller.requests import SingleRequest
from channel.errors import RequestTimeout
from channel.logs import bounded
from kproto.api import api_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from channel.config import ChannelConfig
    from channel.controller.broker_requests import DroppedRequest
    from channel.controller.requests import ControlRequest
    from channel.metrics import Metrics
    from channel.network.recorder import Recorder

__all__ = ["Journal", "JournaledChannels", "SentRequest"]


class SentRequest:
    """One request that a controller sent, and its answer.

    Args:
        broker_id: The broker that it was sent to.
        controller_id: The controller that sent it.
        request: The request.

    Attributes:
        broker_id, controller_id, controller_epoch, broker_epoch: Sender and receiver.
        api_key, version: Of the request.
        answered: Whether an answer came.
        dropped: Whether the request was given up, with its broker or at the controller's end.
        error_code: The answer's top-level code, None without an answer.
        partition_errors: The partitions whose code is not 0, as rows of the table ``partition_errors``.
    """

    __slots__ = (
        "_message", "_request", "answered", "api_key", "broker_epoch", "broker_id", "controller_epoch", "controller_id",
        "dropped", "error_code", "partition_errors", "version",
    )  # fmt: skip

    def __init__(self, broker_id: int, controller_id: int, request: ControlRequest) -> None:
        self.broker_id = broker_id
        self.controller_id = controller_id
        self.controller_epoch = request.controller_epoch
        self.broker_epoch = request.broker_epoch
        self.api_key = request.api_key
        self.version = request.latest_version
        self.answered = False
        self.dropped = False
        self.error_code: int | None = None
        self.partition_errors: tuple[dict[str, Any], ...] = ()
        self._request = request
        # The message of a single request as the controller made it; brokers that share a body share its bytes here too.
        self._message = request.message if isinstance(request, SingleRequest) else None

    @property
    def message(self) -> Any:
        """The request's message."""
        return self._request.message if self._message is None else self._message

    def __repr__(self) -> str:
        state = f"error {self.error_code}" if self.answered else "dropped" if self.dropped else "no answer yet"
        return f"<{api_name(self.api_key)} v{self.version} to broker {self.broker_id}: {state}>"


class Journal:
    """The requests of one or more controllers in the order in which they were sent.

    It keeps them all: a test's account, not a log for a service.

    Attributes:
        entries: The requests.
    """

    def __init__(self) -> None:
        self.entries: list[SentRequest] = []
        self._open: dict[int, SentRequest] = {}  # neither answered nor dropped, by the request's identity
        self._changed = threading.Condition()

    def sent(self, controller_id: int, broker_id: int, request: ControlRequest) -> SentRequest:
        """Note a request that is about to be queued."""
        entry = SentRequest(broker_id, controller_id, request)
        with self._changed:
            self.entries.append(entry)
            self._open[id(request)] = entry  # the entry keeps the request, so no other one has its id
        return entry

    def answered(self, entry: SentRequest, response: Any) -> None:
        """Note the answer to a request."""
        entry.error_code = response.error_code
        entry.partition_errors = tuple(_partition_errors(entry, response))
        entry.answered = True
        self._close(entry._request)

    def dropped(self, request: ControlRequest) -> None:
        """Note that a request will not be answered."""
        entry = self._open.get(id(request))
        if entry is not None:
            entry.dropped = True
            self._close(request)

    def _close(self, request: ControlRequest) -> None:
        with self._changed:
            self._open.pop(id(request), None)
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """The number of requests that are neither answered nor dropped."""
        return len(self._open)

    def wait(self, most_waiting: int = 0, timeout_s: float = 30.0) -> None:
        """Wait until no more than ``most_waiting`` requests are neither answered nor dropped.

        Raises:
            RequestTimeout: More of them still are after ``timeout_s`` seconds; the text names their brokers.
        """
        with self._changed:
            if self._changed.wait_for(lambda: len(self._open) <= most_waiting, timeout_s):
                return
            brokers = sorted({entry.broker_id for entry in self._open.values()})
            raise RequestTimeout(
                f"{len(self._open)} requests are not answered after {timeout_s:g} s, by brokers {bounded(brokers)}"
            )


class JournaledChannels(ControllerChannelManager):
    """A controller's channels to its brokers, with every request and its answer in a journal.

    Args:
        journal: Takes them.
        controller_id, controller_epoch, config, metrics, recorder: See ``ControllerChannelManager``.
    """

    def __init__(
        self,
        journal: Journal,
        controller_id: int,
        controller_epoch: Callable[[], int],
        config: ChannelConfig,
        *,
        metrics: Metrics,
        recorder: Recorder | None,
    ) -> None:
        super().__init__(
            controller_id, controller_epoch, config, metrics=metrics, on_dropped=self._note_dropped, recorder=recorder
        )
        self._journal = journal

    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None:
        """Queue a request; the journal notes it, and its answer after the callback."""
        entry = self._journal.sent(self.controller_id, broker_id, request)

        def answered(response: Any) -> None:
            if callback is not None:
                callback(response)
            self._journal.answered(entry, response)

        try:
            super().send_request(broker_id, request, answered)
        except BaseException:
            self._journal.dropped(request)
            raise

    def _note_dropped(self, broker_id: int, items: list[DroppedRequest]) -> None:
        for item in items:
            self._journal.dropped(item.request)


def _partition_errors(entry: SentRequest, response: Any) -> Iterator[dict[str, Any]]:
    """The partitions that a response reports with an error; LeaderAndIsr names topics by their ids from v5 on."""
    found = [(e.topic_name, None, e) for e in getattr(response, "partition_errors", ()) if e.error_code]
    by_id = [(t.topic_id, e) for t in getattr(response, "topics", ()) for e in t.partition_errors if e.error_code]
    if by_id:
        names = {topic_id: name for name, topic_id in entry.message.topic_ids.items()}
        found += [(names[topic_id], topic_id, e) for topic_id, e in by_id]
    for topic, topic_id, e in found:
        yield {"topic": topic, "topic_id": topic_id, "partition": e.partition_index, "error_code": e.error_code}
