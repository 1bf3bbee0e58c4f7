"""One direction's bytes -> frames.

While the boundaries are known a frame is cut by its size alone, and what is not wanted is passed over without a copy.
Where they are lost a search finds the next frame that can be believed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from kproto.api import ApiKey

from .detection import (
    HEADER_START,
    NEWEST_API,
    Header,
    body_is_whole,
    looks_like_http,
    looks_like_tls,
    may_be_request,
    read_request_header,
)
from .model import GAP, WHOLE
from .resync import RequestSearch, ResponseSearch, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .matcher import Matcher, PendingRequest
    from .resync import Search
    from .wanted import WantedApis

__all__ = [
    "FOREVER",
    "BadFrame",
    "Cut",
    "Foreign",
    "FrameCutter",
    "Gap",
    "RequestCut",
    "RequestCutter",
    "ResponseCut",
    "ResponseCutter",
    "ResponsesLost",
    "Token",
]

FOREVER: Final = 1 << 62
"""``FrameCutter.skip_to`` of a stream that is read no more."""

_SEARCH_BYTES: Final = 256 << 20
"""So many bytes are searched for a frame in any stream, then it is left alone."""

_FOREIGN_BYTES: Final = 1 << 20
"""A connection that does not begin with a request, and shows none in so many bytes, is not Kafka's."""

_TOKEN_LIMIT: Final = 1 << 16

_START: Final = struct.Struct(">ihhi").unpack_from
_PAIR: Final = struct.Struct(">ii").unpack_from


class RequestCut(NamedTuple):
    """A request in a stream.

    Attributes:
        header: Its header.
        offset: Stream offset of its size field.
        first_ns: When the packet with its first byte passed.
        last_ns: When the last of its packets passed.
        status: ``WHOLE`` or ``GAP``.
        payload: Header and body, None if they are not wanted; of a gapped frame what stands before the gap.
    """

    header: Header
    offset: int
    first_ns: int
    last_ns: int
    status: int
    payload: bytes | None


class ResponseCut(NamedTuple):
    """A response in a stream.

    Attributes:
        request: The pending request that it answers, None if there is none.
        correlation_id: Its correlation id.
        size: Bytes of header and body.
        offset, first_ns, last_ns, status, payload: As of ``RequestCut``.
    """

    request: PendingRequest | None
    correlation_id: int
    size: int
    offset: int
    first_ns: int
    last_ns: int
    status: int
    payload: bytes | None


class Token(NamedTuple):
    """An authentication token without a header, in place of a request or a response."""


class Gap(NamedTuple):
    """Bytes of frames that are lost."""

    length: int


class BadFrame(NamedTuple):
    """A part of the stream that is no frame: why, its stream offset, how many bytes are passed over."""

    reason: str
    offset: int
    skipped: int = 0


class Foreign(NamedTuple):
    """The stream is not Kafka's."""

    protocol: Literal["TLS", "HTTP", "unknown"]


class ResponsesLost(NamedTuple):
    """Responses may have passed unseen: which pending requests were answered is not known any more."""


Cut: TypeAlias = RequestCut | ResponseCut | Token | Gap | BadFrame | Foreign | ResponsesLost
"""What a cutter finds in its stream."""

_Piece: TypeAlias = tuple[int, bytes, int, int, int]
"""Stream offset, a buffer, where in it the bytes begin and end, their time."""


