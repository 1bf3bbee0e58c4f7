"""A recorder of frames as they pass, in pcapng files that Wireshark and ``kproto.capture`` open.

Each frame becomes TCP segments of a conversation made up for it: sequence numbers are those of the real byte stream,
so that any reader of captures puts the frames together again. A segment is one Enhanced Packet Block; all blocks of a
frame are written in one call. Each carries the CRC-32C of the packet in a custom option (code 2989,
enterprise number 32473, the letters ``c32p``, the sum as uint32, little-endian), which ``kproto.capture`` holds
against what it reads; the length at the block's end shows a torn tail. So a recording is readable up to its last whole
block, however the process ended. TCP checksums are left zero, as a network card leaves them that computes its own.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias

from crc32c import crc32c

from channel.locks import new_lock
from channel.logs import get_logger
from kproto import __version__
from kproto.capture.pcapng import CRC_OPTION, CRC_PEN, CRC_TAG

from .transport import IOV_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .transport import Address, Bytes

__all__ = ["Direction", "PcapngRecorder", "Recorder"]

_log = get_logger(__name__)

Direction: TypeAlias = Literal["sent", "received"]

_SEGMENT: Final = 61_440  # bytes of payload: an IP packet holds less than 64 KiB
_FIN, _SYN, _PUSH, _ACK = 1, 2, 8, 16
_block = struct.Struct("<IIIIIII")
_tail = struct.Struct("<HHI4sIHHI")
_tcp = struct.Struct(">HHIIBBHHH")
_ipv4 = struct.Struct(">BBHHHBBH4s4s")
_ipv6 = struct.Struct(">IHBB16s16s")
_ETHERNET: Final = bytes.fromhex("020000000002020000000001")
_MAPPED: Final = bytes(10) + b"\xff\xff"  # before an IPv4 address that is written as an IPv6 address


class Recorder(Protocol):
    """Records every whole frame that has passed; called from many threads."""

    def opened(self, local: Address, remote: Address, time_ns: int, *, initiator: bool = True) -> None:
        """Note that a connection is established; ``initiator`` if this end made it."""

    def record(
        self, direction: Direction, local: Address, remote: Address, time_ns: int, buffers: Sequence[Bytes]
    ) -> None:
        """Record a frame that ``local`` sent to ``remote``, or received from it; its length is part of the buffers."""

    def closed(self, local: Address, remote: Address, time_ns: int) -> None:
        """Note that the connection has ended."""


class _Way:
    """One direction of a conversation: its headers, and the position in its stream."""

    __slots__ = ("_ethernet", "_from", "_sum", "_to", "_v4", "ports", "sequence")

    def __init__(self, source: Address, target: Address) -> None:
        ends = [ipaddress.ip_address(host.partition("%")[0]) for host, _ in (source, target)]
        self._v4 = all(end.version == 4 for end in ends)
        # A relay may join an IPv6 client to an IPv4 server: both are written as IPv6 then.
        self._from, self._to = (end.packed if self._v4 or end.version == 6 else _MAPPED + end.packed for end in ends)
        self._ethernet = _ETHERNET + (b"\x08\x00" if self._v4 else b"\x86\xdd")
        self.ports = (source[1], target[1])
        self.sequence = 0
        words = struct.unpack(">4H", self._from + self._to) if self._v4 else ()
        self._sum = 0x4500 + 0x4000 + 0x4006 + sum(words)

    def headers(self, length: int, acknowledged: int, flags: int) -> bytes:
        """Build the Ethernet, IP and TCP headers of this many bytes of payload."""
        tcp = _tcp.pack(*self.ports, self.sequence, acknowledged, 0x50, flags, 0xFFFF, 0, 0)
        if not self._v4:
            ip = _ipv6.pack(0x60000000, length + 20, 6, 64, self._from, self._to)
        else:
            total = self._sum + length + 40
            total = (total & 0xFFFF) + (total >> 16)
            total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            ip = _ipv4.pack(0x45, 0, length + 40, 0, 0x4000, 64, 6, total, self._from, self._to)
        return self._ethernet + ip + tcp

    def advance(self, length: int) -> None:
        """Move on by this many bytes."""
        self.sequence = (self.sequence + length) & 0xFFFFFFFF


class PcapngRecorder:
    """Writes a pcapng file. Safe from any thread; ``close`` it, or use it in a ``with``.

    Only the file's owner may read it. A file that can no longer be written (a full disk) ends the recording, not the
    traffic: the error is logged once, and kept in ``error``.

    Args:
        path: The file; one that exists is replaced.
        application: The name of the recording program, as readers show it.

    Attributes:
        path: The file that is written now.
        frames: Number of frames recorded.
        written: Bytes written to the present file.
        error: The error that ended the recording, None while it goes on.
    """

    def __init__(self, path: str | os.PathLike[str], application: str = f"kproto {__version__}") -> None:
        self.path = Path(path)
        self.frames = 0
        self.written = 0
        self.error: OSError | None = None
        self._lock = new_lock("recorder")
        self._ways: dict[tuple[Address, Address], tuple[_Way, _Way]] = {}
        self._application = application
        self._fd = -1
        with self._lock:
            self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def opened(self, local: Address, remote: Address, time_ns: int, *, initiator: bool = True) -> None:
        """Write the handshake of a connection."""
        with self._lock:
            out, back = self._ways[local, remote] = (_Way(local, remote), _Way(remote, local))
            asks, answers = (out, back) if initiator else (back, out)
            blocks = _packet(asks, 0, time_ns, _SYN)
            asks.advance(1)
            blocks += _packet(answers, asks.sequence, time_ns, _SYN | _ACK)
            answers.advance(1)
            blocks += _packet(asks, answers.sequence, time_ns, _ACK)
            self._write(blocks)

    def record(
        self, direction: Direction, local: Address, remote: Address, time_ns: int, buffers: Sequence[Bytes]
    ) -> None:
        """Write a frame: its length, header and body, in pieces that are not joined."""
        with self._lock:
            ways = self._ways.get((local, remote))
            if ways is None:  # the connection was open before the recording began
                ways = self._ways[local, remote] = (_Way(local, remote), _Way(remote, local))
            way, other = ways if direction == "sent" else ways[::-1]
            blocks: list[Bytes] = []
            for pieces, length in _segments(buffers):
                blocks += _packet(way, other.sequence, time_ns, _PUSH | _ACK, pieces, length)
                way.advance(length)
            self._write(blocks)
            self.frames += 1

    def closed(self, local: Address, remote: Address, time_ns: int) -> None:
        """Write the end of a connection."""
        with self._lock:
            ways = self._ways.pop((local, remote), None)
            if ways is None:
                return
            for way, other in (ways, ways[::-1]):
                self._write(_packet(way, other.sequence, time_ns, _FIN | _ACK))
                way.advance(1)

    def switch(self, path: str | os.PathLike[str]) -> None:
        """Continue in another file: open connections continue there with the next byte.

        A recording that had ended by an error begins again.

        Raises:
            OSError: The file cannot be opened; the recording goes on in the present one.
        """
        with self._lock:
            former, former_path = self._fd, self.path
            self.path = Path(path)
            try:
                self._open()
            except OSError:
                self._fd, self.path = former, former_path
                raise
            if former >= 0:
                try:
                    os.close(former)
                except OSError as e:  # bytes that the system had taken and could not write
                    _log.error("the end of the recording %s may be missing: %s", former_path, e)

    def close(self) -> None:
        """End the recording; later frames are not recorded."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._ways.clear()

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            with contextlib.suppress(PermissionError):  # the file of another user, who chose its mode
                os.fchmod(self._fd, 0o600)
        self.written = 0
        self.error = None
        self._write([_section_header(self._application), _interface()])

    def _write(self, pieces: list[Bytes]) -> None:
        """Write all blocks of a frame in one call, unless the system takes only a part."""
        if self._fd < 0 or self.error is not None:
            return
        try:
            at = 0
            while at < len(pieces):
                written = os.writev(self._fd, pieces[at : at + IOV_MAX])
                self.written += written
                while at < len(pieces) and written >= len(pieces[at]):
                    written -= len(pieces[at])
                    at += 1
                if written:
                    pieces[at] = memoryview(pieces[at])[written:]
        except OSError as e:
            self.error = e
            _log.error("recording to %s has ended: %s", self.path, e)


