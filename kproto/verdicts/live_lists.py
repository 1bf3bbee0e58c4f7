"""The live brokers as a controller knew them, from the lists that it sent.

Each broker gets the lists in the order in which the controller made them, but a slow one gets them later than others.
So lists are followed broker by broker: what one was sent before another was sent it is no change again. Where the
captures begin to show what a broker was sent, or miss a list, it may be behind the others: a list that nobody else was
sent counts there once a second one follows.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Generic, TypeVar

_UNPLACED = -1
Live = TypeVar("Live")
"""A list, or what names it."""


class LiveLists(Generic[Live]):
    """The lists of live brokers that accepted updates hold.

    Attributes:
        changes: When the live brokers changed (us since 1970), with the brokers from then on; in order.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[int, Live]] = []
        self._reign = False, -1
        self._first = 0  # the place of the first change of this controller epoch
        self._places: dict[Live, list[int]] = {}  # of the changes of this epoch, in order
        self._sent: dict[Any, tuple[int, int, Live]] = {}
        """Of each receiver its newest list, with the first and the last place that it may have; -1: none has it."""

    def add(self, ts: int, reign: tuple[bool, int], receiver: Any, live: Live) -> None:
        """Add the list in the next update that a broker accepted.

        Args:
            ts: The time of the update.
            reign: The sender's, see ``Request.reign``. Lists of a controller that was replaced count no more.
            receiver: The broker.
            live: The list, or its name.
        """
        if reign < self._reign:
            return
        if reign > self._reign:
            self._reign, self._first = reign, len(self.changes)
            self._places.clear()
            self._sent.clear()
            if self.changes and self.changes[-1][1] == live:
                self._first -= 1
                self._places[live] = [self._first]
        first, last, before = self._sent.get(receiver, (_UNPLACED, _UNPLACED, None))
        if live == before:
            return
        places = self._places.get(live, [])
        ahead = bisect_right(places, first)
        newest = len(self.changes) - 1
        if ahead < len(places):
            self._sent[receiver] = places[ahead], places[-1], live
        elif last < newest >= self._first and (before is None or last != _UNPLACED):
            self._sent[receiver] = first, _UNPLACED, live
        else:
            self._sent[receiver] = newest + 1, newest + 1, live
            self.changes.append((ts, live))
            self._places.setdefault(live, []).append(newest + 1)
