"""Frames: an int32 length and that many bytes of payload, as Kafka sends every message. No I/O here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .errors import FrameTooLarge, Truncated

if TYPE_CHECKING:
    from .types import Buffer

DEFAULT_LIMIT = 104_857_600
"""Kafka's default of ``socket.request.max.bytes``: 100 MiB."""

_LENGTH = struct.Struct(">i")


def frame(payload: Buffer) -> bytes:
    """Put the length before a payload. For large bodies send length and pieces instead of joining them."""
    view = memoryview(payload)
    return _LENGTH.pack(view.nbytes) + view


class FrameSplitter:
    """Cuts a byte stream, fed in pieces of any size, into frames.

    The frames do not depend on how the bytes were divided into pieces. Memory is bounded by ``limit`` and by the bytes
    that were fed; a large length alone allocates nothing.

    >>> splitter = FrameSplitter()
    >>> list(splitter.feed(bytes.fromhex("0000000548")))
    []
    >>> list(splitter.feed(b"ello" + bytes.fromhex("00000000")))
    [b'Hello', b'']

    Args:
        limit: Largest payload in bytes, -1 for none (as Kafka's receive limit).
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._held = bytearray()
        self._at = 0  # how much of what is held has been given out
        self._offset = 0
        self._broken: FrameTooLarge | None = None

    @property
    def offset(self) -> int:
        """Stream offset in bytes of the first byte that belongs to no complete frame yet."""
        return self._offset

    @property
    def pending(self) -> int:
        """The number of held bytes that belong to no complete frame yet."""
        return len(self._held) - self._at

    def feed(self, data: Buffer) -> FrameSplitter:
        """Add bytes; iterating over the result yields the payloads that are complete now."""
        self._held += memoryview(data)  # numpy would take += for arithmetic
        return self

    def __iter__(self) -> FrameSplitter:
        return self

    def __next__(self) -> bytes:
        """Return the next complete payload.

        Raises:
            FrameTooLarge: A length above the limit or below zero. The rest of the stream cannot be cut: every later
                call raises it again.
        """
        if self._broken is not None:
            raise self._broken
        held, at = self._held, self._at
        if len(held) - at >= 4:
            (length,) = _LENGTH.unpack_from(held, at)
            if length < 0 or (self.limit >= 0 and length > self.limit):
                reason = f"frame length {length}" if length < 0 else f"a frame of {length} bytes, limit {self.limit}"
                self._broken = FrameTooLarge(reason, self._offset)
                raise self._broken
            end = at + 4 + length
            if end <= len(held):
                self._at = end
                self._offset += 4 + length
                return bytes(memoryview(held)[at + 4 : end])
        del held[:at]
        self._at = 0
        raise StopIteration

    def close(self) -> None:
        """End the stream.

        Raises:
            Truncated: It ended in the middle of a frame.
        """
        if self.pending:
            raise Truncated(f"the stream ends inside a frame, {self.pending} bytes of it", self._offset)
