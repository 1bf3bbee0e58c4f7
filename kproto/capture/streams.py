"""One direction's bytes -> frames: of the client's requests, and of the server's responses.

While the boundaries are known a frame is cut by its size alone, and what nobody wants is passed over without a copy.
Where they are lost a search finds the next frame that can be trusted.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from .model import GAP, WHOLE, Frame
from .plausible import (
    HEADER_START,
    NEWEST_API,
    body_is_whole,
    header_room,
    looks_like_http,
    looks_like_tls,
    opens_kafka,
    request_header,
)
from .search import RequestSearch, ResponseSearch, Search, Step
from .tcp import FOREVER

if TYPE_CHECKING:
    from .correlate import Asked, Conversation
    from .plausible import Header

__all__ = ["RequestReader", "ResponseReader"]

_START: Final = struct.Struct(">ihhi").unpack_from
_PAIR: Final = struct.Struct(">ii").unpack_from

_STRANGER_BYTES: Final = 1 << 20
"""A connection that does not begin with a request, and shows none in so many bytes, is not Kafka's."""

_SEARCH_BYTES: Final = 256 << 20
"""So many bytes are searched for a frame in any stream, then it is left alone."""

_TOKEN_LIMIT: Final = 1 << 16


class _Reader:
    """Cutting at known boundaries; the two directions differ in what a frame's beginning says."""

    _least: int

    def __init__(self, conversation: Conversation, search: Search, in_step: bool) -> None:
        self.skip_to = 0
        self._conversation = conversation
        self._search = search
        self._searching = not in_step
        self._doubtful = not in_step  # nothing but the search has confirmed the boundaries yet
        self._at = 0  # stream offset of the next frame
        self._held = bytearray()  # its bytes so far
        self._need = self._least
        self._first_ns = self._last_ns = 0
        self._queue: deque[tuple[int, bytes, int]] = deque()

    @property
    def searching(self) -> bool:
        """Whether the boundaries are lost at the moment."""
        return self._searching

    def data(self, offset: int, data: bytes, time_ns: int) -> None:
        """Take the next bytes of the stream."""
        if not self._conversation.counted:
            self._conversation.count()
        queue = self._queue
        queue.append((offset, data, time_ns))
        while queue:
            offset, data, time_ns = queue.popleft()
            if offset < self.skip_to:
                data = data[self.skip_to - offset :]
                offset = self.skip_to
                if not data:
                    continue
            if self._searching:
                self._look(offset, data, time_ns)
            else:
                self._cut(data, time_ns)
        if self._conversation.waiting:
            self._conversation.settle()

    def _cut(self, data: bytes, time_ns: int) -> None:
        """Take frames off a stream in step."""
        if self._held:
            self._held += data
            self._last_ns = max(self._last_ns, time_ns)
            if len(self._held) < self._need:
                return
            data = bytes(self._held)
        else:
            self._first_ns = self._last_ns = time_ns
        at, size = 0, len(data)
        while size - at >= self._need:
            taken = self._take(data, at, size)
            if taken < 0:
                self._queue.appendleft((self._at, data[at:], time_ns))
                self._held = bytearray()
                return
            if not taken:
                continue  # it needs more to be sure
            at += taken
            self._at += taken
            self._need = self._least
            self._first_ns = self._last_ns = time_ns
        self._held = bytearray(data[at:])
        if at >= size:
            self.skip_to = self._at

    def _take(self, data: bytes, at: int, end: int) -> int:
        """The bytes of the frame at ``at``; 0 if ``_need`` of them are needed first; -1 if the step is lost."""
        raise NotImplementedError

    def _look(self, offset: int, data: bytes, time_ns: int) -> None:
        """Search a stream that is out of step."""
        start = self._search.data(offset, data, time_ns)
        if start is None:
            if self._search.seen > _SEARCH_BYTES:
                self.stop()
            return
        self._found(self._search.step)
        self._searching = False
        self._doubtful = True
        self._at = self.skip_to = start
        self._need = self._least
        self._queue.extendleft(reversed(self._search.pieces(start)))
        self._search.clear()

    def _found(self, step: Step | None) -> None:
        """The search has met a frame."""
        raise NotImplementedError

    def lose_step(self) -> None:
        """The next boundary is not known any more."""
        self._searching = True
        self._held = bytearray()
        self._need = self._least
        self._search.clear()

    def lost(self, offset: int, length: int, time_ns: int) -> None:
        """Bytes that will never come."""
        end = offset + length
        if self._searching:
            self._search.clear()
            self.skip_to = max(self.skip_to, end)
            return
        data, self._held = bytes(self._held), bytearray()
        frame_end = self._broken(data) if data else -1
        self._conversation.note_gap(length)
        if data:
            self._need = self._least
            if frame_end >= end:
                self._at = self.skip_to = frame_end
                return
        elif self.skip_to >= end > offset:
            return
        self.lose_step()
        self._at = self.skip_to = end

    def _broken(self, data: bytes) -> int:
        """Give out what there is of a frame whose next byte is lost; the stream offset of its end, -1 if not known."""
        raise NotImplementedError

    def closed(self, time_ns: int) -> None:
        """No more will come."""
        if self._held and not self._searching:
            data, self._held = bytes(self._held), bytearray()
            self._broken(data)
        self.stop()
        self._conversation.stream_closed()

    def stop(self) -> None:
        """Read no more."""
        self.skip_to = FOREVER
        self._held = bytearray()
        self._queue.clear()
        self._search.clear()


