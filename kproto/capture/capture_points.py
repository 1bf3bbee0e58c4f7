"""Which files were recorded at one place: rotated files are one capture, files of different places are several.

Files in one directory belong together if their names differ only by rotation (``control.pcap``,
``control.pcap1``; ``control_00001_20261121063557.pcapng``, as tcpdump, dumpcap and editcap write them;
``kafka-request.log.2026-11-21-06``), or by a single number before the extension; if they describe the same interfaces
(format, byte order, link type, snaplen; in pcapng the host and the interfaces' names, too); and if none begins before
the one before it has ended. Captures of several brokers made at the same time overlap, and so stay apart. Whatever the
names are, files belong together where the connections of one go on in the other at the very byte, and logs where the
end of one is the begin of the other; a log whose bytes stand in another one is left out.
"""

from __future__ import annotations

import heapq
import os
import re
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kproto.errors import CaptureError

from .fragments import Fragments
from .link import segment
from .pcap import PcapReader
from .pcapng import PcapngReader
from .source import HEAD, Source, check_begun, check_capture, detect_format
from .summary import CaptureSummary
from .tail import Tail, is_plain, read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .pcap import Packet

Opener: TypeAlias = "Callable[[str], IO[bytes]]"

_EXTENSION: Final = "pcapng|pcap|cap|dmp|dump|trace"
_ROTATION: Final = r"[-_.]?\d[\d_.:T-]*"
_PACKING: Final = "gz|bz2|xz|zst|zstd"
_TIME: Final = re.compile(r"(?:\w+=)?(?:[0-2]\d|3[01]|20\d\d(?:[-_]?[01]\d(?:[-_]?[0-3]\d(?:[-_T]?\d\d){0,3}Z?)?)?)")
_PACKED: Final = re.compile(rf"\.(?:{_PACKING})$")
_ROTATED: Final = re.compile(rf"(.*\.(?:{_EXTENSION}|log)){_ROTATION}")
_NAMED_AS_CAPTURE: Final = re.compile(
    rf".*(?:\.(?:{_EXTENSION})|(?:kafka-request|state-change|controller)\.log)(?:{_ROTATION})?(?:\.(?:{_PACKING}|zip))?",
    re.I | re.S,
)
"""Names of captures and request logs, also rotated and packed, whether or not kproto reads their packing."""

_NUMBERED: Final = [
    re.compile(r"(.*)_\d{5}_\d{14}(\.\w+)?"),  # dumpcap's and editcap's
    re.compile(r"(.*?)[-_.]?\d{4}-?\d\d-?\d\d(?:[-_T.]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?(\.\w+)?"),  # a date, a time
    re.compile(r"(.*?)[-_.]?\d+(\.\w+)?"),
]
_OF_PACKETS: Final = re.compile(rf"\.(?:{_EXTENSION})\b", re.I)
_LOG_TIME: Final = re.compile(rb"^\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[,.](\d{3}))?", re.M)

_START: Final = 1024
"""The number of bytes at a file's beginning that copies of it are looked for by."""

_REACH: Final = 1 << 16
"""Logs are looked for in others by their first line with a time, where it ends within so many bytes."""

_FEW: Final = 4
"""Up to so many lines are looked for by themselves."""

_MOST_TRIES: Final = 4096
_MOST_COMPARED: Final = 64
"""The most places of a log where others may begin, and the most logs that are compared with it at once."""

_OF_LOG: Final = ("request log",)
"""The properties of each log."""

_END: Final = 1 << 20
"""The number of bytes before a file's end that show when it was last written to."""

_SHORT: Final = 64 << 20
"""The number of bytes to unpack of a file whose name is enough."""

_MOST_PACKETS: Final = 20_000
"""The most packets of a file whose end is looked at: of large packed files, which are unpacked for it, names decide."""

_MOST_FLOWS: Final = 512
"""The most flows of a file's begin, and of its end, that are compared with others."""

_MOST_FORMER: Final = 8
"""The most chains, or parts of one, that a later one is compared with."""

_OVERLAP_NS: Final = 1_000_000_000
_OVERLAP: Final = 100
"""Packets near the border of two files may be out of order: up to a second, and a hundredth of the file."""


@dataclass(frozen=True, slots=True)
class CapturePoint:
    """A place where packets were recorded, and the files that hold them.

    Attributes:
        name: As declared, or the first file's name without what compression and rotation add to it, see ``point_name``.
        files: The files, ordered by time.
    """

    name: str
    files: tuple[str, ...]


