"""TCP segments -> each direction's bytes in order, once each; what the capture lost is told, never made up.

The first data seen for a position wins. A hole is given up when its bytes were acknowledged by the receiver (so they
passed, and the capture missed them), when too much waits behind it, or when nothing has filled it for long.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from .link import ACK, FIN, RST, SYN, reverse
from .tcp import HELD_LIMIT, Half, TcpConnection, advance, distance

if TYPE_CHECKING:
    from collections.abc import Callable

    from .link import Segment
    from .summary import CaptureSummary

__all__ = ["Reassembler"]

_MASK: Final = 0xFFFFFFFF

_FAR: Final = 64 << 20
"""Further from its stream than any window, a segment is a stray or belongs to another connection."""

_SWEEP_NS: Final = 10_000_000

_LINGER_NS: Final = 60_000_000_000
_LINGERING: Final = 20_000
"""A finished connection is remembered so long, and so many, that late copies of its segments do not make a new one."""


class Reassembler:
    """All connections of a capture.

    Args:
        opened: Called with each new connection when its first data comes; sets the halves' streams.
        summary: Counts go there.
    """

    def __init__(self, opened: Callable[[TcpConnection], None], summary: CaptureSummary) -> None:
        self._opened = opened
        self._summary = summary
        self._halves: dict[bytes, Half] = {}
        self._troubled: dict[Half, None] = {}
        self._next_sweep = 0
        self._over: deque[tuple[int, TcpConnection]] = deque()
        self._calling: deque[tuple[int, TcpConnection]] = deque()

    def segment(self, time_ns: int, segment: Segment) -> None:
        """Take the next segment of the capture."""
        flow, sequence, acknowledged, flags, buffer, begin, end, on_wire = segment
        half = self._halves.get(flow)
        if half is None or flags & (SYN | RST) or half.connection.over:
            half = self._unusual(time_ns, segment, half)
            if half is None:
                return
        half.seen = True
        if flags & ACK and acknowledged != half.peer.next:
            self._acknowledge(half.peer, acknowledged, time_ns)
        if begin != end or on_wire:
            if sequence == half.next and not half.held and half.finish < 0:
                length = end - begin
                offset = half.offset
                half.next = (sequence + length) & _MASK
                half.offset = offset = offset + length
                stream = half.stream
                if offset > stream.skip_to:
                    stream.data(offset - length, buffer[begin:end], time_ns)
                if on_wire > length:
                    half.give_up(offset + on_wire - length, time_ns)
            else:
                self._out_of_order(half, time_ns, sequence, buffer[begin:end])
        if flags & FIN:
            self._finish(half, advance(sequence, on_wire), time_ns)
        if self._troubled and not self._next_sweep - _SWEEP_NS < time_ns < self._next_sweep:
            self._sweep(time_ns)

    def end(self, time_ns: int) -> None:
        """The capture is over: give up all holes, close all streams."""
        for half in list(self._halves.values()):
            if not half.connection.over:
                self._close(half.connection, time_ns)
        self._halves.clear()

    def _unusual(self, time_ns: int, segment: Segment, half: Half | None) -> Half | None:
        """Openings, resets, strangers. The half that the segment goes on with, None if nothing is left to do."""
        flow, sequence, acknowledged, flags, buffer, begin, end, _ = segment
        if flags & RST:
            if half is not None and not half.connection.over:
                self._close(half.connection, time_ns)
            return None
        if flags & SYN:
            if half is not None and half.start == sequence:
                return None  # the same again
            first = advance(sequence, 1)
            if half is not None and flags & ACK and half.peer.start is not None and half.next in (None, first):
                half.begin(sequence)  # the answer to the opening
                half.seen = True
                return None
            if half is not None and not half.connection.over:
                self._close(half.connection, time_ns)
            half = self._open(flow, time_ns)
            half.begin(sequence)
            half.seen = True
            half.connection.client = half.peer if flags & ACK else half
            self._calling.append((time_ns, half.connection))
            self._forget_unanswered(time_ns)
            if flags & ACK:
                half.peer.begin(advance(acknowledged, -1))
            self._opened(half.connection)
            if begin != end:  # TCP fast open
                self._out_of_order(half, time_ns, first, buffer[begin:end])
            return None
        if begin == end:
            return None
        if half is not None and (half.next is None or abs(distance(sequence, half.next)) < HELD_LIMIT):
            return None  # a late copy
        half = self._open(flow, time_ns)
        half.next = sequence
        half.peer.next = acknowledged if flags & ACK else None
        self._opened(half.connection)
        return half

    def _open(self, flow: bytes, time_ns: int) -> Half:
        connection = TcpConnection(flow, time_ns)
        self._halves[flow], self._halves[reverse(flow)] = connection.halves
        return connection.halves[0]

    def _out_of_order(self, half: Half, time_ns: int, sequence: int, data: bytes) -> None:
        if half.next is None:
            half.next = sequence
            half.stream.lost(0, 0, time_ns)  # who knows what stood before
        ahead = distance(sequence, half.next)
        if abs(ahead) > _FAR:
            if half.far is not None and half.far[0] == sequence:
                self._jump(half, time_ns, sequence, data)
            else:
                half.far = ((sequence + len(data)) & _MASK, time_ns, data)
            return
        offset = half.offset + ahead
        if ahead < 0:
            if offset + len(data) <= half.offset:
                self._summary.resent += 1
                return
            data, offset = data[-ahead:], half.offset
        if half.finished or not data:
            return
        if not half.held:
            if offset == half.offset:
                half.give(data, time_ns)
                half.drain(time_ns)
                return
            half.moved_ns = time_ns
        half.hold(offset, data, time_ns)
        half.drain(time_ns)
        if half.held:
            self._troubled[half] = None
            if half.held_bytes > HELD_LIMIT:
                half.settle(time_ns, final=False)

    def _jump(self, half: Half, time_ns: int, sequence: int, data: bytes) -> None:
        """Two segments in a row far from their stream: the capture lacks much, or even that ports were used again."""
        assert half.far is not None
        assert half.next is not None
        _, when, first = half.far
        half.far = None
        if distance(sequence, half.next) > 0:
            half.settle(time_ns, final=True)
            half.finish = -1
            half.give_up(half.offset + distance(sequence, half.next) - len(first), time_ns)
        else:
            connection = half.connection
            self._close(connection, time_ns)
            half = self._open(connection.flow if half is connection.halves[0] else reverse(connection.flow), when)
            half.seen = True
            half.next = advance(sequence, -len(first))
            self._opened(half.connection)
        half.give(first, when)
        half.give(data, time_ns)

    def _acknowledge(self, half: Half, acknowledged: int, time_ns: int) -> None:
        if half.next is None:
            half.next = acknowledged
            return  # where the handshake was seen, this is its third step
        ahead = distance(acknowledged, half.next)
        if not 0 < ahead <= _FAR or half.offset + ahead <= half.acknowledged:
            return
        if half.acknowledged <= half.offset:
            half.acknowledged_ns = time_ns
            if not half.held:
                half.moved_ns = time_ns
        half.acknowledged = half.offset + ahead
        self._troubled[half] = None

    def _finish(self, half: Half, sequence: int, time_ns: int) -> None:
        if half.finished or half.next is None or distance(sequence, half.next) < 0:
            return
        half.finish = half.offset + distance(sequence, half.next)
        half.drain(time_ns)
        self._close_if_done(half.connection, time_ns)

    def _close_if_done(self, connection: TcpConnection, time_ns: int) -> None:
        if not connection.over and all(half.finished for half in connection.halves):
            self._close(connection, time_ns)

    def _close(self, connection: TcpConnection, time_ns: int) -> None:
        connection.over = True
        client = connection.client or connection.halves[0]
        for half in (client, client.peer):  # requests first: a response may be waiting for its own
            half.close(time_ns)
            self._troubled.pop(half, None)
        self._over.append((time_ns, connection))
        while len(self._over) > _LINGERING or self._over[0][0] < time_ns - _LINGER_NS:
            self._forget(self._over.popleft()[1])

    def _forget_unanswered(self, time_ns: int) -> None:
        """Port scans must not fill the memory: an opening to which nobody answered is forgotten after a while."""
        calling = self._calling
        while calling and (len(calling) > _LINGERING or calling[0][0] < time_ns - _LINGER_NS):
            connection = calling.popleft()[1]
            silent = not any(half.offset or half.held for half in connection.halves)
            if silent and not connection.over and not all(half.seen for half in connection.halves):
                self._close(connection, time_ns)

    def _forget(self, connection: TcpConnection) -> None:
        for flow in (connection.flow, reverse(connection.flow)):
            half = self._halves.get(flow)
            if half is not None and half.connection is connection:
                del self._halves[flow]

    def _sweep(self, time_ns: int) -> None:
        self._next_sweep = time_ns + _SWEEP_NS
        for half in list(self._troubled):
            half.settle(time_ns, final=False)
            if not half.troubled:
                self._troubled.pop(half, None)
            self._close_if_done(half.connection, time_ns)
