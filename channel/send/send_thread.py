"""A broker's queue of control requests, and the send thread that delivers the requests of any number of brokers.

Each broker gets one request at a time, in order, and each request is retried until it is answered. A request is sent by
the thread that puts it, if its broker is idle and connected, and otherwise by the send thread, which also connects,
retries and calls back. One send thread runs one client over its brokers, each with its ``BrokerRequests``.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from channel.clock import FOREVER
from channel.errors import ClientClosed, Disconnected, IllegalState, RequestTimeout
from channel.locks import guards, guards_changes, new_lock
from channel.logs import STATE_CHANGE, TRACE, bounded
from channel.network.client import MetadataUpdater
from channel.threads import StoppableThread
from kproto.api import CONTROL_APIS, api_name

from .encoded_requests import ListenerNotExpressible

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.errors import AuthenticationFailed
    from channel.metrics import Timer
    from channel.network.client import NetworkClient
    from channel.network.request import ClientRequest, ClientResponse
    from channel.types import Node

    from .encoded_requests import ControlRequest
    from .state_change_log import StateChangeLog

RETRY_BACKOFF_MS: Final = 100
"""The pause between two attempts to deliver a request."""

ClientFactory: TypeAlias = "Callable[[MetadataUpdater], NetworkClient]"
"""Makes a client with this updater: one request in flight for each node."""

_CONTROL: Final = frozenset(map(int, CONTROL_APIS))
_traced = STATE_CHANGE.isEnabledFor


class Outcome(Enum):
    """The outcome of a request that was not answered."""

    NOT_SENT = "not sent"
    POSSIBLY_APPLIED = "possibly applied"


class DroppedRequest(NamedTuple):
    """A request that will not be answered any more.

    Attributes:
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


class BrokerRequests:
    """One broker's requests: the queued requests, and the present request, which is being delivered.

    The thread that sets ``_busy`` under the lock delivers the request: the thread that put it, for the moment of
    writing it, then the send thread until its callback has returned. So no request overtakes another, and no request
    is sent while a callback runs.

    Args:
        thread: The send thread that the broker is assigned to.
        queue_time: Takes the time in the queue of each request, in ms.
        on_undeliverable: Takes a request that cannot be encoded.

    Attributes:
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
        thread: RequestSendThread,
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
                sent = self._sent_before or _all_sent(self._request)
                left.insert(0, current.dropped(Outcome.POSSIBLY_APPLIED if sent else Outcome.NOT_SENT))
            return left

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
        elif isinstance(response.error, Exception):
            self.failed(response.error)
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


guards(BrokerRequests, "_lock", "_client", "_on_answer")
guards_changes(BrokerRequests, "_lock", "_busy", "_queue")


def _refuse(api_key: int, request: ControlRequest) -> None:
    raise IllegalState(f"an answer to {api_name(api_key)}, unexpected after {api_name(request.api_key)}")


def _all_sent(request: ClientRequest | None) -> bool:
    return request is not None and request.send is not None and request.send.remaining == 0


class _Nodes(MetadataUpdater):
    """Reports ended and failed connections to a send thread."""

    def __init__(self, thread: RequestSendThread) -> None:
        super().__init__()
        self._thread = thread

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Let the send thread check the node."""
        self._thread._failed.append(node_id)