class _Facts(NamedTuple):
    """The properties of a file that its beginning tells; ``seen_ns`` is the newest time there."""

    properties: tuple[object, ...]
    first_ns: int
    seen_ns: int = 0


@dataclass(slots=True)
class _Chain:
    """Files that follow each other.

    Attributes:
        files: The files.
        first_ns: Time of the first packet.
        last_ns: Time of the last packet; while the last file is unread to its end, the newest time known.
        unread: Whether the last file is unread to its end.
    """

    files: list[str]
    first_ns: int
    last_ns: int = 0
    unread: bool = True

    @property
    def open_ns(self) -> int:
        """The earliest time of the first packet of a file that may follow the chain."""
        return self.last_ns - min(_OVERLAP_NS, (self.last_ns - self.first_ns) // _OVERLAP)


class _Chains:
    """The chains of files that describe the same interfaces. Files are added in the order of their first packets.

    A chain that one file may follow stays open to all later files until one of them follows it, so that each file
    takes two steps in a heap, however many chains there are.

    Args:
        last_ns_of: Tells the time of a file's last packet.
    """

    def __init__(self, last_ns_of: Callable[[str], int]) -> None:
        self._last_ns_of = last_ns_of
        self._chains: list[_Chain] = []
        self._closed: list[tuple[int, int]] = []  # from when a chain is open, and its number: the next to open first
        self._open: list[tuple[int, int]] = []  # when a chain ended, negative, and its number: the last to end first

    def add(self, file: str, first_ns: int, seen_ns: int) -> None:
        """Add a file to the chain that ended last before it, or begin a chain.

        Args:
            file: The file.
            first_ns: Time of its first packet.
            seen_ns: The newest time known of it.
        """
        while self._closed and self._closed[0][0] <= first_ns:
            _, number = heapq.heappop(self._closed)
            chain = self._chains[number]
            if chain.unread:
                chain.last_ns = max(chain.last_ns, self._last_ns_of(chain.files[-1]))
                chain.unread = False
            if chain.open_ns <= first_ns:
                heapq.heappush(self._open, (-chain.last_ns, number))
            else:
                heapq.heappush(self._closed, (chain.open_ns, number))
        if self._open:
            _, number = heapq.heappop(self._open)
            chain = self._chains[number]
            chain.files.append(file)
        else:
            number = len(self._chains)
            chain = _Chain([file], first_ns)
            self._chains.append(chain)
        chain.last_ns = max(first_ns, seen_ns)
        chain.unread = True
        heapq.heappush(self._closed, (chain.open_ns, number))

    def files(self) -> list[list[str]]:
        """The files of each chain."""
        return [chain.files for chain in self._chains]


def capture_points(
    paths: Iterable[str | os.PathLike[str]], *, opener: Opener | None = None, unfinished: bool = True
) -> list[CapturePoint]:
    """Group files by where they were recorded, each capture point's ordered by time.

    Args:
        paths: Files, and directories (or directories of those, one for each host or hour), of which the captures and
            request logs are taken: the files that are such by their content, and those that are by their name, so that
            reading them tells why they cannot be read. A file named twice counts once, and so do a file and its copies,
            packed or not.
        opener: Opens a file by its name, for seeking; None: the file system does.
        unfinished: Whether directories give files that are being written, as ``kproto tap`` names them: ``NAME.part``.

    Raises:
        CaptureError: A directory holds no capture.
    """
    by_stem: dict[tuple[Path, str], list[str]] = {}
    files_found = [*dict.fromkeys(_files(paths, unfinished))]
    copied = copies_among(files_found, opener)
    files_found = [file for file in files_found if file not in copied]
    pieces, overlaps = _overlaps_of_logs(files_found, opener)
    for file in (file for file in files_found if file not in pieces):
        by_stem.setdefault((Path(file).parent, _stem(Path(file).name)), []).append(file)
    by_number: dict[tuple[Path, str], list[str]] = {}
    groups: list[tuple[list[str], bool]] = []  # whether their names are those of rotation
    for (folder, stem), files in by_stem.items():
        if len(files) > 1 or stem.endswith(".log"):
            groups.append((files, True))
        else:
            key = folder, without_number(stem)
            if key not in by_number:
                by_number[key] = []
                groups.append((by_number[key], False))
            by_number[key] += files
    chains = [
        chain
        for files, rotated in groups
        for chain in (in_order(files, rotated=rotated, opener=opener) if len(files) > 1 else [files])
    ]
    if len(chains) > 1:
        chains = _joined(chains, opener)
    for former, later in overlaps:
        one, other = (next(chain for chain in chains if file in chain) for file in (former, later))
        if one is not other:
            chains.remove(other)
            one += other
            one[:] = in_order(one, one=True, opener=opener)[0]
    names = _distinct([list(names_of_point(chain[0])) for chain in chains])
    return [CapturePoint(name, tuple(chain)) for name, chain in zip(names, chains, strict=True)]


def capture_files(paths: Iterable[str | os.PathLike[str]], *, unfinished: bool = True) -> list[str]:
    """Return the captures and request logs among files and in directories, each once, by its real path.

    Args:
        paths: Files, directories, URIs.
        unfinished: See ``capture_points``.

    Raises:
        CaptureError: A directory holds no capture.
    """
    found = _files(paths, unfinished)
    return [*dict.fromkeys(file if "://" in file else str(Path(file).resolve()) for file in found)]


def copies_among(files: Sequence[str], opener: Opener | None = None) -> dict[str, str]:
    """Return the files whose unpacked bytes are those of an earlier one, each with the earlier one's name."""
    if len(files) < 2:
        return {}
    same_start: dict[bytes, list[str]] = {}
    for file in files:
        start = digest_of(file, opener, most=_START)
        if start is not None:
            same_start.setdefault(start, []).append(file)
    found: dict[str, str] = {}
    for alike in same_start.values():
        first: dict[bytes, str] = {}
        for file in alike if len(alike) > 1 else ():
            whole = digest_of(file, opener)
            if whole is not None and (original := first.setdefault(whole, file)) is not file:
                found[file] = original
    return found


def _overlaps_of_logs(files: Sequence[str], opener: Opener | None) -> tuple[set[str], list[tuple[str, str]]]:
    """Find logs whose lines stand in others.

    Returns:
        Those that stand in another one whole, and pairs of others: the second one begins within the first, and goes on
        behind its end.
    """
    starts = {}
    for file in (file for file in files if not _OF_PACKETS.search(Path(file).name)):
        try:
            facts = _facts(file, opener)
            if facts.properties == _OF_LOG and (start := _start_of(file, facts.first_ns, opener)):
                starts[file] = start
        except CaptureError:
            continue  # reading the file reports the error
    by_line: dict[bytes, list[str]] = {}
    for file, start in starts.items():
        by_line.setdefault(start.line, []).append(file)
    lines = sorted((start.ns, start.line) for start in starts.values())
    pieces: set[str] = set()
    overlaps = []
    for file in starts if len(starts) > 1 else ():
        if file in pieces or len(_of_times(lines, starts[file].ns, _last_ns(file, opener, short=False))) < 2:
            continue
        for other, is_whole in _begin_within(file, starts, by_line, lines, opener):
            if is_whole:
                pieces.add(other)
            else:
                overlaps.append((file, other))
    return pieces, [pair for pair in overlaps if pieces.isdisjoint(pair)]


class _Start(NamedTuple):
    """The first bytes of a log, of them the first line with a time, that line's place, and the log's first time."""

    head: bytes
    line: bytes
    at: int
    ns: int


def _start_of(file: str, first_ns: int, opener: Opener | None) -> _Start | None:
    """The start of a log; None if a line is longer than what is looked at."""
    with Source(file, opener=opener) as source:
        head = source.peek(_REACH)[:_REACH]
    dated = _LOG_TIME.search(head)
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
    opener: Opener | None,
) -> Iterator[tuple[str, bool]]:
    """Yield the logs that begin within a log and are equal to it from there on, and whether they end there, too.

    Each line is looked at once, however many logs there are, and only where others begin at its time.
    """
    compared: list[_Comparison] = []
    tries = _MOST_TRIES
    data, at = b"", 0  # ``at``: where the lines begin that were not looked at
    with Source(file, opener=opener) as source:
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
            dated = _LOG_TIME.search(looked_at)
            first_ns = _time_ns(dated) if dated else 0
            near = _of_times(lines, first_ns - _OVERLAP_NS, _last_line_ns(looked_at[-HEAD:]) + _OVERLAP_NS)
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
                            each = _Comparison(other, opener)
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


