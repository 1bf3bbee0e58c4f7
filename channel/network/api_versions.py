"""Asking nodes which versions they have, and choosing one for each request."""

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
    """A node will not tell its versions; asking again is of no use. Never leaves the client."""


class VersionDiscovery:
    """What nodes have announced, and which are still to be asked.

    Args:
        known: What is known of nodes' versions, shared between clients if given.
    """

    def __init__(self, known: dict[str, NodeApiVersions] | None = None) -> None:
        self.known = {} if known is None else known
        self.pending: dict[str, int] = {}

    def ask(self, node_id: str, version: int = ApiKey.API_VERSIONS.info.max_version) -> None:
        """The node is to be asked, in this version of the question."""
        self.pending[node_id] = version

    def forget(self, node_id: str) -> None:
        """The connection is gone; so may be the software behind it."""
        self.pending.pop(node_id, None)
        self.known.pop(node_id, None)

    def request(self, node_id: str) -> MessageRequest:
        """The question for a pending node, which is pending no more."""
        version = self.pending.pop(node_id)
        request = message_class(ApiKey.API_VERSIONS, "request")
        if version < 3:
            return MessageRequest(request(), version)
        message = request(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return MessageRequest(message, version)

    def learn(self, request: ClientRequest, payload: Bytes) -> Any:
        """Take a node's answer; it is known then, or pending again with a lower version.

        Returns:
            The decoded answer.

        Raises:
            VersionsRefused: The answer is none, or an error.
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
            self.ask(node_id, max(0, min(highest, request.version - 1)))  # it may announce anything
        else:
            raise VersionsRefused(f"error {answer.error_code} {error_name(answer.error_code)}")
        return answer

    def choose(self, node_id: str, builder: RequestBuilder) -> int:
        """The version to write a request in; the builder's latest where nothing is known of the node.

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
