"""Which files were recorded at one place: rotated files are one capture, files of different places are several.

Files in one directory belong together if their names differ only by rotation (``control.pcap``,
``control.pcap1``; ``control_00001_20261121063557.pcapng``, as tcpdump, dumpcap and editcap write them;
``kafka-request.log.2026-11-21-06``), or by a single number before the extension; if they describe the same interfaces
(format, byte order, link type, snaplen; in pcapng the host and the interfaces' names, too); and if none begins before
the one before it has ended. Captures of several brokers made at the same time overlap, and so stay apart. Whatever the
names are, files belong together where the connections of one go on in the other at the very byte, and logs where the
end of one is the begin of the other; a log whose bytes stand in another one is left out. Of one name they do so also
where the times of the next file are earlier: the recorder's clock was set back.
"""

from __future__ import annotations

import heapq
import os
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.errors import CaptureError
from kproto.text import pasted

from .copies import within_others
from .file_ends import FileEnds, is_pipe, refuse_pipes
from .fragments import Fragments
from .link import segment
from .source import check_capture
from .summary import CaptureSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .file_ends import Opener
    from .pcap import Packet

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

_MOST_FOLDERS: Final = 1_000
_NEEDS_NO_QUOTES: Final = re.compile(r"[\w@%+=:,./*-]+", re.ASCII)

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

    def with_path(self, reason: str) -> str:
        """Return a reason with the whole path of the file in place of the name with which it begins."""
        for path in self.files:
            name = Path(path).name
            if reason.startswith(f"{name}: "):
                return path + reason.removeprefix(name)
        return reason


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
        opener: Opens a file by its name, for seeking; None: the file system does. Pipes are places of their own, as
            nobody can look at them before they are read.
        unfinished: Whether directories give files that are being written, as ``kproto tap`` names them: ``NAME.part``.

    Raises:
        CaptureError: A directory holds no capture.
    """
    return points_of_files(_files(paths, unfinished), FileEnds(opener))


def points_of_files(paths: Iterable[str], ends: FileEnds) -> list[CapturePoint]:
    """Return ``capture_points`` of files whose ends others have looked at, too."""
    named = [*dict.fromkeys(paths)]
    pipes = [file for file in named if is_pipe(file)]
    files = [file for file in named if file not in pipes]
    within, overlaps = within_others(files, ends)
    by_stem: dict[tuple[Path, str], list[str]] = {}
    for file in (file for file in files if file not in within):
        folder, stem = Path(file).parent, _stem(Path(file).name)
        if stem.endswith(".log"):  # connections join captures
            folder = Path(*above_times(folder.parts))
        by_stem.setdefault((folder, stem), []).append(file)
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
    by_group = [_by_place(files, rotated, ends) for files, rotated in groups]
    behind = dict(pair for group in by_group for pair in _set_back(group, ends))
    chains = [chain for group in by_group for chain in group]
    if len(chains) > 1 or behind:
        chains = _joined(chains, [*_that_go_on(chains, ends), *overlaps], behind, ends)
    chains += ([file] for file in pipes)
    names = _distinct([list(names_of_point(chain[0])) for chain in chains])
    return [CapturePoint(name, tuple(chain)) for name, chain in zip(names, chains, strict=True)]


def capture_files(paths: Iterable[str | os.PathLike[str]], *, unfinished: bool = True) -> list[str]:
    """Return the captures and request logs among files and in directories, each once, by its real path.

    Args:
        paths: Files, directories, URIs.
        unfinished: See ``capture_points``.

    Raises:
        CaptureError: A directory holds no capture, or a file is a pipe.
    """
    found = [*_files(paths, unfinished)]
    refuse_pipes(found)
    return [*dict.fromkeys(file if "://" in file else str(Path(file).resolve()) for file in found)]


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
        found = captures_in(Path(path), unfinished) if Path(path).is_dir() else [os.fspath(path)]
        if not found:
            raise CaptureError(f"{path}: {_why_nothing(Path(path), unfinished)}")
        for file in found:
            resolved = Path(file).resolve()
            if resolved not in seen:
                seen.add(resolved)
                yield file


def _why_nothing(folder: Path, unfinished: bool) -> str:
    """Say why a directory gives no captures, and what to type if they lie deeper in it."""
    deeper = deeper_folders(folder, unfinished)
    if not deeper:
        return (
            "a directory without a capture or request log, or files of a __cluster_metadata-0; name the directory that "
            "holds them"
        )
    levels = zip_longest(*(found.relative_to(folder).parts for found in deeper), fillvalue="")
    pattern = "/".join(names.pop() if len(names) == 1 else "*" for names in map(set, levels))
    is_exact = _NEEDS_NO_QUOTES.fullmatch(pattern) and {*folder.glob(pattern)} == {*deeper}
    typed = f"{pasted([str(folder)])}/{pattern}" if is_exact else pasted(map(str, deeper))
    return f"captures or logs lie deeper in it; name their directories: {typed}"


def deeper_folders(folder: Path, unfinished: bool = True) -> list[Path]:
    """Return the directories at any depth of a directory that hold captures or logs themselves, of the first 1,000."""
    found = []
    for path, names, _files in islice(os.walk(folder), _MOST_FOLDERS):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if _inside(Path(path), unfinished):
            found.append(Path(path))
    return found


def captures_in(folder: Path, unfinished: bool = True) -> list[str]:
    """Return the captures and logs that a directory gives, see ``capture_points``: its own, else of those in it."""
    own = _inside(folder, unfinished)  # a directory for each host, or for each hour
    return own or [file for each in _folders(folder) for file in _inside(each, unfinished)]


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


def in_order(files: Sequence[str], opener: Opener | None = None) -> list[str]:
    """Return the files of one capture point by the time of their first packet, or as their connections go on.

    Args:
        files: The files.
        opener: See ``capture_points``.

    Raises:
        CaptureError: One of several files cannot be read, or only once.
    """
    ends = FileEnds(opener)
    return _in_order(files, ends, dict(_set_back(_by_place(files, True, ends), ends)))


def _in_order(files: Sequence[str], ends: FileEnds, behind: Mapping[str, str]) -> list[str]:
    """Order files by the time of their first packet, but for those that go on behind another one, by that one."""
    by_time = sorted(files, key=lambda file: ends.beginning(file).first_ns) if len(files) > 1 else files
    later = {*behind.values()}
    return [each for file in by_time if file not in later for each in _run(file, behind)]


def _by_place(files: Sequence[str], rotated: bool, ends: FileEnds) -> list[list[str]]:
    """Order files by the time of their first packet, and separate those of different capture points.

    Args:
        files: The files.
        rotated: Whether their names are those that rotation gives. The ends of large packed files, which are found by
            unpacking the whole files, are then not compared with the beginnings of the next.
        ends: What the files' beginnings and ends tell.
    """
    if len(files) == 1:
        return [[*files]]
    readable, apart = list[str](), list[list[str]]()
    for file in files:
        try:
            ends.beginning(file)
            readable.append(file)
        except CaptureError:
            apart.append([file])  # reading the file reports the error
    chains: dict[tuple[object, ...], _Chains] = {}
    for file in _in_order(readable, ends, {}):
        properties, first_ns, seen_ns = ends.beginning(file)
        if properties not in chains:
            chains[properties] = _Chains(lambda file: ends.last_ns(file, short=rotated))
        chains[properties].add(file, first_ns, seen_ns)
    found = [files for same in chains.values() for files in same.files()]
    if not rotated:
        found = [part for files in found for part in _going_on(files, ends)]
    return found + apart


def _going_on(files: Sequence[str], ends: FileEnds) -> list[list[str]]:
    """Return the files of a chain, apart where no connection goes on from the ones to the others.

    A mere number in a name may be that of a host. Hosts whose clocks are minutes apart have captures that seem to
    follow each other; but they show other connections, or the same bytes of the same ones again. A short file may show
    new connections alone, while those before it go on behind it.
    """
    parts: list[tuple[list[int], dict[bytes, int]]] = []  # numbers of files, and where the data of flows end in them
    for number, file in enumerate(files):
        begins = _sequences(ends.first_packets(file)) if parts else {}
        near = [part for part in parts[-_MOST_FORMER:] if not _are_apart(part[1], begins)]
        numbers, former = [number], dict[bytes, int]()
        for part in reversed(near if begins else near[-1:]):
            if former.keys().isdisjoint(part[1]):
                parts.remove(part)
                numbers += part[0]
                former = part[1] | former
        last = ends.last_packets(file)[0] if number + 1 < len(files) else ()
        at_end = {flow: end for flow, (_, end) in _sequences(last).items()}
        kept = [each for each in former.items() if each[0] not in at_end][-_MOST_FLOWS:]
        parts.append((sorted(numbers), dict(kept) | at_end))
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
        properties: See ``Beginning``.
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


def _joined(
    chains: list[list[str]], pairs: Iterable[tuple[str, str]], behind: Mapping[str, str], ends: FileEnds
) -> list[list[str]]:
    """Join chains of which one file goes on in a file of the other; ``behind`` has what goes on by another clock."""
    chain_of = {file: chain for chain in chains for file in chain}
    changed = set()
    for former, later in (*pairs, *behind.items()):
        one, other = chain_of[former], chain_of[later]
        changed.add(one[0])
        if one is not other:
            one += other
            chain_of.update(dict.fromkeys(other, one))
    whole = [chain for chain in chains if chain_of[chain[0]] is chain]
    return [_in_order(chain, ends, behind) if chain[0] in changed else chain for chain in whole]


def _set_back(chains: Sequence[list[str]], ends: FileEnds) -> Iterator[tuple[str, str]]:
    """Yield files of one name and those that go on there, if the recorder's clock may have been set back meanwhile.

    Then some overlap in time, or the first one by time goes on behind the last one.
    """
    files = [[file] for chain in chains for file in chain]
    if len(files) > 1 and (len(chains) > 1 or any(_that_go_on(chains, ends, [False]))):
        yield from _that_go_on(files, ends, [True, False])


def _that_go_on(
    chains: Sequence[list[str]], ends: FileEnds, in_time: Sequence[bool] = (True,)
) -> Iterator[tuple[str, str]]:
    """Yield the first files of two chains of captures where the connections of one go on in the other at the byte.

    Args:
        chains: The chains.
        ends: What the files' beginnings and ends tell.
        in_time: Whether what goes on must be later, one after the other: each takes what is left.
    """
    of_chain = {chain[0]: each for chain in chains if (each := _ends_of(chain, ends)) is not None}
    standing: dict[tuple[object, ...], list[str]] = {}
    for chain, each in of_chain.items():
        for flow_end in each.ends.items():
            standing.setdefault((each.properties, *flow_end), []).append(chain)
    left = sorted(of_chain, key=lambda chain: of_chain[chain].first_ns)
    behind: dict[str, str] = {}
    follows = set[str]()
    for must_be_later, chain in ((order, chain) for order in in_time for chain in left if chain not in follows):
        each = of_chain[chain]
        keys = ((each.properties, *flow_begin) for flow_begin in each.begins.items())
        exact = Counter(former for key in keys for former in standing.get(key, ())[:_MOST_FORMER])
        for former, times in exact.most_common(_MOST_FORMER):
            ended = of_chain[former]
            is_later = each.first_ns >= max(ended.last_ns - _OVERLAP_NS, ended.first_ns) or not must_be_later
            is_most = 2 * times >= len(ended.ends.keys() & each.begins.keys())  # half of the flows of both go on
            if former not in behind and is_later and is_most and former not in _run(behind.get(chain, ""), behind):
                behind[former] = chain
                follows.add(chain)
                break
    yield from behind.items()


def _run(file: str, behind: Mapping[str, str]) -> Iterator[str]:
    """Yield a file, and what goes on behind it."""
    while file:
        yield file
        file = behind.get(file, "")


def _ends_of(chain: Sequence[str], ends: FileEnds) -> _ConnectionEnds | None:
    """Read how a chain of captures begins and ends; None: of logs, of what cannot be read, of large packed files."""
    try:
        begin = ends.beginning(chain[0])
        first = ends.first_packets(chain[0])
        last, is_end = ends.last_packets(chain[-1], short=True)
    except (CaptureError, OSError):
        return None  # reading the file reports the error
    if not first or not last or not is_end:
        return None
    last_ns = max(packet[0] for packet in last)
    begins = {flow: sequence for flow, (sequence, _) in islice(_sequences(first).items(), _MOST_FLOWS)}
    at_end = {flow: sequence for flow, (_, sequence) in list(_sequences(last).items())[-_MOST_FLOWS:]}
    return _ConnectionEnds(begin.properties, begin.first_ns, last_ns, begins, at_end)


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
