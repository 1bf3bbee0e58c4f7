"""Formats the summary of captures: sections of text, or one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from kproto.capture import Endpoint
from kproto.cli.sections import Section
from kproto.cli.text import losses_of
from kproto.error_codes import named_error
from kproto.text import counted, from_here, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = dict[str, Any]


MOST_ROWS: Final = 12
"""The most rows of a section in a summary of one page."""


def page_of(summary: Mapping[str, Any], rest: str) -> Iterator[Section]:
    """Return the sections of a summary, each cut to its first rows; of long sections the worst come first.

    Args:
        summary: As ``summarize`` makes it.
        rest: Where the other rows are shown, for instance ``--all shows them``.
    """
    ordered = dict(summary)
    for name, worst in _WORST.items():
        if len(ordered[name]) > MOST_ROWS:
            ordered[name] = sorted(ordered[name], key=worst)
    for section in sections_of(ordered):
        more = len(section.rows) - MOST_ROWS
        if more > 0:
            section.rows = section.rows[:MOST_ROWS]
            section.below = f"and {more:,} more: {rest}"
        yield section


_WORST: Final[Mapping[str, Callable[[Row], Any]]] = {
    "requests": lambda row: (row["error_code"] == 0, -row["count"]),
    "refusals": lambda row: -row["count"],
    "partition_errors": lambda row: -row["count"],
    "zombies": lambda row: -row["requests"],
}
"""How the rows of long sections are put in order; others are in the order of their time, or the worst first."""


def sections_of(summary: Mapping[str, Any]) -> Iterator[Section]:
    """Return the sections of a summary made by ``summarize``, in the order of an engineer's questions."""
    changes = summary["changes"]
    yield _section(
        "Captures",
        summary["captures"],
        {"~file": _source, "format": "format", ">packets": "packets", ">connections": "kafka_connections", **_WHEN},
    )
    yield _section(
        "Controllers",
        summary["controllers"],
        {
            ">controller": "controller_id", ">epoch": "controller_epoch", "mode": "mode", ">requests": "requests",
            ">brokers": "brokers", **_WHEN,
        },
    )  # fmt: skip
    if summary["zombies"]:
        yield _section(
            "Zombie controllers (requests after another took over)",
            summary["zombies"],
            {
                ">controller": "controller_id", ">epoch": "controller_epoch", "replaced by": _successor,
                ">requests": "requests", ">refused": "refused", **_FIRST,
            },
        )  # fmt: skip
    else:
        yield Section("Zombie controllers", text="none: no request came from a controller that another had replaced")
    if summary["migration"] is not None:
        yield _section(
            "Migration from ZooKeeper to KRaft",
            summary["migration"]["phases"],
            {"phase": "phase", ">requests": "requests", ">brokers": "brokers", **_WHEN},
            "taking over, the KRaft controller sends brokers their full state; in dual write it sends changes alone",
        )
    yield _brokers(summary["brokers"])
    yield _section(
        "Requests",
        summary["requests"],
        {"api": "api", ">version": "api_version", "answer": _answer, ">requests": "count", ">partitions": "partitions"},
    )
    if summary["refusals"]:
        yield _section(
            "Refused requests",
            summary["refusals"],
            {
                "first": lambda r: _clock(r["first"]), ">controller": "controller_id", ">broker": _broker, "api": "api",
                ">requests": "count", "~error": "error", "_why": "reason",
            },
        )  # fmt: skip
    if summary["partition_errors"]:
        yield _section(
            "Errors of single partitions",
            summary["partition_errors"],
            {
                "api": "api", "error": lambda r: named_error(r["error_code"]), ">partitions": "count",
                "meaning": "meaning",
            },
        )  # fmt: skip
    yield _section(
        "Leader and ISR changes",
        summary["most_changed"],
        {
            "~partition": lambda r: f"{r['topic']}-{r['partition']}", ">leader changes": "leader_changes",
            ">no leader": "leader_lost", ">ISR shrinks": "isr_shrinks", ">expands": "isr_expands",
            ">swaps": "isr_swaps",
        },
        f"{counted(changes['leader_changes'], 'leader change')} on {changes['partitions_moved']} of "
        f"{changes['partitions']} partitions, {changes['leader_lost']} of them to no leader; "
        f"ISR: {counted(changes['isr_shrinks'], 'shrink')}, {counted(changes['isr_expands'], 'expand')}, "
        f"{counted(changes['isr_swaps'], 'swap')}",
    )  # fmt: skip
    if summary["deletions"]:
        yield _section(
            "Deletions",
            summary["deletions"],
            {
                "~topic": "topic", "deleted": lambda r: "topic" if r["whole_topic"] else "replicas", **_FIRST,
                "partitions": lambda r: ranges(r["partitions"]), "brokers": lambda r: ",".join(map(str, r["brokers"])),
            },
        )  # fmt: skip
    yield _section(
        "Slowest brokers (ms from request to answer)",
        summary["slowest"],
        {
            ">broker": _broker, "address": lambda r: str(Endpoint(r["ip"], r["port"])), ">answered": "answered",
            ">unanswered": "unanswered", ">median": lambda r: _ms(r["median_ms"]), ">p99": lambda r: _ms(r["p99_ms"]),
            ">max": lambda r: _ms(r["max_ms"]),
        },
    )  # fmt: skip
    yield _losses(summary)


