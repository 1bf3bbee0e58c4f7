"""Classic pcap: both byte orders, microseconds and nanoseconds."""

from __future__ import annotations

import heapq
import re
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from .source import PCAP_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .summary import CaptureSummary

Packet: TypeAlias = tuple[int, int, bytes, int, int, int]
"""Time in ns, link type, a buffer, where in it the packet begins and ends, and its length on the wire."""

MAX_PACKET: Final = 1 << 18
"""libpcap's largest snaplen for networks; a larger record is damaged, unless the file's own snaplen allows it."""

_RECORD_HEADER: Final = 16

_MAGIC: Final = {struct.pack(order + "I", magic) for order in "<>" for magic in (0xA1B2C3D4, 0xA1B23C4D)}
_DAMAGED: Final = "a damaged packet record"

_CHAIN: Final = 4
"""The number of valid records in a row that must follow a damaged one before reading continues."""

_LARGEST_AFTER_DAMAGE: Final = 1 << 20
"""The longest record in such a chain in bytes; bounds the memory while the chain is incomplete."""

_MOST_CHAINS: Final = 4096
"""The most chains that are followed side by side after damage."""


class FileReader:
    """What reads the packets of a file, of either format: its bytes that are not read yet, and their place.

    Args:
        summary: Damage is noted there.
        need: The bytes that are needed to begin.

    Attributes:
        context: Blocks so far that later ones depend on: section headers, interfaces, packets without a time.
        read_to: Where in the file the packets that were read whole end; set where reading begins behind others.
    """

    def __init__(self, summary: CaptureSummary, need: int) -> None:
        self._summary = summary
        self._parts: list[bytes] = []  # unread bytes in pieces, and their number
        self._size = 0
        self._need = need  # unread bytes that are needed to go on
        self.context: int = 0
        self.read_to: int = 0


