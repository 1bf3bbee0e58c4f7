"""Parses the times that users type: full times, times of day, and times before the capture's end."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import click

from kproto.errors import CaptureError, ConfigurationError
from kproto.tables.filters import iso_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Span: TypeAlias = tuple[int, int]
"""When captures or tables begin and end, ns since 1970 UTC."""

_NS: Final = 1_000_000_000
_UNITS_NS: Final = {"ms": 1_000_000, "s": _NS, "m": 60 * _NS, "h": 3600 * _NS, "d": 86_400 * _NS}
_STANDARD_INPUT: Final = "-"

_DAYS: Final = 400
"""The number of the captures' days on which a time of day is looked for."""


class Seconds(click.FloatRange):
    """An option's range of seconds, which must be a finite number, whatever the bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a text to a number of seconds."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


def moment_ns(text: str, span: Callable[[], Span]) -> int:
    """Convert a time that a user typed to ns since 1970 UTC.

    Args:
        text: See ``parse_time``; ``19:37:10``, a time of the day of the captures or tables, in UTC or in the zone
            that it names; or ``-5m``: five minutes before they end.
        span: Tells when the captures or tables begin and end; called only for the latter two.

    Raises:
        ConfigurationError: None of these; or a time of day that the captures show on several days.
    """
    text = text.strip()
    if text.startswith("-") and (before := _duration_ns(text[1:])) is not None:
        return span()[1] - before
    clock, zone = _zoned(text)
    if not re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([+-][0-9:]+|Z)?", clock):
        return parse_time(text)
    begin_ns, end_ns = span()
    offset = re.search(r"([+-][0-9:]+|Z)$", clock)
    try:
        if offset:
            zone = datetime.fromisoformat(f"2000-01-01T00:00{offset[0]}").tzinfo
        first, last = (datetime.fromtimestamp(ns // _NS, zone or UTC).date() for ns in (begin_ns, end_ns))
        clock = clock if clock[1] != ":" else f"0{clock}"
        days = [first + timedelta(days=number) for number in range(min((last - first).days, _DAYS) + 1)]
        moments = {day: iso_ns(f"{day}T{clock}", zone) for day in days}
    except (ValueError, OverflowError, OSError):
        raise _no_time(text) from None
    shown = [day for day, ns in moments.items() if begin_ns - begin_ns % _NS <= ns <= end_ns]
    if len(shown) > 1:
        raise ConfigurationError(
            f"{text} is on {len(shown)} days of the captures, from {shown[0]} to {shown[-1]}; name the day, e.g. "
            f"{shown[0]}T{text}"
        )
    if shown:
        return moments[shown[0]]
    return min(moments.values(), key=lambda ns: begin_ns - ns if ns < begin_ns else ns - end_ns)


def parse_duration(text: str) -> int:
    """Parse a duration into ns: ``500ms``, ``2s``, ``1.5m``, ``1h`` or ``1d``.

    Raises:
        ConfigurationError: Not of that form.
    """
    found = _duration_ns(text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is not a duration; try 500ms, 2s, 5m or 1h")
    return found


def parse_time(text: str) -> int:
    """Parse a time into ns since 1970 UTC: ISO 8601 (UTC where it names no zone), or seconds since 1970.

    A zone's name may follow: ``2026-11-21T06:59 Europe/Berlin``.

    >>> parse_time("1970-01-01T00:00:01.5Z"), parse_time("1.5")
    (1500000000, 1500000000)

    Raises:
        ConfigurationError: Neither.
    """
    match = re.fullmatch(r"([0-9]{1,11})(?:\.([0-9]{1,9}))?", text)
    if match and (match[2] or len(match[1]) not in (4, 6, 8)):  # 2026, 202611 and 20261121 are meant as dates
        return int(match[1]) * _NS + int((match[2] or "").ljust(9, "0"))
    try:
        return iso_ns(*_zoned(text))
    except ValueError:
        raise _no_time(text) from None


def _zoned(text: str) -> tuple[str, tzinfo | None]:
    """Split a time into the time itself and the zone named behind it."""
    moment, space, name = text.rpartition(" ")
    if not space or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_+/-]*", name):
        return text, None
    try:
        return moment, ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigurationError(f"{name!r} is not a time zone; try UTC, Europe/Berlin or +02:00") from None


def _duration_ns(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?\s*(ms|s|m|h|d)", text)
    if match is None:
        return None
    return int(match[1]) * _UNITS_NS[match[3]] + int((match[2] or "").ljust(9, "0")) * _UNITS_NS[match[3]] // _NS


def span_of(captures: Sequence[str]) -> Span:
    """Return when the first packet in captures passed, and the last one; now for standard input, which has no end."""
    from kproto.capture import CaptureSummary, frames
    from kproto.metadata_log.finding import find

    spans = []
    logs, captures = find(captures)
    if logs:
        from kproto.metadata_log.files import read

        times = [batch.time_ms * 1_000_000 for batch in read(logs).batches]
        spans += [(min(times), max(times))] if times else []
    for path in captures:
        summary = CaptureSummary()
        try:
            for _ in frames(path, apis=(), summary=summary) if path != _STANDARD_INPUT else ():
                pass
        except CaptureError:  # told where the capture is read
            continue
        if summary.last_ns:
            spans.append((summary.first_ns, summary.last_ns))
    if not spans:
        return (time.time_ns(),) * 2
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _no_time(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is not a time; try 2026-11-21T05:59:08.5 (UTC unless it names a zone, e.g. +02:00), 05:59:08, "
        "-5m (before the capture ends), or seconds since 1970"
    )
