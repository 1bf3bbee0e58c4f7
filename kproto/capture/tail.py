"""The last part of a capture, read by itself: what it has grown by, or its last packets.

Neither pcap nor pcapng marks where a packet begins. Where no earlier reading tells, it is found by search: the first
chain of valid records, or blocks, from a given byte on.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from kproto.errors import CaptureError

from .pcap import PcapReader, RecordSearch
from .pcapng import PcapngReader
from .source import HEAD, PCAP_HEADER, detect_format
from .summary import CaptureSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .pcap import Packet

_CHUNK: Final = 1 << 18
_FIRST_LOOK: Final = 1 << 13
"""Mostly so few bytes are enough to find a border."""

_DAYS: Final = 40
"""The number of days after a file's first packet in which its other packets must be."""

_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_LARGEST_BLOCK: Final = 1 << 24
_CHAIN: Final = 4
_HEAD_LIMIT: Final = 16 << 20
"""So far into a pcapng file its first packet may stand: interfaces and names come before it."""


class TailError(CaptureError):
    """A file whose last part cannot be read by itself; as a whole it can."""


class Tail(NamedTuple):
    """The last part of a file that is not packed.

    Attributes:
        file: The file.
        begin: The part holds the packets that begin at this byte of the file or behind it.
        size: Bytes of the file when the part was chosen; those added since are not read.
        goes_on: Whether a packet is known to begin at ``begin``: an earlier reading ended there.
    """

    file: str
    begin: int
    size: int
    goes_on: bool = False


def is_plain(head: bytes) -> bool:
    """Whether a file that begins so can be read from any packet on: a pcap or pcapng that is not packed."""
    try:
        return detect_format("", head, whole=True) in ("pcap", "pcapng")
    except CaptureError:
        return False


def read_tail(
    tail: Tail,
    opener: Callable[[str], IO[bytes]],
    summary: CaptureSummary,
    before_end: Callable[[int, bool], object] = lambda _read_to, _has_context: None,
) -> Iterator[list[Packet]]:
    """Read the packets of the last part of a file, in pieces.

    Args:
        tail: The part.
        opener: Opens a file by its name, for seeking.
        summary: Damage is noted there, with offsets in the file.
        before_end: Called before the packet within which the file ends, with the place behind the last whole packet,
            and ``has_context`` of the part.

    Raises:
        TailError: The part cannot be read by itself.
        CaptureError: The file is no capture.
    """
    with opener(tail.file) as file:
        head = _read_at(file, 0, HEAD)
        is_pcap = detect_format(summary.reading, head, whole=True) == "pcap"
        summary.format = "pcap" if is_pcap else "pcapng"
        prefix = head[:PCAP_HEADER] if is_pcap else _pcapng_prefix(file, tail.size)
        boundary = _pcap_boundary if is_pcap else _pcapng_boundary
        at = tail.begin if tail.goes_on else boundary(file, prefix, tail.begin, tail.size)
        if at >= tail.size:
            return
        reader = PcapReader(summary) if is_pcap else PcapngReader(summary)
        reader.feed(prefix)
        context = reader.context
        reader.read_to = at
        file.seek(at)
        while at < tail.size:
            data = file.read(min(_CHUNK, tail.size - at))
            if not data:
                raise TailError(f"{tail.file}: the file became shorter while it was read")
            at += len(data)
            yield reader.feed(data)
        before_end(reader.read_to, reader.context != context)
        # The packet within which a file ends is not cut by the capture's snaplen, and so not counted as such.
        cut, not_tcp = summary.cut_packets, summary.not_tcp
        yield reader.end(None)
        summary.cut_packets, summary.not_tcp = cut, not_tcp


def has_context(file: IO[bytes], context: int) -> bool:
    """Whether packets of a pcapng rest on more than the blocks before the first one: sections, interfaces, no times.

    Args:
        file: The file, for seeking.
        context: ``FileReader.context`` of all of it; 0 of a pcap.
    """
    if not context:
        return False
    try:
        reader = PcapngReader(CaptureSummary())
        reader.feed(_pcapng_prefix(file, _HEAD_LIMIT))
    except TailError:
        return True
    return reader.context != context


def _pcap_boundary(file: IO[bytes], prefix: bytes, at: int, size: int) -> int:
    """The first record at or behind a byte of a pcap; the file's size if there is none."""
    order = "<" if prefix[0] in (0xD4, 0x4D) else ">"
    magic, _, _, _, _, snaplen, _ = struct.unpack(order + "IHHiIII", prefix)
    first = _read_at(file, PCAP_HEADER, 4)
    if len(first) < 4:
        return size
    (seconds,) = struct.unpack(order + "I", first)
    unit = 1_000_000_000 if magic == 0xA1B23C4D else 1_000_000
    largest = max(1 << 18, snaplen) if snaplen < 1 << 26 else 1 << 18
    search = RecordSearch(struct.Struct(order + "IIII"), seconds, unit, largest, seconds + _DAYS * 86_400)
    place = max(at, PCAP_HEADER) - 1  # the search looks behind the byte at which it begins
    file.seek(place)
    read = place
    while read < size and (data := file.read(min(max(_FIRST_LOOK, read - place), _CHUNK, size - read))):
        read += len(data)
        found = search.feed(data)
        if found is not None:
            return place + found
    return size


def _pcapng_prefix(file: IO[bytes], size: int) -> bytes:
    """All blocks before the first packet."""
    data = _read_at(file, 0, min(size, _HEAD_LIMIT))
    order = "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from(order + "II", data, at)
        if kind in (2, 3, 6):
            return data[:at]
        if length < 12 or length & 3:
            break
        at += length
    raise TailError("no packet near the beginning of this pcapng file")


def _pcapng_boundary(file: IO[bytes], prefix: bytes, at: int, size: int) -> int:
    """The first packet block at or behind a byte of a pcapng; the file's size if there is none."""
    order = "<" if prefix[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    begin = at + -at % 4
    kind = struct.pack(order + "I", 6)
    window = _FIRST_LOOK
    while begin < size:
        buffer = _read_at(file, begin, min(window, size - begin))
        is_end = begin + len(buffer) >= size
        place = buffer.find(kind)
        verdict: bool | None = False
        while place >= 0:
            verdict = _chained(buffer, place, order, is_end=is_end) if place % 4 == 0 else False
            if verdict:
                return begin + place
            if verdict is None:
                break
            place = buffer.find(kind, place + 1)
        if is_end:
            break
        begin += place if verdict is None else (len(buffer) - 3) & ~3
        window = 4 * window if place == 0 else max(window, _CHUNK)
    return size


def _chained(buffer: bytes, at: int, order: str, *, is_end: bool) -> bool | None:
    """Whether blocks follow each other from here on; None if more must be seen to tell."""
    for _ in range(_CHAIN):
        if at + 12 > len(buffer):
            return (at == len(buffer)) if is_end else None
        _, length = struct.unpack_from(order + "II", buffer, at)
        if length < 12 or length & 3 or length > _LARGEST_BLOCK:
            return False
        end = at + length
        if end > len(buffer):
            return False if is_end else None
        if struct.unpack_from(order + "I", buffer, end - 4)[0] != length:
            return False
        at = end
    return True


def _read_at(file: IO[bytes], at: int, count: int) -> bytes:
    file.seek(at)
    parts = []
    while count and (data := file.read(count)):
        parts.append(data)
        count -= len(data)
    return b"".join(parts)