class RequestSendThread(StoppableThread):
    """Runs a client over the brokers assigned to it: connects, delivers requests, calls back, retries.

    An undelivered request is retried without end, over a new connection and with a new correlation id, until the
    broker is removed or the thread is shut down. A response with an error code completes a request. The broker may
    receive a request twice if the response was lost, but never after a later request. A callback that blocks delays
    all brokers of the thread: ``callbacks.longest_ns`` shows it.

    Args:
        name: The thread's name.
        controller_id: The controller's broker id, for the log.
        controller_epoch: Returns the controller's epoch, for the log.
        new_client: Makes this thread's own client.
        socket_timeout_ms: The time limit of connecting.
        state_log: Kafka's state-change log.
        on_failed: Called when the thread dies of an error.

    Attributes:
        client: The thread's client.
        brokers: The brokers that are assigned to the thread, by node key.
        has_died: Whether an error has ended the thread, so that it takes no more brokers; ``on_failed`` sets it.
        callbacks: The number of callbacks called so far, and the times that they took.
    """

    def __init__(
        self,
        name: str,
        controller_id: int,
        controller_epoch: Callable[[], int],
        new_client: ClientFactory,
        socket_timeout_ms: int,
        state_log: StateChangeLog,
        on_failed: Callable[[RequestSendThread], None] | None = None,
    ) -> None:
        super().__init__(name, log_prefix=f"[RequestSendThread controllerId={controller_id}]")
        self._failed: list[str] = []  # nodes whose connection has ended, or could not be made
        self.client = new_client(_Nodes(self))
        self.brokers: dict[str, BrokerRequests] = {}
        self.callbacks = CallbackTimes()
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._socket_timeout_ms = socket_timeout_ms
        self._state_log = state_log
        self._on_failed = on_failed
        self.has_died = False
        self._is_done = self._closes_client = False
        self._tasks: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._connecting: dict[str, BrokerRequests] = {}
        self._numbers = itertools.count()

    # ---- for any thread

    def call_soon(self, task: Callable[[], None]) -> None:
        """Call a function on this thread."""
        self._tasks.append(task)
        self.client.wakeup()

    def remove(self, broker: BrokerRequests, timeout_s: float | None = None) -> None:
        """Close a broker's connection; returns once no callback of the broker runs any more, or after ``timeout_s``.

        Raises:
            IllegalState: This is the send thread itself, which must not wait for itself.
        """
        if threading.current_thread() is self:
            raise IllegalState("a callback cannot remove a broker of its own thread; do it on another thread")
        done = threading.Event()
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s

        def close() -> None:
            self._forget(broker)
            done.set()

        self.call_soon(close)
        while self.is_alive() and not self.is_shutdown_complete:  # an ended thread has no connections any more
            left_s = deadline - time.monotonic()
            if done.wait(min(0.1, max(0.0, left_s))):
                return
            if left_s <= 0:
                self.log.warning("%s is busy: its connection is closed later", broker.node)
                return

    def _forget(self, broker: BrokerRequests) -> None:
        broker.closed = True
        if self.brokers.get(broker.node.key) is broker:
            del self.brokers[broker.node.key]
            self._connecting.pop(broker.node.key, None)
            self.client.forget_node(broker.node.key)

    def interrupt(self) -> None:
        """End a waiting poll."""
        self.client.initiate_close()

    # ---- for brokers, on this thread

    def connect(self, broker: BrokerRequests) -> None:
        """Connect to a broker that has a request to be sent, and then send it."""
        broker.attempt_ends_ms = self.client.clock.milliseconds() + self._socket_timeout_ms
        self._connecting[broker.node.key] = broker  # the first entry is the oldest attempt
        try:
            is_ready = self.client.ready(broker.node)
        except Exception as e:  # noqa: BLE001  (any failure to connect is tried again, and costs no other broker)
            self._not_connected(broker, bounded(str(e)))
            return
        if is_ready:  # since a moment ago: in the next round, as a delivery that fails again comes back here
            del self._connecting[broker.node.key]
            self.call_soon(broker.deliver)
        elif self.client.connection_failed(broker.node):
            self._not_connected(broker, f"Connection to {broker.node} failed.")

    def _connected(self, broker: BrokerRequests) -> None:
        del self._connecting[broker.node.key]
        self.log.info("controller %d connected to %s to send state changes", self._controller_id, broker.node)
        broker.deliver()

    def _not_connected(self, broker: BrokerRequests, failure: str) -> None:
        error = self.client.authentication_error(broker.node)
        if error is not None:
            failure = bounded(str(error))
        self.log.warning("controller %d has no connection to %s: %s", self._controller_id, broker.node, failure)
        self._begin_anew(broker)

    def _look_at_connections(self) -> None:
        """Go on with brokers whose connection is established, has failed, or takes too long."""
        client = self.client
        for node_id in client.newly_ready:
            broker = self._connecting.get(node_id)
            if broker is not None and client.is_ready(broker.node):
                self._connected(broker)
        failed, self._failed = self._failed, []
        for node_id in failed:
            broker = self._connecting.get(node_id)
            if broker is not None and client.connection_failed(broker.node):
                self._not_connected(broker, f"Connection to {broker.node} failed.")
        now = client.clock.milliseconds()
        while self._connecting:
            broker = next(iter(self._connecting.values()))
            if broker.attempt_ends_ms > now:
                return
            self._not_connected(broker, f"failed to connect within {self._socket_timeout_ms} ms")

    def retry(self, broker: BrokerRequests, request: ControlRequest, error: Exception) -> None:
        """Retry a request after a pause."""
        self.log.warning(
            "controller %d epoch %d could not send %s to %s: %s; reconnecting",
            self._controller_id, self._epoch(), request, broker.node, bounded(f"{type(error).__name__}: {error}"),
        )  # fmt: skip
        self._begin_anew(broker)

    def _begin_anew(self, broker: BrokerRequests) -> None:
        self._connecting.pop(broker.node.key, None)
        self.client.close_node(broker.node.key)
        due_ms = self.client.clock.milliseconds() + RETRY_BACKOFF_MS
        heapq.heappush(self._timers, (due_ms, next(self._numbers), broker.deliver))

    def trace_answer(self, broker: BrokerRequests, request: ControlRequest, body: Any) -> None:
        """Log a response in Kafka's state-change log."""
        self._state_log.trace(self._epoch(), "%s answered %s to %s", broker.node, bounded(repr(body)), request)

    def give_up(self, broker: BrokerRequests, request: ControlRequest) -> None:
        """Log the exception of a request's callback, and close the connection; broker and thread go on."""
        self.log.exception("controller %d gives up %s to %s", self._controller_id, request, broker.node)
        self.client.close_node(broker.node.key)

    def _epoch(self) -> int:
        """Return the controller's epoch, for the log; -1 if it is not available."""
        try:
            return self._controller_epoch()
        except BaseException:
            self.log.exception("controller %d does not tell its epoch", self._controller_id)
            return -1

    # ---- the loop

    def do_work(self) -> None:
        """Make queued calls, run due timers, then poll for responses."""
        while self._tasks:
            self._tasks.popleft()()
        timeout_ms = FOREVER
        if self._timers or self._connecting:
            timeout_ms = self._run_timers()
        try:
            self.client.poll(timeout_ms)
        except ClientClosed:
            return
        if self._connecting:
            self._look_at_connections()
        elif self._failed:
            self._failed.clear()

    def _run_timers(self) -> int:
        """Run due timers; returns the time until the next."""
        now = self.client.clock.milliseconds()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        if self._tasks:
            return 0
        timeout_ms = self._timers[0][0] - now if self._timers else FOREVER
        if self._connecting:
            timeout_ms = min(timeout_ms, next(iter(self._connecting.values())).attempt_ends_ms - now)
        return max(0, timeout_ms)

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Initiate the shutdown, and wait until the thread has ended, at most this long.

        Returns:
            Whether the thread uses its client no more; if not, it closes the client at its end.
        """
        if super().shutdown(timeout_s):
            return True
        with self._initiate:
            self._closes_client = not self._is_done
            return self._is_done

    def ended(self) -> None:
        """Report the thread's end if no shutdown was initiated; close the client if no caller waits for the end."""
        with self._initiate:
            self._is_done = True
        if self._closes_client:
            self.client.close()
        if self.is_running and self._on_failed is not None:
            self._on_failed(self)

    def forget_in_child(self) -> None:
        """Count as ended in a forked child."""
        super().forget_in_child()
        self.client.abandon()
        self.brokers.clear()
        self._tasks.clear()


guards(RequestSendThread, "_initiate", "_is_done")
