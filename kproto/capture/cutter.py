"""The frame cutters: a stream's bytes -> frames; a client's into requests, a server's into responses.

While the boundaries are known a frame is cut by its size alone, and unwanted frames are skipped without a copy. Where
the boundaries are lost, a search finds the next frame (``resync``).

The matcher pairs responses with the pending requests of a connection. Responses come in the order of the requests, so a
response also tells that earlier requests got none. Correlation ids wrap and are used again: as long as no response was
lost the oldest pending request with that id is meant, after a loss the newest.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from kproto.api import CONTROL_APIS, ApiKey

from .detection import (
    HEADER_START,
    NEWEST_API,
    FrameHeader,
    body_is_whole,
    looks_like_http,
    looks_like_tls,
    may_be_request,
    read_request_header,
)
from .model import GAP, WHOLE
from .payloads import LONGEST_HEADER, SHARED_FROM, PayloadStore
from .resync import FrameLink, RequestSearch, ResponseSearch
from .wanted import NAMING, REPLICA_FETCHES

if TYPE_CHECKING:
    from .model import Frame
    from .payloads import Payload, SharedPayload
    from .resync import Search
    from .wanted import WantedApis

MOST_PENDING: Final = 10_000
"""Requests of one connection that may wait for their responses."""

_NEWEST_WANTED: Final = 64
"""How many of the newest wanted requests are considered when the boundaries of responses are lost."""

_OVERHEAD: Final = 250
"""Estimated memory of a pending request without its payload, in bytes."""


class PendingRequest:
    """A request that waits for its response.

    Attributes:
        correlation_id: Its correlation id.
        api_key: Its API, None for an authentication token, which has no header.
        api_version: The API's version.
        frame: The request's frame, None if it is not wanted.
        held_bytes: Its estimated memory in bytes.
        pending: Whether it still waits for its response.
        same_id: The next pending request with the same correlation id.
        shared: Its payload, if that is to be released when it is answered.
    """

    def __init__(self, correlation_id: int, api_key: int | None, api_version: int, frame: Frame | None = None) -> None:
        self.correlation_id: int = correlation_id
        self.api_key: int | None = api_key
        self.api_version: int = api_version
        self.frame: Frame | None = frame
        self.held_bytes: int = _OVERHEAD
        self.pending: bool = True
        self.same_id: PendingRequest | None = None
        self.shared: SharedPayload | None = None


class Matcher:
    """The pending requests of one connection.

    Args:
        keeps_payloads: Whether the requests' payloads stay until they are answered.

    Attributes:
        held_bytes: Their estimated memory in bytes.
    """

    def __init__(self, *, keeps_payloads: bool = True) -> None:
        self._keeps_payloads = keeps_payloads
        self._pending: deque[PendingRequest] | None = None  # the oldest first; most connections never have any
        self._oldest: dict[int, PendingRequest] = {}  # by correlation id, of requests sent since responses were lost
        self._newest: dict[int, PendingRequest] = {}
        self._before_loss: dict[int, PendingRequest] = {}  # the newest by correlation id, of the requests sent before
        self._wanted: deque[PendingRequest] | None = None
        self.held_bytes: int = 0

    def add(self, request: PendingRequest) -> PendingRequest | None:
        """Take the next request; if too many are pending then, give up the oldest one and return it."""
        if self._pending is None:
            self._pending = deque()
        self._pending.append(request)
        if request.api_key is not None:
            correlation_id = request.correlation_id
            newest = self._newest.get(correlation_id)
            if newest is None:
                self._oldest[correlation_id] = request
            else:
                newest.same_id = request
            self._newest[correlation_id] = request
        if request.frame is not None:
            content = request.frame.content
            if isinstance(content, bytes):
                request.held_bytes += len(content) if self._keeps_payloads else 0
            elif self._keeps_payloads:
                request.held_bytes += content.held_bytes
                request.shared = content
            else:
                content.release()
            if self._wanted is None:
                self._wanted = deque(maxlen=_NEWEST_WANTED)
            self._wanted.append(request)
        self.held_bytes += request.held_bytes
        return self._pop() if len(self._pending) > MOST_PENDING else None

    def find(self, correlation_id: int) -> PendingRequest | None:
        """The pending request that a response with this id would answer."""
        return self._oldest.get(correlation_id) or self._before_loss.get(correlation_id)

    def newest_wanted(self) -> list[PendingRequest]:
        """The newest pending requests whose frames are wanted."""
        return list(self._wanted or ())

    @property
    def expects_token(self) -> bool:
        """Whether an authentication token is answered next."""
        return bool(self._pending) and self._pending[0].api_key is None  # type: ignore[index]  # not None either

    def answer(self, request: PendingRequest) -> list[PendingRequest]:
        """Remove a pending request that is answered; return the requests before it, which got no response."""
        passed_by: list[PendingRequest] = []
        while request.pending:
            oldest = self._pop()
            if oldest is not request:
                passed_by.append(oldest)
        return passed_by

    def answer_token(self) -> None:
        """Remove the authentication token that is answered next."""
        assert self.expects_token
        self._pop()

    def responses_lost(self) -> None:
        """Note a loss of responses: each pending request may have been answered."""
        self._before_loss.update(self._newest)
        self._oldest.clear()
        self._newest.clear()

    def end(self) -> list[PendingRequest]:
        """Remove all pending requests, the oldest first."""
        return [self._pop() for _ in range(len(self._pending or ()))]

    def _pop(self) -> PendingRequest:
        assert self._pending
        request = self._pending.popleft()
        request.pending = False
        self.held_bytes -= request.held_bytes
        if request.shared is not None:
            request.shared.release()
            request.shared = None
        if self._wanted and self._wanted[0] is request:
            self._wanted.popleft()
        correlation_id = request.correlation_id
        if self._oldest.get(correlation_id) is request:
            if request.same_id is None:
                del self._oldest[correlation_id], self._newest[correlation_id]
            else:
                self._oldest[correlation_id] = request.same_id
        elif self._before_loss.get(correlation_id) is request:
            del self._before_loss[correlation_id]
        return request


class RequestInStream:
    """A request in a stream.

    Attributes:
        header: Its header.
        offset: Stream offset of its size field.
        first_ns: When the packet with its first byte passed.
        last_ns: When the last of its packets passed.
        status: ``WHOLE`` or ``GAP``.
        payload: Header and body, None for an unwanted API; of a gapped frame the bytes before the gap. A
            ``SharedPayload`` is released by the reader of the cut.
    """

    def __init__(
        self, header: FrameHeader, offset: int, first_ns: int, last_ns: int, status: int, payload: Payload | None
    ) -> None:
        self.header: FrameHeader = header
        self.offset: int = offset
        self.first_ns: int = first_ns
        self.last_ns: int = last_ns
        self.status: int = status
        self.payload: Payload | None = payload


class ResponseInStream:
    """A response in a stream.

    Attributes:
        request: The pending request that it answers, None if there is none.
        correlation_id: Its correlation id.
        size: Bytes of header and body.
        offset, first_ns, last_ns, status, payload: See ``RequestInStream``.
    """

    def __init__(
        self,
        request: PendingRequest | None,
        correlation_id: int,
        size: int,
        offset: int,
        first_ns: int,
        last_ns: int,
        status: int,
        payload: bytes | None,
    ) -> None:
        self.request: PendingRequest | None = request
        self.correlation_id: int = correlation_id
        self.size: int = size
        self.offset: int = offset
        self.first_ns: int = first_ns
        self.last_ns: int = last_ns
        self.status: int = status
        self.payload: bytes | None = payload


class AuthenticationToken(NamedTuple):
    """An authentication token without a header, in place of a request or a response."""


class Gap(NamedTuple):
    """Bytes of frames that are lost."""

    length: int


class PartialStart(NamedTuple):
    """The first bytes of a stream in the capture; they belong to a frame that began before the capture did."""

    length: int


class BadFrame(NamedTuple):
    """Bytes of the stream that are no frame: the reason, their stream offset, how many of them are skipped."""

    reason: str
    offset: int
    skipped: int = 0


class OtherProtocol(NamedTuple):
    """The stream is not Kafka's."""

    protocol: Literal["TLS", "HTTP", "unknown"]


