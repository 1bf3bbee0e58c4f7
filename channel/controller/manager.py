"""The controller's connections: for each broker a queue, a thread and a client of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from channel.clock import SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, IllegalState
from channel.logs import get_logger
from channel.metrics import Metrics
from channel.network._outbox import Outbox
from channel.network.client import NetworkClient
from channel.network.direct import DirectConversation
from channel.network.metadata import ManualMetadataUpdater
from channel.network.selector import Selector
from channel.network.selector_metrics import SelectorMetrics
from channel.types import Node
from kproto.api import api_name
from kproto.errors import KprotoError

from .send_thread import QueueItem, RequestQueue, RequestSendThread, send_thread_name
from .state_change_log import StateChangeLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from channel.network.recorder import Recorder
    from channel.types import Broker

    from .requests import ControlRequest

__all__ = ["ClientFactory", "ControllerChannelManager", "DroppedHook"]

GROUP: Final = "kafka.controller:type=ControllerChannelManager"
_QUEUE_SIZE: Final = "QueueSize"
_RATE_AND_TIME: Final = "RequestRateAndQueueTimeMs"
_PREFIX: Final = "controller-channel"


class ClientFactory(Protocol):
    """Makes the client of one broker."""

    def __call__(self, node: Node) -> NetworkClient:
        """A client that knows this node alone and keeps one request in flight."""


class DroppedHook(Protocol):
    """Hears of what was queued for a broker and will never be sent."""

    def __call__(self, broker_id: int, items: list[QueueItem]) -> None:
        """Called once the broker's thread and connection are gone, oldest request first, in place of the callbacks."""


@dataclass(slots=True)
class _BrokerState:
    node: Node
    client: NetworkClient
    queue: RequestQueue
    thread: RequestSendThread
    is_removed: bool = False


