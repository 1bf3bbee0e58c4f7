"""The live brokers as a controller knew them, from the lists that it sent.

Each broker gets the lists of one controller in the order in which the controller made them, but a slow one gets them
later than others, by any number of lists. So the lists of all brokers are matched with one sequence of places: what one
was sent before another was sent it is no change again. A list that has no place yet waits until a later one of the same
broker has: then it is between the two, or before all that is known. What still waits at the end, as it is of a broker
that is behind or the only one that captures go on to show, counts from the second list that no other was sent on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

_UNPLACED = Fraction(-1)
_FINEST = 1 << 64
"""The largest denominator of a place between two: halves of halves of lists that nobody sends cost no more."""
Live = TypeVar("Live")
"""A list, or what names it."""


@dataclass(slots=True)
class _Sent(Generic[Live]):
    """What a receiver was sent: its newest list that has a place, the first and the last that it may be, what waits."""

    last_ts: int = 0
    live: Live | None = None
    first: Fraction = _UNPLACED
    last: Fraction = _UNPLACED
    waiting: list[tuple[int, Live]] = field(default_factory=list)


class LiveLists(Generic[Live]):
    """The lists of live brokers that accepted updates hold."""

    def __init__(self) -> None:
        self._past: list[tuple[int, Live]] = []  # the changes of controllers that were replaced
        self._reign = False, -1 << 31  # whatever epoch a packet claims, its list counts
        self._begin()

    def _begin(self) -> None:
        self._told: dict[Fraction, tuple[int, Live]] = {}  # by place, the time at which the first receiver was sent it
        self._order: list[Fraction] = []
        self._places: dict[Live, list[Fraction]] = {}
        self._sent: dict[Any, _Sent[Live]] = {}

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
            self._past = self.changes()
            self._reign = reign
            self._begin()
        sent = self._sent.setdefault(receiver, _Sent())
        sent.last_ts = ts
        if live != (sent.waiting[-1][1] if sent.waiting else sent.live):
            self._match(sent, ts, live)

    def changes(self) -> list[tuple[int, Live]]:
        """When the live brokers changed (us since 1970), with the brokers from then on; what waits gets its place."""
        late = sorted((sent for sent in self._sent.values() if sent.waiting), key=lambda sent: sent.waiting[0][0])
        others = max((sent.last_ts for sent in self._sent.values() if not sent.waiting), default=0)
        for counts in (False, True):
            for sent in late:
                waiting, sent.waiting = sent.waiting, []
                for ts, live in waiting:
                    is_newest = sent.waiting or sent.last == self._order[-1]
                    if counts and is_newest and ts > others and live not in self._places:
                        sent.waiting.clear()
                        self._place(sent, self._order[-1] + 1, ts, live)
                    else:
                        self._match(sent, ts, live)
        found: list[tuple[int, Live]] = []
        known = self._order if self._past else self._order[bisect_left(self._order, 0) :]
        for place in reversed(known):
            ts, live = self._told[place]
            found.append((min(ts, found[-1][0]) if found else ts, live))
        found.reverse()
        return self._past + found[bool(self._past and found and self._past[-1][1] == found[0][1]) :]

    def _match(self, sent: _Sent[Live], ts: int, live: Live) -> None:
        """Find the place of the next list of a receiver."""
        place = self._ahead(sent, live)
        if place is not None:
            waiting, sent.waiting = sent.waiting, []
            for earlier in waiting:
                found = self._ahead(sent, earlier[1])
                if found is None or found >= place:
                    sent.waiting.append(earlier)
                else:
                    self._insert(sent, found)
                    self._take(sent, found, *earlier)
            self._insert(sent, place)
            self._take(sent, place, ts, live)
        elif self._order and sent.first < self._order[-1]:
            sent.waiting.append((ts, live))
        else:
            self._place(sent, self._order[-1] + 1 if self._order else Fraction(), ts, live)

    def _ahead(self, sent: _Sent[Live], live: Live) -> Fraction | None:
        places = self._places.get(live, [])
        ahead = bisect_right(places, sent.first)
        return places[ahead] if ahead < len(places) else None

    def _take(self, sent: _Sent[Live], place: Fraction, ts: int, live: Live) -> None:
        """Note that a receiver was sent the list of a place."""
        self._told[place] = min(ts, self._told[place][0]), live
        sent.live, sent.first, sent.last = live, place, self._places[live][-1]
        sent.waiting.clear()

    def _insert(self, sent: _Sent[Live], place: Fraction) -> None:
        """Give places to lists that wait and have none ahead, if what the receiver was sent before is next to them."""
        waiting, sent.waiting = sent.waiting, []
        at = bisect_left(self._order, place)
        former = self._order[at - 1] if at else place - 1
        is_next = sent.first == sent.last == former if at else sent.live is None
        if (
            is_next
            and place.denominator <= _FINEST >= former.denominator
            and all(self._ahead(sent, live) is None for _ts, live in waiting)
        ):
            for number, (ts, live) in enumerate(waiting, 1):
                self._place(sent, former + (place - former) * number / (len(waiting) + 1), ts, live)

    def _place(self, sent: _Sent[Live], place: Fraction, ts: int, live: Live) -> None:
        self._told[place] = ts, live
        insort(self._order, place)
        insort(self._places.setdefault(live, []), place)
        sent.live, sent.first, sent.last = live, place, place
