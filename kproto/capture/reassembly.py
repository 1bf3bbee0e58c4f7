"""TCP reassembly: segments -> each direction's bytes in order, once each; lost bytes are reported, never made up.

The first data seen for a position wins. A hole is given up when its bytes were acknowledged by the receiver (so they
passed, and the capture missed them), when too many bytes are kept behind it, or after a timeout: before the next
segment of the connection is taken.

What becomes of a connection depends on its own segments and their times alone, so that any part of a capture that holds
them gives the same bytes; other connections matter only where a limit of the whole is reached, which is counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from .link import ACK, FIN, RST, SYN, Segment, reverse, ticks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .summary import CaptureSummary

HELD_LIMIT: Final = 8 << 20
"""Bytes that may wait behind a hole in one direction; each segment counts for its overhead too."""

_SEGMENT_OVERHEAD: Final = 120

_ACKNOWLEDGED_NS: Final = 20_000_000
"""Captures may show an acknowledgement a little before the data (several queues of one card): so long is waited."""

_PATIENCE_NS: Final = 30_000_000_000
_ONE_SIDED_PATIENCE_NS: Final = 3_000_000_000
"""The time for which a hole without acknowledgement is kept; shorter if the capture lacks the other side."""

_COMPACTED: Final = 64

_TOLD_NS = 200_000_000  # a stream's sender is asked for its own clock again after so long; C's number where compiled

SET_NS: Final = 500_000_000
"""The least by which a recorder's clock is taken to be set."""

UNKNOWN: Final = -1
"""``Stream.next`` while no sequence number is known."""


NEVER: Final = (1 << 63) - 1
"""``Stream.due_ns`` without a hole that has a deadline."""


def advance(sequence: int, length: int) -> int:
    """The sequence number this number of bytes later."""
    return (sequence + length) & 0xFFFFFFFF


def distance(sequence: int, reference: int) -> int:
    """How far ahead of a reference a sequence number is, modulo 2**32: negative if it lies behind."""
    return ((sequence - reference + 0x80000000) & 0xFFFFFFFF) - 0x80000000


