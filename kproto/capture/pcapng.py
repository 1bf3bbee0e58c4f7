"""pcapng: sections of either byte order, several interfaces, each with its link type and its time resolution."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

from .pcap import MAX_PACKET, FileReader

if TYPE_CHECKING:
    from .pcap import Packet
    from .summary import CaptureSummary

CRC_OPTION: Final = 2989
"""Code of a custom option with a binary value that tools may copy with the packet."""
CRC_PEN: Final = 32473
"""The enterprise number for examples (RFC 5612): kproto has none of its own. ``CRC_TAG`` tells ours from others'."""
CRC_TAG: Final = b"c32p"
"""The option's value is this, then the CRC-32C of the packet (headers too) as uint32, little-endian."""

_SECTION: Final = 0x0A0D0D0A
_SECTION_TYPE: Final = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS: Final = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_INTERFACE: Final = 1
_OLD_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_STATISTICS: Final = 5
_ENHANCED_PACKET: Final = 6
_PACKETS: Final = {_OLD_PACKET: 28, _SIMPLE_PACKET: 12, _ENHANCED_PACKET: 28}
"""Blocks that hold a packet, and where in them it begins."""

_NEEDED: Final = {_SECTION, _INTERFACE, _STATISTICS, *_PACKETS}

_CONTEXT: Final = {_SECTION, _INTERFACE, _SIMPLE_PACKET}

_OPTION_NAME: Final = 2
_OPTION_TIME_RESOLUTION: Final = 9
_OPTION_TIME_OFFSET: Final = 14
_DROPPED: Final = (5, 7)
"""Options of statistics with packets that the interface, or the system, has dropped since the capture began."""

_SMALLEST_BLOCK: Final = 12
_LARGEST_BLOCK: Final = 16 * MAX_PACKET
"""A longer block without a packet (a name table, decryption secrets) is skipped and not kept."""

_MOST_INTERFACES: Final = 65_536
"""The most interfaces of one section; packets of further ones cannot be read."""

_KEPT_PROPERTIES: Final = 64
"""The number of interfaces that are compared to tell capture points apart; a section may describe more."""


@dataclass(slots=True)
class _Interface:
    link: int
    snaplen: int
    multiply: int = 1000
    divide: int = 1
    offset_ns: int = 0
    name: bytes = b""