class RequestReader(_Reader):
    """A client's stream, or one that may be.

    Args:
        conversation: The connection.
        in_step: Whether the stream is known from its first byte.
    """

    _least = HEADER_START

    def __init__(self, conversation: Conversation, in_step: bool) -> None:
        super().__init__(conversation, RequestSearch(conversation, conversation.limit), in_step)
        self._fresh = in_step  # nothing has been read yet
        self._began_strangely = False  # the first bytes of the connection are no request
        self._tls_like = 0

    def data(self, offset: int, data: bytes, time_ns: int) -> None:
        """Take the next bytes of the stream."""
        if self._searching and self._conversation.is_stranger and looks_like_tls(data):
            self._tls_like += 1
            if self._tls_like > 1:  # one segment of anything may look so
                self._conversation.is_tls()
                return
        super().data(offset, data, time_ns)

    def _take(self, data: bytes, at: int, end: int) -> int:
        size: int
        size, api_key, version, correlation_id = _START(data, at)
        conversation = self._conversation
        if (
            not self._fresh
            and not self._doubtful
            and conversation.passes(api_key, version)
            and 8 <= size <= conversation.limit
        ):
            conversation.asked(correlation_id, api_key, version, None)
            return size + 4
        if not 0 <= api_key <= NEWEST_API or (self._fresh and size > conversation.limit):
            return self._refuse(data, at, size, None)  # do not wait for a client id that long
        room = header_room(data, at, end)
        if room > end - at:
            self._need = room
            return 0
        header = request_header(data, at, end) if room > 0 else None
        if (
            header is None
            or not opens_kafka(header, conversation.limit)
            or (self._doubtful and not self._is_same(header))
        ):
            return self._refuse(data, at, size, header)
        if not conversation.wants(api_key):
            self._accept(header)
            conversation.asked(correlation_id, api_key, version, None)
            return size + 4
        if end - at < size + 4:
            self._need = size + 4
            return 0
        payload = data[at + 4 : at + 4 + size]
        if self._doubtful and body_is_whole(api_key, version, memoryview(payload)[header.body_at :], "req") is False:
            return self._refuse(data, at, size, header)
        self._accept(header)
        conversation.asked(correlation_id, api_key, version, self._frame(header, payload, WHOLE))
        return size + 4

    def _is_same(self, header: Header) -> bool:
        known = self._conversation.client_id
        return known is None or header.client_id == known

    def _accept(self, header: Header) -> None:
        if self._fresh or self._conversation.client_id is None:
            self._conversation.speaks_kafka(self, header.client_id)
        self._fresh = self._doubtful = False

    def _refuse(self, data: bytes, at: int, size: int, header: Header | None) -> int:
        """There is no request here: pass over an authentication token, leave a stranger, else search."""
        conversation = self._conversation
        if self._fresh and (looks_like_tls(data) or looks_like_http(data)):
            (conversation.is_tls if looks_like_tls(data) else conversation.is_http)()
            return -1
        if conversation.raw_tokens and 0 <= size <= _TOKEN_LIMIT:
            conversation.token()
            return size + 4
        limit = conversation.limit
        if header is not None and header.size > limit and opens_kafka(header, header.size):
            conversation.bad(f"a request of {size} bytes, more than the limit of {limit}", self._at, size + 4)
        elif not self._doubtful:
            conversation.bad(f"no request where one should begin (size {size})", self._at)
        self._began_strangely |= self._fresh
        self._fresh = False
        self.lose_step()
        if size >= 0:
            self._search.add_step(Step(self._at + 4 + size))
        return -1

    def _look(self, offset: int, data: bytes, time_ns: int) -> None:
        super()._look(offset, data, time_ns)
        if self._began_strangely and self._search.seen > _STRANGER_BYTES and self._conversation.is_stranger:
            self._conversation.leave()

    def _found(self, step: Step | None) -> None:
        if step is not None and step.header is not None:
            header = step.header
            self._conversation.speaks_kafka(self, header.client_id)
            self._conversation.asked(header.correlation_id, header.api_key, header.api_version, None)

    def _frame(self, header: Header, payload: bytes, status: int) -> Frame:
        return Frame(
            self._conversation.connection,
            "req",
            self._at,
            self._first_ns,
            self._last_ns,
            status,
            header.size,
            payload,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            header.body_at,
            self._conversation.file,
        )

    def _broken(self, data: bytes) -> int:
        header = request_header(data, 0, len(data))
        if header is None or not opens_kafka(header, self._conversation.limit) or self._doubtful:
            return -1
        self._accept(header)
        frame = None
        if self._conversation.wants(header.api_key):
            frame = self._frame(header, data[4:], GAP)
        self._conversation.asked(header.correlation_id, header.api_key, header.api_version, frame)
        return self._at + 4 + header.size


