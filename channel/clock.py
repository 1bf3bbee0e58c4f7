"""Clocks: every component reads the time from the ``Clock`` it is given, never from the system."""

from __future__ import annotations

import time
from typing import Final

FOREVER: Final = 2**63 - 1
"""The longest wait in ms: Kafka's "maximum"."""


class Clock:
    """The machine's own clock; tests have others.

    Elapsed time never runs backwards; wall-clock time is for recordings and logs alone.
    """

    __slots__ = ()

    def milliseconds(self) -> int:
        """Elapsed ms since some fixed moment."""
        return time.monotonic_ns() // 1_000_000

    nanoseconds = staticmethod(time.monotonic_ns)
    """Elapsed ns since the same moment."""

    wall_nanoseconds = staticmethod(time.time_ns)
    """Wall-clock time in ns since 1970-01-01 UTC, for captures and people."""

    def sleep(self, ms: float) -> None:
        """Sleep this many ms; return at once if the number is not positive."""
        if ms > 0:
            time.sleep(ms / 1000)


SYSTEM_CLOCK: Final = Clock()
