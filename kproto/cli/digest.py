"""The summary of ``kproto analyze``: tables for people on a terminal, plain text in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kproto.api import api_name
from kproto.capture import Endpoint
from kproto.cli.text import named_error, printable
from kproto.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kproto.pipeline import BadInput, Run

__all__ = ["as_json", "print_text"]

Row = dict[str, Any]


@dataclass(slots=True)
class _Section:
    """A title, a sentence, and a table below it; ``names`` that begin with ``>`` are of columns of numbers."""

    title: str
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""


def as_json(run: Run, summary: Mapping[str, Sequence[Row]], out: Path) -> str:
    """One object: what the run did, and the summary's questions with their rows; APIs and errors by name too."""
    known = {name: [_named(row) for row in rows] for name, rows in summary.items()}
    done = {
        "out": str(out),
        "captures": run.inputs,
        "seconds": round(run.seconds, 3),
        "bodies_decoded": run.bodies_decoded,
        "tables": run.rows,
        "bad_inputs": [bad._asdict() for bad in run.bad_inputs],
    }
    return json.dumps(done | known, ensure_ascii=False, default=_as_text)


def _named(row: Row) -> Row:
    named: Row = {}
    for key, value in row.items():
        if key == "api_key":
            named["api"] = api_name(value)
        named[key] = value
        if key == "error_code":
            named["error"] = None if value is None else error_name(value)
    return named


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_text(run: Run, summary: Mapping[str, Sequence[Row]], out: Path) -> None:
    """Print the summary to standard output."""
    sections = list(_sections(run, summary, out))
    if sys.stdout.isatty():
        _print_rich(sections)
    else:
        _print_plain(sections)


def _sections(run: Run, summary: Mapping[str, Sequence[Row]], out: Path) -> Iterator[_Section]:
    yield _Section(
        "Requests",
        ["api", ">version", "answer", ">requests", ">partitions"],
        [
            [api_name(r["api_key"]), _text(r["api_version"]), _answer(r), _text(r["requests"]), _text(r["partitions"])]
            for r in summary["requests"]
        ],
    )
    if summary["partition_errors"]:
        yield _Section(
            "Errors of single partitions",
            ["api", "error", ">partitions"],
            [
                [api_name(r["api_key"]), named_error(r["error_code"]), _text(r["partitions"])]
                for r in summary["partition_errors"]
            ],
        )
    yield _Section(
        "Controllers and epochs",
        ["capture", ">controller", ">epoch", "mode", ">requests", ">brokers", "first (UTC)", "last (UTC)"],
        [
            [
                printable(r["capture"]),
                _text(r["controller_id"]),
                _text(r["controller_epoch"]),
                "KRaft" if r["is_kraft"] else "ZooKeeper",
                _text(r["requests"]),
                _text(r["brokers"]),
                _time(r["first"]),
                _time(r["last"]),
            ]
            for r in summary["controllers"]
        ],
    )
    yield _changes(summary)
    yield _Section(
        "Slowest brokers (ms from request to answer)",
        ["capture", ">broker", "address", ">answered", ">unanswered", ">median", ">p99", ">max"],
        [
            [
                printable(r["capture"]),
                _text(r["broker"]),
                str(Endpoint(r["ip"], r["port"])),
                _text(r["answered"]),
                _text(r["unanswered"]),
                *(_ms(r[name]) for name in ("median_us", "p99_us", "max_us")),
            ]
            for r in summary["brokers"]
        ],
    )
    troubles = [[f"{r['requests']} unanswered", "", r["reason"] or "unknown"] for r in summary["unanswered"]]
    troubles += [
        [
            f"{r['requests']} unreadable",
            f"{printable(r['capture'])}: {api_name(r['api_key'])} v{r['api_version']}",
            printable(r["reason"]),
        ]
        for r in summary["unreadable"]
    ]
    troubles += [[_skipped(bad), printable(bad.file), printable(bad.reason)] for bad in run.bad_inputs]
    if troubles:
        yield _Section("Gaps and bad input", ["what", "where", "why"], troubles)
    yield _Section(
        "Tables",
        text=f"{', '.join(f'{name} {rows}' for name, rows in run.rows.items())} rows in {out}: "
        f"{len(run.inputs)} capture{'s' * (len(run.inputs) != 1)}, {run.bodies_decoded} distinct bodies decoded "
        f"of {run.rows['frames']} frames, {run.seconds:.1f} s",
    )


def _changes(summary: Mapping[str, Sequence[Row]]) -> _Section:
    (t,) = summary["totals"]
    return _Section(
        "Leader and ISR changes",
        ["capture", "partition", ">leader changes", ">leader lost", ">ISR shrinks", ">expands", ">swaps"],
        [
            [
                printable(r["capture"]),
                f"{printable(r['topic'])}-{r['partition']}",
                *(_text(r[n]) for n in ("leader_changes", "leader_lost", "isr_shrinks", "isr_expands", "isr_swaps")),
            ]
            for r in summary["restless"]
        ],
        text=f"{t['leader_changes'] or 0} leader changes on {t['partitions_moved']} of {t['partitions']} partitions "
        f"({t['leader_lost'] or 0} lost their leader); ISR: {t['isr_shrinks'] or 0} shrinks, "
        f"{t['isr_expands'] or 0} expands, {t['isr_swaps'] or 0} swaps",
    )


def _answer(row: Row) -> str:
    if row["outcome"] != "answered" or row["error_code"] is None:
        return f"({row['outcome']})"
    return named_error(row["error_code"]) if row["error_code"] else "ok"


def _skipped(bad: BadInput) -> str:
    return "nothing read" if bad.offset is None else f"{bad.bytes_skipped or 0} bytes skipped"


def _text(value: object) -> str:
    return "?" if value is None else str(value)


def _ms(us: int | None) -> str:
    return "-" if us is None else f"{us / 1000:.1f}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _print_plain(sections: Sequence[_Section]) -> None:
    for number, section in enumerate(sections):
        print("\n" * (number > 0) + section.title)
        if section.text:
            print(f"  {section.text}")
        if not section.rows:
            continue
        names = [name.removeprefix(">") for name in section.names]
        widths = [max(map(len, column)) for column in zip(names, *section.rows, strict=True)]
        for row in (names, *section.rows):
            cells = (
                cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                for cell, width, name in zip(row, widths, section.names, strict=True)
            )
            print(f"  {'  '.join(cells)}".rstrip())


def _print_rich(sections: Sequence[_Section]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for section in sections:
        console.print(Text(section.title, style="bold"))
        if section.text:
            console.print(Text(f"  {section.text}"))
        if section.rows:
            table = Table(box=SIMPLE_HEAD, pad_edge=True)
            for name in section.names:
                table.add_column(
                    name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold"
                )
            for row in section.rows:
                table.add_row(*map(Text, row))
            console.print(table)
        else:
            console.print()
