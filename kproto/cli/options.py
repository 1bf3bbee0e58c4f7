"""The filters that ``inspect``, ``analyze`` and ``query`` share, parsed once into one frozen object.

@click.command
@capture_filters
def command(..., filters: Filters) -> None: ...
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import ApiKey, api_name
from kproto.errors import ConfigurationError
from kproto.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Filters", "capture_filters", "parse_api", "parse_brokers", "parse_time", "parse_topic_partition"]

_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Filters:
    """What to show of a capture. An empty or None field filters nothing.

    Attributes:
        apis: API keys.
        brokers: Ids of the brokers that received the request.
        topics: Topic names; ``*``, ``?`` and ``[...]`` as in a shell.
        partitions: Single partitions.
        since_ns, until_ns: Time of the request's first byte, ns since 1970 UTC; since is included, until is not.
        errors: Only what was answered with an error, or could not be read.
        ports: TCP ports of the brokers' listeners; None finds them from the traffic.
        broker_ids: ``(ip, port)`` -> broker id, as told by ``--brokers``.
    """

    apis: frozenset[int] = frozenset()
    brokers: frozenset[BrokerId] = frozenset()
    topics: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()
    since_ns: int | None = None
    until_ns: int | None = None
    errors: bool = False
    ports: tuple[int, ...] | None = None
    broker_ids: dict[tuple[str, int], BrokerId] = field(default_factory=dict)

    @property
    def by_partition(self) -> bool:
        """Whether topics or partitions are chosen, so that bodies have to be looked into."""
        return bool(self.topics or self.partitions)

    def wants_api(self, api_key: int | None) -> bool:
        """Whether requests of this API are shown."""
        return not self.apis or api_key in self.apis

    def wants_time(self, time_ns: int) -> bool:
        """Whether this moment, ns since 1970 UTC, is inside the range."""
        return (self.since_ns is None or time_ns >= self.since_ns) and (
            self.until_ns is None or time_ns < self.until_ns
        )

    def wants_broker(self, broker: BrokerId | None) -> bool:
        """Whether requests to this broker are shown; None is a broker whose id is not known."""
        return not self.brokers or broker in self.brokers

    def wants_topic(self, topic: str) -> bool:
        """Whether any partition of this topic can be of interest."""
        if not self.by_partition:
            return True
        return any(fnmatchcase(topic, p) for p in self.topics) or any(tp.topic == topic for tp in self.partitions)

    def wants_partition(self, topic: str, partition: int) -> bool:
        """Whether this partition is shown: its topic or itself is chosen, or nothing is."""
        if not self.by_partition:
            return True
        return (topic, partition) in self.partitions or any(fnmatchcase(topic, p) for p in self.topics)


# ---- the texts that people type --------------------------------------------------------------------------------------


def parse_api(text: str) -> int:
    """``6``, ``UpdateMetadata``, ``UPDATE_METADATA`` or ``update-metadata`` -> 6.

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
        raise ConfigurationError(
            f"no api {text!r}; try a number, or a name such as LeaderAndIsr, StopReplica, UpdateMetadata, Metadata"
        )
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def _apis_by_name() -> dict[str, int]:
    short = {"lisr": 4, "lai": 4, "sr": 5, "umr": 6, "um": 6}
    return short | {_plain(api_name(key)): int(key) for key in ApiKey}


def parse_topic_partition(text: str) -> TopicPartition:
    """``orders-3`` -> topic ``orders``, partition 3; the last dash parts them, as topic names may hold dashes.

    Raises:
        ConfigurationError: Not of that form.
    """
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not re.fullmatch(r"[0-9]{1,10}", number):
        raise ConfigurationError(f"{text!r} is not TOPIC-PARTITION; try e.g. orders-3 (all of a topic: --topic orders)")
    return TopicPartition(topic, int(number))