class Stream:
    """One direction of a connection.

    Its methods append ``StreamEvent`` values to a list.

    Attributes:
        connection: The connection.
        peer: The other direction.
        side: 0 for that of the connection's first packet, 1 for the other.
        next: The sequence number expected next, ``UNKNOWN`` until one is known.
        offset: Its stream offset.
        first: The sequence number at stream offset 0.
        start: The initial sequence number, None if the handshake was not seen.
        seen: Whether the capture holds a packet of this direction.
        active_ns: Time of the last one.
        finish: Stream offset of the FIN, -1 while none was seen.
        closed: Whether the stream has ended.
        ignored: Whether nobody reads the stream: none of its bytes are kept.
        ended_unread: Whether it ended before a byte of the connection was read.
        held_bytes: Bytes kept behind holes, with their overhead.
        due_ns: When a hole is to be given up, at the earliest; ``NEVER`` without one.
        ticks: What the sender's own clock showed at ``told_ns``, by TCP's option; -1: unknown.
        is_timed: Whether that clock counts milliseconds.
    """

    def __init__(self, connection: TcpConnection, side: int) -> None:
        self.connection: TcpConnection = connection
        self.peer: Stream = self  # the connection joins both
        self.side: int = side
        self.next: int = UNKNOWN
        self.offset: int = 0
        self.first: int = 0
        self.start: int | None = None
        self.seen: bool = False
        self.active_ns: int = 0
        self.finish: int = -1
        self.closed: bool = False
        self.ignored: bool = False
        self.ended_unread: bool = False
        self._held: list[tuple[int, int, bytes]] | None = None  # (offset, time, data) behind holes, no overlap
        self._held_from = 0  # entries before this one were delivered
        self.held_bytes: int = 0
        self.acknowledged: int = 0  # the other side has acknowledged every byte before this offset
        self.acknowledged_ns: int = 0
        self.hole_ns: int = 0  # when the hole at ``offset`` was first met
        self.far: tuple[int, int, bytes] | None = None
        self.due_ns: int = NEVER
        self.ticks: int = -1
        self.told_ns: int = 0
        self.is_timed: bool = False

    def set_by(self, time_ns: int, segment: Segment) -> int:
        """By how much the recorder's clock was set since ``told_ns``, by the sender's; ``NEVER``: unknown."""
        ticks = ticks_of(segment)
        if ticks < 0 or not self.is_timed:
            return NEVER
        passed_ns = distance(ticks, self.ticks) * 1_000_000
        set_ns = time_ns - self.told_ns - passed_ns
        return set_ns if abs(set_ns) > SET_NS + passed_ns // 1000 else 0  # clocks run at different speeds

    def tell(self, time_ns: int, segment: Segment) -> None:
        """Take what the sender's clock shows."""
        ticks = ticks_of(segment)
        passed_ms = (time_ns - self.told_ns) // 1_000_000
        self.is_timed = ticks >= 0 <= self.ticks and 10 * abs(distance(ticks, self.ticks) - passed_ms) < passed_ms
        self.ticks, self.told_ns = ticks, time_ns

    @property
    def has_hole(self) -> bool:
        """Whether bytes are missing at the moment."""
        return not self.closed and (self.held_bytes > 0 or self.acknowledged > self.offset)

    def begin(self, initial: int) -> None:
        """Take the initial sequence number from the handshake."""
        self.start = initial
        self.next = self.first = advance(initial, 1)

    def hold(self, offset: int, data: bytes, time_ns: int) -> None:
        """Keep data behind a hole; bytes that are kept already win over a copy."""
        held = self._held
        if held is None:
            held = self._held = []
        end = offset + len(data)
        at, begin = offset, offset
        i = bisect_right(held, at, lo=self._held_from, key=_offset_of)
        if i > self._held_from and held[i - 1][0] + len(held[i - 1][2]) > at:
            at = held[i - 1][0] + len(held[i - 1][2])
        while at < end:
            stop = min(end, held[i][0]) if i < len(held) else end
            if stop > at:
                held.insert(i, (at, time_ns, data[at - begin : stop - begin]))
                self.held_bytes += stop - at + _SEGMENT_OVERHEAD
                i += 1
            if stop == end:
                break
            at = held[i][0] + len(held[i][2])
            i += 1

    def drain(self, events: list[StreamEvent], time_ns: int) -> None:
        """Deliver the kept data that follows without a hole."""
        held = self._held
        if held is not None:
            n = first = self._held_from
            while n < len(held) and held[n][0] == self.offset:
                _, when, data = held[n]
                self.held_bytes -= len(data) + _SEGMENT_OVERHEAD
                self.give(events, data, when)
                held[n] = (self.offset, 0, b"")
                n += 1
            if n > first:
                self.hole_ns = time_ns
                self._held_from = n
                if n == len(held):
                    self._release()
                elif n > _COMPACTED and 2 * n > len(held):
                    del held[:n]
                    self._held_from = 0
        if self.finish == self.offset and not self.closed:
            self._end(events, time_ns)
            self.next = advance(self.next, 1)

    def give(self, events: list[StreamEvent], data: bytes, time_ns: int) -> None:
        """Deliver the next bytes."""
        offset, length = self.offset, len(data)
        self.next = advance(self.next, length)
        self.offset = offset + length
        events.append((self, offset, data, 0, length, time_ns))

    def give_up(self, events: list[StreamEvent], until: int, time_ns: int) -> None:
        """Declare the bytes before ``until`` lost."""
        offset = self.offset
        self.next = advance(self.next, until - offset)
        self.offset = until
        self.hole_ns = time_ns
        events.append((self, offset, None, 0, until - offset, time_ns))
        self.drain(events, time_ns)

    def give_up_at(self) -> int | None:
        """When the hole is to be given up unless it is filled; None if there is no hole, or if it has no deadline."""
        missing = self.acknowledged - self.offset
        if not self.has_hole or (missing == 1 and not self.held_bytes):  # that may be a FIN that the capture lacks
            return None
        due_ns = self.hole_ns + (_PATIENCE_NS if self.peer.seen else _ONE_SIDED_PATIENCE_NS)
        return min(due_ns, self.acknowledged_ns + _ACKNOWLEDGED_NS) if missing > 0 else due_ns

    def give_up_holes(self, events: list[StreamEvent], time_ns: int, *, down_to: int | None = None) -> None:
        """Give up the holes that can no longer be filled.

        Args:
            events: The events are appended here.
            time_ns: The current time in the capture.
            down_to: Give up further holes until at most this number of bytes is kept; 0 gives up all holes.
        """
        while (due_ns := self.give_up_at()) is not None:
            is_forced = down_to is not None and (not down_to or self.held_bytes > down_to)
            if not is_forced and due_ns > time_ns:
                return
            end = self._held[self._held_from][0] if self._held and self.held_bytes else self.acknowledged
            if not is_forced and self.offset < self.acknowledged and time_ns - self.acknowledged_ns >= _ACKNOWLEDGED_NS:
                end = min(end, self.acknowledged)
            self.give_up(events, end, time_ns)

    def close(self, events: list[StreamEvent], time_ns: int) -> None:
        """End the stream: deliver the kept data and accept no more."""
        self.give_up_holes(events, time_ns, down_to=0)
        if not self.closed:
            self._end(events, time_ns)
        self.far = None

    def _end(self, events: list[StreamEvent], time_ns: int) -> None:
        self.closed = True
        self._release()
        events.append((self, -1, None, 0, 0, time_ns))

    def _release(self) -> None:
        self._held = None
        self._held_from = self.held_bytes = 0


