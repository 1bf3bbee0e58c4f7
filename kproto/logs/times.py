"""Times in log lines, in every form, with and without a zone."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, tzinfo
from typing import Final, NamedTuple

from kproto.errors import ConfigurationError

from .reading import LogReading, zone_of

_NS: Final = 1_000_000_000
_DAY_S: Final = 86_400

LATEST_NS: Final = 1 << 63


class UnusableLine(Exception):
    """A line cannot be read; the text says why, in one line."""


class Stamp(NamedTuple):
    """A time as it is written.

    Attributes:
        ns: Nanoseconds since 1970 on the clock that was read, whatever its zone.
        offset_s: The zone's distance to UTC in seconds; None where none is written.
        lacks: What is not written: nothing, the ``year``, the ``date``, the ``order`` of the date's numbers, or
            ``which`` of several it is.
        letters: Letters that are written for the zone, and that stand for several.
    """

    ns: int
    offset_s: int | None
    lacks: str = ""
    letters: str = ""


UNDECIDED: Final = Stamp(0, None, "which")
"""One of several times of a record."""

_MONTHS: Final = {
    name: n
    for n, names in enumerate(
        (
            "jan ene gen янв", "feb fév fev фев", "mar mär mrt мар", "apr avr abr апр", "may mai mei mag maj мая май",
            "jun juin giu июн", "jul juil lug июл", "aug aoû ago авг", "sep set сен", "oct okt ott out окт", "nov ноя",
            "dec déc dez dic дек",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
"""How months begin in English, German, French, Spanish, Italian, Portuguese, Dutch, Swedish and Russian."""

_ABBREVIATIONS: Final = {
    **dict.fromkeys(("Z", "UTC", "GMT", "WET"), 0),
    **{"CET": 1, "CEST": 2, "WEST": 1, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9, "HKT": 8, "SGT": 8},
    **{"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AEST": 10, "AEDT": 11},
    **{"AKST": -9, "AKDT": -8, "HST": -10, "BRT": -3, "SAST": 2, "AWST": 8, "NZST": 12, "NZDT": 13},
    **{"Coordinated Universal Time": 0, "Greenwich Mean Time": 0},
    **{"Central European Standard Time": 1, "Central European Time": 1, "Central European Summer Time": 2},
    **{
        f"{name} {season} Time": hours + (season == "Daylight")
        for name, hours in (("Eastern", -5), ("Central", -6), ("Mountain", -7), ("Pacific", -8))
        for season in ("Standard", "Daylight")
    },
}
"""Hours to UTC of zones that are written as letters: those of RFC 822, and others that stand for one zone alone."""

_AMBIGUOUS: Final = frozenset(("IST", "BST", "AST", "SST", "AMT", "GST", "ECT"))
"""Letters that stand for several zones."""

_CLOCK: Final = (
    rb"(?P<%s>\d\d|\d(?=[:.,\d]{6,16} ?[APap]\.?[Mm]\b)):(?P<%s>\d\d):(?P<%s>\d\d)"
    rb"(?:(?:[.,]|:(?=\d{3}(?!\d)))(?P<%s>\d{1,9}))?"
    rb"(?:\ ?(?P<%s>[AP]|[ap])\.?[Mm](?:\.|\b|(?=[A-Z][a-z])))?"
)
_ZONE: Final = (
    rb"(?:\]?[\ \[(]{0,2}(?P<%s>[Zz]\b|(?:[A-Z][a-z]{2,15}\ ){1,3}Time\b|"
    rb"(?:GMT|UTC)?[+-]\d\d(?::?\d\d)?(?![\d-])|(?:GMT|UTC)[+-]\d(?!\d)|"
    rb"[A-Z][a-z]{2,20}/[A-Z][A-Za-z_]{1,30}(?:/[A-Z][A-Za-z_]{1,30})?\b|[A-Z]{3,4}\b))?"
)
"""A distance to UTC, perhaps behind ``GMT``, the name of a zone, or letters."""


def _clock(tag: str) -> bytes:
    return _CLOCK % tuple(f"{name}{tag}".encode() for name in ("H", "M", "S", "F", "P"))


def _zone(tag: str) -> bytes:
    return _ZONE % f"Z{tag}".encode()


_MONTH: Final = rb"(?i:%b)[A-Za-z\x80-\xff]{0,12}" % "|".join(_MONTHS).encode()
_BEHIND_DATE: Final = rb"(?:[Tt_:-]|\"?[,;]\"?\ ?|\ )\ ?"
"""What stands between a date and a time: a space, a letter, or the border of a table's columns."""

