"""Selects the wanted requests of a capture, by the same rules for ``inspect``, ``summary``, ``analyze`` and tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from typing import Literal

from kproto.api import ApiKey, api_name
from kproto.errors import ConfigurationError
from kproto.logs import LogReading
from kproto.text import meant
from kproto.types import BrokerId, TopicPartition

ErrorScope = Literal["", "any", "request", "partition"]
"""The errors that ``Filters.errors`` asks for; empty asks for none."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The wanted part of a capture. An empty or None field filters nothing.

    Attributes:
        apis: API keys.
        brokers: Ids of the brokers that received the request.
        controllers: Ids of the controllers that sent it.
        topics: Topic names; ``*``, ``?`` and ``[...]`` as in a shell.
        partitions: Single partitions. With ``topics``: requests that name any of them.
        since_ns, until_ns: Time of the request's first byte, ns since 1970 UTC; since is included, until is not.
        errors: Only requests with an error: ``request`` of the whole request (or a body that cannot be read),
            ``partition`` of a single partition, ``any`` of either.
        ports: TCP ports of the brokers' listeners; None finds them from the traffic.
        broker_ids: ``(ip, port)`` -> broker id, where the traffic does not tell (``--brokers``).
        logs: What logs do not say themselves, such as their zone.
    """

    apis: frozenset[int] = frozenset()
    brokers: frozenset[BrokerId] = frozenset()
    controllers: frozenset[BrokerId] = frozenset()
    topics: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()
    since_ns: int | None = None
    until_ns: int | None = None
    errors: ErrorScope = ""
    ports: tuple[int, ...] | None = None
    broker_ids: Mapping[tuple[str, int], BrokerId] = field(default_factory=dict)
    logs: LogReading = field(default_factory=LogReading)

    @property
    def by_partition(self) -> bool:
        """Whether topics or partitions are chosen, so that bodies have to be decoded."""
        return bool(self.topics or self.partitions)

    @property
    def by_request(self) -> bool:
        """Whether any control request may be left out."""
        return bool(
            self.apis
            or self.brokers
            or self.controllers
            or self.errors
            or self.by_partition
            or self.since_ns is not None
            or self.until_ns is not None
        )

    def wants_time(self, time_ns: int) -> bool:
        """Whether this moment, ns since 1970 UTC, is inside the range."""
        return (self.since_ns is None or time_ns >= self.since_ns) and (
            self.until_ns is None or time_ns < self.until_ns
        )

    def wants_broker(self, broker: BrokerId | None) -> bool:
        """Whether requests to this broker are wanted; None is a broker whose id is not known."""
        return not self.brokers or broker in self.brokers

    def wants_controller(self, controller: BrokerId | None) -> bool:
        """Whether requests of this controller are wanted; None is a request that names none."""
        return not self.controllers or controller in self.controllers

    def wants_topic(self, topic: str) -> bool:
        """Whether any partition of this topic can be wanted."""
        if not self.by_partition:
            return True
        return any(fnmatchcase(topic, p) for p in self.topics) or any(tp.topic == topic for tp in self.partitions)

    def wants_partition(self, topic: str, partition: int) -> bool:
        """Whether this partition is wanted: its topic or the partition itself is chosen, or no filter is set."""
        if not self.by_partition:
            return True
        return (topic, partition) in self.partitions or any(fnmatchcase(topic, p) for p in self.topics)

    def wants_errors(self, *, request: bool, partition: bool) -> bool:
        """Whether a request is wanted that failed as a whole, or in single partitions, or in neither way."""
        match self.errors:
            case "":
                return True
            case "request":
                return request
            case "partition":
                return partition
        return request or partition


def parse_api(text: str) -> int:
    """Parse an API: ``6``, ``UpdateMetadata``, ``UPDATE_METADATA`` or ``update-metadata`` -> 6.

    Raises:
        ConfigurationError: Kafka 3.9.1 has no such API.
    """
    if re.fullmatch(r"[0-9]{1,5}", text):
        key = int(text)
        if key <= max(ApiKey):
            return key
        raise ConfigurationError(f"Kafka 3.9.1 has no api {key}; its keys are 0 to {max(ApiKey)}")
    found = _apis_by_name().get(_plain(text))
    if found is None:
        some = "try a number, or a name such as LeaderAndIsr, StopReplica, UpdateMetadata, Metadata"
        raise ConfigurationError(f"there is no api {text!r}; {meant(text, map(api_name, ApiKey), some)}")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def _apis_by_name() -> dict[str, int]:
    short = {"lisr": 4, "lai": 4, "sr": 5, "umr": 6, "um": 6}
    return short | {_plain(api_name(key)): int(key) for key in ApiKey}


def iso_ns(text: str, zone: tzinfo | None = None) -> int:
    """Convert a time in ISO 8601 to ns since 1970 UTC; without a zone it is in UTC, or in another one.

    Raises:
        ValueError: It is none.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone or UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000