class ResponsesLost(NamedTuple):
    """Responses may be lost: any pending request may have been answered."""


StreamItem: TypeAlias = (
    RequestInStream
    | ResponseInStream
    | AuthenticationToken
    | Gap
    | PartialStart
    | BadFrame
    | OtherProtocol
    | ResponsesLost
)
"""Any value that a cutter finds in a stream."""


FOREVER: Final = 1 << 62
"""``FrameCutter.skip_to`` of a stream that is no longer read."""

_SEARCH_BYTES: Final = 256 << 20
"""A stream is given up after this number of bytes was searched in vain."""

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
        least: The number of first bytes of a frame that are needed to judge it.
        aligned: Whether the stream is known from its first byte.

    Attributes:
        skip_to: The cutter needs no byte before this stream offset; ``FOREVER``: none at all.
        searching: Whether the boundaries are unknown at the moment.
        held_bytes: Bytes of incomplete frames, without those that they share.
    """

    def __init__(self, search: Search, least: int, *, aligned: bool) -> None:
        self.skip_to: int = 0
        self.searching: bool = not aligned
        self.held_bytes: int = 0
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

    def lost(self, offset: int, length: int) -> list[StreamItem]:
        """Note bytes that are lost."""
        found: list[StreamItem] = []
        end = offset + length
        if self.searching:
            if self._size_at != _NO_SIZE:
                self._size_at = _BROKEN
            self._search.clear()
            self.skip_to = max(self.skip_to, end)
            return found
        data = self._let_go()
        frame_end = self._broken(data, found) if data else -1
        if length:
            found.append(Gap(length))
        if data and frame_end >= end:
            self._need = self._least
            self._at = self.skip_to = frame_end
        elif data or not self.skip_to >= end > offset:
            self._lose_boundary(found)
            self._at = self.skip_to = end
        return found

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

    def end(self) -> list[StreamItem]:
        """Note the end of the stream."""
        found: list[StreamItem] = []
        data = self._let_go()
        if data and not self.searching:
            self._broken(data, found)
        self.stop()
        return found

    def stop(self) -> None:
        """Ignore the stream from now on."""
        self.skip_to = FOREVER
        self._let_go()
        self._search.clear()

    def begin_anew(self) -> None:
        """Search from now on: what was read so far is no frame, as a proxy's answer is none."""
        self._let_go()
        self._lose_boundary([])
        self.skip_to = 0

    def give_up_held(self) -> list[StreamItem]:
        """Drop the kept bytes: the frame that they begin is given with a gap."""
        self._search.clear()
        kept = self.held_bytes if self._large is None else 4 + len(self._large)
        return self.lost(self._at + kept, 0) if kept else []

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
        self._go_on_at(start, todo, found)

    def look_again(self, todo: list[Chunk], answered: int | None = None) -> list[StreamItem]:
        """Search the kept bytes for a boundary, as more is known of the other side; see ``_look``.

        Args:
            todo: The bytes behind a boundary go there.
            answered: The correlation id that the other side answers; None: all requests are there.
        """
        found: list[StreamItem] = []
        start = self._search.again(answered) if self.searching else None
        if start is not None:
            self._go_on_at(start, todo, found)
        return found

    def _go_on_at(self, start: int, todo: list[Chunk], found: list[StreamItem]) -> None:
        """End the search at a boundary; the bytes behind it go back into ``todo``."""
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


