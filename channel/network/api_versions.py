"""Which versions a node has, how to ask for them, and which to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.errors import NoUsableVersion
from kproto import __version__
from kproto.api import ApiKey, api_name
from kproto.codec import decode_response, message_class
from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError

from .request import MessageRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .transport import Bytes

__all__ = ["NodeApiVersions", "api_versions_request", "parse_api_versions", "version_to_retry"]

SOFTWARE_NAME: Final = "kproto"


class NodeApiVersions:
    """The version ranges that a node announced.

    Args:
        ranges: ``(api key, lowest, highest)`` for each API that it serves.
    """

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        self.ranges = {key: (lowest, highest) for key, lowest, highest in ranges}

    @classmethod
    def of(cls, response: Any) -> NodeApiVersions:
        """What an ApiVersions response says."""
        return cls((each.api_key, each.min_version, each.max_version) for each in response.api_keys)

    def latest_usable_version(self, api_key: int, oldest: int = 0, latest: int | None = None) -> int:
        """The highest version that the node and this side (``oldest`` to ``latest``) both have.

        Raises:
            NoUsableVersion: There is none, or the node does not serve the API.
        """
        if latest is None:
            latest = ApiKey(api_key).info.max_version
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise NoUsableVersion(api_key, latest, "the node does not serve it")
        version = min(latest, theirs[1])
        if version < max(oldest, theirs[0]):
            why = f"the node has versions {theirs[0]} to {theirs[1]}, this side {oldest} to {latest}"
            raise NoUsableVersion(api_key, latest, why)
        return version

    def __str__(self) -> str:
        apis = []
        for key, (lowest, highest) in sorted(self.ranges.items()):
            text = f"{api_name(key)}({key})" if key in ApiKey._value2member_map_ else api_name(key)
            apis.append(f"{text}: {lowest} to {highest}" if lowest != highest else f"{text}: {lowest}")
        return f"({', '.join(apis)})"


def api_versions_request(version: int | None = None) -> MessageRequest:
    """A request for a node's versions, in this version or the newest."""
    request = message_class(ApiKey.API_VERSIONS, "request")
    newest = ApiKey.API_VERSIONS.info.max_version if version is None else version
    if newest < 3:
        return MessageRequest(request(), newest)
    return MessageRequest(request(client_software_name=SOFTWARE_NAME, client_software_version=__version__), newest)


def parse_api_versions(version: int, body: Bytes) -> Any:
    """Read the answer to a request of ``version``: a node that does not know that version answers as for version 0.

    Raises:
        DecodeError: It is an answer of neither version.
    """
    try:
        return decode_response(ApiKey.API_VERSIONS, version, body)
    except DecodeError:
        if version == 0:
            raise
        return decode_response(ApiKey.API_VERSIONS, 0, body)


def version_to_retry(version: int, response: Any) -> int | None:
    """In which version to ask again after this answer to ``version``; None if asking again is of no use."""
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
        return None
    announced = NodeApiVersions.of(response).ranges.get(ApiKey.API_VERSIONS, (0, 0))[1]
    return min(announced, version - 1)
