"""Formats what ``kproto top`` shows of captures: a snapshot as lines of text."""

from __future__ import annotations

from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from kproto.api import api_name
from kproto.cli.describe import answer_of, parts_of
from kproto.cli.screen import PLAIN_ROWS, cut, finding_lines, section_lines
from kproto.cli.sections import Section, shortened
from kproto.cli.text import day_and_clock
from kproto.text import counted, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kproto.verdicts.live import Change, Flow, Snapshot

_NAME_LIMIT: Final = 24


def snapshot_lines(
    snapshot: Snapshot,
    name: str,
    width: int,
    height: int | None,
    *,
    points: Sequence[tuple[str, int, int]] = (),
    why_nothing: str = "",
) -> Iterator[str]:
    """Yield a snapshot as lines of text.

    Args:
        snapshot: The snapshot to show.
        name: The name of what is read.
        width: Columns.
        height: Lines to fit; None: any number.
        points: Name, requests so far, and time of the newest packet of each capture point; a single one needs no line
            of its own.
        why_nothing: Why there is no request, where what was captured is TLS; else empty.
    """
    day, clock = day_and_clock(snapshot.time_ns)
    when = f"{day} {clock[:8]}Z, " if snapshot.time_ns else ""
    tail = f"  {when}last {snapshot.seconds:.0f} s"
    yield f"kproto top  {shortened(printable(name), max(width - len(tail) - 12, 8))}{tail}"
    if not snapshot.total:
        told = f": {printable(why_nothing)}" if why_nothing else ""
        yield from wrap(f"no control request yet{told}", width, initial_indent="  ", subsequent_indent="  ")
        return
    yield f"  {_controller(snapshot)}; {counted(snapshot.total, 'request')} so far"
    if len(points) > 1:
        yield _points(points, width)
    rows = PLAIN_ROWS if height is None else max((height - 14 - (len(points) > 1)) // 3, 1)
    apis = [*snapshot.apis, snapshot.all] if len(snapshot.apis) != 1 else list(snapshot.apis)
    yield from section_lines(_flows("Requests", "api", apis, len(apis)), width)
    yield from section_lines(_flows("Brokers", "broker", snapshot.brokers, rows), width)
    changes = [_change(change, width - 2) for change in snapshot.changes[:rows]]
    left_out = f" ({snapshot.not_compared:,} requests not compared: too many)" if snapshot.not_compared else ""
    yield f"Latest changes{left_out}"
    yield from (f"  {line}" for line in changes or ["none"])
    yield "Findings so far"
    yield from finding_lines(snapshot.findings, rows, width)


def _points(points: Sequence[tuple[str, int, int]], width: int) -> str:
    """Name capture points, those that are silent for the longest time first, as many as fit."""
    line = "  points:"
    ordered = sorted(points, key=itemgetter(2))
    for number, (name, requests, time_ns) in enumerate(ordered):
        until = day_and_clock(time_ns)[1][:8] if time_ns else "none"
        more = f"{', ' if number else ' '}{shortened(printable(name), _NAME_LIMIT)} {until} ({requests:,})"
        left = len(points) - number
        if len(line) + len(more) + len(f", and {left - 1} more") > width:
            return f"{line}{',' if number else ''} and {left} more"
        line += more
    return line


def _controller(snapshot: Snapshot) -> str:
    sender = snapshot.controller
    if sender is None:
        return "controller not known yet"
    mode = "KRaft" if sender.is_kraft_controller else "ZooKeeper"
    return f"controller {sender.controller_id}, epoch {sender.controller_epoch} ({mode})"


def _flows(title: str, kind: str, flows: Sequence[Flow], rows: int) -> Section:
    names = [f"~{kind}", ">a second", ">errors", ">in flight", ">median ms", ">p99 ms"]
    section = Section(title, names)
    if kind == "broker":
        names.append(">broker epoch")
    for flow in flows[:rows]:
        cells = [
            f"{flow.name} (down)" if flow.is_down else flow.name,
            f"{flow.per_second:.1f}", str(flow.errors), str(flow.in_flight), _ms(flow.median_us),
            _ms(flow.p99_us), "-" if flow.broker_epoch is None else str(flow.broker_epoch),
        ]  # fmt: skip
        section.rows.append(cells[: len(names)])
    if len(flows) > rows:
        section.below = f"and {len(flows) - rows} more with fewer requests"
    return section


def _ms(latency_us: int | None) -> str:
    return "-" if latency_us is None else f"{latency_us / 1000:.1f}"


def _change(change: Change, width: int) -> str:
    """Say in one line what changed, as ``kproto inspect --changes`` words it."""
    entry = change.entry
    exchange = entry.exchange
    ids = [broker for broker in change.brokers if isinstance(broker, int)]
    others = [broker for broker in change.brokers if isinstance(broker, str)]
    told = ",".join(filter(None, (ranges(ids), *others)))
    sender = "?" if entry.sender is None else entry.sender.controller_id
    answer, _colour = answer_of(entry)
    api = "?" if exchange.api_key is None else api_name(exchange.api_key)
    parts = [*([] if answer == "ok" else [answer]), *parts_of(entry, _NAME_LIMIT)]
    _day, clock = day_and_clock(exchange.time_ns)
    return cut(f"{clock}  {sender} → {shortened(told, 20)}  {api}  {'; '.join(parts)}", width)
