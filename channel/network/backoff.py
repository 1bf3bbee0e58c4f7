"""Exponential back-off: the wait before another attempt."""

from __future__ import annotations

import math
import random


class ExponentialBackoff:
    """``initial * base**attempts`` ms, spread by a share of ``jitter`` to both sides, never above ``maximum``.

    With ``maximum <= initial`` the wait is constant and not spread: 0 and 0 mean at once.
    """

    __slots__ = ("_base", "_initial", "_jitter", "_maximum", "_most", "_random")

    def __init__(
        self, initial: int, base: int, maximum: int, jitter: float, randomness: random.Random | None = None
    ) -> None:
        self._initial = min(initial, maximum)
        self._maximum = maximum
        self._base = base
        self._jitter = jitter
        self._most = math.log(maximum / max(initial, 1), base) if maximum > initial else 0.0
        self._random = randomness or random.Random()  # noqa: S311 - spreads load, keeps no secret

    def backoff(self, attempts: int) -> int:
        """Return the wait in ms after this many failures."""
        if self._most == 0.0:
            return self._initial
        wait = self._initial * self._base ** min(attempts, self._most)
        if self._jitter:
            wait *= 1 - self._jitter + 2 * self._jitter * self._random.random()
        return min(self._maximum, int(wait))
