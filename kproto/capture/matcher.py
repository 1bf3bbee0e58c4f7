"""The matcher: pairs responses with the pending requests of a connection.

Responses come in the order of the requests, so a response also tells that earlier requests got none. Correlation ids
wrap and are used again: as long as no response was lost the oldest pending request with that id is meant, after a loss
the newest.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .model import Frame
    from .payloads import SharedPayload

__all__ = ["MOST_PENDING", "Matcher", "PendingRequest"]

MOST_PENDING: Final = 10_000
"""Requests of one connection that may wait for their responses."""

_NEWEST_WANTED: Final = 64
"""When the boundaries of the responses are lost, answers to so many of the newest wanted requests are searched for."""

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

    __slots__ = ("api_key", "api_version", "correlation_id", "frame", "held_bytes", "pending", "same_id", "shared")

    def __init__(self, correlation_id: int, api_key: int | None, api_version: int, frame: Frame | None = None) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.api_version = api_version
        self.frame = frame
        self.held_bytes = _OVERHEAD
        self.pending = True
        self.same_id: PendingRequest | None = None
        self.shared: SharedPayload | None = None


class Matcher:
    """The pending requests of one connection.

    Args:
        keeps_payloads: Whether the requests' payloads stay until they are answered.

    Attributes:
        held_bytes: Their estimated memory in bytes.
    """

    __slots__ = ("_before_loss", "_keeps_payloads", "_newest", "_oldest", "_pending", "_wanted", "held_bytes")

    def __init__(self, *, keeps_payloads: bool = True) -> None:
        self._keeps_payloads = keeps_payloads
        self._pending: deque[PendingRequest] | None = None  # the oldest first; most connections never have any
        self._oldest: dict[int, PendingRequest] = {}  # by correlation id, of requests sent since responses were lost
        self._newest: dict[int, PendingRequest] = {}
        self._before_loss: dict[int, PendingRequest] = {}  # the newest by correlation id, of the requests sent before
        self._wanted: deque[PendingRequest] | None = None
        self.held_bytes = 0

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
