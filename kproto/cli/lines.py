"""Formats a request as lines of text for the person on call.

On a terminal each day has a heading and each line the time of day; every line fits, and topic names give way before
anything else does. In a pipe every line stands for itself, with its date, whole and plain.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import ApiKey, api_name
from kproto.cli.describe import answer_of, parts_of, state_cells
from kproto.cli.sections import shortened
from kproto.cli.text import day_and_clock, moment_text
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import Exchange
    from kproto.tables.filters import Filters
    from kproto.verdicts.knowledge import PartitionChange
    from kproto.verdicts.timeline import Entry

_API_COLOURS: Final = {
    ApiKey.LEADER_AND_ISR: "cyan",
    ApiKey.STOP_REPLICA: "magenta",
    ApiKey.UPDATE_METADATA: "blue",
}
_LONGEST_CLIENT: Final = 40
_LONGEST_NAME: Final = 40
"""The widest column of partition names; a longer name shifts its own line alone."""
_NARROW: Final = 120
"""On a terminal of fewer columns lines leave out version, correlation id and epochs."""
_NARROWEST: Final = 50
"""On a terminal of fewer columns they leave out the latency, too."""
_FEW_LINES: Final = 2
"""The description may take this many lines below the columns; a longer description shortens topic names first."""
_NAME_LIMITS: Final = (None, 60, 40, 24, 16)
"""How long topic names may be, tried in this order until a line fits."""
_INDENT: Final = "    "


@dataclass
class LineFormatter:
    """Formats entries as lines; remembers the day and the widths of the columns.

    Attributes:
        filters: Which partitions are wanted.
        terminal: Headings and times of day; else every line has its date.
        color: ANSI colours.
        width: Columns that a line may have, None for no limit.
        details: Each partition state on a line of its own.
    """

    filters: Filters
    terminal: bool
    color: bool
    width: int | None
    details: bool

    def __post_init__(self) -> None:
        self._day = ""
        self._narrow = self.width is not None and self.width < _NARROW
        self._sizes = {
            "from → to": 9 if self.terminal else 5,
            "request": 17,
            "id": 3,
            "epochs": 6,
            "latency": 9,
            "answer": 6,
        }
        if self._narrow:
            del self._sizes["id"], self._sizes["epochs"]
            self._sizes["request"] = 14
        if self.width is not None and self.width < _NARROWEST:
            del self._sizes["latency"]

    def lines(self, entry: Entry) -> Iterator[str]:
        """The lines of one request, the day's heading before the first of a day."""
        exchange = entry.exchange
        answer, colour = answer_of(entry)
        cells = {
            "from → to": _sender_and_receiver(entry),
            "request": _request(exchange, version=not self._narrow),
            "id": f"#{exchange.correlation_id}",
            "epochs": _epochs(entry),
            "latency": "-" if exchange.latency_ms is None else f"{exchange.latency_ms:.1f} ms",
            "answer": answer,
        }
        cells = {name: cells[name] for name in self._sizes}
        for name, text in cells.items():
            if name != "answer":  # a long error shifts its own line, not all that follow
                self._sizes[name] = max(self._sizes[name], len(text))
        styles: dict[str, dict[str, Any]] = {
            "from → to": {"bold": True},
            "request": {"fg": _API_COLOURS.get(exchange.api_key)},  # type: ignore[call-overload]
            "epochs": {"dim": True},
            "id": {"dim": True},
            "answer": {"fg": colour} if colour else {},
        }
        day, moment = self._time(exchange.time_ns)
        if day:
            yield from self._heading(day, len(moment))
        if (
            self.width is not None
            and len(moment) + sum(2 + self._sizes[n] for n in cells) - 6 + len(answer) > self.width
        ):
            del cells["answer"]  # it goes on a line of its own, before the description
        shown = [self._paint(moment, {"dim": True})]
        used = len(moment)
        for name, text in cells.items():
            padded = text.rjust(self._sizes[name]) if name == "latency" else text.ljust(self._sizes[name])
            shown.append(self._paint(padded, styles.get(name, {})))
            used += 2 + len(padded)
        listed = self.details or (self.filters.by_partition and len(entry.partitions) > 1)
        single = self.filters.by_partition and len(entry.partitions) == 1 and not self.details
        answer = "" if "answer" in cells else answer
        inline, below = self._fitted(entry, answer, used, single=single)
        yield "  ".join([*shown, inline]).rstrip()
        yield from below
        if listed:
            yield from self._state_lines(entry)
        if self.details:
            yield from self._live_brokers(entry)

    # ---- what the request says ----

    def _fitted(self, entry: Entry, answer: str, used: int, *, single: bool) -> tuple[str, list[str]]:
        """The description: behind the other columns, or on lines of its own where those leave too little room.

        Args:
            entry: The request.
            answer: The answer, if it is to stand before it.
            used: Columns that are taken.
            single: Whether to tell of one partition in full.
        """
        texts = []
        for limit in _NAME_LIMITS:
            text = _single(entry, limit) if single else "; ".join(parts_of(entry, limit))
            texts.append("; ".join(filter(None, (answer, text))))
            if self.width is None or (not answer and used + 2 + len(text) <= self.width):
                return text, []
        folded = (self._wrapped(text) for text in texts)
        return "", next((lines for lines in folded if len(lines) <= _FEW_LINES), self._wrapped(texts[-1]))

    def _wrapped(self, text: str) -> list[str]:
        assert self.width is not None
        return textwrap.wrap(
            text, max(self.width, 20), initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        )

    def _state_lines(self, entry: Entry) -> Iterator[str]:
        errors = {(error.topic, error.partition): error.error for error in entry.verdict.partition_errors}
        rows = [(change, _partition_name(change), state_cells(change)) for change in entry.partitions]
        if not rows:
            return
        sizes = [max(len(cells[column]) for _change, _name, cells in rows) for column in range(5)]
        name_size = min(max(len(name) for _change, name, _cells in rows), _LONGEST_NAME)
        for change, name, cells in rows:
            error = errors.get((change.state.topic, change.state.partition), "")
            yield from self._state_line(name, cells, sizes, name_size, error)

    def _state_line(
        self, name: str, cells: tuple[str, ...], sizes: list[int], name_size: int, error: str
    ) -> Iterator[str]:
        text = "  ".join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=True) if size).rstrip()
        if self.width is not None:
            available = self.width - len(_INDENT) - 2
            if len(text) + len(error) + 2 + min(len(name), 16) > available:
                text = "  ".join(cell for cell in cells if cell)
            left = max(available - len(text) - (len(error) + 2 if error else 0), 12)
            name, name_size = shortened(name, left), min(name_size, left)
        line = f"{_INDENT}{name.ljust(name_size)}  {text}".rstrip()
        if self.width is not None and len(line) + (len(error) + 2 if error else 0) > self.width:
            yield from self._wrapped(f"{line.strip()}  {error}".strip())
            return
        yield line + (self._paint(f"  {error}", {"fg": "red"}) if error else "")

    def _live_brokers(self, entry: Entry) -> Iterator[str]:
        if entry.exchange.api_key != ApiKey.UPDATE_METADATA or entry.body is None:
            return
        for broker, endpoints, rack in entry.body.message.broker_endpoints:
            where = ", ".join(f"{printable(e.listener)}://{printable(e.host)}:{e.port}" for e in endpoints)
            line = f"{_INDENT}broker {broker}  {where}" + (f"  rack {printable(rack)}" if rack else "")
            yield from [line] if self.width is None or len(line) <= self.width else self._wrapped(line.strip())

    # ---- the columns before it ----

    def _paint(self, text: str, style: dict[str, Any]) -> str:
        return click.style(text, **style) if self.color and style else text

    def _time(self, time_ns: int) -> tuple[str, str]:
        """Return the heading of a new day, if any, and the time as the line shows it."""
        if not (time_ns and self.terminal):
            return "", moment_text(time_ns)
        day, clock = day_and_clock(time_ns)
        if day == self._day:
            return "", clock
        self._day = day
        return day, clock

    def _heading(self, day: str, moment_width: int) -> Iterator[str]:
        yield self._paint(f"{day} (UTC)", {"bold": True})
        names = ["time".ljust(moment_width)]
        names += [n.rjust(size) if n == "latency" else n.ljust(size) for n, size in self._sizes.items()]
        line = "  ".join([*names, "what changed"])
        yield self._paint(line if self.width is None else line[: self.width].rstrip(), {"dim": True})


