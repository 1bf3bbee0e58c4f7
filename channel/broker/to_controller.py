"""A broker's channel to the active controller, found by its metadata; requests are retried after a controller change.

Each broker has a ``NodeToControllerChannel``, a queue and a connection of its own. One ``NodeToControllerThread``
serves the channels of any number of brokers over one client, so that a fleet costs one thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from channel.clock import FOREVER
from channel.errors import ClientClosed, IllegalState
from channel.locks import guards, guards_changes, new_lock
from channel.logs import bounded
from channel.network.client import MetadataUpdater
from channel.network.node_client import new_client
from channel.network.request import ClientRequest, ClientResponse
from channel.network.secured import client_channels
from channel.network.selector_metrics import SelectorMetrics
from channel.threads import FatalExit, StoppableThread
from channel.types import Node, SecurityProtocol
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.network.client import NetworkClient
    from channel.network.request import RequestBuilder
    from channel.security import SecurityConfig

    from .metadata_cache import MetadataCache

_RECONNECT_BACKOFF_MS: Final = 50
_NO_CONTROLLER_MS: Final = 100
"""The wait before the next search while no controller is known."""


@dataclass(frozen=True, slots=True)
class ControllerInformation:
    """The active controller as a broker knows it.

    Attributes:
        node: The controller's address; None if no controller is known, or its broker is not alive.
        listener: The listener's name.
        is_zookeeper: Whether the controller is elected in ZooKeeper; false for a KRaft controller.
        sasl_mechanism: The SASL mechanism of that listener; None for that of the broker's security settings.
    """

    node: Node | None
    listener: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    is_zookeeper: bool = True
    sasl_mechanism: str | None = None


ControllerProvider: TypeAlias = "Callable[[], ControllerInformation]"
"""Returns the present controller; must not block."""


def controller_of_metadata(
    metadata: MetadataCache,
    listener: str,
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    quorum: Callable[[], ControllerInformation | None] = lambda: None,
    sasl_mechanism: str | None = None,
) -> ControllerProvider:
    """Make the provider of the controller that sent the last UpdateMetadata, if its broker is alive.

    Args:
        metadata: The broker's metadata cache.
        listener: The control-plane listener's name, or the inter-broker listener's where there is none.
        quorum: Provides the KRaft controller, once one has sent an UpdateMetadata; None while no quorum is known.
    """
    nobody = ControllerInformation(None, listener, security_protocol, sasl_mechanism=sasl_mechanism)

    def provide() -> ControllerInformation:
        snapshot = metadata.snapshot
        controller = snapshot.controller
        if controller is None:
            return nobody
        if controller.is_kraft:
            return quorum() or nobody
        broker = snapshot.alive_brokers.get(controller.id)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            return nobody
        return replace(nobody, node=Node(broker.id, endpoint.host, endpoint.port, broker.rack, listener))

    return provide


def broker_of(node_id: str) -> str:
    """Return the broker that a connection to a controller belongs to, its requests' client id as in Kafka."""
    return node_id.partition("-")[0]


class _Item(NamedTuple):
    """A queued request."""

    builder: RequestBuilder
    on_complete: Callable[[ClientResponse], None]
    on_timeout: Callable[[], None]
    created_ms: int


class _ControllerNode(Node):
    """The controller at the end of one broker's own connection: its key is not shared by two brokers."""

    key = ""


