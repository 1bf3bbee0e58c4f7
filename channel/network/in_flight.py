"""The in-flight requests of one connection: being sent or sent, and not answered yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from channel.errors import IllegalState

if TYPE_CHECKING:
    from .request import ClientRequest

__all__ = ["InFlightRequests"]


class InFlightRequests:
    """In-flight requests in the order in which they were sent. Any thread may call ``len``.

    Args:
        node_id: The node at the other end, for errors.

    Attributes:
        requests: The requests, oldest first.
    """

    __slots__ = ("_node_id", "requests")

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self.requests: deque[ClientRequest] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: ClientRequest) -> None:
        """Add the newest request."""
        self.requests.append(request)

    def complete_next(self) -> ClientRequest:
        """Remove and return the oldest request, to which the next response belongs."""
        try:
            return self.requests.popleft()
        except IndexError:
            raise self._nothing() from None

    def last_sent(self) -> ClientRequest:
        """The newest request."""
        try:
            return self.requests[-1]
        except IndexError:
            raise self._nothing() from None

    def complete_last_sent(self) -> ClientRequest:
        """Remove and return the newest request, which expects no response and has gone out."""
        try:
            return self.requests.pop()
        except IndexError:
            raise self._nothing() from None

    def _nothing(self) -> IllegalState:
        return IllegalState(f"no request is in flight to node {self._node_id}")

    def can_send_more(self, limit: int) -> bool:
        """Whether the newest request has gone out entirely, and fewer than ``limit`` are in flight."""
        requests = self.requests
        if not requests:
            return True
        send = requests[-1].send
        return (send is None or send.completed) and len(requests) < limit

    def clear_all(self) -> list[ClientRequest]:
        """Remove and return all requests, oldest first."""
        requests = list(self.requests)
        self.requests.clear()
        return requests

    def throttle(self, throttle_ms: int) -> None:
        """Give each request this much more time: a throttling node answers nothing meanwhile."""
        for request in self.requests:
            request.throttle_ms += throttle_ms

    def timed_out(self, now: int) -> bool:
        """Whether any request has waited longer than its timeout."""
        return any(now - r.sent_ms - r.throttle_ms > r.timeout_ms for r in self.requests)

    def earliest_deadline(self) -> int | None:
        """Return the first time at which a request may time out; None without requests."""
        return min((r.sent_ms + r.throttle_ms + r.timeout_ms for r in list(self.requests)), default=None)