def _section(
    title: str, rows: Sequence[Row], columns: Mapping[str, str | Callable[[Row], str]], text: str = ""
) -> Section:
    """Make a section; a column's heading leads to the name of its values, or to what makes them of a row."""
    values = [[row[of] if isinstance(of, str) else of(row) for of in columns.values()] for row in rows]
    return Section(title, list(columns), [[_cell(value) for value in row] for row in values], text)


def _cell(value: Any) -> Any:
    """Return the text of a number or a text; other values stay as they are: ``summarize`` has made none."""
    return printable(str(value)) if isinstance(value, int | str) else value


def _source(row: Row) -> str:
    """The name of a capture; of a metadata log the end of each file's path, which names the node."""
    capture: str = row["capture"]
    return "/".join(PurePath(row["file"]).parts[-3:]) if row["format"] == "metadata log" else capture


def _successor(zombie: Row) -> str:
    newer = zombie["superseded_by"]
    return f"{newer['controller_id']} with epoch {newer['controller_epoch']}" if newer else "not in the capture"


def _brokers(rows: Sequence[Row]) -> Section:
    if not rows:
        return Section("Brokers", text="no UpdateMetadata in the captures lists any")
    listeners: dict[int, list[str]] = {}
    for r in rows:
        listeners.setdefault(r["broker_id"], []).append(f"{printable(r['host'])}:{r['port']}")
    return Section(
        "Brokers", [">broker", "listens at"], [[str(broker), ", ".join(places)] for broker, places in listeners.items()]
    )


def _losses(summary: Mapping[str, Any]) -> Section:
    rows = [[counted(r["count"], "request"), "unanswered", r["reason"]] for r in summary["unanswered"]]
    rows += [
        [counted(r["count"], "request"), f"{r['api']} v{r['api_version']} cannot be read", printable(r["reason"])]
        for r in summary["unreadable"]
    ]
    for capture in summary["captures"]:
        rows += [
            [counted(found["packets"], "packet"), f"{found['protocol']}, not read", printable(capture["file"])]
            for found in capture["not_read"]
        ]
        if capture["untimed_packets"]:
            rows.append([counted(capture["untimed_packets"], "packet"), "without a time", printable(capture["file"])])
    for gap in summary["gaps"]:
        rows += [[lost, printable(gap["file"]), "missing in the capture"] for lost in losses_of(gap)]
    rows += [
        [
            "nothing read" if bad["offset"] is None else f"{counted(bad['bytes_skipped'] or 0, 'byte')} skipped",
            printable(bad["file"]),
            printable(from_here(bad["reason"])),
        ]
        for bad in summary["bad_inputs"][:20]
    ]
    if len(summary["bad_inputs"]) > 20:
        rows.append([f"{len(summary['bad_inputs']) - 20} more", "", "--format json lists them"])
    if not rows:
        return Section("Gaps and losses", text="none: every request is whole and answered")
    return Section("Gaps and losses", ["how much", "~what", "_why"], rows)


