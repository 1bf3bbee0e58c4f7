"""Finding the next frame in a stream whose boundaries are not known.

A message that the codec can read is taken up where its header is believable, its body decodes to the last byte, and
what follows begins like a frame; a response to correlation id 0, whose bytes stand in many messages, only where it
fills segments of its own or another awaited response follows. Any other request must begin
with a segment, and the frame after it must follow from it (same client, a later correlation id), or the server answers
its correlation id; any other response must be awaited, and fill segments of its own. Nothing else is believed.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kproto.api import ApiKey

from .detection import (
    CONTROL_HEADER,
    FrameHeader,
    body_is_whole,
    is_known_request,
    read_request_header,
    response_body_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .wanted import WantedApis

_I32_PAIR: Final = struct.Struct(">ii").unpack_from
_I32: Final = struct.Struct(">i")

_HEADER_BYTES: Final = 512
"""Bytes of header and client id that a believable request needs at most."""

_HELD_LIMIT: Final = 32 << 20
"""Bytes kept for candidates that are not whole yet; each segment counts for its overhead too."""

_MARK_OVERHEAD: Final = 100

_CANDIDATES: Final = 64
_UNASKED_BYTES: Final = 1 << 16
"""How far back segments are kept that may be answers whose requests come later."""

_STEPS: Final = 8
_ID_STRIDE: Final = 1000
"""How many correlation ids a client may skip that shares one counter between connections."""

_WINDOW: Final = 4096
"""The number of bytes to search before the candidates in them are judged."""

_KEPT_STEP: Final = 1 << 20
"""The longest request of a wanted API that is kept while only its header is known to be one."""

_DECODED: Final = 32
_DECODED_AT_LEAST: Final = 1 << 20
"""How many times the searched bytes may be decoded for candidates, and the bytes that always may."""


class FrameLink(NamedTuple):
    """A frame whose size leads to the next one.

    Attributes:
        end: Stream offset of the frame after it.
        header: Its header; None where only the size is trusted.
        correlation_id: The correlation id of a response.
        start: Stream offset of the frame itself, if it is wanted: its bytes are kept; else -1.
    """

    end: int
    header: FrameHeader | None = None
    correlation_id: int | None = None
    start: int = -1


class Search(ABC):
    """The search for a frame in either direction; keeps only the bytes that incomplete candidates need.

    Args:
        wanted: The APIs whose frames are searched for; others are only stepped over.
        limit: The largest frame in bytes.

    Attributes:
        step: The step by which the last frame was found, None if it was found otherwise.
        seen: Bytes searched so far.
        decoded: Bytes of candidates decoded so far.
    """

    __slots__ = (
        "_base",
        "_buffer",
        "_candidates",
        "_limit",
        "_marks",
        "_partial",
        "_scanned",
        "_steps",
        "_unasked",
        "_wanted",
        "decoded",
        "seen",
        "step",
    )

    def __init__(self, wanted: WantedApis, limit: int) -> None:
        self.step: FrameLink | None = None
        self.seen: int = 0
        self.decoded: int = 0
        self._wanted = wanted
        self._limit = limit
        self._buffer = bytearray()
        self._base = 0  # stream offset of the buffer
        self._marks: list[tuple[int, int]] = []  # stream offset, time of each segment held
        self._scanned = 0  # stream offset up to which candidates were looked for
        self._partial: list[int] = []  # stream offsets of headers that are not whole yet
        self._candidates: list[tuple[int, int]] = []  # stream offsets: where they begin and end
        self._unasked: deque[int] = deque(maxlen=_CANDIDATES)  # stream offsets of segments that may be asked later
        self._steps: list[FrameLink] = []

    @property
    def held_bytes(self) -> int:
        """The bytes kept, with the overhead of their segments."""
        return len(self._buffer) + _MARK_OVERHEAD * len(self._marks)

    def feed(self, offset: int, data: bytes, time_ns: int) -> int | None:
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
            if self._may_be_asked_later(data):
                self._unasked.append(offset)
            while self._unasked and end - self._unasked[0] > _UNASKED_BYTES:
                self._unasked.popleft()
            self._trim(end)
        return found

    def again(self, answered: int | None) -> int | None:
        """Search the kept bytes again, as more is known of the other side; see ``feed``.

        For an answer with this correlation id only the client's last request counts.
        """
        end = self._base + len(self._buffer)
        if answered is None:
            return self._try_candidates(end) if self._unasked else None
        for step in self._steps:
            if step.header is not None and step.header.correlation_id == answered and step.end == end:
                return self._at(step)
        return None

    @property
    def base(self) -> int:
        """Stream offset of the first byte that is kept."""
        return self._base

    def add_step(self, step: FrameLink) -> None:
        """Try a frame of which only the place and size are known."""
        if len(self._steps) == _STEPS:
            del self._steps[0]
        self._steps.append(step)

    def pieces(self, start: int) -> list[tuple[int, bytes, int]]:
        """The kept segments from ``start`` on: offset, bytes, time."""
        first = max(bisect_right(self._marks, start, key=_first) - 1, 0)
        marks = self._marks[first:]
        end = self._base + len(self._buffer)
        out = []
        for i, (offset, time_ns) in enumerate(marks):
            stop = marks[i + 1][0] if i + 1 < len(marks) else end
            begin = max(offset, start, self._base)
            if stop > begin:
                out.append((begin, bytes(self._buffer[begin - self._base : stop - self._base]), time_ns))
        return out

    def clear(self) -> None:
        """Forget the kept bytes: the next segment does not continue them."""
        if self._buffer or self._steps:
            self._buffer = bytearray()
            self._marks.clear()
            self._partial.clear()
            self._candidates.clear()
            self._unasked.clear()
            self._steps.clear()

    def _try_steps(self, end: int) -> int | None:
        kept = []
        for step in self._steps:
            if step.end < self._base:
                continue
            verdict = self._follows(step, step.end - self._base) if step.end <= end else None
            if verdict:
                return self._at(step)
            if verdict is None:
                kept.append(step)
        self._steps = kept
        return None

    def _at(self, step: FrameLink) -> int:
        """Go on at a frame whose bytes are kept; else at the one behind it."""
        is_kept = step.start >= self._base
        self.step = None if is_kept else step
        return step.start if is_kept else step.end

    def _try_candidates(self, end: int) -> int | None:
        """Search the new bytes for candidates; return the first one that is a message, None if there is none yet."""
        asked = [place for place in self._unasked if self._is_awaited(place - self._base, None)]
        for place in asked:
            self._unasked.remove(place)
        partial, self._partial = self._partial + asked, []
        for place in partial:
            self._note(place)
        last = end - self._header_bytes  # too few bytes follow to recognise a frame
        while True:
            stop = min(self._scanned + _WINDOW, last + 1)
            if stop > self._scanned:
                for at in self._places(self._scanned - self._base, stop - self._base):
                    self._note(self._base + at)
                self._scanned = stop
            waiting = []
            for candidate in sorted(self._candidates):
                start, stop = candidate
                if stop > end:
                    waiting.append(candidate)
                elif self._is_message(start - self._base, stop - self._base):
                    self.step = None
                    return start
            self._candidates = waiting[-_CANDIDATES:]
            if self._scanned > last:
                return None

    def _note(self, place: int) -> None:
        size = self._candidate(place - self._base)
        if size == 0:
            self._partial.append(place)
        elif size > 0:
            self._candidates.append((place, place + 4 + size))

    def _is_message(self, at: int, end: int) -> bool:
        if self.decoded + end - at > _DECODED * self.seen + _DECODED_AT_LEAST:
            return False
        self.decoded += end - at
        return self._whole(at, end) and self._may_follow(end)

    def _trim(self, end: int) -> None:
        if self.held_bytes > _HELD_LIMIT:
            self._candidates.clear()
            self._unasked.clear()
        keep = min(
            self._scanned,
            *self._partial,
            *self._unasked,
            *(start for start, _ in self._candidates),
            *(step.start if step.start >= 0 else step.end for step in self._steps),
            end,
        )
        drop = keep - self._base
        if drop > 0 and drop >= len(self._buffer) // 2:
            del self._buffer[:drop]
            self._base = keep
            del self._marks[: max(bisect_right(self._marks, keep, key=_first) - 1, 0)]

    # Each direction has its own form of these methods; ``at`` and ``end`` are places in the buffer.

    _header_bytes: int
    """So many first bytes of a frame are needed to recognise it."""

    @abstractmethod
    def _places(self, start: int, stop: int) -> Iterator[int]:
        """Yield the places where a frame may begin."""

    @abstractmethod
    def _candidate(self, at: int) -> int:
        """The size of the frame that may begin here; 0 if more bytes are needed to tell, -1 if no frame begins here."""

    @abstractmethod
    def _whole(self, at: int, end: int) -> bool:
        """Whether this is a message to the last byte."""

    @abstractmethod
    def _may_follow(self, at: int) -> bool:
        """Whether the next frame may begin here."""

    def _may_be_asked_later(self, data: bytes) -> bool:
        """Whether a segment may be a frame that what comes later makes one: a response whose request is late."""
        return False

    def _is_awaited(self, at: int, other: int | None) -> bool:
        """Whether a response may begin here that a request waits for, with another correlation id than the given."""
        return False

    @abstractmethod
    def _step_at(self, data: bytes, offset: int) -> FrameLink | None:
        """The frame that a segment may begin with."""

    @abstractmethod
    def _follows(self, step: FrameLink, at: int) -> bool | None:
        """Whether the frame here follows the one of that step; None if more bytes are needed to tell."""


class RequestSearch(Search):
    """The search for the next request of a client.

    Attributes:
        client_id: The client id in its requests, None while it is unknown.
    """

    __slots__ = ("client_id",)
    _header_bytes = 14

    def __init__(self, wanted: WantedApis, limit: int) -> None:
        super().__init__(wanted, limit)
        self.client_id: str | None = None

    def is_same_client(self, header: FrameHeader) -> bool:
        """Whether a header has this client's id; true while the id is unknown."""
        return self.client_id is None or header.client_id == self.client_id

    def _places(self, start: int, stop: int) -> Iterator[int]:
        if self._wanted.control:
            for match in CONTROL_HEADER.finditer(self._buffer, start + 4, stop + 14):
                if match.start() - 4 < stop:
                    yield match.start() - 4

    def _candidate(self, at: int) -> int:
        end = len(self._buffer)
        header = read_request_header(self._buffer, at, end)
        if isinstance(header, int):
            return 0 if 0 < header <= _HEADER_BYTES else -1
        return header.size if self._is_believable(header) and header.api_key in self._wanted else -1

    def _is_believable(self, header: FrameHeader) -> bool:
        return is_known_request(header, self._limit) and self.is_same_client(header)

    def _whole(self, at: int, end: int) -> bool:
        header = read_request_header(self._buffer, at, end)
        if isinstance(header, int) or not self._is_believable(header):
            return False
        body = memoryview(bytes(self._buffer[at + 4 + header.body_at : end]))
        return bool(body_is_whole(header.api_key, header.api_version, body, "request"))

    def _may_follow(self, at: int) -> bool:
        end = len(self._buffer)
        header = read_request_header(self._buffer, at, end)
        if isinstance(header, int):  # even an incomplete size field must not be absurdly large
            return header > 0 and (at == end or self._buffer[at] <= self._limit >> 24)
        return self._is_believable(header)

    def _step_at(self, data: bytes, offset: int) -> FrameLink | None:
        header = read_request_header(data, 0, len(data))
        if isinstance(header, int) or not _names_client(header) or not self._is_believable(header):
            return None
        if not header.client_id and len(data) != 4 + header.size:
            return None
        is_kept = header.api_key in self._wanted and header.size <= _KEPT_STEP
        return FrameLink(offset + 4 + header.size, header, start=offset if is_kept else -1)

    def _follows(self, step: FrameLink, at: int) -> bool | None:
        header = read_request_header(self._buffer, at, len(self._buffer))
        if isinstance(header, int):
            return None if 0 < header <= _HEADER_BYTES else False
        if not _names_client(header) or not self._is_believable(header):
            return False
        if step.header is None:
            return True
        ahead = (header.correlation_id - step.header.correlation_id) & 0xFFFFFFFF
        return header.client_id == step.header.client_id and 0 < ahead <= _ID_STRIDE


