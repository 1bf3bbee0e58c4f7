"""The options that commands share: filters, parsed into one ``Filters``, formats, places and files of properties.

@click.command
@capture_filters
def command(..., filters: Filters) -> None: ...
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
import socket
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from kproto.api import ApiKey, api_name
from kproto.cli.times import Seconds, moment_ns, span_of
from kproto.errors import ConfigurationError
from kproto.logs import LogReading
from kproto.tables.filters import Filters, parse_api
from kproto.tables.places import Place, RemotePath, place_of
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from kproto.cli.times import Span
    from kproto.types import BrokerId

# ---- parsing of values -----------------------------------------------------------------------------------------------


def among(words: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    """Complete one of some words, whatever its case, or the last of several that commas part.

    Args:
        words: What each word means.
        incomplete: What was typed of it.
    """
    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{word}", help=text)
        for word, text in words.items()
        if word.lower().startswith(begun.lower())
    ]


def complete_api(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an API's name."""
    return among({api_name(key): f"API {key:d}" for key in ApiKey}, incomplete)


_MOST_PARTITIONS: Final = 100_000


def parse_partitions(text: str) -> list[TopicPartition]:
    """Parse ``orders-3``, or partitions of a topic as answers show them: ``orders[0-2,5]``.

    The last dash separates a topic from a partition: topics may hold dashes.

    Raises:
        ConfigurationError: Not of these forms, or more than 100,000 partitions.
    """
    if several := re.fullmatch(r"(.+)\[([0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*)\]", text):
        ranges = [(int(part.split("-")[0]), int(part.split("-")[-1])) for part in several[2].split(",")]
        if sum(max(0, last - first) + 1 for first, last in ranges) > _MOST_PARTITIONS:
            raise ConfigurationError(f"{text!r} are over {_MOST_PARTITIONS:,} partitions; try --topic {several[1]}")
        if all(first <= last for first, last in ranges):
            return [TopicPartition(several[1], number) for first, last in ranges for number in range(first, last + 1)]
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not re.fullmatch(r"[0-9]{1,10}", number):
        raise ConfigurationError(
            f"{text!r} is not TOPIC-PARTITION; try e.g. orders-3 or orders[0-2,5] (all of a topic: --topic orders)"
        )
    return [TopicPartition(topic, int(number))]


def parse_ports(texts: Iterable[str]) -> tuple[int, ...] | None:
    """Parse ports: ``9092,9093``; None where there are none.

    Raises:
        ConfigurationError: Not a TCP port.
    """
    return tuple(_port(text, text) for text in _split(texts)) or None


def parse_brokers(texts: Iterable[str]) -> dict[tuple[str, int], BrokerId]:
    """Parse ``7=10.0.0.7:9092`` or ``7=[fd00::7]:9092`` into ``{("10.0.0.7", 9092): 7}``; host names are resolved.

    Raises:
        ConfigurationError: Not of that form, a name that does not resolve, two hosts with one id, or two ids for one
            address.
    """
    found: dict[tuple[str, int], BrokerId] = {}
    hosts: dict[BrokerId, str] = {}
    for text in _split(texts):
        match = re.fullmatch(r"([0-9]{1,10})=(?:\[([^\]]+)\]|([^\[\]]+)):([0-9]+)", text)
        if match is None:
            raise ConfigurationError(f"{text!r} is not ID=HOST:PORT; try e.g. --brokers 7=10.0.0.7:9092")
        broker, host, port = int(match[1]), match[2] or match[3], _port(match[4], text)
        if hosts.setdefault(broker, host) != host:
            raise ConfigurationError(
                f"--brokers gives id {broker} to two brokers, {hosts[broker]} and {host}; each has its own id"
            )
        for ip in _addresses(host, text):
            if found.setdefault((ip, port), broker) != broker:
                raise ConfigurationError(
                    f"--brokers gives {ip}:{port} two ids, {found[ip, port]} and {broker}; name the one that is right"
                )
    return found


def parse_broker_of(texts: Iterable[str]) -> dict[tuple[str, int], BrokerId]:
    """Parse ``FILE=ID`` into ``{address: ID}``, with each address to which the requests in that log were sent.

    Raises:
        CaptureError: The file cannot be read.
        ConfigurationError: Not of that form, or the file is no log of one broker.
    """
    from kproto.capture import CaptureSummary, frames
    from kproto.capture.source import LOGS

    found: dict[tuple[str, int], BrokerId] = {}
    for text in texts:
        file, _, number = text.rpartition("=")
        if not file or not re.fullmatch(r"[0-9]{1,10}", number) or int(number) > _LARGEST_ID:
            raise ConfigurationError(f"{text!r} is not FILE=ID; try e.g. --broker-of node-a/kafka-request.log=7")
        summary = CaptureSummary()
        for frame in islice(frames(file, apis=None, summary=summary), _LINES_THAT_TELL):
            server = frame.connection.server
            if found.setdefault((server.ip, server.port), int(number)) != int(number):
                raise ConfigurationError(f"--broker-of gives {server} two ids; a log is one broker's")
        if summary.format not in LOGS:
            raise ConfigurationError(f"{file} is no log; --broker-of names the broker that wrote a log")
    return found