class _Comparison(Source):
    """Compares a log with bytes that come one after another, until it ends or differs; then it is closed.

    Attributes:
        file: The log.
        is_equal: Whether the bytes were equal so far.
    """

    def __init__(self, file: str, opener: Opener | None) -> None:
        super().__init__(file, opener=opener)
        self.file = file
        self.is_equal = True
        self._left = b""

    def goes_on(self, data: bytes) -> bool:
        """Compare the next bytes; whether the log is equal to them and goes on."""
        at = 0
        while True:
            self._left = self._left or self.read()
            if not self._left:
                self.close()
                self.is_equal = not self.damage
                return False
            if at == len(data):
                return True
            size = min(len(data) - at, len(self._left))
            if data[at : at + size] != self._left[:size]:
                self.close()
                self.is_equal = False
                return False
            at, self._left = at + size, self._left[size:]


def digest_of(file: str, opener: Opener | None = None, *, most: int | None = None) -> bytes | None:
    """Return a hash of a file's unpacked bytes; None of an empty file, and of one that cannot be read.

    Args:
        file: The file.
        opener: See ``capture_points``.
        most: The number of bytes at its beginning that count; None: all.
    """
    digest = blake2b(digest_size=16)
    try:
        with Source(file, opener=opener) as source:
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


def point_name(file: str | os.PathLike[str]) -> str:
    """A file's name without compression's ending and rotation's number or time: the default name of a capture point.

    So the ids of frames and connections stay when a capture is compressed, or rotated at another size.
    """
    return next(names_of_point(os.fspath(file)))


