"""One broker's control requests: the queue, and the request that is being delivered.

A broker's request is sent by the thread that puts it, if the broker is idle and connected, and otherwise by the send
thread, which also does everything else.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from channel.errors import ClientClosed, Disconnected, IllegalState, RequestTimeout
from channel.locks import new_lock
from channel.logs import STATE_CHANGE, TRACE
from kproto.api import CONTROL_APIS, api_name

from .requests import ListenerNotExpressible

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.metrics import Timer
    from channel.network.client import NetworkClient
    from channel.network.request import ClientRequest, ClientResponse
    from channel.types import Node

    from .requests import ControlRequest

_CONTROL: Final = frozenset(map(int, CONTROL_APIS))
_traced = STATE_CHANGE.isEnabledFor


class Outcome(Enum):
    """The outcome of a request that was not answered."""

    NOT_SENT = "not sent"
    POSSIBLY_APPLIED = "possibly applied"


class DroppedRequest(NamedTuple):
    """A request that will not be answered any more.

    Attributes:
        request: The request.
        callback: The request's callback, which is not called.
        enqueue_time_ms: The time at which it was queued, in ms of the clock.
        outcome: Whether the broker may have applied the request, as all of it was sent at least once.
        error: The reason why it could not be sent; None if its broker was removed, or is unknown.
    """

    request: ControlRequest
    callback: Callable[[Any], None] | None
    enqueue_time_ms: int
    outcome: Outcome
    error: BaseException | None = None


class QueueItem:
    """A request that waits for its broker.

    Attributes:
        request: The request to send.
        callback: Takes the response, on the send thread; None for no call.
        enqueue_time_ms: The time at which it was put into the queue, in ms of the clock.
    """

    __slots__ = ("callback", "enqueue_time_ms", "request")

    def __init__(self, request: ControlRequest, callback: Callable[[Any], None] | None, enqueue_time_ms: int) -> None:
        self.request = request
        self.callback = callback
        self.enqueue_time_ms = enqueue_time_ms

    def dropped(self, outcome: Outcome, error: BaseException | None = None) -> DroppedRequest:
        """Make the dropped request, as no response will come."""
        return DroppedRequest(self.request, self.callback, self.enqueue_time_ms, outcome, error)


class CallbackTimes:
    """The times that the callbacks of a send thread took.

    Attributes:
        count: The number of callbacks called so far.
        total_ns, longest_ns: The time of all of them, and of the longest.
    """

    __slots__ = ("count", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.longest_ns = 0


class SendThread(Protocol):
    """The part of a send thread that a broker's requests use."""

    @property
    def callbacks(self) -> CallbackTimes:
        """The times of its callbacks."""

    @property
    def client(self) -> NetworkClient:
        """Sends the requests."""

    def call_soon(self, task: Callable[[], None]) -> None:
        """Call a function on the send thread; from any thread."""

    def connect(self, broker: BrokerRequests) -> None:
        """Connect to the broker, and then deliver its present request."""

    def retry(self, broker: BrokerRequests, request: ControlRequest, error: Exception) -> None:
        """Retry the present request after a pause, over a new connection."""

    def trace_answer(self, broker: BrokerRequests, request: ControlRequest, body: Any) -> None:
        """Log a response in Kafka's state-change log."""

    def give_up(self, broker: BrokerRequests, request: ControlRequest) -> None:
        """Log the exception of a request's callback, and close the connection."""


