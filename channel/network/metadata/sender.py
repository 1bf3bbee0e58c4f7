"""A producer's way from a topic's name to its partitions: callers wait, a sender thread asks the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import ClientClosed
from channel.network.client import NetworkClient
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.threads import StoppableThread
from channel.types import SecurityProtocol

from .default_updater import DefaultMetadataUpdater
from .producer import ProducerMetadata
from .view import ClusterView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel.types import Node
    from kproto.types import TopicPartition

    from .cluster import LeaderChange, LeaderUpdate
    from .snapshot import PartitionInfo

__all__ = ["MetadataSender"]


class MetadataSender(StoppableThread):
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

    Attributes:
        metadata: What is known of the topics in use.
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
    ) -> None:
        config = config or ChannelConfig()
        super().__init__(f"{client_id}-metadata-sender-thread")
        self._max_block_ms = config.max_block_ms
        self.metadata = ProducerMetadata(
            config.metadata_max_idle_ms,
            refresh_backoff_ms=config.retry_backoff_ms,
            refresh_backoff_max_ms=config.retry_backoff_max_ms,
            max_age_ms=config.metadata_max_age_ms,
            clock=clock,
        )
        self.metadata.bootstrap(bootstrap)
        selector = Selector(
            max_receive_size=config.receive_max,
            max_idle_ms=config.connections_max_idle_ms,
            clock=clock,
            channel_builder=client_channels(protocol, config.security, client_id),
        )
        self._updater = DefaultMetadataUpdater(
            self.metadata,
            request_timeout_ms=config.request_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            rebootstraps=True,
        )
        self.client = NetworkClient(
            selector,
            self._updater,
            client_id,
            max_in_flight=config.max_in_flight_requests_per_connection,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            send_buffer=config.send_buffer_bytes,
            receive_buffer=config.receive_buffer_bytes,
            request_timeout_ms=config.request_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            on_invalid_answer=self._invalid_answer,
            clock=clock,
        )

    # ---- for any thread

    def wait_for_topic(
        self, topic: str, partition: int | None = None, *, max_block_ms: int | None = None
    ) -> tuple[int, PartitionInfo | None]:
        """Wait until a topic, or one of its partitions, is known; see ``ProducerMetadata.wait_for_topic``.

        Args:
            topic: The topic's name.
            partition: The partition that is needed; None for any.
            max_block_ms: How long to wait; None for ``max.block.ms``.

        Returns:
            The topic's number of partitions, and the metadata of the partition.

        Raises:
            InvalidTopic, TopicAuthorizationFailed: The cluster refused the topic.
            TopicNotKnown: The topic or partition did not become known in time.
            AuthenticationFailed: One side does not accept the other.
            IllegalState: The sender is closed.
        """
        wait_ms = self._max_block_ms if max_block_ms is None else max_block_ms
        return self.metadata.wait_for_topic(topic, wait_ms, self.client.wakeup, partition)

    def learn_leaders(self, leaders: Mapping[TopicPartition, LeaderUpdate], nodes: Iterable[Node] = ()) -> LeaderChange:
        """Take leaders that a broker named in another response; see ``Metadata.update_partition_leadership``."""
        return self.metadata.update_partition_leadership(leaders, nodes)

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
        info = self.metadata.partition_if_current(partition)
        return None if info is None or info.leader is None else self.metadata.snapshot.nodes.get(info.leader)

    def view(self) -> ClusterView | None:
        """Return what is known of the cluster and the topics in use, and who answered last; None before an answer."""
        source, snapshot = self._updater.source, self.metadata.snapshot
        return None if source is None or snapshot.is_bootstrap else ClusterView(source, snapshot)

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread, the waits of callers and the connections. Harmless if closed.

        Args:
            timeout_s: How long to wait for the thread's end; None for no limit.
        """
        self.initiate_shutdown()
        self.metadata.close()
        self.await_shutdown(timeout_s)
        if not self._was_started:
            self.client.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- on this thread

    def do_work(self) -> None:
        """Send the request that is due, if any, and wait for answers or callers."""
        try:
            self.client.poll(FOREVER)
        except ClientClosed:
            return

    def _invalid_answer(self, node_id: str, error: Exception) -> None:
        self.log.warning("connection %s is closed: its answer cannot be read: %s", node_id, error)
        self.client.disconnect(node_id)

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
