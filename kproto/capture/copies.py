"""Which files hold what others hold: copies, packed or not, and logs whose lines stand in other logs."""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.errors import CaptureError

from .file_ends import LOG_TIME, OF_LOG, FileEnds, last_line_ns, time_ns
from .source import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_START: Final = 1024
"""The number of bytes at a file's beginning that copies of it are looked for by."""

_REACH: Final = 1 << 16
"""Logs are looked for in others by their first line with a time, where it ends within so many bytes."""

_FEW: Final = 4
"""Up to so many lines are looked for by themselves."""

_MOST_TRIES: Final = 4096
_MOST_COMPARED: Final = 64
"""The most places of a log where others may begin, and the most logs that are compared with it at once."""

_DISORDER_NS: Final = 1_000_000_000
"""Lines near each other may be out of order by so much."""


def within_others(files: Sequence[str], ends: FileEnds) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Find files whose unpacked bytes are those of others, and logs whose lines stand in others.

    Returns:
        The files that stand in another one whole, each with the one that stands in none; and pairs of other logs: the
        second one begins within the first, and goes on behind its end.
    """
    found = _copies(files, ends) if len(files) > 1 else {}
    pieces, overlaps = _overlaps_of_logs([file for file in files if file not in found], ends)
    found |= pieces
    for file, other in found.items():
        while other in found:
            other = found[other]
        found[file] = other
    return found, overlaps


def _copies(files: Sequence[str], ends: FileEnds) -> dict[str, str]:
    same_start: dict[bytes, list[str]] = {}
    for file in files:
        start = _digest_of(file, ends, most=_START)
        if start is not None:
            same_start.setdefault(start, []).append(file)
    found: dict[str, str] = {}
    for alike in same_start.values():
        first: dict[bytes, str] = {}
        for file in alike if len(alike) > 1 else ():
            whole = _digest_of(file, ends)
            if whole is not None and (original := first.setdefault(whole, file)) is not file:
                found[file] = original
    return found


def _overlaps_of_logs(files: Sequence[str], ends: FileEnds) -> tuple[dict[str, str], list[tuple[str, str]]]:
    starts = {}
    for file in files:
        try:
            begin = ends.beginning(file)
            if begin.properties == OF_LOG and (start := _start_of(file, begin.first_ns, ends)):
                starts[file] = start
        except CaptureError:
            continue  # reading the file reports the error
    by_line: dict[bytes, list[str]] = {}
    for file, start in starts.items():
        by_line.setdefault(start.line, []).append(file)
    lines = sorted((start.ns, start.line) for start in starts.values())
    pieces: dict[str, str] = {}
    overlaps = []
    for file in starts if len(starts) > 1 else ():
        if file in pieces or len(_of_times(lines, starts[file].ns, ends.last_ns(file))) < 2:
            continue
        for other, is_whole in _begin_within(file, starts, by_line, lines, ends):
            if is_whole:
                pieces[other] = file
            else:
                overlaps.append((file, other))
    return pieces, [pair for pair in overlaps if pieces.keys().isdisjoint(pair)]


class _Start(NamedTuple):
    """The first bytes of a log, of them the first line with a time, that line's place, and the log's first time."""

    head: bytes
    line: bytes
    at: int
    ns: int


def _start_of(file: str, first_ns: int, ends: FileEnds) -> _Start | None:
    """The start of a log; None if a line is longer than what is looked at."""
    with ends.open(file) as source:
        head = source.peek(_REACH)[:_REACH]
    dated = LOG_TIME.search(head)
    at = dated.start() if dated else 0
    line, end, _ = head[at:].partition(b"\n")
    return _Start(head, line.rstrip(b"\r"), at, first_ns) if line and (end or len(head) < _REACH) else None


def _of_times(lines: Sequence[tuple[int, bytes]], first_ns: int, last_ns: int) -> Sequence[tuple[int, bytes]]:
    """Of lines by time those between two times, of which the later one may come first; all if not each has a time."""
    if not lines[0][0]:
        return lines
    first_ns, last_ns = sorted((first_ns, last_ns))
    return lines[bisect_left(lines, (first_ns, b"")) : bisect_left(lines, (last_ns + 1, b""))]


def _begin_within(
    file: str,
    starts: Mapping[str, _Start],
    by_line: Mapping[bytes, Sequence[str]],
    lines: Sequence[tuple[int, bytes]],
    ends: FileEnds,
) -> Iterator[tuple[str, bool]]:
    """Yield the logs that begin within a log and are equal to it from there on, and whether they end there, too.

    Each line is looked at once, however many logs there are, and only where others begin at its time.
    """
    compared: list[_Comparison] = []
    tries = _MOST_TRIES
    data, at = b"", 0  # ``at``: where the lines begin that were not looked at
    with ends.open(file) as source:
        while more := source.read():
            going_on = []
            for each in compared:
                if each.goes_on(more):
                    going_on.append(each)
                elif each.is_equal:
                    yield each.file, True
            compared = going_on
            data += more
            end = data.rfind(b"\n") + 1
            if len(data) - end > _REACH:
                end = len(data)  # no line that is looked for is so long
            looked_at = data[at:end]
            dated = LOG_TIME.search(looked_at)
            first_ns = time_ns(dated) if dated else 0
            near = _of_times(lines, first_ns - _DISORDER_NS, last_line_ns(looked_at[-HEAD:]) + _DISORDER_NS)
            is_few = dated and len(near) <= _FEW
            wanted = {line for _ns, line in near} if is_few else by_line.keys() & set(looked_at.splitlines())
            for line in wanted:
                place = data.find(line, at, end)
                while place >= 0 and tries > 0:
                    for other in by_line[line][:tries]:
                        tries -= 1
                        begin = place - starts[other].at
                        head = starts[other].head[: len(data) - begin]
                        if other == file or begin < 0 or not data.startswith(head, begin):
                            continue
                        if len(compared) < _MOST_COMPARED:
                            each = _Comparison(other, ends)
                            if each.goes_on(data[begin:]):
                                compared.append(each)
                            elif each.is_equal:
                                yield other, True
                    place = data.find(line, place + 1, end)
            data = data[max(end - _REACH, 0) :]
            at = min(end, _REACH)
    for each in compared:
        each.close()
        yield each.file, False


class _Comparison:
    """Compares a log with bytes that come one after another, until it ends or differs; then it is closed.

    Attributes:
        file: The log.
        is_equal: Whether the bytes were equal so far.
    """

    def __init__(self, file: str, ends: FileEnds) -> None:
        self.file = file
        self._source = ends.open(file)
        self.close = self._source.close
        self.is_equal = True
        self._left = b""

    def goes_on(self, data: bytes) -> bool:
        """Compare the next bytes; whether the log is equal to them and goes on."""
        at = 0
        while True:
            self._left = self._left or self._source.read()
            if not self._left:
                self.close()
                self.is_equal = not self._source.damage
                return False
            if at == len(data):
                return True
            size = min(len(data) - at, len(self._left))
            if data[at : at + size] != self._left[:size]:
                self.close()
                self.is_equal = False
                return False
            at, self._left = at + size, self._left[size:]


def _digest_of(file: str, ends: FileEnds, *, most: int | None = None) -> bytes | None:
    """Return a hash of a file's unpacked bytes; None of an empty file, and of one that cannot be read.

    Args:
        file: The file.
        ends: Opens it.
        most: The number of bytes at its beginning that count; None: all.
    """
    digest = blake2b(digest_size=16)
    try:
        with ends.open(file) as source:
            if most is not None:
                start = source.peek(most)[:most]
                digest.update(start)
                return digest.digest() if start else None
            read = 0
            while data := source.read():
                read += len(data)
                digest.update(data)
            return None if source.damage or not read else digest.digest()
    except CaptureError:
        return None  # reading the file reports the error
