"""One exchange as lines of text for the person on call.

On a terminal each day has a heading and each line the time of day, in colour and cut to the terminal's width; in a pipe
every line stands for itself, with its date, whole and plain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import CONTROL_APIS, ApiKey, api_name
from kproto.cli.states import PartitionLine, damage, error_codes, partition_lines
from kproto.cli.text import day_and_clock, printable, ranges
from kproto.error_codes import named_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import Exchange
    from kproto.tables.brokers import BrokerDirectory
    from kproto.tables.filters import Filters

__all__ = ["LineFormatter"]

_API_COLOURS: Final = {
    ApiKey.LEADER_AND_ISR: "cyan",
    ApiKey.STOP_REPLICA: "magenta",
    ApiKey.UPDATE_METADATA: "blue",
}
_UPDATE_TYPES: Final = {0: "", 1: "incremental", 2: "full"}
_LONGEST: Final = 160
"""How much of another API's request is told without ``--details``."""
_LONGEST_CLIENT: Final = 40
_SHORTEST: Final = 16
"""What is left for the last column even on a narrow terminal."""


class LineFormatter:
    """Makes lines of exchanges; remembers the day and how wide the columns have become.

    Args:
        filters: Which partitions to tell of.
        brokers: Who is where.
        terminal: Headings and times of day; else every line has its date.
        color: ANSI colours.
        width: Columns of the terminal, None for no limit.
        details: Each partition state on a line of its own.
    """

    def __init__(
        self,
        filters: Filters,
        brokers: BrokerDirectory,
        *,
        terminal: bool = False,
        color: bool = False,
        width: int | None = None,
        details: bool = False,
    ) -> None:
        self._filters = filters
        self._brokers = brokers
        self._terminal = terminal
        self._color = color
        self._width = width
        self._details = details
        self._day = ""
        self._columns = {"who": 3, "request": 17, "id": 3, "epochs": 6, "ms": 6, "answer": 6}

    def lines(self, exchange: Exchange) -> Iterator[str]:
        """The lines of one exchange, the day's heading before the first of a day."""
        states = list(partition_lines(exchange, self._filters))
        inline = self._filters.by_partition and len(states) == 1 and not self._details
        what = states[0].inline() if inline else _what(exchange, states)
        plain = {
            "who": self._who(exchange),
            "request": _request(exchange),
            "id": f"#{exchange.correlation_id}",
            "epochs": _epochs(exchange.request_message),
            "ms": "-" if exchange.latency_ms is None else f"{exchange.latency_ms:.1f}",
            "answer": "",
        }
        plain["answer"], answer_colour = _answer(exchange, self._filters, len(states))
        colours = {
            "who": {"bold": True},
            "request": {"fg": _API_COLOURS.get(exchange.api_key)},  # type: ignore[call-overload]
            "epochs": {"dim": True},
            "id": {"dim": True},
            "answer": {"fg": answer_colour} if answer_colour else {},
        }
        for name, text in plain.items():
            if name != "answer":  # a long error moves its own line, not all that follow
                self._columns[name] = max(self._columns[name], len(text))
        day, moment = self._time(exchange.time_ns)
        if day:
            yield from self._heading(day, len(moment))
        cells = [(moment, {"dim": True})]
        for name, text in plain.items():
            size = self._columns[name]
            cells.append((text.rjust(size) if name == "ms" else text.ljust(size), colours.get(name, {})))
        room = self._room(sum(len(text) + 2 for text, _ in cells))
        cells.append((_cut(what, room), {}))
        yield "  ".join(self._paint(text, style) for text, style in cells).rstrip()
        if self._details or (self._filters.by_partition and not inline):
            yield from self._state_lines(states)
        if self._details:
            yield from self._more(exchange)

    def _paint(self, text: str, style: dict[str, Any]) -> str:
        return click.style(text, **style) if self._color and style else text

    def _room(self, used: int) -> int | None:
        return None if self._width is None else max(self._width - used, _SHORTEST)

    def _time(self, time_ns: int) -> tuple[str, str]:
        """The heading where a new day begins, and the moment as the line shows it."""
        day, clock = day_and_clock(time_ns)
        if not self._terminal:
            return "", f"{day}T{clock}Z"
        if day == self._day:
            return "", clock
        self._day = day
        return day, clock

    def _heading(self, day: str, moment_width: int) -> Iterator[str]:
        yield self._paint(f"{day} (UTC)", {"bold": True})
        names = ["time".ljust(moment_width)]
        names += [n.rjust(size) if n == "ms" else n.ljust(size) for n, size in self._columns.items()]
        yield self._paint("  ".join([*names, "what"]), {"dim": True})

    def _who(self, exchange: Exchange) -> str:
        request = exchange.request_message
        sender = getattr(request, "controller_id", None)
        if sender is None:
            sender = getattr(request, "broker_id", None)
        if sender is None:
            sender = _cut(printable(exchange.client_id), _LONGEST_CLIENT) if exchange.client_id else exchange.client
        receiver = self._brokers.id_of(exchange.server, exchange.time_ns, exchange.connection.capture)
        return f"{sender} → {exchange.server if receiver is None else receiver}"

    def _state_lines(self, states: list[PartitionLine]) -> Iterator[str]:
        rows = [state.cells() for state in states]
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for state, row in zip(states, rows, strict=True):
            text = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True) if size).rstrip()
            error = self._paint(f"  {named_error(state.error)}", {"fg": "red"}) if state.error else ""
            yield f"    {text}{error}"

    def _more(self, exchange: Exchange) -> Iterator[str]:
        if exchange.api_key == ApiKey.UPDATE_METADATA and exchange.request_message is not None:
            for broker, endpoints, rack in exchange.request_message.broker_endpoints:
                where = ", ".join(f"{printable(e.listener)}://{printable(e.host)}:{e.port}" for e in endpoints)
                yield f"    broker {broker}  {where}" + (f"  rack {printable(rack)}" if rack else "")
        if problem := damage(exchange):
            yield self._paint(f"    {printable(problem)}", {"fg": "red"})


