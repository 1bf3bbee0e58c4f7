"""``kproto inspect``: shows each control request, what it changed at its broker, and the broker's answer."""

from __future__ import annotations

import heapq
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import CONTROL_APIS, api_name
from kproto.capture.summary import LOSSES
from kproto.cli.footer import losses, print_footer, warn_of_losses
from kproto.cli.lines import LineFormatter
from kproto.cli.options import CaptureCommand, capture_filters, cluster_option, format_option
from kproto.cli.progress import reading
from kproto.cli.text import compact, is_styled, terminal_width
from kproto.cli.times import parse_duration
from kproto.error_codes import error_name
from kproto.errors import CaptureError, ConfigurationError, first_reasons
from kproto.json_form import uuid_to_json
from kproto.metadata_log.finding import find
from kproto.tables.json_choice import wanted_partitions
from kproto.text import printable
from kproto.verdicts.states import deletes as says_deletion
from kproto.verdicts.timeline import Entry, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.capture import CapturePoint, CaptureSummary, Exchange
    from kproto.capture.growing import Growing
    from kproto.cli.metadata_changes import LogChange
    from kproto.cli.progress import ReadingProgress
    from kproto.metadata_log.finding import LogFiles
    from kproto.tables.filters import Filters
    from kproto.tables.resolved import Resolution

_STANDARD_INPUT: Final = "-"
_OPEN_FILES: Final = 200
"""The most captures that are read side by side."""
_EXIT_LOSS: Final = 3
_REMEMBERED: Final = 10_000
"""The number of exchanges of several capture points of which another sighting is known."""


