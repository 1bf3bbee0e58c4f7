"""One TCP connection: in each direction what comes next, what waits behind a hole, when a hole is given up."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Protocol

from .link import endpoints

if TYPE_CHECKING:
    from .model import Endpoint

__all__ = ["FOREVER", "HELD_LIMIT", "Half", "Stream", "TcpConnection", "advance", "distance"]

FOREVER: Final = 1 << 62
"""``Stream.skip_to`` of a stream that nobody reads any more."""

HELD_LIMIT: Final = 8 << 20
"""Bytes that may wait behind a hole in one direction; each piece counts for its overhead too."""

_PIECE_OVERHEAD: Final = 120

_ACKNOWLEDGED_NS: Final = 20_000_000
"""Captures may show an acknowledgement a little before the data (several queues of one card): so long is waited."""

_PATIENCE_NS: Final = 30_000_000_000
_ONE_SIDED_PATIENCE_NS: Final = 3_000_000_000
"""How long a hole may stand that nobody acknowledged; shorter if the other side is not in the capture at all."""

_MASK: Final = 0xFFFFFFFF
_TURN: Final = 0x80000000


def advance(sequence: int, length: int) -> int:
    """The sequence number so many bytes later."""
    return (sequence + length) & _MASK


def distance(sequence: int, reference: int) -> int:
    """How far ahead of a reference a sequence number is, the short way around."""
    return ((sequence - reference + _TURN) & _MASK) - _TURN


class Stream(Protocol):
    """Who reads one direction."""

    skip_to: int
    """Bytes before this offset need not be given; ``FOREVER`` for none at all."""

    def data(self, offset: int, data: bytes, time_ns: int) -> None:
        """The next bytes. ``offset`` may be below ``skip_to``; one call for each segment."""

    def lost(self, offset: int, length: int, time_ns: int) -> None:
        """These bytes will never come."""

    def closed(self, time_ns: int) -> None:
        """No more will come."""


class _Nobody:
    """Reads nothing."""

    skip_to = FOREVER

    def data(self, offset: int, data: bytes, time_ns: int) -> None:
        pass

    def lost(self, offset: int, length: int, time_ns: int) -> None:
        pass

    def closed(self, time_ns: int) -> None:
        pass


_NOBODY: Final = _Nobody()


class Half:
    """One direction of a connection.

    Attributes:
        connection: The connection.
        sender: Who sends here.
        next: The sequence number expected next, None until one is known.
        offset: Its stream offset.
        start: The initial sequence number, None if the handshake was not seen.
        stream: Who reads it.
        seen: Whether a packet of this direction is in the capture.
    """

    __slots__ = (
        "acknowledged",
        "acknowledged_ns",
        "connection",
        "far",
        "finish",
        "finished",
        "held",
        "held_bytes",
        "moved_ns",
        "next",
        "offset",
        "peer",
        "seen",
        "sender",
        "start",
        "stream",
    )

    peer: Half

    def __init__(self, connection: TcpConnection, sender: Endpoint) -> None:
        self.connection = connection
        self.sender = sender
        self.next: int | None = None
        self.offset = 0
        self.start: int | None = None
        self.stream: Stream = _NOBODY
        self.seen = False
        self.finish = -1  # stream offset of FIN
        self.finished = False
        self.held: list[tuple[int, int, bytes]] = []  # offset, time, data: beyond a hole, in order, apart
        self.held_bytes = 0
        self.acknowledged = 0  # the other side has all before this offset
        self.acknowledged_ns = 0
        self.moved_ns = 0  # when the hole at ``offset`` was first met
        self.far: tuple[int, int, bytes] | None = None

    @property
    def troubled(self) -> bool:
        """Whether something is missing at the moment."""
        return not self.finished and (bool(self.held) or self.acknowledged > self.offset)

    def begin(self, initial: int) -> None:
        """Take the initial sequence number from the handshake."""
        self.start = initial
        self.next = advance(initial, 1)

    def hold(self, offset: int, data: bytes, time_ns: int) -> None:
        """Keep what stands beyond a hole; where something is held already that stays."""
        held = self.held
        end = offset + len(data)
        at, begin = offset, offset
        i = bisect_right(held, at, key=_offset_of)
        if i and held[i - 1][0] + len(held[i - 1][2]) > at:
            at = held[i - 1][0] + len(held[i - 1][2])
        while at < end:
            stop = min(end, held[i][0]) if i < len(held) else end
            if stop > at:
                held.insert(i, (at, time_ns, data[at - begin : stop - begin]))
                self.held_bytes += stop - at + _PIECE_OVERHEAD
                i += 1
            if stop == end:
                break
            at = held[i][0] + len(held[i][2])
            i += 1

    def drain(self, time_ns: int) -> None:
        """Give on what has become next."""
        held, n = self.held, 0
        while n < len(held) and held[n][0] == self.offset:
            _, when, data = held[n]
            self.held_bytes -= len(data) + _PIECE_OVERHEAD
            self.give(data, when)
            n += 1
        if n:
            del held[:n]
            self.moved_ns = time_ns
        if self.finish == self.offset and not self.finished:
            self.finished = True
            self.held.clear()
            assert self.next is not None
            self.next = advance(self.next, 1)
            self.stream.closed(time_ns)

    def give(self, data: bytes, time_ns: int) -> None:
        """Pass on the bytes that come next."""
        offset, length = self.offset, len(data)
        assert self.next is not None
        self.next = advance(self.next, length)
        self.offset = offset + length
        if offset + length > self.stream.skip_to:
            self.stream.data(offset, data, time_ns)

    def give_up(self, until: int, time_ns: int) -> None:
        """What stands before ``until`` is lost."""
        offset = self.offset
        assert self.next is not None
        self.next = advance(self.next, until - offset)
        self.offset = until
        self.moved_ns = time_ns
        if until > self.stream.skip_to:
            self.stream.lost(offset, until - offset, time_ns)
        self.drain(time_ns)

    def settle(self, time_ns: int, final: bool) -> None:
        """Give up the holes that nothing will fill any more; all of them if ``final``."""
        while self.troubled:
            end = self.held[0][0] if self.held else self.acknowledged
            if final or self.held_bytes > HELD_LIMIT:
                pass
            elif self.acknowledged > self.offset and time_ns - self.acknowledged_ns >= _ACKNOWLEDGED_NS:
                end = min(end, self.acknowledged)
            elif time_ns - self.moved_ns < (_PATIENCE_NS if self.peer.seen else _ONE_SIDED_PATIENCE_NS):
                return
            if not self.held and end - self.offset == 1:
                return  # that may be a FIN that the capture lacks
            self.give_up(end, time_ns)

    def close(self, time_ns: int) -> None:
        """The connection is over: give out what there is, and take no more."""
        self.settle(time_ns, final=True)
        if not self.finished:
            self.finished = True
            self.stream.closed(time_ns)
        self.stream = _NOBODY
        self.held.clear()


class TcpConnection:
    """Both directions.

    Attributes:
        opened_ns: Time of the first packet.
        client: The half whose sender opened the connection, None if the handshake is not in the capture.
        halves: Both; the first is that of the first packet's sender.
        over: Whether it has ended.
    """

    __slots__ = ("client", "flow", "halves", "opened_ns", "over")

    def __init__(self, flow: bytes, time_ns: int) -> None:
        sender, receiver = endpoints(flow)
        a, b = Half(self, sender), Half(self, receiver)
        a.peer, b.peer = b, a
        self.halves = (a, b)
        self.flow = flow
        self.opened_ns = time_ns
        self.client: Half | None = None
        self.over = False


def _offset_of(piece: tuple[int, int, bytes]) -> int:
    return piece[0]
