"""Plans the parts of large captures, and reads them into rows that ``stitch`` joins to the frames of the whole capture.

A part begins and ends in the middle of connections. Between two moments at which a connection rests (no byte and no
request waits for another) its exchanges depend on nothing outside: they are given as frames. The packets before the
first and after the last such moment are given as TCP segments.
"""

from __future__ import annotations

import pickle
from struct import Struct
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from kproto.capture.collector import Collector
from kproto.capture.fragments import Fragments
from kproto.capture.link import FIN, RST, SYN, endpoints, reverse, segment
from kproto.capture.model import Connection, Frame
from kproto.capture.source import HEAD, file_name
from kproto.capture.splits import Split, SplitError, is_splittable, read_split
from kproto.capture.summary import CaptureSummary
from kproto.errors import CaptureError
from kproto.framing import DEFAULT_LIMIT
from kproto.tables.arrays import BATCH_BYTES
from kproto.tables.files import file_size, open_file
from kproto.tables.scanning import ScanRows
from kproto.tables.schemas import SCAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.capture import CapturePoint
    from kproto.capture.collector import Event, IdlePoint
    from kproto.capture.link import Segment
    from kproto.tables.scanning import Selection

SPLIT: Final = pa.schema(
    [
        ("bucket", pa.int32()),
        ("key", pa.binary()),
        ("part", pa.int32()),
        ("item", pa.int64()),
        ("kind", pa.int8()),
        ("edge", pa.binary()),
        *SCAN,
    ]
)
"""The rows that ``scan_parts`` yields. Rows of one ``bucket`` go to one ``stitch``, ordered by ``key``, which names the
capture point and the connection's addresses, ``part`` and ``item``. ``kind`` names the content of ``edge``. A body is
given once in each part and bucket."""

SUMMARY, SEGMENT, REST_BEGINS, FRAME, REST_ENDS, LEFT_OUT = range(6)
"""Kinds of rows: the counts of a part; a TCP segment; where a connection rests; a row of ``SCAN`` that lacks
its connection; where the connection rests after these rows, with their counts; from here on the connection, which
carries another protocol, is left out but for its openings and ends."""

SEGMENT_ROW: Final = Struct(">qIIBI?")
"""Time (ns), sequence number, acknowledged number, flags, length on the wire,
whether the addresses are the other way around than in ``key``. The payload follows."""

SPLIT_BYTES: Final = 128 << 20
"""Bytes of a part of a file. A capture point of fewer than twice these bytes is read by one task."""