_LINES_THAT_TELL: Final = 10_000
"""The requests of a log that tell a broker's addresses."""


def parse_ids(texts: Iterable[str], option: str) -> frozenset[BrokerId]:
    """Parse node ids: ``0,1``.

    Raises:
        ConfigurationError: Not a number.
    """
    ids = list(_split(texts))
    for text in ids:
        if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > _LARGEST_ID:
            raise ConfigurationError(f"{text!r} is not a node id; try e.g. {option} 1, or {option} 0,1")
    return frozenset(map(int, ids))


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


_LARGEST_ID: Final = (1 << 31) - 1


# ---- the options themselves ------------------------------------------------------------------------------------------

_ERRORS: Final = ("any", "request", "partition")

_ANSWER_OPTIONS: Final = [
    click.option(
        "--api",
        "api",
        multiple=True,
        metavar="API",
        shell_complete=complete_api,
        help="Only this API, by name or key. Repeatable.",
    ),
    click.option("--broker", multiple=True, metavar="ID", help="Only requests to this broker, or these: 0,1."),
    click.option("--controller", multiple=True, metavar="ID", help="Only requests of this controller, or these: 0,1."),
    click.option("--topic", multiple=True, metavar="NAME", help="Only this topic; * and ? match. Repeatable."),
    click.option(
        "--partition",
        multiple=True,
        metavar="T-P",
        help="Only these partitions, e.g. orders-3 or orders[0-9]. Repeatable.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        help="From this time on: 2026-11-21T05:59 or 05:59:08 (UTC; or with +02:00 or Europe/Berlin behind it), "
        "seconds since 1970, or -5m: five minutes before the capture ends.",
    ),
    click.option("--until", metavar="TIME", help="Up to this time, which is left out."),
]
_ERRORS_OPTION: Final = click.option(
    "--errors",
    type=click.Choice(_ERRORS),
    help="Only requests with an error: of the whole request (or a body that cannot be read), of a partition, or "
    "any, the default: of either.",
)
_LOG_OPTIONS: Final = [
    click.option(
        "--log-zone",
        metavar="ZONE",
        help="The zone of times in logs that are written without one: Europe/Berlin, UTC, +02:00; else this machine's.",
    ),
    click.option(
        "--log-date",
        metavar="DATE",
        help="The date of log lines with a time of day alone, e.g. 2026-11-21; else what the file tells.",
    ),
]
_LISTENER_OPTIONS: Final = [
    click.option("--ports", multiple=True, metavar="PORTS", help="The brokers' ports, e.g. 9092,9091; else detected."),
    click.option("--brokers", multiple=True, metavar="ID=HOST:PORT", help="Broker ids of addresses; else detected."),
]
_READING_OPTIONS: Final = [
    *_LISTENER_OPTIONS,
    click.option(
        "--broker-of",
        multiple=True,
        metavar="FILE=ID",
        help="The broker that wrote a request log, e.g. node-a/kafka-request.log=7; else detected. Repeatable.",
    ),
    *_LOG_OPTIONS,
]
cluster_option: Final = click.option(
    "--cluster", metavar="NAME", help="Only this cluster, as declared or as found, where there are several."
)


class CaptureCommand(click.Command):
    """A command with the shared options; ``--errors`` may be given without a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments as click does, and add the value ``any`` to a bare ``--errors``."""
        given = []
        for number, text in enumerate(args):
            if text == "--errors" and args[number + 1 : number + 2] not in [[scope] for scope in _ERRORS]:
                text = "--errors=any"
            given.append(text)
        return super().parse_args(ctx, given)