_STAMP: Final = re.compile(
    b"|".join(
        (
            # 2023-11-20 19:35:10,123; 2023-11-20T19:35:10.123456Z; 20231120 19:35:10; 2023. 11. 20. ...
            rb"(?<!\d)(?P<Ya>\d{4})(?P<sep>\.\ |[-/.]?)(?P<Ma_>\d\d)(?P=sep)(?P<Da>\d\d)\.?" + _BEHIND_DATE
            + _clock("a") + _zone("a"),
            # 20 Nov 2023 19:35:10,123; 20/Nov/2023:19:35:10 +0100; 20. November 2023 ...; 20 de nov. de 2023, ...
            rb"(?<!\d)(?P<Db>\d\d?)\.?[\ /-](?:de\ )?(?P<Mb_>" + _MONTH + rb")\.?[\ /-](?:de\ )?(?P<Yb>\d{4})"
            + _BEHIND_DATE + _clock("b") + _zone("b"),
            # 11/20/2023 7:35:10 PM; 20.11.2023 19:35:10,123; 11/20/23 19:35:10
            rb"(?<![\d./-])(?P<N1>\d\d?)(?P<Nsep>[/.-])(?P<N2>\d\d?)(?P=Nsep)(?P<N3>\d{4}|\d\d)"
            + _BEHIND_DATE + _clock("d") + _zone("d"),
            # Nov 20 19:35:10; Nov 20, 2023 @ 19:35:10; November 20th 2023, 19:35:10; Nov 20 19:35:10 CET 2023
            rb"\b(?P<Mc_>" + _MONTH + rb")\.?\ \ ?(?P<Dc>\d\d?)(?:st|nd|rd|th)?"
            rb"(?:,?\ (?P<Yc>\d{4}))?,?\ (?:@\ )?" + _clock("c")
            + rb"(?:\ (?P<Zc>[A-Z]{3,4}|[+-]\d\d:?\d\d)(?=\ \d{4}\b))?(?:\ (?P<Yd>(?:19|2\d)\d\d)\b(?!-))?",
            # 1700505310.123, 1700505310123: seconds, milli-, micro- and nanoseconds since 1970
            rb"(?<![\w.:-])(?P<E>1\d{9}(?:\d{9}|\d{6}|\d{3})?)(?:(?:\.|,(?=\d{3}(?![\d,])))(?P<EF>\d{1,9}))?(?![\w:-])",
            # 20231120T193510,123; 20231120193510123
            rb"(?<![\w.-])(?P<Yf>20\d\d)(?P<Mf_>\d\d)(?P<Df>\d\d)T?(?P<Hf>\d\d)(?P<Mf>\d\d)(?P<Sf>\d\d)"
            rb"[.,]?(?P<Ff>\d{3})" + _zone("f") + rb"(?!\w)",
            # 19:35:10,123
            rb"(?<![\w.:])" + _clock("e") + _zone("e") + rb"(?![\w:])",
        )
    )
)  # fmt: skip

_LONGEST_STAMP: Final = 60
_LONGEST_PREFIX: Final = 2000
"""The bytes before a message in which times are looked for."""