_PACKED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""The first bytes of gzip and zstd files."""

_FOREIGN_BYTES: Final = 32 << 20
"""A connection without a Kafka request in this many bytes of a part is left out of the part."""

_TAIL_BYTES: Final = 1 << 20
"""The most bytes that a connection that does not come to rest holds while all together hold over ``_HELD_BYTES``."""

_HELD_BYTES: Final = 96 << 20
"""The bytes of all connections together up to which each may hold any number: a full update of a large cluster has
some ten MB. Beyond them a connection gives up what it holds at its next segment if that is over ``_TAIL_BYTES``; so
N connections hold at most about this and N times ``_TAIL_BYTES``."""

_SEGMENT_BYTES: Final = 120
_HELD_SEGMENT_BYTES: Final = 300
"""The memory that a held segment takes beside its bytes."""


class Part(NamedTuple):
    """A split of a capture point.

    Attributes:
        capture: Name of the capture point.
        number: Its place among the parts of the capture point, from 0.
        split: The file, and which bytes of it.
        is_last: Whether no part follows, in this run or a later one.
        grows: Whether files may follow in a later run.
    """

    capture: str
    number: int
    split: Split
    is_last: bool
    grows: bool = False


def plan(
    points: Iterable[CapturePoint],
    split_bytes: int = SPLIT_BYTES,
    *,
    grows: bool = False,
    opener: Callable[[str], IO[bytes]] = open_file,
) -> tuple[list[CapturePoint], list[Part]]:
    """Choose the captures that are read in parts.

    Each file of a large capture point is a part; uncompressed files larger than ``split_bytes`` are cut into parts.

    Args:
        points: The capture points.
        split_bytes: About how large a part shall be; 0 reads every capture point by one task.
        grows: Whether files may follow in a later run.
        opener: Opens a file.

    Returns:
        The capture points that are read whole, and the parts of the others.
    """
    whole: list[CapturePoint] = []
    parts: list[Part] = []
    for point in points:
        sizes = [_size(file) for file in point.files]
        splits: list[Split] = []
        if split_bytes and sum(sizes) >= 2 * split_bytes:
            heads = [_head(file, opener) for file in point.files]
            if all(is_splittable(head) or _is_packed(head) for head in heads):
                for file, size, head in zip(point.files, sizes, heads, strict=True):
                    splits += _splits(file, size, split_bytes) if is_splittable(head) else [Split(file)]
        if len(splits) < 2:
            whole.append(point)
        else:
            last = len(splits) - 1
            parts += [Part(point.name, n, split, n == last and not grows, grows) for n, split in enumerate(splits)]
    return whole, parts


def _splits(file: str, size: int, split_bytes: int) -> Iterator[Split]:
    count = max(1, round(size / split_bytes))
    for n in range(count):
        yield Split(file, size * n // count, size * (n + 1) // count, size)


def _size(file: str) -> int:
    try:
        return file_size(file)
    except CaptureError:
        return 0  # reading the file reports the error


def _head(file: str, opener: Callable[[str], IO[bytes]]) -> bytes:
    try:
        with opener(file) as opened:
            return opened.read(HEAD)
    except OSError:
        return b""


def _is_packed(head: bytes) -> bool:
    return head.startswith(_PACKED)


def scan_parts(
    parts: Iterable[Part],
    selection: Selection,
    *,
    buckets: int = 1,
    opener: Callable[[str], IO[bytes]] = open_file,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Read parts of captures.

    Args:
        parts: The parts, of any captures, in any order.
        selection: The frames to give.
        buckets: The number of buckets over which connections are distributed.
        opener: Opens a file for seeking.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``SPLIT``.

    Raises:
        SplitError: A file cannot be read in parts; or one of a capture point that grows cannot be read at all.
    """
    for part in parts:
        yield from _PartReader(part, selection, buckets, batch_bytes).read(opener)


def is_selected(event: Event, selection: Selection) -> bool:
    """Whether an event makes a row."""
    request = event if isinstance(event, Frame) else event.request
    return request is not None and selection.takes(request)


class _PartRows(ScanRows):
    """Gathers the rows of a part into batches."""

    def __init__(self, part: Part, buckets: int, limit: int) -> None:
        super().__init__(limit, SPLIT)
        self._part = part.number
        self._buckets = buckets
        self._item = 0
        self._capture_and_file = {"capture": part.capture, "file": file_name(part.split.file)}
        self._edge_columns = tuple(self._capture_and_file.get(name) for name in SCAN.names)
        self.key = b""

    def add(self, row: tuple[Any, ...], size: int) -> None:
        self._item += 1
        super().add((self._bucket(self.key), self.key, self._part, self._item, FRAME, None, *row), size)

    def add_edge(self, key: bytes, kind: int, edge: bytes) -> None:
        self._item += 1
        row = self._bucket(key), key, self._part, self._item, kind, edge, *self._edge_columns
        super().add(row, _SEGMENT_BYTES + len(edge))

    def is_earliest(self, body_id: bytes, time_ns: int) -> bool:
        return super().is_earliest(self._bucket(self.key).to_bytes(4) + body_id, time_ns)

    def _bucket(self, key: bytes) -> int:
        return crc32(key) % self._buckets