StreamEvent: TypeAlias = tuple[Stream, int, bytes | None, int, int, int]
"""Bytes of a stream: the stream, a stream offset, a buffer, the bytes' begin and end in it, and their time. Without a
buffer a loss: the fifth element is the number of bytes that are missing
from that offset on; at offset -1 the end of the stream."""


class TcpConnection:
    """A TCP connection: both directions.

    Attributes:
        file: Name of the file with its newest packet.
        flow: Addresses and ports, those of the first packet's sender first.
        opened_ns: Time of the first packet.
        client: The direction whose sender opened the connection, None if the handshake is not in the capture.
        streams: Both directions; the first is that of the first packet's sender.
        opening: Whether it began with a SYN, and no data or answer to it is known of yet.
        over: Whether the connection has ended.
        closed_ns: When it ended.
        beginning: The segments so far of a connection that began before the recording, as long as its first exchange
            is not complete; None of others.
        begun: These segments, once it is complete.
    """

    def __init__(self, flow: bytes, time_ns: int) -> None:
        a, b = Stream(self, 0), Stream(self, 1)
        a.peer, b.peer = b, a
        self.streams: tuple[Stream, Stream] = (a, b)
        self.file: str = ""
        self.flow: bytes = flow
        self.opened_ns: int = time_ns
        self.client: Stream | None = None
        self.opening: bool = False
        self.over: bool = False
        self.closed_ns: int = 0
        self.beginning: list[tuple[int, Segment]] | None = None
        self.begun: list[tuple[int, Segment]] | None = None

    def has_begun(self) -> None:
        """Note that the first exchange is complete: what follows depends on nothing before the recording."""
        if self.beginning is not None:
            self.begun, self.beginning = self.beginning, None

    @property
    def is_unanswered(self) -> bool:
        """Whether the capture holds packets of one side alone, without data."""
        a, b = self.streams
        return not (a.offset or a.held_bytes or b.offset or b.held_bytes or (a.seen and b.seen))

    def flow_of(self, stream: Stream) -> bytes:
        """The flow in one direction, its sender first."""
        return self.flow if stream is self.streams[0] else reverse(self.flow)


def _offset_of(segment: tuple[int, int, bytes]) -> int:
    return segment[0]


MOST_CONNECTIONS: Final = 50_000
"""The most connections that are followed at a time; beyond it the longest silent ones are given up."""

MOST_HELD: Final = 64 << 20
"""The most bytes kept behind the holes of all connections; beyond it the oldest holes are given up."""

_FAR: Final = 64 << 20
"""A segment this far from its stream's next byte (no window is larger) is stray or of another connection."""

_LINGER_NS: Final = 60_000_000_000
"""For how long late copies of a finished connection's segments open no new one, and an opening may be unanswered."""

_MOST_HANDSHAKES: Final = 1024
"""The most openings that are looked for in the next file, the newest: a flood of them would fill the tables."""

_SAME_OPENING_NS: Final = 1_000_000_000
"""For how long after a connection's end its first sequence number is that of a copy of its opening. Linux uses a port
again after a second; recordings may begin each connection with the same number."""

