"""The controller's channel manager: a request queue for each broker, and send threads that deliver the requests."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from channel.clock import SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, IllegalState
from channel.locks import guards_calls, guards_changes, new_lock, new_reentrant_lock
from channel.logs import get_logger
from channel.metrics import Metrics
from channel.network.node_client import new_client
from channel.network.secured import client_channels
from channel.network.selector_metrics import PollTimes, SelectorMetrics
from channel.security import MECHANISMS
from channel.threads import Closeable, close_all, ends_with_process
from channel.types import Node, SecurityProtocol
from kproto.api import CONTROL_APIS, ApiKey, api_name, control_versions
from kproto.errors import ConfigurationError, KprotoError

from .encoded_requests import ControlRequest, ListenerNotExpressible, SingleRequest
from .send_thread import BrokerRequests, DroppedRequest, Outcome, QueueItem, RequestSendThread
from .state_change_log import StateChangeLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from channel.network.client import MetadataUpdater, NetworkClient
    from channel.network.recorder import Recorder
    from channel.security import SecurityConfig
    from channel.types import Broker
    from kproto.codec import Message
    from kproto.messages import (
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        StopReplicaRequest,
        StopReplicaResponse,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
    )

GROUP: Final = "kafka.controller:type=ControllerChannelManager"
_QUEUE_SIZE: Final = "QueueSize"
_RATE_AND_TIME: Final = "RequestRateAndQueueTimeMs"
_PREFIX: Final = "controller-channel"


@dataclass(slots=True)
class _BrokerState:
    requests: BrokerRequests
    serving: ServingThread
    metrics: SelectorMetrics


class ControllerChannelManager(Closeable):
    """Sends control requests to brokers; also a context manager, which shuts down at its end.

    Any thread may call it. A callback runs on its broker's send thread, before the next request of that broker is
    sent: it may send, but not add or remove brokers, and it must not block, as the thread serves other brokers too
    (the metrics ``CallbackTimeMsMax`` and ``CallbackTimeMsMean`` show it).

    Args:
        controller_id: The controller's broker id: names threads, and the client id in every header.
        controller_epoch: Returns the controller's epoch, for the log.
        config: Timeouts and listeners.
        metrics: Takes queue sizes and times, and the selectors' metrics.
        send_threads: The number of threads that serve the brokers; that of ``config`` if None.
        on_dropped: Called, in place of their callbacks, with a broker's id and its requests that will not be answered,
            oldest first, once no more of their bytes are sent: dropped as their broker was removed or unknown, as they
            cannot be encoded, or as their send thread has died.
        on_thread_failed: Called with a send thread that has died of an error, and the ids of its brokers.
        recorder: Records every frame.

    Attributes:
        metrics: The metrics, as given or new.
        dropped: The number of requests dropped so far.
        possibly_applied: The number of those that were sent, so that the broker may have applied them.
        failed_threads: The names of the send threads that have died.

    Raises:
        ConfigurationError: The security protocol between brokers is not served.
    """

    def __init__(
        self,
        controller_id: int,
        controller_epoch: Callable[[], int],
        config: ChannelConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        *,
        send_threads: SendThreads | None = None,
        on_dropped: Callable[[int, list[DroppedRequest]], None] | None = None,
        on_thread_failed: Callable[[str, list[int]], None] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.controller_id = controller_id
        self.dropped = self.possibly_applied = 0
        self.failed_threads: list[str] = []
        self._controller_epoch = controller_epoch
        self._config = config = config or ChannelConfig()
        self._listener = config.control_plane_listener_name or config.inter_broker_listener
        self._protocol = config.protocol_of(self._listener)
        self._channels = client_channels(self._protocol, _inter_broker_security(config), str(controller_id))
        self._recorder = recorder
        self._versions = control_versions(config.inter_broker_protocol_version)
        self._on_dropped = on_dropped
        self._dropping = new_lock("dropped requests")
        self._clock = clock
        self.metrics = Metrics(clock) if metrics is None else metrics
        self._state_log = StateChangeLog(controller_id)
        self._on_thread_failed = on_thread_failed
        self._log = get_logger(__name__, f"[Channel manager on controller {controller_id}]")
        if send_threads is None:
            send_threads = "per_broker" if config.send_threads == "per_broker" else int(config.send_threads)
        self._threads = SendThreadPool(send_threads, f"Controller-{controller_id}", clock, self._new_thread)
        self._brokers: dict[int, _BrokerState] = {}
        self._lock = new_lock("brokers by id")
        self._changing = new_reentrant_lock(
            "changes of brokers"
        )  # for adding and removing brokers, which may take long
        self._is_shut_down = False
        self._publish()
        ends_with_process(self)

    def _publish(self) -> None:
        threads = self._threads
        gauges: dict[str, tuple[Callable[[], float], str]] = {
            "TotalQueueSize": (self._total_queue_size, "Requests that wait for any broker"),
            "DroppedRequests": (lambda: self.dropped, "Requests that will not be answered"),
            "PossiblyAppliedRequests": (lambda: self.possibly_applied, "Dropped requests that were sent"),
            "FailedSendThreads": (lambda: len(self.failed_threads), "Send threads that have died of an error"),
            "CallbackTimeMsMax": (threads.callback_ms_max, "Longest time that a callback held its send thread up"),
            "CallbackTimeMsMean": (threads.callback_ms_mean, "Mean time that callbacks held their send threads up"),
        }
        for name, (read, doc) in gauges.items():
            self.metrics.gauge(GROUP, name, read, doc=doc)

    # ---- brokers

    @property
    def broker_ids(self) -> list[int]:
        """The ids of the brokers that have a channel."""
        with self._lock:
            return sorted(self._brokers)

    def start(self, initial_brokers: Iterable[Broker]) -> None:
        """Open channels to these brokers.

        Raises:
            BrokerNotAvailable: A broker does not have the controller's listener; the brokers before it have their
                channels, the brokers after it do not.
        """
        with self._changes(None):
            for broker in initial_brokers:
                self.add_broker(broker)

    def add_broker(self, broker: Broker) -> None:
        """Open a channel; does nothing if this id has one already, even to another address.

        Raises:
            BrokerNotAvailable: The broker does not have the listener that the controller talks to.
            IllegalState: The caller is a callback on a send thread.
        """
        with self._changes(None):
            if broker.id not in self._brokers:
                self._add(broker)

    def remove_broker(self, broker_id: int) -> None:
        """Close a broker's channel: its connection, its queue, its metrics, and its thread if that serves no other.

        A failure on the way is logged; the broker has no channel any more in any case.

        Raises:
            BrokerNotAvailable: The broker has no channel.
            IllegalState: The caller is a callback on a send thread, which would wait for itself.
        """
        with self._changes(None):
            state = self._brokers.get(broker_id)
            if state is None:
                raise BrokerNotAvailable(f"controller {self.controller_id} has no channel to broker {broker_id}")
            self._remove(broker_id, state)

    def close(self, timeout_s: float | None = None) -> None:
        """Close all channels; takes as long as the slowest send thread, and at most ``timeout_s``. Harmless if closed.

        A send thread that a callback blocks ends after that callback; a line in the log names it.

        Raises:
            IllegalState: The caller is a callback on a send thread, or another thread has been adding or removing a
                broker for ``timeout_s``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changes(timeout_s):
            with self._lock:
                states = list(self._brokers.items())
                self._is_shut_down = True
            self._threads.initiate_shutdown()
            for broker_id, state in states:
                self._remove(broker_id, state, deadline)

    @contextlib.contextmanager
    def _changes(self, timeout_s: float | None) -> Iterator[None]:
        """Hold the lock for adding and removing brokers, which waits for send threads.

        Raises:
            IllegalState: The caller is a callback on a send thread, for which another thread may be waiting with this
                lock; or the lock was not free within ``timeout_s``.
        """
        if self._threads.has_current_thread:
            raise IllegalState(
                "a callback cannot add or remove brokers, nor shut its own channel manager down; "
                "do it on another thread"
            )
        if not self._changing.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise IllegalState(f"another thread has been adding or removing a broker for {timeout_s:g} s; try again")
        try:
            yield
        finally:
            self._changing.release()

    def forget_in_child(self) -> None:
        """Drop all brokers in a forked child: threads and connections are the parent's."""
        self._lock, self._changing = new_lock("brokers by id"), new_reentrant_lock("changes of brokers")
        self._dropping = new_lock("dropped requests")
        with self._lock:
            self._is_shut_down = True
            self._brokers = {}
        self._threads.forget()

    # ---- sending

    @overload
    def send_request(
        self,
        broker_id: int,
        request: LeaderAndIsrRequest,
        callback: Callable[[LeaderAndIsrResponse], None] | None = None,
    ) -> None: ...
    @overload
    def send_request(
        self,
        broker_id: int,
        request: StopReplicaRequest,
        callback: Callable[[StopReplicaResponse], None] | None = None,
    ) -> None: ...
    @overload
    def send_request(
        self,
        broker_id: int,
        request: UpdateMetadataRequest,
        callback: Callable[[UpdateMetadataResponse], None] | None = None,
    ) -> None: ...
    @overload
    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None: ...
    def send_request(self, broker_id: int, request: Any, callback: Callable[[Any], None] | None = None) -> None:
        """Queue a request. If the broker has no channel, the request is logged and passed to ``on_dropped``.

        Args:
            request: A message, sent in the version of ``inter.broker.protocol.version``, or a ``SingleRequest`` in its
                own version.
            callback: Takes the response, even one with an error code, on the broker's send thread.

        Raises:
            EncodeError, UnsupportedVersion: The request cannot be encoded; it is passed to ``on_dropped`` too.
            TypeError: ``request`` is not one of the three control requests.
        """
        if not hasattr(request, "build"):
            request = self.versioned(request)
        try:
            request.build(request.latest_version)  # encoded now, so that queues hold bytes and not objects
        except ListenerNotExpressible:
            pass  # the send thread says so, and retries it
        except KprotoError as e:
            self._log.error("%s cannot be encoded, broker %d will not get it: %s", request, broker_id, e)
            item = DroppedRequest(request, callback, self._clock.milliseconds(), Outcome.NOT_SENT, e)
            self._drop(broker_id, [item])
            raise
        queued = QueueItem(request, callback, self._clock.nanoseconds() // 1_000_000)
        state = self._brokers.get(broker_id)
        if state is not None and state.requests.put(queued):
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
        self._drop(broker_id, [queued.dropped(Outcome.NOT_SENT)])

    def versioned(self, message: Message) -> SingleRequest:
        """Make the request of a message, in the version of ``inter.broker.protocol.version``.

        Raises:
            TypeError: The message is not one of the three control requests.
        """
        api_key = message.api_key if message.api_key in CONTROL_APIS else ApiKey.UPDATE_METADATA
        return SingleRequest(message, self._versions.of(api_key))

    # ---- the inside

    def _drop(self, broker_id: int, items: list[DroppedRequest]) -> None:
        """Count requests that will not be answered, oldest first, and report them; an error of the hook is logged."""
        if not items:
            return
        with self._dropping:
            self.dropped += len(items)
            self.possibly_applied += sum(item.outcome is Outcome.POSSIBLY_APPLIED for item in items)
        if self._on_dropped is not None:
            try:
                self._on_dropped(broker_id, items)
            except Exception:  # noqa: BLE001  (a hook must cost neither a send thread nor a removal)
                self._log.exception("the hook for dropped requests failed")

    def _node(self, broker: Broker) -> Node:
        """Return the address of the broker's listener that the controller talks to.

        The security protocol of the connection is that of the controller's own settings. Another protocol in the
        broker's registration is logged, and never used: it could make the controller send its password in clear.

        Raises:
            BrokerNotAvailable: The broker does not have the listener that the controller talks to.
        """
        listener = self._listener
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            raise BrokerNotAvailable(f"{broker} has no listener {listener} for the controller to talk to")
        if endpoint.security_protocol != self._protocol:
            self._log.warning(
                "broker %d has registered listener %s with security protocol %s; the controller connects with %s, "
                "as its own settings say (security.inter.broker.protocol, listener.security.protocol.map)",
                broker.id, listener, SecurityProtocol.name_of(endpoint.security_protocol), self._protocol.name,
            )  # fmt: skip
        return Node(broker.id, endpoint.host, endpoint.port, broker.rack, listener)

    def _new_client(self, metadata: MetadataUpdater, polls: PollTimes) -> NetworkClient:
        """Make a send thread's client, whose polls are counted."""
        return new_client(
            self._config,
            self._channels,
            metadata,
            str(self.controller_id),
            clock=self._clock,
            metrics_of=self._selector_metrics,
            polls=polls,
            recorder=self._recorder,
            max_in_flight=1,
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
            discover_versions=False,
        )

    def _add(self, broker: Broker) -> None:
        node = self._node(broker)
        while not self._add_to(self._threads.for_broker(broker.id), broker, node):
            pass  # that thread has died just now

    def _add_to(self, serving: ServingThread, broker: Broker, node: Node) -> bool:
        """Assign a new broker to a send thread; false if the thread has died."""
        tags = {"broker-id": node.key}
        timer = self.metrics.timer(GROUP, _RATE_AND_TIME, tags, "How long requests wait, and how many there are")
        requests = BrokerRequests(node, serving.thread, timer, self._undeliverable)
        self.metrics.gauge(GROUP, _QUEUE_SIZE, requests.__len__, tags, "Requests that wait")
        selector_metrics = SelectorMetrics(self.metrics, _PREFIX, tags, polls=serving.polls)
        state = _BrokerState(requests, serving, selector_metrics)
        with self._lock:  # the report of a thread's death has this broker too, or the broker gets another thread
            is_served = not serving.thread.has_died
            if is_served:
                self._brokers[broker.id] = state
                self._is_shut_down = False
                serving.brokers += 1
                serving.thread.brokers[node.key] = requests
        if not is_served:
            self._unpublish(state, tags)
            return False
        try:
            if not serving.thread.ident:
                serving.thread.start()
        except BaseException:
            self._remove(broker.id, state)  # a channel without its thread would queue requests for ever
            raise
        return True

    def _new_thread(self, name: str, polls: PollTimes) -> RequestSendThread:
        return RequestSendThread(
            name,
            self.controller_id,
            self._controller_epoch,
            partial(self._new_client, polls=polls),
            self._config.controller_socket_timeout_ms,
            self._state_log,
            self._thread_failed,
        )

    def _selector_metrics(self, node_id: str) -> SelectorMetrics | None:
        state = self._brokers.get(int(node_id))
        return None if state is None else state.metrics

    def _remove(self, broker_id: int, state: _BrokerState, deadline: float | None = None) -> None:
        """Close a broker's channel, its thread at the latest at ``deadline``; a part that fails stops no other."""
        serving = state.serving
        tags = {"broker-id": str(broker_id)}
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())

        def end_requests() -> None:
            dropped = state.requests.close()
            if dropped:
                self._log.warning("broker %d is removed: %d requests will not be answered", broker_id, len(dropped))
            self._drop(broker_id, dropped)

        def forget() -> None:
            with self._lock:
                del self._brokers[broker_id]
                serving.brokers -= 1

        try:
            close_all(
                (
                    partial(self._threads.end, serving, left_s)
                    if serving.brokers == 1
                    else partial(serving.thread.remove, state.requests, left_s)
                ),
                end_requests,
                partial(self._unpublish, state, tags),
                forget,
            )
        except Exception:  # noqa: BLE001  (the other brokers must be removed too)
            self._log.exception("broker %d was not removed cleanly", broker_id)

    def _unpublish(self, state: _BrokerState, tags: dict[str, str]) -> None:
        self.metrics.remove(GROUP, _QUEUE_SIZE, tags)
        self.metrics.remove(GROUP, _RATE_AND_TIME, tags)
        state.metrics.remove()

    def _undeliverable(self, requests: BrokerRequests, item: DroppedRequest) -> None:
        """Report a request that cannot be encoded; later requests are still sent."""
        self._log.error("%s cannot be sent to %s: %s", item.request, requests.node, item.error)
        self._drop(requests.node.id, [item])

    def _thread_failed(self, thread: RequestSendThread) -> None:
        """Report a send thread that has died, and the requests of its brokers; later requests are dropped too."""
        self.failed_threads.append(thread.name)
        with self._lock:
            brokers = self._brokers_of_dead(thread)
        ids = sorted(broker.node.id for broker in brokers)
        self._log.critical("%s has died; brokers %s get no requests until they are removed and added", thread.name, ids)
        for broker in brokers:
            self._drop(broker.node.id, [item._replace(error=thread.error) for item in broker.close()])
        if self._on_thread_failed is not None:
            self._on_thread_failed(thread.name, ids)

    def _brokers_of_dead(self, thread: RequestSendThread) -> list[BrokerRequests]:
        """Take no more brokers for a thread, and return those that it has."""
        thread.has_died = True
        return list(thread.brokers.values())

    def _total_queue_size(self) -> int:
        with self._lock:
            return sum(len(state.requests) for state in self._brokers.values())


