"""Exchanges as they are complete -> exchanges in the order of their requests' times."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from .model import Exchange, Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .collector import Event

_LATE_NS: Final = 2_000_000_000
_MOST_EXCHANGES: Final = 50_000
_MOST_BYTES: Final = 256 << 20
"""How long, how many and how large exchanges may wait for older ones."""

_HOPELESS_NS: Final = 60_000_000_000
"""A controller waits 30 s for a response; no exchange is held back longer for an unsettled request."""


class TimeOrder:
    """Holds exchanges back until no older one can come, within limits."""

    def __init__(self) -> None:
        self._ready: list[tuple[int, int, Exchange]] = []
        self._held = 0
        self._number = 0
        self._pending: dict[Frame, int] = {}  # unsettled requests with their numbers
        self._numbers: set[int] = set()  # those numbers
        self._times: list[tuple[int, int]] = []  # a heap of their times and numbers, some of complete ones among them

    def add(self, events: Iterable[Event], now_ns: int) -> Iterator[Exchange]:
        """Take a reader's events; return the exchanges that no older one can precede any more.

        Args:
            events: Frames of requests, and exchanges.
            now_ns: The time in the capture.
        """
        for event in events:
            self._number += 1
            if isinstance(event, Frame):
                self._pending[event] = self._number
                self._numbers.add(self._number)
                heapq.heappush(self._times, (event.time_ns, self._number))
                continue
            if event.request is not None:
                self._numbers.discard(self._pending.pop(event.request, 0))
            self._held += _size(event)
            heapq.heappush(self._ready, (event.time_ns, self._number, event))
        if len(self._times) > 2 * len(self._pending) + _MOST_EXCHANGES:
            self._times = sorted((frame.time_ns, number) for frame, number in self._pending.items())
        return self._due(now_ns)

    def end(self) -> Iterator[Exchange]:
        """Return the remaining exchanges, in order."""
        while self._ready:
            yield heapq.heappop(self._ready)[2]

    def _due(self, now_ns: int) -> Iterator[Exchange]:
        ready = self._ready
        complete_until = self._complete_until(now_ns) if ready else 0
        while ready and (ready[0][0] <= complete_until or len(ready) > _MOST_EXCHANGES or self._held > _MOST_BYTES):
            exchange = heapq.heappop(ready)[2]
            self._held -= _size(exchange)
            yield exchange

    def _complete_until(self, now_ns: int) -> int:
        """The time before which no further exchange is expected."""
        times = self._times
        while times and (times[0][1] not in self._numbers or times[0][0] < now_ns - _HOPELESS_NS):
            heapq.heappop(times)
        until_ns = now_ns - _LATE_NS
        return min(until_ns, times[0][0]) if times else until_ns


def _size(exchange: Exchange) -> int:
    request, response = exchange.request, exchange.response
    return (0 if request is None else len(request.content)) + (0 if response is None else len(response.content))