class ResponseReader(_Reader):
    """A server's stream.

    Args:
        conversation: The connection.
        in_step: Whether the stream is known from its first byte.
    """

    _least = 8

    def __init__(self, conversation: Conversation, in_step: bool) -> None:
        super().__init__(conversation, ResponseSearch(conversation, conversation.limit), in_step)
        self._answers: Asked | None = None  # the request whose response is being read
        self._known = False  # whether that was looked up

    def _take(self, data: bytes, at: int, end: int) -> int:
        size: int
        size, correlation_id = _PAIR(data, at)
        conversation = self._conversation
        if not 4 <= size <= conversation.limit:
            if 0 <= size < 4 and conversation.answer_token():
                return size + 4
            if not self._doubtful:
                conversation.bad(f"no response where one should begin (size {size})", self._at)
            self.lose_step()
            return -1
        if not self._known:
            self._answers = conversation.answered(correlation_id)
            if self._answers is None and conversation.answer_token():
                return size + 4
            self._known = True
        asked = self._answers
        wanted = asked.frame is not None if asked is not None else conversation.keeps_unmatched(size)
        if wanted and end - at < size + 4:
            self._need = size + 4
            return 0
        self._known = self._doubtful = False
        payload = data[at + 4 : at + 4 + size] if wanted else b""
        self._give(size, correlation_id, asked, payload, WHOLE, wanted)
        return size + 4

    def _give(
        self, size: int, correlation_id: int, asked: Asked | None, payload: bytes, status: int, wanted: bool
    ) -> None:
        conversation = self._conversation
        if not wanted:
            conversation.passed(asked)
            return
        frame = Frame(
            conversation.connection,
            "resp",
            self._at,
            self._first_ns,
            self._last_ns,
            status,
            size,
            payload,
            None,
            None,
            correlation_id,
            None,
            min(4, len(payload)),
            conversation.file,
        )
        conversation.responded(asked, frame)

    def _found(self, step: Step | None) -> None:
        if step is not None and step.correlation_id is not None:
            self._conversation.passed(self._conversation.answered(step.correlation_id))

    def lose_step(self) -> None:
        """The next boundary is not known any more; which of the open requests were answered is not either."""
        super().lose_step()
        self._known = False
        self._conversation.responses_lost()

    def _broken(self, data: bytes) -> int:
        if len(data) < 8:
            return -1
        size: int
        size, correlation_id = _PAIR(data, 0)
        if not 4 <= size <= self._conversation.limit or (self._doubtful and not self._known):
            return -1
        asked = self._answers if self._known else self._conversation.answered(correlation_id)
        self._known = False
        if asked is not None:
            self._give(size, correlation_id, asked, data[4:], GAP, asked.frame is not None)
        return self._at + 4 + size
