"""``kproto top``: shows what flows now between controllers and brokers."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import api_name
from kproto.cli.describe import PartitionWords, answer_of, parts_of
from kproto.cli.footer import warn_of_losses
from kproto.cli.options import parse_ports
from kproto.cli.sections import Section, lines_of, shortened
from kproto.cli.text import counted, day_and_clock, ranges
from kproto.cli.times import Seconds
from kproto.errors import ConfigurationError
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.live import Live

    from kproto.capture import CaptureReader
    from kproto.capture.source import Source
    from kproto.verdicts.live import Change, Flow, LiveFold, Snapshot

_STANDARD_INPUT: Final = "-"
_PLAIN_WIDTH: Final = 80
_PLAIN_ROWS: Final = 10
_POLL_S: Final = 0.2
_NAME_LIMIT: Final = 24


@click.command(
    epilog="""\b
Examples:
  tcpdump -i any -s 0 -U -w - 'tcp port 9092' | kproto top -
      what flows past this host
  kproto top control.pcapng
      a capture or a recording of kproto tap, while it grows
  kproto top /var/tmp/tap
      the newest file of a directory, and those that follow it
  kproto top --once control.pcap
      the end of a capture, as one snapshot
  kproto top --interval 5 control.pcapng >> top.log
      plain lines, a snapshot each five seconds
  kproto top --metrics http://127.0.0.1:9404/metrics
      queues and latencies of kproto controller """
)
@click.argument("capture", required=False, metavar="[CAPTURE|DIR|-]")
@click.option("--metrics", "url", metavar="URL", help="Show a controller's Prometheus metrics instead of a capture.")
@click.option("--once", is_flag=True, help="Print one snapshot, of what is there now.")
@click.option("--interval", type=Seconds(0.1), default=1, show_default=True, help="Seconds between two snapshots.")
@click.option(
    "--window", type=click.IntRange(1, 3600), default=10, show_default=True, metavar="SECONDS",
    help="Rates and latencies are those of the last so many seconds.",
)  # fmt: skip
@click.option("--ports", multiple=True, metavar="PORTS", help="The brokers' ports, e.g. 9092,9091; else detected.")
def command(
    capture: str | None, *, url: str | None, once: bool, interval: float, window: int, ports: tuple[str, ...]
) -> None:
    """Show what flows now: requests a second, latency, epochs, latest changes, findings.

    CAPTURE is a pcap or pcapng file that grows or has ended, DIR a directory of such files, of which the newest is
    followed, and - standard input. On a terminal the screen is refreshed until Ctrl-C or the end of standard input; in
    a pipe, snapshots follow each other as plain lines.

    Rates and latencies are those of answered requests; changes are worded as by kproto inspect --changes, and findings
    are those of kproto doctor on the newest 5,000 requests and on those before, as far as time allowed.
    """
    if (capture is None) == (url is None):
        raise click.UsageError("name one of a capture, a directory, - for standard input, and --metrics URL")
    screen = _Screen(interval, once=once)
    with screen:
        if url is not None:
            _show_metrics(url, screen)
        elif capture is not None:
            _Followed(capture, screen, window, parse_ports(ports)).run()


class _Screen:
    """Shows each snapshot: on a terminal in place of the one before, else below it.

    Attributes:
        once: Whether there is one snapshot alone.
    """

    def __init__(self, interval: float, *, once: bool) -> None:
        self.once = once
        self._interval = interval
        self._terminal = sys.stdout.isatty() and not once
        self._live: Live | None = None
        self._stack = ExitStack()
        self._shown: list[str] = []
        self._next = time.monotonic() + interval

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def size(self) -> tuple[int, int | None]:
        """Columns and lines."""
        if not sys.stdout.isatty():
            return _PLAIN_WIDTH, None
        width, height = shutil.get_terminal_size()
        return width, None if self.once else height

    def wait_s(self) -> float:
        """Seconds until the next snapshot is due."""
        return max(self._next - time.monotonic(), 0.0)

    def show(self, lines: Sequence[str]) -> None:
        """Show a snapshot."""
        self._next = time.monotonic() + self._interval
        width, height = self.size
        between = [""] if self._shown else []
        self._shown = [shortened(line, width) for line in lines]
        if not self._terminal:
            print(*between, *self._shown, sep="\n", flush=True)
            return
        from rich.text import Text

        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(), screen=True, auto_refresh=False, vertical_overflow="crop")
            self._stack.enter_context(self._live)
        text = Text("\n").join(
            Text(line, style="" if line.startswith(" ") else "bold", no_wrap=True) for line in self._shown[:height]
        )
        self._live.update(text, refresh=True)

    def end(self) -> None:
        """Leave the screen, and print the last snapshot where it stays."""
        self._stack.close()
        if self._terminal:
            print(*self._shown, sep="\n")
            self._terminal = False


class _Followed:
    """Follows a file, a directory or standard input, and shows a snapshot at each interval."""

    def __init__(self, path: str, screen: _Screen, window: int, ports: tuple[int, ...] | None) -> None:
        from kproto.capture import CaptureReader
        from kproto.cli.no_pandas import keep_pandas_out
        from kproto.verdicts.live import LiveFold

        keep_pandas_out()
        self._path = path
        self._screen = screen
        self._reader: CaptureReader = CaptureReader(ports=ports, capture=path)
        self._fold: LiveFold = LiveFold(window, self._reader.summary, thrifty=not screen.once)
        self._directory = False
        self._known: set[str] = set()
        self._begun = False
        self._grown_at = 0.0
        self._time_ns = 0
        self._words = PartitionWords()

    def run(self) -> None:
        """Follow until the end of standard input, or for ever; with ``--once`` until what is there is read."""
        source = self._open(self._path)
        from kproto.capture.source import check_begun

        try:
            while True:
                if not self._read(source):
                    following = None if self._path == _STANDARD_INPUT else self._later()
                    if following is not None:
                        self._fold.add(self._reader.end_file(source.damage))
                        source.close()
                        source = self._open(following)
                        continue
                    if self._screen.once or self._path == _STANDARD_INPUT:
                        break
                    time.sleep(min(_POLL_S, self._screen.wait_s()))
                if not self._screen.once and self._screen.wait_s() == 0:
                    self._show()
            check_begun(source, begun=self._begun)
            self._fold.add(self._reader.end_file(source.damage))
        finally:
            source.close()
        self._show(ended=True)
        self._screen.end()
        warn_of_losses([(self._path, self._reader.summary)])

    def _read(self, source: Source) -> bool:
        """Read a piece, if there is one before the next snapshot is due; whether the source goes on."""
        if self._path == _STANDARD_INPUT and not self._screen.once and not self._is_ready():
            return True
        data = source.read()
        if data:
            self._begun = True
            self._fold.add(self._reader.feed(data))
            if self._reader.time_ns > self._time_ns:
                self._time_ns, self._grown_at = self._reader.time_ns, time.monotonic()
        return bool(data)

    def _is_ready(self) -> bool:
        """Whether standard input has bytes, or its end, before the next snapshot is due."""
        try:
            return bool(select.select([sys.stdin.fileno()], [], [], self._screen.wait_s())[0])
        except (OSError, ValueError):  # standard input without a descriptor
            return True

    def _open(self, path: str) -> Source:
        from kproto.capture.source import Source

        file: Any = path
        if path == _STANDARD_INPUT:
            try:
                file = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
            except (OSError, ValueError):  # standard input without a descriptor
                file = sys.stdin.buffer
        elif Path(path).is_dir():
            self._directory = True
            self._known.update(files := self._listed())
            file = files[-1]
        source = Source(file)
        self._reader.begin_file("standard input" if path == _STANDARD_INPUT else source.name)
        return source

    def _listed(self) -> list[str]:
        """The captures of the directory, those that were written last at the end."""
        from kproto.capture import capture_points

        files = {file for point in capture_points([self._path]) for file in point.files}
        return sorted(files, key=lambda file: (os.stat(file).st_mtime_ns, file))  # noqa: PTH116

    def _later(self) -> str | None:
        """The file of the directory that came after those that were there before, if one has."""
        if not self._directory:
            return None
        new = next((file for file in self._listed() if file not in self._known), None)
        if new is not None:
            self._known.add(new)
        return new

    def _show(self, *, ended: bool = False) -> None:
        waited_s = 0.0 if ended or not self._begun else time.monotonic() - self._grown_at
        snapshot = self._fold.snapshot(self._time_ns + int(waited_s * 1e9))
        self._screen.show(list(snapshot_lines(snapshot, self._path, self._words, *self._screen.size)))


def snapshot_lines(
    snapshot: Snapshot, name: str, words: PartitionWords, width: int, height: int | None
) -> Iterator[str]:
    """Yield a snapshot as lines of text.

    Args:
        snapshot: What to show.
        name: The name of what is read.
        words: Finds words for partitions.
        width: Columns.
        height: Lines to fit; None: any number.
    """
    day, clock = day_and_clock(snapshot.time_ns)
    when = f"{day} {clock[:8]}Z, " if snapshot.time_ns else ""
    tail = f"  {when}last {snapshot.seconds:.0f} s"
    yield f"kproto top  {shortened(printable(name), max(width - len(tail) - 12, 8))}{tail}"
    if not snapshot.total:
        yield "  no control request yet"
        return
    yield f"  {_controller(snapshot)}; {counted(snapshot.total, 'request')} so far"
    rows = _PLAIN_ROWS if height is None else max((height - 14) // 3, 1)
    apis = [*snapshot.apis, snapshot.all] if len(snapshot.apis) != 1 else list(snapshot.apis)
    yield from _section(_flows("Requests", "api", apis, len(apis)), width)
    yield from _section(_flows("Brokers", "broker", snapshot.brokers, rows), width)
    changes = [_change(change, words, width - 2) for change in snapshot.changes[:rows]]
    left_out = f" ({snapshot.not_compared:,} requests not compared: too many)" if snapshot.not_compared else ""
    yield f"Latest changes{left_out}"
    yield from (f"  {line}" for line in changes or ["none"])
    yield "Findings so far"
    found = snapshot.findings
    lines = [f"{f.severity:<8} {f.rule} {printable(f.text)}" for f in found[: rows if len(found) <= rows else rows - 1]]
    if len(found) > len(lines):
        lines.append(f"and {len(found) - len(lines)} more: kproto doctor shows them")
    yield from (f"  {_cut(line, width - 2)}" for line in lines or ["none"])


def _section(section: Section, width: int) -> Iterator[str]:
    yield section.title
    yield from lines_of(section, width)


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
            flow.name, f"{flow.per_second:.1f}", str(flow.errors), str(flow.in_flight), _ms(flow.median_us),
            _ms(flow.p99_us), "-" if flow.broker_epoch is None else str(flow.broker_epoch),
        ]  # fmt: skip
        section.rows.append(cells[: len(names)])
    if len(flows) > rows:
        section.below = f"and {len(flows) - rows} more with fewer requests"
    return section


def _ms(latency_us: int | None) -> str:
    return "-" if latency_us is None else f"{latency_us / 1000:.1f}"


def _change(change: Change, words: PartitionWords, width: int) -> str:
    """Say in one line what changed, as ``kproto inspect --changes`` words it."""
    entry = change.entry
    exchange = entry.exchange
    ids = [broker for broker in change.brokers if isinstance(broker, int)]
    others = [broker for broker in change.brokers if isinstance(broker, str)]
    told = ",".join(filter(None, (ranges(ids), *others)))
    sender = "?" if entry.sender is None else entry.sender.controller_id
    answer, _colour = answer_of(entry)
    api = "?" if exchange.api_key is None else api_name(exchange.api_key)
    parts = [*([] if answer == "ok" else [answer]), *parts_of(entry, words, _NAME_LIMIT)]
    _day, clock = day_and_clock(exchange.time_ns)
    return _cut(f"{clock}  {sender} → {shortened(told, 20)}  {api}  {'; '.join(parts)}", width)


def _cut(text: str, width: int) -> str:
    """Cut a sentence at its end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


