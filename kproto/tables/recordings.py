"""Which recordings are known: by their content, whatever they are called, packed or where they lie now.

A recording is known by its first bytes and by how far it was read. Unpacked bytes count, so that packing, renaming,
copying and linking change nothing; a file that goes on behind the bytes that were read is the same recording, grown; a
file with other bytes is another recording, also under a known name.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from kproto.capture.capture_points import CapturePoint, above_times, names_of_point
from kproto.capture.read import problem_of
from kproto.capture.source import Source, check_begun, file_name
from kproto.capture.tail import Tail, TailError, has_context, is_plain, read_tail
from kproto.errors import CaptureError, ConfigurationError
from kproto.tables.files import file_state, is_uri, open_file
from kproto.tables.joining import edges_of
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.scanning import OpenRequests, ScanRows, new_reader
from kproto.tables.stored import is_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

    from kproto.capture.borders import Border
    from kproto.capture.collector import Event
    from kproto.tables.scanning import Selection

_EDGE: Final = 4096
"""The number of first and of last bytes that a recording is known by."""

_COUNTS: Final = ("start_bytes", "length", "size")


@dataclass(slots=True)
class Recording:
    """A recording that tables hold.

    Attributes:
        id: Its name in the manifest.
        capture, cluster: Its labels.
        place: The directory and the stem of its first name: what its label stands for.
        start, start_bytes: A hash of its first bytes, and how many these are; empty of a file without any.
        length: The number of unpacked bytes that were read, without the packet in which it ended.
        size: The number of unpacked bytes that it had then.
        tail: A hash of the last of these.
        has_context: Whether what it grows by can be read with all before it alone, see ``tail.has_context``.
        names: Each name that it was seen under, with the file's size and time of change then.
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
    names: dict[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry in the manifest."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, entry: Any) -> Recording:
        """Return the recording of an entry.

        Raises:
            ValueError: It is no such entry.
        """
        if not isinstance(entry, dict) or set(entry) != set(cls.__slots__):
            raise ValueError("an entry of a recording with other fields")
        texts, counts = (entry.keys() - {"names", "has_context", *_COUNTS}), [entry[name] for name in _COUNTS]
        names = entry["names"]
        if (
            not isinstance(entry["has_context"], bool)
            or not all(isinstance(entry[name], str) for name in texts)
            or not all(map(is_count, counts))
        ):
            raise ValueError("a field of a recording of another kind")
        if not isinstance(names, dict) or not all(isinstance(each, list) for each in names.values()):
            raise ValueError("the names of a recording of another kind")
        if entry["start_bytes"] > _EDGE:
            raise ValueError("a recording that is known by too many bytes")
        return cls(**entry)


class PartToRead(NamedTuple):
    """A part of a file to be read: the whole file, or what it has grown by.

    Attributes:
        recording: The recording's id.
        file: The file.
        capture: The recording's label.
        begin: The byte at which the part begins; 0: the whole file.
        size: Bytes of the file.
    """

    recording: str
    file: str
    capture: str
    begin: int
    size: int


class PartRead(NamedTuple):
    """What is known of a part that was read.

    Attributes:
        recording: The recording's id.
        file: The name of the file.
        start, start_bytes, length, size, tail, has_context: See ``Recording``; 0 where it could not be read.
        begins: How Kafka connections stand that began before the part.
        ends: How connections stand that may go on behind it.
        edges: Where ``edges_of`` the part are stored; None where nothing goes on.
    """

    recording: str
    file: str
    start: str
    start_bytes: int
    length: int
    size: int
    tail: str
    has_context: bool
    begins: list[Border]
    ends: list[Border]
    edges: str | None


class Known:
    """The recordings that tables hold.

    Args:
        recordings: They.
        opener: Opens a file by its path or URI.
    """

    def __init__(self, recordings: Iterable[Recording], opener: Callable[[str], IO[bytes]] = open_file) -> None:
        self.recordings = {each.id: each for each in recordings}
        self._opener = opener
        self._by_name = {name: each for each in self.recordings.values() for name in each.names}
        self._by_start: dict[tuple[str, int], list[Recording]] = {}
        for each in self.recordings.values():
            self._by_start.setdefault((each.start, each.start_bytes), []).append(each)
        self._places = {(each.cluster, each.capture) for each in self.recordings.values()}
        self._labels = {(each.cluster, each.place): each.capture for each in self.recordings.values()}
        self.is_changed: bool = False

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
            cluster: The cluster of recordings that are new.
            capture_point: Their label; None: their names tell it.
            copies: Files whose content is that of an earlier one of them, and that one.

        Raises:
            CaptureError: There is no such file.
        """
        found: list[PartToRead] = []
        for file in files:
            state = [*file_state(file)]
            named = self._by_name.get(file)
            if named is not None and named.names[file] == state:
                continue
            self.is_changed = True
            original = (copies or {}).get(file)
            known, begin = (self._by_name[original], None) if original else self._recognised(file)
            if named is not None and named is not known:
                del named.names[file]
            if known is None:
                place = _place_of(file)
                label = self.label_of(file, cluster, capture_point)
                known = Recording(uuid.uuid4().hex, label, cluster, place)
                self.recordings[known.id] = known
                self._places.add((cluster, label))
                self._labels.setdefault((cluster, place), label)
            known.names[file] = state
            self._by_name[file] = known
            if begin is not None:
                found.append(PartToRead(known.id, file, known.capture, begin, state[0]))
        return found

    def is_same(self, file: str) -> bool:
        """Whether a file is known by its name, and has its size and time of then."""
        named = self._by_name.get(file)
        return named is not None and named.names[file] == [*file_state(file)]

    def note(self, part: PartRead) -> None:
        """Note how far a part was read."""
        known = self.recordings[part.recording]
        if part.length:
            known.start, known.start_bytes, known.tail = part.start, part.start_bytes, part.tail
            known.length, known.size, known.has_context = part.length, part.size, part.has_context
            self._by_start.setdefault((known.start, known.start_bytes), []).append(known)

    def labels_for(
        self, files: Iterable[str], cluster: str, capture_point: str | None, held: Collection[str]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Give recordings that tables hold the labels that a run names; return those that change, and what to.

        Args:
            files: The files that the run names.
            cluster, capture_point: The labels; the default cluster and None change nothing.
            held: The ids of the recordings that the tables hold.
        """
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for file in files:
            known = self._by_name[file]
            if known.id not in held or (cluster == DEFAULT_CLUSTER and capture_point is None):
                continue
            former = known.cluster, known.capture
            named = known.cluster if cluster == DEFAULT_CLUSTER else cluster
            label = found.get(former) or (named, self.label_of(next(iter(known.names)), named, capture_point))
            if label != former:
                found[former] = label
        for each in self.recordings.values():
            each.cluster, each.capture = found.get((each.cluster, each.capture), (each.cluster, each.capture))
        return found

    def label_of(self, file: str, cluster: str, capture_point: str | None) -> str:
        """Return the label of a file's recordings.

        It is as named, else that of others of its place, else its place with no more of the path than needed.
        """
        before = "" if cluster == DEFAULT_CLUSTER else f"{cluster}/"
        if capture_point is not None:
            return before + capture_point
        place = _place_of(file)
        label = self._labels.get((cluster, place), "")
        for at in range(place.count("/"), -1, -1) if not label else ():
            label = before + "/".join(place.split("/")[at:])
            if (cluster, label) not in self._places:
                break
        return label

    def _recognised(self, file: str) -> tuple[Recording | None, int | None]:
        """The recording that a file holds, None if it is new; and from which byte on to read it, None: not at all."""
        first = _first_of(file, self._opener)
        counts = sorted({count for _start, count in self._by_start if 0 < count <= len(first)}, reverse=True)
        alike = [each for count in counts for each in self._by_start.get((_hash(first[:count]), count), ())]
        if not alike:
            return None, 0
        goes_on, size, tails = _content_at(file, self._opener, {each.length for each in alike})
        for known in alike:
            if tails.get(known.length) == known.tail:
                grown = known.length if goes_on and not known.has_context else 0
                return known, None if size == known.size else grown
        return None, 0


def _place_of(file: str) -> str:
    """The directory of a file, without those of days and hours, and its name without what rotation and packing add."""
    folders = file.split("/")[:-1] if is_uri(file) else Path(file).parent.parts
    return "/".join([*above_times(folders), next(names_of_point(file))])


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _is_plain(file: str, opener: Callable[[str], IO[bytes]]) -> bool:
    with opener(file) as opened:
        return is_plain(opened.read(_EDGE))


def _first_of(file: str, opener: Callable[[str], IO[bytes]]) -> bytes:
    try:
        with Source(file, opener=opener) as source:
            return source.peek(_EDGE)[:_EDGE]
    except CaptureError:
        return b""


def _content_at(
    file: str, opener: Callable[[str], IO[bytes]], lengths: Collection[int]
) -> tuple[bool, int, dict[int, str]]:
    """Whether a file can be read from any byte on; its unpacked bytes; a hash of the last ones before each length."""
    tails: dict[int, str] = {}
    with opener(file) as opened:
        if is_plain(opened.read(_EDGE)):
            size = opened.seek(0, 2)
            for length in (each for each in lengths if each <= size):
                begin = opened.seek(max(0, length - _EDGE))
                data = b""
                while len(data) < length - begin and (more := opened.read(length - begin - len(data))):
                    data += more
                tails[length] = _hash(data)
            return True, size, tails
    at, tail = 0, b""
    left = sorted(lengths, reverse=True)
    try:
        with Source(file, opener=opener) as source:
            while data := source.read():
                while left and left[-1] <= at + len(data):
                    length = left.pop()
                    tails[length] = _hash((tail + data[: length - at])[-_EDGE:])
                tail = (tail + data)[-_EDGE:]
                at += len(data)
    except CaptureError:
        pass
    return False, at, tails


def read_parts(
    parts: Iterable[PartToRead],
    selection: Selection,
    found: Callable[[PartRead], object],
    store: Callable[[bytes], str],
    *,
    opener: Callable[[str], IO[bytes]] = open_file,
) -> Iterator[pa.RecordBatch]:
    """Read parts of recordings, each by itself.

    Args:
        parts: The parts.
        selection: The frames to give.
        found: Told of each part that was read.
        store: Stores the edges of a part; returns where.
        opener: Opens a file by its path or URI.

    Yields:
        Batches of the schema ``SCAN``.
    """
    for part in parts:
        yield from _read_part(part, selection, found, store, opener)


def _read_part(
    part: PartToRead,
    selection: Selection,
    found: Callable[[PartRead], object],
    store: Callable[[bytes], str],
    opener: Callable[[str], IO[bytes]],
) -> Iterator[pa.RecordBatch]:
    reader = new_reader(part.capture, selection)
    reader.connections.keep_beginnings()
    requests = OpenRequests(selection)
    rows = ScanRows()
    summary = reader.summary
    summary.file = file_name(part.file)
    start = tail = b""
    length = size = 0
    rests_on_more = False
    stands: list[tuple[list[tuple[Border, list[bytes]]], list[Border], bytes | None]] = []

    def stop(read_to: int | None = None, more: bool = False) -> None:
        """Note how connections stand, and how far it was read: without the packet in which the file ends."""
        nonlocal start, tail, length, size, rests_on_more
        ends = reader.connections.endings()
        state = reader.freeze([*requests.waiting]) if ends and read_to is not None else None
        stands.append((reader.connections.begun_before(), ends, state))
        if read_to is not None and _is_plain(part.file, opener):
            with opener(part.file) as opened:
                rests_on_more = more or has_context(opened, reader.context)
                opened.seek(0)
                start = opened.read(_EDGE)
                opened.seek(max(0, read_to - _EDGE))
                tail, length = opened.read(read_to - max(0, read_to - _EDGE)), read_to

    try:
        if not part.begin:
            with Source(part.file, opener=opener) as source:
                reader.begin_file(source.name)
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
        else:
            reader.begin_file(file_name(part.file))
            for packets in read_tail(Tail(part.file, part.begin, part.size, goes_on=True), opener, summary, stop):
                _add(rows, requests, reader.connections.packets(packets))
                if rows.full:
                    yield from rows.take()
            if not stands:
                stop(0)
                length = size = 0
            elif length:
                size = part.size
    except TailError:
        yield from _read_part(part._replace(begin=0), selection, found, store, opener)
        return
    except (CaptureError, OSError) as e:
        reason = str(e) if isinstance(e, CaptureError) else f"{summary.file}: {e.strerror or e}"
        rows.add_bad_input(summary.reading or summary.file, part.file + reason.removeprefix(summary.file))
        yield from rows.take()
        found(PartRead(part.recording, summary.file, "", 0, 0, 0, "", False, [], [], None))
        return
    yield from rows.take()
    begins, ends, state = stands[0]
    _add(rows, requests, reader.end())
    for request in requests.waiting:
        rows.add_frame(request)
        rows.add_unanswered(request)
    point = CapturePoint(part.capture, (part.file,))
    rows.add_summary(summary, point, None if part.begin else problem_of(point, summary, opener=opener))
    yield from rows.take()
    edges = None
    if begins or state is not None:
        edges = edges_of(state, {border.key: segments for border, segments in begins})
    found(
        PartRead(
            part.recording, summary.file, _hash(start) if length else "", len(start), length, size, _hash(tail),
            rests_on_more, [border for border, _segments in begins] if edges else [],
            ends if edges and state is not None else [],
            None if edges is None else store(edges),
        )
    )  # fmt: skip


def _add(rows: ScanRows, requests: OpenRequests, events: Iterable[Event]) -> None:
    for event in requests.settled(events):
        rows.add_event(event)


def checked_cluster(cluster: str) -> str:
    """Return the name of a cluster.

    Raises:
        ConfigurationError: It is empty or has a slash.
    """
    if not cluster or "/" in cluster:
        raise ConfigurationError(f"{cluster!r} cannot name a cluster: choose a name without a slash, such as prod-eu")
    return cluster


def recordings_in(facts: Mapping[str, Any]) -> list[Recording]:
    """Return the recordings of a manifest.

    Raises:
        ConfigurationError: It lists none, or others.
    """
    try:
        return [Recording.from_json(entry) for entry in facts["recordings"]]
    except (KeyError, TypeError, ValueError) as e:
        raise ConfigurationError(f"the manifest lists no recordings ({type(e).__name__}: {e})") from None