def unpacked(file: str) -> str:
    """A file's path without compression's ending."""
    return _PACKED.sub("", file)


def names_of_point(file: str) -> Iterator[str]:
    """Yield the names that a file's capture point may have, from the shortest to the one that no other has."""
    path = Path(file)
    name = unpacked(path.name)
    stem = _stem(path.name)
    for pattern in _NUMBERED[:2]:  # a mere number may be a broker's
        if (found := pattern.fullmatch(stem)) and found[1]:
            stem = found[1] + (found[2] or "")
            break
    yield stem
    yield name
    for folder in [*path.parents][:-1]:
        name = f"{folder.name}/{name}"
        yield name
    yield str(path.absolute())


def above_times(folders: Sequence[str]) -> Sequence[str]:
    """Return directories without the last ones if these are named by days and hours: others like them are of one place.

    Two digits are an hour, a day or a month below a year or a date; elsewhere they may number a host.

    >>> above_times(["hosts", "07", "2026-11-21", "06"])
    ['hosts', '07']
    """
    begin = len(folders)
    while begin and _TIME.fullmatch(folders[begin - 1]):
        begin -= 1
    times = folders[begin:]
    return folders[: next((begin + at for at, folder in enumerate(times) if len(folder) > 2), len(folders))]


def _distinct(names: list[list[str]]) -> list[str]:
    """The first of each one's names that no other has."""
    chosen = [0] * len(names)
    while True:
        times = Counter(each[at] for each, at in zip(names, chosen, strict=True))
        again = [n for n, at in enumerate(chosen) if times[names[n][at]] > 1 and at + 1 < len(names[n])]
        if not again:
            return [each[at] for each, at in zip(names, chosen, strict=True)]
        for n in again:
            chosen[n] += 1


def _files(paths: Iterable[str | os.PathLike[str]], unfinished: bool) -> Iterator[str]:
    seen: set[Path] = set()
    for path in paths:
        if not Path(path).is_dir():
            found = [os.fspath(path)]
        else:
            found = _inside(Path(path), unfinished)
            if not found:  # a directory for each host, or for each hour
                found = [file for folder in _folders(Path(path)) for file in _inside(folder, unfinished)]
            if not found:
                raise CaptureError(
                    f"{path}: a directory without a capture or request log, or files of a __cluster_metadata-0"
                )
        for file in found:
            resolved = Path(file).resolve()
            if resolved not in seen:
                seen.add(resolved)
                yield file


def folders_left_out(path: str | os.PathLike[str]) -> list[str]:
    """Return the directories in a directory that hold captures or logs, or cannot be opened, and are not read with it.

    Those are the ones beside captures, and the ones in directories of hosts or hours. One that holds such a directory
    counts, too; what is further down is not looked for.
    """
    top = Path(path)
    found = []
    try:
        folders = _folders(top) if top.is_dir() else []
        if folders and not _inside(top, unfinished=True):
            folders = [inner for folder in folders for inner in _folders(folder)]
    except OSError:
        return []  # reading the directory reports the error
    for folder in folders:
        try:
            holds_any = any(_inside(each, unfinished=True) for each in (folder, *_folders(folder)))
        except OSError:
            holds_any = True
        if holds_any:
            found.append(str(folder))
    return found