def _request(exchange: Exchange) -> str:
    if exchange.api_key is None:
        return "?"
    return f"{api_name(exchange.api_key)} v{exchange.api_version}"


def _epochs(request: Any) -> str:
    """Controller epoch / broker epoch, of which old versions have only the first."""
    controller = getattr(request, "controller_epoch", None)
    broker = getattr(request, "broker_epoch", None)
    parts = ["-" if controller is None else str(controller)]
    if broker is not None and broker != -1:
        parts.append(str(broker))
    return "" if parts == ["-"] else "/".join(parts)


def _answer(exchange: Exchange, filters: Filters, asked: int) -> tuple[str, str]:
    """What was answered about so many partitions, and its colour."""
    if damage(exchange) is not None:
        return "cannot be read", "red"
    if exchange.response is None:
        return "none", "yellow"
    if exchange.response_message is None:
        return "not shown", ""
    errors = error_codes(exchange, filters)
    if not errors:
        return "ok", "green"
    if getattr(exchange.response_message, "error_code", 0) or (asked == 1 and errors.total() == 1):
        return named_error(*errors), "red"
    return ", ".join(f"{n} x {named_error(code)}" for code, n in sorted(errors.items())), "red"


def _what(exchange: Exchange, states: list[PartitionLine]) -> str:
    """The partitions by topic, and what else the request says in a word or two."""
    if problem := damage(exchange):
        return printable(problem)
    request = exchange.request_message
    if request is None:
        return exchange.unmatched_reason or ""
    if exchange.api_key not in CONTROL_APIS:
        return _cut(json.dumps(request.to_json(exchange.api_version), separators=(",", ":")), _LONGEST)
    words = []
    if exchange.response is None and exchange.unmatched_reason:
        words.append(f"({exchange.unmatched_reason})")
    if getattr(request, "is_kraft_controller", False):
        words.append("kraft")
    if kind := _UPDATE_TYPES.get(getattr(request, "type", 0), ""):
        words.append(kind)
    topics: dict[str, list[int]] = {}
    deleted = 0
    for state in states:
        topics.setdefault(state.topic, []).append(state.partition)
        deleted += state.deletes
    if deleted:
        words.append("delete" if deleted == len(states) else f"delete {deleted} of {len(states)}")
    if len(states) > 1:
        words.append(f"{len(states)} partitions:")
    words += [f"{printable(topic) or repr(topic)}[{ranges(numbers)}]" for topic, numbers in topics.items()]
    if not states and exchange.api_key == ApiKey.UPDATE_METADATA:
        words.append("live brokers " + ranges(broker for broker, _, _ in request.broker_endpoints))
    return " ".join(words)


def _cut(text: str, room: int | None) -> str:
    return text if room is None or len(text) <= room else text[: room - 1] + "…"
