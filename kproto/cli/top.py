"""``kproto top``: shows what flows now between controllers and brokers, or what KRaft's metadata log says now."""

from __future__ import annotations

import gc
import heapq
import math
import os
import select
import sys
import time
from collections import deque
from functools import partial
from operator import itemgetter
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import api_name
from kproto.cli.describe import answer_of, parts_of
from kproto.cli.footer import warn_of_losses
from kproto.cli.options import source_options
from kproto.cli.screen import PLAIN_ROWS, POLL_S, Screen, cut, finding_lines, section_lines
from kproto.cli.sections import Section, shortened
from kproto.cli.text import day_and_clock
from kproto.cli.times import Seconds
from kproto.errors import CaptureError, first_reasons
from kproto.metadata_log.finding import find
from kproto.text import counted, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kproto.capture import CaptureReader, CaptureSummary, Exchange, Frame
    from kproto.capture.source import Source
    from kproto.tables.filters import Filters
    from kproto.verdicts.live import Change, Flow, Snapshot

    Event = Frame | Exchange

_STANDARD_INPUT: Final = "-"
_NAME_LIMIT: Final = 24
_LIST_S: Final = 1.0
"""Seconds between two looks into the directories: each opens their files to tell whose they are."""

_COLLECT_AFTER: Final = 50_000
"""The objects that more are made than freed between two collections."""


@click.command(
    epilog="""\b
Examples:
  tcpdump -i any -s 0 -U -w - 'tcp port 9092' | kproto top -
      what flows past this host
  kproto top control.pcapng
      a capture or a recording of kproto tap, while it grows
  kproto top /var/tmp/tap
      the newest file of each capture point of a directory, and those after it
  kproto top broker-1.pcapng broker-2.pcapng
      one cluster, recorded at two places
  kproto top --once control.pcap
      the end of a capture, as one snapshot
  kproto top --interval 5 control.pcapng >> top.log
      plain lines, a snapshot each five seconds
  kproto top /var/kafka/metadata/__cluster_metadata-0
      KRaft's metadata log, while it grows
  kproto top --metrics http://127.0.0.1:9404/metrics
      queues and latencies of kproto controller """
)
@click.argument("captures", nargs=-1, metavar="[CAPTURE|DIR...|-]")
@click.option("--metrics", "url", metavar="URL", help="Show a controller's Prometheus metrics instead of a capture.")
@click.option("--once", is_flag=True, help="Print one snapshot of the present state.")
@click.option("--interval", type=Seconds(0.1), default=1, help="Seconds between two snapshots.")
@click.option(
    "--window", type=click.IntRange(1, 3600), default=10, metavar="SECONDS",
    help="The seconds over which rates and latencies are taken.",
)  # fmt: skip
@source_options
def command(
    captures: tuple[str, ...], filters: Filters, *, url: str | None, once: bool, interval: float, window: int
) -> None:
    """Show what flows now: requests a second, latency, epochs, latest changes, findings.

    Of KRaft's metadata log, a directory of __cluster_metadata-0 that grows or a copy of it: the active controller and
    its epoch, the brokers, partitions without a leader or without some of their replicas, latest changes, findings.

    CAPTURE is a pcap or pcapng file that grows or has ended, DIR a directory of such files, of which the newest of each
    capture point is followed, and - standard input. Several are of one cluster, recorded at several places: their
    requests are merged by time, and a request that two places recorded counts at both. On a terminal the screen is
    refreshed until Ctrl-C or the end of standard input; in a pipe, snapshots follow each other as plain lines.

    Rates and latencies are those of answered requests; changes are worded as by kproto inspect --changes, and findings
    are those of kproto doctor on the newest 5,000 requests and on those before, as far as time allowed.
    """
    if bool(captures) == (url is not None):
        raise click.UsageError("name one of a capture, a directory, - for standard input, and --metrics URL")
    if _STANDARD_INPUT in captures and len(captures) > 1:
        raise click.UsageError("- stands alone; name either standard input or captures")
    screen = Screen(interval, once=once)
    with screen:
        if url is not None:
            from kproto.cli.metrics_top import show_metrics

            show_metrics(url, screen)
            return
        log, others = find(captures)
        if not log:
            _Followed(captures, screen, window, filters).run()
        elif others:
            for path in sorted(set(captures).difference(others)):
                screen.note(f"note: {printable(path)}: a metadata log is followed alone, without captures")
            _Followed(others, screen, window, filters).run()
        else:
            from kproto.cli.metadata_top import show_log

            show_log(captures, screen)


