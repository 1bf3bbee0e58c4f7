"""Joins recordings of one place by their connections, whatever their names: each goes on at the byte where it stopped.

Each recording is read by itself. A frame that begins in one and ends in another is in neither, and a request is without
its response where that is in the next one. So the reader behind the one goes on in the first segments that the other
has of the connection, up to its first complete exchange: from there on the other one's own reading is right.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kproto.capture.borders import (
    Border,
    goes_on,
    is_before,
    is_border,
    overlap,
    pack_segment,
    skipped,
    unpacked_segments,
)
from kproto.capture.collector import Collector
from kproto.capture.fragments import Fragments
from kproto.capture.frozen import freeze, thaw
from kproto.capture.link import reverse
from kproto.capture.link import segment as segment_of
from kproto.capture.model import Exchange
from kproto.capture.reassembly import SET_NS, UNKNOWN, distance
from kproto.capture.summary import CaptureSummary
from kproto.framing import DEFAULT_LIMIT
from kproto.tables.scanning import OpenRequests, ScanRows
from kproto.tables.schemas import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.capture import Frame
    from kproto.capture.link import Segment
    from kproto.capture.pcap import Packet
    from kproto.tables.scanning import Selection

_MOST_STATES: Final = 64
"""The most states of readers that are held in memory."""

_LATE_NS: Final = 1_000_000_000
"""How much earlier than the end of one recording the next may begin: packets near a border may be out of order."""


_REST: Final = b"rest"
"""Stands, before the key of a connection, for what a part has of the packet within which it ends."""

_AT: Final = Struct(">?Bq")

_MOST_GUESSES: Final = 4
"""How often a beginning is read again in one call as more becomes known of what is before it."""

_SENT_AGAIN_NS: Final = 120 * 10**9
"""The longest after which TCP sends data again, as Linux does by default."""

MENDED: Final = ("connections", "kafka_connections", "without_handshake", "unmatched_responses", "gaps", "gap_bytes")
"""The counts of a file that what is before it may change."""

_TAKEN_BACK: Final = "-"
"""Stands for the state behind which a beginning was read, where that turned out to be of another recorder."""

_DAMAGES: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What reading on behind damaged edges may raise."""


class Edge(NamedTuple):
    """Where a connection stands at the end, or at the beginning, of a part that was read.

    Attributes:
        part, capture: The part's name, and its label.
        border: The connection there.
        place: See ``Recording.place``.
        state: At an end: the name of the edges that have the reader's state. At a beginning: the state behind which it
            was read on, but which may not be the right one; it is read again behind another one. Empty: none.
        file: At a beginning: the name of the part's file.
    """

    part: str
    capture: str
    border: Border
    place: str
    state: str = ""
    file: str = ""

    @property
    def here(self) -> tuple[str, bytes]:
        """What names the connection in the part."""
        return self.part, self.border.key


def border_rows(ends: Iterable[Edge], begins: Iterable[Edge]) -> pa.Table:
    """Return ends and beginnings as rows of ``known_borders``."""
    rows = [_row(each, each.state, is_end=True) for each in ends]
    rows += [_row(each, each.part, is_end=False) for each in begins]
    return pa.Table.from_pylist(rows, KNOWN["known_borders"])


def going_on(ends: Iterable[Edge], begins: Iterable[Edge]) -> set[bytes]:
    """Return the values of ``at`` or ``back_at`` of the rows of ``known_borders`` that may go on at some borders."""
    found = {at for end in ends for at in _at(end.border, is_end=False)}
    found.update(at for begin in begins for at in _at(begin.border, is_end=True))
    return found - {b""}


def _at(border: Border, *, is_end: bool) -> tuple[bytes, ...]:
    """At which byte of which connection an end or a beginning is, in each direction; empty where that is unknown."""
    border = border.in_order
    sides = enumerate(border.sequences)
    return tuple(border.flow + _AT.pack(is_end, side, at) if at != UNKNOWN else b"" for side, at in sides)


