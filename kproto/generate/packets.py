"""Turns exchanges into TCP packets in the form of a pcap file, in the order of time."""

from __future__ import annotations

import struct
from functools import partial
from heapq import heappop, heappush
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .bodies import encode_response, request_head, response_head, shared_body
from .fleet import random_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .traffic import PlannedConnection, PlannedExchange, PlannedStep

_SNAPLEN: Final = 262_144
_ETHERNET: Final = 1
PCAP_HEADER: Final = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _SNAPLEN, _ETHERNET)
"""The head of a pcap file with times in microseconds."""

_FIN, _SYN, _RST, _PUSH, _ACK = 1, 2, 4, 8, 16
_BURST_SEGMENTS: Final = 11
"""The segments that a connection sends at a time; then the other side acknowledges, and other connections send."""
_HANDSHAKE_STEP_NS: Final = 100_000
_MSS_OPTION: Final = struct.Struct(">BBH")
_RECORD: Final = struct.Struct("<IIII")
_HEADERS: Final = struct.Struct(">16sH6sH12sIIH6s")
"""Ethernet, IPv4 and TCP: in turn what is the same in all packets of a direction, and what is not."""
_PORTS: Final = struct.Struct(">HH")
_MAC: Final = b"\x02\x00"
_IDS: Final = bytes.fromhex("000040004006")  # of no fragment, of 64 hops, of TCP
_AFTER_FLAGS: Final = bytes.fromhex("ffff00000000")  # the window; the checksum is left to the network card
_WRAP: Final = 0xFFFFFFFF
_US: Final = 1000
_CLIENT, _SERVER = 0, 1


class Burst(NamedTuple):
    """Packets that follow each other on one connection.

    Attributes:
        time_ns: The time at which they pass, ns since 1970.
        connection: The connection.
        packets: The number of packets.
        data: The packets, each behind its pcap record header.
    """

    time_ns: int
    connection: PlannedConnection
    packets: int
    data: bytes


def bursts(steps: Iterable[PlannedStep], *, seed: int, mss: int) -> Iterator[Burst]:
    """Yield the packets of a fleet's history, in the order of time.

    Args:
        steps: The history.
        seed: Decides the first sequence numbers.
        mss: Bytes of data in a segment at most.
    """
    waiting: list[_Waiting] = []
    conversations: dict[PlannedConnection, _ConnectionPackets] = {}
    count = 0
    for step in steps:
        while waiting and waiting[0][0] < step.event.time_ns:
            yield _advance(waiting)
        sources = []
        for exchange in step.exchanges:
            connection = exchange.connection
            if connection not in conversations:
                conversations[connection] = _ConnectionPackets(connection, seed, mss)
            sources.append(_exchanged(conversations[connection], exchange))
            if exchange.lost:
                del conversations[connection]
        for connection, time_ns in step.closed:
            sources.append(iter([(time_ns, partial(conversations.pop(connection).closed, time_ns))]))
        for source in sources:
            count += 1
            time_ns, make = next(source)
            heappush(waiting, (time_ns, count, make, source))
    while waiting:
        yield _advance(waiting)


_Moments: TypeAlias = "Iterator[tuple[int, Callable[[], Burst]]]"
"""The time of a burst, and a function that makes its packets then: sequence numbers depend on earlier packets."""

_Waiting: TypeAlias = "tuple[int, int, Callable[[], Burst], _Moments]"


def _advance(waiting: list[_Waiting]) -> Burst:
    _time, count, make, source = heappop(waiting)
    burst = make()
    following = next(source, None)
    if following is not None:
        heappush(waiting, (following[0], count, following[1], source))
    return burst


def _exchanged(conversation: _ConnectionPackets, exchange: PlannedExchange) -> _Moments:
    if exchange.opens:
        yield exchange.connection.opened_ns, conversation.opened
    content = exchange.content
    pieces = (
        request_head(content, exchange.correlation_id),
        *shared_body(content).pieces(exchange.broker_epoch),
    )
    yield from _sent(conversation, _CLIENT, pieces, exchange.time_ns, exchange.last_ns, missed=exchange.missed)
    if exchange.lost:
        yield exchange.answer_ns, partial(conversation.reset, exchange.answer_ns)
        return
    answer = (response_head(content, exchange.correlation_id), encode_response(content))
    times = exchange.answer_ns, exchange.answer_last_ns
    yield from _sent(conversation, _SERVER, answer, *times, missed=exchange.answer_missed)


def _sent(
    conversation: _ConnectionPackets,
    side: int,
    pieces: Sequence[bytes | memoryview],
    first_ns: int,
    last_ns: int,
    *,
    missed: bool,
) -> _Moments:
    """Spread the bursts of a frame evenly over its time; a missed frame is one burst without packets."""
    size = sum(map(len, pieces))
    pieces = (size.to_bytes(4), *pieces)
    if missed:
        yield first_ns, partial(conversation.pass_over, side, first_ns, size + 4)
        return
    room = conversation.mss * _BURST_SEGMENTS
    times = burst_times(size, first_ns, last_ns, conversation.mss)
    for at, time_ns in zip(range(0, size + 4, room), times, strict=True):
        yield time_ns, partial(conversation.send, side, time_ns, pieces, at, min(at + room, size + 4))