class _WatchedPoint:
    """A capture point that is followed: its files one after the other, or standard input.

    Args:
        name: Its name.
        files: Its files; ``add`` appends those that come later.
        how: The brokers' ports, and what logs do not say.

    Attributes:
        reader: Reads its packets.
        source: The file that is read.
        known: Every file so far.
        begun: Whether the file that is read has had any byte.
        is_at_end: Whether the last file had no more bytes when it was read last.
        is_given_up: Whether a file could not be read.
        requests: The number of requests that were answered or given up.
    """

    def __init__(self, name: str, files: Sequence[str], how: Filters) -> None:
        from kproto.capture import CaptureReader

        self.name = name
        self.reader: CaptureReader = CaptureReader(ports=how.ports, capture=name, logs=how.logs)
        self.known = set(files)
        self.begun = self.is_at_end = self.is_given_up = False
        self.requests = 0
        self._files = deque(files)
        self._events: deque[tuple[int, Event]] = deque()
        self._events_ns = 0
        self.source = self._open()

    def add(self, files: Iterable[str]) -> None:
        """Append files."""
        for file in files:
            if file not in self.known:
                self.known.add(file)
                self._files.append(file)
                self.is_at_end = False

    def read(self) -> list[Event]:
        """Read a piece, or go on to the next file; return the frames and exchanges that it completes."""
        data = self.source.read()
        if data:
            self.begun = True
            return self.reader.feed(data)
        if self._files:
            events = self.reader.end_file(self.source.damage)
            self.source.close()
            self.source = self._open()
            return events
        self.is_at_end = True
        return []

    def keep(self, events: Iterable[Event]) -> None:
        """Keep events for ``take``, in the order in which the reader gives them."""
        from kproto.capture import Exchange

        for event in events:
            frame = event
            if isinstance(event, Exchange):
                frame = event.response or event.frame
                self.requests += event.request is not None
            self._events_ns = max(self._events_ns, frame.time_ns)
            self._events.append((self._events_ns, event))

    def take(self, until_ns: float) -> Iterator[tuple[int, Event]]:
        """Take the frames and exchanges up to a time, each with its time."""
        while self._events and self._events[0][0] <= until_ns:
            yield self._events.popleft()

    def _open(self) -> Source:
        from kproto.capture.source import Source

        path = self._files.popleft()
        file: Any = path
        if path == _STANDARD_INPUT:
            try:
                file = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
            except (OSError, ValueError):  # standard input without a descriptor
                file = sys.stdin.buffer
        source = Source(file)
        self.reader.begin_file("standard input" if path == _STANDARD_INPUT else source.name)
        return source