def _folders(folder: Path) -> list[Path]:
    inside = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [p for p in inside if not p.is_symlink()]


def _inside(folder: Path, unfinished: bool) -> list[str]:
    """The captures and logs in a directory; an empty file may be one of the kernel's, which a read waits for."""
    inside = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    inside = [p for p in inside if p.stat().st_size or _NAMED_AS_CAPTURE.fullmatch(p.name)]
    return [str(p) for p in inside if (unfinished or p.suffix != ".part") and _is_capture(p)]


def _is_capture(path: Path) -> bool:
    if _NAMED_AS_CAPTURE.fullmatch(path.name):
        return True
    try:
        check_capture(path)
    except CaptureError:
        return False
    return True


def _stem(name: str) -> str:
    """A file's name without the suffixes that compression and rotation add to its extension."""
    name = _PACKED.sub("", name)
    rotated = _ROTATED.fullmatch(name)
    return rotated[1] if rotated else name


def without_number(stem: str) -> str:
    """Return a file's name without the number or time before its extension: files alike in it may be of one place."""
    for pattern in _NUMBERED:
        if found := pattern.fullmatch(stem):
            return f"{found[1]}*{found[2] or ''}"
    return stem


def in_order(
    files: Iterable[str], *, one: bool = False, rotated: bool = False, opener: Opener | None = None
) -> list[list[str]]:
    """Order files by the time of their first packet, and separate those of different capture points.

    Args:
        files: The files.
        one: Whether all are known to be of one capture point, and are only ordered.
        rotated: Whether their names are those that rotation gives. The ends of large packed files, which are found by
            unpacking the whole files, are then not compared with the beginnings of the next.
        opener: See ``capture_points``.
    """
    facts: list[tuple[_Facts, str]] = []
    apart: list[list[str]] = []
    for file in files:
        try:
            facts.append((_facts(file, opener), file))
        except CaptureError:
            if one:
                raise
            apart.append([file])  # reading the file reports the error
    facts.sort(key=lambda item: item[0].first_ns)
    if one:
        return [[file for _, file in facts]]
    chains: dict[tuple[object, ...], _Chains] = {}
    for (properties, first_ns, seen_ns), file in facts:
        if properties not in chains:
            chains[properties] = _Chains(lambda file: _last_ns(file, opener, short=rotated))
        chains[properties].add(file, first_ns, seen_ns)
    found = [files for same in chains.values() for files in same.files()]
    if not rotated:
        found = [part for files in found for part in _going_on(files, opener)]
    return found + apart


def _going_on(files: Sequence[str], opener: Opener | None) -> list[list[str]]:
    """Return the files of a chain, apart where no connection goes on from the ones to the others.

    A mere number in a name may be that of a host. Hosts whose clocks are minutes apart have captures that seem to
    follow each other; but they show other connections, or the same bytes of the same ones again. A short file may show
    new connections alone, while those before it go on behind it.
    """
    parts: list[tuple[list[int], dict[bytes, int]]] = []  # numbers of files, and where the data of flows end in them
    for number, file in enumerate(files):
        begins = _sequences(_first_packets(file, opener)) if parts else {}
        near = [part for part in parts[-_MOST_FORMER:] if not _are_apart(part[1], begins)]
        numbers, former = [number], dict[bytes, int]()
        for part in reversed(near if begins else near[-1:]):
            if former.keys().isdisjoint(part[1]):
                parts.remove(part)
                numbers += part[0]
                former = part[1] | former
        last = _last_packets(file, opener) if number + 1 < len(files) else ()
        ends = {flow: end for flow, (_, end) in _sequences(last).items()}
        kept = [each for each in former.items() if each[0] not in ends][-_MOST_FLOWS:]
        parts.append((sorted(numbers), dict(kept) | ends))
    return [[files[number] for number in numbers] for numbers in sorted(numbers for numbers, _ends in parts)]


