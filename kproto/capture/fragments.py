"""IP reassembly: fragments of packets that carry TCP or a tunnel -> the packets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .summary import CaptureSummary

_U16 = struct.Struct(">H").unpack_from

_PATIENCE_NS: Final = 30_000_000_000
"""For how long a fragment waits for the others: identifications are soon used again."""

_HELD_LIMIT: Final = 8 << 20
"""The most bytes of waiting fragments; each counts with its overhead."""

_OVERHEAD: Final = 200

_MOST_FRAGMENTS: Final = 256
"""The most fragments of one packet: it has less than 64 KiB, and every link carries 576 bytes."""


@dataclass(slots=True)
class _Parts:
    began_ns: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    length: int = -1  # of the whole payload; the last fragment tells it
    held: int = _OVERHEAD
    spoilt: bool = False
    whole: bool = False  # the packet is done; kept for a while to recognise copies of its fragments


class Fragments:
    """The packets that lack fragments.

    A packet with overlapping fragments is ambiguous and dropped whole, as receivers do. An exact copy of a fragment is
    no overlap.

    Args:
        summary: Counts the dropped fragments.
    """

    def __init__(self, summary: CaptureSummary) -> None:
        self._summary = summary
        self._waiting: dict[bytes, _Parts] = {}  # the oldest first
        self._held = 0

    def ipv4(self, time_ns: int, buffer: bytes, at: int, stop: int, begins: bool) -> bytes | None:
        """Take a fragment; return its packet, without options, if that is whole now.

        Args:
            time_ns: When it passed.
            buffer: The buffer that holds it.
            at: Where its header begins.
            stop: Where its captured bytes end.
            begins: Whether its packet may carry TCP or a tunnel; else it is taken if others of its packet wait.
        """
        header, where = (buffer[at] & 15) * 4, _U16(buffer, at + 6)[0]
        end = at + _U16(buffer, at + 2)[0]
        head = (
            b"\x45" + bytes(8) + buffer[at + 9 : at + 10] + b"\0\0" + buffer[at + 12 : at + 20]
        )  # length 0: to the end of the bytes
        key = head + buffer[at + 4 : at + 6]
        data = buffer[at + header : end] if header >= 20 and end <= stop else b""  # a cut fragment is of no use
        return self._add(time_ns, head, key, where & 0x2000, (where & 0x1FFF) * 8, data, begins)

    def ipv6(self, time_ns: int, buffer: bytes, at: int, header: int, stop: int, begins: bool) -> bytes | None:
        """The same of IPv6, where the fragment header begins at ``header``; the packet has no extension headers."""
        where = _U16(buffer, header + 2)[0]
        end = at + 40 + _U16(buffer, at + 4)[0]
        head = buffer[at : at + 4] + b"\0\0" + buffer[header : header + 1] + b"\0" + buffer[at + 8 : at + 40]
        key = head[6:] + buffer[header + 4 : header + 8]
        data = buffer[header + 8 : end] if end <= stop else b""
        return self._add(time_ns, head, key, where & 1, where & 0xFFF8, data, begins)

    def end(self) -> None:
        """End the capture: the waiting fragments are counted as lost."""
        while self._waiting:
            self._drop(next(iter(self._waiting)))

    def _add(
        self, time_ns: int, head: bytes, key: bytes, more: int, offset: int, data: bytes, begins: bool
    ) -> bytes | None:
        if not begins and key not in self._waiting:
            self._summary.not_tcp += 1
            return None
        if not data:
            self._summary.ip_fragments += 1
            return None
        waiting = self._waiting
        while waiting:
            oldest = next(iter(waiting))
            if self._held <= _HELD_LIMIT and time_ns - waiting[oldest].began_ns <= _PATIENCE_NS:
                break
            self._drop(oldest)
        parts = waiting.get(key)
        if parts is not None and parts.pieces.get(offset) == data:
            return None
        if parts is not None and parts.whole:  # another packet with the same identification
            self._drop(key)
            parts = None
        if parts is None:
            parts = waiting[key] = _Parts(time_ns)
            self._held += parts.held
        elif parts.spoilt:
            self._summary.ip_fragments += 1
            return None
        last = offset + len(data)
        known = parts.length if more else last
        parts.spoilt = (
            (more and len(data) % 8 != 0)
            or len(parts.pieces) == _MOST_FRAGMENTS
            or parts.length not in (-1, known)
            or any(at < last and offset < at + len(piece) for at, piece in parts.pieces.items())
        )
        parts.pieces[offset] = data
        parts.length = known
        if parts.spoilt:
            self._summary.ip_fragments += len(parts.pieces)
            parts.pieces.clear()
            return None
        parts.held += len(data) + _OVERHEAD
        self._held += len(data) + _OVERHEAD
        if sum(map(len, parts.pieces.values())) != known or max(parts.pieces) >= known:
            return None
        parts.whole = True
        return head + b"".join(parts.pieces[at] for at in sorted(parts.pieces))

    def _drop(self, key: bytes) -> None:
        parts = self._waiting.pop(key)
        self._held -= parts.held
        if not parts.whole:
            self._summary.ip_fragments += len(parts.pieces)
