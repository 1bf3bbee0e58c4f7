"""pcapng: sections of either byte order, several interfaces, each with its link type and its time resolution."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from .pcap import MAX_PACKET, torn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .pcap import Packet
    from .read import Source
    from .summary import CaptureSummary

__all__ = ["CRC_OPTION", "CRC_PEN", "CRC_TAG", "packets"]

CRC_OPTION: Final = 2989
"""A custom option with binary value that may be copied: it holds as long as the packet stays the same."""
CRC_PEN: Final = 32473
"""The enterprise number for examples (RFC 5612): kproto has none of its own. ``CRC_TAG`` tells ours from others'."""
CRC_TAG: Final = b"c32p"
"""The option's value is this, then the CRC-32C of the packet (headers too) as uint32, little-endian."""

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_OLD_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_ENHANCED_PACKET: Final = 6
_PACKETS: Final = {_OLD_PACKET: 28, _SIMPLE_PACKET: 12, _ENHANCED_PACKET: 28}
"""Blocks that hold a packet, and where in them it begins."""

_NEEDED: Final = {_SECTION, _INTERFACE, *_PACKETS}

_OPTION_TIME_RESOLUTION: Final = 9
_OPTION_TIME_OFFSET: Final = 14

_LARGEST: Final = 16 * MAX_PACKET
"""A longer block that is not a packet (a name table, decryption secrets) is passed over without being held."""


@dataclass(slots=True)
class _Interface:
    link: int
    snaplen: int
    multiply: int = 1000
    divide: int = 1
    offset_ns: int = 0


def packets(source: Source, summary: CaptureSummary) -> Iterator[Packet]:
    """The packets of a pcapng file, each as soon as its block is whole; all other blocks are passed over.

    A packet that does not match the checksum beside it, as kproto's recorder writes it, is left out and counted. A
    damaged block ends its section: reading goes on at the next section header, if there is one. Where the file ends
    within a packet's block (its writer was killed, or still writes), what is there of the packet is given, as if it had
    been captured no further.
    """
    order = "<"
    interfaces: list[_Interface] = []
    buffer, at, base, skip = b"", 0, 0, 0
    last_ns = 0
    while True:
        size = len(buffer)
        while at + 12 <= size:
            if buffer[at : at + 4] == b"\x0a\x0d\x0d\x0a":
                magic = buffer[at + 8 : at + 12]
                order = ">" if magic == b"\x1a\x2b\x3c\x4d" else "<"
                sane = magic in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a")
            else:
                sane = True
            kind, length = struct.unpack_from(order + "II", buffer, at)
            if not sane or length < 12 or length & 3 or (kind in _NEEDED and length > _LARGEST):
                found = buffer.find(b"\x0a\x0d\x0d\x0a", at + 1)
                stop = found if found >= 0 else size - 3
                summary.bad("a damaged block", base + at, stop - at)
                at = stop
                if found < 0:
                    break
                continue
            end = at + length
            if end > size:
                if kind not in _NEEDED and length > _LARGEST:
                    skip = end - size
                    at = size
                break
            if struct.unpack_from(order + "I", buffer, end - 4)[0] != length:
                summary.bad("a block whose two lengths differ", base + at, 0)
                found = buffer.find(b"\x0a\x0d\x0d\x0a", at + 1)
                at = found if found >= 0 else size - 3
                if found < 0:
                    break
                continue
            if kind == _SECTION:
                interfaces = []
            elif kind == _INTERFACE:
                interfaces.append(_interface(buffer, at, end, order))
            elif kind in _NEEDED:
                packet = _packet(kind, buffer, at, end, order, interfaces, last_ns)
                if packet is None:
                    summary.bad("a packet block that names no interface, or is too short", base + at, length)
                elif end - packet[4] >= 20 and not _matches(packet, end - 4, order):
                    summary.bad_checksum(base + at, length)
                else:
                    last_ns = packet[0]
                    yield packet
            at = end
        more = source.read()
        if not more:
            last = _packet_begun(buffer, at, order, interfaces, last_ns)
            if at < size or skip or source.damage:
                reason = source.damage or "the file ends within a block"
                summary.bad(reason, base + at, 0 if last else size - at)
            if last:
                yield from torn(last, summary)
            return
        if skip:
            passed = min(skip, len(more))
            skip -= passed
            more = more[passed:]
            base += passed
        base += at
        buffer = buffer[at:] + more
        at = 0


