"""Requests that have been sent, or are being sent, and not answered yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from channel.clock import FOREVER
from channel.errors import IllegalState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .request import ClientRequest

__all__ = ["InFlightRequests"]


class InFlightRequests:
    """For each node its requests, newest first. ``len`` may be asked from any thread.

    Args:
        limit: Most requests in flight for one node.
    """

    __slots__ = ("_count", "_limit", "_requests")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: dict[str, deque[ClientRequest]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, request: ClientRequest) -> None:
        """It is the newest of its node now."""
        queue = self._requests.get(request.destination)
        if queue is None:
            queue = self._requests[request.destination] = deque()
        queue.appendleft(request)
        self._count += 1

    def _queue(self, node_id: str) -> deque[ClientRequest]:
        queue = self._requests.get(node_id)
        if not queue:
            raise IllegalState(f"no request is in flight to node {node_id}")
        return queue

    def complete_next(self, node_id: str) -> ClientRequest:
        """Take the oldest: the one that the next answer belongs to."""
        request = self._queue(node_id).pop()
        self._count -= 1
        return request

    def last_sent(self, node_id: str) -> ClientRequest:
        """The newest."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: str) -> ClientRequest:
        """Take the newest: it expects no answer and has gone out."""
        request = self._queue(node_id).popleft()
        self._count -= 1
        return request

    def can_send_more(self, node_id: str) -> bool:
        """Whether the newest has gone out entirely and the limit leaves room."""
        queue = self._requests.get(node_id)
        if not queue:
            return True
        send = queue[0].send
        return (send is None or send.completed) and len(queue) < self._limit

    def count(self, node_id: str) -> int:
        """How many there are for a node."""
        return len(self._requests.get(node_id, ()))

    def is_empty(self, node_id: str) -> bool:
        """Whether there is none for a node."""
        return not self._requests.get(node_id)

    def clear_all(self, node_id: str) -> list[ClientRequest]:
        """Take all of a node, oldest first."""
        queue = self._requests.pop(node_id, None)
        if queue is None:
            return []
        self._count -= len(queue)
        return list(reversed(queue))

    def throttle(self, node_id: str, throttle_ms: int) -> None:
        """The node answers nothing for so long: its requests may take that much longer."""
        for request in self._requests.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def timed_out_nodes(self, now: int) -> list[str]:
        """The nodes of which any request has waited longer than it may."""
        return [n for n, queue in self._requests.items() if any(_timed_out(queue, now))]

    def earliest_deadline(self) -> int:
        """A time before which none of the present requests times out; ``FOREVER`` if there are none."""
        return min((r.sent_ms + r.timeout_ms for queue in self._requests.values() for r in queue), default=FOREVER)


def _timed_out(queue: deque[ClientRequest], now: int) -> Iterator[bool]:
    return (now - r.sent_ms - r.throttle_ms > r.timeout_ms for r in queue)
