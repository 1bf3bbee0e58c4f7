"""How a recording begins and ends in the middle of connections: what joins it to others of the same place.

Nothing here depends on files' names: a connection goes on in another recording where its bytes do.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .link import Segment, reverse
from .reassembly import UNKNOWN, distance

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAR: Final = 16 << 20
"""The most bytes that one direction may lie behind while the other goes on exactly: data sent again, or on its way."""

_FLOW_BYTES: Final = (12, 36)
"""The length of a flow between IPv4 addresses, and between IPv6 addresses."""

_SEGMENT: Final = Struct(">qIIBI?I12s")
"""A segment as bytes: its time, sequence number, acknowledged number, flags, length on the wire, whether it is of the
other direction, how many bytes of payload follow, and what stands before these, where ``ticks_of`` looks."""


class Border(NamedTuple):
    """Where a connection stands as a recording begins or ends.

    Attributes:
        flow: Addresses and ports, those of the first packet's sender first.
        sequences: The next sequence number of each direction, that of ``flow`` first; -1: unknown.
        time_ns: The time of the nearest packet, ns since 1970.
        conn_id: The connection's id in the recording; empty while client and server are not known.
        is_sure: At an end: whether the boundaries of frames are known there. At a beginning: whether an exchange is
            complete in the recording.
    """

    flow: bytes
    sequences: tuple[int, int]
    time_ns: int
    conn_id: bytes = b""
    is_sure: bool = True

    @property
    def turned(self) -> Border:
        """The same, with the other direction first."""
        return self._replace(flow=reverse(self.flow), sequences=(self.sequences[1], self.sequences[0]))

    @property
    def in_order(self) -> Border:
        """The same, with the direction of ``key`` first."""
        return self if self.flow == self.key else self.turned

    @property
    def key(self) -> bytes:
        """The flow of the direction that comes first in order, the same for both."""
        return min(self.flow, reverse(self.flow))


def is_border(value: object) -> bool:
    """Whether a value that was read is a border, with fields of the right kinds."""
    if not isinstance(value, Border):
        return False
    fields: tuple[Any, ...] = value
    flow, sequences, time_ns, conn_id, is_sure = fields
    if not isinstance(sequences, tuple) or len(sequences) != 2 or not isinstance(is_sure, bool):
        return False
    return (
        all(isinstance(each, bytes) for each in (flow, conn_id))
        and len(flow) in _FLOW_BYTES
        and all(type(each) is int and abs(each) < 1 << 63 for each in (*sequences, time_ns))
    )


def goes_on(end: Border, begin: Border) -> bool:
    """Whether a connection that stood at an end stands at a beginning: one direction goes on at the very byte."""
    ahead = _ahead(end, begin)
    return 0 in ahead and all(-_FAR <= each <= 0 for each in ahead)


def skipped(end: Border, begin: Border) -> int:
    """How many bytes of one direction are missing before a beginning at which the other goes on exactly; 0: none."""
    ahead = _ahead(end, begin)
    return max(ahead) if len(ahead) == 2 and 0 in ahead and max(ahead) > 0 else 0


def is_before(border: Border, other: Border) -> bool:
    """Whether a connection had less bytes at a border than at another one; of as many, whether that is no earlier."""
    further = sum(_ahead(border, other))
    return further > 0 or (further == 0 and border.time_ns <= other.time_ns)


def overlap(end: Border, begin: Border) -> int:
    """How many bytes before an end a connection that goes on there begins, in both directions together."""
    return -sum(_ahead(end, begin))


def _ahead(end: Border, begin: Border) -> list[int]:
    """How far ahead of an end a beginning is in each direction that both know; nothing of another connection."""
    if begin.flow != end.flow:
        begin = begin.turned
    if begin.flow != end.flow:
        return []
    both = zip(end.sequences, begin.sequences, strict=True)
    return [distance(there, here) for here, there in both if UNKNOWN not in (here, there)]


def pack_segment(time_ns: int, segment: Segment, flow: bytes) -> bytes:
    """Return a segment of a connection as bytes."""
    payload = segment.buffer[segment.begin : segment.end]
    is_back = segment.flow != flow
    before = segment.buffer[max(segment.begin - 12, 0) : segment.begin]
    flags = segment.flags & 0xFF
    head = _SEGMENT.pack(
        time_ns, segment.sequence, segment.acknowledged, flags, segment.on_wire, is_back, len(payload), before
    )
    return head + payload


def unpacked_segments(flow: bytes, data: bytes) -> Iterator[tuple[int, Segment]]:
    """Yield the times and segments of a connection that ``pack_segment`` packed.

    Raises:
        ValueError: They are none.
    """
    at = 0
    while at < len(data):
        if at + _SEGMENT.size > len(data):
            raise ValueError("a segment without its end")
        time_ns, sequence, acknowledged, flags, on_wire, is_back, length, _before = _SEGMENT.unpack_from(data, at)
        at += _SEGMENT.size
        if at + length > len(data) or on_wire < length or time_ns < 0:
            raise ValueError("a segment of a wrong length")
        way = reverse(flow) if is_back else flow
        yield time_ns, Segment(way, sequence, acknowledged, flags, data, at, at + length, on_wire)
        at += length