_FOREIGN_BYTES: Final = 1 << 20
"""A connection without a request at its beginning or within this number of bytes is not Kafka's."""

_TOKEN_LIMIT: Final = 1 << 16

_START: Final = struct.Struct(">ihhi").unpack_from


class RequestCutter(FrameCutter):
    """Cuts the stream of a client, or of a side that may be the client, into requests.

    Args:
        wanted: The APIs whose payloads are kept.
        limit: The largest frame in bytes.
        aligned: Whether the stream is known from its first byte.
        payloads: The payloads of large requests, of this connection and of others.
    """

    def __init__(self, wanted: WantedApis, limit: int, *, aligned: bool, payloads: PayloadStore | None = None) -> None:
        self._requests = RequestSearch(wanted, limit)
        super().__init__(self._requests, HEADER_START, aligned=aligned)
        self._wanted = wanted
        self._limit = limit
        self._payloads = PayloadStore() if payloads is None else payloads
        self._fresh = aligned  # no byte was read yet
        self._recognised = False  # whether a request was found
        self._began_otherwise = False  # the connection does not begin with a request
        self._tokens = False  # whether authentication tokens without a header may come
        self._tls_like = 0

    @property
    def begun_ids(self) -> set[int] | None:
        """The correlation id of the first request, of which a part was read; empty before a byte came.

        None: nothing is known of the server's first bytes.
        """
        if self.searching or self._large is not None or not self._fresh:
            return None
        begun = b"".join([data[begin:end] for _, data, begin, end, _ in self._pieces[:HEADER_START]])
        if 0 < len(begun) < HEADER_START:
            return None
        return {_START(begun)[3]} if begun else set()

    def use(self, payloads: PayloadStore) -> None:
        """Keep the payloads that begin from now on in another store."""
        self._payloads = payloads

    def _take(self, data: bytes, at: int, end: int, found: list[StreamItem]) -> int:
        size: int
        size, api_key, version, correlation_id = _START(data, at)
        limit = self._limit
        known = not self._fresh and not self._unconfirmed
        if known and (api_key, version) in self._wanted.unwanted and 8 <= size <= limit:
            self._give(FrameHeader(size, api_key, version, correlation_id, None, 8), None, WHOLE, found)
            return size + 4
        if not (0 <= api_key <= NEWEST_API and version <= NEWEST_API) or (self._fresh and size > limit):
            return self._refuse(data, at, end, size, None, found)  # a client id this long is not waited for
        header = read_request_header(data, at, end)
        if isinstance(header, int):
            if header > 0:
                self._need = header
                return 0
            return self._refuse(data, at, end, size, None, found)
        if not may_be_request(header, limit) or (self._unconfirmed and not self._requests.is_same_client(header)):
            return self._refuse(data, at, end, size, header, found)
        names_sender = api_key in NAMING or (api_key == ApiKey.FETCH and version <= REPLICA_FETCHES)
        if names_sender and end >= at + 8 + header.body_at and size >= header.body_at + 4:
            first = at + 4 + header.body_at
            header.sender = int.from_bytes(data[first : first + 4], "big", signed=True)
        if not self._wanted.takes(api_key, header.client_id):
            self._accept(header)
            self._give(header, None, WHOLE, found)
            return size + 4
        if end - at < size + 4:
            self._need = size + 4
            is_large = size >= SHARED_FROM and header.body_at <= LONGEST_HEADER and api_key in CONTROL_APIS
            if is_large and not self._unconfirmed:
                self._large = self._payloads.begin(size, data[at + 4 : at + 8])
            return 0
        payload = data[at + 4 : at + 4 + size]
        if self._unconfirmed:
            body = memoryview(payload)[header.body_at :]
            if body_is_whole(api_key, version, body, "request") is False:
                return self._refuse(data, at, end, size, header, found)
        self._accept(header)
        self._give(header, payload, WHOLE, found)
        return size + 4

    def _whole(self, large: SharedPayload) -> StreamItem:
        header = read_request_header(SIZE(len(large)) + large.head, 0, 4 + len(large.head))
        assert isinstance(header, FrameHeader)
        self._accept(header)
        found: list[StreamItem] = []
        self._give(header, large, WHOLE, found)
        return found[0]

    def _give(self, header: FrameHeader, payload: Payload | None, status: int, found: list[StreamItem]) -> None:
        self._tokens = header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version == 0
        found.append(RequestInStream(header, self._at, self._first_ns, self._last_ns, status, payload))

    def _accept(self, header: FrameHeader) -> None:
        if self._requests.client_id is None:
            self._requests.client_id = header.client_id
        self._recognised = True
        self._fresh = self._unconfirmed = False

    def _refuse(
        self, data: bytes, at: int, end: int, size: int, header: FrameHeader | None, found: list[StreamItem]
    ) -> int:
        """Pass over an authentication token, recognise another protocol, or lose the boundary: no request is here."""
        if self._fresh:
            protocol = _protocol(data[at : min(end, at + 4096)])
            if protocol is not None:
                found.append(OtherProtocol(protocol))
                self._fresh = False
                self.searching = True
                self.stop()
                return -1
        if self._tokens and 0 <= size <= _TOKEN_LIMIT:
            found.append(AuthenticationToken())
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
            self._search.add_step(FrameLink(self._at + 4 + size))
        return -1

    def _look(self, piece: Chunk, todo: list[Chunk], found: list[StreamItem]) -> None:
        if not self._recognised and looks_like_tls(piece[1][piece[2] : min(piece[3], piece[2] + 5)]):
            self._tls_like += 1
            if self._tls_like > 1:  # a single segment of any protocol may look like this
                found.append(OtherProtocol("TLS"))
                self.stop()
                return
        super()._look(piece, todo, found)
        if self._began_otherwise and self._search.seen > _FOREIGN_BYTES and not self._recognised:
            found.append(OtherProtocol("unknown"))
            self.stop()

    def _stepped(self, step: FrameLink, found: list[StreamItem]) -> None:
        if step.header is not None:
            if self._requests.client_id is None:
                self._requests.client_id = step.header.client_id
            self._recognised = True
            self._give(step.header, None, WHOLE, found)

    def _broken(self, data: bytes, found: list[StreamItem]) -> int:
        header = read_request_header(data, 0, len(data))
        if isinstance(header, int) or not may_be_request(header, self._limit) or self._unconfirmed:
            return -1
        self._accept(header)
        self._give(header, data[4:] if self._wanted.takes(header.api_key, header.client_id) else None, GAP, found)
        return self._at + 4 + header.size


