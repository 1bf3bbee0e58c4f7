"""``kproto replay``: sends a captured controller's requests to a broker again, and compares the answers."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kproto.api import CONTROL_APIS, api_name
from kproto.cli.options import CaptureCommand, capture_filters, client_options, format_option
from kproto.cli.text import moment_text
from kproto.cli.times import Seconds
from kproto.errors import CaptureError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel.rehearsal.replay import Replayed
    from kproto.tables.filters import Filters
    from kproto.verdicts.timeline import Entry


@click.command(
    cls=CaptureCommand,
    epilog="""\b
Examples:
  kproto replay control.pcap --to 127.0.0.1:19092 --broker 1
      to broker 1 on this machine, as fast as it answers
  kproto replay control.pcap --to 127.0.0.1:19092 --broker 1 --pace captured
      with the pauses that the controller made
  kproto replay control.pcap --to 10.0.0.5:9092 --broker 1 \\
      --map 10.1.0.7:9092=10.0.0.7:9092 --until 19:35:10
  kproto replay control.pcap --to 127.0.0.1:19092 --broker 1 --format json \\
      | jq 'select(.differs)'

\b
A broker to replay to, with the id of the captured one:
  kproto brokers --count 1 --first-id 1 --base-port 19091
The exit code is 1 if an answer differs from the captured one. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="The broker that gets the requests.")
@capture_filters
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="HOST:PORT=HOST:PORT",
    help="An address in the requests, and what to write in its place; by default its port on 127.0.0.1. Repeatable.",
)
@click.option(
    "--broker-epoch",
    default=-1,
    show_default=False,
    help="Put in as the broker epoch; -1, the default, fits every broker.",
)
@click.option(
    "--pace",
    type=click.Choice(["fast", "captured"]),
    default="fast",
    help="As fast as the broker answers, or as the controller sent.",
)
@click.option("--force", is_flag=True, help="Also to a broker that has a controller.")
@client_options(
    30.0, Seconds(0.1), "Seconds to wait for each answer.",
    "Properties: security.protocol, ssl.*, sasl.* of the broker's listener.",
)  # fmt: skip
@format_option("json", description="Text, or a JSON object for each request.")
def command(
    captures: tuple[str, ...],
    filters: Filters,
    *,
    target: str,
    maps: tuple[str, ...],
    broker_epoch: int,
    pace: str,
    force: bool,
    how: dict[str, Any],
    form: str,
) -> None:
    """Send a captured controller's requests to a broker again, and compare its answers.

    The requests are those of one broker (--broker, or the only one in the capture), in their order, one after the
    other. Every address in them is rewritten, so that the broker fetches from nobody in the captured cluster, and the
    broker epoch is replaced. The broker must have the captured broker's id, and no controller.
    """
    from channel.addresses import parse_address
    from channel.rehearsal.replay import Replay

    entries = _requests(captures, filters)
    first = next(entries, None)
    if first is None:
        raise ConfigurationError("the captures hold no control request that fits; try kproto inspect")
    broker_id = first.broker_id
    if broker_id is None:
        raise ConfigurationError(f"the captures do not tell the id of {first.exchange.server}; name it: --brokers")
    endpoints = {parse_address(here): parse_address(there) for here, _, there in (text.partition("=") for text in maps)}
    sent = differing = left_out = 0
    with Replay(parse_address(target), broker_id, endpoints=endpoints, broker_epoch=broker_epoch, **how) as replay:
        replay.check(force=force)
        began, began_ns = time.monotonic(), first.exchange.time_ns
        for entry in (first, *entries):
            if entry.broker_id != broker_id:
                raise ConfigurationError(
                    f"the captures hold requests to brokers {broker_id} and {entry.broker_id}; name one: --broker"
                )
            if pace == "captured":
                due = began + (entry.exchange.time_ns - began_ns) / 1e9
                time.sleep(max(0.0, due - time.monotonic()))
            replayed = replay.send(entry.exchange)
            if replayed is None:
                left_out += 1
                continue
            sent += 1
            differing += replayed.differs
            record = _record(replayed)
            if form == "json":
                print(json.dumps(record))
            elif replayed.differs:
                moment = moment_text(replayed.exchange.time_ns)
                print(
                    f"{moment}  {record['request']}  #{record['correlation_id']}  "
                    f"captured: {record['captured']}; now: {record['response']}"
                )
    if form != "json":
        took = time.monotonic() - began
        print(f"{sent} requests sent in {took:.1f} s, {left_out} left out as not whole; {differing} answers differ")
    if differing:
        sys.exit(1)


def _requests(captures: tuple[str, ...], filters: Filters) -> Iterator[Entry]:
    """Yield the requests that fit.

    Raises:
        CaptureError: The captures hold no control request, and why.
    """
    from kproto.capture import CaptureSummary, exchanges
    from kproto.capture.read import problem_of
    from kproto.verdicts.timeline import Timeline

    summary = CaptureSummary()
    timeline = Timeline(filters, apis=filters.apis or frozenset(CONTROL_APIS))
    read = exchanges(captures, ports=filters.ports, logs=filters.logs, summary=summary)
    nothing = True
    for entry in timeline.entries(read):
        if entry.exchange.request is not None:
            nothing = False
            yield entry
    problem = problem_of(captures, summary) if nothing else None
    if problem is not None:
        raise CaptureError(problem)


def _record(replayed: Replayed) -> dict[str, Any]:
    exchange = replayed.exchange
    return {
        "time": exchange.time,
        "request": f"{api_name(exchange.api_key or 0)} v{exchange.api_version}",
        "correlation_id": exchange.correlation_id,
        "captured": None if replayed.captured is None else str(replayed.captured),
        "response": str(replayed.response),
        "differs": replayed.differs,
    }
