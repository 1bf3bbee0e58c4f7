"""A journal of a controller's requests and their responses, to be compared with a recording of the wire."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from channel.errors import RequestTimeout
from channel.locks import guards_changes, new_reentrant_lock
from channel.logs import bounded
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from kproto.api import api_name
from kproto.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from channel.send.encoded_requests import ControlRequest
    from channel.send.send_thread import DroppedRequest


class SentRequest:
    """A request that a controller sent, and its response.

    Args:
        broker_id: The broker that the request was sent to.
        controller_id: The controller that sent the request.

    Attributes:
        broker_id, controller_id, controller_epoch, broker_epoch: Sender and receiver.
        api_key, version: Of the request.
        answered: Whether a response came.
        dropped: Whether the request was given up, with its broker or at the controller's end.
        error_code: The response's top-level code, None without a response.
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
        # A single request's message is kept; that of a request with a shared body is decoded from the body when read.
        self._message = request.message if isinstance(request, SingleRequest) else None

    @property
    def message(self) -> Any:
        """The request's message."""
        return self._request.message if self._message is None else self._message

    @property
    def is_refused(self) -> bool:
        """Whether the broker answered with an error, for the whole request or for a partition."""
        return bool(self.error_code or self.partition_errors)

    def __repr__(self) -> str:
        if not self.answered:
            state = "dropped" if self.dropped else "no answer yet"
        elif self.error_code:
            state = error_name(self.error_code)
        elif self.partition_errors:
            first, *more = self.partition_errors
            state = f"{error_name(first['error_code'])} for {first['topic']}-{first['partition']}"
            state += f" and {len(more)} more partitions" if more else ""
        else:
            state = "answered"
        return f"<{api_name(self.api_key)} v{self.version} to broker {self.broker_id}: {state}>"


class Journal:
    """The requests of one or more controllers in the order in which they were sent.

    The journal keeps every request, so its memory grows: it is for tests, not for a long-running service.
    """

    def __init__(self) -> None:
        self.entries: list[SentRequest] = []
        self._open: dict[int, SentRequest] = {}  # neither answered nor dropped, by the request's identity
        self._changed = threading.Condition(new_reentrant_lock("journal"))

    def sent(self, controller_id: int, broker_id: int, request: ControlRequest) -> SentRequest:
        """Note a request that is about to be queued."""
        entry = SentRequest(broker_id, controller_id, request)
        with self._changed:
            self.entries.append(entry)
            self._open[id(request)] = entry  # the entry keeps the request alive, so that its id stays unique
        return entry

    def answered(self, entry: SentRequest, response: Any) -> None:
        """Note the response to a request."""
        entry.error_code = response.error_code
        entry.partition_errors = tuple(_partition_errors(entry, response))
        entry.answered = True
        self._close(entry._request)

    def dropped(self, request: ControlRequest) -> None:
        """Note that a request will get no response."""
        entry = self._open.get(id(request))
        if entry is not None:
            entry.dropped = True
            self._close(request)

    def _close(self, request: ControlRequest) -> None:
        with self._changed:
            self._open.pop(id(request), None)
            self._changed.notify_all()

    def wait(self, most_waiting: int = 0, timeout_s: float = 30.0) -> None:
        """Wait until no more than ``most_waiting`` requests are neither answered nor dropped.

        Args:
            most_waiting: The number of requests that may be left.
            timeout_s: The longest time to wait.

        Raises:
            RequestTimeout: More than that are left after ``timeout_s`` seconds; the text names their brokers.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._open) <= most_waiting, timeout_s):
                silent = sorted({entry.broker_id for entry in self._open.values()})
                raise RequestTimeout(
                    f"{len(self._open)} requests are not answered after {timeout_s:g} s, by brokers {bounded(silent)}"
                )


guards_changes(Journal, "_changed", "_open")


class JournaledChannels(ControllerChannelManager):
    """A controller's channels to its brokers that note every request and its response in a journal.

    Args:
        journal: Takes every request and its response.
        args, options: See ``ControllerChannelManager``.
    """

    def __init__(self, journal: Journal, *args: Any, **options: Any) -> None:
        super().__init__(*args, on_dropped=self._note_dropped, **options)
        self._journal = journal

    def send_request(self, broker_id: int, request: Any, callback: Callable[[Any], None] | None = None) -> None:
        """Queue a request; the journal notes it now, and its response after the callback."""
        if not hasattr(request, "build"):
            request = self.versioned(request)
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
    """List the partitions that have an error in a response; LeaderAndIsr names topics by their ids from v5 on."""
    topics, rows = getattr(response, "topics", ()), getattr(response, "partition_errors", ())
    if not topics and not rows:
        return
    found = [(e.topic_name, None, e) for e in rows if e.error_code] if rows else []
    by_id = [(t.topic_id, e) for t in topics for e in t.partition_errors if e.error_code]
    if by_id:
        names = {topic_id: name for name, topic_id in entry.message.topic_ids.items()}
        found += [(names[topic_id], topic_id, e) for topic_id, e in by_id]
    for topic, topic_id, e in found:
        yield {"topic": topic, "topic_id": topic_id, "partition": e.partition_index, "error_code": e.error_code}