def _protocol(data: bytes) -> Literal["TLS", "HTTP"] | None:
    if looks_like_tls(data):
        return "TLS"
    return "HTTP" if looks_like_http(data) else None


_PAIR: Final = struct.Struct(">ii").unpack_from


class ResponseCutter(FrameCutter):
    """Cuts a server's stream into responses.

    Args:
        wanted: The APIs whose payloads are kept.
        limit: The largest frame in bytes.
        pending: The requests that wait for responses; only read here. The reader of the cuts removes an answered
            request before it takes the next cut.
        aligned: Whether the stream is known from its first byte.

    Attributes:
        unmatched_bytes: Responses without a pending request keep their payloads, of this number of bytes in all.
    """

    def __init__(self, wanted: WantedApis, limit: int, pending: Matcher, *, aligned: bool) -> None:
        super().__init__(ResponseSearch(wanted, limit, pending), 8, aligned=aligned)
        self.unmatched_bytes: int = 0
        self._limit = limit
        self._pending = pending
        self._request: PendingRequest | None = None  # the request that the current response answers
        self._looked_up = False  # whether that request was searched for

    def _take(self, data: bytes, at: int, end: int, found: list[StreamItem]) -> int:
        size: int
        size, correlation_id = _PAIR(data, at)
        if not 4 <= size <= self._limit:
            if 0 <= size < 4 and self._pending.expects_token:
                found.append(AuthenticationToken())
                return size + 4
            if not self._unconfirmed:
                found.append(BadFrame(f"no response where one should begin (size {size})", self._at))
            self._lose_boundary(found)
            return -1
        if not self._looked_up:
            self._request = self._pending.find(correlation_id)
            if self._request is None and self._pending.expects_token:
                found.append(AuthenticationToken())
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
            ResponseInStream(request, correlation_id, size, self._at, self._first_ns, self._last_ns, WHOLE, payload)
        )
        return size + 4

    def _stepped(self, step: FrameLink, found: list[StreamItem]) -> None:
        if step.correlation_id is not None:
            request = self._pending.find(step.correlation_id)
            found.append(ResponseInStream(request, step.correlation_id, 0, 0, 0, 0, WHOLE, None))

    def _lose_boundary(self, found: list[StreamItem]) -> None:
        super()._lose_boundary(found)
        self._looked_up = False
        found.append(ResponsesLost())

    def _broken(self, data: bytes, found: list[StreamItem]) -> int:
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
                ResponseInStream(request, correlation_id, size, self._at, self._first_ns, self._last_ns, GAP, payload)
            )
        return self._at + 4 + size
