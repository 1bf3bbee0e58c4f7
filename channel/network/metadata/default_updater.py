"""A metadata updater that sends one Metadata request at a time, to the least loaded node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.clock import FOREVER
from channel.logs import get_logger
from channel.network.request import MessageRequest
from kproto import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.errors import AuthenticationFailed
    from channel.network.request import ClientRequest
    from channel.network.updater import MetadataClient
    from channel.types import Node
    from kproto.errors import UnsupportedVersion

    from .cluster import Metadata, MetadataQuestion

__all__ = ["DefaultMetadataUpdater", "metadata_request"]

_log = get_logger(__name__)

_OLDEST: Final = 4  # earlier versions would let the broker create the requested topics


def metadata_request(topics: Sequence[str] | None) -> MessageRequest:
    """Build a Metadata request for these topics, or for all, which never makes the broker create a topic."""
    asked = None if topics is None else [messages.MetadataRequestTopic(name=name) for name in topics]
    return MessageRequest(
        messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False), oldest_version=_OLDEST
    )


class DefaultMetadataUpdater:
    """A metadata updater that follows the client's cluster by Metadata requests.

    Args:
        metadata: The cluster's metadata, shared with the threads that use the client.
        request_timeout_ms: The time limit of a Metadata request.
        reconnect_backoff_ms: The wait before another try while no node can be asked.
        rebootstraps: Begin again with the bootstrap addresses when none of the known brokers can be connected to
            (``metadata.recovery.strategy=rebootstrap``).

    Attributes:
        metadata: As given.
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
        self._client: MetadataClient | None = None
        self._in_progress: MetadataQuestion | None = None

    def attach(self, client: MetadataClient) -> None:
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
            self.metadata.rebootstrap()
            node = client.least_loaded_node().node
        if node is None:
            return self._reconnect_backoff_ms
        if client.can_send(node):
            self._ask(client, node, now)
            return self._request_timeout_ms
        client.ready(node)  # connects, unless it does already
        return self._reconnect_backoff_ms

    def _ask(self, client: MetadataClient, node: Node, now: int) -> None:
        question = self._in_progress = self.metadata.question(now)
        _log.debug("asking node %s for %s", node, "all topics" if question.topics is None else question.topics)
        client.send_internal_metadata_request(node.key, metadata_request(question.topics))

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
        self.metadata.update(
            question.request_version, response, now, is_partial=question.is_partial, api_version=request.version
        )

    def close(self) -> None:
        """End the waits of all threads."""
        self.metadata.close()
