"""Clients that ask a cluster for its metadata: node by node, repeatedly to follow it, or for callers that wait.

The updater sends one Metadata request at a time, to the least loaded node.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import ChannelError, ClientClosed, Disconnected, RequestTimeout
from channel.logs import get_logger
from channel.network.client import MetadataUpdater
from channel.network.node_client import NodeClient, client_with_timeout, new_client
from channel.network.request import MessageRequest
from channel.network.secured import client_channels
from channel.network.selector_metrics import SelectorMetrics
from channel.security import SecurityConfig
from channel.threads import Closeable, Startable, StoppableThread
from channel.types import Node, SecurityProtocol
from kproto import messages
from kproto.errors import KprotoError

from .cluster_metadata import ClusterSnapshot, ClusterView, Metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.errors import AuthenticationFailed
    from channel.metrics import Metrics
    from channel.network.client import NetworkClient
    from channel.network.request import ClientRequest
    from kproto.errors import UnsupportedVersion
    from kproto.types import TopicPartition

    from .cluster_metadata import MetadataQuestion, PartitionInfo

_log = get_logger(__name__)

_OLDEST: Final = 4  # earlier versions would let the broker create the requested topics


def metadata_request(topics: Sequence[str] | None) -> MessageRequest:
    """Build a Metadata request for these topics, or for all, which never makes the broker create a topic."""
    asked = None if topics is None else [messages.MetadataRequestTopic(name=name) for name in topics]
    return MessageRequest(
        messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False), oldest_version=_OLDEST
    )


class DefaultMetadataUpdater(MetadataUpdater):
    """A metadata updater that follows the client's cluster by Metadata requests.

    Args:
        metadata: The cluster's metadata, shared with the threads that use the client.
        request_timeout_ms: The time limit of a Metadata request.
        reconnect_backoff_ms: The wait before another try while no node can be asked.
        rebootstraps: Begin again with the bootstrap addresses when none of the known brokers can be connected to
            (``metadata.recovery.strategy=rebootstrap``).

    Attributes:
        source: The node whose response was taken last, None before the first.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        request_timeout_ms: int = 30_000,
        reconnect_backoff_ms: int = 50,
        rebootstraps: bool = False,
    ) -> None:
        self.metadata = metadata
        self.source: Node | None = None
        self._request_timeout_ms = request_timeout_ms
        self._reconnect_backoff_ms = reconnect_backoff_ms
        self._rebootstraps = rebootstraps
        self._client: NetworkClient | None = None
        self._in_progress: MetadataQuestion | None = None

    def attach(self, client: NetworkClient) -> None:
        """Ask through this client."""
        self._client = client

    def nodes(self) -> Sequence[Node]:
        """The nodes of the cluster, or the addresses to begin with."""
        return tuple(self.metadata.snapshot.nodes.values())

    def is_update_due(self, now: int) -> bool:
        """Whether an update should go out before any other request."""
        return self._in_progress is None and self.metadata.time_to_next_update(now) == 0

    def maybe_update(self, now: int) -> int:
        """If an update is due, send a Metadata request, or begin to connect to a node.

        Returns:
            The ms until the next call; ``FOREVER`` for never.
        """
        wait = max(self.metadata.time_to_next_update(now), self._request_timeout_ms if self._in_progress else 0)
        client = self._client
        if wait or client is None:
            return wait if wait else FOREVER
        if not self.nodes():
            return self._reconnect_backoff_ms
        node, connection_ready = client.least_loaded_node()
        if node is None and not connection_ready and self._rebootstraps and not self.metadata.snapshot.is_bootstrap:
            _log.info("no known broker can be asked; beginning again with the bootstrap addresses")
            self.metadata.bootstrap()
            node = client.least_loaded_node().node
        if node is None:
            return self._reconnect_backoff_ms
        if client.can_send(node):
            question = self._in_progress = self.metadata.question(now)
            _log.debug("asking node %s for %s", node, "all topics" if question.topics is None else question.topics)
            client.send_internal_metadata_request(node.key, metadata_request(question.topics))
            return self._request_timeout_ms
        client.ready(node)  # connects, unless it does already
        return self._reconnect_backoff_ms

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Note that a connection ended or could not be made: the metadata may be outdated."""
        if self.metadata.snapshot.is_bootstrap:
            _log.warning("bootstrap node %s is disconnected", node_id)
        if self.is_update_due(now):
            self.metadata.failed_update(now)
        if error is not None:
            self.metadata.fail(error)
        self.metadata.request_update()

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """Note that the Metadata request will get no response, or got one that cannot be read."""
        self._in_progress = None
        if error is not None:
            self.metadata.fail(error)
        self.metadata.failed_update(now)

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """Take the response; without brokers it comes from a node that does not know its cluster yet."""
        question, self._in_progress = self._in_progress, None
        if question is None or not response.brokers:
            self.metadata.failed_update(now)
            return
        self.source = next((node for node in self.nodes() if node.key == request.destination), None)
        self.metadata.update(question, response, now, api_version=request.version)

    def view(self) -> ClusterView | None:
        """Return the metadata of the cluster, and the node that answered last; None before."""
        source, snapshot = self.source, self.metadata.snapshot
        return None if source is None or snapshot.is_bootstrap else ClusterView(source, snapshot)

    def close(self) -> None:
        """End the waits of all threads."""
        self.metadata.close()


class MetadataSender(StoppableThread, Startable):
    """A sender thread for callers who need to know a topic, as Kafka's producer has it; ``start`` to ``close``.

    A caller of ``wait_for_topic`` requests an update and wakes this thread. The thread's next poll sends the Metadata
    request, to the least loaded node; the response makes a new version, which wakes the caller.

    Args:
        bootstrap: Addresses to begin with.
        config: The client's settings, under Kafka's names: ``reconnect.backoff.ms``, ``retry.backoff.ms``,
            ``metadata.max.age.ms``, ``metadata.max.idle.ms``, ``max.block.ms``, ``request.timeout.ms``,
            ``max.in.flight.requests.per.connection``, ``send.buffer.bytes``, ``receive.buffer.bytes`` and others.
        protocol: The security protocol of the nodes' listener; ``config.security`` has certificates and credentials.
        client_id: Goes into every header.
        clock: The source of time.
        metrics: Takes the metrics of its connections, throttle times among them, as ``producer-metrics``.

    Attributes:
        metadata: The metadata of the topics in use.
        client: The thread's client; other threads may only wake it.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        config: ChannelConfig | None = None,
        *,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        client_id: str = "kproto",
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
    ) -> None:
        config = config or ChannelConfig()
        super().__init__(f"{client_id}-metadata-sender-thread")
        self._max_block_ms = config.max_block_ms
        self.metadata = Metadata(
            config.metadata_max_idle_ms,
            refresh_backoff_ms=config.retry_backoff_ms,
            refresh_backoff_max_ms=config.retry_backoff_max_ms,
            max_age_ms=config.metadata_max_age_ms,
            clock=clock,
        )
        self.metadata.bootstrap(bootstrap)
        self._updater = DefaultMetadataUpdater(
            self.metadata,
            request_timeout_ms=config.request_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            rebootstraps=True,
        )
        self.client = new_client(
            config,
            client_channels(protocol, config.security, client_id),
            self._updater,
            client_id,
            clock=clock,
            max_idle_ms=config.connections_max_idle_ms,
            metrics=None if metrics is None else SelectorMetrics(metrics, "producer", {"client-id": client_id}),
            max_in_flight=config.max_in_flight_requests_per_connection,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            send_buffer=config.send_buffer_bytes,
            receive_buffer=config.receive_buffer_bytes,
        )

    # ---- for any thread

    def wait_for_topic(
        self, topic: str, partition: int | None = None, *, max_block_ms: int | None = None
    ) -> tuple[int, PartitionInfo | None]:
        """Wait until a topic, or one of its partitions, is known; see ``Metadata.wait_for_topic``.

        Args:
            topic: The topic's name.
            partition: The partition that is needed; None for any.
            max_block_ms: The longest time to wait; None for ``max.block.ms``.

        Returns:
            The topic's number of partitions, and the metadata of the partition.

        Raises:
            InvalidTopic, TopicAuthorizationFailed: The cluster answered with an error of the topic.
            TopicNotKnown: The topic or partition did not become known in time.
            AuthenticationFailed: One side does not accept the other.
            IllegalState: The sender is closed.
        """
        wait_ms = self._max_block_ms if max_block_ms is None else max_block_ms
        return self.metadata.wait_for_topic(topic, wait_ms, self.client.wakeup, partition)

    def learn_epoch(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """Take a leader epoch that a broker named in another response; a newer one than known requests an update.

        Returns:
            Whether it is newer.
        """
        is_newer = self.metadata.update_last_seen_epoch(partition, leader_epoch)
        if is_newer:
            self.client.wakeup()
        return is_newer

    def leader(self, partition: TopicPartition) -> Node | None:
        """The node to send to; None if it is not known, or a newer leader epoch has been seen since."""
        is_current = self.metadata.partition_if_current(partition) is not None
        return self.metadata.snapshot.leader(partition) if is_current else None

    def view(self) -> ClusterView | None:
        """Return the metadata of the cluster and the topics in use, and the node that answered last; None before."""
        return self._updater.view()

    # ---- on this thread

    def do_work(self) -> None:
        """Send the request that is due, if any, and wait for answers or callers."""
        with contextlib.suppress(ClientClosed):
            self.client.poll(FOREVER)

    def interrupt(self) -> None:
        """End a waiting poll."""
        self.client.initiate_close()

    def ended(self) -> None:
        """Close the connections; waiting callers get an error."""
        self.client.close()

    def forget_in_child(self) -> None:
        """Count as ended in a forked child."""
        super().forget_in_child()
        self.client.abandon()


_FIRST_BACKOFF_MS = 100
_HINT = "Check host and port, and whether the listener wants TLS or SASL (security.protocol)"


class ClusterClient:
    """Asks the nodes of a cluster for metadata, one after the other, each over a connection of its own.

    Args:
        bootstrap: Addresses to begin with.
        protocol: The listener's security protocol.
        security: Certificates and credentials for that.
        client_id: Goes into every header.
        timeout_ms: The longest time that one node may take to connect, and then to answer.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        client_id: str = "kproto",
        timeout_ms: int = 10_000,
    ) -> None:
        self._bootstrap = ClusterSnapshot.of_bootstrap(bootstrap).nodes
        self._client_of = partial(
            NodeClient, client_id=client_id, protocol=protocol, security=security, timeout_ms=timeout_ms
        )

    def ask(self, node: Node, topics: Sequence[str] | None = None) -> ClusterView:
        """Ask one node for its view of these topics, or of all topics.

        Raises:
            Disconnected: The node cannot be reached, or does not answer in time.
            AuthenticationFailed: One side does not accept the other.
        """
        with self._client_of((node.host, node.port)) as client:
            return ClusterView(node, ClusterSnapshot.of_response(client.send(metadata_request(topics))))

    def ask_any(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Ask node after node, and return the view of the first that answers and knows brokers.

        Where no node knows brokers, the first view is returned.

        Raises:
            Disconnected: None of several nodes answers; the text has the error of each.
            ChannelError, KprotoError: The only node does not answer, rejects this client, or is too old.
        """
        failures: list[ChannelError | KprotoError] = []
        first: ClusterView | None = None
        for node in self._bootstrap.values():
            try:
                view = self.ask(node, topics)
            except (ChannelError, KprotoError) as e:  # wrong address, wrong protocol, too old: the next may be right
                failures.append(e)
                continue
            if view.brokers:
                return view
            first = first or view
        if first is not None:
            return first
        if len(failures) == 1 and not isinstance(failures[0], Disconnected):
            raise failures[0]
        raise Disconnected(f"no node answers: {'; '.join(map(str, failures))}. {_HINT}")

    def ask_all(self, topics: Sequence[str] | None = None) -> tuple[list[ClusterView], dict[int, str]]:
        """Ask every live broker; return the views, and the errors of brokers that gave none, by broker id."""
        views, failures = [], {}
        for broker in self.ask_any(topics).brokers:
            try:
                views.append(self.ask(broker, topics))
            except (ChannelError, KprotoError, OSError) as e:
                failures[broker.id] = str(e)
        return views, failures


class ClusterWatch(Closeable):
    """Follows a cluster through whichever of its brokers answers; close it, or use it in a ``with``.

    The first response replaces the bootstrap addresses by the cluster's brokers. When a broker disconnects, the next
    broker is asked, and when all have disconnected, the bootstrap addresses are tried again. A response with an older
    leader epoch of a partition than an earlier response had comes from a stale broker: the newer state stays.

    Args:
        bootstrap: Addresses to begin with.
        topics: The topics to watch; None for all.
        interval_ms: The interval at which to ask.
        protocol, security, client_id: See ``ClusterClient``.
        timeout_ms: The longest time that one node may take to connect, and then to answer.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        topics: Sequence[str] | None = None,
        *,
        interval_ms: int = 2_000,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        client_id: str = "kproto",
        timeout_ms: int = 10_000,
    ) -> None:
        waits: dict[str, Any] = {
            "refresh_backoff_ms": min(_FIRST_BACKOFF_MS, interval_ms),
            "refresh_backoff_max_ms": interval_ms,  # also where partitions without a leader ask for an update at once
            "max_age_ms": interval_ms,
        }
        metadata = Metadata(None if topics is None else FOREVER, **waits)
        for topic in topics or ():
            metadata.add(topic, 0)
        metadata.bootstrap(bootstrap)
        self._metadata = metadata
        self._updater = DefaultMetadataUpdater(metadata, request_timeout_ms=timeout_ms, rebootstraps=True)
        security = security or SecurityConfig()
        self._client = client_with_timeout(self._updater, client_id, protocol, security, timeout_ms)
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._seen = metadata.update_version
        self._complain_at = 0

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def next(self) -> ClusterView:
        """Wait for the next metadata response; return a view with all metadata known now, and the node that answered.

        Raises:
            Disconnected: No known node can be reached; call again to keep trying.
            RequestTimeout: No response came within the time for connecting and answering; call again to keep waiting.
            AuthenticationFailed: One side does not accept the other.
        """
        clock, metadata = self._client.clock, self._metadata
        wait_ms = 2 * self._timeout_ms + self._interval_ms
        deadline = clock.milliseconds() + wait_ms
        while (now := clock.milliseconds()) < deadline:
            self._client.poll(deadline - now)
            metadata.raise_fatal_error()
            if metadata.update_version > self._seen:
                self._seen = metadata.update_version
                if (view := self._updater.view()) is not None:
                    return view
            now = clock.milliseconds()
            nodes = self._updater.nodes()
            if now >= self._complain_at and all(map(self._client.connection_failed, nodes)):
                self._complain_at = now + self._interval_ms
                addresses = ", ".join(f"{node.host}:{node.port}" for node in nodes)
                raise Disconnected(f"no node answers at {addresses}. {_HINT}")
        raise RequestTimeout(f"no node has answered within {wait_ms} ms")
