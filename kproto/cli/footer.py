"""The footer that ``inspect`` prints on standard error at its end, and the warnings of all commands that read."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kproto.api import CONTROL_APIS, api_name
from kproto.capture.summary import LOSSES, not_read_text
from kproto.cli.text import losses_of, moment_text
from kproto.errors import CaptureError, first_reasons
from kproto.text import counted, from_here, meant, printable, there

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from kproto.capture import CaptureSummary
    from kproto.tables.filters import Filters
    from kproto.verdicts.timeline import Timeline

_OUTCOMES = {
    "ok": "ok",
    "partition errors": "ok with errors of single partitions",
    "refused": "refused",
    "unanswered": "unanswered",
    "unreadable": "that cannot be read",
    "not decoded": "not decoded",
}

_MOST_LISTENERS = 6
"""The most listeners that a warning names."""

Read = tuple[str, "CaptureSummary"]
"""A capture that was read: its path and its summary."""


def print_footer(timeline: Timeline, captures: Sequence[Read], filters: Filters, *, quiet: bool) -> None:
    """Print which requests were shown, which were left out, and what to try if none was shown.

    Args:
        timeline: Has counted the requests.
        captures: The captures that were read.
        filters: The requests that the user asked for.
        quiet: Print only warnings, for output that a program reads.

    Raises:
        CaptureError: None of the captures holds a request of the wanted APIs.
    """
    if not timeline.seen:
        raise CaptureError(first_reasons(_why_nothing(path, s, filters) for path, s in captures))
    shown = timeline.given.total()
    if not shown:
        _say(_where_to_look(captures))
        if absent := absent_from([path for path, _summary in captures], filters):
            _say(absent)
        if timeline.brokers:
            _say(f"brokers in this capture: {', '.join(map(str, sorted(timeline.brokers)))}")
    if timeline.unnamed:
        _say(
            f"{counted(timeline.unnamed, 'request')} to brokers whose id the traffic does not tell were left out; "
            "name them with --brokers"
        )
    if quiet:
        return
    if shown:
        items = sorted(timeline.given.items(), key=lambda item: (item[0] is None, item[0] or 0))
        apis = ", ".join(f"{n} {'of unknown request' if api is None else api_name(api)}" for api, n in items)
        outcomes = ", ".join(
            f"{timeline.outcomes[of]} {words}" for of, words in _OUTCOMES.items() if timeline.outcomes[of]
        )
        _say(f"{shown} of {timeline.seen} requests shown: {apis}; {outcomes}")
    folded: Counter[int] = Counter()
    for _path, summary in captures:
        for (api, _version), count in summary.requests.items():
            if api not in CONTROL_APIS and api not in timeline.given:
                folded[api] += count
    if folded and not filters.apis and not filters.by_partition:
        parts = ", ".join(f"{count} {api_name(api)}" for api, count in folded.most_common(6))
        _say(f"other requests, for --all-apis: {parts}")


def absent_from(captures: Sequence[str], filters: Filters) -> str:
    """Name the topics and controllers of filters that no control request in captures has, which are read again for it.

    Returns:
        The sentence; empty where the captures have each of them, or nobody can read them again.
    """
    from kproto.capture import exchanges
    from kproto.capture.file_ends import is_pipe
    from kproto.tables.bodies import BodyCache

    wanted = {*filters.topics, *(topic for topic, _ in filters.partitions)}
    if not (wanted or filters.controllers) or any(path == "-" or is_pipe(path) for path in captures):
        return ""
    bodies = BodyCache()
    topics, controllers = set[str](), set[int]()
    for exchange in exchanges(captures, ports=filters.ports, logs=filters.logs):
        if (body := bodies.of(exchange.request)) is not None:
            topics.update(state.topic for state in body.states)
            controllers.add(body.message.controller_id)
    absent = [("topic", name, sorted(topics)) for name in sorted(wanted) if not fnmatch.filter(topics, name)]
    ids = list(map(str, sorted(controllers)))
    absent += [("controller", str(number), ids) for number in sorted(filters.controllers - controllers)]
    return "; ".join(
        f"no {kind} {printable(name)} is in the captures; {printable(meant(name, known, there(known)))}"
        for kind, name, known in absent
    )


def _where_to_look(captures: Sequence[Read]) -> str:
    spans = [(s.first_ns, s.last_ns) for _path, s in captures if s.first_ns]
    if not spans:
        return "no request matches the filters"
    first, last = (moment_text(ns) for ns in (min(a for a, _ in spans), max(b for _, b in spans)))
    return f"no request matches the filters; the captures reach from {first} to {last}"


def _why_nothing(path: str, summary: CaptureSummary, filters: Filters) -> str:
    """Explain why a capture gave no request at all."""
    from kproto.capture.read import problem_of

    problem = summary.problem() if path == "-" else problem_of(path, summary)
    if problem is not None:
        return path + problem.removeprefix(summary.file or "the capture")
    wanted = ", ".join(api_name(api) for api in sorted(filters.apis))
    return f"{path}: no {wanted} request; without --api it shows {summary.control_requests} control requests"


def say_assumed_zone(files: Iterable[str]) -> None:
    """Say in one line that times of logs were read in this machine's zone, because they are written without one.

    Args:
        files: The names of these logs; none, no line.
    """
    names = list(dict.fromkeys(files))
    if names:
        others = f" and {counted(len(names) - 1, 'other log')}" if len(names) > 1 else ""
        _say(
            f"{names[0]}{others}: times are written without a zone, and were read in this machine's "
            f"({time.tzname[0]}); if they are of another, name it: --log-zone Europe/Berlin"
        )


def say_left_out(sources: Iterable[object]) -> None:
    """Say in a line for each directory which directories in it are not read with it, though they hold captures."""
    for source in sources:
        if isinstance(source, str | Path) and Path(source).is_dir():
            from kproto.capture.capture_points import captures_in, folders_left_out
            from kproto.metadata_log.finding import find

            if (folders := folders_left_out(source)) and (captures_in(Path(source)) or find([source])[0]):
                first, *more = folders
                others, them = (f" and {counted(len(more), 'other directory')} are", "them") if more else (" is", "it")
                _say(f"note: {printable(first)}{others} not read with {printable(str(source))}; name {them}, too")


def saying_zone(pieces: Iterable[dict[str, pa.Table]]) -> Iterator[dict[str, pa.Table]]:
    """Pass on pieces of tables; at their end say the zone that was assumed for logs."""
    found: list[str] = []
    for piece in pieces:
        rows = piece["captures"].select(["file", "assumed_zone"]).to_pylist() if "captures" in piece else []
        found += [row["file"] for row in rows if row["assumed_zone"]]
        yield piece
    say_assumed_zone(found)


def warn_of_losses(captures: Iterable[Read]) -> None:
    """Print a warning line for each kind of loss in the captures, and the zone that was assumed for logs."""
    captures = list(captures)
    say_assumed_zone(path for path, summary in captures if summary.assumed_zone)
    for path, summary in captures:
        if lost := "; ".join(losses(summary)):
            _say(f"warning: {path}: {lost}")
        if summary.all_not_read:
            _say(f"warning: {path}: {not_read_text(summary.all_not_read)}")
        if summary.untimed_packets:
            _say(f"warning: {path}: {counted(summary.untimed_packets, 'packet')} without a time")
        if summary.copied_connections:
            copies = counted(summary.copied_connections, "connection")
            _say(f"{path}: {copies} seen twice, under two addresses; counted once")
        if summary.tls_connections and summary.kafka_connections:
            speak = "speaks" if summary.tls_connections == 1 else "speak"
            where = ", ".join(map(str, sorted(summary.tls_listeners)[:_MOST_LISTENERS]))
            tls = counted(summary.tls_connections, "connection")
            _say(f"warning: {path}: {tls} {speak} TLS and cannot be read, to {where}")


def warn_of_bad_inputs(bad_inputs: Sequence[Mapping[str, Any]], listed: str) -> None:
    """Print one line that names the first bad input with its reason, and how many more there are; none, no line.

    Args:
        bad_inputs: Rows of the table ``bad_inputs``. Whole files come before pieces.
        listed: Where all of them are listed, for instance ``--format json lists all``.
    """
    if not bad_inputs:
        return
    first = min(bad_inputs, key=lambda bad: bad["offset"] is not None)
    text = from_here(first["reason"])
    if first["offset"] is not None:
        text = f"{first['file']}: {text}, at byte {first['offset']}"
    more = len(bad_inputs) - 1
    files = len({bad["file"] for bad in bad_inputs})
    others = f", with {counted(more, 'more bad input')} in {counted(files, 'file')}" if more else ""
    print(f"warning: {printable(text)}; skipped{others}; {listed}", file=sys.stderr)


def losses(summary: CaptureSummary) -> Iterator[str]:
    """Yield what bytes of a capture are missing, or could not be used."""
    if missing := "; ".join(losses_of({name: getattr(summary, name) for name in LOSSES})):
        yield f"missing: {missing}"
    count, reason = summary.unusable
    if count:
        yield f"{counted(count, 'piece')} could not be used" + (f", first: {reason}" if reason else "")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