class FrameCutter:
    """Cuts a stream at its frames' boundaries; requests and responses differ in how a frame begins.

    Args:
        search: Finds the next frame where the boundaries are not known.
        aligned: Whether the stream is known from its first byte.

    Attributes:
        skip_to: Bytes before this stream offset need not be given; ``FOREVER`` for none at all.
        searching: Whether the boundaries are not known at the moment.
        held_bytes: Bytes that wait for the rest of their frame.
    """

    _least: int
    """Bytes of a frame's beginning without which nothing can be said of it."""

    def __init__(self, search: Search, *, aligned: bool) -> None:
        self.skip_to = 0
        self.searching = not aligned
        self.held_bytes = 0
        self._search = search
        self._unconfirmed = not aligned  # nothing but the search has confirmed the boundaries yet
        self._at = 0  # stream offset of the next frame
        self._pieces: list[_Piece] = []  # its bytes so far
        self._need = self._least
        self._first_ns = self._last_ns = 0

    def feed(self, offset: int, buffer: bytes, begin: int, end: int, time_ns: int) -> Iterator[Cut]:
        """Take the next bytes of the stream; gives what is found in them, while it goes on."""
        todo: list[_Piece] = [(offset, buffer, begin, end, time_ns)]
        found: list[Cut] = []
        while todo:
            offset, buffer, begin, end, time_ns = piece = todo.pop()
            if offset < self.skip_to:
                begin += self.skip_to - offset
                if begin >= end:
                    continue
                offset = self.skip_to
                piece = offset, buffer, begin, end, time_ns
            if self.searching:
                self._look(piece, todo, found)
                if found:
                    yield from found
                    found.clear()
                continue
            pieces = self._pieces
            if pieces:
                pieces.append((offset, buffer[begin:end], 0, end - begin, time_ns))
                self.held_bytes += end - begin
                self._last_ns = max(self._last_ns, time_ns)
                if self.held_bytes < self._need:
                    continue
                buffer = b"".join([data[start:stop] for _, data, start, stop, _ in pieces])
                begin, end = 0, len(buffer)
                self.held_bytes = 0
            else:
                self._first_ns = self._last_ns = time_ns
            taken = 0
            while end - begin >= self._need:
                taken = self._take(buffer, begin, end, found)
                if found:
                    yield from found
                    found.clear()
                if taken < 0:
                    break
                if taken:
                    begin += taken
                    self._at += taken
                    self._need = self._least
                    self._first_ns = self._last_ns = time_ns
            if taken < 0:
                todo += _from(self._at, pieces or [piece])
                pieces.clear()
            elif begin >= end:
                pieces.clear()
                self.skip_to = self._at
            else:
                self._pieces = [(self._at, buffer[begin:end], 0, end - begin, time_ns)]
                self.held_bytes = end - begin

    def lost(self, offset: int, length: int) -> Iterator[Cut]:
        """Note that bytes will never come."""
        end = offset + length
        if self.searching:
            self._search.clear()
            self.skip_to = max(self.skip_to, end)
            return
        data = self._let_go()
        found: list[Cut] = []
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

    def end(self) -> Iterator[Cut]:
        """Note that no more will come."""
        data = self._let_go()
        if data and not self.searching:
            found: list[Cut] = []
            self._broken(data, found)
            yield from found
        self.stop()

    def stop(self) -> None:
        """Read no more."""
        self.skip_to = FOREVER
        self._let_go()
        self._search.clear()

    def give_up_held(self) -> Iterator[Cut]:
        """Let go of what is held: a frame of which only a part has come is given with a gap."""
        self._search.clear()
        data = self._let_go()
        if not data:
            return
        at, found = self._at, list[Cut]()
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
    def searched_bytes(self) -> int:
        """Bytes that are held because a frame may begin in them."""
        return self._search.held_bytes

    def _let_go(self) -> bytes:
        data = b"".join([data[begin:end] for _, data, begin, end, _ in self._pieces])
        self._pieces = []
        self.held_bytes = 0
        return data

    def _look(self, piece: _Piece, todo: list[_Piece], found: list[Cut]) -> None:
        """Search for a boundary; where one is found the bytes from there on are to be done again."""
        offset, buffer, begin, end, time_ns = piece
        start = self._search.feed(offset, buffer[begin:end], time_ns)
        if start is None:
            if self._search.seen > _SEARCH_BYTES:
                self.stop()
            return
        if self._search.step is not None:
            self._stepped(self._search.step, found)
        self.searching = False
        self._unconfirmed = True
        self._at = self.skip_to = start
        self._need = self._least
        todo += [(at, data, 0, len(data), when) for at, data, when in reversed(self._search.pieces(start))]
        self._search.clear()

    def _lose_boundary(self, found: list[Cut]) -> None:
        """Note that the next boundary is not known any more."""
        self.searching = True
        self._need = self._least
        self._search.clear()

    def _take(self, data: bytes, at: int, end: int, found: list[Cut]) -> int:
        """Take the frame at a place.

        Returns:
            Its bytes; 0 if ``_need`` of them must be seen first; -1 if there is none, and the boundary is lost.
        """
        raise NotImplementedError

    def _broken(self, data: bytes, found: list[Cut]) -> int:
        """Give what there is of a frame whose next byte is lost; the stream offset of its end, -1 if not known."""
        raise NotImplementedError

    def _stepped(self, step: Step, found: list[Cut]) -> None:
        """Give the frame that the search has stepped over."""
        raise NotImplementedError


