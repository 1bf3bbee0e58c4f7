"""Finding the next frame in a stream whose boundaries are lost.

A message that the codec can read is taken up where its header is plausible, its body decodes to the last byte, and what
follows begins like a frame. Any other message is only a stepping stone: it must begin with a segment, and the frame
after it must follow from it (same client, a later correlation id). Nothing else is believed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from .plausible import CONTROL_HEADER, body_is_whole, header_room, request_header, response_body_at, trusted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .correlate import Conversation
    from .plausible import Header

__all__ = ["RequestSearch", "ResponseSearch", "Search", "Step"]

_I32_PAIR: Final = struct.Struct(">ii").unpack_from
_I32: Final = struct.Struct(">i")

_HEADER_ROOM: Final = 512
"""Bytes of header and client id that a plausible request needs at most."""

_HELD_LIMIT: Final = 32 << 20
"""Bytes kept for candidates that are not whole yet; each segment counts for its overhead too."""

_MARK_OVERHEAD: Final = 100

_CANDIDATES: Final = 64
_STEPS: Final = 8
_STRIDE: Final = 1000
"""Clients that share a counter between connections skip ids; so far, but no further."""


class Step(NamedTuple):
    """A frame that may be stepped over.

    Attributes:
        end: Stream offset of the frame after it.
        header: Its header; None where only its size is believed.
        correlation_id: Of a response, its id.
    """

    end: int
    header: Header | None = None
    correlation_id: int | None = None


class Search:
    """What both directions have in common; holds the bytes that candidates need, and no more.

    Attributes:
        step: The step by which the last find was made, None if it was made otherwise.
        seen: Bytes searched so far.
    """

    def __init__(self, conversation: Conversation, limit: int) -> None:
        self.step: Step | None = None
        self.seen = 0
        self._conversation = conversation
        self._limit = limit
        self._buffer = bytearray()
        self._base = 0  # stream offset of the buffer
        self._marks: list[tuple[int, int]] = []  # stream offset, time of each segment held
        self._scanned = 0  # stream offset up to which candidates were looked for
        self._partial: list[int] = []  # stream offsets of headers that are not whole yet
        self._candidates: list[tuple[int, int]] = []  # stream offsets: where they begin and end
        self._steps: list[Step] = []

    def data(self, offset: int, data: bytes, time_ns: int) -> int | None:
        """Take a segment; the stream offset from which frames can be read again, None if not yet."""
        if not self._buffer:
            self._base = self._scanned = offset
        self._buffer += data
        self._marks.append((offset, time_ns))
        self.seen += len(data)
        end = offset + len(data)
        found = self._try_candidates(end)
        if found is None:
            found = self._try_steps(end)
        if found is None:
            step = self._step_at(data, offset)
            if step is not None:
                self.add_step(step)
                found = self._try_steps(end)
        if found is None:
            self._trim(end)
        return found

    def add_step(self, step: Step) -> None:
        """Try a frame of which only the place and size are known."""
        if len(self._steps) == _STEPS:
            del self._steps[0]
        self._steps.append(step)

    def pieces(self, start: int) -> list[tuple[int, bytes, int]]:
        """What is held from ``start`` on, segment by segment: offset, bytes, time."""
        buffer = bytes(self._buffer)
        end = self._base + len(buffer)
        first = max(bisect_right(self._marks, start, key=_first) - 1, 0)
        marks = self._marks[first:]
        out = []
        for i, (offset, time_ns) in enumerate(marks):
            stop = marks[i + 1][0] if i + 1 < len(marks) else end
            begin = max(offset, start, self._base)
            if stop > begin:
                out.append((begin, buffer[begin - self._base : stop - self._base], time_ns))
        return out

    def clear(self) -> None:
        """Forget what is held: what comes next does not follow it."""
        self._buffer.clear()
        self._marks.clear()
        self._partial.clear()
        self._candidates.clear()
        self._steps.clear()

    def _try_steps(self, end: int) -> int | None:
        kept = []
        for step in self._steps:
            if step.end < self._base:
                continue
            verdict = self._follows(step, step.end - self._base) if step.end <= end else None
            if verdict:
                self.step = step
                return step.end
            if verdict is None:
                kept.append(step)
        self._steps = kept
        return None

    def _try_candidates(self, end: int) -> int | None:
        base = self._base
        partial, self._partial = self._partial, []
        for at in chain((start - base for start in partial), self._places(self._scanned - base)):
            size = self._candidate(at)
            if size == 0:
                self._partial.append(base + at)
            elif size > 0:
                self._candidates.append((base + at, base + at + 4 + size))
        self._scanned = max(self._scanned, end - self._room + 1)
        waiting = []
        for start, stop in sorted(self._candidates):
            if stop > end:
                waiting.append((start, stop))
            elif self._whole(start - base, stop - base) and self._may_follow(stop - base):
                self.step = None
                return start
        self._candidates = waiting[-_CANDIDATES:]
        return None

    def _trim(self, end: int) -> None:
        if end - self._base + _MARK_OVERHEAD * len(self._marks) > _HELD_LIMIT:
            self._candidates.clear()
        keep = min(
            self._scanned,
            *self._partial,
            *(start for start, _ in self._candidates),
            *(step.end for step in self._steps),
            end,
        )
        drop = keep - self._base
        if drop > 0 and drop >= len(self._buffer) // 2:
            del self._buffer[:drop]
            self._base = keep
            del self._marks[: max(bisect_right(self._marks, keep, key=_first) - 1, 0)]

    # What the two directions do each in its own way; ``at`` and ``end`` are places in the buffer.

    _room: int
    """Bytes of a frame's beginning by which it is recognised."""

    def _places(self, start: int) -> Iterator[int]:
        """Where frames worth a look may begin."""
        raise NotImplementedError

    def _candidate(self, at: int) -> int:
        """The size of the frame that may begin here, 0 if more must be seen first, -1 if none does."""
        raise NotImplementedError

    def _whole(self, at: int, end: int) -> bool:
        """Whether this is a message to the last byte."""
        raise NotImplementedError

    def _may_follow(self, at: int) -> bool:
        """Whether what stands here may be the beginning of the next frame."""
        raise NotImplementedError

    def _step_at(self, data: bytes, offset: int) -> Step | None:
        """The frame that a segment may begin with."""
        raise NotImplementedError

    def _follows(self, step: Step, at: int) -> bool | None:
        """Whether the frame here is the successor of that step; None if more must be seen first."""
        raise NotImplementedError