class _Flow:
    """One connection in a part, or several after each other between the same addresses."""

    __slots__ = (
        "begin",
        "collector",
        "connection",
        "counts",
        "end",
        "end_counts",
        "flow",
        "found",
        "has_wanted",
        "is_left_out",
        "key",
        "raw_bytes",
        "summary",
        "tail",
        "tail_bytes",
    )

    def __init__(self, flow: bytes, key: bytes, summary: CaptureSummary, collector: Collector) -> None:
        self.flow = flow
        self.key = key
        self.summary = summary
        self.collector = collector
        self.tail: list[tuple[int, Segment]] = []  # since it last rested
        self.tail_bytes = 0
        self.begin: IdlePoint | None = None
        self.end: IdlePoint | None = None
        self.counts = self.end_counts = summary.stream_counts()
        self.found: list[Event] = []  # since it last rested
        self.has_wanted = False
        self.connection: Connection | None = None
        self.raw_bytes = 0
        self.is_left_out = False


class _PartReader:
    def __init__(self, part: Part, selection: Selection, buckets: int, batch_bytes: int) -> None:
        self._part = part
        self._selection = selection
        self._rows = _PartRows(part, buckets, batch_bytes)
        self._summary = CaptureSummary(file=part.capture, reading=file_name(part.split.file))
        self._fragments = Fragments(self._summary)
        self._flows: dict[bytes, _Flow | None] = {}
        self._newest_ns = 0
        self._touched: dict[_Flow, None] = {}
        self._held_bytes = 0

    def read(self, opener: Callable[[str], IO[bytes]]) -> Iterator[pa.RecordBatch]:
        rows, summary = self._rows, self._summary
        try:
            for packets in read_split(self._part.split, opener, summary):
                self._packets(packets)
                self._hold_no_buffers()
                if rows.full:
                    yield from rows.take()
        except SplitError:
            raise
        except (CaptureError, OSError) as e:
            if self._part.grows:
                raise SplitError(str(e)) from None
            rows.key = self._part.capture.encode("utf-8", "surrogateescape")
            rows.add_bad_input(summary.reading, str(e) if isinstance(e, CaptureError) else f"{summary.reading}: {e}")
        if not self._part.is_last and self._fragments.waits(self._newest_ns):
            raise SplitError(
                f"{self._part.split.file}: an IP packet whose fragments stand on both sides of a border between two "
                "parts; read this capture as a whole: --split-size 0"
            )
        self._fragments.end()
        for flow in {flow: None for flow in self._flows.values() if flow is not None}:
            self._end_run(flow)
            self._give_tail(flow)
            if rows.full:
                yield from rows.take()
        key = self._part.capture.encode("utf-8", "surrogateescape")
        rows.add_edge(key, SUMMARY, pickle.dumps((self._part.number, summary)))
        yield from rows.take()

    def _packets(self, packets: list[Any]) -> None:
        summary, fragments, flows = self._summary, self._fragments, self._flows
        newest_ns = self._newest_ns
        for time_ns, link, buffer, start, stop, on_wire in packets:
            if not summary.packets:
                summary.first_ns = time_ns
            summary.packets += 1
            summary.last_ns = time_ns
            found = segment(time_ns, link, buffer, start, stop, on_wire, fragments, summary)
            if found is not None:
                try:
                    flow = flows[found.flow]
                except KeyError:
                    flow = self._new_flow(found.flow)
                if flow is not None:
                    self._segment(flow, time_ns, found)
                newest_ns = max(newest_ns, time_ns)
        self._newest_ns = newest_ns

    def _new_flow(self, flow: bytes) -> _Flow | None:
        backwards = reverse(flow)
        made = None
        selection = self._selection
        if selection.ports is None or any(end.port in selection.ports for end in endpoints(flow)):
            capture = self._part.capture
            first = min(flow, backwards)
            summary = CaptureSummary(reading=self._summary.reading)
            collector = Collector(
                summary, capture=capture, ports=selection.ports, apis=selection.scanned, limit=DEFAULT_LIMIT
            )
            collector.file = self._summary.reading
            made = _Flow(first, capture.encode("utf-8", "surrogateescape") + b"\0" + first, summary, collector)
        self._flows[flow] = self._flows[backwards] = made
        return made

    def _segment(self, flow: _Flow, time_ns: int, found: Segment) -> None:
        if flow.is_left_out:
            flags = found.flags
            if not flags & (SYN | FIN | RST):
                return
            flow.is_left_out = not flags & SYN
        events = flow.collector.add_segment(time_ns, found)
        if events and flow.begin is not None:
            flow.found += events
        flow.tail.append((time_ns, found))
        size = found.end - found.begin + _HELD_SEGMENT_BYTES
        flow.tail_bytes += size
        self._held_bytes += size
        rest = flow.collector.idle_point(found.flow)
        if rest is not None:
            connection = flow.collector.connection(found.flow)
            if connection is not flow.connection:
                self._end_run(flow)
                flow.connection = connection
            if flow.end is not None and flow.end.faults != rest.faults:
                self._end_run(flow)  # what follows from a fault depends on what came before this part
            if flow.begin is None:
                self._give_tail(flow)
                flow.begin = rest
                flow.counts = flow.summary.stream_counts()
                self._rows.add_edge(flow.key, REST_BEGINS, pickle.dumps(tuple(rest)))
            elif flow.found:
                flow.has_wanted = True
                self._rows.key = flow.key
                for event in flow.found:
                    if is_selected(event, self._selection):
                        self._rows.add_event(event)
                flow.found.clear()
            flow.end = rest
            flow.end_counts = flow.summary.stream_counts()
            self._drop_tail(flow)
            self._touched.pop(flow, None)
            return
        self._touched[flow] = None
        if flow.tail_bytes > _TAIL_BYTES and self._held_bytes > _HELD_BYTES:
            self._end_run(flow)
            self._give_tail(flow)
            ignored = flow.collector.is_ignored(flow.flow)
            if ignored or (flow.raw_bytes > _FOREIGN_BYTES and flow.collector.connection(flow.flow) is None):
                flow.is_left_out = True
                self._rows.add_edge(flow.key, LEFT_OUT, b"")

    def _end_run(self, flow: _Flow) -> None:
        """Note where the connection rested last. The packets since then are given as segments."""
        if flow.begin is None or flow.end is None:
            return
        begin, end = flow.begin, flow.end
        passed = end._replace(
            requests_at=end.requests_at - begin.requests_at, responses_at=end.responses_at - begin.responses_at
        )
        counts = CaptureSummary.counts_between(flow.counts, flow.end_counts)
        self._rows.add_edge(flow.key, REST_ENDS, pickle.dumps((tuple(passed), counts, flow.has_wanted)))
        flow.begin = flow.end = None
        flow.found.clear()
        flow.has_wanted = False

    def _give_tail(self, flow: _Flow) -> None:
        for time_ns, found in flow.tail:
            flow.raw_bytes += found.end - found.begin
            row = SEGMENT_ROW.pack(
                time_ns, found.sequence, found.acknowledged, found.flags & 0xFF, found.on_wire, found.flow != flow.flow
            )
            self._rows.add_edge(flow.key, SEGMENT, row + found.buffer[found.begin : found.end])
        self._drop_tail(flow)

    def _drop_tail(self, flow: _Flow) -> None:
        self._held_bytes -= flow.tail_bytes
        flow.tail.clear()
        flow.tail_bytes = 0

    def _hold_no_buffers(self) -> None:
        """Copy the held segments, so that they do not keep the file's buffers alive."""
        for flow in self._touched:
            for _, found in reversed(flow.tail):
                if not found.begin and found.end == len(found.buffer):
                    break
                found.buffer = found.buffer[found.begin : found.end]
                found.begin, found.end = 0, len(found.buffer)
        self._touched.clear()
