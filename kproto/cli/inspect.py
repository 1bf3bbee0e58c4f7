"""``kproto inspect``: who told which broker what, and when, and what it answered."""

from __future__ import annotations

import heapq
import json
import os
import shutil
import sys
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from kproto.api import CONTROL_APIS
from kproto.cli.lines import LineFormatter
from kproto.cli.options import CaptureCommand, capture_filters
from kproto.cli.progress import reading
from kproto.cli.states import damage, error_codes
from kproto.cli.tally import Tally
from kproto.tables.brokers import BrokerDirectory
from kproto.tables.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kproto.capture import Endpoint, Exchange
    from kproto.cli.progress import ReadingProgress

__all__ = ["command"]

_OPEN_FILES: Final = 200
"""How many captures are read side by side."""

_HELD: Final = 1000
"""How many exchanges may wait until the traffic tells whose the first one's address is."""


@click.command(
    cls=CaptureCommand,
    epilog="""\b
A capture that can be read (on a broker's or the controller's host; the ports are the inter-broker listener's and,
if there is one, the control-plane listener's; no TLS):
  tcpdump -i any -s 0 -w control.pcap 'tcp port 9092 or tcp port 9091'

\b
Examples:
  kproto inspect control.pcap
  kproto inspect control.pcap --broker 7 --partition orders-3     who told broker 7 that, and when?
  kproto inspect control.pcap --topic 'orders*' --since 2026-11-21T05:59 --until 2026-11-21T06:05
  kproto inspect control.pcap --errors -v                         what went wrong, partition by partition
  kproto inspect kafka-request.log.* --api UpdateMetadata         the brokers' own request log
  tcpdump -i any -s 0 -U -w - 'tcp port 9092' | kproto inspect -  follow it live
  kproto inspect control.pcap --format json | jq 'select(.response.errorCode != 0)'""",
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@capture_filters
@click.option("--all-apis", is_flag=True, help="Other requests too: AlterPartition, Metadata, ControlledShutdown ...")
@click.option("-v", "--details", is_flag=True, help="Each partition state, live broker and error on a line of its own.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Count as unreadable what the protocol forbids though Kafka lets it pass.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def command(
    captures: tuple[str, ...],
    filters: Filters,
    *,
    all_apis: bool,
    details: bool,
    form: str,
    strict: bool,
    color: str,
) -> None:
    """Show who told which broker what, and what it answered.

    CAPTURE is a pcap or pcapng file, a broker's kafka-request.log, either also gzip or zstd, or - for standard input,
    which is followed as it grows; several files are shown as one, by time. One line is one request with its response:
    when, controller → broker, the request and its correlation id, controller epoch/broker epoch, milliseconds until the
    answer, the answer, and what was said. Times are UTC.

    Broker ids are learnt from the traffic; --brokers names those that it does not tell.

    --format json: one object a line with time (seconds), server, client, api_key, api_version, correlation_id,
    client_id, request and response (Kafka's JSON form, or null), latency_ms, and error where a body cannot be read.
    """
    directory = BrokerDirectory(filters.broker_ids)
    terminal = sys.stdout.isatty()
    formatter = LineFormatter(
        filters,
        directory,
        terminal=terminal,
        color=color == "always" or (color == "auto" and terminal and "NO_COLOR" not in os.environ),
        width=shutil.get_terminal_size().columns if terminal else None,
        details=details,
    )
    tally = Tally()
    with reading() as progress:
        for exchange in _selected(captures, filters, directory, tally, progress, all_apis=all_apis, strict=strict):
            lines = [_json_line(exchange)] if form == "json" else formatter.lines(exchange)
            progress.hide()
            for line in lines:
                print(line)
            if captures == ("-",):
                sys.stdout.flush()
    tally.conclude(filters, quiet=form == "json")


def _selected(
    captures: tuple[str, ...],
    filters: Filters,
    directory: BrokerDirectory,
    tally: Tally,
    progress: ReadingProgress,
    *,
    all_apis: bool,
    strict: bool,
) -> Iterator[Exchange]:
    """The exchanges that the filters want, counted."""
    shown = None if all_apis and not filters.apis else filters.apis or frozenset(CONTROL_APIS)
    read = None if shown is None else shown | frozenset(CONTROL_APIS)  # those tell the brokers' ids, shown or not
    source = _in_order(captures, filters, read, tally, progress)
    for exchange in _once_named(source, directory, 0 if "-" in captures else _HELD, strict=strict):
        if shown is not None and exchange.api_key not in shown:
            continue
        tally.seen += 1
        if _wanted(exchange, filters, directory, tally):
            tally.show(exchange, failed=_failed(exchange, filters))
            yield exchange


def _in_order(
    captures: tuple[str, ...],
    filters: Filters,
    apis: Collection[int] | None,
    tally: Tally,
    progress: ReadingProgress,
) -> Iterator[Exchange]:
    """All exchanges of the captures by time, as if one capture had seen them all.

    A pipe cannot wait for the others, and files can be too many to be open at once: then one is read after the other.
    """
    from kproto.capture import CaptureSummary, exchanges

    sources = []
    for path in captures:
        summary = CaptureSummary()
        tally.summaries.append(summary)
        sources.append(exchanges(path, ports=filters.ports, apis=apis, summary=summary, progress=progress.of(path)))
    if "-" in captures or len(sources) > _OPEN_FILES:
        return chain.from_iterable(sources)
    return heapq.merge(*sources, key=lambda exchange: exchange.time_ns)


def _once_named(
    source: Iterable[Exchange], directory: BrokerDirectory, limit: int, *, strict: bool
) -> Iterator[Exchange]:
    """The same in the same order, each held back (within the limit) until the id of its server is known."""
    held: deque[Exchange] = deque()
    unknown: set[Endpoint] = set()
    for exchange in source:
        exchange.strict = strict
        directory.learn(exchange)
        held.append(exchange)
        if len(held) > limit:
            unknown.add(held[0].server)
        while held and (
            held[0].server in unknown or directory.id_of(held[0].server, capture=held[0].connection.capture) is not None
        ):
            yield held.popleft()
    yield from held


def _wanted(exchange: Exchange, filters: Filters, directory: BrokerDirectory, tally: Tally) -> bool:
    if not filters.wants_time(exchange.time_ns):
        return False
    if filters.by_partition:
        request = exchange.request_message
        if request is None or exchange.api_key not in CONTROL_APIS:
            return False
        if not any(filters.wants_partition(s.topic_name, s.partition_index) for s in request.partition_states):
            return False
    if filters.errors and not _failed(exchange, filters):
        return False
    broker = directory.id_of(exchange.server, exchange.time_ns, exchange.connection.capture)
    if filters.wants_broker(broker):
        return True
    tally.unnamed += broker is None
    return False


def _failed(exchange: Exchange, filters: Filters) -> bool:
    return damage(exchange) is not None or bool(error_codes(exchange, filters))


def _json_line(exchange: Exchange) -> str:
    form = exchange.to_json()
    form.pop("unmatched_reason", None)
    return json.dumps(form, separators=(",", ":"))
