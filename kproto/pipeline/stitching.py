"""Joins the rows of a capture's parts to the frames, and the counts, of the whole capture.

For each connection the TCP segments that the parts gave are read as if they came from one capture; where a part gave
frames instead, reading goes on behind them, after a check that it has reached the very byte at which they begin. If it
has not, the connection is read again from the files themselves. So the tables do not depend on where the parts begin.

Connections of a capture point that grows do not end with its last part: they are kept as they are there, and go on in
the parts of the files that come later.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kproto.capture.collector import Collector, IdlePoint
from kproto.capture.fragments import Fragments
from kproto.capture.frozen import freeze, thaw
from kproto.capture.link import Segment, reverse, segment
from kproto.capture.reader import CaptureReader
from kproto.capture.reassembly import MOST_CONNECTIONS
from kproto.capture.source import file_name
from kproto.capture.splits import Split, SplitError, read_split
from kproto.capture.summary import CaptureSummary
from kproto.framing import DEFAULT_LIMIT
from kproto.pipeline.splitting import (
    FRAME,
    LEFT_OUT,
    REST_BEGINS,
    REST_ENDS,
    SEGMENT,
    SEGMENT_ROW,
    SUMMARY,
    is_selected,
)
from kproto.tables.arrays import BATCH_BYTES
from kproto.tables.files import open_file
from kproto.tables.places import place_of
from kproto.tables.scanning import OpenRequests, ScanRows, new_reader
from kproto.tables.schemas import SCAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kproto.capture import Connection, Frame
    from kproto.capture.capture_points import CapturePoint
    from kproto.capture.collector import Event
    from kproto.tables.scanning import Selection


def stitch(
    batches: Iterable[pa.RecordBatch],
    points: Mapping[str, CapturePoint],
    selection: Selection,
    counts: Counts,
    carried: CarriedConnections | None = None,
    *,
    opener: Callable[[str], IO[bytes]] = open_file,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Join the rows of parts.

    Args:
        batches: Of the schema ``SPLIT``, ordered by ``key``, ``part``, ``item``; all rows of a bucket.
        points: The capture points by name, with the files that are read.
        selection: The frames to give, as in ``scan_parts``.
        counts: Receives the counts of the parts and the connections.
        carried: Receives the connections, if the capture points grow.
        opener: Opens a file for seeking.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``SCAN``.

    Raises:
        SplitError: A body is only in a frame that the whole capture does not show; or the state behind the former files
            cannot be read.
    """
    out = _Output(batch_bytes, counts)
    flow: _FlowReader | None = None
    for batch in batches:
        keys, kinds, edges = (batch.column(name).to_pylist() for name in ("key", "kind", "edge"))
        files, captures = batch.column("file").to_pylist(), batch.column("capture").to_pylist()
        scanned = batch.select(SCAN.names)
        at = 0
        while at < len(keys):
            key, kind = keys[at], kinds[at]
            if flow is None or flow.key != key:
                if flow is not None:
                    flow.finish()
                flow = _FlowReader(key, points, selection, opener, out, carried)
            stop = at + 1
            if kind == FRAME:
                while stop < len(keys) and kinds[stop] == FRAME and keys[stop] == key:
                    stop += 1
                flow.frames(scanned.slice(at, stop - at))
            elif kind == SUMMARY:
                counts.add(captures[at], *pickle.loads(edges[at]))  # noqa: S301  # written by scan_parts
            else:
                flow.edge(kind, edges[at], captures[at], files[at])
            at = stop
            if out.full:
                yield from out.take()
    if flow is not None:
        flow.finish()
    yield from out.take()