def capture_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options, passed to it as one argument, ``filters``."""

    @functools.wraps(command)
    def with_times(*args: Any, filters: Filters, since: str | None, until: str | None, **rest: Any) -> Any:
        captures = rest.get("captures", ())
        return command(*args, filters=timed(filters, since, until, lambda: span_of(captures)), **rest)

    return _with_options(with_times, [*_ANSWER_OPTIONS, _ERRORS_OPTION, *_READING_OPTIONS])


def timed(filters: Filters, since: str | None, until: str | None, span: Callable[[], Span]) -> Filters:
    """Add times that a user typed to filters.

    Args:
        filters: The other filters.
        since, until: The times; None or empty where none is given.
        span: See ``moment_ns``.

    Raises:
        ConfigurationError: See ``moment_ns``; or nothing could be between the two.
    """
    if not since and not until:
        return filters
    span = functools.cache(span)
    filters = replace(
        filters,
        since_ns=moment_ns(since, span) if since else None,
        until_ns=moment_ns(until, span) if until else None,
    )
    if filters.since_ns is not None and filters.until_ns is not None and filters.since_ns >= filters.until_ns:
        raise ConfigurationError(f"--since {since} is not before --until {until}: nothing could be between them")
    return filters


def _with_options(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_filters(*args: Any, **given: Any) -> Any:
        def texts(name: str) -> tuple[str, ...]:
            found: tuple[str, ...] = given.pop(name, ())
            return found

        filters = Filters(
            apis=frozenset(parse_api(text) for text in _split(texts("api"))),
            brokers=parse_ids(texts("broker"), "--broker"),
            controllers=parse_ids(texts("controller"), "--controller"),
            topics=texts("topic"),
            partitions=frozenset(one for text in texts("partition") for one in parse_partitions(text)),
            errors=given.pop("errors", None) or "",
            ports=parse_ports(texts("ports")),
            broker_ids=parse_brokers(texts("brokers")) | parse_broker_of(texts("broker_of")),
            logs=LogReading(given.pop("log_zone", None) or "", day=given.pop("log_date", None) or ""),
        )
        if not given.get("redact"):
            from kproto.cli.footer import say_left_out

            say_left_out(given.get("captures") or given.get("sources") or given.get("words") or ())
        return command(*args, filters=filters, **given)

    for option in reversed(options):
        with_filters = option(with_filters)
    return with_filters


answer_filters: Final = functools.partial(_with_options, options=[*_ANSWER_OPTIONS, *_READING_OPTIONS])
"""Gives a command the shared options that apply to tables, and those of how captures are read.

They are passed to it as ``filters``, but ``since`` and ``until``, which ``timed`` adds when the tables are open.
"""
reading_options: Final = functools.partial(_with_options, options=[*_READING_OPTIONS, cluster_option])
"""Gives a command the options of how captures are read, and of what cluster, as ``filters`` and ``cluster``."""
source_options: Final = functools.partial(_with_options, options=[*_LISTENER_OPTIONS, *_LOG_OPTIONS])
"""Gives a command the options of listeners, and of what logs do not say, as ``filters``."""
log_options: Final = functools.partial(_with_options, options=_LOG_OPTIONS)
"""Gives a command the options of what logs do not say, as ``filters``."""


def format_option(*others: str, description: str = "The form of the output.") -> Callable[..., Any]:
    """Give a command ``--format``, passed to it as ``form``: ``text``, which is the default, or another format.

    Args:
        others: The formats beside ``text``.
        description: The option's text in ``--help``.
    """
    return click.option(
        "--format", "form", type=click.Choice(["text", *others]), default="text", show_default=True, help=description
    )


def properties_option(description: str, name: str = "--security") -> Callable[..., Any]:
    """Give a command an option that names a file of properties."""
    kind = click.Path(dir_okay=False, exists=True, path_type=Path)
    return click.option(name, type=kind, metavar="FILE", help=description)


def client_options(timeout: float, kind: Seconds, description: str, properties: str) -> Callable[..., Any]:
    """Give a command ``--security`` and ``--timeout``, passed to it as ``how``, what each client of a node takes.

    Such a command reports as its error what a client would warn of, so that the log has errors alone.

    Args:
        timeout, kind, description: The default of ``--timeout``, its range and text.
        properties: The text of ``--security``.
    """

    def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_how(*args: Any, security: Path | None, timeout: float, **given: Any) -> Any:
            from channel.security import read_security

            logging.basicConfig(level=logging.ERROR)
            protocol, settings = read_security(security)
            how = {"protocol": protocol, "security": settings, "timeout_ms": round(timeout * 1000)}
            return command(*args, how=how, **given)

        with_timeout = click.option("--timeout", default=timeout, type=kind, help=description)(with_how)
        secured: Callable[..., Any] = properties_option(properties)(with_timeout)
        return secured

    return with_client


class PlaceType(click.ParamType[Place]):
    """A path, or a URI such as ``s3://bucket/tables``."""

    name = "path"

    def convert(
        self, value: str | PathLike[str] | RemotePath | Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the place.

        Raises:
            ConfigurationError: A file URI names another host.
        """
        return place_of(value)
