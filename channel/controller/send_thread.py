"""The thread that delivers to one broker: one request at a time, in order, again and again until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from channel.errors import IllegalState
from channel.logs import STATE_CHANGE, TRACE, bounded
from channel.network.blocking import await_ready, is_ready, send_and_receive
from channel.threads import StoppableThread
from kproto.api import CONTROL_APIS, api_name

from .requests import ControlRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.network._outbox import Outbox
    from channel.network.client import NetworkClient
    from channel.network.direct import DirectConversation
    from channel.types import Node

    from .state_change_log import StateChangeLog

__all__ = ["RETRY_PAUSE_MS", "QueueItem", "RequestQueue", "RequestSendThread", "send_thread_name"]

RETRY_PAUSE_MS: Final = 100
"""Between two attempts to deliver a request."""

_CONTROL: Final = frozenset(map(int, CONTROL_APIS))
_traced = STATE_CHANGE.isEnabledFor


class QueueItem(NamedTuple):
    """A request that waits for its broker.

    Attributes:
        request: What to send.
        callback: Takes the response, on the send thread; None if nobody asks.
        enqueue_time_ms: When it came, in ms of the clock.
    """

    request: ControlRequest
    callback: Callable[[Any], None] | None
    enqueue_time_ms: int


RequestQueue: TypeAlias = "Outbox[ControlRequest]"
"""What waits for one broker: the fields of a ``QueueItem`` each."""

_Answer: TypeAlias = tuple[int, Any]
"""The API that the answered request belongs to, and the response. Tuples, as they are made for every request."""


def send_thread_name(controller_id: int, broker_id: int, prefix: str | None = None) -> str:
    """What the thread is called.

    >>> send_thread_name(1, 2)
    'Controller-1-to-broker-2-send-thread'
    """
    name = f"Controller-{controller_id}-to-broker-{broker_id}-send-thread"
    return f"{prefix}:{name}" if prefix else name


class RequestSendThread(StoppableThread):
    """Takes from the queue, delivers, calls back.

    What cannot be delivered is tried again without end, over a new connection and with a new correlation id: only the
    removal of the broker, or the shutdown, stops that. An answer with an error code is an answer. The broker may
    see a request twice if the answer was lost, never one after a later one.

    Args:
        name: The thread's name.
        controller_id: The controller's broker id, for the log.
        controller_epoch: Tells the controller's epoch, for the log.
        queue: What waits.
        client: This thread's own, with ``node`` alone and one request in flight.
        node: The broker.
        socket_timeout_ms: How long to wait for a connection.
        state_log: Kafka's state-change log.
        direct: The short way to a broker that is connected, if there is one.

    Attributes:
        undelivered: The request that it was at when it was stopped, None if there was none.
    """

    def __init__(
        self,
        name: str,
        controller_id: int,
        controller_epoch: Callable[[], int],
        queue: RequestQueue,
        client: NetworkClient,
        node: Node,
        socket_timeout_ms: int,
        state_log: StateChangeLog,
        direct: DirectConversation | None = None,
    ) -> None:
        super().__init__(name, log_prefix=f"[RequestSendThread controllerId={controller_id}]")
        self.undelivered: QueueItem | None = None
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._queue = queue
        self._client = client
        self._node = node
        self._socket_timeout_ms = socket_timeout_ms
        self._state_log = state_log
        self._direct = direct

    def interrupt(self) -> None:
        """End the wait for the queue and the wait for the broker."""
        self._queue.end()
        self._client.initiate_close()

    def do_work(self) -> None:
        """Deliver requests until there is a reason to look whether the thread is to go on."""
        queue, direct = self._queue, self._direct
        while True:
            if direct is not None and not queue.lent:
                direct.lend()
            taken = queue.get()
            if taken is None:
                return
            item, body, error = taken
            request, callback, _ = item
            api_key = request.api_key
            if body is None:
                answer = self._deliver(request, error)
                if answer is None:
                    self.undelivered = QueueItem(*item)
                    return
                api_key, body = answer
            try:
                if api_key not in _CONTROL:
                    self._refuse(api_key, request)
                if _traced(TRACE):
                    answer_text = bounded(repr(body))
                    self._state_log.trace(
                        self._controller_epoch(), "%s answered %s to %s", self._node, answer_text, request
                    )
                if callback is not None:
                    callback(body)
            except Exception:
                self.log.exception("controller %d gives up %s to %s", self._controller_id, request, self._node)
                self._close()

    def _refuse(self, api_key: int, request: ControlRequest) -> None:
        raise IllegalState(f"an answer to {api_name(api_key)}, unexpected after {api_name(request.api_key)}")

    def _close(self) -> None:
        self._queue.take_back()
        self._client.close_node(self._node.key)

    def _deliver(self, request: ControlRequest, error: Exception | None) -> _Answer | None:
        """The answer; None if the thread was stopped before one came. ``error`` is how the first attempt ended."""
        while self.is_running:
            try:
                if error is None and self._broker_ready():
                    response = send_and_receive(self._client, self._client.new_request(self._node.key, request))
                    return response.request.api_key, response.body
            except Exception as e:  # noqa: BLE001  (a request that even cannot be encoded is tried again, as Kafka does)
                error = e
            if error is not None:
                if self.is_shutdown_initiated:
                    break
                self.log.warning(
                    "controller %d epoch %d could not send %s to %s: %s; reconnecting",
                    self._controller_id,
                    self._controller_epoch(),
                    request,
                    self._node,
                    bounded(f"{type(error).__name__}: {error}"),
                )
                error = None
                self._close()
            self.pause(RETRY_PAUSE_MS)
        return None

    def _broker_ready(self) -> bool:
        client, node = self._client, self._node
        try:
            if is_ready(client, node):
                return True
            if await_ready(client, node, self._socket_timeout_ms):
                self.log.info("controller %d connected to %s to send state changes", self._controller_id, node)
                return True
            failure = f"failed to connect within {self._socket_timeout_ms} ms"
        except Exception as e:  # noqa: BLE001  (any failure to connect is tried again)
            failure = bounded(str(e))
        if self.is_running:
            self.log.warning("controller %d has no connection to %s: %s", self._controller_id, node, failure)
            client.close_node(node.key)
        return False