_LINGERING: Final = 20_000
"""The most finished connections, and unanswered openings, that are remembered. No time limits them, since captures do
not hold the packets of different connections in the order of time."""

_MOST_BEGINNING: Final = 64 << 20
"""The most bytes of segments that are kept of the beginnings of all connections."""

_NOTHING: Final[Sequence[StreamEvent]] = ()


class Reassembler:
    """All connections of a capture point.

    Args:
        summary: Counts go there.
        most_connections: Connections that are followed at a time.
        most_held: The most bytes kept behind the holes of all connections.

    Attributes:
        file: Name of the file that the next segments are from.
        keeps_beginnings: Whether to keep ``TcpConnection.beginning``.
        strays: The first segments without data that end a connection of which the recording holds nothing else.
    """

    def __init__(
        self, summary: CaptureSummary, *, most_connections: int = MOST_CONNECTIONS, most_held: int = MOST_HELD
    ) -> None:
        self.file = ""
        self._summary = summary
        self._most_connections = most_connections
        self._most_held = most_held
        self._streams: dict[bytes, Stream] = {}
        self._with_holes: dict[Stream, None] = {}  # the oldest hole first
        self._held = 0
        self._finished: deque[TcpConnection] = deque()
        self.keeps_beginnings = False
        self.strays: list[tuple[int, Segment]] = []
        self._beginning_bytes = 0
        self._handshakes: deque[TcpConnection] = deque()

    def in_order(self, time_ns: int, segment: Segment) -> Stream | None:
        """Take a segment that does no more than continue its stream; else return None: ``segment`` must take it.

        Returns:
            The stream, whose offset is behind the segment's payload now.
        """
        stream = self._streams.get(segment.flow)
        if (
            stream is None
            or segment.sequence != stream.next
            or segment.flags & (SYN | FIN | RST)
            or (segment.flags & ACK and segment.acknowledged != stream.peer.next)
            or segment.end - segment.begin != segment.on_wire
            or stream.held_bytes
            or stream.finish >= 0
            or stream.ignored
            or stream.connection.over
            or stream.connection.opening
            or stream.connection.beginning is not None
            or stream.due_ns <= time_ns
            or stream.peer.due_ns <= time_ns
        ):
            return None
        stream.seen = True
        stream.active_ns = time_ns
        if time_ns - stream.told_ns > _TOLD_NS:
            stream.tell(time_ns, segment)
        stream.connection.file = self.file
        stream.next = (segment.sequence + segment.on_wire) & 0xFFFFFFFF
        stream.offset += segment.on_wire
        return stream

    def segment(self, time_ns: int, segment: Segment) -> Sequence[StreamEvent]:
        """Take the next segment of the capture; return the events that it causes."""
        sequence, flags, buffer = segment.sequence, segment.flags, segment.buffer
        begin, end, on_wire = segment.begin, segment.end, segment.on_wire
        stream = self._streams.get(segment.flow)
        events: list[StreamEvent] | None = None
        if stream is not None:
            stream.connection.file = self.file
            if stream.connection.opening and self._opened_in_vain(stream.connection, time_ns):
                stream = None
            elif stream.due_ns <= time_ns or stream.peer.due_ns <= time_ns:
                events = []
                self._give_up_due(events, stream, time_ns)
        if stream is None or flags & (SYN | RST) or stream.connection.over:
            if events is None:
                events = []
            stream = self._unusual(events, time_ns, segment, stream)
            if stream is None:
                return events
        if stream.connection.beginning is not None:
            self._note_beginning(stream.connection, time_ns, segment)
        stream.seen = True
        stream.active_ns = time_ns
        if time_ns - stream.told_ns > _TOLD_NS:
            stream.tell(time_ns, segment)
        if flags & ACK and segment.acknowledged != stream.peer.next:
            self._acknowledge(stream.peer, segment.acknowledged, time_ns)
        if on_wire or begin != end:
            if events is None:
                events = []
            if sequence == stream.next and not stream.held_bytes and stream.finish < 0:
                length = end - begin
                offset = stream.offset
                stream.next = (sequence + length) & 0xFFFFFFFF
                stream.offset = offset + length
                if length and not stream.ignored:
                    events.append((stream, offset, buffer, begin, end, time_ns))
                if on_wire > length:
                    stream.give_up(events, offset + on_wire, time_ns)
            else:
                self._out_of_order(events, stream, time_ns, sequence, buffer[begin:end])
        if flags & FIN:
            if events is None:
                events = []
            self._finish(events, stream, advance(sequence, on_wire), time_ns)
        return _NOTHING if events is None else events

    def end(self, time_ns: int) -> Sequence[StreamEvent]:
        """End the capture: give up all holes, end all streams."""
        events: list[StreamEvent] = []
        for stream in list(self._streams.values()):
            if not stream.connection.over:
                self._close(events, stream.connection, time_ns)
        self._streams.clear()
        return events

    def stream(self, flow: bytes) -> Stream | None:
        """The stream of a flow, None where no connection is followed."""
        return self._streams.get(flow)

    def adopt(self, other: Reassembler, flow: bytes) -> TcpConnection | None:
        """Follow a flow's connection that another one, of the same capture point, has followed so far; return it."""
        if (stream := other.stream(flow)) is None:
            return None
        connection = stream.connection
        for each in connection.streams:
            self._streams[connection.flow_of(each)] = each
            self._held += each.held_bytes
            if each in other._with_holes:
                self._with_holes[each] = None
        if connection.over:
            self._finished.append(connection)
        elif connection.opening:
            self._handshakes.append(connection)
        return connection

    def handshakes(self, time_ns: int) -> list[TcpConnection]:
        """The newest connections that were opened, at a time not in vain yet, and on which no data has passed."""
        every = dict.fromkeys(stream.connection for stream in self._streams.values())
        found = [
            each
            for each in every
            if each.client is not None
            and not any(end.offset for end in each.streams)
            and not (each.is_unanswered and time_ns > each.opened_ns + _LINGER_NS)
        ]
        return found[-_MOST_HANDSHAKES:]

    def ignore(self, connection: TcpConnection) -> None:
        """Ignore a connection from now on: deliver and keep nothing more of it."""
        for stream in connection.streams:
            stream.ignored = True
        connection.beginning = connection.begun = None

    def _unusual(
        self, events: list[StreamEvent], time_ns: int, segment: Segment, stream: Stream | None
    ) -> Stream | None:
        """Handle openings, resets and unknown flows.

        Returns:
            The stream that the segment's data belongs to, None if the segment needs no more work.
        """
        flow, sequence, acknowledged, flags = segment.flow, segment.sequence, segment.acknowledged, segment.flags
        if stream is not None and stream.connection.over and time_ns > stream.connection.closed_ns + _LINGER_NS:
            self._forget(stream.connection)
            stream = None
        is_stray = stream is None and flags & (FIN | RST) and segment.begin == segment.end
        if is_stray and len(self.strays) < _LINGERING:
            self.strays.append((time_ns, Segment(flow, sequence, acknowledged, flags, b"", 0, 0, 0)))
        if flags & RST:
            if stream is not None and not stream.connection.over:
                self._close(events, stream.connection, time_ns)
            return None
        if flags & SYN:
            if stream is not None and stream.start == sequence:
                over = stream.connection.over
                if not over or time_ns <= stream.connection.closed_ns + _SAME_OPENING_NS:
                    return None  # a copy of the opening
            first = advance(sequence, 1)
            if stream is not None and flags & ACK and stream.peer.start is not None and stream.next in (UNKNOWN, first):
                stream.begin(sequence)  # the answer to the opening
                stream.seen = True
                stream.active_ns = time_ns
                return None
            if stream is not None and not stream.connection.over:
                self._close(events, stream.connection, time_ns)
            stream = self._open(events, flow, time_ns)
            stream.begin(sequence)
            stream.seen = True
            stream.connection.client = stream.peer if flags & ACK else stream
            stream.connection.opening = True
            self._handshakes.append(stream.connection)
            self._forget_unanswered()
            if flags & ACK:
                stream.peer.begin(advance(acknowledged, -1))
            if segment.begin != segment.end:  # TCP fast open
                self._out_of_order(events, stream, time_ns, first, segment.buffer[segment.begin : segment.end])
            return None
        if segment.begin == segment.end:
            return None
        is_first = stream is None
        if stream is not None:
            if stream.next == UNKNOWN or -HELD_LIMIT < distance(advance(sequence, segment.on_wire), stream.next) <= 0:
                return None  # a late copy
            if -HELD_LIMIT < distance(sequence, stream.next) < 0:
                sequence = stream.next
        stream = self._open(events, flow, time_ns)  # behind an end these bytes were on their way, or it was none
        if self.keeps_beginnings and is_first:
            stream.connection.beginning = []
        stream.next = stream.first = sequence
        if flags & ACK:
            stream.peer.next = stream.peer.first = acknowledged
        return stream

    def _note_beginning(self, connection: TcpConnection, time_ns: int, segment: Segment) -> None:
        assert connection.beginning is not None
        begin = min(segment.begin, 12)  # where ``ticks_of`` looks
        kept = segment.buffer[segment.begin - begin : segment.end]
        flow, flags, on_wire = segment.flow, segment.flags, segment.on_wire
        copy = Segment(flow, segment.sequence, segment.acknowledged, flags, kept, begin, len(kept), on_wire)
        connection.beginning.append((time_ns, copy))
        self._beginning_bytes += len(kept) + _SEGMENT_OVERHEAD
        if self._beginning_bytes > _MOST_BEGINNING:
            connection.beginning = None

    def _open(self, events: list[StreamEvent], flow: bytes, time_ns: int) -> Stream:
        connection = TcpConnection(flow, time_ns)
        connection.file = self.file
        stream, peer = connection.streams
        stream.active_ns = peer.active_ns = time_ns
        self._streams[flow], self._streams[reverse(flow)] = stream, peer
        if len(self._streams) > 2 * self._most_connections:
            self._give_up_silent(events, time_ns)
        return stream

    def _give_up_silent(self, events: list[StreamEvent], time_ns: int) -> None:
        """Forget the longest silent connections: an eighth of all, so that the search for them is rare."""
        connections = {stream.connection: None for stream in self._streams.values()}
        by_silence = sorted(connections, key=lambda c: (not c.over, max(s.active_ns for s in c.streams)))
        newest = next(reversed(connections))
        for connection in by_silence[: max(1, len(by_silence) // 8)]:
            if connection is newest:
                continue
            if not connection.over:
                self._summary.given_up["connections"] += 1
                self._close(events, connection, time_ns)
            self._forget(connection)

    def _out_of_order(
        self, events: list[StreamEvent], stream: Stream, time_ns: int, sequence: int, data: bytes
    ) -> None:
        if stream.next == UNKNOWN:
            stream.next = stream.first = sequence
            events.append((stream, stream.offset, None, 0, 0, time_ns))  # the bytes before it are unknown
        ahead = distance(sequence, stream.next)
        if abs(ahead) > _FAR:
            if stream.far is not None and stream.far[0] == sequence:
                self._jump(events, stream, time_ns, sequence, data)
            else:
                stream.far = ((sequence + len(data)) & 0xFFFFFFFF, time_ns, data)
            return
        offset = stream.offset + ahead
        if ahead < 0:
            if offset + len(data) <= stream.offset:
                self._summary.resent += 1
                return
            data, offset = data[-ahead:], stream.offset
        if stream.closed or not data:
            return
        if stream.ignored:
            stream.next, stream.offset = advance(sequence, len(data)), offset + len(data)
            return
        if not stream.held_bytes:
            if offset == stream.offset:
                stream.give(events, data, time_ns)
                stream.drain(events, time_ns)
                return
            stream.hole_ns = time_ns
        before = stream.held_bytes
        stream.hold(offset, data, time_ns)
        stream.drain(events, time_ns)
        if stream.held_bytes > HELD_LIMIT:
            stream.give_up_holes(events, time_ns, down_to=HELD_LIMIT)
        self._held += stream.held_bytes - before
        self._watch(stream)
        while self._held > self._most_held and self._with_holes:
            oldest = next(iter(self._with_holes))
            self._summary.given_up["holes"] += 1
            self._give_up_holes(events, oldest, time_ns, down_to=0)

    def _jump(self, events: list[StreamEvent], stream: Stream, time_ns: int, sequence: int, data: bytes) -> None:
        """Take two segments in a row far from their stream: the capture lacks much, or ports were used again."""
        assert stream.far is not None
        _, when, first = stream.far
        stream.far = None
        if distance(sequence, stream.next) > 0:
            self._give_up_holes(events, stream, time_ns, down_to=0)
            stream.finish = -1
            stream.give_up(events, stream.offset + distance(sequence, stream.next) - len(first), time_ns)
        else:
            connection = stream.connection
            flow = connection.flow_of(stream)
            self._close(events, connection, time_ns)
            stream = self._open(events, flow, when)
            stream.seen = True
            stream.next = stream.first = advance(sequence, -len(first))
        stream.give(events, first, when)
        stream.give(events, data, time_ns)

    def _acknowledge(self, stream: Stream, acknowledged: int, time_ns: int) -> None:
        if stream.next == UNKNOWN:
            stream.next = stream.first = acknowledged
            return  # where the handshake was seen, this is its third step
        ahead = distance(acknowledged, stream.next)
        if not 0 < ahead <= _FAR or stream.offset + ahead <= stream.acknowledged or stream.ignored:
            return
        if stream.acknowledged <= stream.offset:
            stream.acknowledged_ns = time_ns
            if not stream.held_bytes:
                stream.hole_ns = time_ns
        stream.acknowledged = stream.offset + ahead
        self._watch(stream)

    def _finish(self, events: list[StreamEvent], stream: Stream, sequence: int, time_ns: int) -> None:
        if stream.closed or stream.next == UNKNOWN or distance(sequence, stream.next) < 0:
            return
        stream.finish = stream.offset + distance(sequence, stream.next)
        before = stream.held_bytes
        stream.drain(events, time_ns)
        self._held += stream.held_bytes - before
        self._close_if_done(events, stream.connection, time_ns)

    def _close_if_done(self, events: list[StreamEvent], connection: TcpConnection, time_ns: int) -> None:
        if not connection.over and all(stream.closed for stream in connection.streams):
            self._close(events, connection, time_ns)

    def _close(self, events: list[StreamEvent], connection: TcpConnection, time_ns: int) -> None:
        connection.over = True
        connection.closed_ns = time_ns
        client = connection.client or connection.streams[0]
        for stream in (client, client.peer):  # requests first: a response may wait for its request
            self._held -= stream.held_bytes
            stream.close(events, time_ns)
            stream.due_ns = NEVER
            self._with_holes.pop(stream, None)
        self._finished.append(connection)
        if len(self._finished) > _LINGERING:
            self._forget(self._finished.popleft())

    def _opened_in_vain(self, connection: TcpConnection, time_ns: int) -> bool:
        """Forget an opening that was not answered in time; note if it was answered, or followed by data."""
        if not connection.is_unanswered:
            connection.opening = False
        elif time_ns > connection.opened_ns + _LINGER_NS:
            self._forget(connection)
            return True
        return False

    def _forget_unanswered(self) -> None:
        """Forget the oldest of many unanswered openings, so that port scans do not fill the memory."""
        if len(self._handshakes) > _LINGERING:
            connection = self._handshakes.popleft()
            if connection.is_unanswered and not connection.over:
                self._forget(connection)

    def _forget(self, connection: TcpConnection) -> None:
        for flow in (connection.flow, reverse(connection.flow)):
            stream = self._streams.get(flow)
            if stream is not None and stream.connection is connection:
                del self._streams[flow]

    # ---- holes ----

    def _watch(self, stream: Stream) -> None:
        """Note when a hole is to be given up."""
        due_ns = stream.give_up_at()
        if due_ns is None:
            self._with_holes.pop(stream, None)
            stream.due_ns = NEVER
            return
        self._with_holes.setdefault(stream)
        stream.due_ns = min(stream.due_ns, due_ns)

    def _give_up_due(self, events: list[StreamEvent], stream: Stream, time_ns: int) -> None:
        """Give up the holes of a stream and its peer that are due."""
        for each in (stream, stream.peer):
            if each.due_ns <= time_ns:
                each.due_ns = NEVER
                if each in self._with_holes:
                    self._give_up_holes(events, each, time_ns)
                    self._close_if_done(events, each.connection, time_ns)

    def _give_up_holes(
        self, events: list[StreamEvent], stream: Stream, time_ns: int, *, down_to: int | None = None
    ) -> None:
        before = stream.held_bytes
        stream.give_up_holes(events, time_ns, down_to=down_to)
        self._held += stream.held_bytes - before
        self._with_holes.pop(stream, None)
        self._watch(stream)