class AwaitedRequest(Protocol):
    """The fields of an in-flight request that the search needs."""

    correlation_id: int
    api_key: int | None
    api_version: int


class Pending(Protocol):
    """The requests of a connection that wait for their responses; see ``cutter.Matcher``."""

    def find(self, correlation_id: int) -> AwaitedRequest | None:
        """The request that a response with this id would answer."""

    def newest_wanted(self) -> Sequence[AwaitedRequest]:
        """The newest requests whose frames are wanted."""


class ResponseSearch(Search):
    """The search for the next response that answers a pending request.

    Args:
        wanted, limit: See ``Search``.
        pending: The requests that wait for responses; only read here.
    """

    __slots__ = ("_pending",)
    _header_bytes = 8

    def __init__(self, wanted: WantedApis, limit: int, pending: Pending) -> None:
        super().__init__(wanted, limit)
        self._pending = pending

    def _places(self, start: int, stop: int) -> Iterator[int]:
        for request in self._pending.newest_wanted():
            pattern = _I32.pack(request.correlation_id)
            if request.correlation_id == 0:
                yield from self._segments_with(pattern, start, stop)
                continue
            found = self._buffer.find(pattern, start + 4, stop + 7)
            while found >= 0:
                yield found - 4
                found = self._buffer.find(pattern, found + 1, stop + 7)

    def _segments_with(self, pattern: bytes, start: int, stop: int) -> Iterator[int]:
        """Yield the places where a segment begins with a size and this correlation id."""
        first = bisect_left(self._marks, self._base + start, key=_first)
        for offset, _ in self._marks[first : bisect_left(self._marks, self._base + stop, key=_first)]:
            if self._buffer.startswith(pattern, offset - self._base + 4):
                yield offset - self._base

    def _candidate(self, at: int) -> int:
        (size,) = _I32.unpack_from(self._buffer, at)
        return size if 4 <= size <= self._limit else -1

    def _whole(self, at: int, end: int) -> bool:
        payload = bytes(self._buffer[at + 4 : end])
        correlation_id = _I32.unpack_from(payload)[0]
        request = self._pending.find(correlation_id)
        if request is None or request.api_key is None:
            return False
        if correlation_id == 0 and not self._ends_apart(end):
            return False
        body = memoryview(payload)[response_body_at(request.api_key, request.api_version, payload) :]
        is_whole = body_is_whole(request.api_key, request.api_version, body, "response")
        return self._is_apart(at, end) if is_whole is None else is_whole

    def _may_follow(self, at: int) -> bool:
        return at == len(self._buffer) or self._buffer[at] <= self._limit >> 24

    def _step_at(self, data: bytes, offset: int) -> FrameLink | None:
        if len(data) < 8:
            return None
        size, correlation_id = _I32_PAIR(data)
        request = self._pending.find(correlation_id)
        if request is None or request.api_key is None or request.api_key in self._wanted:
            return None
        if not 4 <= size <= self._limit:
            return None
        return FrameLink(offset + 4 + size, None, correlation_id)

    def _may_be_asked_later(self, data: bytes) -> bool:
        """Whether a segment may begin with a response: behind a hole its request may be known after it."""
        return len(data) >= 8 and 4 <= _I32.unpack_from(data)[0] < _UNASKED_BYTES

    def _follows(self, step: FrameLink, at: int) -> bool | None:
        end = len(self._buffer)
        if at == end and step.end > self._marks[-1][0]:
            return True  # it ends with a segment, as it began with one
        if end - at < 8:
            return None
        return self._is_awaited(at, step.correlation_id)

    def _is_apart(self, at: int, end: int) -> bool:
        """Whether a response that no codec reads begins with a segment, and ends with one or before another one."""
        place = bisect_left(self._marks, self._base + at, key=_first)
        return place < len(self._marks) and self._marks[place][0] == self._base + at and self._ends_apart(end)

    def _ends_apart(self, end: int) -> bool:
        """Whether a response that begins with a segment ends with one, or is followed by another awaited response.

        Errors of partitions are rows of small numbers and zeros, so that parts of them read as the response to
        correlation id 0: a size, an id and a body without an error. A broker writes each response by itself.
        """
        ends = self._base + end
        place = bisect_left(self._marks, ends, key=_first)
        is_border = place < len(self._marks) and self._marks[place][0] == ends
        return is_border or end == len(self._buffer) or self._is_awaited(end, 0)

    def _is_awaited(self, at: int, other: int | None) -> bool:
        if len(self._buffer) - at < 8:
            return False
        size, correlation_id = _I32_PAIR(self._buffer, at)
        return 4 <= size <= self._limit and correlation_id != other and self._pending.find(correlation_id) is not None


def _names_client(header: FrameHeader) -> bool:
    """Whether a request names its client, or is the one that cannot: ControlledShutdown 0, with a broker's id alone."""
    is_shutdown = header.api_key == ApiKey.CONTROLLED_SHUTDOWN and header.api_version == 0
    return bool(header.client_id) or (is_shutdown and header.size == header.body_at + 4)


def _first(mark: tuple[int, int]) -> int:
    return mark[0]
