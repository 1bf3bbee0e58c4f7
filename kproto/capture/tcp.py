"""One direction of a TCP connection: its next byte, the data behind holes, and when holes are given up."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, TypeAlias

from .link import reverse

__all__ = ["HELD_LIMIT", "NEVER", "UNKNOWN", "Stream", "StreamEvent", "TcpConnection", "advance", "distance"]

HELD_LIMIT: Final = 8 << 20
"""Bytes that may wait behind a hole in one direction; each segment counts for its overhead too."""

_SEGMENT_OVERHEAD: Final = 120

_ACKNOWLEDGED_NS: Final = 20_000_000
"""Captures may show an acknowledgement a little before the data (several queues of one card): so long is waited."""

_PATIENCE_NS: Final = 30_000_000_000
_ONE_SIDED_PATIENCE_NS: Final = 3_000_000_000
"""How long a hole may stand that nobody acknowledged; shorter if the other side is not in the capture at all."""

_COMPACTED: Final = 64

UNKNOWN: Final = -1
"""``Stream.next`` while no sequence number is known."""


NEVER: Final = (1 << 63) - 1
"""``Stream.due_ns`` without a hole that has a deadline."""


def advance(sequence: int, length: int) -> int:
    """The sequence number so many bytes later."""
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
        start: The initial sequence number, None if the handshake was not seen.
        seen: Whether the capture holds a packet of this direction.
        active_ns: Time of the last one.
        finish: Stream offset of the FIN, -1 while none was seen.
        closed: Whether the stream has ended.
        ignored: Whether nobody reads the stream: none of its bytes are kept.
        ended_unread: Whether it ended before a byte of the connection was read.
        held_bytes: Bytes kept behind holes, with their overhead.
        due_ns: When a hole is to be given up, at the earliest; ``NEVER`` without one.
    """

    __slots__ = (
        "_held",
        "_held_from",
        "acknowledged",
        "acknowledged_ns",
        "active_ns",
        "closed",
        "connection",
        "due_ns",
        "ended_unread",
        "far",
        "finish",
        "held_bytes",
        "hole_ns",
        "ignored",
        "next",
        "offset",
        "peer",
        "seen",
        "side",
        "start",
    )

    peer: Stream

    def __init__(self, connection: TcpConnection, side: Literal[0, 1]) -> None:
        self.connection = connection
        self.side: Literal[0, 1] = side
        self.next = UNKNOWN
        self.offset = 0
        self.start: int | None = None
        self.seen = False
        self.active_ns = 0
        self.finish = -1
        self.closed = False
        self.ignored = False
        self.ended_unread = False
        self._held: list[tuple[int, int, bytes]] | None = None  # (offset, time, data) behind holes, no overlap
        self._held_from = 0  # entries before this one were delivered
        self.held_bytes = 0
        self.acknowledged = 0  # the other side has acknowledged every byte before this offset
        self.acknowledged_ns = 0
        self.hole_ns = 0  # when the hole at ``offset`` was first met
        self.far: tuple[int, int, bytes] | None = None
        self.due_ns = NEVER

    @property
    def holds(self) -> bool:
        """Whether data waits behind a hole."""
        return self.held_bytes > 0

    @property
    def has_hole(self) -> bool:
        """Whether bytes are missing at the moment."""
        return not self.closed and (self.held_bytes > 0 or self.acknowledged > self.offset)

    @property
    def is_even(self) -> bool:
        """Whether all bytes sent so far were given out, and more may come."""
        return not (self.has_hole or self.closed) and self.finish < 0 and self.far is None and self.next != UNKNOWN

    def go_to(self, sequence: int, offset: int) -> None:
        """Go on at a later place of the stream: the bytes before it are read elsewhere."""
        self.next = sequence
        self.offset = self.acknowledged = offset

    def begin(self, initial: int) -> None:
        """Take the initial sequence number from the handshake."""
        self.start = initial
        self.next = advance(initial, 1)

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
            down_to: Give up further holes until at most so many bytes are kept; 0 gives up all holes.
        """
        while self.has_hole:
            end = self._held[self._held_from][0] if self._held and self.held_bytes else self.acknowledged
            if down_to is not None and (not down_to or self.held_bytes > down_to):
                pass
            elif self.acknowledged > self.offset and time_ns - self.acknowledged_ns >= _ACKNOWLEDGED_NS:
                end = min(end, self.acknowledged)
            elif time_ns - self.hole_ns < (_PATIENCE_NS if self.peer.seen else _ONE_SIDED_PATIENCE_NS):
                return
            if not self.held_bytes and end - self.offset == 1:
                return  # that may be a FIN that the capture lacks
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
buffer a loss: so many bytes (the fifth element) from that offset on; at offset -1 the end of the stream."""


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
    """

    __slots__ = ("client", "closed_ns", "file", "flow", "opened_ns", "opening", "over", "streams")

    def __init__(self, flow: bytes, time_ns: int) -> None:
        a, b = Stream(self, 0), Stream(self, 1)
        a.peer, b.peer = b, a
        self.streams = (a, b)
        self.file = ""
        self.flow = flow
        self.opened_ns = time_ns
        self.client: Stream | None = None
        self.opening = False
        self.over = False
        self.closed_ns = 0

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