class PcapngReader(FileReader):
    """Bytes of a pcapng file -> packets, each as soon as its block is whole; does no I/O.

    Statistics tell how many packets were dropped. All other blocks are skipped. A packet that does not match the
    checksum beside it, as kproto's recorder writes it, is left out and counted. A damaged block ends its section:
    reading goes on at the next section header.
    """

    def __init__(self, summary: CaptureSummary) -> None:
        super().__init__(summary, _SMALLEST_BLOCK)
        self._skip = 0  # remaining bytes of a block that is skipped
        self._damaged_at: int | None = None  # file offset of damage that lasts until the next section
        self._damage = ""
        self._order = "<"
        self._interfaces: list[_Interface] = []
        self._last_ns = 0
        self._described: list[tuple[object, ...]] = []
        self._section_options = b""

    @property
    def properties(self) -> tuple[object, ...]:
        """The host and interfaces that the file names; files of one capture point have the same."""
        return ("pcapng", self._section_options, *self._described)

    def feed(self, data: bytes) -> list[Packet]:
        """Take the next bytes of the file."""
        packets: list[Packet] = []
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            self.read_to += passed
            data = data[passed:]
        self._parts.append(data)
        self._size += len(data)
        if self._size >= self._need:
            buffer = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            at = self._read(buffer, packets)
            self.read_to += at
            self._parts = [buffer[at:]]
            self._size = max(0, len(buffer) - at)
        return packets

    def end(self, damage: str | None = None) -> list[Packet]:
        """End the file; return the beginning of a packet within whose block it ends.

        That packet (the capture's writer was killed, or still writes) is given as if it had been captured no further.

        Args:
            damage: Why the file could not be read to its end, None if it was.
        """
        buffer = b"".join(self._parts)
        if self._damaged_at is not None:
            self._summary.bad(self._damage, self._damaged_at, self.read_to + len(buffer) - self._damaged_at)
            buffer = b""
        packet = self._packet_begun(buffer) if len(buffer) > _SMALLEST_BLOCK else None
        if buffer or self._skip or damage:
            reason = damage or "the file ends within a block"
            self._summary.bad(reason, self.read_to, 0 if packet else len(buffer))
        return [packet] if packet else []

    def _read(self, buffer: bytes, packets: list[Packet]) -> int:
        """Read all whole blocks of a buffer; return how many bytes they take."""
        at, size = 0, len(buffer)
        while True:
            self._need = _SMALLEST_BLOCK
            if self._damaged_at is not None:
                at = self._next_section(buffer, at)
                if self._damaged_at is not None:
                    return at
            if at + _SMALLEST_BLOCK > size:
                return at
            if buffer[at : at + 4] == _SECTION_TYPE:
                order = _BYTE_ORDERS.get(buffer[at + 8 : at + 12])
                valid = order is not None
                self._order = order or self._order
            else:
                valid = True
            kind, length = struct.unpack_from(self._order + "II", buffer, at)
            if not valid or length < _SMALLEST_BLOCK or length & 3 or (kind in _NEEDED and length > _LARGEST_BLOCK):
                self._damaged_at, self._damage = self.read_to + at, "a damaged block"
                at += 1
                continue
            end = at + length
            if end > size:
                if kind not in _NEEDED and length > _LARGEST_BLOCK:
                    self._skip = end - size
                    return size
                self._need = length
                return at
            if struct.unpack_from(self._order + "I", buffer, end - 4)[0] != length:
                self._damaged_at, self._damage = self.read_to + at, "a block whose two lengths differ"
                at += 1
                continue
            if kind in _NEEDED:
                self._block(kind, buffer, at, end, packets)
            at = end

    def _next_section(self, buffer: bytes, at: int) -> int:
        """The place of the next section header after damage; if there is none, of the bytes to search again."""
        assert self._damaged_at is not None
        while (found := buffer.find(_SECTION_TYPE, at)) >= 0:
            if found + _SMALLEST_BLOCK > len(buffer):
                return found
            if buffer[found + 8 : found + 12] in _BYTE_ORDERS:
                self._summary.bad(self._damage, self._damaged_at, self.read_to + found - self._damaged_at)
                self._damaged_at = None
                return found
            at = found + 1
        return max(at, len(buffer) - 3)

    def _block(self, kind: int, buffer: bytes, at: int, end: int, packets: list[Packet]) -> None:
        """Read a whole block: a section header, an interface description, statistics or a packet."""
        self.context += kind in _CONTEXT
        if kind == _SECTION:
            self._interfaces = []
            if not self._described:
                self._section_options = buffer[at + 24 : end - 4]
            return
        if kind == _INTERFACE:
            interface = _interface(buffer, at, end, self._order)
            if len(self._interfaces) < _MOST_INTERFACES:
                self._interfaces.append(interface)
            if len(self._described) < _KEPT_PROPERTIES:
                self._described.append((interface.link, interface.snaplen, interface.name))
            return
        if kind == _STATISTICS:
            self._note_dropped(buffer, at + 20, end - 4)
            return
        packet = self._packet(kind, buffer, at, end)
        if packet is None:
            reason = "a packet block that names no interface, or is too short"
            self._summary.bad(reason, self.read_to + at, end - at)
        elif not 0 <= packet[0] < 1 << 63:
            reason = "a packet whose time lies before 1970 or after 2262"
            self._summary.bad(reason, self.read_to + at, end - at)
        elif end - packet[4] >= 20 and not _matches(packet, end - 4, self._order):
            self._summary.bad_checksum(self.read_to + at, end - at)
        else:
            self._last_ns = packet[0]
            self._summary.untimed_packets += kind == _SIMPLE_PACKET
            packets.append(packet)

    def _note_dropped(self, buffer: bytes, at: int, end: int) -> None:
        """Note the packets that were dropped: each block counts them from the beginning of the capture."""
        dropped = 0
        while at + 4 <= end:
            code, length = struct.unpack_from(self._order + "HH", buffer, at)
            if code == 0:
                break
            if code in _DROPPED and length == 8 and at + 12 <= end:
                dropped += struct.unpack_from(self._order + "Q", buffer, at + 4)[0]
            at += 4 + (length + 3) // 4 * 4
        self._summary.dropped_packets = max(self._summary.dropped_packets, min(dropped, (1 << 63) - 1))

    def _packet(self, kind: int, buffer: bytes, at: int, end: int) -> Packet | None:
        interfaces = self._interfaces
        if kind == _SIMPLE_PACKET:  # a simple packet has neither: it takes the last time and the first interface
            if end - at < 16 or not interfaces:
                return None
            (on_wire,) = struct.unpack_from(self._order + "I", buffer, at + 8)
            interface = interfaces[0]
            captured = min(on_wire, end - at - 16, interface.snaplen or on_wire)
            return self._last_ns, interface.link, buffer, at + 12, at + 12 + captured, on_wire
        if end - at < 32:
            return None
        number, high, low, captured, on_wire = struct.unpack_from(self._order + "IIIII", buffer, at + 8)
        if kind == _OLD_PACKET:
            number = struct.unpack_from(self._order + "H", buffer, at + 8)[0]  # beside it stands a count of drops
        if number >= len(interfaces) or captured > end - at - 32:
            return None
        interface = interfaces[number]
        time_ns = ((high << 32) | low) * interface.multiply // interface.divide + interface.offset_ns
        return time_ns, interface.link, buffer, at + 28, at + 28 + captured, on_wire

    def _packet_begun(self, buffer: bytes) -> Packet | None:
        """The beginning of a packet whose block is cut by the file's end; None if no byte of it can be used."""
        size = len(buffer)
        kind, length = struct.unpack_from(self._order + "II", buffer)
        if kind not in _PACKETS or size <= _PACKETS[kind]:
            return None
        packet = self._packet(kind, buffer, 0, length)
        if packet is None or not 0 <= packet[0] < 1 << 63:
            return None
        time_ns, link, _, start, stop, on_wire = packet
        packet = time_ns, link, buffer, start, min(stop, size), on_wire
        return packet if _matches(packet, size, self._order) else None