class BrokerRequests:
    """One broker's requests: the queued requests, and the present request, which is being delivered.

    The thread that sets ``_busy`` under the lock delivers the request: the thread that put it, for the moment of
    writing it, then the send thread until its callback has returned. So no request overtakes another, and no request
    is sent while a callback runs.

    Args:
        node: The broker.
        thread: The send thread that the broker is assigned to.
        queue_time: Takes the time in the queue of each request, in ms.
        on_undeliverable: Takes a request that cannot be encoded.

    Attributes:
        node: The broker.
        thread: Its send thread.
        closed: Whether the broker's requests have ended.
    """

    __slots__ = (
        "_busy", "_callbacks", "_client", "_current", "_lock", "_nanoseconds", "_node_id", "_on_answer",
        "_on_undeliverable", "_queue", "_queue_time", "_request", "_sent_before", "attempt_ends_ms", "closed", "node",
        "thread",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        thread: SendThread,
        queue_time: Timer,
        on_undeliverable: Callable[[BrokerRequests, DroppedRequest], None],
    ) -> None:
        self.node = node
        self.thread = thread
        self.closed = False
        self.attempt_ends_ms = 0
        self._node_id = node.key
        self._client = thread.client
        self._nanoseconds = thread.client.clock.nanoseconds
        self._callbacks = thread.callbacks
        self._on_answer = self._answered  # made once
        self._queue_time = queue_time
        self._on_undeliverable = on_undeliverable
        self._lock = new_lock("broker requests")
        self._queue: deque[QueueItem] = deque()
        self._busy = False
        self._current: QueueItem | None = None
        self._request: ClientRequest | None = None  # the present attempt
        self._sent_before = False  # the whole request went out in an earlier attempt

    def __len__(self) -> int:
        return len(self._queue)

    # ---- for any thread

    def put(self, item: QueueItem) -> bool:
        """Queue a request, or send it at once if the broker is idle and connected. False if this broker is closed."""
        self._lock.acquire()  # compiled, ``with`` takes longer
        try:
            if self.closed:
                return False
            if self._busy:
                self._queue.append(item)
                return True
            self._busy = True
            self._take(item, 0)
            try:
                self._send(item.enqueue_time_ms)
            except IllegalState:  # not connected: that is for the send thread to change
                self.thread.call_soon(self.deliver)
            except ClientClosed:  # it stays the present request, for ``close`` to give back
                pass
            except Exception as e:  # noqa: BLE001
                self.thread.call_soon(partial(self._undeliverable, e))
            except BaseException:  # raised by a signal: an unknown part was written, so the request must be sent again
                self.thread.call_soon(partial(self.failed, Disconnected("interrupted while it was sent")))
                raise
        finally:
            self._lock.release()
        return True

    def close(self) -> list[DroppedRequest]:
        """Stop sending; returns the unanswered requests, oldest first."""
        with self._lock:
            self.closed = True
            left = [item.dropped(Outcome.NOT_SENT) for item in self._queue]
            self._queue.clear()
            current, self._current = self._current, None
            if current is not None:
                left.insert(0, current.dropped(self._outcome()))
            return left

    def _outcome(self) -> Outcome:
        sent = self._sent_before or _all_sent(self._request)
        return Outcome.POSSIBLY_APPLIED if sent else Outcome.NOT_SENT

    # ---- for the delivering thread

    def _take(self, item: QueueItem, waited_ms: int) -> None:
        self._current = item
        self._request = None
        self._sent_before = False
        self._queue_time.record(waited_ms)

    def _send(self, now: int) -> None:
        item = self._current
        assert item is not None
        self._request = self._client.request(self._node_id, item.request, self._on_answer, now)

    # ---- for the send thread

    def deliver(self) -> None:
        """Send the present request, or connect first."""
        if self.closed or self._current is None:
            return
        try:
            with self._lock:
                self._send(self._nanoseconds() // 1_000_000)
        except IllegalState:
            self.thread.connect(self)
        except ClientClosed:
            return
        except Exception as e:  # noqa: BLE001
            self._undeliverable(e)

    def _undeliverable(self, error: Exception) -> None:
        """Report a request that cannot be encoded, and go on with the next."""
        item, self._current = self._current, None
        if item is not None and not self.closed:
            self._on_undeliverable(self, item.dropped(Outcome.NOT_SENT, error))
        self._send_next(self._nanoseconds())

    def _answered(self, response: ClientResponse) -> None:
        """Take the outcome of the present attempt."""
        if self.closed:
            return
        if response.body is not None:
            item, self._current = self._current, None
            self._request = None  # its bytes are not kept until the next request
            assert item is not None
            self._send_next(self._call_back(item, response.request.api_key, response.body))
            return
        self._sent_before = self._sent_before or _all_sent(response.request)
        if response.timed_out:
            self.failed(RequestTimeout(f"no answer within {response.request.timeout_ms} ms"))
        elif isinstance(response.version_mismatch, ListenerNotExpressible):
            self.failed(response.version_mismatch)  # Kafka tries it again for ever
        elif response.version_mismatch is not None:
            self._undeliverable(response.version_mismatch)
        else:
            self.failed(Disconnected(f"Connection to {self.node.key} was disconnected before the response was read"))

    def _call_back(self, item: QueueItem, api_key: int, body: Any) -> int:
        """Pass a response to its callback; returns the time of its end, in ns.

        An exception there closes the connection; the broker goes on.
        """
        times = self._callbacks
        began = self._nanoseconds()
        try:
            if api_key not in _CONTROL:
                _refuse(api_key, item.request)
            if _traced(TRACE):
                self.thread.trace_answer(self, item.request, body)
            if item.callback is not None:
                item.callback(body)
        except BaseException:  # noqa: BLE001
            self.thread.give_up(self, item.request)
        ended = self._nanoseconds()
        times.count += 1
        times.total_ns += ended - began
        times.longest_ns = max(times.longest_ns, ended - began)
        return ended

    @property
    def awaits_answer(self) -> bool:
        """Whether a request is being delivered."""
        return self._current is not None

    def close_if_idle(self) -> bool:
        """Close the connection unless a request is being delivered over it; tells whether it did."""
        with self._lock:  # another thread may be putting a request, which would be lost with the connection
            if self._current is not None:
                return False
            self._client.close_node(self._node_id)
            return True

    def failed(self, error: Exception) -> None:
        """Retry the present request over a new connection, after a pause."""
        if self.closed or self._current is None:
            return
        self._sent_before = self._sent_before or _all_sent(self._request)
        self._request = None
        self.thread.retry(self, self._current.request, error)

    def _send_next(self, now_ns: int) -> None:
        """Go on with the next request, if there is one."""
        now = now_ns // 1_000_000
        try:
            self._lock.acquire()  # compiled, ``with`` takes longer
            try:
                if self.closed:
                    return
                if not self._queue:
                    self._busy = False
                    return
                item = self._queue.popleft()
                self._take(item, now - item.enqueue_time_ms)
                self._send(now)
            finally:
                self._lock.release()
        except IllegalState:
            self.thread.connect(self)
        except ClientClosed:
            return
        except Exception as e:  # noqa: BLE001
            # Deferred: a row of requests that cannot be encoded must not make nested calls.
            self.thread.call_soon(partial(self._undeliverable, e))


def _refuse(api_key: int, request: ControlRequest) -> None:
    raise IllegalState(f"an answer to {api_name(api_key)}, unexpected after {api_name(request.api_key)}")


def _all_sent(request: ClientRequest | None) -> bool:
    return request is not None and request.send is not None and request.send.remaining == 0
