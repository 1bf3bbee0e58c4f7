"""The version ranges that a node announced in its ApiVersions response, and the versions to use with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .api import ApiKey, api_name
from .errors import DecodeError, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from .types import Buffer


class VersionRange(NamedTuple):
    """A range of versions of one API, both ends included.

    >>> VersionRange(1, 7).intersection(VersionRange(4, 9))
    VersionRange(lowest=4, highest=7)
    """

    lowest: int
    highest: int

    def intersection(self, other: VersionRange) -> VersionRange | None:
        """The versions in both ranges; None if there is none, as where a range is empty."""
        common = VersionRange(max(self.lowest, other.lowest), min(self.highest, other.highest))
        return common if common.lowest <= common.highest else None

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


@dataclass(frozen=True)
class NodeApiVersions:
    """The version ranges that a node announced, by API key; keys that Kafka 3.9.1 does not know are kept too.

    >>> node = NodeApiVersions.of([(0, 1, 3), (337, 0, 1)])
    >>> node.latest_usable(ApiKey.PRODUCE, 0, 2)
    2
    >>> node[ApiKey.PRODUCE], 18 in node
    (VersionRange(lowest=1, highest=3), False)
    """

    ranges: Mapping[int, VersionRange]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int]]) -> Self:
        """The ranges given as (API key, lowest, highest)."""
        return cls({key: VersionRange(lowest, highest) for key, lowest, highest in ranges})

    @classmethod
    def of_kafka_3_9(cls) -> Self:
        """Every API of Kafka 3.9.1 with the versions that this package reads and writes."""
        return cls({int(key): VersionRange(key.info.min_version, key.info.max_version) for key in ApiKey})

    @classmethod
    def from_response(cls, response: Any) -> Self:
        """The ranges of a decoded ApiVersions response: of its ``api_keys``, with min_version and max_version."""
        return cls.of((each.api_key, each.min_version, each.max_version) for each in response.api_keys)

    def __contains__(self, api_key: object) -> bool:
        return api_key in self.ranges

    def __getitem__(self, api_key: int) -> VersionRange:
        return self.ranges[api_key]

    def latest_usable(self, api_key: int, lowest: int | None = None, highest: int | None = None) -> int:
        """The highest version that the node and the caller both speak.

        Args:
            api_key: The API whose version to give.
            lowest, highest: The caller's own range; Kafka 3.9.1's if left out.

        Raises:
            UnsupportedVersion: The node did not announce this API, or the two ranges do not meet.
        """
        key = ApiKey(api_key)
        low = key.info.min_version if lowest is None else lowest
        high = key.info.max_version if highest is None else highest
        node = self.ranges.get(api_key)
        if node is None:
            raise UnsupportedVersion(api_key, high, f"on this node {key.info.name}")
        common = node.intersection(VersionRange(low, high))
        if common is None:
            raise UnsupportedVersion(api_key, high, f"on this node {key.info.name}", node.lowest, node.highest)
        return common.highest

    def intersection(self, other: NodeApiVersions) -> NodeApiVersions:
        """The versions that two nodes both speak; an API without a common version is left out.

        >>> old, new = NodeApiVersions.of([(4, 0, 2), (6, 0, 5)]), NodeApiVersions.of([(4, 1, 7), (5, 0, 4), (6, 6, 8)])
        >>> old.intersection(new).ranges
        {4: VersionRange(lowest=1, highest=2)}
        """
        common = (
            (key, mine.intersection(other.ranges[key])) for key, mine in self.ranges.items() if key in other.ranges
        )
        return NodeApiVersions({key: both for key, both in common if both is not None})

    def __str__(self) -> str:
        """One line in the order of the keys, as Kafka prints it; a broker's API that the node lacks is UNSUPPORTED."""
        return f"({', '.join(self._texts())})"

    def _texts(self) -> Iterable[str]:
        of_brokers = {int(key) for key in ApiKey if key.info.listeners != "C"}
        for key in sorted(self.ranges.keys() | of_brokers):
            node, known = self.ranges.get(key), key in ApiKey._value2member_map_
            if node is None:
                yield f"{api_name(key)}({key}): UNSUPPORTED"
            elif known:
                yield f"{api_name(key)}({key}): {node} [{self._usable(key)}]"
            else:
                yield f"{api_name(key)}: {node}"

    def _usable(self, key: int) -> str:
        try:
            return f"usable: {self.latest_usable(key)}"
        except UnsupportedVersion:
            return (
                "unusable: node too new"
                if self.ranges[key].lowest > ApiKey(key).info.max_version
                else "unusable: node too old"
            )


def decode_api_versions_response(version: int, body: Buffer) -> Any:
    """Read the answer to an ApiVersions request of this version.

    A broker that does not know the version answers in the form of version 0, with error 35 and, since Kafka 2.4, its
    own range of ApiVersions alone. So a body that cannot be read as ``version`` is read as version 0.

    Raises:
        DecodeError: The body has neither form.
    """
    from .codec import decode_response

    try:
        return decode_response(ApiKey.API_VERSIONS, version, body)
    except DecodeError:
        with suppress(DecodeError):  # the first error tells more
            return decode_response(ApiKey.API_VERSIONS, 0, body)
        raise