def _from(offset: int, pieces: list[_Piece]) -> list[_Piece]:
    """The pieces from a stream offset on, the last one first."""
    rest = []
    for at, buffer, begin, end, time_ns in reversed(pieces):
        if at + end - begin <= offset:
            break
        ahead = max(0, offset - at)
        rest.append((at + ahead, buffer, begin + ahead, end, time_ns))
    return rest


class RequestCutter(FrameCutter):
    """Cuts a client's stream, or one that may be a client's.

    Args:
        wanted: The APIs whose payloads are given.
        limit: The largest frame in bytes.
        aligned: Whether the stream is known from its first byte.
    """

    _least = HEADER_START
    _search: RequestSearch

    def __init__(self, wanted: WantedApis, limit: int, *, aligned: bool) -> None:
        super().__init__(RequestSearch(wanted, limit), aligned=aligned)
        self._wanted = wanted
        self._limit = limit
        self._fresh = aligned  # nothing has been read yet
        self._recognised = False  # whether a request was found
        self._began_otherwise = False  # the first bytes of the connection are no request
        self._tokens = False  # whether authentication tokens without a header may come
        self._tls_like = 0

    def _take(self, data: bytes, at: int, end: int, found: list[Cut]) -> int:
        size: int
        size, api_key, version, correlation_id = _START(data, at)
        limit = self._limit
        known = not self._fresh and not self._unconfirmed
        if known and (api_key, version) in self._wanted.unwanted and 8 <= size <= limit:
            self._give(Header(size, api_key, version, correlation_id, None, 8), None, WHOLE, found)
            return size + 4
        if not 0 <= api_key <= NEWEST_API or (self._fresh and size > limit):
            return self._refuse(data, at, end, size, None, found)  # do not wait for a client id that long
        header = read_request_header(data, at, end)
        if isinstance(header, int):
            if header > 0:
                self._need = header
                return 0
            return self._refuse(data, at, end, size, None, found)
        if not may_be_request(header, limit) or (self._unconfirmed and not self._search.is_same_client(header)):
            return self._refuse(data, at, end, size, header, found)
        if api_key not in self._wanted:
            self._accept(header)
            self._give(header, None, WHOLE, found)
            return size + 4
        if end - at < size + 4:
            self._need = size + 4
            return 0
        payload = data[at + 4 : at + 4 + size]
        if self._unconfirmed:
            body = memoryview(payload)[header.body_at :]
            if body_is_whole(api_key, version, body, "req") is False:
                return self._refuse(data, at, end, size, header, found)
        self._accept(header)
        self._give(header, payload, WHOLE, found)
        return size + 4

    def _give(self, header: Header, payload: bytes | None, status: int, found: list[Cut]) -> None:
        self._tokens = header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version == 0
        found.append(RequestCut(header, self._at, self._first_ns, self._last_ns, status, payload))

    def _accept(self, header: Header) -> None:
        if self._search.client_id is None:
            self._search.client_id = header.client_id
        self._recognised = True
        self._fresh = self._unconfirmed = False

    def _refuse(self, data: bytes, at: int, end: int, size: int, header: Header | None, found: list[Cut]) -> int:
        """Pass over an authentication token, recognise another protocol, or lose the boundary: no request is here."""
        if self._fresh:
            protocol = _protocol(data[at : min(end, at + 4096)])
            if protocol is not None:
                found.append(Foreign(protocol))
                self._fresh = False
                self.searching = True
                self.stop()
                return -1
        if self._tokens and 0 <= size <= _TOKEN_LIMIT:
            found.append(Token())
            return size + 4
        limit = self._limit
        if header is not None and header.size > limit and may_be_request(header, header.size):
            found.append(BadFrame(f"a request of {size} bytes, more than the limit of {limit}", self._at, size + 4))
        elif not self._unconfirmed:
            found.append(BadFrame(f"no request where one should begin (size {size})", self._at))
        self._began_otherwise |= self._fresh
        self._fresh = False
        self._lose_boundary(found)
        if size >= 0:
            self._search.add_step(Step(self._at + 4 + size))
        return -1

    def _look(self, piece: _Piece, todo: list[_Piece], found: list[Cut]) -> None:
        if not self._recognised and looks_like_tls(piece[1][piece[2] : min(piece[3], piece[2] + 5)]):
            self._tls_like += 1
            if self._tls_like > 1:  # one segment of anything may look so
                found.append(Foreign("TLS"))
                self.stop()
                return
        super()._look(piece, todo, found)
        if self._began_otherwise and self._search.seen > _FOREIGN_BYTES and not self._recognised:
            found.append(Foreign("unknown"))
            self.stop()

    def _stepped(self, step: Step, found: list[Cut]) -> None:
        if step.header is not None:
            if self._search.client_id is None:
                self._search.client_id = step.header.client_id
            self._recognised = True
            self._give(step.header, None, WHOLE, found)

    def _broken(self, data: bytes, found: list[Cut]) -> int:
        header = read_request_header(data, 0, len(data))
        if isinstance(header, int) or not may_be_request(header, self._limit) or self._unconfirmed:
            return -1
        self._accept(header)
        self._give(header, data[4:] if header.api_key in self._wanted else None, GAP, found)
        return self._at + 4 + header.size