def parse_time(text: str) -> int:
    """A moment as ns since 1970 UTC: ISO 8601 (UTC where it names no zone), or seconds since 1970.

    >>> parse_time("1970-01-01T00:00:01.5Z"), parse_time("1.5")
    (1500000000, 1500000000)

    Raises:
        ConfigurationError: Neither.
    """
    match = re.fullmatch(r"([0-9]{1,11})(?:\.([0-9]{1,9}))?", text)
    if match and (match[2] or len(match[1]) not in (4, 6, 8)):  # 2026, 202611 and 20261121 are meant as dates
        return int(match[1]) * _NS + int((match[2] or "").ljust(9, "0"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; try 2026-11-21T05:59:08.5 (UTC unless it names a zone, e.g. +02:00), "
            "or seconds since 1970"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * _NS + delta.microseconds * 1_000


def parse_ports(texts: Iterable[str]) -> tuple[int, ...] | None:
    """``9092,9093`` -> those ports; None where there are none.

    Raises:
        ConfigurationError: Not a TCP port.
    """
    return tuple(_port(text, text) for text in _split(texts)) or None


def parse_brokers(texts: Iterable[str]) -> dict[tuple[str, int], BrokerId]:
    """``7=10.0.0.7:9092`` or ``7=[fd00::7]:9092`` -> ``{("10.0.0.7", 9092): 7}``; a name stands for its addresses.

    Raises:
        ConfigurationError: Not of that form, or a name that does not resolve.
    """
    found: dict[tuple[str, int], BrokerId] = {}
    for text in _split(texts):
        match = re.fullmatch(r"([0-9]{1,10})=(?:\[([^\]]+)\]|([^\[\]]+)):([0-9]+)", text)
        if match is None:
            raise ConfigurationError(f"{text!r} is not ID=HOST:PORT; try e.g. --brokers 7=10.0.0.7:9092")
        port = _port(match[4], text)
        for ip in _addresses(match[2] or match[3], text):
            found[ip, port] = int(match[1])
    return found


def _split(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (part.strip() for part in text.split(",") if part.strip())


def _port(text: str, whole: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65_536:
        where = f" in {whole!r}" if whole != text else ""
        raise ConfigurationError(f"{text!r}{where} is not a TCP port; try e.g. 9092, or 9092,9093")
    return int(text)


def _addresses(host: str, whole: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigurationError(
            f"{host!r} in {whole!r} does not resolve here; name the address that the capture shows"
        ) from None
    return sorted({str(entry[4][0]) for entry in found})


# ---- the options themselves ------------------------------------------------------------------------------------------

_OPTIONS: Final = [
    click.option("--api", "api", multiple=True, metavar="API", help="Only this API, by name or key. Repeatable."),
    click.option("--broker", multiple=True, type=int, metavar="ID", help="Only requests to this broker. Repeatable."),
    click.option("--topic", multiple=True, metavar="NAME", help="Only this topic; * and ? match. Repeatable."),
    click.option("--partition", multiple=True, metavar="T-P", help="Only this partition, e.g. orders-3. Repeatable."),
    click.option("--since", metavar="TIME", help="From this time on: ISO 8601 (UTC by default) or epoch seconds."),
    click.option("--until", metavar="TIME", help="Up to this time, which is left out."),
    click.option("--errors", is_flag=True, help="Only what was answered with an error, or cannot be read."),
    click.option("--ports", multiple=True, metavar="PORTS", help="The brokers' ports, e.g. 9092,9091; else found."),
    click.option("--brokers", multiple=True, metavar="ID=HOST:PORT", help="Who is where; else learnt."),
]


def capture_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options; it gets them as one argument, ``filters``."""

    @functools.wraps(command)
    def with_filters(
        *args: Any,
        api: tuple[str, ...],
        broker: tuple[int, ...],
        topic: tuple[str, ...],
        partition: tuple[str, ...],
        since: str | None,
        until: str | None,
        errors: bool,
        ports: tuple[str, ...],
        brokers: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        filters = Filters(
            apis=frozenset(parse_api(text) for text in _split(api)),
            brokers=frozenset(broker),
            topics=topic,
            partitions=frozenset(parse_topic_partition(text) for text in partition),
            since_ns=parse_time(since) if since else None,
            until_ns=parse_time(until) if until else None,
            errors=errors,
            ports=parse_ports(ports),
            broker_ids=parse_brokers(brokers),
        )
        if filters.since_ns is not None and filters.until_ns is not None and filters.since_ns >= filters.until_ns:
            raise ConfigurationError(f"--since {since} is not before --until {until}: nothing could be between them")
        return command(*args, filters=filters, **rest)

    for option in reversed(_OPTIONS):
        with_filters = option(with_filters)
    return with_filters