def _are_apart(ends: Mapping[bytes, int], begins: Mapping[bytes, tuple[int, int]]) -> bool:
    """Whether files and a later one have TCP segments with data, but no connection of the former goes on there."""
    if not ends or not begins:
        return False
    steps = [(begins[flow][0] - ends[flow]) & 0xFFFFFFFF for flow in ends.keys() & begins.keys()]
    backward = sum(step >= 1 << 31 for step in steps)
    return len(steps) <= 2 * backward


class _ConnectionEnds(NamedTuple):
    """How the first file of a chain begins, and how its last one ends.

    Attributes:
        properties: See ``_Facts``.
        first_ns: Time of the first packet.
        last_ns: Time of the last packet.
        begins: Of each flow in the first packets, where its data begin.
        ends: Of each flow in the last packets, where its data end.
    """

    properties: tuple[object, ...]
    first_ns: int
    last_ns: int
    begins: dict[bytes, int]
    ends: dict[bytes, int]

    def is_followed_by(self, later: _ConnectionEnds, exact: int) -> bool:
        """Whether a chain follows in time, and most flows of both go on; ``exact`` of them do so at the very byte."""
        if later.first_ns < self.last_ns - _OVERLAP_NS:
            return False
        return 2 * exact > len(self.ends.keys() & later.begins.keys())


def _joined(chains: Sequence[list[str]], opener: Opener | None) -> list[list[str]]:
    """Join chains of captures where the connections of one go on in another one at the very byte."""
    ends = {number: each for number, chain in enumerate(chains) if (each := _ends_of(chain, opener)) is not None}
    standing: dict[tuple[object, ...], list[int]] = {}
    for number, each in ends.items():
        for flow_end in each.ends.items():
            standing.setdefault((each.properties, *flow_end), []).append(number)
    found = [list(chain) for chain in chains]
    whole = list(range(len(chains)))  # for each chain, the one that it has become a part of
    before: dict[int, _ConnectionEnds] = {}  # the chains up to here that none follows
    for number, each in sorted(ends.items(), key=lambda item: item[1].first_ns):
        keys = ((each.properties, *flow_begin) for flow_begin in each.begins.items())
        exact = Counter(former for key in keys for former in standing.get(key, ())[:_MOST_FORMER] if former in before)
        for former, times in exact.most_common(_MOST_FORMER):
            if before[former].is_followed_by(each, times):
                del before[former]
                whole[number] = whole[former]
                found[whole[former]] += found[number]
                found[number] = []
                break
        before[number] = each
    return [chain for chain in found if chain]


def _ends_of(chain: Sequence[str], opener: Opener | None) -> _ConnectionEnds | None:
    """Read how a chain of captures begins and ends; None: of logs, of what cannot be read, of large packed files."""
    times: list[int] = []

    def noted(packets: Iterable[Packet]) -> Iterator[Packet]:
        for packet in packets:
            times.append(packet[0])
            yield packet

    try:
        begin = _facts(chain[0], opener)
        first = _first_packets(chain[0], opener)
        last = _sequences(noted(islice(_last_packets(chain[-1], opener), _MOST_PACKETS)))
    except (CaptureError, OSError):
        return None  # reading the file reports the error
    if not first or not times or len(times) == _MOST_PACKETS:
        return None
    begins = {flow: sequence for flow, (sequence, _) in islice(_sequences(first).items(), _MOST_FLOWS)}
    ends = {flow: sequence for flow, (_, sequence) in list(last.items())[-_MOST_FLOWS:]}
    return _ConnectionEnds(begin.properties, begin.first_ns, max(times), begins, ends)


def _sequences(packets: Iterable[Packet]) -> dict[bytes, tuple[int, int]]:
    """Return the first sequence number of each flow's data, and that behind its last data, of some packets."""
    found: dict[bytes, tuple[int, int]] = {}
    summary = CaptureSummary()
    fragments = Fragments(summary)
    for packet in packets:
        part = segment(*packet, fragments, summary)
        if part is not None and part.end > part.begin:
            first, _last = found.get(part.flow, (part.sequence, 0))
            found[part.flow] = first, part.sequence + part.end - part.begin
    return found


def _first_packets(file: str, opener: Opener | None) -> list[Packet]:
    """The packets in the first bytes of a capture; none of a request log."""
    with Source(file, opener=opener) as source:
        kind = detect_format(source.name, source.peek(HEAD), whole=True)
        if kind == "request log":
            return []
        reader = _packet_reader(kind == "pcap", source.name)
        while data := source.read():
            packets = reader.feed(data)
            if packets:
                return packets
    return []


