"""The frame cutter: a stream's bytes -> frames; the part that requests and responses share.

While the boundaries are known a frame is cut by its size alone, and unwanted frames are skipped without a copy. Where
the boundaries are lost, a search finds the next frame (``resync``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from .cuts import Gap, PartialStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cuts import StreamItem
    from .payloads import SharedPayload
    from .resync import FrameLink, Search

__all__ = ["FOREVER", "SIZE", "Chunk", "FrameCutter"]

FOREVER: Final = 1 << 62
"""``FrameCutter.skip_to`` of a stream that is no longer read."""

_SEARCH_BYTES: Final = 256 << 20
"""After so many bytes searched in vain a stream is given up."""

_LARGEST: Final = 1 << 30
"""A larger size is none that the first bytes of a stream could tell."""

_NOT_READ: Final = -1
_BROKEN: Final = -2
_NO_SIZE: Final = -3
"""In place of the offset of the next size field: before the first byte; the sizes led nowhere; no matter any more."""

SIZE: Final = struct.Struct(">i").pack

Chunk: TypeAlias = tuple[int, bytes, int, int, int]
"""Stream offset, a buffer, where in it the bytes begin and end, their time."""


class FrameCutter:
    """Cuts a stream at its frames' boundaries; requests and responses differ in how a frame begins.

    Args:
        search: Finds the next frame where the boundaries are not known.
        least: So many first bytes of a frame are needed to judge it.
        aligned: Whether the stream is known from its first byte.

    Attributes:
        skip_to: The cutter needs no byte before this stream offset; ``FOREVER``: none at all.
        searching: Whether the boundaries are unknown at the moment.
        held_bytes: Bytes of incomplete frames, without those that they share.
    """

    def __init__(self, search: Search, least: int, *, aligned: bool) -> None:
        self.skip_to = 0
        self.searching = not aligned
        self.held_bytes = 0
        self._search = search
        self._least = least
        self._unconfirmed = not aligned  # the boundaries are the search's guess until a frame confirms them
        self._at = 0  # stream offset of the next frame
        self._pieces: list[Chunk] = []  # its bytes so far
        self._large: SharedPayload | None = None  # its payload so far instead, if it is large
        self._need = self._least
        self._first_ns = self._last_ns = 0
        # A stream that is not known from its first byte may yet begin with a frame; sizes then lead to the boundary.
        self._size_at = _NOT_READ if not aligned else _NO_SIZE  # stream offset of the next size field
        self._size_begun = b""  # its first bytes
        self._size_places: list[int] = []  # where the sizes before it stood, as far as the search still keeps bytes

    def feed(self, todo: list[Chunk]) -> list[StreamItem]:
        """Take the next bytes of the stream, up to the first that complete a frame or show a fault.

        The caller handles the cuts before it calls again, since later ones depend on them.

        Args:
            todo: The bytes, the last piece first; those that are not yet taken remain in it.
        """
        found: list[StreamItem] = []
        while todo and not found:
            offset, buffer, begin, end, time_ns = piece = todo.pop()
            if offset < self.skip_to:
                begin += self.skip_to - offset
                if begin >= end:
                    continue
                offset = self.skip_to
                piece = offset, buffer, begin, end, time_ns
            if self.searching:
                self._look(piece, todo, found)
                continue
            if self._large is not None:
                self._feed_large(self._large, piece, todo, found)
                continue
            pieces = self._pieces
            if pieces:
                self._keep(offset, buffer, begin, end, time_ns)
                if self.held_bytes < self._need:
                    continue
                buffer = b"".join([data[start:stop] for _, data, start, stop, _ in pieces])
                begin, end = 0, len(buffer)
                self.held_bytes = 0
            else:
                self._first_ns = self._last_ns = time_ns
            taken = 0
            while not taken and end - begin >= self._need:
                taken = self._take(buffer, begin, end, found)
            if taken > 0:
                begin += taken
                self._at += taken
                self._need = self._least
            if taken >= 0 and begin >= end:
                pieces.clear()
                self.skip_to = self._at
            elif taken:
                todo += _from(self._at, pieces or [piece])
                pieces.clear()
            else:
                self._begin_frame(buffer, begin, end, time_ns)
        return found

    def passes(self, offset: int, buffer: bytes, begin: int, end: int, time_ns: int) -> bool:
        """Take the next bytes of the stream if they are not needed, or end no frame; else ``feed`` must take them."""
        if offset + end - begin <= self.skip_to:
            return True
        if offset < self.skip_to:
            return False
        if self._pieces and self.held_bytes + end - begin < self._need:
            self._keep(offset, buffer, begin, end, time_ns)
            return True
        large = self._large
        if large is not None and end - begin < large.missing:
            self._keep_large(large, buffer, begin, end, time_ns)
            return True
        return False

    def lost(self, offset: int, length: int) -> Iterator[StreamItem]:
        """Note bytes that are lost."""
        end = offset + length
        if self.searching:
            if self._size_at != _NO_SIZE:
                self._size_at = _BROKEN
            self._search.clear()
            self.skip_to = max(self.skip_to, end)
            return
        data = self._let_go()
        found: list[StreamItem] = []
        frame_end = self._broken(data, found) if data else -1
        yield from found
        if length:
            yield Gap(length)
        if data:
            self._need = self._least
            if frame_end >= end:
                self._at = self.skip_to = frame_end
                return
        elif self.skip_to >= end > offset:
            return
        found.clear()
        self._lose_boundary(found)
        yield from found
        self._at = self.skip_to = end

    @property
    def begins_inside(self) -> bool:
        """Whether bytes were searched in vain, and do not begin with a frame either."""
        return self.searching and self._size_at == _BROKEN

    @property
    def searched(self) -> int:
        """How many bytes the search has seen."""
        return self._search.seen

    def follow_sizes_of(self, other: FrameCutter) -> None:
        """Go on where another cutter of the same stream stands that has read it so far."""
        if self._size_at == _NOT_READ and other._size_at != _NOT_READ:
            self._size_at = other._size_at if other._size_at != _NO_SIZE else _BROKEN
            self._size_begun = other._size_begun
            self._size_places = list(other._size_places)

    def end(self) -> Iterator[StreamItem]:
        """Note the end of the stream."""
        data = self._let_go()
        if data and not self.searching:
            found: list[StreamItem] = []
            self._broken(data, found)
            yield from found
        self.stop()

    def stop(self) -> None:
        """Ignore the stream from now on."""
        self.skip_to = FOREVER
        self._let_go()
        self._search.clear()

    def give_up_held(self) -> Iterator[StreamItem]:
        """Drop the kept bytes: the frame that they begin is given with a gap."""
        self._search.clear()
        data = self._let_go()
        if not data:
            return
        at = self._at
        found: list[StreamItem] = []
        frame_end = self._broken(data, found)
        yield from found
        if frame_end >= 0:
            self._need = self._least
            self._at = self.skip_to = frame_end
        else:
            found.clear()
            self._lose_boundary(found)
            yield from found
            self.skip_to = at + len(data)

    @property
    def boundary(self) -> int | None:
        """Stream offset of the next frame; None while it is a guess, or a part of that frame has been read."""
        return None if self.searching or self._unconfirmed or self.held_bytes or self._need != self._least else self._at

    def go_to(self, boundary: int) -> None:
        """Go on at a later boundary: the frames before it are read elsewhere."""
        self._at = self.skip_to = boundary

    @property
    def searched_bytes(self) -> int:
        """Bytes that are kept because a frame may begin in them."""
        return self._search.held_bytes

    def _keep(self, offset: int, buffer: bytes, begin: int, end: int, time_ns: int) -> None:
        """Keep the next bytes of a frame that has begun."""
        self._pieces.append((offset, buffer[begin:end], 0, end - begin, time_ns))
        self.held_bytes += end - begin
        if time_ns > self._last_ns:
            self._last_ns = time_ns

    def _let_go(self) -> bytes:
        data = b"".join([data[begin:end] for _, data, begin, end, _ in self._pieces])
        self._pieces = []
        self.held_bytes = 0
        large = self._large
        if large is not None:
            self._large = None
            data = SIZE(len(large) + large.missing) + bytes(large)
            large.release()
        return data

    def _begin_frame(self, buffer: bytes, begin: int, end: int, time_ns: int) -> None:
        """Keep the first bytes of the next frame."""
        if self._large is None:
            self._pieces = [(self._at, buffer[begin:end], 0, end - begin, time_ns)]
            self.held_bytes = end - begin
        else:
            self._pieces = []
            self._large.append(buffer, begin + 4, end)
            self.held_bytes = self._large.held_bytes

    def _keep_large(self, large: SharedPayload, buffer: bytes, begin: int, end: int, time_ns: int) -> None:
        """Keep the next bytes of a large frame."""
        large.append(buffer, begin, end)
        self.held_bytes = large.held_bytes
        if time_ns > self._last_ns:
            self._last_ns = time_ns

    def _feed_large(self, large: SharedPayload, piece: Chunk, todo: list[Chunk], found: list[StreamItem]) -> None:
        """Take bytes of a large frame; those behind its end go back into ``todo``."""
        offset, buffer, begin, end, time_ns = piece
        stop = min(end, begin + large.missing)
        self._keep_large(large, buffer, begin, stop, time_ns)
        if large.missing:
            return
        self._large = None
        self.held_bytes = 0
        found.append(self._whole(large))
        self._at += 4 + len(large)
        self.skip_to = self._at
        self._need = self._least
        if stop < end:
            todo.append((offset + stop - begin, buffer, stop, end, time_ns))

    def _look(self, piece: Chunk, todo: list[Chunk], found: list[StreamItem]) -> None:
        """Search for a boundary; the bytes behind it go back into ``todo``."""
        offset, buffer, begin, end, time_ns = piece
        if self._size_at != _NO_SIZE:
            self._follow_sizes(offset, buffer[begin:end])
        start = self._search.feed(offset, buffer[begin:end], time_ns)
        if start is None:
            if self._search.seen > _SEARCH_BYTES:
                self.stop()
            return
        if self._search.step is not None:
            self._stepped(self._search.step, found)
        if self._size_at != _NO_SIZE:
            if self._size_at == _BROKEN or start not in self._size_places:
                found.append(PartialStart(start))
            self._size_at = _NO_SIZE
            self._size_places.clear()
        self.searching = False
        self._unconfirmed = True
        self._at = self.skip_to = start
        self._need = self._least
        todo += [(at, data, 0, len(data), when) for at, data, when in reversed(self._search.pieces(start))]
        self._search.clear()

    def _follow_sizes(self, offset: int, data: bytes) -> None:
        """Follow the chain of frames from the first byte on, without a look at what they are."""
        if self._size_at == _NOT_READ:
            self._size_at = offset
            self._size_places.append(offset)
        end = offset + len(data)
        kept = self._search.base
        if self._size_places and self._size_places[0] < kept:
            self._size_places = [place for place in self._size_places if place >= kept]
        while self._size_at >= 0 and self._size_at + len(self._size_begun) < end:
            begin = self._size_at + len(self._size_begun) - offset
            self._size_begun += data[begin : begin + 4 - len(self._size_begun)]
            if len(self._size_begun) < 4:
                return
            size = int.from_bytes(self._size_begun, "big", signed=True)
            self._size_begun = b""
            self._size_at = self._size_at + 4 + size if 4 <= size <= _LARGEST else _BROKEN
            self._size_places.append(self._size_at)

    def _lose_boundary(self, found: list[StreamItem]) -> None:
        """Note that the next boundary is no longer known."""
        self.searching = True
        self._need = self._least
        self._search.clear()

    def _take(self, data: bytes, at: int, end: int, found: list[StreamItem]) -> int:
        """Cut the frame at a place.

        Returns:
            Its length in bytes; 0 if ``_need`` bytes are needed first; -1 if no frame is here: the boundary is lost.
        """
        raise NotImplementedError

    def _whole(self, large: SharedPayload) -> StreamItem:
        """Give the large frame that ``_take`` began, and that is whole now."""
        raise NotImplementedError

    def _broken(self, data: bytes, found: list[StreamItem]) -> int:
        """Give the known part of a frame whose next byte is lost.

        Returns:
            The stream offset of its end, -1 if not known.
        """
        raise NotImplementedError

    def _stepped(self, step: FrameLink, found: list[StreamItem]) -> None:
        """Give the frame that the search found by stepping from its size to the next boundary."""
        raise NotImplementedError


def _from(offset: int, pieces: list[Chunk]) -> list[Chunk]:
    """The pieces from a stream offset on, the last one first."""
    rest = []
    for at, buffer, begin, end, time_ns in reversed(pieces):
        if at + end - begin <= offset:
            break
        ahead = max(0, offset - at)
        rest.append((at + ahead, buffer, begin + ahead, end, time_ns))
    return rest