def _zombie_names(rows: Sequence[Row]) -> str:
    """Their number and ids; empty: there are none."""
    ids = sorted({row["controller_id"] for row in rows})
    return f"{len(ids)} (controller{'s' * (len(ids) > 1)} {', '.join(map(str, ids))})" if ids else ""


def one_line(summary: Mapping[str, Any]) -> str:
    """Return the summary in one line, its figures in a fixed order."""
    requests = summary["requests"]
    controllers = ", ".join(
        f"{r['controller_id']} (epoch {r['controller_epoch']}, {r['mode']})" for r in summary["controllers"]
    )
    slowest = next((r for r in summary["slowest"] if r["p99_ms"] is not None), None)
    parts = [
        f"{counted(sum(r['count'] for r in requests), 'request')}",
        f"{sum(r['count'] for r in summary['refusals'])} refused",
        f"{sum(r['unanswered'] for r in requests)} unanswered",
        f"controllers: {controllers or 'none'}",
        counted(len({r["broker_id"] for r in summary["brokers"]}), "broker"),
        counted(summary["changes"]["leader_changes"], "leader change"),
        f"{sum(r['whole_topic'] for r in summary['deletions'])} topics deleted",
        f"zombies: {_zombie_names(summary['zombies']) or 'none'}",
    ]
    if slowest is not None:
        parts.append(f"slowest broker: {_broker(slowest)} (p99 {_ms(slowest['p99_ms'])} ms)")
    if summary["migration"] is not None:
        parts.append("migration to KRaft")
    lost = [lost for gap in summary["gaps"] for lost in losses_of(gap)]
    lost += [
        f"{found['packets']} packets of {found['protocol']} not read"
        for capture in summary["captures"]
        for found in capture["not_read"]
    ]
    parts.append("missing: " + "; ".join(lost) if lost else "nothing missing")
    return "; ".join(parts)


def _answer(row: Row) -> str:
    """Return the outcome of a row of ``requests`` in words."""
    if row["error_code"] is not None:
        return named_error(row["error_code"]) if row["error_code"] else "ok"
    parts = [f"{row['unanswered']} unanswered"] if row["unanswered"] else []
    if row["unreadable"]:
        parts.append(f"{row['unreadable']} unreadable")
    return ", ".join(parts)


def _broker(row: Row) -> str:
    return "?" if row["broker_id"] is None else str(row["broker_id"])


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _time(moment: str | None) -> str:
    """Format a time: ``2026-11-20 19:34:50``; a time beyond the calendar stays unchanged."""
    if moment is None:
        return "-"
    return f"{moment[:10]} {moment[11:19]}" if moment.endswith("Z") else moment


def _clock(moment: str) -> str:
    """Format a time of day: ``19:34:50``, where the day is shown elsewhere."""
    return moment[11:19] if moment.endswith("Z") else moment


def _later(row: Row) -> str:
    """Format the time of a row's last request: only its time of day, if that is the day of the first."""
    first, last = row["first"], row["last"]
    if first is None or last is None:
        return "-"
    return _clock(last) if first[:10] == last[:10] else _time(last)


_FIRST: Final[Mapping[str, Callable[[Row], str]]] = {"first (UTC)": lambda row: _time(row["first"])}
_WHEN: Final = {**_FIRST, "last": _later}
"""The columns of when a row's requests passed."""