def _last_packets(file: str, opener: Opener | None) -> Iterator[Packet]:
    """The packets in the last bytes of a large capture that is not packed, or all of another; none of a request log."""
    with Source(file, opener=opener) as source:
        kind = detect_format(source.name, source.peek(HEAD), whole=True)
        if kind == "request log":
            return
        if is_plain(source.packed_head):
            with (opener or _open)(file) as opened:
                size = opened.seek(0, os.SEEK_END)
            if size >= 2 * _END:
                for packets in read_tail(Tail(file, size - _END, size), opener or _open, CaptureSummary(file=file)):
                    yield from packets
                return
        reader = _packet_reader(kind == "pcap", source.name)
        while data := source.read():
            yield from reader.feed(data)


def _facts(file: str, opener: Opener | None) -> _Facts:
    """Read the beginning of a file; an empty file counts as later than all others.

    Raises:
        CaptureError: The file cannot be read, or is no capture.
    """
    with Source(file, opener=opener) as source:
        head = source.peek(HEAD)
        check_begun(source, begun=bool(head))
        kind = detect_format(source.name, head, whole=True)
        if kind == "request log":
            from kproto.logs.detection import first_time_ns

            found = _LOG_TIME.search(head)
            return _Facts(_OF_LOG, _time_ns(found) if found else first_time_ns(head))
        reader = _packet_reader(kind == "pcap", source.name)
        while data := source.read():
            packets = reader.feed(data)
            if packets:
                return _Facts(reader.properties, packets[0][0], max(packet[0] for packet in packets))
        return _Facts(reader.properties, 1 << 63)


def _last_ns(file: str, opener: Opener | None, *, short: bool) -> int:
    """The time of the last packet of a capture, or of the last line of a log.

    Args:
        file: The file.
        opener: See ``capture_points``.
        short: Whether to read no more than the first megabytes of a packed file.
    """
    last_ns = done = 0
    with Source(file, opener=opener) as source:
        head = source.peek(HEAD)
        kind = detect_format(source.name, head, whole=True)
        if kind != "request log" and is_plain(source.packed_head):
            last_ns = _newest_at_end(file, opener or _open)
        if last_ns:
            return last_ns
        if kind == "request log":
            if head.startswith(source.packed_head):
                with (opener or _open)(file) as opened:
                    opened.seek(max(opened.seek(0, os.SEEK_END) - _END, 0))
                    return _last_line_ns(opened.read())
            while data := source.read():
                last_ns = max(last_ns, _last_line_ns(data))
            return last_ns
        reader = _packet_reader(kind == "pcap", source.name)
        while (data := source.read()) and not (short and done > _SHORT):
            done += len(data)
            for packet in reader.feed(data):
                last_ns = max(last_ns, packet[0])
    return last_ns


def _last_line_ns(data: bytes) -> int:
    """The time of the last line with one in some bytes of a log; 0 if none has one."""
    from kproto.logs.detection import last_time_ns

    at = len(data)
    while (at := data.rfind(b"\n[", 0, at)) >= 0:
        if found := _LOG_TIME.match(data, at + 1):
            return _time_ns(found)
    lines = deque(_LOG_TIME.finditer(data), maxlen=1)
    return _time_ns(lines[0]) if lines else last_time_ns(data[-HEAD:])


def _newest_at_end(file: str, opener: Opener) -> int:
    """The newest time near the end of a capture that is not packed; 0 if no packet is found there."""
    with opener(file) as opened:
        size = opened.seek(0, os.SEEK_END)
    if size < 2 * _END:
        return 0
    last_ns = 0
    for packets in read_tail(Tail(file, size - _END, size), opener, CaptureSummary(file=file)):
        last_ns = max(last_ns, *(packet[0] for packet in packets), 0)
    return last_ns


def _open(file: str) -> IO[bytes]:
    return Path(file).open("rb", buffering=0)


def _packet_reader(is_pcap: bool, name: str) -> PcapReader | PcapngReader:
    summary = CaptureSummary(file=name)
    return PcapReader(summary) if is_pcap else PcapngReader(summary)


def _time_ns(found: re.Match[bytes]) -> int:
    try:
        time = datetime.strptime(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S")
        return int(time.timestamp()) * 1_000_000_000 + int(found[3] or 0) * 1_000_000
    except (ValueError, OverflowError, OSError):
        return 0