def _matches(packet: Packet, options_end: int, order: str) -> bool:
    """Whether a packet matches its checksum; true if it has none, or was cut short after it got one."""
    _, _, buffer, start, stop, on_wire = packet
    at = stop + (start - stop) % 4
    while at + 16 <= options_end:
        code, length = struct.unpack_from(order + "HH", buffer, at)
        if code == 0:
            return True
        if code == CRC_OPTION and length == 12 and stop - start == on_wire:
            enterprise, tag = struct.unpack_from(order + "I4s", buffer, at + 4)
            if (enterprise, tag) == (CRC_PEN, CRC_TAG):
                from crc32c import crc32c  # it loads a lot, and few recorders write the option

                checksum: int = crc32c(memoryview(buffer)[start:stop])
                return buffer[at + 12 : at + 16] == checksum.to_bytes(4, "little")
        at += 4 + (length + 3) // 4 * 4
    return True


def _interface(buffer: bytes, at: int, end: int, order: str) -> _Interface:
    """Read an interface description; one that is too short to read stands for no link type at all."""
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
        if code == _OPTION_NAME:
            interface.name = value[:64]
        elif code == _OPTION_TIME_RESOLUTION and value:
            units: int = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
            common = gcd(units, 10**9)
            interface.multiply, interface.divide = 10**9 // common, units // common
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            interface.offset_ns = struct.unpack(order + "q", value)[0] * 1_000_000_000
        option += 4 + (length + 3) // 4 * 4
    return interface