@click.command(
    cls=CaptureCommand,
    epilog="""\b
A capture that can be read (on a broker's or the controller's host; the
ports are the inter-broker listener's and, if there is one, the control-
plane listener's; no TLS):
  tcpdump -i any -s 0 -w control.pcap 'tcp port 9092 or tcp port 9091'

\b
Examples:
  kproto inspect control.pcap
  kproto inspect control.pcap --broker 7 --partition orders-3
      who told broker 7 of a new leader, and when?
  kproto inspect control.pcap --changes --since -10m
      what changed in the last ten minutes
  kproto inspect control.pcap --errors request
      refused requests, and why
  kproto inspect control.pcap --slow 500ms
      which broker lags
  kproto inspect control.pcap --topic 'orders*' -v
      every partition on a line of its own
  kproto inspect kafka-request.log.* --api UpdateMetadata
      the brokers' own request log
  kproto inspect /var/tmp/tap
      all files of a directory, rotated ones as one stream
  kproto inspect --follow control.pcap
      a capture that is being written (tcpdump -U), line by line
  tcpdump -i any -s 0 -U -w - 'tcp port 9092' | kproto inspect -
      the same without a file
  kproto inspect /copies/__cluster_metadata-0 --records --format json
      every record of KRaft's metadata log, as Kafka's own dump prints it

\b
JSON, one object a line:
  kproto inspect control.pcap --format json \\
      | jq 'select(.outcome == "refused") | {time, broker_id, error_name}'
  kproto inspect control.pcap --format json \\
      | jq 'select(.partition_errors | length > 0) | .partition_errors[]'
  kproto inspect control.pcap --format json \\
      | jq 'select(.latency_ms != null and .latency_ms > 500) | .broker_id'
  kproto inspect control.pcap --format json | jq 'select(.record == "loss")'

\b
kproto summary answers for a whole capture in one page. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@capture_filters
@cluster_option
@click.option("--changes", is_flag=True, help="Only requests that changed something at their broker.")
@click.option("--deletes", is_flag=True, help="Only requests that delete partitions.")
@click.option("--slow", metavar="DURATION", help="Only requests whose answer took this long or longer, e.g. 500ms.")
@click.option("--unanswered", is_flag=True, help="Only unanswered requests.")
@click.option("--follow", is_flag=True, help="Go on as the file grows, or is replaced, until Ctrl-C.")
@click.option("--records", is_flag=True, help="Each record of KRaft's metadata log, from its files.")
@click.option("--show-secrets", is_flag=True, help="With --records: credentials and secret configurations, too.")
@click.option("--all-apis", is_flag=True, help="Other requests too: AlterPartition, Metadata, ControlledShutdown ...")
@click.option("-v", "--details", is_flag=True, help="Each partition state and live broker on a line of its own.")
@format_option("json")
@click.option("--wide", is_flag=True, help="Cut nothing, however wide the terminal is; as in a pipe.")
@click.option("--fail-on-loss", is_flag=True, help="Exit with 3 if bytes of a capture are missing or unusable.")
@click.option(
    "--strict", is_flag=True, help="Count requests that the protocol forbids as unreadable, although Kafka reads them."
)
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto",
    help="Colours; auto: on a terminal.",
)  # fmt: skip
@click.pass_context
def command(
    context: click.Context,
    /,
    captures: tuple[str, ...],
    filters: Filters,
    *,
    cluster: str | None,
    changes: bool,
    deletes: bool,
    slow: str | None,
    unanswered: bool,
    follow: bool,
    records: bool,
    show_secrets: bool,
    all_apis: bool,
    form: str,
    fail_on_loss: bool,
    strict: bool,
    **layout: Any,
) -> None:
    """Show each control request, what it changed at its broker, and the broker's answer.

    CAPTURE is a pcap or pcapng file, a broker's kafka-request.log, either also packed, a directory of such files,
    a copy of KRaft's __cluster_metadata-0, of which each change is a line of its own, or - for standard input, which is
    followed as it grows. Several files, as rotation leaves them, are shown as one stream, by time: a request may begin
    in one file and be answered in another. Captures of several hosts are read twice: they are shown with the time of
    one clock, and a request that two of them show once.

    One line is one request with its response: when (UTC); controller → broker; the request and its version; its
    correlation id; controller epoch/broker epoch (- where the version has none); milliseconds until the answer; the
    answer; and the changes since earlier requests to the same broker: "leader 0→2", "isr 0,1,2→0,2", "new",
    "deleted", "unchanged". "first seen" marks what the broker may have known before the capture began.

    REFUSED is an error of the whole request. "ok, 1 of 3 partitions: ..." is a request that was accepted, with an error
    of a partition alone: most often a leader epoch that the broker has already.

    --follow shows one file, a capture or a log, as it grows: each request once it is answered or can be no more. A file
    that is replaced (rotation) or written anew is read on from its beginning, and a note says so.

    Broker ids are learnt from the traffic; --brokers gives the ids that the traffic does not show.

    --format json prints an object a line. "record" is "exchange" for a request: time (seconds), server, client,
    api_key, api_version, correlation_id, client_id, request and response (Kafka's JSON form, or null), latency_ms, and
    error where a body cannot be read; beside them api, broker_id, controller_id, controller_epoch, broker_epoch,
    outcome, error_code, error_name, partition_errors, reason, changes. It is "loss" for what a capture lacks, and
    "bad_input" for each piece of it that could not be used.

    --records shows the records of KRaft's metadata log: CAPTURE is then a copy of __cluster_metadata-0, a directory of
    several nodes' copies, or .log and .checkpoint files. A record that several nodes have is shown once; those of a
    snapshot where the log before it is gone, or where its file is named. "record" in JSON is "metadata", with offset,
    time_ms, epoch, type, version and data as Kafka's DumpLogSegments prints them; credentials and secret configurations
    are hidden.
    """
    if records:
        from kproto.cli.metadata_records import print_records

        is_whole = print_records(captures, filters, form=form, show_secrets=show_secrets)
        if fail_on_loss and not is_whole:
            context.exit(_EXIT_LOSS)
        return
    logs, captures_alone = find(captures)
    if follow and (len(captures) != 1 or logs or (captures[0] != _STANDARD_INPUT and not Path(captures[0]).is_file())):
        raise ConfigurationError("--follow takes one file, a capture or a log; kproto top follows several, as figures")
    if logs and not captures_alone:
        from kproto.cli.metadata_changes import refuse

        of_requests = {"--slow": slow, "--unanswered": unanswered, "--errors": filters.errors}
        refuse(of_requests, "needs requests, and a metadata log has none; name a capture, too")
        _print_changes(logs, [], filters, form=form, deletes=deletes)
        return
    apis = None if all_apis and not filters.apis else filters.apis or frozenset(CONTROL_APIS)
    least_ns = 0 if slow is None else parse_duration(slow)
    outcome: list[tuple[object, Callable[[Entry], bool]]] = [
        (unanswered, lambda entry: entry.exchange.request is not None and entry.exchange.response is None),
        (slow, lambda entry: (ms := entry.exchange.latency_ms) is not None and ms * 1_000_000 >= least_ns),
        (deletes, lambda entry: any(says_deletion(change.state) for change in entry.partitions)),
        (changes, lambda entry: entry.is_change),
    ]
    is_live = follow or _STANDARD_INPUT in captures
    interrupted = False
    with reading() as progress:
        every = None if apis is None else apis | frozenset(CONTROL_APIS)
        source = _Captures(tuple(captures_alone), filters, every, progress, cluster, follow=follow)
        tests = [test for given, test in outcome if given]
        timeline = Timeline(source.filters, tests, apis=apis, strict=strict, follow=is_live)
        print_entry = _printer(filters, form=form, **layout)
        try:
            changed = _with_changes(
                timeline.entries(source.exchanges()), logs, filters, captures_alone, deletes=deletes
            )
            for entry in changed:
                progress.hide()
                print_entry(entry)
                if is_live:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            if not is_live:
                raise
            interrupted = True
    source.check()
    if not timeline.seen and not is_live and any(summary.speaks_kraft for _path, summary in source.read):
        if not logs:
            _print_changes(logs, captures_alone, filters, form=form, deletes=deletes)
        return
    if form == "json":
        for path, summary in source.read:
            for line in _loss_records(path, summary):
                print(line)
    print_footer(timeline, source.read, filters, quiet=form == "json")
    warn_of_losses(source.read)
    if interrupted:
        raise KeyboardInterrupt
    if fail_on_loss and any(any(losses(summary)) for _path, summary in source.read):
        context.exit(_EXIT_LOSS)


def _print_changes(logs: LogFiles, captures: list[str], filters: Filters, *, form: str, deletes: bool) -> None:
    """Print what files, or captures, show of KRaft's metadata log."""
    from kproto.cli.metadata_changes import changes_of

    changes = changes_of(logs, filters, captures, deletes=deletes)
    for change in changes:
        print(change.record() if form == "json" else change.line())
    if not changes:
        or_else = "" if logs else ", or no replica fetched one"
        print(f"note: no change of the metadata log passes the filters{or_else}", file=sys.stderr)


def _with_changes(
    entries: Iterator[Entry], logs: LogFiles, filters: Filters, captures: list[str], *, deletes: bool
) -> Iterator[Entry | LogChange]:
    """Yield the entries and the changes of a metadata log, if there is one, by time."""
    if not logs:
        yield from entries
        return
    from kproto.cli.metadata_changes import changes_of

    changes: list[Entry | LogChange] = [*changes_of(logs, filters, captures, deletes=deletes)]
    yield from heapq.merge(entries, changes, key=lambda each: each.time_ns)


def _printer(
    filters: Filters, *, form: str, details: bool, wide: bool, color: str
) -> Callable[[Entry | LogChange], None]:
    """Return a function that prints an entry, or a change of a metadata log, in the chosen form."""
    if form == "json":
        return lambda entry: print(_exchange_record(entry, filters) if isinstance(entry, Entry) else entry.record())
    width = terminal_width()
    formatter = LineFormatter(
        filters,
        terminal=width is not None,
        color=color == "always" or (color == "auto" and is_styled()),
        width=None if wide else width,
        details=details,
    )

    def print_lines(entry: Entry | LogChange) -> None:
        for line in formatter.lines(entry) if isinstance(entry, Entry) else [entry.line()]:
            print(line)

    return print_lines


def _exchange_record(entry: Entry, filters: Filters) -> str:
    """Make the record of a request and its response in Kafka's JSON form, with ids and names to select by."""
    exchange, sender, verdict = entry.exchange, entry.sender, entry.verdict
    form: dict[str, Any] = {"record": "exchange", **exchange.to_json()}
    form.pop("unmatched_reason", None)
    if filters.by_partition and entry.body is not None:
        ids = {uuid_to_json(uuid): name for name, uuid in getattr(entry.body.message, "topic_ids", {}).items()}
        for direction in ("request", "response"):
            if form[direction] is not None:
                form[direction] = wanted_partitions(form[direction], filters, ids)
    form |= {
        "api": None if exchange.api_key is None else api_name(exchange.api_key),
        "broker_id": entry.broker_id,
        **{name: getattr(sender, name, None) for name in ("controller_id", "controller_epoch", "broker_epoch")},
        "outcome": verdict.outcome,
        "error_code": verdict.error_code,
        "error_name": None if verdict.error_code is None else error_name(verdict.error_code),
        "partition_errors": [
            {"topic": e.topic, "partition": e.partition, "error_code": e.error_code, "error_name": e.error}
            for e in verdict.partition_errors
        ],
        "reason": entry.reason or exchange.unmatched_reason,
        "changes": entry.is_change if entry.body is not None else None,
    }
    return compact(form)


def _loss_records(path: str, summary: CaptureSummary) -> Iterator[str]:
    """Make the records of losses: the counts of a capture with any, and each piece that could not be used."""
    counts = {
        **{name: getattr(summary, name) for name in LOSSES},
        "bad_inputs": summary.bad_input_count,
        "untimed_packets": summary.untimed_packets,
        "not_read": summary.all_not_read,
    }
    if any(counts.values()):
        yield compact({"record": "loss", "file": path, **counts})
    for bad in summary.bad_inputs:
        lost = {"reason": bad.reason, "offset": bad.offset, "bytes_skipped": bad.bytes_skipped}
        yield compact({"record": "bad_input", "file": path, **lost})


class _Captures:
    """The captures of a command, read as if they were one capture.

    Exchanges of several capture points have times on the common clock; one that two points saw is given once.

    Attributes:
        filters: As given, with the brokers of addresses that all captures together tell.
        read: Path and summary of each capture that could be read.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        filters: Filters,
        apis: frozenset[int] | None,
        progress: ReadingProgress,
        cluster: str | None,
        *,
        follow: bool,
    ) -> None:
        from kproto.capture import CapturePoint, capture_points
        from kproto.capture.file_ends import is_pipe

        self._paths = list(dict.fromkeys(paths))
        self._follow = follow and _STANDARD_INPUT not in paths
        self._is_piped = any(path == _STANDARD_INPUT or is_pipe(path) for path in paths)
        is_live = follow or self._is_piped
        self._cluster = cluster
        self._resolution: Resolution | None = None
        self.filters = filters
        files = [path for path in self._paths if path != _STANDARD_INPUT]
        self._points = [CapturePoint(_STANDARD_INPUT, (_STANDARD_INPUT,))] if _STANDARD_INPUT in self._paths else []
        self._points += [CapturePoint(file, (file,)) for file in files] if self._follow else capture_points(files)
        if (len(self._points) > 1 or cluster is not None) and not is_live:
            from kproto.tables.resolved import check_cluster, resolution_of_captures

            self._resolution = resolution_of_captures(self._points, filters)
            if cluster is not None:
                check_cluster(cluster, self._resolution.names)
            self.filters = replace(filters, broker_ids=self._resolution.brokers_of(cluster) | dict(filters.broker_ids))
        elif cluster is not None:
            raise ConfigurationError("the clusters of what still grows are not known before its end; name a file")
        self._apis = apis
        self._progress = progress
        self._problems: list[str] = []
        self.read: list[tuple[str, CaptureSummary]] = []

    def exchanges(self) -> Iterator[Exchange]:
        """Yield all exchanges in the order of time.

        A pipe cannot wait for the others, and files can be too many to be open at once: then one is read after the
        other.
        """
        sources = [self._resolved(self._exchanges_of(point)) for point in self._points]
        if self._is_piped or len(sources) > _OPEN_FILES:
            every: Iterator[Exchange] = chain.from_iterable(sources)
        else:
            every = heapq.merge(*sources, key=lambda exchange: exchange.time_ns)
        return every if len(sources) < 2 else _each_once(every)

    def _resolved(self, exchanges: Iterator[Exchange]) -> Iterator[Exchange]:
        resolution = self._resolution
        if resolution is None:
            return exchanges
        return (exchange for exchange in exchanges if resolution.takes(exchange, self._cluster))

    def _exchanges_of(self, point: CapturePoint) -> Iterator[Exchange]:
        from kproto.capture import CaptureSummary, exchanges

        summary = CaptureSummary()
        path = point.files[0]
        try:
            self.read.append((path, summary))
            source = self._growing(path) if self._follow else sys.stdin.buffer if path == _STANDARD_INPUT else point
            yield from exchanges(
                source,
                ports=self.filters.ports,
                apis=self._apis,
                summary=summary,
                progress=self._progress.of(path),
                logs=self.filters.logs,
            )
        except CaptureError as e:
            self.read.remove((path, summary))
            self._problems.append(point.with_path(str(e)))

    def _growing(self, path: str) -> Growing:
        from kproto.capture.growing import Growing

        def note(text: str) -> None:
            self._progress.hide()
            print(f"note: {printable(text)}", file=sys.stderr, flush=True)

        return Growing(path, note)

    def check(self) -> None:
        """Warn of captures that could not be read.

        Raises:
            CaptureError: None could.
        """
        if not self.read:
            raise CaptureError(first_reasons(self._problems))
        if self._problems:
            print(f"warning: {printable(first_reasons(self._problems))}; skipped", file=sys.stderr)


def _each_once(exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
    """Yield exchanges of several capture points in the order of time, each once."""
    seen: dict[bytes, None] = {}
    for exchange in exchanges:
        if exchange.request is not None:
            name = exchange.request.exchange_id
            if name in seen:
                continue
            seen[name] = None
            if len(seen) > _REMEMBERED:
                del seen[next(iter(seen))]
        yield exchange