def _single(entry: Entry, name_limit: int | None) -> str:
    """Describe the only wanted partition in full."""
    (change,) = entry.partitions
    name = _partition_name(change)
    name = name if name_limit is None else shortened(name, name_limit)
    cells = state_cells(change)
    if name_limit is not None and change.kind != "first seen" and "→" not in cells[3]:
        cells = (*cells[:3], "", cells[4])
    head = [entry.reason] if entry.reason else []
    if entry.exchange.response is None and entry.exchange.unmatched_reason:
        head.append(entry.exchange.unmatched_reason)
    return "; ".join([*head, "  ".join(cell for cell in (name, *cells) if cell)])


def _partition_name(change: PartitionChange) -> str:
    return f"{printable(change.state.topic)}-{change.state.partition}"


def _sender_and_receiver(entry: Entry) -> str:
    exchange = entry.exchange
    sender: object = (
        None if entry.sender is None or entry.verdict.outcome == "unreadable" else entry.sender.controller_id
    )
    if sender is None and entry.sender is None:
        sender = getattr(exchange.request_message, "broker_id", None)
    if sender is None:
        client = exchange.client_id
        sender = shortened(printable(client), _LONGEST_CLIENT) if client else exchange.client
    return f"{sender} → {entry.target}"


def _request(exchange: Exchange, *, version: bool) -> str:
    if exchange.api_key is None:
        return "?"
    return f"{api_name(exchange.api_key)} v{exchange.api_version}" if version else api_name(exchange.api_key)


def _epochs(entry: Entry) -> str:
    """Controller epoch/broker epoch; a dash for the broker epoch that old versions do not have."""
    if entry.sender is None or entry.body is None:
        return ""
    epoch = entry.sender.broker_epoch
    return f"{entry.sender.controller_epoch}/{'-' if epoch in (None, -1) else epoch}"
