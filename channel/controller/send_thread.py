"""A send thread: it delivers each broker's requests one at a time, in order, and retries until they are answered.

One thread runs one client over any number of brokers, each with its ``BrokerRequests``.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from channel.clock import FOREVER
from channel.errors import ClientClosed, IllegalState
from channel.logs import bounded
from channel.network.client import MetadataUpdater
from channel.threads import StoppableThread

from .broker_requests import CallbackTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.errors import AuthenticationFailed
    from channel.network.client import MetadataUpdater, NetworkClient

    from .broker_requests import BrokerRequests
    from .requests import ControlRequest
    from .state_change_log import StateChangeLog

RETRY_BACKOFF_MS: Final = 100
"""The pause between two attempts to deliver a request."""


ClientFactory: TypeAlias = "Callable[[MetadataUpdater, Callable[[str, Exception], None]], NetworkClient]"
"""Makes a client with this updater and this hook for invalid responses: one request in flight for each node."""


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
        self.client = new_client(_Nodes(self), self._invalid_answer)
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
        self._schedule(self.client.clock.milliseconds() + RETRY_BACKOFF_MS, broker.deliver)

    def _schedule(self, due_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (due_ms, next(self._numbers), action))

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

    def _invalid_answer(self, node_id: str, error: Exception) -> None:
        """Handle an invalid response: the connection is of no use any more."""
        broker = self.brokers.get(node_id)
        if broker is None:
            self.client.close_node(node_id)
            return
        if not broker.awaits_answer:
            self.log.warning("%s sent what nobody has asked for: %s; closing the connection", broker.node, error)
        if not broker.close_if_idle():
            broker.failed(error)

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
