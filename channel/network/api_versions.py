"""Version discovery: nodes are asked for their API versions, and each request gets a version that both sides have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.errors import NoUsableVersion
from kproto import __version__
from kproto.api import ApiKey
from kproto.codec import message_class
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import DecodeError, UnsupportedVersion
from kproto.node_versions import NodeApiVersions

from .request import MessageRequest
from .wire import parse_response

if TYPE_CHECKING:
    from typing import Any

    from .request import ClientRequest, RequestBuilder
    from .transport import Bytes

__all__ = ["VersionDiscovery", "VersionsRefused"]

SOFTWARE_NAME: Final = "kproto"


class VersionsRefused(Exception):
    """A node refuses to tell its API versions; asking again is of no use. Never leaves the client."""


class VersionDiscovery:
    """The API versions that nodes have announced, and the nodes that are still to be asked.

    Args:
        known: The API versions of nodes, by node; shared between clients if given.
    """

    def __init__(self, known: dict[str, NodeApiVersions] | None = None) -> None:
        self.known = {} if known is None else known
        self.pending: dict[str, int] = {}

    def ask(self, node_id: str, version: int = ApiKey.API_VERSIONS.info.max_version) -> None:
        """Note that the node is to be asked by an ApiVersions request of this version."""
        self.pending[node_id] = version

    def forget(self, node_id: str) -> None:
        """Forget a node's versions as its connection ends: the next connection may reach other software."""
        self.pending.pop(node_id, None)
        self.known.pop(node_id, None)

    def request(self, node_id: str) -> MessageRequest:
        """Build the ApiVersions request for a pending node, which is then no longer pending."""
        version = self.pending.pop(node_id)
        request = message_class(ApiKey.API_VERSIONS, "request")
        if version < 3:
            return MessageRequest(request(), version)
        message = request(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return MessageRequest(message, version)

    def learn(self, request: ClientRequest, payload: Bytes) -> Any:
        """Take a node's ApiVersions response: note its versions, or that it is to be asked again in a lower version.

        Returns:
            The decoded response.

        Raises:
            VersionsRefused: The response cannot be read, or has an error.
        """
        node_id = request.destination
        try:
            answer = parse_response(request, payload)
        except DecodeError as e:
            raise VersionsRefused(f"its answer cannot be read: {e}") from e
        if answer.error_code == ErrorCode.NONE:
            self.known[node_id] = NodeApiVersions.from_response(answer)
        elif answer.error_code == ErrorCode.UNSUPPORTED_VERSION and request.version > 0:
            ranges = NodeApiVersions.from_response(answer)
            highest = ranges[ApiKey.API_VERSIONS].highest if ApiKey.API_VERSIONS in ranges else 0
            self.ask(node_id, max(0, min(highest, request.version - 1)))  # a response may announce any range
        else:
            raise VersionsRefused(f"error {answer.error_code} {error_name(answer.error_code)}")
        return answer

    def choose(self, node_id: str, builder: RequestBuilder) -> int:
        """Choose the version of a request; the builder's latest if the node's versions are not known.

        Raises:
            NoUsableVersion: No version suits both sides.
        """
        known = self.known.get(node_id)
        if known is None or builder.api_key == ApiKey.API_VERSIONS:
            return builder.latest_version
        try:
            return known.latest_usable(builder.api_key, builder.oldest_version, builder.latest_version)
        except UnsupportedVersion as e:
            raise NoUsableVersion(builder.api_key, builder.latest_version, f"{e}, for {builder}") from e