class Counts:
    """The counts of the parts and the connections of captures; can be pickled, and added up."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, CaptureSummary]] = {}

    def add(self, capture: str, part: int, summary: CaptureSummary) -> None:
        """Add the counts of a part, or, with a negative number, of connections."""
        parts = self._parts.setdefault(capture, {})
        known = parts.setdefault(part, summary)
        if known is not summary:
            known.add(summary)

    def merge(self, other: Counts) -> None:
        """Add other counts."""
        for capture, parts in other._parts.items():
            for part, summary in parts.items():
                self.add(capture, part, summary)

    def rows(self, points: Mapping[str, CapturePoint]) -> Iterator[pa.RecordBatch]:
        """Return the rows of ``SCAN`` with each capture's facts and faults.

        Args:
            points: The capture points by name.
        """
        rows = ScanRows()
        for capture in sorted(self._parts):
            total = self.total(points[capture])
            rows.add_summary(total, points[capture], total.problem())
        yield from rows.take()

    def of(self, capture: str) -> Counts:
        """Return those of one capture point."""
        found = Counts()
        found._parts[capture] = self._parts[capture]
        return found

    def total(self, point: CapturePoint) -> CaptureSummary:
        """The counts of a capture point."""
        name = file_name(point.files[0]) if len(point.files) == 1 else point.name
        total = CaptureSummary(file=name, reading=point.name)
        for _, summary in sorted(self._parts[point.name].items()):
            total.add(summary)
        return total


class CarriedConnections:
    """The connections of growing capture points in one task: behind the former files, and behind those that are read.

    Args:
        states: The capture points, and the file of the state behind the former files; None: there are none.
        selection: The frames to give.
    """

    def __init__(self, states: Mapping[str, str | None], selection: Selection) -> None:
        self._states = states
        self._selection = selection
        self._resumed: dict[str, _Resumed] = {}
        self._kept: dict[str, _Kept] = {}

    def begin(self, capture: str, flow: bytes, collector: Collector, *, again: bool = False) -> list[Frame]:
        """Let a collector go on with a connection behind the former files.

        Args:
            capture: The capture point.
            flow: The connection's flow.
            collector: A fresh one.
            again: Whether the connection was begun before.

        Returns:
            The requests of the connection that are waiting there.

        Raises:
            SplitError: The state cannot be read.
        """
        place = self._states[capture]
        if place is None:
            return []
        former = self._resumed.get(capture)
        if former is None or again:
            try:
                former = _Resumed(place_of(place).read_bytes())
            except (OSError, ValueError) as e:
                raise SplitError(f"{capture}: {e}") from None
            self._resumed.setdefault(capture, former)
        return former.give(flow, collector)

    def has_room(self, capture: str) -> bool:
        """Whether another connection of a capture point may be kept; of more than can be followed, the others end."""
        kept = self._kept.get(capture)
        return kept is None or kept.collector.open_connections < MOST_CONNECTIONS

    def keep(self, capture: str, collector: Collector, waiting: Iterable[Frame]) -> None:
        """Keep a connection as it is behind the last part.

        Args:
            capture: The capture point.
            collector: Has read it; others between the same addresses may have come before it.
            waiting: Its requests whose outcome is not known yet.
        """
        kept = self._kept.get(capture)
        if kept is None:
            kept = self._kept[capture] = _Kept(new_reader(capture, self._selection).connections, [])
        kept.collector.adopt(collector)
        kept.waiting.extend(waiting)

    def freeze(self) -> Iterator[tuple[str, bytes]]:
        """Yield capture points and what was kept of their connections, for ``reader_behind``.

        Raises:
            SplitError: It cannot be frozen.
        """
        for capture, kept in self._kept.items():
            former = self._resumed.get(capture)
            state = freeze((kept.collector, kept.waiting, former.given if former else []))
            if state is None:
                raise SplitError(f"{capture}: the state of its connections cannot be kept")
            yield capture, state


class _Kept(NamedTuple):
    """Connections of a capture point, and their waiting requests."""

    collector: Collector
    waiting: list[Frame]


class _Resumed:
    """The connections of a capture point behind the former files.

    Args:
        state: From ``CaptureReader.freeze``.

    Attributes:
        reader: The reader with those that nobody went on with so far.
        waiting: Their requests that are waiting.
        given: The flows of the others.
    """

    def __init__(self, state: bytes) -> None:
        self.reader, waiting = CaptureReader.resumed(state)
        self.waiting: dict[Connection, list[Frame]] = {}
        for request in waiting:
            self.waiting.setdefault(request.connection, []).append(request)
        self.given: list[bytes] = []

    def give(self, flow: bytes, collector: Collector) -> list[Frame]:
        """Give a connection to a collector; return its waiting requests."""
        connection = self.reader.connections.connection(flow)
        if collector.adopt(self.reader.connections, flow):
            self.given.append(flow)
        return [] if connection is None else self.waiting.pop(connection, [])


def reader_behind(
    point: CapturePoint, selection: Selection, state: bytes | None, parts: Iterable[bytes], counts: Counts
) -> tuple[CaptureReader, list[Frame]]:
    """Return the reader of a capture point behind files that were read in parts, and its waiting requests.

    Args:
        point: The capture point.
        selection: The frames to give.
        state: Behind the former files; None: there are none.
        parts: What ``CarriedConnections.freeze`` yielded in all tasks.
        counts: Of the files that were read.

    Raises:
        ValueError: The state cannot be read.
    """
    reader = new_reader(point.name, selection)
    waiting: list[Frame] = []
    former = _Resumed(state) if state is not None else None
    for part in parts:
        collector, asked, flows = thaw(part)
        if former is not None:
            for flow in flows:
                former.give(flow, new_reader(point.name, selection).connections)
        reader.connections.adopt(collector)
        waiting += asked
    if former is not None:
        waiting += [request for requests in former.waiting.values() for request in requests]
        reader.connections.adopt(former.reader.connections)
        reader.summary.add(former.reader.summary)
    reader.summary.add(counts.total(point))
    return reader, waiting


class _Output:
    """Gathers rows into batches: frames that were read here, and frames of parts, which only lacked ids."""

    def __init__(self, limit: int, counts: Counts) -> None:
        self.rows = ScanRows(limit)
        self.counts = counts
        self._limit = limit
        self._slices: list[pa.RecordBatch] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self.rows.full or self._bytes >= self._limit

    def add_slice(self, rows: pa.RecordBatch) -> None:
        self._slices.append(rows)
        self._bytes += rows.nbytes

    def take(self) -> Iterator[pa.RecordBatch]:
        slices, self._slices, self._bytes = self._slices, [], 0
        if slices:
            yield from pa.Table.from_batches(slices, SCAN).combine_chunks().to_batches()
        yield from self.rows.take()


class _FlowReader:
    """Reads the connections between two addresses, one after the other, from the rows of all parts."""

    def __init__(
        self,
        key: bytes,
        points: Mapping[str, CapturePoint],
        selection: Selection,
        opener: Callable[[str], IO[bytes]],
        out: _Output,
        carried: CarriedConnections | None,
    ) -> None:
        self.key = key
        self._points = points
        self._selection = selection
        self._opener = opener
        self._out = out
        self._carried = carried
        self._requests: OpenRequests | None = None
        self._capture = ""
        self._flow = b""
        self._summary = CaptureSummary()
        self._collector: Collector | None = None
        self._given = 0  # rows so far
        self._repeated = 0  # rows that were given before the connection was read again
        self._begin: IdlePoint | None = None
        self._is_exact = True
        self._passed_over: dict[bytes, int] = {}  # bodies in frames that were not taken, and when they were sent

    def edge(self, kind: int, edge: bytes, capture: str, file: str) -> None:
        """Handle a row that is no frame."""
        collector = self._collector
        if collector is None:
            self._capture = capture
            self._flow = self.key[len(capture.encode("utf-8", "surrogateescape")) + 1 :]
            self._summary = CaptureSummary(file=capture, reading=file)
            collector = self._collector = self._new_collector(self._summary)
        if not self._is_exact:
            return
        self._summary.reading = collector.file = file
        if kind == SEGMENT:
            self._segment(collector, edge)
        elif kind == REST_BEGINS:
            begin = IdlePoint(*pickle.loads(edge))  # noqa: S301  # written by scan_parts
            here = collector.idle_point(begin.flow)
            self._is_exact = here is not None and (here.flow, here.requests, here.responses) == (
                begin.flow,
                begin.requests,
                begin.responses,
            )
            self._begin = here
        elif kind == REST_ENDS:
            end, counts, has_wanted = pickle.loads(edge)  # noqa: S301  # written by scan_parts
            assert self._begin is not None
            collector.go_to(self._begin, IdlePoint(*end), has_wanted=has_wanted)
            connection = collector.connection(self._begin.flow)
            assert connection is not None
            counts.losses = [replace(loss, connection=connection) for loss in counts.losses]
            self._summary.add(counts)
        elif kind == LEFT_OUT:
            self._is_exact = collector.is_ignored(self._flow)

    def frames(self, rows: pa.RecordBatch) -> None:
        """Handle rows of frames, and notes, that lack their connection."""
        begin, collector = self._begin, self._collector
        if collector is None:
            self._out.add_slice(rows)  # notes about a file
            return
        if not self._is_exact:
            self._note_bodies(rows)
            return
        self._given += rows.num_rows
        assert begin is not None
        connection = collector.connection(begin.flow)
        assert connection is not None
        conn_id = connection.conn_id
        conn_ids = [conn_id if here is not None else None for here in rows["conn_id"].to_pylist()]
        self._out.add_slice(_with(rows, {"conn_id": conn_ids}))

    def finish(self) -> None:
        """Finish the reading after the last row."""
        if self._collector is None:
            return
        if not self._is_exact:
            self._read_again()
        if self._carried is not None and self._requests is not None and self._carried.has_room(self._capture):
            self._carried.keep(self._capture, self._collector, self._requests.waiting)
        else:
            self._summary.given_up["connections"] += self._carried is not None
            self._add(self._collector.end())
        if not self._is_exact:
            self._check_bodies()
        self._out.counts.add(self._capture, -1, self._summary)

    def _new_collector(self, summary: CaptureSummary, *, again: bool = False) -> Collector:
        collector = Collector(
            summary,
            capture=self._capture,
            ports=self._selection.ports,
            apis=self._selection.scanned,
            limit=DEFAULT_LIMIT,
        )
        if self._carried is not None:
            waiting = self._carried.begin(self._capture, self._flow, collector, again=again)
            self._requests = OpenRequests(self._selection, waiting)
        return collector

    def _segment(self, collector: Collector, edge: bytes) -> None:
        time_ns, sequence, acknowledged, flags, on_wire, backwards = SEGMENT_ROW.unpack_from(edge)
        flow = reverse(self._flow) if backwards else self._flow
        found = Segment(flow, sequence, acknowledged, flags, edge, SEGMENT_ROW.size, len(edge), on_wire)
        self._add(collector.add_segment(time_ns, found))

    def _add(self, events: list[Event]) -> None:
        for event in events if self._requests is None else self._requests.settled(events):
            if is_selected(event, self._selection):
                self._given += 1
                if self._given > self._repeated:
                    self._out.rows.add_event(event)

    def _read_again(self) -> None:
        """Read the connection from the files, past the frames that were given before."""
        self._repeated, self._given = self._given, 0
        self._out.rows.forget_bodies()  # frames that were not taken held bodies that other frames share
        self._summary = CaptureSummary(file=self._capture)
        collector = self._collector = self._new_collector(self._summary, again=True)
        counts = CaptureSummary()
        fragments = Fragments(counts)
        both = {self._flow, reverse(self._flow)}
        for file in self._points[self._capture].files:
            self._summary.reading = collector.file = file_name(file)
            for packets in read_split(Split(file), self._opener, counts):
                for time_ns, link, buffer, start, stop, on_wire in packets:
                    found = segment(time_ns, link, buffer, start, stop, on_wire, fragments, counts)
                    if found is not None and found.flow in both:
                        self._add(collector.add_segment(time_ns, found))

    def _check_bodies(self) -> None:
        if any(not self._out.rows.has_given(body, ts_ns) for body, ts_ns in self._passed_over.items()):
            raise SplitError(
                f"{self._capture}: a part of it shows a frame that the whole does not, and other connections send its "
                "body too; read this capture as a whole: --split-size 0"
            )

    def _note_bodies(self, rows: pa.RecordBatch) -> None:
        """Note the bodies that come with frames that are not taken: frames of other connections may need them."""
        places = rows["staged"].is_valid().to_pylist()
        for body_id, ts_ns, payload, place in zip(
            rows["body_id"].to_pylist(), rows["ts_ns"].to_pylist(), rows["payload"].is_valid().to_pylist(), places,
            strict=True,
        ):  # fmt: skip
            if payload or place:
                self._passed_over[body_id] = min(ts_ns, self._passed_over.get(body_id, ts_ns))


def _with(rows: pa.RecordBatch, values: Mapping[str, list[Any]]) -> pa.RecordBatch:
    """Return the rows with other values in some columns."""
    arrays = [
        pa.array(values[field.name], field.type) if field.name in values else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