def _packet(
    kind: int, buffer: bytes, at: int, end: int, order: str, interfaces: list[_Interface], last_ns: int
) -> Packet | None:
    if kind == _SIMPLE_PACKET:  # it has neither a time nor an interface: the last time and the first interface hold
        if end - at < 16 or not interfaces:
            return None
        (on_wire,) = struct.unpack_from(order + "I", buffer, at + 8)
        interface = interfaces[0]
        captured = min(on_wire, end - at - 16, interface.snaplen or on_wire)
        return last_ns, interface.link, buffer, at + 12, at + 12 + captured, on_wire
    if end - at < 32:
        return None
    which, high, low, captured, on_wire = struct.unpack_from(order + "IIIII", buffer, at + 8)
    if kind == _OLD_PACKET:
        which = struct.unpack_from(order + "H", buffer, at + 8)[0]  # beside it stands a count of drops
    if which >= len(interfaces) or captured > end - at - 32:
        return None
    interface = interfaces[which]
    time_ns = ((high << 32) | low) * interface.multiply // interface.divide + interface.offset_ns
    return time_ns, interface.link, buffer, at + 28, at + 28 + captured, on_wire


def _matches(packet: Packet, options_end: int, order: str) -> bool:
    """Whether a packet is what its checksum says; also if it has none, or was cut short since it got one."""
    _, _, buffer, start, stop, on_wire = packet
    at = stop + (start - stop) % 4
    while at + 16 <= options_end:
        code, length = struct.unpack_from(order + "HH", buffer, at)
        if code == 0:
            return True
        if code == CRC_OPTION and length == 12 and stop - start == on_wire:
            enterprise, tag = struct.unpack_from(order + "I4s", buffer, at + 4)
            if (enterprise, tag) == (CRC_PEN, CRC_TAG):
                checksum: int = crc32c(memoryview(buffer)[start:stop])
                return buffer[at + 12 : at + 16] == checksum.to_bytes(4, "little")
        at += 4 + (length + 3) // 4 * 4
    return True


def _packet_begun(buffer: bytes, at: int, order: str, interfaces: list[_Interface], last_ns: int) -> Packet | None:
    """What there is of a packet whose block the file's end cut; None if no byte of it, or if it is no good packet."""
    size = len(buffer)
    if size - at <= 12:
        return None
    kind, length = struct.unpack_from(order + "II", buffer, at)
    if kind not in _PACKETS or size - at <= _PACKETS[kind]:
        return None
    packet = _packet(kind, buffer, at, at + length, order, interfaces, last_ns)
    if packet is None:
        return None
    time_ns, link, _, start, stop, on_wire = packet
    packet = time_ns, link, buffer, start, min(stop, size), on_wire
    return packet if _matches(packet, size, order) else None


def _interface(buffer: bytes, at: int, end: int, order: str) -> _Interface:
    """What an interface description says; a description too short to read stands for no link type at all."""
    if end - at < 20:
        return _Interface(-1, 0)
    link, _, snaplen = struct.unpack_from(order + "HHI", buffer, at + 8)
    interface = _Interface(link, snaplen)
    option = at + 16
    while option + 4 <= end - 4:
        code, length = struct.unpack_from(order + "HH", buffer, option)
        value = buffer[option + 4 : min(option + 4 + length, end - 4)]
        if code == 0:
            break
        if code == _OPTION_TIME_RESOLUTION and value:
            exponent = value[0] & 0x7F
            if value[0] & 0x80:
                interface.multiply, interface.divide = 1_000_000_000, 1 << exponent
            elif exponent <= 9:
                interface.multiply, interface.divide = 10 ** (9 - exponent), 1
            else:
                interface.multiply, interface.divide = 1, 10 ** (exponent - 9)
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            interface.offset_ns = struct.unpack(order + "q", value)[0] * 1_000_000_000
        option += 4 + (length + 3) // 4 * 4
    return interface
