"""Parts of large captures, each of which is read by itself.

Neither pcap nor pcapng marks where a packet begins. A part's borders are therefore found by search: the first chain of
valid records, or blocks, from a given offset on. The part before it must end exactly there; where it does not, the
file cannot be read in parts, and ``SplitError`` says so. Nothing is guessed.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from kproto.errors import CaptureError

from .pcap import PcapReader, RecordSearch
from .pcapng import PcapngReader
from .source import HEAD, Source, check_begun, detect_format
from .summary import CaptureSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .pcap import Packet

_CHUNK: Final = 1 << 18
_FIRST_LOOK: Final = 1 << 13
"""Mostly so few bytes are enough to find a border."""

_DAYS: Final = 40
"""The number of days after a file's first packet in which its other packets must be."""

_PCAP_HEADER: Final = 24
_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_LARGEST_BLOCK: Final = 1 << 24
_CHAIN: Final = 4
_HEAD_LIMIT: Final = 16 << 20
"""So far into a pcapng file its first packet may stand: interfaces and names come before it."""


class SplitError(CaptureError):
    """A file that cannot be read in parts; as a whole it can."""


class Split(NamedTuple):
    """A part of a file.

    Attributes:
        file: The file.
        begin: The part holds the packets that begin at this byte of the file or behind it,
        end: but before this byte. None: up to the file's end, and the file may be packed.
        size: Bytes of the file when the parts were planned; those added since are not read. 0 if ``end`` is None.
        goes_on: Whether a packet is known to begin at ``begin``: an earlier reading ended there.
    """

    file: str
    begin: int = 0
    end: int | None = None
    size: int = 0
    goes_on: bool = False


def is_splittable(head: bytes) -> bool:
    """Whether a file that begins so can be read in parts: a pcap or pcapng that is not packed."""
    try:
        return detect_format("", head, whole=True) in ("pcap", "pcapng")
    except CaptureError:
        return False


def read_split(
    split: Split,
    opener: Callable[[str], IO[bytes]],
    summary: CaptureSummary,
    before_end: Callable[[int], object] = lambda _read_to: None,
) -> Iterator[list[Packet]]:
    """Read the packets of a part, in pieces.

    Args:
        split: The part.
        opener: Opens a file by its name, for seeking.
        summary: Damage is noted there, with offsets in the file.
        before_end: Called where the part ends with the file, before the packet in which the file ends, with the place
            behind the last whole packet.

    Raises:
        SplitError: The part does not end where the next one begins, or the next one depends on what stands in this one.
        CaptureError: The file cannot be read, or is no capture.
    """
    if split.end is None:
        yield from _whole(split, opener, summary)
        return
    with opener(split.file) as file:
        head = _read_at(file, 0, HEAD)
        is_pcap = detect_format(summary.reading, head, whole=True) == "pcap"
        summary.format = "pcap" if is_pcap else "pcapng"
        prefix = head[:_PCAP_HEADER] if is_pcap else _pcapng_prefix(file, split.size)
        boundary = _pcap_boundary if is_pcap else _pcapng_boundary
        is_known = split.goes_on or not split.begin
        begin = split.begin if is_known else boundary(file, prefix, split.begin, split.size)
        end = boundary(file, prefix, split.end, split.size) if split.end < split.size else split.size
        if begin >= end:
            return
        reader = PcapReader(summary) if is_pcap else PcapngReader(summary)
        if begin:
            reader.feed(prefix)
            reader.go_to(begin)
        file.seek(begin)
        at = begin
        while at < end:
            data = file.read(min(_CHUNK, end - at))
            if not data:
                raise SplitError(f"{split.file}: the file became shorter while it was read")
            at += len(data)
            yield reader.feed(data)
        if end == split.size:
            before_end(reader.read_to)
            yield from _ended(reader, summary)
        elif reader.begun:
            raise SplitError(
                f"{split.file}: the packets before byte {end} do not end there (damage, or packets that hold a "
                "capture); read this file as a whole: --split-size 0"
            )
        elif isinstance(reader, PcapngReader) and reader.context != _context(prefix):
            raise SplitError(
                f"{split.file}: sections, interfaces or packets without a time begin within the file before byte "
                f"{end}; read this file as a whole: --split-size 0"
            )


def _whole(split: Split, opener: Callable[[str], IO[bytes]], summary: CaptureSummary) -> Iterator[list[Packet]]:
    with Source(split.file, opener=opener) as source:
        head = source.peek(HEAD)
        check_begun(source, begun=bool(head))
        found = detect_format(source.name, head, whole=True)
        if found == "request log":
            raise CaptureError(f"{source.name}: a request log among captures")
        assert found is not None
        summary.format = found
        reader = PcapReader(summary) if found == "pcap" else PcapngReader(summary)
        while data := source.read():
            yield reader.feed(data)
        yield from _ended(reader, summary, source.damage)


def _ended(
    reader: PcapReader | PcapngReader, summary: CaptureSummary, damage: str | None = None
) -> Iterator[list[Packet]]:
    """Give the packet within which a file ends. It is not cut by the capture's snaplen, and so not counted as such."""
    cut, not_tcp = summary.cut_packets, summary.not_tcp
    yield reader.end(damage)
    summary.cut_packets, summary.not_tcp = cut, not_tcp


def _pcap_boundary(file: IO[bytes], prefix: bytes, at: int, size: int) -> int:
    """The first record at or behind a byte of a pcap; the file's size if there is none."""
    order = "<" if prefix[0] in (0xD4, 0x4D) else ">"
    magic, _, _, _, _, snaplen, _ = struct.unpack(order + "IHHiIII", prefix)
    first = _read_at(file, _PCAP_HEADER, 4)
    if len(first) < 4:
        return size
    (seconds,) = struct.unpack(order + "I", first)
    unit = 1_000_000_000 if magic == 0xA1B23C4D else 1_000_000
    largest = max(1 << 18, snaplen) if snaplen < 1 << 26 else 1 << 18
    search = RecordSearch(struct.Struct(order + "IIII"), seconds, unit, largest, seconds + _DAYS * 86_400)
    place = max(at, _PCAP_HEADER) - 1  # the search looks behind the byte at which it begins
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
    raise SplitError("no packet near the beginning of this pcapng file; read it as a whole: --split-size 0")


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


def _context(prefix: bytes) -> int:
    reader = PcapngReader(CaptureSummary())
    reader.feed(prefix)
    return reader.context


def _read_at(file: IO[bytes], at: int, count: int) -> bytes:
    file.seek(at)
    parts = []
    while count and (data := file.read(count)):
        parts.append(data)
        count -= len(data)
    return b"".join(parts)
