"""Which part of the captures is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproto.api import CONTROL_APIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.types import BrokerId, TopicPartition

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What to keep of the captures. The default keeps every control request.

    Attributes:
        apis: Which of the three requests.
        since_ns, until_ns: Time of the request's first byte, ns since 1970 UTC; since is included, until is not.
        ports: TCP ports of the brokers' listeners; None finds them from the traffic.
        brokers: Ids of the receiving brokers; empty: all.
        topic_patterns: Regular expressions that a topic's whole name matches. With ``partitions``: only requests that
            name such a partition, and of their states only these.
        partitions: Single partitions.
        errors: Only what was answered with an error, or cannot be read.
        broker_ids: ``(ip, port)`` -> broker id, where the traffic does not tell.
    """

    apis: frozenset[int] = frozenset(CONTROL_APIS)
    since_ns: int | None = None
    until_ns: int | None = None
    ports: tuple[int, ...] | None = None
    brokers: frozenset[BrokerId] = frozenset()
    topic_patterns: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()
    errors: bool = False
    broker_ids: Mapping[tuple[str, int], BrokerId] = field(default_factory=dict)

    @property
    def by_partition(self) -> bool:
        """Whether requests are chosen by what their bodies name."""
        return bool(self.topic_patterns or self.partitions)

    @property
    def by_request(self) -> bool:
        """Whether any request is left out."""
        return (
            self.apis != frozenset(CONTROL_APIS)
            or self.since_ns is not None
            or self.until_ns is not None
            or self.by_partition
            or bool(self.brokers)
            or self.errors
        )
