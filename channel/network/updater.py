"""The nodes of a network client, and the updater that keeps their list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from channel.clock import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.errors import AuthenticationFailed
    from channel.types import Node
    from kproto.errors import UnsupportedVersion

    from .least_loaded import LeastLoaded
    from .request import ClientRequest, RequestBuilder

__all__ = ["ManualMetadataUpdater", "MetadataClient", "MetadataUpdater"]


class MetadataClient(Protocol):
    """The part of a network client that a metadata updater uses; for the client's thread alone."""

    def least_loaded_node(self) -> LeastLoaded:
        """Choose the least loaded node."""

    def can_send(self, node: Node) -> bool:
        """Whether the node can take a request now, even while an update is due."""

    def ready(self, node: Node) -> bool:
        """Return whether the node is ready; begins to connect if the back-off allows."""

    def send_internal_metadata_request(self, node_id: str, builder: RequestBuilder) -> None:
        """Send a request of the updater."""


class MetadataUpdater(Protocol):
    """Keeps a client's list of nodes up to date, perhaps by its own requests. Times are in ms of the client's clock."""

    def attach(self, client: MetadataClient) -> None:
        """Use this client for requests; called once, as the client is made."""

    def nodes(self) -> Sequence[Node]:
        """The nodes to choose from."""

    def is_update_due(self, now: int) -> bool:
        """Whether an update should go out before any other request."""

    def maybe_update(self, now: int) -> int:
        """Begin an update if one is due; returns the ms until the next may begin, ``FOREVER`` for never."""

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Note that a connection ended, or could not be made."""

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """Note that a request of the updater will get no response, or got one that cannot be read."""

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """Take the response to a request of the updater."""

    def close(self) -> None:
        """Release all resources."""


class ManualMetadataUpdater:
    """A list of nodes that its owner sets, and that sends no requests."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = tuple(nodes)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Replace the list."""
        self._nodes = tuple(nodes)

    def attach(self, client: MetadataClient) -> None:
        """Do nothing: this updater sends no requests."""

    def nodes(self) -> Sequence[Node]:
        """The nodes that were set."""
        return self._nodes

    def is_update_due(self, now: int) -> bool:
        """Never."""
        return False

    def maybe_update(self, now: int) -> int:
        """Do nothing: no update is ever due."""
        return FOREVER

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Do nothing: the senders of requests see failures."""

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """Nothing to do: it sends none."""

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """Nothing to do: it sends none."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
