"""Formats the summary of captures: sections of text, or one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from kproto.capture import Endpoint
from kproto.cli.sections import Section
from kproto.cli.text import losses_of
from kproto.error_codes import named_error
from kproto.text import counted, printable, ranges

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
    yield Section(
        "Captures",
        ["~file", "format", ">packets", ">connections", "first (UTC)", "last"],
        [
            [
                printable(_source(r)), r["format"], str(r["packets"]), str(r["kafka_connections"]),
                _time(r["first"]), _later(r),
            ]
            for r in summary["captures"]
        ],
    )  # fmt: skip
    yield Section(
        "Controllers",
        [">controller", ">epoch", "mode", ">requests", ">brokers", "first (UTC)", "last"],
        [
            [
                str(r["controller_id"]), str(r["controller_epoch"]), r["mode"], str(r["requests"]), str(r["brokers"]),
                _time(r["first"]), _later(r),
            ]
            for r in summary["controllers"]
        ],
    )  # fmt: skip
    yield _zombies(summary["zombies"])
    if summary["migration"] is not None:
        yield _migration(summary["migration"])
    yield _brokers(summary["brokers"])
    yield Section(
        "Requests",
        ["api", ">version", "answer", ">requests", ">partitions"],
        [
            [r["api"], str(r["api_version"]), _answer(r), str(r["count"]), str(r["partitions"])]
            for r in summary["requests"]
        ],
    )
    yield from _errors(summary)
    yield _changes(summary)
    if summary["deletions"]:
        yield _deletions(summary["deletions"])
    yield Section(
        "Slowest brokers (ms from request to answer)",
        [">broker", "address", ">answered", ">unanswered", ">median", ">p99", ">max"],
        [
            [
                _known(r["broker_id"]), str(Endpoint(r["ip"], r["port"])), str(r["answered"]), str(r["unanswered"]),
                *(_ms(r[name]) for name in ("median_ms", "p99_ms", "max_ms")),
            ]
            for r in summary["slowest"]
        ],
    )  # fmt: skip
    yield _losses(summary)


def _source(row: Row) -> str:
    """The name of a capture; of a metadata log the end of each file's path, which names the node."""
    return "/".join(PurePath(row["file"]).parts[-3:]) if row["format"] == "metadata log" else row["capture"]


def _zombies(rows: Sequence[Row]) -> Section:
    if not rows:
        return Section("Zombie controllers", text="none: no request came from a controller that another had replaced")
    return Section(
        "Zombie controllers (requests after another took over)",
        [">controller", ">epoch", "replaced by", ">requests", ">refused", "first (UTC)"],
        [
            [
                str(r["controller_id"]), str(r["controller_epoch"]),
                "not in the capture" if (newer := r["superseded_by"]) is None
                else f"{newer['controller_id']} with epoch {newer['controller_epoch']}",
                str(r["requests"]), str(r["refused"]), _time(r["first"]),
            ]
            for r in rows
        ],
    )  # fmt: skip


def _migration(migration: Row) -> Section:
    return Section(
        "Migration from ZooKeeper to KRaft",
        ["phase", ">requests", ">brokers", "first (UTC)", "last"],
        [
            [r["phase"], str(r["requests"]), str(r["brokers"]), _time(r["first"]), _later(r)]
            for r in migration["phases"]
        ],
        text="taking over, the KRaft controller sends brokers their full state; in dual write it sends changes alone",
    )


def _brokers(rows: Sequence[Row]) -> Section:
    if not rows:
        return Section("Brokers", text="no UpdateMetadata in the captures lists any")
    listeners: dict[int, list[str]] = {}
    for r in rows:
        listeners.setdefault(r["broker_id"], []).append(f"{printable(r['host'])}:{r['port']}")
    return Section(
        "Brokers", [">broker", "listens at"], [[str(broker), ", ".join(places)] for broker, places in listeners.items()]
    )


def _errors(summary: Mapping[str, Any]) -> Iterator[Section]:
    if summary["refusals"]:
        yield Section(
            "Refused requests",
            ["first", ">controller", ">broker", "api", ">requests", "~error", "_why"],
            [
                [
                    _clock(r["first"]), str(r["controller_id"]), _known(r["broker_id"]), r["api"], str(r["count"]),
                    r["error"], r["reason"],
                ]
                for r in summary["refusals"]
            ],
        )  # fmt: skip
    if summary["partition_errors"]:
        yield Section(
            "Errors of single partitions",
            ["api", "error", ">partitions", "meaning"],
            [
                [r["api"], named_error(r["error_code"]), str(r["count"]), r["meaning"]]
                for r in summary["partition_errors"]
            ],
        )


def _changes(summary: Mapping[str, Any]) -> Section:
    t = summary["changes"]
    kinds = ("leader_changes", "leader_lost", "isr_shrinks", "isr_expands", "isr_swaps")
    return Section(
        "Leader and ISR changes",
        ["~partition", ">leader changes", ">no leader", ">ISR shrinks", ">expands", ">swaps"],
        [
            [f"{printable(r['topic'])}-{r['partition']}", *(str(r[kind]) for kind in kinds)]
            for r in summary["most_changed"]
        ],
        text=f"{counted(t['leader_changes'], 'leader change')} on {t['partitions_moved']} of {t['partitions']} "
        f"partitions, {t['leader_lost']} of them to no leader; "
        f"ISR: {counted(t['isr_shrinks'], 'shrink')}, {counted(t['isr_expands'], 'expand')}, "
        f"{counted(t['isr_swaps'], 'swap')}",
    )


def _deletions(rows: Sequence[Row]) -> Section:
    return Section(
        "Deletions",
        ["~topic", "deleted", "first (UTC)", "partitions", "brokers"],
        [
            [
                printable(r["topic"]), "topic" if r["whole_topic"] else "replicas",
                "-" if r["first"] is None else _time(r["first"]), ranges(r["partitions"]),
                ",".join(map(str, r["brokers"])),
            ]
            for r in rows
        ],
    )  # fmt: skip


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
            printable(bad["reason"]),
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
        parts.append(f"slowest broker: {_known(slowest['broker_id'])} (p99 {_ms(slowest['p99_ms'])} ms)")
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


def _known(broker: int | None) -> str:
    return "?" if broker is None else str(broker)


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
