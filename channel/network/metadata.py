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
    """The part of a network client that a metadata updater asks by; for the client's thread alone."""

    def least_loaded_node(self) -> LeastLoaded:
        """The node to ask if any will do."""

    def can_send(self, node: Node) -> bool:
        """Whether the node can take a request now, even while an update is due."""

    def ready(self, node: Node) -> bool:
        """Begin to connect if that is allowed."""

    def send_internal_metadata_request(self, node_id: str, builder: RequestBuilder) -> None:
        """Send a request of the updater's own."""


class MetadataUpdater(Protocol):
    """Keeps a client's nodes up to date, if need be by requests of its own. Times in ms of the client's clock."""

    def attach(self, client: MetadataClient) -> None:
        """Ask by this client; called once, as the client is made."""

    def nodes(self) -> Sequence[Node]:
        """The nodes to choose from."""

    def is_update_due(self, now: int) -> bool:
        """Whether an update should go out before any other request."""

    def maybe_update(self, now: int) -> int:
        """Begin an update if one is due; tells how many ms until the next may be, ``FOREVER`` for never."""

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """A connection ended, or could not be made."""

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """A request of the updater's own will not be answered, or not by anything that can be read."""

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """A request of the updater's own has been answered."""

    def close(self) -> None:
        """Let everything go."""


class ManualMetadataUpdater:
    """A list of nodes that somebody else sets; never updates itself."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = tuple(nodes)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Replace the list."""
        self._nodes = tuple(nodes)

    def attach(self, client: MetadataClient) -> None:
        """Nothing to do: it asks nobody."""

    def nodes(self) -> Sequence[Node]:
        """The nodes that were set."""
        return self._nodes

    def is_update_due(self, now: int) -> bool:
        """Never."""
        return False

    def maybe_update(self, now: int) -> int:
        """Nothing to do, ever."""
        return FOREVER

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        """Nothing to do: failures are seen by who sends."""

    def handle_failed_request(self, now: int, error: UnsupportedVersion | None) -> None:
        """Nothing to do: it sends none."""

    def handle_successful_response(self, request: ClientRequest, now: int, response: Any) -> None:
        """Nothing to do: it sends none."""

    def close(self) -> None:
        """Nothing to let go."""
