"""Clients that ask a cluster for its metadata: node by node, or repeatedly to follow its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from channel.addresses import show_address, why_unreachable
from channel.clock import FOREVER
from channel.errors import ChannelError, Disconnected, RequestTimeout
from channel.network.blocking import await_ready, send_and_receive
from channel.network.client import NetworkClient
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.network.updater import ManualMetadataUpdater
from channel.security import SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto.errors import KprotoError

from .cluster import Metadata
from .default_updater import DefaultMetadataUpdater, metadata_request
from .producer import ProducerMetadata
from .snapshot import ClusterSnapshot
from .view import ClusterView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.updater import MetadataUpdater

__all__ = ["ClusterClient", "ClusterWatch"]

_FIRST_BACKOFF_MS = 100
_HINT = "Check host and port, and whether the listener wants TLS or SASL (security.protocol)"


class _Connected:
    """A network client that is closed at the end of a ``with``."""

    def __init__(
        self,
        updater: MetadataUpdater,
        protocol: SecurityProtocol,
        security: SecurityConfig | None,
        client_id: str,
        timeout_ms: int,
        **settings: Any,
    ) -> None:
        builder = client_channels(protocol, security or SecurityConfig(), client_id)
        self._timeout_ms = timeout_ms
        self._client = NetworkClient(
            Selector(channel_builder=builder), updater, client_id, request_timeout_ms=timeout_ms, **settings
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class ClusterClient(_Connected):
    """Asks the nodes of a cluster for metadata, one after the other; close it, or use it in a ``with``.

    Args:
        bootstrap: Addresses to begin with.
        protocol: How the listener is secured.
        security: Certificates and credentials for that.
        client_id: Goes into every header.
        timeout_ms: How long one node may take to connect, and then to answer.
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
        super().__init__(ManualMetadataUpdater(), protocol, security, client_id, timeout_ms)
        self._bootstrap = ClusterSnapshot.of_bootstrap(bootstrap).nodes

    def ask(self, node: Node, topics: Sequence[str] | None = None) -> ClusterView:
        """Ask one node for its view of these topics, or of all topics.

        Raises:
            Disconnected: The node cannot be reached, or does not answer in time.
            AuthenticationFailed: One side does not accept the other.
        """
        client = self._client
        if not await_ready(client, node, self._timeout_ms):
            raise Disconnected(f"{node.host}:{node.port} is not ready within {self._timeout_ms} ms")
        request = client.new_request(node.key, metadata_request(topics))
        return ClusterView(node, ClusterSnapshot.of_response(send_and_receive(client, request).body))

    def ask_any(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Ask node after node, and return the view of the first that answers.

        Raises:
            Disconnected: No node answers; the text has the error of each node.
            AuthenticationFailed: The first node that could be reached rejected this client, or this client rejected it.
        """
        failures = []
        for node in self._bootstrap.values():
            try:
                return self.ask(node, topics)
            except Disconnected as e:
                reason = why_unreachable(node.host, node.port) or str(e).rstrip(".")
                failures.append(f"{show_address((node.host, node.port))}: {reason}")
        raise Disconnected(f"no node answers: {'; '.join(failures)}. {_HINT}")

    def ask_all(self, topics: Sequence[str] | None = None) -> tuple[list[ClusterView], dict[int, str]]:
        """Ask every live broker; return the views, and the errors of brokers that gave none, by broker id."""
        views, failures = [], {}
        for broker in self.ask_any(topics).brokers:
            try:
                views.append(self.ask(broker, topics))
            except (ChannelError, KprotoError, OSError) as e:
                failures[broker.id] = str(e)
        return views, failures


class ClusterWatch(_Connected):
    """Follows a cluster through whichever of its brokers answers; close it, or use it in a ``with``.

    The first response replaces the bootstrap addresses by the cluster's brokers. When a broker disconnects, the next
    broker is asked, and when all have disconnected, the bootstrap addresses are tried again. A response with an older
    leader epoch of a partition than an earlier response had comes from a stale broker: the newer state stays.

    Args:
        bootstrap: Addresses to begin with.
        topics: The topics to watch; None for all.
        interval_ms: How often to ask.
        protocol, security, client_id: As ``ClusterClient`` has them.
        timeout_ms: How long one node may take to connect, and then to answer.
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
        metadata: Metadata
        if topics is None:
            metadata = Metadata(**waits)
        else:
            metadata = ProducerMetadata(FOREVER, **waits)
            for topic in topics:
                metadata.add(topic, 0)
        metadata.bootstrap(bootstrap)
        self._metadata = metadata
        self._updater = DefaultMetadataUpdater(metadata, request_timeout_ms=timeout_ms, rebootstraps=True)
        super().__init__(
            self._updater,
            protocol,
            security,
            client_id,
            timeout_ms,
            setup_timeout_ms=timeout_ms,
            setup_timeout_max_ms=timeout_ms,
        )
        self._interval_ms = interval_ms
        self._seen = metadata.update_version
        self._complain_at = 0

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
                if self._updater.source is not None and not metadata.snapshot.is_bootstrap:
                    return ClusterView(self._updater.source, metadata.snapshot)
            now = clock.milliseconds()
            nodes = self._updater.nodes()
            if now >= self._complain_at and all(map(self._client.connection_failed, nodes)):
                self._complain_at = now + self._interval_ms
                addresses = ", ".join(f"{node.host}:{node.port}" for node in nodes)
                raise Disconnected(f"no node answers at {addresses}. {_HINT}")
        raise RequestTimeout(f"no node has answered within {wait_ms} ms")
