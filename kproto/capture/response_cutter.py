"""A server's stream -> responses, each with the pending request that it answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from .cuts import AuthenticationToken, BadFrame, ResponseInStream, ResponsesLost
from .cutter import FrameCutter
from .model import GAP, WHOLE
from .resync import ResponseSearch

if TYPE_CHECKING:
    from .cuts import StreamItem
    from .matcher import Matcher, PendingRequest
    from .resync import FrameLink
    from .wanted import WantedApis

__all__ = ["ResponseCutter"]

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
        unmatched_bytes: Responses without a pending request keep their payloads up to so many bytes in all.
    """

    def __init__(self, wanted: WantedApis, limit: int, pending: Matcher, *, aligned: bool) -> None:
        super().__init__(ResponseSearch(wanted, limit, pending), 8, aligned=aligned)
        self.unmatched_bytes = 0
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