class PcapReader(FileReader):
    """Bytes of a pcap file -> packets, each as soon as it is whole; does no I/O."""

    def __init__(self, summary: CaptureSummary) -> None:
        super().__init__(summary, PCAP_HEADER)
        self._record = struct.Struct("<IIII")
        self._link = 0
        self._scale = 1000
        self._largest = MAX_PACKET
        self._seconds = 0
        self._damage: RecordSearch | None = None
        self._reason = ""
        self.properties: tuple[object, ...] = ()
        """The capture's properties in the file header; files of one capture point have the same."""

    def feed(self, data: bytes) -> list[Packet]:
        """Take the next bytes of the file."""
        packets: list[Packet] = []
        if self._damage is not None:
            found = self._damage.feed(data)
            if found is None:
                return packets
            data = self._go_on(found)
        self._parts.append(data)
        self._size += len(data)
        while self._size >= self._need:
            buffer = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            at = self._read(buffer, packets)
            self.read_to += at
            if self._damage is not None:
                self._parts, self._size = [], 0
                found = self._damage.feed(buffer[at:])
                if found is None:
                    return packets
                buffer, at = self._go_on(found), 0
            self._parts = [buffer[at:]]
            self._size = len(buffer) - at
        return packets

    def end(self, damage: str | None = None) -> list[Packet]:
        """End the file; return the beginning of a packet within which it ends.

        That packet is given as if it had been captured no further.

        Args:
            damage: Why the file could not be read to its end, None if it was.
        """
        if self._damage is not None:
            self._summary.bad(self._reason or _DAMAGED, self.read_to, self._damage.size)
            if damage:
                self._summary.bad(damage, self.read_to + self._damage.size)
            return []
        buffer = b"".join(self._parts)
        size = len(buffer)
        packets: list[Packet] = []
        if size > _RECORD_HEADER:
            seconds, fraction, length, on_wire = self._record.unpack_from(buffer)
            if length <= min(on_wire, self._largest):
                time_ns = seconds * 1_000_000_000 + fraction * self._scale
                packets.append((time_ns, self._link, buffer, _RECORD_HEADER, size, on_wire))
        if size or damage:
            reason = damage or "the file ends within a packet"
            self._summary.bad(reason, self.read_to, 0 if packets else size)
        return packets

    def _read(self, buffer: bytes, packets: list[Packet]) -> int:
        """Read all whole records of a buffer; return how many bytes they take."""
        at = 0
        if not self.properties:
            self._read_file_header(buffer)
            at = PCAP_HEADER
        size, largest, link, scale = len(buffer), self._largest, self._link, self._scale
        unpack, append = self._record.unpack_from, packets.append
        seconds = self._seconds
        need = _RECORD_HEADER
        while at + _RECORD_HEADER <= size:
            second, fraction, length, on_wire = unpack(buffer, at)
            if not length and buffer[at : at + 4] in _MAGIC:
                self._reason = "another capture begins within the file: join captures with mergecap -a, not with cat"
            if length > largest or self._reason:
                self._damage = RecordSearch(self._record, seconds, 1_000_000_000 // scale, largest)
                break
            end = at + _RECORD_HEADER + length
            if end > size:
                need = _RECORD_HEADER + length
                break
            append((second * 1_000_000_000 + fraction * scale, link, buffer, at + _RECORD_HEADER, end, on_wire))
            seconds, at = second, end
        self._seconds, self._need = seconds, need
        return at

    def _read_file_header(self, buffer: bytes) -> None:
        order = "<" if buffer[0] in (0xD4, 0x4D) else ">"
        magic, _, _, _, _, snaplen, link = struct.unpack_from(order + "IHHiIII", buffer)
        self._record = struct.Struct(order + "IIII")
        self._link = link & 0x03FFFFFF  # the upper bits hold the length of a frame check sequence, and reserved bits
        self._scale = 1 if magic == 0xA1B23C4D else 1000
        self._largest = max(MAX_PACKET, snaplen) if snaplen < 1 << 26 else MAX_PACKET
        self.properties = ("pcap", order, magic, snaplen, link)

    def _go_on(self, found: int) -> bytes:
        """End the search; return the bytes from the valid record on."""
        assert self._damage is not None
        self._summary.bad(self._reason or _DAMAGED, self.read_to, found)
        self._reason = ""
        self.read_to += found
        rest = self._damage.rest(found)
        self._damage = None
        self._need = _RECORD_HEADER
        return rest


class RecordSearch:
    """The search behind a damaged record for the first record of a valid chain.

    A record is valid if its time is near that of the last good one and its length is possible. Each place is looked at
    once, and each chain followed from record to record as the bytes come, so that the work grows with the bytes alone.

    Args:
        record: How a record's header is read.
        seconds: Time of the last good record.
        unit: Fractions in a second.
        largest: The longest record in bytes.
        until: Time of the latest record to expect; None: within hours of ``seconds``.

    Attributes:
        size: Bytes since the damaged record.
    """

    def __init__(self, record: struct.Struct, seconds: int, unit: int, largest: int, until: int | None = None) -> None:
        last = seconds + 0x10000 if until is None else until
        self._highs = set(range(seconds >> 16, min(last >> 16, 0xFFFF) + 1))
        self._pattern = _record_pattern(record.format[0], self._highs, unit)
        self._unpack = record.unpack_from
        self._unit = unit
        self._largest = min(largest, _LARGEST_AFTER_DAMAGE)
        self._buffer = bytearray()
        self._base = 0  # place of the buffer's first byte, counted from the damaged record, as all places here
        self._next = 1  # the first place that was not tried
        self._chains: list[tuple[int, int, int]] = []  # next record, first record, records so far
        self.size: int = 0

    def feed(self, data: bytes) -> int | None:
        """Take more bytes; return the place of the first valid record, None if there is none yet."""
        self._buffer += data
        self.size += len(data)
        stop = self.size - _RECORD_HEADER
        for match in self._pattern.finditer(self._buffer, self._next - self._base):
            if len(self._chains) < _MOST_CHAINS:
                place = self._base + match.start()
                self._follow(place, place, 0)
        self._next = max(self._next, stop + 1)
        while self._chains and self._chains[0][0] <= stop:
            place, first, records = heapq.heappop(self._chains)
            if self._follow(place, first, records):
                return first
        self._trim()
        return None

    def rest(self, place: int) -> bytes:
        """The bytes from a place on."""
        return bytes(self._buffer[place - self._base :])

    def _follow(self, place: int, first: int, records: int) -> bool:
        """Add the record at a place to its chain, if it is valid; return whether that completes the chain."""
        seconds, fraction, length, on_wire = self._unpack(self._buffer, place - self._base)
        valid = seconds >> 16 in self._highs and fraction < self._unit and 14 <= length <= min(on_wire, self._largest)
        if valid and records + 1 == _CHAIN:
            return True
        if valid:
            heapq.heappush(self._chains, (place + _RECORD_HEADER + length, first, records + 1))
        return False

    def _trim(self) -> None:
        keep = min(self._next, *(first for _, first, _ in self._chains), self.size)
        if keep - self._base > len(self._buffer) // 2:
            del self._buffer[: keep - self._base]
            self._base = keep


def _record_pattern(order: str, highs: Iterable[int], unit: int) -> re.Pattern[bytes]:
    """Yield the places where a record's header may begin: near in time, with a possible fraction and length."""
    upper = b"[\0-\x0f]" if unit == 1_000_000 else b"[\0-\x3b]"  # a million has 20 bits, a billion 30
    if order == "<":
        seconds = b"|".join(re.escape(high.to_bytes(2, "little")) for high in highs)
        fraction = b".." + upper + b"\0" if unit == 1_000_000 else b"..." + upper
        pattern = b"(?=..(?:%b)%b(?!\0{4})..[\0-\x10]\0.{4})" % (seconds, fraction)
    else:
        seconds = b"|".join(re.escape(high.to_bytes(2, "big")) for high in highs)
        fraction = b"\0" + upper + b".." if unit == 1_000_000 else upper + b"..."
        pattern = b"(?=(?:%b)..%b(?!\0{4})\0[\0-\x10]...{4})" % (seconds, fraction)
    return re.compile(pattern, re.S)
