"""A client's bytes -> requests; and the client that turns out to speak something else."""

from __future__ import annotations

import struct
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
from .search import RequestSearch, Step
from .streams import StreamReader

if TYPE_CHECKING:
    from .correlate import Conversation
    from .plausible import Header

__all__ = ["RequestReader"]

_START: Final = struct.Struct(">ihhi").unpack_from

_STRANGER_BYTES: Final = 1 << 20
"""A connection that does not begin with a request, and shows none in so many bytes, is not Kafka's."""

_TOKEN_LIMIT: Final = 1 << 16


class RequestReader(StreamReader):
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