# ---- metrics ---------------------------------------------------------------------------------------------------------

_MANAGER: Final = "kafka_controller_controllerchannelmanager"
_CHANNEL: Final = "controller_channel_metrics"
_EVENTS: Final = "kafka_controller_controllereventmanager_eventqueuesize"
_BROKER_FIGURES: Final = {
    ">queued": f"{_MANAGER}_queuesize",
    ">a second": f"{_CHANNEL}_request_rate",
    ">queue ms p50": f"{_MANAGER}_requestrateandqueuetimems_p50",
    ">p99": f"{_MANAGER}_requestrateandqueuetimems_p99",
    ">answer ms p50": f"{_CHANNEL}_request_latency_p50",
    ">p99 ": f"{_CHANNEL}_request_latency_p99",
    ">connections": f"{_CHANNEL}_connection_count",
}


def _show_metrics(url: str, screen: _Screen) -> None:
    """Show a controller's metrics at each interval."""
    found, failed = _metrics(url), ""
    while True:
        screen.show(list(metrics_lines(found, url, failed, *screen.size)))
        if screen.once:
            return
        time.sleep(screen.wait_s())
        try:
            found, failed = _metrics(url), ""
        except ConfigurationError as e:
            failed = str(e)


def _metrics(url: str) -> dict[tuple[str, str], float]:
    """Read the metrics of a controller by name and broker id ("" where there is none).

    Raises:
        ConfigurationError: They cannot be read, or are not those of a controller.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    from prometheus_client.parser import text_string_to_metric_families

    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{url!r} is no URL; try --metrics http://127.0.0.1:9404/metrics")
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310  the scheme is checked above
            text = answer.read().decode()
        found = {
            (sample.name, sample.labels.get("broker_id", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    except (OSError, HTTPException, ValueError) as e:
        reason = getattr(e, "reason", None) or e
        raise ConfigurationError(f"no metrics at {url}: {reason}; check the address") from e
    if not any(name.startswith(_MANAGER) for name, _broker in found):
        raise ConfigurationError(f"{url} has no metrics of a controller; kproto controller --metrics serves them")
    return found


def metrics_lines(
    found: dict[tuple[str, str], float], url: str, failed: str, width: int, height: int | None
) -> Iterator[str]:
    """Yield a controller's metrics as lines of text.

    Args:
        found: Values by name and broker id.
        url: Where they were read.
        failed: Why they could not be read again; empty: they could.
        width: Columns.
        height: Lines to fit; None: any number.
    """
    yield f"kproto top  {shortened(printable(url), width - 12)}"
    if failed:
        yield f"  {_cut(printable(failed), width - 2)}"
    queued, events = found.get((f"{_MANAGER}_totalqueuesize", "")), found.get((_EVENTS, ""))
    active = {1.0: "active", 0.0: "not active"}.get(
        found.get(("kafka_controller_kafkacontroller_activecontrollercount", ""), -1.0)
    )
    parts = [f"controller {active}"] if active else []
    parts += [f"{counted(int(queued), 'request')} queued"] if queued is not None else []
    parts += [f"{counted(int(events), 'event')} queued"] if events is not None else []
    yield f"  {'; '.join(parts)}"
    brokers = sorted({broker for _name, broker in found if broker}, key=lambda broker: (len(broker), broker))
    brokers.sort(key=lambda broker: -found.get((f"{_MANAGER}_queuesize", broker), 0.0))
    rows = len(brokers) if height is None else max(height - 6, 1)
    section = Section("Brokers", ["~broker", *_BROKER_FIGURES])
    for broker in brokers[:rows]:
        values = [found.get((name, broker)) for name in _BROKER_FIGURES.values()]
        section.rows.append([broker, *("-" if value is None else f"{value:.4g}" for value in values)])
    if len(brokers) > rows:
        section.below = f"and {len(brokers) - rows} more with shorter queues"
    yield from _section(section, width)
