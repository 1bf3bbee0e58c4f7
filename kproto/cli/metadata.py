"""``kproto metadata``: shows a cluster's brokers, controller, leaders, ISR and epochs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kproto.cli.options import client_options, format_option
from kproto.cli.sections import Section, lines_of
from kproto.cli.text import terminal_width
from kproto.cli.times import Seconds
from kproto.error_codes import error_name
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel.metadata.clients import ClusterWatch
    from channel.metadata.cluster_metadata import ClusterView, Difference
    from channel.security import SecurityConfig
    from channel.types import SecurityProtocol


@click.command(
    epilog="""\b
Examples:
  kproto metadata --bootstrap kafka-1:9092
  kproto metadata --bootstrap kafka-1:9092 --topic orders --watch
  kproto metadata --bootstrap kafka-1:9092 --topic orders --wait --timeout 60
  kproto metadata --bootstrap kafka-1:9092 --all-brokers
      where do brokers disagree?
  kproto metadata --bootstrap kafka-1:9093 --security client.properties \\
      --format json | jq .controller_id """
)
@click.option(
    "--bootstrap", required=True, multiple=True, metavar="HOST:PORT", help="A node to ask; several if any may be down."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only these topics.")
@click.option("--all-brokers", is_flag=True, help="Ask every broker, and show where their answers differ.")
@click.option("--watch", is_flag=True, help="Repeat the request, and print the changes.")
@click.option("--wait", is_flag=True, help="Wait until the topics exist, no longer than --timeout for each.")
@click.option(
    "--interval",
    default=2.0,
    type=Seconds(0.1, 3600),
    help="Seconds between two requests of --watch.",
)
@client_options(10.0, Seconds(0.001, 3600), "Seconds for each node.", "Properties: security.protocol, ssl.*, sasl.*.")
@format_option("json")
def command(
    bootstrap: tuple[str, ...],
    topics: tuple[str, ...],
    all_brokers: bool,
    watch: bool,
    wait: bool,
    interval: float,
    how: dict[str, Any],
    form: str,
) -> None:
    """Show brokers, controller, leaders, ISR and epochs, as the Metadata responses of brokers give them.

    With --all-brokers the exit code is 1 if brokers disagree, do not answer, or know of no brokers yet. --wait goes
    the way of a producer: a sender thread asks until the topics are known.
    """
    if wait and not topics:
        raise click.UsageError("--wait needs the topics to wait for: add --topic")
    if wait and (watch or all_brokers):
        raise click.UsageError(
            "--wait ends with the first answer that has the topics; leave out --watch and --all-brokers"
        )
    from channel.addresses import parse_address
    from channel.metadata.clients import ClusterClient, ClusterWatch
    from channel.metadata.cluster_metadata import differences

    addresses = [parse_address(text) for text in bootstrap]
    wanted = topics or None
    if watch:
        with ClusterWatch(addresses, wanted, interval_ms=int(interval * 1000), **how) as watched:
            _watch(watched, form)
        return
    if wait:
        _show(_awaited(addresses, topics, **how), form)
        return
    client = ClusterClient(addresses, **how)
    if not all_brokers:
        _show(client.ask_any(wanted), form)
        return
    views, failures = client.ask_all(wanted)
    found = differences([view.snapshot for view in views])
    if form == "json":
        _print(json.dumps({
            "views": [view.to_json() for view in views],
            "differences": [
                {**each._asdict(), "values": dict(zip((view.node.id for view in views), each.values, strict=True))}
                for each in found
            ],
            "failures": failures,
        }))  # fmt: skip
    else:
        if views:
            _print("\n".join(_text(views[0])))
        _print("\n".join(_compared(views, found, failures)))
    if found or failures or not views:
        sys.exit(1)


def _awaited(
    addresses: Sequence[tuple[str, int]],
    topics: Sequence[str],
    protocol: SecurityProtocol,
    security: SecurityConfig,
    timeout_ms: int,
) -> ClusterView:
    from channel.addresses import show_address, why_unreachable
    from channel.config import ChannelConfig
    from channel.errors import Disconnected, TopicNotKnown
    from channel.metadata.clients import MetadataSender

    config = ChannelConfig(security=security, max_block_ms=timeout_ms, request_timeout_ms=timeout_ms)
    with MetadataSender(addresses, config, protocol=protocol) as sender:
        try:
            for topic in topics:
                sender.wait_for_topic(topic)
        except TopicNotKnown as e:
            if sender.view() is not None:
                raise
            reasons = [f"{show_address(address)}: {why_unreachable(*address) or e}" for address in addresses]
            raise Disconnected(f"no node answers: {'; '.join(reasons)}") from e
        view = sender.view()
    assert view is not None
    return view


def _show(view: ClusterView, form: str) -> None:
    _print(json.dumps(view.to_json()) if form == "json" else "\n".join(_text(view)))


def _watch(watched: ClusterWatch, form: str) -> None:
    from channel.errors import Disconnected
    from channel.metadata.cluster_metadata import differences

    former: ClusterView | None = None
    try:
        while True:
            try:
                view = watched.next()
            except Disconnected as e:
                if former is None:
                    raise
                print(f"{time.strftime('%H:%M:%S')} {printable(str(e))}", file=sys.stderr)
                continue
            changes = [] if former is None else differences([former.snapshot, view.snapshot])
            if form == "json":
                if former is None or changes:
                    _print(json.dumps({"time": time.time(), **view.to_json()}))
            elif former is None:
                _print("\n".join(_text(view)))
            for change in changes if form == "text" else ():
                before, after = change.values
                _print(f"{time.strftime('%H:%M:%S')} {printable(f'{change.about}: {change.fact} {before} -> {after}')}")
            former = view
    except KeyboardInterrupt:
        return


def _text(view: ClusterView) -> Iterator[str]:
    snapshot = view.snapshot
    controller = "none" if snapshot.controller_id is None else str(snapshot.controller_id)
    where = f"{printable(view.node.host)}:{view.node.port}"
    cluster = printable(snapshot.cluster_id or "without an id")
    yield f"cluster {cluster}, controller {controller}, according to {where}"
    if view.brokers:
        yield from _table(
            ("broker", "~listens at", "rack"),
            [(str(b.id), f"{b.host}:{b.port}", b.rack or "") for b in view.brokers],
        )
    else:
        yield "no brokers"
    for name, topic in sorted(snapshot.topics.items()):
        if topic.error_code:
            yield f"topic {printable(name)}: {error_name(topic.error_code)}"
    rows = [
        (
            f"{each.topic}-{each.partition}",
            "none" if info.leader is None else str(info.leader),
            "" if info.leader_epoch is None else str(info.leader_epoch),
            ",".join(map(str, info.isr)),
            ",".join(map(str, info.replicas)),
            ",".join(map(str, info.offline_replicas)),
            error_name(info.error_code) if info.error_code else "",
        )
        for each, info in snapshot.partitions()
    ]
    if rows:
        yield from _table(
            ("~partition", "leader", "leader epoch", "isr", "replicas", "offline replicas", "error"), rows
        )
    else:
        yield "no topics"


def _compared(views: Sequence[ClusterView], found: Sequence[Difference], failures: dict[int, str]) -> Iterator[str]:
    for broker_id, why in failures.items():
        yield f"broker {broker_id} gave no answer: {printable(why)}"
    if not views and not failures:
        yield "the node knows no brokers yet; a controller tells it of them with UpdateMetadata"
    elif len(views) == 1:
        yield f"broker {views[0].node.id} alone answered; there is nothing to compare it with"
    elif views and not found:
        yield f"{counted(len(views), 'broker')} agree"
    if not found:
        return
    yield f"{counted(len(found), 'difference')} between {counted(len(views), 'broker')}"
    yield from _table(
        ("~about", "fact", *(f"broker {view.node.id}" for view in views)),
        [(each.about, each.fact, *each.values) for each in found],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, without the columns that are empty."""
    used = [number for number in range(len(head)) if any(row[number] for row in rows)]
    cells = [[printable(row[number]) for number in used] for row in rows]
    return lines_of(Section("", [head[number] for number in used], cells), terminal_width())


def _print(text: str) -> None:
    print(text, flush=True)
