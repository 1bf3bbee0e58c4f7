"""Formats text, counts, ranges and times in the same way for every command."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kproto.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LEADERS: Final = {-1: "none", -2: "none (topic being deleted)"}
"""What a leader that is no broker means."""


def terminal_width() -> int | None:
    """Return the width of the terminal that standard output is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def is_styled() -> bool:
    """Whether output may have colours and bold text: to a terminal that knows them, whose user wants them."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def ids_text(ids: Sequence[int] | None) -> str:
    """Write ids of brokers; None: unknown."""
    return "?" if ids is None else ",".join(map(str, ids)) or "none"


def id_text(value: int | None) -> str:
    """Write a broker's id, a leader or an epoch; None: unknown."""
    return "?" if value is None else LEADERS.get(value, str(value))


def losses_of(counts: Mapping[str, int]) -> Iterator[str]:
    """Describe the bytes that a capture lacks.

    Args:
        counts: The ``LOSSES`` of a ``CaptureSummary``, by name.
    """
    for name, (noun, text) in _LOSSES.items():
        if counts[name]:
            yield text.format(counted(counts[name], noun), counted(counts["gap_bytes"], "byte"))


_LOSSES: Final = {
    "partial_starts": ("message", "the beginning of {}, before the capture"),
    "gaps": ("gap", "{1} in {0}"),
    "cut_packets": ("packet", "the end of {}: capture with -s 0"),
    "ip_fragments": ("IP fragment", "the rest of {}"),
    "bad_checksums": ("packet", "{}, left out: not the recorded checksum"),
    "dropped_packets": ("packet", "{} that the recorder dropped"),
    "unmatched_responses": ("response", "the requests of {}"),
}


def day_and_clock(time_ns: int) -> tuple[str, str]:
    """Format a time in UTC: the day, and the time of day to the millisecond.

    A damaged capture can hold any time; a time beyond the calendar is given in seconds since 1970.

    >>> day_and_clock(1_795_203_290_558_999_999)
    ('2026-11-20', '19:34:50.558')
    >>> day_and_clock(1 << 80)
    ('1208925819614629', '174706176')
    """
    seconds, ns = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return str(seconds), f"{ns:09d}"
    return f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}.{ns // 1_000_000:03d}"


def moment_text(time_ns: int) -> str:
    """Format a time as every line begins; 0 is that of packets that have none.

    >>> moment_text(1_795_203_290_558_999_999), moment_text(0)
    ('2026-11-20T19:34:50.558Z', 'no time')
    """
    return f"{'T'.join(day_and_clock(time_ns))}Z" if time_ns else "no time"


def compact(value: object) -> str:
    """Write JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def print_line(value: dict[str, Any]) -> None:
    """Print a JSON object as one line: by one call, since several threads write."""
    sys.stdout.write(compact(value) + "\n")
    sys.stdout.flush()