def _protocol(data: bytes) -> Literal["TLS", "HTTP"] | None:
    if looks_like_tls(data):
        return "TLS"
    return "HTTP" if looks_like_http(data) else None


class ResponseCutter(FrameCutter):
    """Cuts a server's stream.

    Args:
        wanted: The APIs whose payloads are given.
        limit: The largest frame in bytes.
        pending: The requests that wait for responses; only looked at. Whoever reads the cuts takes out what is answered
            before asking for the next one.
        aligned: Whether the stream is known from its first byte.

    Attributes:
        unmatched_bytes: Responses to no pending request are given with their payload up to so many bytes in all.
    """

    _least = 8

    def __init__(self, wanted: WantedApis, limit: int, pending: Matcher, *, aligned: bool) -> None:
        super().__init__(ResponseSearch(wanted, limit, pending), aligned=aligned)
        self.unmatched_bytes = 0
        self._limit = limit
        self._pending = pending
        self._request: PendingRequest | None = None  # which the response answers that is being read
        self._looked_up = False  # whether that is known

    def _take(self, data: bytes, at: int, end: int, found: list[Cut]) -> int:
        size: int
        size, correlation_id = _PAIR(data, at)
        if not 4 <= size <= self._limit:
            if 0 <= size < 4 and self._pending.expects_token:
                found.append(Token())
                return size + 4
            if not self._unconfirmed:
                found.append(BadFrame(f"no response where one should begin (size {size})", self._at))
            self._lose_boundary(found)
            return -1
        if not self._looked_up:
            self._request = self._pending.find(correlation_id)
            if self._request is None and self._pending.expects_token:
                found.append(Token())
                return size + 4
            self._looked_up = True
        request = self._request
        wanted = request.frame is not None if request is not None else size <= self.unmatched_bytes
        if wanted and end - at < size + 4:
            self._need = size + 4
            return 0
        self._looked_up = self._unconfirmed = False
        payload = None
        if wanted:
            payload = data[at + 4 : at + 4 + size]
            if request is None:
                self.unmatched_bytes -= size
        found.append(
            ResponseCut(request, correlation_id, size, self._at, self._first_ns, self._last_ns, WHOLE, payload)
        )
        return size + 4

    def _stepped(self, step: Step, found: list[Cut]) -> None:
        if step.correlation_id is not None:
            request = self._pending.find(step.correlation_id)
            found.append(ResponseCut(request, step.correlation_id, 0, 0, 0, 0, WHOLE, None))

    def _lose_boundary(self, found: list[Cut]) -> None:
        super()._lose_boundary(found)
        self._looked_up = False
        found.append(ResponsesLost())

    def _broken(self, data: bytes, found: list[Cut]) -> int:
        if len(data) < 8:
            return -1
        size: int
        size, correlation_id = _PAIR(data, 0)
        if not 4 <= size <= self._limit or (self._unconfirmed and not self._looked_up):
            return -1
        request = self._request if self._looked_up else self._pending.find(correlation_id)
        self._looked_up = False
        if request is not None:
            payload = data[4:] if request.frame is not None else None
            found.append(
                ResponseCut(request, correlation_id, size, self._at, self._first_ns, self._last_ns, GAP, payload)
            )
        return self._at + 4 + size