guards_calls(ControllerChannelManager, "_changing", "_add", "_new_client", "_node", "_remove")
guards_calls(ControllerChannelManager, "_lock", "_brokers_of_dead")
guards_changes(ControllerChannelManager, "_lock", "_brokers", "_is_shut_down")
guards_changes(ControllerChannelManager, "_dropping", "dropped", "possibly_applied")


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
        controller: The controller's name, with which the threads' names begin.
        new_thread: Makes a send thread from its name and the counters of its selector's polls.

    Raises:
        ConfigurationError: The number of threads is below 1.
    """

    def __init__(
        self,
        count: SendThreads,
        controller: str,
        clock: Clock,
        new_thread: Callable[[str, PollTimes], RequestSendThread],
    ) -> None:
        if count != "per_broker" and count < 1:
            raise ConfigurationError(f"send_threads is {count}; it must be a number from 1, or 'per_broker'")
        self._count = count
        self._controller = controller
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
        by_number = [f"brokers-{number}" for number in range(len(used) + 1)]
        served = [f"broker-{broker_id}"] if self._count == "per_broker" else by_number
        names = (f"{self._controller}-to-{each}-send-thread" for each in served)
        return next((name for name in names if name not in used), "send-thread")

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
        return max((serving.thread.callbacks.longest_ns for serving in self._serving), default=0) / 1e6

    def callback_ms_mean(self) -> float:
        """The mean time that callbacks held their send threads up."""
        times = [serving.thread.callbacks for serving in self._serving]
        return sum(each.total_ns for each in times) / max(1, sum(each.count for each in times)) / 1e6

    def forget(self) -> None:
        """Drop all threads in a forked child: they are the parent's."""
        self._serving = []


def _inter_broker_security(config: ChannelConfig) -> SecurityConfig:
    """Return the security settings of connections between brokers, with the inter-broker SASL mechanism."""
    security, mechanism = config.security, config.sasl_mechanism_inter_broker_protocol
    if security.sasl_mechanism is not None or mechanism not in MECHANISMS:
        return security
    return replace(security, sasl_mechanism=mechanism)