def stamps_in(prefix: bytes) -> list[Stamp]:
    """Return the times that stand before a message, the outermost first."""
    if len(prefix) > _LONGEST_PREFIX:
        prefix = prefix[: _LONGEST_PREFIX // 2] + b" " + prefix[-_LONGEST_PREFIX // 2 :]
    found = (_stamp(match) for match in _STAMP.finditer(prefix))
    return [stamp for stamp in found if stamp is not None]


def whole_stamp(value: object) -> Stamp | None:
    """Return the time that a text consists of; None of another value."""
    if not isinstance(value, str) or not 8 <= len(value) <= _LONGEST_STAMP:
        return None
    found = _STAMP.fullmatch(value.strip(" []").encode("utf-8", "replace"))
    return None if found is None else _stamp(found)


def _stamp(match: re.Match[bytes]) -> Stamp | None:
    fields = {name: text.decode("utf-8", "replace") for name, text in match.groupdict().items() if text is not None}
    if "E" in fields:
        digits = fields["E"]
        return Stamp(int((digits + fields.get("EF", "")).ljust(19, "0")[:19]), 0)
    tag = next(name[1] for name in fields if name[0] == "H" and name != "H")
    hour = int(fields[f"H{tag}"])
    if half := fields.get(f"P{tag}"):
        hour = hour % 12 + 12 * (half in "Pp")
    second = hour * 3600 + int(fields[f"M{tag}"]) * 60 + int(fields[f"S{tag}"])
    if hour > 24 or int(fields[f"M{tag}"]) > 59 or int(fields[f"S{tag}"]) > 60:
        return None
    ns = second * _NS + int(fields.get(f"F{tag}", "").ljust(9, "0") or 0)
    zone = fields.get(f"Z{tag}", "")
    letters = zone if zone in _AMBIGUOUS or (zone[-4:] == "Time" and zone not in _ABBREVIATIONS) else ""
    if tag == "e":
        return Stamp(ns, _offset_of(zone, None), "date", letters)
    if tag == "d":
        days = _days_of(fields["N1"], fields["N2"], fields["N3"], fields["Nsep"])
        if len(days) == 1:
            ns += _day_ns(days.pop())
            return Stamp(ns, _offset_of(zone, ns), "", letters)
        return Stamp(ns, _offset_of(zone, None), "order", letters) if days else None
    year = fields.get(f"Y{tag}") or (fields.get("Yd") if tag == "c" else None)
    month = fields[f"M{tag}_"]
    name = month.lower()
    number = int(month) if month.isdigit() else _MONTHS.get(name[:3]) or _MONTHS.get(name[:4], 0)
    try:
        day = date(int(year or 2000), number, int(fields[f"D{tag}"]))
    except ValueError:
        return None
    ns += _day_ns(day)
    return Stamp(ns, _offset_of(zone, ns if year else None), "" if year else "year", letters)


def _days_of(first: str, second: str, third: str, separator: str) -> set[date]:
    """The dates that three numbers may stand for: with points the day is first, else the day, the month or the year."""
    year, month, day = (first, second, third), (third, first, second), (third, second, first)
    found: set[date] = set()
    for each in (day,) if separator == "." else (month, day) if len(third) == 4 else (month, day, year):
        try:
            found.add(date(int(each[0]) + (0 if len(each[0]) == 4 else 2000), int(each[1]), int(each[2])))
        except ValueError:
            continue
    return found


def _day_ns(day: date) -> int:
    return (day.toordinal() - _EPOCH) * _DAY_S * _NS


_EPOCH: Final = date(1970, 1, 1).toordinal()


def _offset_of(zone: str, ns: int | None) -> int | None:
    """The distance to UTC of a zone as it is written; a zone with a name has one at a time alone."""
    if not zone:
        return None
    if zone[-1].isdigit():
        sign = -1 if "-" in zone else 1
        digits = zone.lstrip("GMTUC+-").replace(":", "")
        hours = int(digits[:2])
        return sign * (hours * 3600 + int(digits[2:4] or 0) * 60) if hours <= _MOST_HOURS else None
    if "/" in zone:
        try:
            return None if ns is None else _offset_at(zone_of(zone), ns // _NS)
        except (ConfigurationError, UnusableLine):
            return None
    distance = _ABBREVIATIONS.get(zone.upper() if len(zone) == 1 else zone)
    return None if distance is None else distance * 3600


_MOST_HOURS: Final = 14
"""No zone is farther from UTC."""


def _offset_at(zone: tzinfo | None, second: int) -> int:
    """The distance of a zone to UTC at a second of its own clock; None: of the reader's zone."""
    if not 0 <= second < 1 << 33:
        raise UnusableLine(_OUTSIDE)
    local = datetime.fromtimestamp(second, UTC).replace(tzinfo=zone)
    try:
        return second - int(local.timestamp())
    except (OverflowError, OSError, ValueError):
        raise UnusableLine(_OUTSIDE) from None


_OUTSIDE: Final = "a line whose time lies before 1970 or after 2262"


def stamp_of(value: object) -> Stamp | None:
    """Return the time that a field of JSON holds, as text or as a number since 1970; None if it holds none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and 10 <= len(value) <= 19:
            value = int(value)
        else:
            found = stamps_in(value[:100].encode("utf-8", "replace"))
            return found[0] if found else None
    if isinstance(value, dict):  # log4j2's instant, or protobuf's
        second, nano = value.get("epochSecond", value.get("seconds")), value.get("nanoOfSecond", value.get("nanos", 0))
        if isinstance(second, (int, float)) and isinstance(nano, int) and 0 <= second < 1 << 33 and 0 <= nano < _NS:
            return Stamp(int(second) * _NS + nano, 0)
        return stamp_of(value.get("$date"))
    if isinstance(value, float):
        if not 0 <= value < 1 << 63:
            return None
        value = round(value * 1_000_000) * 1000 if value < 1e11 else round(value * 1000) * 1000
        return Stamp(value if value > 1e17 else value * 1_000_000 if value < 1e14 else value * 1000, 0)
    if isinstance(value, int) and 0 < value < 1 << 63:
        scale = _NS if value < 1e11 else 1_000_000 if value < 1e14 else 1000 if value < 1e17 else 1
        return Stamp(value * scale, 0)
    return None


_QUARTER_S: Final = 900
_DELAY_NS: Final = 120 * _NS
"""The longest time from a line's own stamp until a wrapper stamps it again, for telling the line's zone by both."""

_BETWEEN_HOURS: Final = frozenset((-38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55))
"""The zones of the world whose distance to UTC is no whole number of hours, in quarters of an hour."""

_NAMED_DAY: Final = re.compile(r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)(?!\d)")


class LogClock:
    """Turns written times into ns since 1970 UTC, for the lines of one capture point.

    Args:
        reading: What the reader was told.

    Attributes:
        assumed: Whether a time without a zone was taken as the reader's own.
    """

    def __init__(self, reading: LogReading) -> None:
        self.assumed: bool = False
        self._reading = reading
        self._zone = zone_of(reading.zone)
        self._offsets: dict[int, int] = {}  # quarter of an hour on the log's clock -> its distance to UTC
        self._day = date.fromisoformat(reading.day) if reading.day else None
        self._told_day: date | None = None  # by the file's name, or the last line with a date
        self._minute = b""
        self._minute_ns = 0

    def begin_file(self, name: str) -> None:
        """Take the date that a file's name tells, if it tells one."""
        self._told_day = None
        if found := _NAMED_DAY.search(name):
            try:
                self._told_day = date(int(found[1]), int(found[2]), int(found[3]))
            except ValueError:
                return

    def kafka_ns(self, line: bytes) -> int:
        """Return the time of a line in Kafka's own layout, ``[2023-11-20 19:35:10,123] ``; -1 if it has another."""
        if line[:17] != self._minute:
            if line[24:25] != b"]" or line[20:21] != b"," or line[17:18] != b":":
                return -1
            found = stamps_in(line[1:24])
            if not found or found[0].lacks or found[0].offset_s is not None:
                return -1
            self._minute_ns = self._utc_ns(Stamp(found[0].ns // (60 * _NS) * (60 * _NS), None))
            self._minute = line[:17]
        try:
            return self._minute_ns + int(line[18:20] + line[21:24]) * 1_000_000
        except ValueError:
            return -1

    def time_ns(self, stamps: list[Stamp]) -> int:
        """Return the time of a message.

        The innermost time is the message's own. An outer one, of a wrapper, gives what it lacks: the date, the zone.

        Args:
            stamps: The times before the message, the outermost first.

        Raises:
            UnusableLine: There is no time, or it lacks its date or zone; says what gives it.
        """
        if not stamps:
            raise UnusableLine("a line without a time that can be read, such as 2024-12-31 23:59:59,999")
        own = stamps[-1]
        whole = [stamp for stamp in stamps[:-1] if not stamp.lacks]
        zoned = next((stamp for stamp in reversed(whole) if stamp.offset_s is not None), None)
        if own.lacks:
            own = self._dated(own, whole[-1] if whole else None, zoned)
        if own.offset_s is None and zoned is not None and zoned.offset_s is not None:
            outer_ns = zoned.ns - zoned.offset_s * _NS
            ahead_ns = own.ns - outer_ns + _DELAY_NS  # the line is older than its wrapper's stamp
            quarters, rest_ns = divmod(ahead_ns, _QUARTER_S * _NS)
            if rest_ns <= 2 * _DELAY_NS and (quarters % 4 == 0 or quarters in _BETWEEN_HOURS) and abs(quarters) <= 56:
                own = own._replace(offset_s=quarters * _QUARTER_S)
        return self._utc_ns(own)

    def _dated(self, own: Stamp, whole: Stamp | None, zoned: Stamp | None) -> Stamp:
        """Give a time without a year or a date what another one tells."""
        if own.lacks == "which":
            raise UnusableLine("a line beside several times, none known to be its own; give its column the name time")
        if own.lacks in ("date", "order"):
            outer = whole or zoned
            if outer is not None:
                day_ns = outer.ns // (_DAY_S * _NS) * _DAY_S * _NS
                near = min((day_ns + own.ns + n * _DAY_S * _NS for n in (-1, 0, 1)), key=lambda ns: abs(ns - outer.ns))
                return own._replace(ns=near, lacks="")
            if own.lacks == "order":
                raise UnusableLine("a date whose day and month may be either number, such as 03/04/2024")
            day = self._day or self._told_day
            if day is None:
                raise UnusableLine("a line with a time of day alone; name its date: --log-date 2023-11-20")
            return own._replace(ns=_day_ns(day) + own.ns, lacks="")
        if whole is not None:
            year = _year_of(whole.ns)
        elif self._day or self._told_day:
            year = (self._day or self._told_day).year  # type: ignore[union-attr]
        else:
            year = _year_of(time.time_ns() + _DAY_S * _NS)  # syslog's rule: the year in which it is not to come
            if _in_year(own.ns, year) > time.time_ns() + _DAY_S * _NS:
                year -= 1
        return own._replace(ns=_in_year(own.ns, year), lacks="")

    def _utc_ns(self, stamp: Stamp) -> int:
        if stamp.offset_s is not None:
            ns = stamp.ns - stamp.offset_s * _NS
        else:
            if stamp.letters and self._zone is None:
                raise UnusableLine(
                    f"a time in {stamp.letters}, which may be several zones; name the log's: --log-zone Asia/Kolkata"
                )
            quarter = stamp.ns // (_QUARTER_S * _NS)
            offset_s = self._offsets.get(quarter)
            if offset_s is None:
                offset_s = self._offset_at(quarter * _QUARTER_S)
                if len(self._offsets) > 10_000:
                    self._offsets.clear()
                self._offsets[quarter] = offset_s
            ns = stamp.ns - offset_s * _NS
        if not 0 <= ns < LATEST_NS:
            raise UnusableLine(_OUTSIDE)
        if not stamp.lacks and stamp.ns >= 0:
            self._told_day = date.fromordinal(_EPOCH + stamp.ns // (_DAY_S * _NS))
        return ns

    def _offset_at(self, second: int) -> int:
        """The distance of the log's zone to UTC at a second of its own clock."""
        if self._zone is None:
            if self._reading.zone_required:
                raise UnusableLine("a time without a zone; name the zone of the log: --log-zone Europe/Berlin")
            self.assumed = True
        return _offset_at(self._zone, second)


def _year_of(ns: int) -> int:
    return date.fromordinal(_EPOCH + ns // (_DAY_S * _NS)).year


def _in_year(ns: int, year: int) -> int:
    """Move a time of the year 2000, a leap year, to the same day of another year."""
    day, rest = divmod(ns, _DAY_S * _NS)
    of_2000 = date.fromordinal(_EPOCH + day)
    try:
        return _day_ns(of_2000.replace(year=year)) + rest
    except ValueError:  # 29 February
        return _day_ns(date(year, 3, 1)) + rest