class RequestSearch(Search):
    """Looks for the next request of a client."""

    _room = 14

    def _places(self, start: int) -> Iterator[int]:
        if self._conversation.wants_control:
            for match in CONTROL_HEADER.finditer(self._buffer, start + 4):
                yield match.start() - 4

    def _candidate(self, at: int) -> int:
        end = len(self._buffer)
        room = header_room(self._buffer, at, end)
        if room > _HEADER_ROOM and room > end - at:
            return -1
        if room > end - at:
            return 0
        header = self._header(at, end)
        return header.size if header is not None and self._conversation.wants(header.api_key) else -1

    def _header(self, at: int, end: int) -> Header | None:
        """The header here, if it can be trusted and is this client's."""
        header = request_header(self._buffer, at, end)
        if header is None or not trusted(header, self._limit):
            return None
        known = self._conversation.client_id
        return header if known is None or header.client_id == known else None

    def _whole(self, at: int, end: int) -> bool:
        header = self._header(at, end)
        if header is None:
            return False
        body = memoryview(bytes(self._buffer[at + 4 + header.body_at : end]))
        return bool(body_is_whole(header.api_key, header.api_version, body, "req"))

    def _may_follow(self, at: int) -> bool:
        end = len(self._buffer)
        room = header_room(self._buffer, at, end)
        if room > end - at:  # what is there of it must at least not be an absurd size
            return at == end or self._buffer[at] <= self._limit >> 24
        return room > 0 and self._header(at, end) is not None

    def _step_at(self, data: bytes, offset: int) -> Step | None:
        at = offset - self._base
        header = self._header(at, at + len(data))
        if header is None or not header.client_id:
            return None
        return Step(offset + 4 + header.size, header)

    def _follows(self, step: Step, at: int) -> bool | None:
        end = len(self._buffer)
        room = header_room(self._buffer, at, end)
        if room > end - at:
            return None if room <= _HEADER_ROOM else False
        header = self._header(at, end)
        if header is None or not header.client_id:
            return False
        if step.header is None:
            return True
        ahead = (header.correlation_id - step.header.correlation_id) & 0xFFFFFFFF
        return header.client_id == step.header.client_id and 0 < ahead <= _STRIDE


class ResponseSearch(Search):
    """Looks for the next response that answers a request known to be open."""

    _room = 8

    def _places(self, start: int) -> Iterator[int]:
        for asked in self._conversation.open_wanted():
            pattern = _I32.pack(asked.correlation_id)
            found = self._buffer.find(pattern, start + 4)
            while found >= 0:
                yield found - 4
                found = self._buffer.find(pattern, found + 1)

    def _candidate(self, at: int) -> int:
        (size,) = _I32.unpack_from(self._buffer, at)
        return size if 4 <= size <= self._limit else -1

    def _whole(self, at: int, end: int) -> bool:
        payload = bytes(self._buffer[at + 4 : end])
        asked = self._conversation.open_request(_I32.unpack_from(payload)[0])
        if asked is None:
            return False
        body = memoryview(payload)[response_body_at(asked.api_key, asked.api_version, payload) :]
        return bool(body_is_whole(asked.api_key, asked.api_version, body, "resp"))

    def _may_follow(self, at: int) -> bool:
        return at == len(self._buffer) or self._buffer[at] <= self._limit >> 24

    def _step_at(self, data: bytes, offset: int) -> Step | None:
        if len(data) < 8:
            return None
        size, correlation_id = _I32_PAIR(data)
        asked = self._conversation.open_request(correlation_id)
        if asked is None or not 4 <= size <= self._limit or self._conversation.wants(asked.api_key):
            return None
        return Step(offset + 4 + size, None, correlation_id)

    def _follows(self, step: Step, at: int) -> bool | None:
        end = len(self._buffer)
        if at == end and step.end > self._marks[-1][0]:
            return True  # it ends with a segment, as it began with one
        if end - at < 8:
            return None
        size, correlation_id = _I32_PAIR(self._buffer, at)
        return 4 <= size <= self._limit and self._conversation.open_request(correlation_id) is not None


def _first(mark: tuple[int, int]) -> int:
    return mark[0]