class _Followed:
    """Follows files, directories or standard input, and shows a snapshot at each interval."""

    def __init__(
        self,
        paths: Sequence[str],
        screen: Screen,
        window: int,
        filters: Filters,
    ) -> None:
        from kproto.capture import capture_points
        from kproto.cli.no_pandas import keep_pandas_out
        from kproto.verdicts.live import LiveFold

        keep_pandas_out()
        self._name = " ".join(paths)
        self._screen = screen
        self._filters = filters
        self._is_stdin = tuple(paths) == (_STANDARD_INPUT,)
        self._points: dict[str, _WatchedPoint] = {}
        self._problems: list[str] = []
        self._told = 0
        self._summaries: dict[str, CaptureSummary] = {}
        self._fold = LiveFold(window, self._summaries, thrifty=not screen.once, broker_ids=filters.broker_ids)
        self._grown_at = 0.0
        self._time_ns = 0
        self._look_at = self._list_at = 0.0
        self._directories = [path for path in paths if Path(path).is_dir()]
        files = [path for path in paths if path not in self._directories]
        if len(files) == 1:
            self._follow(files[0], files)
        else:
            for found in capture_points(files):
                self._follow(found.name, found.files)
        self._look()
        self._tell_problems()

    def run(self) -> None:
        """Follow until the end of standard input, or for ever; with ``--once`` until what is there is read."""
        from kproto.capture.source import check_begun

        # Reading makes no cycles, and keeps what it makes for seconds: collections as often as usual find nothing.
        thresholds = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        try:
            while not self._read():
                if not self._screen.once and self._screen.wait_s() == 0:
                    self._show()
            points = self._points.values()
            if not any(point.begun for point in points):
                check_begun(next(iter(points)).source, begun=False)
            for point in points:
                if not point.is_given_up:
                    self._add(point, partial(point.reader.end_file, point.source.damage))
            self._merge(math.inf)
        finally:
            gc.unfreeze()  # DuckDB complains of what is left at the end of a process
            gc.set_threshold(*thresholds)
            for point in self._points.values():
                point.source.close()
        self._show(ended=True)
        self._screen.end()
        warn_of_losses([(point.name, point.reader.summary) for point in self._points.values()])

    def _read(self) -> bool:
        """Read a piece of the capture point that is behind the others; whether everything is read."""
        if not self._screen.once and time.monotonic() >= self._look_at:
            self._look()
        behind = [point for point in self._points.values() if not point.is_at_end]
        if not behind:
            self._merge(math.inf)
            if self._screen.once or self._is_stdin:
                return True
            time.sleep(min(POLL_S, self._screen.wait_s()))
            return False
        if self._is_stdin and not self._screen.once and not self._is_ready():
            return False
        point = min(behind, key=lambda point: point.reader.time_ns)
        self._add(point, point.read)
        self._merge(min((p.reader.time_ns for p in self._points.values() if not p.is_at_end), default=math.inf))
        return False

    def _add(self, point: _WatchedPoint, read: Callable[[], list[Event]]) -> None:
        """Read; hand on the events of the only capture point, or keep them to be merged with those of the others.

        Raises:
            CaptureError: It cannot be read, nor can any other.
        """
        try:
            events = read()
        except CaptureError as e:
            point.is_at_end = point.is_given_up = True
            self._problems.append(str(e))
            self._tell_problems()
            return
        if len(self._points) == 1:
            point.requests += self._fold.add(events)
        else:
            point.keep(events)

    def _tell_problems(self) -> None:
        """Tell of files that cannot be read.

        Raises:
            CaptureError: None can.
        """
        if all(point.is_given_up for point in self._points.values()):
            raise CaptureError(first_reasons(self._problems))
        for problem in self._problems[self._told :]:
            self._screen.note(f"warning: {printable(problem)}; skipped")
        self._told = len(self._problems)

    def _merge(self, until_ns: float) -> None:
        """Hand on what was captured at several points up to a time."""
        points = self._points.values()
        if len(points) > 1:
            self._fold.add(event for _, event in heapq.merge(*(p.take(until_ns) for p in points), key=itemgetter(0)))
        newest_ns = max(point.reader.time_ns for point in points)
        if newest_ns > self._time_ns:
            self._time_ns, self._grown_at = newest_ns, time.monotonic()

    def _is_ready(self) -> bool:
        """Whether standard input has bytes, or its end, before the next snapshot is due."""
        try:
            return bool(select.select([sys.stdin.fileno()], [], [], self._screen.wait_s())[0])
        except (OSError, ValueError):  # standard input without a descriptor
            return True

    def _follow(self, name: str, files: Sequence[str]) -> None:
        try:
            point = self._points[name] = _WatchedPoint(name, files, self._filters)
            self._summaries[name] = point.reader.summary
        except CaptureError as e:
            self._problems.append(str(e))

    def _look(self) -> None:
        """Look for bytes at the ends of files, and for new files in the directories."""
        from kproto.capture import capture_points

        self._look_at = time.monotonic() + POLL_S
        if not self._is_stdin:
            for point in self._points.values():
                point.is_at_end = point.is_given_up
        if time.monotonic() < self._list_at:
            return
        self._list_at = time.monotonic() + _LIST_S
        for directory in self._directories:
            for found in capture_points([directory]):
                files = set(found.files)
                mine = next((p for p in self._points.values() if p.known & files), self._points.get(found.name))
                if mine is not None and not mine.is_given_up:
                    mine.add(found.files[_after(found.files, mine.known) :])
                elif mine is None or not files <= mine.known:
                    self._follow(found.name, found.files[-1:])

    def _show(self, *, ended: bool = False) -> None:
        read = [point for point in self._points.values() if point.requests or not point.is_given_up]
        points = [(p.name, p.requests, p.reader.time_ns) for p in read]
        waited_s = 0.0 if ended or not self._time_ns else time.monotonic() - self._grown_at
        snapshot = self._fold.snapshot(self._time_ns + int(waited_s * 1e9))
        name = self._name if len(points) == 1 else f"{len(points)} capture points"
        why = "; ".join(filter(None, (s.problem() for s in self._summaries.values() if s.is_all_tls)))
        lines = _snapshot_lines(snapshot, name, *self._screen.size, points=points, why_nothing=why)
        self._screen.show(list(lines))


def _after(files: Sequence[str], known: Collection[str]) -> int:
    """Return the index behind the last file that is known."""
    return max((at + 1 for at, file in enumerate(files) if file in known), default=0)


def _snapshot_lines(
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
