"""Counts the latencies of one broker by value: quantiles in bounded memory."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_VALUES: Final = 20_000
"""The most distinct values; beyond it latencies are counted to three digits."""

_DIGITS: Final = 3


class Latencies:
    """A count of latencies in microseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._is_coarse = False
        self.count: int = 0
        self.max_us: int | None = None

    def add(self, latencies_us: Sequence[int]) -> None:
        """Count some latencies."""
        if not latencies_us:
            return
        self.count += len(latencies_us)
        most = max(latencies_us)
        self.max_us = most if self.max_us is None else max(self.max_us, most)
        self._counts.update(map(_coarse, latencies_us) if self._is_coarse else latencies_us)
        self._limit()

    def merge(self, other: Latencies) -> None:
        """Add the counts of another broker or process."""
        if other._is_coarse:
            self._coarsen()
        for latency, count in other._counts.items():
            self._counts[_coarse(latency) if self._is_coarse else latency] += count
        self.count += other.count
        self.max_us = max((us for us in (self.max_us, other.max_us) if us is not None), default=None)
        self._limit()

    def _limit(self) -> None:
        if len(self._counts) > _MOST_VALUES:
            self._coarsen()

    def _coarsen(self) -> None:
        if not self._is_coarse:
            self._is_coarse = True
            fine, self._counts = self._counts, Counter()
            for latency, count in fine.items():
                self._counts[_coarse(latency)] += count

    def quantiles_us(self, *parts: float) -> list[int | None]:
        """Return the quantiles (nearest rank) for ascending fractions such as 0.5 and 0.99."""
        found: list[int | None] = []
        ranks = [ceil(part * self.count) for part in parts]
        passed = 0
        values = iter(sorted(self._counts.items()))
        latency: int | None = None
        for rank in ranks:
            while passed < rank:
                latency, count = next(values)
                passed += count
            found.append(latency)
        return found


def _coarse(latency_us: int) -> int:
    """A latency with its first three digits alone."""
    digits = len(str(latency_us))
    return latency_us if digits <= _DIGITS else latency_us - latency_us % int(10 ** (digits - _DIGITS))