class ControllerChannelManager:
    """Sends control requests to brokers; also a context manager, which shuts down at its end.

    Any thread may call it. A callback runs on its broker's send thread: it may send, but not add or remove brokers.

    Args:
        controller_id: The controller's broker id: names threads, and the client id in every header.
        controller_epoch: Tells the controller's epoch, for the log.
        config: Timeouts and listeners.
        clock: Time.
        metrics: Takes queue sizes and times, and what the selectors count.
        state_log: Kafka's state-change log.
        thread_name_prefix: Stands before every thread's name.
        client_factory: Makes a broker's client; a plaintext one by default.
        on_dropped: Hears of requests that are dropped with their broker, or because there is none.
        recorder: Sees every frame that passes.

    Attributes:
        metrics: Where the figures are.
        dropped: How many requests were dropped so far.
    """

    def __init__(
        self,
        controller_id: int,
        controller_epoch: Callable[[], int],
        config: ChannelConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        *,
        state_log: StateChangeLog | None = None,
        thread_name_prefix: str | None = None,
        client_factory: ClientFactory | None = None,
        on_dropped: DroppedHook | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.controller_id = controller_id
        self.dropped = 0
        self._controller_epoch = controller_epoch
        self._config = config or ChannelConfig()
        self._clock = clock
        self.metrics = Metrics(clock) if metrics is None else metrics
        self._state_log = state_log or StateChangeLog(controller_id)
        self._prefix = thread_name_prefix
        self._client_factory = client_factory
        self._on_dropped = on_dropped
        self._recorder = recorder
        self._log = get_logger(__name__, f"[Channel manager on controller {controller_id}]")
        self._brokers: dict[int, _BrokerState] = {}
        self._lock = threading.Lock()  # the map and the count
        self._changing = threading.RLock()  # starting and removing, which may take long
        self._is_shut_down = False
        self.metrics.gauge(GROUP, "TotalQueueSize", self._total_queue_size, doc="Requests that wait for any broker")
        self.metrics.gauge(GROUP, "DroppedRequests", lambda: self.dropped, doc="Requests that were never sent")

    # ---- brokers

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that there are channels to."""
        with self._lock:
            return sorted(self._brokers)

    def startup(self, initial_brokers: Iterable[Broker]) -> None:
        """Open channels to these brokers.

        Raises:
            BrokerNotAvailable: One of them does not have the listener that the controller talks to; those before it
                have their channels, those after it do not.
        """
        with self._changing:
            for broker in initial_brokers:
                self.add_broker(broker)

    def add_broker(self, broker: Broker) -> None:
        """Open a channel; nothing if there is one to this id already, wherever it leads.

        Raises:
            BrokerNotAvailable: The broker does not have the listener that the controller talks to.
        """
        with self._changing:
            if broker.id not in self._brokers:
                self._add(self._new_broker(broker))

    def remove_broker(self, broker_id: int) -> None:
        """Close a broker's channel: its thread, its connection, its queue, its metrics.

        What fails on the way is logged, and the broker stays.

        Raises:
            KeyError: There is no such broker.
        """
        with self._changing:
            with self._lock:
                state = self._brokers.get(broker_id)
            if state is None:
                raise KeyError(f"controller {self.controller_id} has no channel to broker {broker_id}")
            self._remove(broker_id, state)

    def shutdown(self) -> None:
        """Close all channels. Threads are told first and waited for then, so that it takes as long as the slowest."""
        with self._changing:
            with self._lock:
                states = list(self._brokers.items())
                self._is_shut_down = True
            for _, state in states:
                state.thread.initiate_shutdown()
            for broker_id, state in states:
                self._remove(broker_id, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # ---- sending

    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None:
        """Queue a request. To a broker without a channel it is not sent, which is logged and told to ``on_dropped``.

        Args:
            broker_id: To whom.
            request: What.
            callback: Takes the response, also one with an error code, on the broker's send thread.
        """
        try:
            request.build(request.latest_version)  # now, so that what waits is bytes and not objects
        except KprotoError as e:
            self._log.warning("%s cannot be encoded, broker %d will not get it: %s", request, broker_id, e)
        item = (request, callback, self._clock.milliseconds())
        state = self._brokers.get(broker_id)
        if state is not None:
            # No lock: send threads pass here for every request. Whoever finds a request in the queue of a broker that
            # is removed, this thread or the removing one, takes it out, so that none is lost or told of twice.
            state.queue.put(item)
            if state.is_removed:
                self._drop(broker_id, _drain(state))
            return
        self._log.warning(
            "not sending %s from controller %d with controller epoch %d and broker epoch %d: broker %d is offline%s",
            api_name(request.api_key),
            self.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            broker_id,
            ", as the channel manager is shut down" if self._is_shut_down else "",
        )
        self._drop(broker_id, [QueueItem(*item)])

    # ---- the inside

    def _new_broker(self, broker: Broker) -> _BrokerState:
        config = self._config
        listener = (
            config.control_plane_listener_name
            or config.inter_broker_listener_name
            or config.security_inter_broker_protocol
        )
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            raise BrokerNotAvailable(f"{broker} has no listener {listener} for the controller to talk to")
        node = Node(broker.id, endpoint.host, endpoint.port, broker.rack)
        client = self._plaintext_client(node) if self._client_factory is None else self._client_factory(node)
        tags = {"broker-id": str(broker.id)}
        timer = self.metrics.timer(GROUP, _RATE_AND_TIME, tags, "How long requests wait, and how many there are")
        queue: RequestQueue = Outbox(self._clock.milliseconds, timer.record)
        self.metrics.gauge(GROUP, _QUEUE_SIZE, queue.__len__, tags, "Requests that wait")
        thread = RequestSendThread(
            send_thread_name(self.controller_id, broker.id, self._prefix),
            self.controller_id,
            self._controller_epoch,
            queue,
            client,
            node,
            config.controller_socket_timeout_ms,
            self._state_log,
            DirectConversation(client, node.key, queue) if self._client_factory is None else None,
        )
        return _BrokerState(node, client, queue, thread)

    def _plaintext_client(self, node: Node) -> NetworkClient:
        config = self._config
        selector = Selector(
            clock=self._clock,
            metrics=SelectorMetrics(self.metrics, _PREFIX, {"broker-id": node.key}),
            recorder=self._recorder,
        )
        return NetworkClient(
            selector,
            ManualMetadataUpdater([node]),
            str(self.controller_id),
            max_in_flight=1,
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
            request_timeout_ms=config.request_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            discover_versions=False,
            clock=self._clock,
        )

    def _add(self, state: _BrokerState) -> None:
        with self._lock:
            self._brokers[state.node.id] = state
            self._is_shut_down = False
        try:
            state.thread.start()
        except BaseException:
            self._remove(state.node.id, state)  # a channel without its thread would take requests for ever
            raise

    def _remove(self, broker_id: int, state: _BrokerState) -> None:
        if threading.current_thread() is state.thread:
            raise IllegalState(f"a callback cannot remove its own broker {broker_id}; do it on another thread")
        tags = {"broker-id": str(broker_id)}
        try:
            state.thread.shutdown()  # the client is its own until it has ended
            state.queue.close()
            state.client.close()
            state.is_removed = True
            dropped = _drain(state)
            if state.thread.undelivered is not None:
                dropped.insert(0, state.thread.undelivered)
            with self._lock:
                self.metrics.remove(GROUP, _QUEUE_SIZE, tags)
                self.metrics.remove(GROUP, _RATE_AND_TIME, tags)
                self.metrics.remove(f"{_PREFIX}-metrics", None, tags)
                del self._brokers[broker_id]
            if dropped:
                self._log.warning("broker %d is removed: %d requests will not be sent", broker_id, len(dropped))
            self._drop(broker_id, dropped)
        except Exception:  # noqa: BLE001  (the other brokers must be removed too)
            self._log.exception("broker %d could not be removed", broker_id)

    def _drop(self, broker_id: int, items: list[QueueItem]) -> None:
        if not items:
            return
        with self._lock:
            self.dropped += len(items)
        if self._on_dropped is not None:
            self._on_dropped(broker_id, items)

    def _total_queue_size(self) -> int:
        with self._lock:
            return sum(len(state.queue) for state in self._brokers.values())


def _drain(state: _BrokerState) -> list[QueueItem]:
    """What waits, oldest first."""
    return [QueueItem(*item) for item in state.queue.drain()]