def _row(each: Edge, edges: str, *, is_end: bool) -> dict[str, Any]:
    border = each.border
    at, back_at = _at(border, is_end=is_end)
    return {
        "id": f"{'end' if is_end else 'begin'} {each.part} {border.key.hex()}", "at": at, "back_at": back_at,
        "is_end": is_end, "part": each.part, "capture": each.capture, "file": os.fsencode(each.file),
        "place": os.fsencode(each.place), "state": each.state, "edges": edges, "flow": border.flow,
        "sequence": border.sequences[0], "back_sequence": border.sequences[1], "time_ns": border.time_ns,
        "conn_id": border.conn_id, "is_sure": border.is_sure,
    }  # fmt: skip


def borders_of(rows: pa.Table) -> tuple[list[Edge], list[Edge]]:
    """Return the ends and beginnings of rows of ``known_borders``; those that kproto does not write are lost."""
    found: tuple[list[Edge], list[Edge]] = [], []
    for row in rows.to_pylist():
        sequences = row["sequence"], row["back_sequence"]
        border = Border(row["flow"], sequences, row["time_ns"], row["conn_id"], row["is_sure"])
        if None not in row.values() and is_border(border):
            place, file = os.fsdecode(row["place"]), os.fsdecode(row["file"])
            edge = Edge(row["part"], row["capture"], border, place, row["state"], file)
            found[not row["is_end"]].append(edge)
    return found


def edges_of(state: bytes | None, segments: dict[bytes, list[bytes]], rest: Iterable[Packet] = ()) -> bytes | None:
    """Return the edges of a part as bytes.

    Args:
        state: The reader's state behind its last whole packet.
        segments: The first segments of connections, by the key of their borders.
        rest: The packet within which it ends.
    """
    for packet in rest:
        found = segment_of(*packet, Fragments(CaptureSummary()), CaptureSummary())
        if found is not None:
            key = min(found.flow, reverse(found.flow))
            segments = segments | {_REST + key: [pack_segment(packet[0], found, key)]}
    return freeze((state, segments))


def matched(ends: Iterable[Edge], begins: Iterable[Edge]) -> list[tuple[Edge, Edge]]:
    """Return the pairs of an end and the beginning that goes on there, in the order of the beginnings' times.

    Where several recordings hold the same bytes, that of the same place goes on, whatever the labels; of other places
    the one that ended before, at the very byte, and shortly before; each end goes on once. A part whose own end is
    before an end does not go on there: its bytes stand before those of that end, of which some may begin at the same
    byte of the other direction. Where nothing goes on at the very byte, what begins further on may do so: behind the
    packet within which a file ends.
    """
    at: dict[tuple[bytes, int, int], list[Edge]] = {}
    own: dict[tuple[str, bytes], Edge] = {}
    for end in ends:
        own[end.here] = end
        for side, sequence in enumerate(end.border.in_order.sequences):
            at.setdefault((end.border.key, side, sequence), []).append(end)
    pairs: list[tuple[Edge, Edge]] = []
    others: list[tuple[bool, bool, bool, int, int, int, Edge, Edge]] = []
    taken: set[Edge] = set()
    for number, begin in enumerate(sorted(begins, key=lambda each: (each.border.time_ns, each.part))):
        sides = enumerate(begin.border.in_order.sequences)
        near = dict.fromkeys(end for side, sequence in sides for end in at.get((begin.border.key, side, sequence), ()))
        latest_ns = begin.border.time_ns + _LATE_NS
        ours = own.get(begin.here)
        found = [
            end
            for end in near
            if end.part != begin.part
            and end.border.time_ns <= latest_ns
            and goes_on(end.border, begin.border)
            and (ours is None or is_before(end.border, ours.border))
        ]
        begin_ns = begin.border.time_ns
        same = [end for end in found if end.place == begin.place and end.border.time_ns <= begin_ns]
        same = [end for end in same if end not in taken]
        if same:
            best = max(same, key=lambda end: (end.border.time_ns, end.part))
            taken.add(best)
            pairs.append((best, begin))
            continue
        behind_rest = [end for end in near if skipped(end.border, begin.border)]
        for end in (*found, *behind_rest):
            later_ns = begin_ns - end.border.time_ns
            rank = later_ns < 0, end.place != begin.place, abs(overlap(end.border, begin.border)), abs(later_ns)
            others.append((end in behind_rest, *rank, number, end, begin))
    joined: set[Edge] = set()
    for *_rank, end, begin in sorted(others):
        if end not in taken and begin not in joined:
            taken.add(end)
            joined.add(begin)
            pairs.append((end, begin))
    return sorted(pairs, key=lambda pair: (pair[1].border.time_ns, pair[1].part))


