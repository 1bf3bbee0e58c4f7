"""A client's stream -> requests, authentication tokens, or the name of another protocol."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal

from kproto.api import CONTROL_APIS, ApiKey

from .cuts import AuthenticationToken, BadFrame, OtherProtocol, RequestInStream
from .cutter import SIZE, FrameCutter
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
from .resync import FrameLink, RequestSearch

if TYPE_CHECKING:
    from .cuts import StreamItem
    from .cutter import Chunk
    from .payloads import Payload, SharedPayload
    from .wanted import WantedApis

__all__ = ["RequestCutter"]

_FOREIGN_BYTES: Final = 1 << 20
"""A connection without a request at its beginning or within so many bytes is not Kafka's."""

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
    def boundary(self) -> int | None:
        """As of ``FrameCutter``; none while authentication tokens may come."""
        return None if self._fresh or self._tokens else super().boundary

    def _take(self, data: bytes, at: int, end: int, found: list[StreamItem]) -> int:
        size: int
        size, api_key, version, correlation_id = _START(data, at)
        limit = self._limit
        known = not self._fresh and not self._unconfirmed
        if known and (api_key, version) in self._wanted.unwanted and 8 <= size <= limit:
            self._give(FrameHeader(size, api_key, version, correlation_id, None, 8), None, WHOLE, found)
            return size + 4
        if not 0 <= api_key <= NEWEST_API or (self._fresh and size > limit):
            return self._refuse(data, at, end, size, None, found)  # a client id this long is not waited for
        header = read_request_header(data, at, end)
        if isinstance(header, int):
            if header > 0:
                self._need = header
                return 0
            return self._refuse(data, at, end, size, None, found)
        if not may_be_request(header, limit) or (self._unconfirmed and not self._requests.is_same_client(header)):
            return self._refuse(data, at, end, size, header, found)
        if api_key not in self._wanted:
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
        self._give(header, data[4:] if header.api_key in self._wanted else None, GAP, found)
        return self._at + 4 + header.size


def _protocol(data: bytes) -> Literal["TLS", "HTTP"] | None:
    if looks_like_tls(data):
        return "TLS"
    return "HTTP" if looks_like_http(data) else None