class NodeToControllerChannel:
    """One broker's queue of requests to its controller; ``NodeToControllerThread.channel`` makes it.

    A request is retried, with each controller that the provider names, until it is answered or older than the retry
    timeout. At most one request is in flight.

    Args:
        thread: The thread that serves the channel.
        broker_id: The broker that sends the requests.
        provider: Returns the broker's controller.
        retry_timeout_ms: The age at which a queued request ends with ``on_timeout``; ``FOREVER`` for never.

    Attributes:
        broker_id: The broker that sends the requests.
        active_controller: The controller that requests go to, None while none is known.
    """

    def __init__(
        self, thread: NodeToControllerThread, broker_id: int, provider: ControllerProvider, retry_timeout_ms: int
    ) -> None:
        self.broker_id = broker_id
        self.active_controller: Node | None = None
        self.provider = provider
        self._thread = thread
        self._retry_timeout_ms = retry_timeout_ms
        self._queue: deque[_Item] = deque()
        self._in_flight: tuple[Node, _Item] | None = None
        self._closed = False
        self._provider_has_failed = False

    @property
    def queue_size(self) -> int:
        """The number of queued requests, without the one in flight."""
        return len(self._queue)

    # ---- for any thread

    def send_request(
        self,
        builder: RequestBuilder,
        on_complete: Callable[[ClientResponse], None],
        on_timeout: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a request.

        Args:
            builder: Makes the body.
            on_complete: Takes the response, on the thread: the answer, a version mismatch, a failed authentication, or
                the error of a request that cannot be written, or whose thread has ended.
            on_timeout: Called on the thread instead of ``on_complete``, if the request became too old.

        Raises:
            IllegalState: The thread has not been started or has ended, or this channel is closed.
        """
        item = _Item(builder, on_complete, on_timeout, self._thread.client.clock.milliseconds())
        refusal = "its channel is closed" if self._closed else self._thread.enqueue(self, item)
        if refusal is not None:
            raise IllegalState(f"broker {self.broker_id} cannot ask its controller: {refusal}")

    def close(self) -> None:
        """Drop all requests, queued and in flight, without any callback, and end the connection."""
        self._closed = True
        self._thread.release(self)

    # ---- for the thread

    def append(self, item: _Item) -> None:
        """Append a request to the queue, under the thread's lock."""
        self._queue.append(item)

    def look_for_controller(self, information: ControllerInformation) -> bool:
        """Note the controller that the provider found; false if none is known."""
        if information.node is None:
            return False
        node = _ControllerNode(*information.node)
        node.key = f"{self.broker_id}-to-controller-{node.id}"
        self.active_controller = node
        return True

    def next_request(self, now: int) -> tuple[Node, ClientRequest] | None:
        """Return the next request to send and its destination; requests that are too old end here."""
        for _ in range(len(self._queue)):  # not those that are queued meanwhile
            item = self._queue[0]
            if now - item.created_ms >= self._retry_timeout_ms:
                self._queue.popleft()
                self._thread.guard(item.on_timeout)
            elif self.active_controller is None or self._in_flight is not None:
                return None
            else:
                node = self.active_controller
                self._in_flight = node, self._queue.popleft()
                return node, self._thread.client.new_request(
                    node.key, item.builder, callback=self._answered, created_ms=item.created_ms
                )
        return None

    def fail(self, error: BaseException) -> None:
        """End the request in flight with an error, before another request goes out."""
        flying = self._forget_in_flight()
        if flying is not None:
            self._end(flying[1], error)

    def fail_all(self, error: BaseException) -> None:
        """End all requests with an error, as the thread has ended."""
        self.fail(error)
        while self._queue:
            self._end(self._queue.popleft(), error)

    def _end(self, item: _Item, error: BaseException) -> None:
        request = ClientRequest("", item.builder, -1, item.created_ms, 0, item.on_complete)
        now = self._thread.client.clock.milliseconds()
        self._thread.guard(ClientResponse(request, now, error=error).complete)

    def find_controller(self) -> ControllerInformation | None:
        """Ask the provider for the controller; None if it fails, which costs no other broker."""
        try:
            found = self.provider()
        except Exception:
            if not self._provider_has_failed:
                self._thread.log.exception("broker %d cannot look for its controller", self.broker_id)
            self._provider_has_failed = True
            return None
        self._provider_has_failed = False
        return found

    def retry_later(self) -> None:
        """Put the request in flight back at the head of the queue, and look for the controller again."""
        flying = self._forget_in_flight()
        if flying is not None and not self._closed:
            self._queue.appendleft(flying[1])
            self._thread.attend(self, wakes=False)

    def forget(self) -> Node | None:
        """Drop all requests; returns the node to which there may be a connection."""
        node = self.active_controller
        flying = self._forget_in_flight()
        self._queue.clear()
        return node if flying is None else flying[0]

    def _forget_in_flight(self) -> tuple[Node, _Item] | None:
        flying = self._in_flight
        self._in_flight = self.active_controller = None
        self._thread.unsent.pop(self, None)
        return flying

    def _answered(self, response: ClientResponse) -> None:
        if self._in_flight is None:
            return
        node, item = self._in_flight
        log = self._thread.log
        if response.authentication_error is not None:
            log.error("broker %d is not accepted by %s: %s", self.broker_id, node, response.authentication_error)
            self._thread.client.disconnect(node.key)
            self.active_controller = None
        elif response.version_mismatch is not None:
            log.error("broker %d cannot ask %s: %s", self.broker_id, node, response.version_mismatch)
        elif response.disconnected:
            self.retry_later()
            return
        elif response.body is not None and ErrorCode.NOT_CONTROLLER in response.body.error_counts():
            log.info("broker %d: %s is not the controller any more", self.broker_id, node)
            self._thread.client.disconnect(node.key)
            self.retry_later()
            return
        self._in_flight = None
        if self._queue:
            self._thread.attend(self)
        item.on_complete(response)


class NodeToControllerThread(StoppableThread):
    """Serves the node-to-controller channels of one or many brokers, as Kafka's ``InterBrokerSendThread`` does.

    A request whose controller cannot be reached, or is not ready within the request timeout, ends with a disconnected
    response, after which its channel looks for the controller again.

    As in Kafka the client id of a broker's requests is its id, and its metrics are the group ``<group>-metrics`` with
    the tag ``BrokerId``.

    Args:
        name: The thread's name.
        group: Names the group of the metrics, e.g. ``alter-partition``.
        config: The size of answers, and the time limits of connections and requests: a request may wait so long for
            its controller, and then for its answer.
        security: Certificates and credentials.
        controller: The kind of controller that the first client is for.
        metrics: The metrics of the brokers' connections go here.
        reconnect_backoff_max_ms: The longest wait before another connection to a controller.

    Attributes:
        client: The client, which may be replaced between two polls; other threads may only wake it.
        unsent: The requests that wait for their connections, with their destinations; for this thread alone.
        error: The error that has ended the thread: its owner ends the process, as Kafka does.
    """

    def __init__(
        self,
        name: str,
        group: str,
        config: ChannelConfig,
        security: SecurityConfig,
        controller: ControllerInformation,
        metrics: Metrics | None = None,
        *,
        reconnect_backoff_max_ms: int = _RECONNECT_BACKOFF_MS,
    ) -> None:
        super().__init__(name, exit_procedure=lambda status: None)  # its owner sees ``error``, and ends the process
        self._group = group
        self._config = config
        self._security = security
        self._metrics = metrics
        self._metrics_of: dict[str, SelectorMetrics] = {}
        self._reconnect_backoff_max_ms = reconnect_backoff_max_ms
        self.client = self.new_client(controller)
        self.unsent: dict[NodeToControllerChannel, tuple[Node, ClientRequest]] = {}
        self._is_over = False
        self._is_for_zookeeper = controller.is_zookeeper
        self._channels: dict[int, NodeToControllerChannel] = {}
        self._waiting: dict[NodeToControllerChannel, None] = {}  # channels with queued requests
        self._released: deque[NodeToControllerChannel] = deque()
        self._lock = new_lock("controller channels")

    def new_client(self, information: ControllerInformation) -> NetworkClient:
        """Make a client for this kind of controller."""
        security, config = self._security, self._config
        if information.sasl_mechanism is not None:
            security = replace(security, sasl_mechanism=information.sasl_mechanism)
        channels = client_channels(SecurityProtocol(information.security_protocol), security, broker_of)
        return new_client(
            config,
            channels,
            MetadataUpdater(),
            broker_of,
            metrics_of=self._metrics_of_node,
            max_in_flight=1,
            reconnect_backoff_ms=_RECONNECT_BACKOFF_MS,
            reconnect_backoff_max_ms=self._reconnect_backoff_max_ms,
            request_timeout_ms=config.controller_socket_timeout_ms,
        )

    def _metrics_of_node(self, node_id: str) -> SelectorMetrics | None:
        broker = broker_of(node_id)
        if self._metrics is not None and broker not in self._metrics_of:
            self._metrics_of[broker] = SelectorMetrics(self._metrics, self._group, {"BrokerId": broker})
        return self._metrics_of.get(broker)

    # ---- for any thread

    @property
    def is_serving(self) -> bool:
        """Whether requests can be queued: from the start until the thread has ended, whatever ended it."""
        return self._refusal() is None

    def _refusal(self) -> str | None:
        """Why no request can be queued, None if one can."""
        if self.error is not None:
            return f"{self.name} was ended by an error: {str(self.error) or type(self.error).__name__}"
        if self._is_over:
            return f"{self.name} has ended"
        return None if self._was_started else "the thread has not been started"

    def channel(self, broker_id: int, provider: ControllerProvider, retry_timeout_ms: int) -> NodeToControllerChannel:
        """Make a broker's channel; the broker's earlier channel, if there is one, is closed."""
        earlier = self._channels.get(broker_id)
        if earlier is not None:
            earlier.close()
        made = self._channels[broker_id] = NodeToControllerChannel(self, broker_id, provider, retry_timeout_ms)
        return made

    def enqueue(self, channel: NodeToControllerChannel, item: _Item) -> str | None:
        """Queue a request of a channel; returns why it cannot be queued, None if it was."""
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                channel.append(item)
                self._waiting[channel] = None
        self.client.wakeup()
        return refusal

    def attend(self, channel: NodeToControllerChannel, *, wakes: bool = True) -> None:
        """Note that a channel has queued requests; a retry must not wake the thread, whose poll waits for back-off."""
        with self._lock:
            self._waiting[channel] = None
        if wakes:
            self.client.wakeup()

    def release(self, channel: NodeToControllerChannel) -> None:
        """Forget a closed channel."""
        if self._channels.get(channel.broker_id) is channel:
            del self._channels[channel.broker_id]
        self._released.append(channel)
        self.client.wakeup()

    # ---- on this thread

    def do_work(self) -> None:
        """Look for the controllers that requests wait for; if none was found just now, send and poll for answers.

        Raises:
            FatalExit: The poll failed, and not because this thread is ending.
        """
        while self._released:
            self._forget(self._released.popleft())
        timeout_ms, found = FOREVER, False
        for channel in self._attended():
            information = channel.find_controller()
            if information is None:
                timeout_ms = _NO_CONTROLLER_MS
                continue
            if information.is_zookeeper != self._is_for_zookeeper:
                self._replace_client(information)
            if channel.active_controller is not None:
                continue
            if channel.look_for_controller(information):
                self.log.info("broker %d asks the controller at %s", channel.broker_id, channel.active_controller)
                found = True
            else:
                timeout_ms = _NO_CONTROLLER_MS
        if found:  # the requests go out in the next round
            return
        try:
            self._poll(timeout_ms)
        except ClientClosed:
            if self.client.active:
                self.log.exception("disconnected though the client is active")
                raise FatalExit from None
        except Exception as e:
            self.log.exception("the network client failed")
            raise FatalExit from e

    def _attended(self) -> list[NodeToControllerChannel]:
        with self._lock:
            return list(self._waiting)

    def _poll(self, timeout_ms: int) -> None:
        """Send what can be sent, wait for answers, and end the requests that cannot be delivered."""
        client = self.client
        now = client.clock.milliseconds()
        for channel in self._attended():
            request = channel.next_request(now)
            with self._lock:
                if not channel.queue_size:
                    self._waiting.pop(channel, None)
            if request is not None:
                self.unsent[channel] = request
        for channel, (node, unsent) in list(self.unsent.items()):
            try:
                if client.ready(node):
                    del self.unsent[channel]
                    client.send(unsent)
                else:
                    timeout_ms = min(timeout_ms, client.connection_delay(node))
            except ClientClosed:
                raise
            except Exception as e:
                self.log.exception("broker %d cannot send %s", channel.broker_id, bounded(str(unsent)))
                channel.fail(e)
                self.attend(channel)
        client.poll(timeout_ms)
        now = client.clock.milliseconds()
        for channel, (node, unsent) in list(self.unsent.items()):
            has_failed = client.connection_failed(node)
            if has_failed or now - unsent.created_ms > unsent.timeout_ms:
                del self.unsent[channel]
                error = client.authentication_error(node) if has_failed else None
                ended = ClientResponse(unsent, now, disconnected=True, authentication_error=error)
                self.guard(ended.complete)

    def guard(self, callback: Callable[[], None]) -> None:
        """Call a callback; its error does not affect other brokers."""
        try:
            callback()
        except Exception:
            self.log.exception("a callback failed")

    def _replace_client(self, information: ControllerInformation) -> None:
        """Close the client and make a client for the other kind of controller; requests in flight are sent again."""
        kind = "ZooKeeper" if information.is_zookeeper else "KRaft"
        self.log.info("the controller is now elected by %s: connecting anew", kind)
        old = self.client
        self._is_for_zookeeper = information.is_zookeeper
        self.client = self.new_client(information)
        self.unsent.clear()
        for channel in list(self._channels.values()):
            channel.retry_later()
        old.initiate_close()
        old.close()
        if not self.is_running:
            self.client.initiate_close()

    def _forget(self, channel: NodeToControllerChannel) -> None:
        with self._lock:
            self._waiting.pop(channel, None)
        node = channel.forget()
        if node is not None:
            self.client.forget_node(node.key)

    # ---- ending ------------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End a waiting poll."""
        self.client.initiate_close()

    def ended(self) -> None:
        """End all requests that wait, refuse new ones, and close the client."""
        with self._lock:
            self._is_over = True
            waiting = list(self._channels.values())
        error = self.error or IllegalState(f"{self.name} has ended")
        if self.error is not None:
            self.log.critical("no broker can ask its controller any more: %s", self.error)
        for channel in waiting:
            channel.fail_all(error)
        self.client.close()

    def forget_in_child(self) -> None:
        """Count as ended in a forked child."""
        super().forget_in_child()
        self._lock = new_lock("controller channels")
        with self._lock:
            self._is_over = True
        self.client.abandon()
        self.unsent.clear()


guards(NodeToControllerThread, "_lock", "_waiting")
guards_changes(NodeToControllerThread, "_lock", "_is_over")