class Joiner:
    """Joins parts that were read.

    Args:
        selection: The frames to give.
        load: Returns the edges of a name; None where they are lost.
        store: Stores edges that joining made; returns their name.

    Attributes:
        ends: The ends at which nothing goes on so far.
        begins: The beginnings that go on behind nothing so far.
        connections: The id of each connection that goes on, by the ids that it has in later parts.
        files: Of each label and file the connections, as named there, that go on there; nameless ones are not known to
            be Kafka's.
        counts: By how much each of ``MENDED`` is another number there than a reading of the file alone told.
        filled: Of each label and file the gaps that were told at an earlier end, and that what came since fills: the
            connection, the direction, and the time (us).
        taken_back: Requests, by frame, with their responses (None: none), that a former run gave and that are wrong: a
            beginning goes on elsewhere than was known then. Their rows go; ``join`` gives what takes their place.
        crosses: Whether something went on behind another place's end: its answers are of another clock.
    """

    def __init__(
        self, selection: Selection, load: Callable[[str], bytes | None], store: Callable[[bytes], str]
    ) -> None:
        self.ends: list[Edge] = []
        self.begins: list[Edge] = []
        self.connections: dict[bytes, bytes] = {}
        self.files: dict[tuple[str, str], list[bytes]] = {}
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.filled: dict[tuple[str, str], set[tuple[bytes, str, int]]] = {}
        self.taken_back: set[tuple[bytes, bytes | None]] = set()
        self.crosses = False
        self._selection = selection
        self._load = load
        self._store = store
        self._states: dict[tuple[str, bool], _Standing | None] = {}
        self._counted: dict[Edge, Counter[str]] = {}  # how each beginning, whatever was guessed, changed the counts
        self._segments: dict[str, dict[bytes, list[bytes]]] = {}
        self._rows = ScanRows()

    def join(self, ends: Iterable[Edge], begins: Iterable[Edge]) -> Iterator[pa.RecordBatch]:
        """Join what goes on.

        At an end before the first exchange of a connection that is older than the recording, the boundaries of frames
        are a guess, which an earlier recording may mend. Of recordings of other places a better one may come. Both
        sides are read on there, and kept, with all that rests on them; what was given is taken back where a better one
        has come.

        Yields:
            Batches of the schema ``SCAN``: frames, and requests with their outcomes, that no recording shows alone.
        """
        left_ends, left_begins = dict.fromkeys(ends), dict.fromkeys(begins)
        of_part = {end.here: end for end in left_ends}
        by_state = {(end.state, end.border.key): end for end in left_ends}
        former = ((by_state.get((begin.state, begin.border.key)), begin) for begin in left_begins)
        guessed = [(end, begin) for end, begin in former if end is not None]
        before: dict[tuple[str, bytes], str] = {}
        open_begins = {begin.here for begin in left_begins}
        guesses: Counter[tuple[str, bytes]] = Counter()
        goes_further = True
        while goes_further:
            goes_further = False
            for found, begin in matched(left_ends, left_begins):
                end = of_part.get(found.here, found)  # as an earlier pair left it
                here = begin.here
                rests_on_guess = end.state != end.part and (end.part, begin.border.key) in open_begins
                if (rest := self._rest(end, begin)) is None:
                    continue
                is_exact = end.border.is_sure and not rest and UNKNOWN not in begin.border.sequences
                if is_exact and not rests_on_guess and end.place == begin.place:
                    del left_ends[end], left_begins[begin]
                    open_begins.discard(here)
                    before[here] = end.part
                elif end.place != begin.place and self._holds_again(end, begin):
                    continue
                elif begin.state != end.state and guesses[here] < _MOST_GUESSES:
                    guesses[here] += 1
                    del left_begins[begin]
                    left_begins[begin._replace(state=end.state)] = None
                else:
                    continue
                self.crosses |= end.place != begin.place
                try:
                    later = self._go_on(end, begin, by_state.get((begin.state, begin.border.key)))
                except _DAMAGES:
                    later = None  # the edges are damaged: the frames across this border are lost
                if later is not None:  # in the place of the part's own, which knows no frame's boundary
                    left_ends.pop(of_part.get(here, later), None)
                    left_ends[later] = None
                    of_part[here] = later
                    goes_further = True
                if self._rows.full:
                    yield from self._rows.take()
            if goes_further or not guessed:
                continue
            pairs = matched(left_ends, left_begins)
            now = before | {begin.here: end.part for end, begin in pairs}
            wrong: set[tuple[str, bytes]] = set()
            for end, begin in sorted(guessed, key=lambda pair: pair[1].border.time_ns):
                here = begin.here
                if now.get(here) == end.part and (end.part, begin.border.key) not in wrong:
                    continue
                wrong.add(here)
                with suppress(*_DAMAGES):
                    self._take_back(end, begin)
                if begin not in left_begins:
                    continue  # something else was read before it since
                del left_begins[begin]
                left_begins[begin._replace(state=_TAKEN_BACK)] = None
                with suppress(*_DAMAGES):
                    self._count(begin, Counter(), end)
                    own = self._own_end(begin)
                    if own and (rested := of_part.get(here)) in left_ends:
                        del left_ends[rested]
                        left_ends[own[0]] = None
                        of_part[here] = own[0]
            guessed = [each for each in guessed if each[1].here not in wrong]
            goes_further = bool(wrong)
        yield from self._rows.take()
        self.connections = {each: self._first_id(each) for each in self.connections}
        self.ends = [each._replace(border=self._renamed(each.border)) for each in left_ends]
        self.begins = [each._replace(border=self._renamed(each.border)) if each.state else each for each in left_begins]

    def _first_id(self, conn_id: bytes) -> bytes:
        """Return the id of the earliest part that a connection is known to go on from."""
        while conn_id in self.connections:
            conn_id = self.connections[conn_id]
        return conn_id

    def _renamed(self, border: Border) -> Border:
        return border._replace(conn_id=self._first_id(border.conn_id))

    def places_set(self) -> set[str]:
        """Return the places where a connection goes on by a clock that was set meanwhile: to be read in order."""
        ends: dict[tuple[str, bytes], list[Edge]] = {}
        behind = {begin.here: begin.state for begin in self.begins}
        of_state = {(end.state, end.border.key): end for end in self.ends}
        for end in self.ends:
            key, former = end.border.key, end
            for _ in range(_MOST_STATES):
                if former.place != end.place or not (state := behind.get((former.part, key))):
                    break
                former = of_state.get((state, key), end._replace(place=""))
            if former.place != end.place:  # it was read by another's clock
                end = end._replace(state=end.part)
            ends.setdefault((end.place, key), []).append(end)
        found: set[str] = set()
        for begin in self.begins:
            for end in ends.get((begin.place, begin.border.key), ()):
                is_next = end.part != begin.part and overlap(end.border, begin.border) == 0
                if is_next and goes_on(end.border, begin.border) and self._was_set(end, begin):
                    found.add(begin.place)
        return found

    def _was_set(self, end: Edge, begin: Edge) -> bool:
        if end.border.time_ns - begin.border.time_ns > SET_NS:
            return True
        state, told = self._state(end.state), False
        with suppress(*_DAMAGES):
            told = state is not None and any(state.collector.was_set(*each) for each in self._first_segments(begin))
        return told

    def _go_on(self, end: Edge, begin: Edge, former: Edge | None) -> Edge | None:
        """Read the beginning behind the end, in the place of a former one that was guessed.

        Returns:
            Where the connection stands then, if no exchange was complete.
        """
        segments = self._first_segments(begin)
        behind = CaptureSummary()
        found = self._behind(end, self._rest(end, begin) or (), begin.file, behind)
        if found is None:
            return None
        collector, requests = found
        for each in segments:
            for event in requests.settled(collector.add_segment(*each)):
                self._rows.add_event(event)
        known = collector.connection(begin.border.flow)  # an end before the first request does not name it
        ids = [each for each in (end.border.conn_id, known and known.conn_id, begin.border.conn_id) if each]
        for conn_id in map(self._first_id, ids):
            if conn_id != (first := self._first_id(ids[0])):
                self.connections[conn_id] = first
        after = [each for each in collector.endings() if each.key == begin.border.key]
        later = None
        if after and not begin.border.is_sure:
            rest = _REST + begin.border.key
            kept = {name: data for name, data in self._segments.get(begin.part, {}).items() if name == rest}
            edges = edges_of(freeze((collector, CaptureSummary(), [*requests.waiting])), kept)
            self._end(collector, requests)
            if edges is not None:
                later = begin._replace(border=after[0], state=self._store(edges), file="")
        else:
            collector.end()
        if any(segment.on_wire for _time_ns, segment in segments):
            of_file = self.files.setdefault((begin.capture, begin.file), [])
            of_file += [] if begin.state else [begin.border.conn_id]
            self._count(begin, self._otherwise(end, begin, behind), former)
        return later

    def _count(self, begin: Edge, otherwise: Counter[str], former: Edge | None) -> None:
        """Note how ``MENDED`` change at a beginning, and no more as they did behind a former end."""
        first = begin._replace(state="")
        if first not in self._counted:
            self._counted[first] = Counter() if former is None else self._otherwise(former, begin)
        counts = self.counts.setdefault((begin.capture, begin.file), Counter())
        counts.subtract(self._counted[first])
        counts.update(otherwise)
        self._counted[first] = otherwise

    def _otherwise(self, end: Edge, begin: Edge, behind: CaptureSummary | None = None) -> Counter[str]:
        """Return how ``MENDED`` change where a beginning is read ``behind`` an end: each as if nothing came then."""
        segments = self._first_segments(begin)
        alone, before, rest = CaptureSummary(), CaptureSummary(), self._rest_of(end)
        _read_out((self._collector(begin.capture, alone), None), segments)
        if behind is None:
            behind = CaptureSummary()
            _read_out(self._behind(end, self._rest(end, begin) or (), summary=behind), segments)
        if rest or any(getattr(behind, name) for name in MENDED):
            # The earlier part may have counted it at its end, too.
            _read_out(self._behind(end, rest, summary=before, again=True))
            filled = self.filled.setdefault((begin.capture, begin.file), set())
            filled |= _gaps(end.border, before) - _gaps(end.border, behind)
        return Counter({name: getattr(behind, name) - getattr(alone, name) - getattr(before, name) for name in MENDED})

    def _collector(self, capture: str, summary: CaptureSummary) -> Collector:
        ports, apis = self._selection.ports, self._selection.scanned
        return Collector(summary, capture=capture, ports=ports, apis=apis, limit=DEFAULT_LIMIT)

    def _behind(
        self, end: Edge, rest: Any, file: str = "", summary: CaptureSummary | None = None, *, again: bool = False
    ) -> tuple[Collector, OpenRequests] | None:
        """Return what reads a connection on behind an end and a rest, and the requests open there."""
        flow, key = end.border.flow, end.border.key
        state = self._state(end.state, again=again)
        if state is not None and key in state.read:
            del self._states[end.state, again]
            state = self._state(end.state, again=again)
        if state is None:
            return None
        state.read.add(key)
        connection = state.collector.connection(flow)
        collector = self._collector(end.capture, summary or CaptureSummary())
        if not collector.adopt(state.collector, flow):
            return None
        collector.file = file
        requests = OpenRequests(self._selection, [each for each in state.waiting if each.connection is connection])
        for each in rest:
            for event in requests.settled(collector.add_segment(*each)):
                self._rows.add_event(event)
        return collector, requests

    def _rest(self, end: Edge, begin: Edge) -> list[tuple[int, Segment]] | None:
        """Return what there is of the packet between an end and a beginning; None: more is missing there."""
        missing = skipped(end.border, begin.border)
        rest = self._rest_of(end) if missing else []
        return rest if sum(each.on_wire for _time_ns, each in rest) == missing else None

    def _rest_of(self, end: Edge) -> list[tuple[int, Segment]]:
        """Return what there is of the packet within which a part ends."""
        with suppress(*_DAMAGES):
            return self._segments_of(end.state, _REST, end.border.key)
        return []

    def _first_segments(self, begin: Edge) -> list[tuple[int, Segment]]:
        return self._segments_of(begin.part, b"", begin.border.flow)

    def _segments_of(self, part: str, kind: bytes, flow: bytes) -> list[tuple[int, Segment]]:
        if part not in self._segments:
            self._state(part)
        packed = self._segments.get(part, {}).get(kind + min(flow, reverse(flow)), ())
        return [each for data in packed for each in unpacked_segments(flow, data)]

    def _holds_again(self, end: Edge, begin: Edge) -> bool:
        """Whether data behind a beginning was there before an end, too late to be sent again: by another clock."""
        with suppress(*_DAMAGES):
            for time_ns, segment in self._first_segments(begin):
                known = end.border.sequences[segment.flow != end.border.flow]
                is_again = segment.on_wire > 0 and distance(segment.sequence + segment.on_wire, known) <= 0
                if is_again and known != UNKNOWN and time_ns - end.border.time_ns > _SENT_AGAIN_NS:
                    return True
        return False

    def _end(self, collector: Collector, requests: OpenRequests) -> None:
        """Add rows as if nothing followed: others take their place where something does."""
        for event in requests.settled(collector.end()):
            self._rows.add_event(event)
        for request in requests.waiting:
            self._rows.add_frame(request)
            self._rows.add_unanswered(request)

    def _take_back(self, end: Edge, begin: Edge) -> None:
        """Take back what a beginning told of requests before an end; give what the end's part tells alone."""
        segments, found = self._first_segments(begin), self._behind(end, self._rest(end, begin) or ())
        if found is None:
            return
        collector, requests = found
        times = {time_ns for time_ns, _segment in segments}
        told: dict[bytes, bytes | None] = {}
        for events in (*(collector.add_segment(*each) for each in segments), collector.end()):
            for event in requests.settled(events):
                if isinstance(event, Exchange) and event.request and event.request.time_ns not in times:
                    told[event.request.frame_id] = event.response.frame_id if event.response else None
        told |= {each.frame_id: None for each in requests.waiting if each.time_ns not in times}
        self.taken_back.update(told.items())
        if (found := self._behind(end, self._rest_of(end))) is not None:
            self._end(*found)

    def _own_end(self, begin: Edge) -> list[Edge]:
        """Return where a beginning's connection stands at the end of its part, as that tells alone."""
        own = begin._replace(state=begin.part, file="")
        found = self._behind(own, ())
        return [own._replace(border=border) for border in found[0].endings()] if found else []

    def _state(self, name: str, *, again: bool = False) -> _Standing | None:
        if (name, again) not in self._states:
            if len(self._states) >= _MOST_STATES:
                self._states.clear()
                self._segments.clear()
            self._states[name, again] = None
            if (data := self._load(name)) is not None:
                with suppress(ValueError, TypeError):  # they are damaged: the frames across this border are lost
                    state, segments = thaw(data)
                    if isinstance(segments, dict):
                        self._segments[name] = segments
                    if isinstance(state, bytes):
                        collector, _summary, waiting = thaw(state)
                        if isinstance(collector, Collector):
                            self._states[name, again] = _Standing(collector, waiting, set())
        return self._states[name, again]


def _gaps(border: Border, summary: CaptureSummary) -> set[tuple[bytes, str, int]]:
    return {(border.conn_id, each.direction, each.time_ns // 1000) for each in summary.losses if each.kind == "gap"}


def _read_out(found: tuple[Collector, object] | None, segments: Iterable[tuple[int, Segment]] = ()) -> None:
    """Read segments, and the end behind them, for what is counted then."""
    if found is not None:
        for each in segments:
            found[0].add_segment(*each)
        found[0].end()


class _Standing(NamedTuple):
    """A reader's state, with the requests that wait there, and the keys of connections that were read on."""

    collector: Collector
    waiting: list[Frame]
    read: set[bytes]
