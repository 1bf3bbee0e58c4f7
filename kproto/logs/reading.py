"""What every reader of captures knows of logs; loads nothing that reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, timedelta, timezone, tzinfo
from typing import Final

from kproto.errors import ConfigurationError

UNKNOWN: Final = -(1 << 31)
"""Stands, beside unknown replicas, for a partition epoch that a log does not tell."""

UNKNOWN_IDS: Final = [UNKNOWN, UNKNOWN + 1, UNKNOWN]
"""The ids that stand for an ISR or replicas that a log does not tell; no broker has such ids."""


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a reader of logs is told, because the logs do not say it.

    Attributes:
        zone: The zone of times that are written without one, e.g. ``Europe/Berlin``, ``UTC`` or ``+02:00``; empty: the
            reader's own.
        zone_required: Whether a time without a zone is refused where ``zone`` is empty: the tasks of a cluster have
            zones of their own.
        day: The date, as ``2023-11-20``, of lines that have a time of day alone; empty: the file's name, or other lines
            of the file, have to tell it.

    Raises:
        ConfigurationError: There is no such zone or date.
    """

    zone: str = ""
    zone_required: bool = False
    day: str = ""

    def __post_init__(self) -> None:
        zone_of(self.zone)
        if self.day:
            try:
                date.fromisoformat(self.day)
            except ValueError:
                raise ConfigurationError(f"{self.day!r} is no date; try e.g. --log-date 2023-11-20") from None


def zone_of(name: str) -> tzinfo | None:
    """Return the zone of a name, or of a distance to UTC; None for an empty name.

    Raises:
        ConfigurationError: There is no such zone.
    """
    if not name:
        return None
    if name in ("Z", "UTC", "GMT"):
        return UTC
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    if found and int(found[2]) < 24 and int(found[3]) < 60:
        minutes = int(found[2]) * 60 + int(found[3])
        return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigurationError(
            f"{name!r} is no time zone; try e.g. --log-zone UTC, --log-zone Europe/Berlin or --log-zone +02:00"
        ) from None
