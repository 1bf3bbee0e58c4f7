"""Which recordings are known: by their content, whatever they are called, packed or where they lie now.

A recording is known by its first bytes and by how far it was read. Unpacked bytes count, so that packing, renaming,
copying and linking change nothing; a file that goes on behind the bytes that were read is the same recording, grown; a
file with other bytes is another recording, also under a known name.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kproto.capture.capture_points import CapturePoint, above_times, names_of_point, points_of_files
from kproto.capture.read import problem_of
from kproto.capture.source import HEAD, LOGS, Source, check_begun, detect_format, file_name
from kproto.capture.summary import CaptureSummary
from kproto.capture.tail import Tail, TailError, has_context, is_plain, read_tail
from kproto.errors import CaptureError, ConfigurationError
from kproto.tables.arrays import plain_text, rows_of
from kproto.tables.files import file_size, file_state, is_uri, open_file
from kproto.tables.joining import edges_of
from kproto.tables.known import KnownTable
from kproto.tables.points import DEFAULT_CLUSTER, label_prefix
from kproto.tables.scanning import OpenRequests, ScanRows, new_reader
from kproto.tables.schemas import KNOWN
from kproto.tables.stored import is_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from kproto.capture.borders import Border
    from kproto.capture.collector import Event
    from kproto.capture.file_ends import FileEnds
    from kproto.capture.pcap import Packet
    from kproto.capture.reader import CaptureReader
    from kproto.tables.scanning import Selection
    from kproto.tables.stored import StoredTables

_EDGE: Final = 4096
"""The number of first and of last bytes that a recording is known by."""

_COUNTS: Final = ("start_bytes", "length", "size")

_OF_CONTENT: Final = ("start", "start_bytes", "length", "size", "tail", "has_context", "was_set", "behind_ns")
"""The attributes of a recording that reading it tells."""

_UNREAD: Final = (-1, 0)
"""The state of a file that could not be opened: it may be readable later without any change of it."""


@dataclass(slots=True, eq=False)
class Recording:
    """A recording that tables hold.

    Attributes:
        id: Its name among them.
        capture, cluster: Its labels.
        place: The directory and the stem of its first name: what its label stands for.
        start, start_bytes: A hash of its first bytes, and how many these are; empty of a file without any packet.
        length: The number of unpacked bytes that were read, without the packet in which it ended.
        size: The number of unpacked bytes that it had then.
        tail: A hash of the last of these.
        has_context: Whether what it grows by can be read with all before it alone, see ``tail.has_context``.
        was_set: Whether its recorder's clock was set meanwhile, so that what is of its place is read in order.
        behind_ns: By how much it was set back before the recording; negative: put forward.
    """

    id: str
    capture: str
    cluster: str
    place: str
    start: str = ""
    start_bytes: int = 0
    length: int = 0
    size: int = 0
    tail: str = ""
    has_context: bool = False
    was_set: bool = False
    behind_ns: int = 0

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Recording:
        """Return the recording of a row of ``known_recordings``.

        Raises:
            ConfigurationError: It is none that kproto writes.
        """
        if (
            None in row.values()
            or not all(map(is_count, (row[name] for name in _COUNTS)))
            or row["start_bytes"] > _EDGE
        ):
            raise ConfigurationError("the tables know of a recording what kproto does not write")
        return cls(**row | {"place": os.fsdecode(row["place"])})


class Name(NamedTuple):
    """What a file was that was seen under a name: its recording, and its size and time of change, or ``_UNREAD``."""

    recording: Recording
    state: tuple[int, int]

    def has_changed(self, file: str) -> bool:
        """Whether the file of that name is another one now, or can be opened where it could not.

        Raises:
            CaptureError: There is no such file.
        """
        return file_state(file) != self.state and (self.state != _UNREAD or _first_of(file) != b"")


class PartToRead(NamedTuple):
    """A part of a file to be read: the whole file, or what it has grown by.

    Attributes:
        recording: The recording, as it was known before.
        file: The file.
        begin: The byte at which the part begins; 0: the whole file.
        size: Bytes of the file.
        in_order: Whether it is read whole, behind those of the same place: a log, and a capture of a recorder whose
            clock was set, as only what was before it tells by how much.
    """

    recording: Recording
    file: str
    begin: int
    size: int
    in_order: bool = False


class PartRead(NamedTuple):
    """What is known of a part that was read.

    Attributes:
        recording: The recording with it; of length 0 where it could not be read, of size -1 where it could not even be
            opened.
        file: The name of the file, as tables have it.
        begins: How Kafka connections stand that began before the part.
        ends: How connections stand that may go on behind it.
        edges: Where ``edges_of`` the part are stored; None where nothing goes on.
    """

    recording: Recording
    file: str
    begins: list[Border]
    ends: list[Border]
    edges: str | None


class Known:
    """The recordings that tables hold, of which those are looked up that files may be.

    Args:
        stored: The tables; None: there are none yet.

    Attributes:
        recordings: Those that were looked up, and new ones.
        held: The ids of those that the tables hold.
    """

    def __init__(self, stored: StoredTables | None = None) -> None:
        self.recordings: dict[str, Recording] = {}
        self.held: set[str] = set()
        self._recordings = KnownTable(stored, "known_recordings")
        self._names = KnownTable(stored, "known_names")
        self._by_name: dict[str, Name | None] = {}
        self._by_start: dict[tuple[str, int], list[Recording]] = {}
        self._start_bytes = set(self._recordings.distinct("start_bytes"))
        self._labels: dict[str, set[tuple[str, str]]] = {}
        self._taken: set[str] = set()
        self._set: set[str] = set()  # the places whose recorder's clock was set
        self._changed: dict[str, Recording] = {}
        self._named: dict[str, Name] = {}

    @property
    def is_changed(self) -> bool:
        """Whether the tables do not know all of it."""
        return bool(self._changed or self._named)

    def changed(self, files: Iterable[str]) -> list[str]:
        """Return the files that are not known by their names with the sizes and times that they have.

        Raises:
            CaptureError: There is no such file.
        """
        files = [*files]
        missing = {os.fsencode(file): file for file in files if file not in self._by_name}
        rows = self._names.rows(missing).to_pylist()
        self._load("id", {row["recording"] for row in rows})
        self._by_name |= dict.fromkeys(missing.values())
        for row in rows:
            if (known := self.recordings.get(row["recording"])) is not None:
                self._by_name[missing[row["name"]]] = Name(known, (row["size"], row["time_ns"]))
        return [file for file in files if (named := self._by_name[file]) is None or named.has_changed(file)]

    def recording_of(self, file: str) -> Recording | None:
        """Return the recording that a file is, as far as ``changed`` and ``parts_to_read`` were asked of it."""
        named = self._by_name.get(file)
        return None if named is None else named.recording

    def parts_to_read(
        self,
        files: Iterable[str],
        cluster: str,
        capture_point: str | None,
        copies: Mapping[str, str] | None = None,
    ) -> list[PartToRead]:
        """Return what must be read for the tables to hold some files too; notes their names.

        Args:
            files: The files.
            cluster, capture_point: The labels of recordings that are new; of no capture point: their names tell it.
            copies: Files whose content stands in another one of them, and that one.

        Raises:
            CaptureError: There is no such file.
        """
        copies = copies or {}
        files = sorted(self.changed(files), key=copies.__contains__)
        firsts = {file: _first_of(file) for file in files if file not in copies}
        starts = {_hash(first[:count]) for first in firsts.values() for count in self._counts(first)}
        self._load("start", starts)
        places = {file: _place_of(file) for file in files}
        self._look_at({*places.values()})
        new = {place for place in places.values() if not any(of == cluster for of, _label in self._labels[place])}
        labels = {label for place in new for label in _labels_of(place, cluster)}
        if capture_point is None:
            self._taken.update(self._recordings.rows(labels, "capture")["capture"].to_pylist())
        found: list[PartToRead] = []
        for file in files:
            named = self._by_name[file]
            original = self._by_name.get(copies.get(file, ""))
            known, begin = (original.recording, None) if original else self._recognised(file, firsts.get(file))
            if known is None:
                label = self.label_of(places[file], cluster, capture_point)
                known = Recording(uuid.uuid4().hex, label, cluster, places[file])
                self._add(known)
                self._changed[known.id] = known
                self._labels[known.place].add((cluster, label))
                self._taken.add(label)
            state = file_state(file)
            if named != Name(known, state):
                self._by_name[file] = self._named[file] = Name(known, state)
            if begin is not None:
                in_order = known.place in self._set or _is_log(file, firsts.get(file, b""))
                begin = 0 if in_order else begin
                found.append(PartToRead(known, file, begin, state[0], in_order))
        return [*found, *self._beside(found)]

    def in_order(self, parts: Iterable[PartToRead], places: set[str]) -> list[PartToRead]:
        """Return what must be read where the clocks of some places' recorders were set."""
        self._set |= places
        here = [(part, part.recording.place in places) for part in parts]
        found = [part._replace(begin=0, in_order=True) if is_set else part for part, is_set in here]
        return [*found, *self._beside(found)]

    def _beside(self, parts: Sequence[PartToRead]) -> Iterator[PartToRead]:
        """Yield what is known of places to which some come in order: it is read again with it, where it still is.

        Logs too of which a copy was known under a name elsewhere, and what rotation has given another name since.
        """
        places = {part.recording.place for part in parts if part.in_order}
        self._load("place", map(os.fsencode, places))
        read = {part.recording.id for part in parts}
        files = [(file, named.recording.id) for file, named in self._by_name.items() if named is not None]
        here = {recording for file, recording in files if _place_of(file) in places}
        near = {
            each.id: each
            for each in self.recordings.values()
            if each.id not in read and (each.place in places or each.id in here)
        }
        known_names = self._names.rows(near, "recording").to_pylist()
        files += [(os.fsdecode(row["name"]), row["recording"]) for row in known_names]
        for file, recording in chain(files, self._renamed([file for file, _recording in files], near, places)):
            known = near.get(recording)
            is_wanted = known is not None and (known.place in self._set or _is_log(file, _first_of(file)))
            if known is not None and is_wanted and _holds(file, known):
                del near[recording]
                yield PartToRead(known, file, 0, file_size(file), in_order=True)

    def _renamed(
        self, files: Sequence[str], near: Mapping[str, Recording], places: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield files beside some that have names of places, and are recordings that those are no longer."""
        beside: list[str] = []
        for folder in {Path(file).parent for file in files if not is_uri(file)} if near else ():
            with suppress(OSError):
                beside += map(str, folder.iterdir())
        for file in sorted({*beside}.difference(files)):
            if near and _place_of(file) in places and Path(file).is_file():
                known, begin = self._recognised(file, None)
                if known is not None and begin is None:
                    yield file, known.id

    def note(self, part: PartRead) -> None:
        """Note how far a part was read."""
        read = part.recording
        known = self.recordings[read.id]
        if read.size < 0:
            self._named |= {
                name: each._replace(state=_UNREAD) for name, each in self._named.items() if each.recording is known
            }
        if read.length:
            for name in _OF_CONTENT:
                setattr(known, name, getattr(read, name))
            self._changed[known.id] = known
            self._start_bytes.add(known.start_bytes)
            self._by_start.setdefault((known.start, known.start_bytes), []).append(known)

    def labels_for(
        self, files: Iterable[str], cluster: str, capture_point: str | None
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Give files' recordings that tables hold the labels that a run names; return those that change, and what to.

        The default cluster and no capture point change nothing.
        """
        found: dict[tuple[str, str], tuple[str, str]] = {}
        named = map(self._by_name.__getitem__, files if (cluster, capture_point) != (DEFAULT_CLUSTER, None) else ())
        held = [each.recording for each in named if each is not None and each.recording.id in self.held]
        self._look_at(known.place for known in held)
        for known in held:
            former = known.cluster, known.capture
            own = known.cluster if cluster == DEFAULT_CLUSTER else cluster
            given = found.get(former) or (own, self.label_of(known.place, own, capture_point))
            if given != former:
                found[former] = given
        self._load("capture", {capture for _cluster, capture in found})
        for each in self.recordings.values() if found else ():
            if (label := found.get((each.cluster, each.capture))) is not None:
                each.cluster, each.capture = label
                self._changed[each.id] = each
        return found

    def clusters_of(self, captures: Iterable[str]) -> dict[str, str]:
        """Return the clusters of labels of recordings."""
        self._load("capture", captures)
        return {each.capture: each.cluster for each in self.recordings.values()}

    def label_of(self, place: str, cluster: str, capture_point: str | None) -> str:
        """Return the label of recordings of a place.

        It is as named, else that of others of its place, else its place with no more of the path than needed.
        """
        if capture_point is not None:
            return label_prefix(cluster) + capture_point
        self._look_at([place])
        candidates = _labels_of(place, cluster)
        free = next((each for each in candidates if each not in self._taken), candidates[-1])
        return min((label for of, label in self._labels[place] if of == cluster), default=free)

    def names_of(self, recordings: Iterable[str]) -> dict[str, set[str]]:
        """Return recordings' names without folders, as tables have them, and of each what recordings have or had it."""
        found: dict[str, set[str]] = {}
        ids = {*recordings}
        files = {row["file"] for row in self._names.rows(ids, "recording").to_pylist()}
        files |= {os.fsencode(file_name(name)) for name, each in self._named.items() if each.recording.id in ids}
        for row in self._names.rows(files, "file").to_pylist():
            if os.fsdecode(row["name"]) not in self._named:
                found.setdefault(_file_of(os.fsdecode(row["file"])), set()).add(row["recording"])
        for name, each in self._named.items():
            found.setdefault(_file_of(name), set()).add(each.recording.id)
        return {name: has for name, has in found.items() if not has.isdisjoint(ids)}

    def rows(self) -> dict[str, pa.Table]:
        """Return what changed, by the names of the tables in ``KNOWN``."""
        recordings = [
            {name: getattr(each, name) for name in each.__slots__} | {"place": os.fsencode(each.place)}
            for each in self._changed.values()
        ]
        names = [
            {
                "name": os.fsencode(name), "recording": each.recording.id, "file": os.fsencode(file_name(name)),
                "size": each.state[0], "time_ns": each.state[1],
            }
            for name, each in self._named.items()
        ]  # fmt: skip
        found = {"known_recordings": recordings, "known_names": names}
        return {name: pa.Table.from_pylist(rows, KNOWN[name]) for name, rows in found.items()}

    def _look_at(self, places: Iterable[str]) -> None:
        """Look up which labels places have."""
        new = {place for place in places if place not in self._labels}
        rows = self._recordings.rows(map(os.fsencode, new), "place")
        self._labels |= {place: set() for place in new}
        for place, was_set, *label in set(rows_of(rows.drop_null(), ("place", "was_set", "cluster", "capture"))):
            self._labels[os.fsdecode(place)].add(tuple(label))
            self._set |= {os.fsdecode(place)} if was_set else set()

    def _load(self, column: str, values: Iterable[Any]) -> None:
        """Look recordings up that have one of some values in a column."""
        values = [*values]
        for row in self._recordings.rows(values, column).to_pylist() if values else ():
            if row["id"] not in self.recordings:
                self.held.add(row["id"])
                self._add(Recording.of_row(row))

    def _add(self, known: Recording) -> None:
        self.recordings[known.id] = known
        self._by_start.setdefault((known.start, known.start_bytes), []).append(known)

    def _counts(self, first: bytes) -> list[int]:
        return sorted((count for count in self._start_bytes if 0 < count <= len(first)), reverse=True)

    def _recognised(self, file: str, first: bytes | None) -> tuple[Recording | None, int | None]:
        """The recording that a file holds, None if it is new; and from which byte on to read it, None: not at all."""
        first = _first_of(file) if first is None else first
        starts = ((_hash(first[:count]), count) for count in self._counts(first))
        alike = [
            each
            for start in starts
            for each in self._by_start.get(start, ())
            if (each.start, each.start_bytes) == start
        ]
        if not alike:
            return None, 0
        goes_on, size, tails = _content_at(file, {each.length for each in alike})
        for known in alike:
            if tails.get(known.length) == known.tail:
                grown = known.length if goes_on and not known.has_context else 0
                return known, None if size == known.size else grown
        return None, 0


def _labels_of(place: str, cluster: str) -> list[str]:
    """The labels that recordings of a place may have, from the shortest to the one that no other has."""
    before, parts = label_prefix(cluster), place.encode("utf-8", "backslashreplace").decode("utf-8").split("/")
    return [before + "/".join(parts[at:]) for at in range(len(parts) - 1, -1, -1)]


def _place_of(file: str) -> str:
    """The directory of a file, without those of days and hours, and its name without what rotation and packing add."""
    folders = file.split("/")[:-1] if is_uri(file) else Path(file).parent.parts
    return "/".join([*above_times(folders), next(names_of_point(file))])


def _file_of(file: str) -> str:
    """The name of a file without folders, as tables have it."""
    return plain_text(file_name(file)) or ""


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _first_of(file: str) -> bytes:
    try:
        with Source(file, opener=open_file) as source:
            return source.peek(_EDGE)[:_EDGE]
    except CaptureError:
        return b""


def _holds(file: str, known: Recording) -> bool:
    """Whether a file is a recording as it was read."""
    _goes_on, size, tails = _content_at(file, {known.length})
    return size == known.size and tails.get(known.length) == known.tail


def _is_log(file: str, first: bytes) -> bool:
    try:
        return detect_format(file, first[:HEAD], whole=True) in LOGS
    except CaptureError:
        return False


def _content_at(file: str, lengths: Collection[int]) -> tuple[bool, int, dict[int, str]]:
    """Whether a file can be read from any byte on; its unpacked bytes; a hash of the last ones before each length."""
    tails: dict[int, str] = {}
    at, tail = 0, b""
    left = sorted(lengths, reverse=True)
    with suppress(CaptureError, OSError):  # reading the file reports the error
        with open_file(file) as opened:
            if is_plain(opened.read(_EDGE)):
                size = opened.seek(0, 2)
                for length in (each for each in lengths if each <= size):
                    begin = opened.seek(max(0, length - _EDGE))
                    data = b""
                    while len(data) < length - begin and (more := opened.read(length - begin - len(data))):
                        data += more
                    tails[length] = _hash(data)
                return True, size, tails
        with Source(file, opener=open_file) as source:
            while data := source.read():
                while left and left[-1] <= at + len(data):
                    length = left.pop()
                    tails[length] = _hash((tail + data[: length - at])[-_EDGE:])
                tail = (tail + data)[-_EDGE:]
                at += len(data)
    return False, at, tails


def read_together(parts: Iterable[PartToRead], ends: FileEnds) -> list[tuple[PartToRead, ...]]:
    """Group parts by what one reader reads: files of a place in order, as requests or times go on in the next one."""
    ordered: dict[str, PartToRead] = {}
    others = []
    for part in parts:
        if part.in_order:
            ordered[part.file] = part
        else:
            others.append((part,))
    return [*others, *(tuple(ordered[file] for file in point.files) for point in points_of_files(ordered, ends))]


def read_parts(
    parts: Iterable[Sequence[PartToRead]],
    selection: Selection,
    found: Callable[[PartRead], object],
    store: Callable[[bytes], str],
) -> Iterator[pa.RecordBatch]:
    """Read parts of recordings.

    Args:
        parts: The parts as ``read_together`` groups them.
        selection: The frames to give.
        found: Told of each part that was read.
        store: Stores the edges of a part; returns where.

    Yields:
        Batches of the schema ``SCAN``.
    """
    for together in parts:
        before = None
        for part in together:
            is_last = part is together[-1]
            before = yield from _read_part(part, selection, found, store, before, is_last=is_last)


def _read_part(
    part: PartToRead,
    selection: Selection,
    found: Callable[[PartRead], object],
    store: Callable[[bytes], str],
    before: tuple[CaptureReader, OpenRequests] | None = None,
    *,
    is_last: bool = True,
) -> Generator[pa.RecordBatch, None, tuple[CaptureReader, OpenRequests] | None]:
    """Read a part, behind what a reader has read; return that reader, None if nothing goes on behind the part.

    Captures that one reader reads are one, of which the last part tells; each log tells of itself.
    """
    if before is None:
        before = new_reader(part.recording.capture, selection), OpenRequests(selection)
        before[0].connections.keep_beginnings()
        before[0].connections.behind_ns = part.recording.behind_ns
    elif before[0].summary.format in LOGS:
        before[0].count_in(CaptureSummary())
        before = before[0], OpenRequests(selection)
    reader, requests = before
    rows = ScanRows()
    summary = reader.summary
    summary.file = summary.file or file_name(part.file)
    known_packets, behind_ns = summary.packets, reader.connections.behind_ns
    start = tail = b""
    length, size = 0, -1
    rests_on_more = False
    rest: list[Packet] = []
    stands: list[tuple[list[tuple[Border, list[bytes]]], list[Border], bytes | None]] = []

    def stop(read_to: int | None = None, more: bool = False) -> None:
        """Note how connections stand, and how far it was read: without the packet in which the file ends."""
        nonlocal start, tail, length, size, rests_on_more
        ends = reader.connections.endings() if is_last else []
        state = reader.freeze([*requests.waiting]) if ends and read_to is not None else None
        stands.append((reader.connections.begun_before() if is_last else [], ends, state))
        if read_to is None:
            return
        with open_file(part.file) as opened:
            if is_plain(first := opened.read(_EDGE)):
                rests_on_more = more or has_context(opened, reader.context)
                opened.seek(max(0, read_to - _EDGE))
                start, tail, length = first, opened.read(read_to - max(0, read_to - _EDGE)), read_to

    try:
        if not part.begin:
            with Source(part.file, opener=open_file) as source:
                reader.begin_file(source.name)
                size = 0
                while data := source.read():
                    start += data[: _EDGE - len(start)] if len(start) < _EDGE else b""
                    tail = (tail + data)[-_EDGE:] if len(data) < _EDGE else data[-_EDGE:]
                    length = size = size + len(data)
                    _add(rows, requests, reader.feed(data))
                    if rows.full:
                        yield from rows.take()
                check_begun(source, begun=bool(length))
                stop(reader.read_to)
                _add(rows, requests, reader.end_file(source.damage))
                rest = reader.rest
        else:
            reader.begin_file(file_name(part.file))
            tail_seen = Tail(part.file, part.begin, part.recording.size, goes_on=True)
            seen = CaptureSummary(file=summary.file)
            begun = [each for some in read_tail(tail_seen, open_file, seen) for each in some]
            for packets in read_tail(tail_seen._replace(size=part.size), open_file, summary, stop):
                _add(rows, requests, reader.connections.packets(packets))
                rest = packets if stands else []
                if rows.full:
                    yield from rows.take()
            summary.packets -= len(begun)  # the file ended within it, and it counted as far as it was there
            summary.bad_input_count -= seen.bad_input_count
            if not stands:
                stop(0)
                length = 0
            size = part.size if length else 0
    except TailError:
        return (yield from _read_part(part._replace(begin=0), selection, found, store))
    except (CaptureError, OSError) as e:
        reason = str(e) if isinstance(e, CaptureError) else f"{summary.file}: {e.strerror or e}"
        reason = part.file + reason.removeprefix(part.file).removeprefix(summary.file)
        rows.add_bad_input(summary.reading or summary.file, reason)
        if known_packets:  # of captures before it
            _add(rows, requests, reader.connections.end())
            _end(rows, requests, summary, part)
        yield from rows.take()
        unread = replace(part.recording, length=0, size=min(size, 0), was_set=False)
        found(PartRead(unread, _file_of(part.file), [], [], None))
        return None
    yield from rows.take()
    begins, ends, state = stands[0]
    if is_last:
        _add(rows, requests, reader.end())
    if is_last or summary.format in LOGS:
        _end(rows, requests, summary, part)
    yield from rows.take()
    if not part.begin and summary.packets == known_packets and summary.format in ("pcap", "pcapng"):
        length = 0  # the header is that of any capture
    edges = None
    if begins or state is not None:
        edges = edges_of(state, {border.key: segments for border, segments in begins}, rest)
    read = replace(
        part.recording, start=_hash(start) if length else "", start_bytes=len(start), length=length, size=size,
        tail=_hash(tail), has_context=rests_on_more, was_set=reader.connections.behind_ns != behind_ns,
        behind_ns=behind_ns,
    )  # fmt: skip
    begun_before = [border for border, _segments in begins] if edges else []
    ends = ends if edges and state is not None else []
    found(PartRead(read, _file_of(part.file), begun_before, ends, None if edges is None else store(edges)))
    return before


def _end(rows: ScanRows, requests: OpenRequests, summary: CaptureSummary, part: PartToRead) -> None:
    for request in requests.waiting:
        rows.add_frame(request)
        rows.add_unanswered(request)
    point = CapturePoint(part.recording.capture, (part.file,))
    rows.add_summary(summary, point, None if part.begin else problem_of(point, summary, opener=open_file))


def _add(rows: ScanRows, requests: OpenRequests, events: Iterable[Event]) -> None:
    for event in requests.settled(events):
        rows.add_event(event)