def burst_times(size: int, first_ns: int, last_ns: int, mss: int) -> list[int]:
    """Return the times of a frame's bursts, ns since 1970; a single burst passes at the frame's first moment.

    Args:
        size: Bytes of the frame, without its size field.
        first_ns, last_ns: The times of the first and the last burst.
        mss: See ``bursts``.
    """
    last = -(-(size + 4) // (mss * _BURST_SEGMENTS)) - 1
    if not last:
        return [first_ns]
    us = (last_ns - first_ns) // _US
    return [first_ns + us * number // last * _US for number in range(last + 1)]


def first_sequences(seed: int, connection: PlannedConnection) -> list[int]:
    """Return the sequence numbers of the client's and the server's _SYN."""
    random = random_of(seed, *connection.client, *connection.server, connection.opened_ns)
    return [random.getrandbits(32), random.getrandbits(32)]


class _ConnectionPackets:
    """The packets of one connection, as its two ends send them.

    Attributes:
        mss: Bytes of data in a segment at most.
    """

    def __init__(self, connection: PlannedConnection, seed: int, mss: int) -> None:
        self.connection = connection
        self.mss = mss
        ends = (connection.client, connection.server)
        hosts = [IPv4Address(end.ip).packed for end in ends]
        ways = ((0, 1), (1, 0))
        self._next = first_sequences(seed, connection)
        self._ethernet = [_MAC + hosts[to] + _MAC + hosts[of] + b"\x08\x00\x45\x00" for of, to in ways]
        self._ends = [hosts[of] + hosts[to] + _PORTS.pack(ends[of].port, ends[to].port) for of, to in ways]
        self._sum = 0x4500 + 0x4000 + 0x4006 + sum(struct.unpack(">4H", b"".join(hosts)))

    def opened(self) -> Burst:
        """Make the packets of the handshake."""
        option = _MSS_OPTION.pack(2, 4, self.mss)
        time_ns = self.connection.opened_ns
        packets = [
            self._packet(_CLIENT, time_ns, _SYN, options=option),
            self._packet(_SERVER, time_ns + _HANDSHAKE_STEP_NS, _SYN | _ACK, options=option),
            self._packet(_CLIENT, time_ns + 2 * _HANDSHAKE_STEP_NS, _ACK),
        ]
        return Burst(time_ns, self.connection, len(packets), b"".join(packets))

    def send(self, side: int, time_ns: int, pieces: Sequence[bytes | memoryview], start: int, end: int) -> Burst:
        """Make the segments of some bytes of a frame, and the other side's acknowledgement."""
        data = memoryview(_part(pieces, start, end))
        full, rest = divmod(len(data), self.mss)
        out: list[bytes | memoryview] = []
        if full:
            head = self._head(side, time_ns, self.mss, _ACK)
            before, sequence, after = head[:-16], self._next[side], head[-12:]
            for at in range(0, full * self.mss, self.mss):
                out += (before, (sequence + at & _WRAP).to_bytes(4), after, data[at : at + self.mss])
            self._next[side] = sequence + full * self.mss & _WRAP
        if rest:
            out.append(self._packet(side, time_ns, _ACK | _PUSH, data[-rest:]))
        out.append(self._packet(1 - side, time_ns, _ACK))
        return Burst(time_ns, self.connection, full + bool(rest) + 1, b"".join(out))

    def pass_over(self, side: int, time_ns: int, size: int) -> Burst:
        """Count bytes that are sent, and acknowledged, in packets that the capture misses."""
        self._next[side] = self._next[side] + size & _WRAP
        return Burst(time_ns, self.connection, 0, b"")

    def reset(self, time_ns: int) -> Burst:
        """Make the packet by which the broker resets the connection."""
        return Burst(time_ns, self.connection, 1, self._packet(_SERVER, time_ns, _RST | _ACK))

    def closed(self, time_ns: int) -> Burst:
        """Make the packets by which both sides close the connection."""
        packets = [
            self._packet(_SERVER, time_ns, _FIN | _ACK),
            self._packet(_CLIENT, time_ns, _FIN | _ACK),
            self._packet(_SERVER, time_ns, _ACK),
        ]
        return Burst(time_ns, self.connection, len(packets), b"".join(packets))

    def _packet(
        self, side: int, time_ns: int, flags: int, data: bytes | memoryview = b"", options: bytes = b""
    ) -> bytes:
        head = self._head(side, time_ns, len(options) + len(data), flags + (len(options) << 10))
        self._next[side] = self._next[side] + len(data) + bool(flags & (_SYN | _FIN)) & _WRAP
        return b"".join((head, options, data))

    def _head(self, side: int, time_ns: int, size: int, flags: int) -> bytes:
        """Return a packet's bytes before TCP's options and data."""
        seconds, rest = divmod(time_ns, 1_000_000_000)
        total = self._sum + size + 40
        total = (total & 0xFFFF) + (total >> 16)
        headers = _HEADERS.pack(
            self._ethernet[side], size + 40, _IDS, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF, self._ends[side],
            self._next[side], self._next[1 - side] if flags & _ACK else 0, flags + 0x5000, _AFTER_FLAGS,
        )  # fmt: skip
        return _RECORD.pack(seconds, rest // _US, len(headers) + size, len(headers) + size) + headers


def _part(pieces: Sequence[bytes | memoryview], start: int, end: int) -> bytes:
    """Return a range of bytes from consecutive pieces."""
    found, at = [], 0
    for piece in pieces:
        size = len(piece)
        if at < end and at + size > start:
            found.append(memoryview(piece)[max(start - at, 0) : end - at])
        at += size
    return b"".join(found)