def _packet(
    way: _Way, acknowledged: int, time_ns: int, flags: int, pieces: Sequence[Bytes] = (), length: int = 0
) -> list[Bytes]:
    """Build a block with one packet, in pieces that are not joined."""
    headers = way.headers(length, acknowledged, flags)
    captured = len(headers) + length
    padding = -captured % 4
    size = 28 + captured + padding + 24
    checksum = crc32c(headers)
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    head = _block.pack(6, size, 0, time_ns >> 32, time_ns & 0xFFFFFFFF, captured, captured)
    tail = bytes(padding) + _tail.pack(CRC_OPTION, 12, CRC_PEN, CRC_TAG, checksum, 0, 0, size)
    return [head + headers, *pieces, tail]


def _segments(buffers: Sequence[Bytes]) -> Iterator[tuple[list[Bytes], int]]:
    """Cut the buffers into the pieces of each segment, with the segment's length."""
    segment: list[Bytes] = []
    room = _SEGMENT
    for buffer in buffers:
        at, size = 0, len(buffer)
        while size - at >= room:
            segment.append(memoryview(buffer)[at : at + room])
            yield segment, _SEGMENT
            at += room
            segment, room = [], _SEGMENT
        if at < size:
            segment.append(memoryview(buffer)[at:] if at else buffer)
            room -= size - at
    if segment:
        yield segment, _SEGMENT - room


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _wrapped(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _section_header(application: str) -> bytes:
    options = _option(4, application.encode()) + _option(0, b"")
    return _wrapped(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def _interface() -> bytes:
    """Ethernet, whole packets, times in ns."""
    options = _option(2, b"kproto") + _option(9, b"\x09") + _option(0, b"")
    return _wrapped(1, struct.pack("<HHI", 1, 0, 0) + options)
