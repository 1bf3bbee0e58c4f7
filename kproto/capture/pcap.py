"""Classic pcap: both byte orders, micro- and nanoseconds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kproto.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .read import Source
    from .summary import CaptureSummary

__all__ = ["MAX_PACKET", "Packet", "packets", "torn"]

Packet: TypeAlias = tuple[int, int, bytes, int, int, int]
"""Time in ns, link type, a buffer, where in it the packet begins and ends, and its length on the wire."""

MAX_PACKET: Final = 1 << 18
"""The largest snaplen that libpcap knows for networks; a larger record is damage."""

_CHAIN: Final = 4
"""So many records in a row must look right to read on after a damaged one."""


def packets(source: Source, summary: CaptureSummary) -> Iterator[Packet]:
    """The packets of a pcap file, each as soon as it is whole. A cut or damaged record is noted in the summary.

    Where the file ends within a packet, what is there of it is given, as if it had been captured no further.

    Raises:
        CaptureError: The file header is not whole.
    """
    buffer = b""
    while len(buffer) < 24:
        more = source.read()
        if not more:
            raise CaptureError(f"{source.name}: a pcap file cut off within its header")
        buffer += more
    order = "<" if buffer[0] in (0xD4, 0x4D) else ">"
    magic, _, _, _, _, snaplen, link = struct.unpack_from(order + "IHHiIII", buffer)
    nanoseconds = magic == 0xA1B23C4D
    link &= 0x03FFFFFF  # above stand the length of a frame check sequence and reserved bits
    scale = 1 if nanoseconds else 1000
    largest = max(MAX_PACKET, snaplen) if snaplen < 1 << 26 else MAX_PACKET
    record = struct.Struct(order + "IIII").unpack_from
    second, at, base, size = 0, 24, 0, len(buffer)
    while True:
        while at + 16 <= size:
            seconds, fraction, length, on_wire = record(buffer, at)
            if length > largest:
                break
            end = at + 16 + length
            if end > size:
                break
            yield seconds * 1_000_000_000 + fraction * scale, link, buffer, at + 16, end, on_wire
            second = seconds
            at = end
        else:
            length = 0
        if length > largest:
            found = _resume(buffer, at + 1, order, second, 1_000_000_000 // scale, largest)
            if found is not None:
                summary.bad("a damaged packet record", base + at, found - at)
                at = found
                continue
            if size - at > 4 * largest:  # give up what cannot be the beginning of a good record
                summary.bad("a damaged packet record", base + at, size - at - 3)
                at = size - 3
        more = source.read()
        if not more:
            last: Packet | None = None
            if size - at > 16 and length <= min(on_wire, largest):
                last = seconds * 1_000_000_000 + fraction * scale, link, buffer, at + 16, size, on_wire
            if at < size or source.damage:
                reason = source.damage or "the file ends within a packet"
                summary.bad(reason, base + at, 0 if last else size - at)
            if last:
                yield from torn(last, summary)
            return
        base += at
        buffer = buffer[at:] + more
        at, size = 0, len(buffer)


def torn(packet: Packet, summary: CaptureSummary) -> Iterator[Packet]:
    """Give the last packet of a file that ends within it: a prefix of its bytes, which are as sure as any before them.

    The end of the file has cut it, which the summary tells elsewhere; the capture's snaplen is not to blame.
    """
    cut_packets, not_tcp = summary.cut_packets, summary.not_tcp
    yield packet
    summary.cut_packets, summary.not_tcp = cut_packets, not_tcp


def _resume(buffer: bytes, start: int, order: str, second: int, unit: int, largest: int) -> int | None:
    """Where records look right again, from ``start`` on: times near the last good one, lengths that chain."""
    record = struct.Struct(order + "IIII").unpack_from
    high, skew = (struct.Struct("<H"), 2) if order == "<" else (struct.Struct(">H"), 0)
    best = None
    for near in {second >> 16, (second >> 16) + 1}:
        if near > 0xFFFF:
            continue
        pattern = high.pack(near)
        found = buffer.find(pattern, start + skew)
        while found >= 0 and (best is None or found - skew < best):
            at, chained = found - skew, 0
            while chained < _CHAIN and at + 16 <= len(buffer):
                seconds, fraction, length, on_wire = record(buffer, at)
                if seconds >> 16 != near or fraction >= unit or not 14 <= length <= min(on_wire, largest):
                    break
                chained += 1
                at += 16 + length
            if chained == _CHAIN:
                best = found - skew
                break
            found = buffer.find(pattern, found + 1)
    return best
