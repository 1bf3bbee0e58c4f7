"""The one source of time. Every component takes a ``Clock``; none asks the system itself."""

from __future__ import annotations

import time
from typing import Final, Protocol

__all__ = ["FOREVER", "SYSTEM_CLOCK", "Clock", "SystemClock"]

FOREVER: Final = 2**63 - 1
"""The longest wait in ms: Kafka's "maximum"."""


class Clock(Protocol):
    """Time as the channel sees it. Elapsed time never runs backwards; only records carry the wall's."""

    def milliseconds(self) -> int:
        """Elapsed ms since some fixed moment."""

    def nanoseconds(self) -> int:
        """Elapsed ns since the same moment."""

    def wall_nanoseconds(self) -> int:
        """ns since 1970-01-01 UTC, for what people and captures read."""

    def sleep(self, ms: float) -> None:
        """Let this many ms pass."""


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def milliseconds(self) -> int:
        """Elapsed ms."""
        return time.monotonic_ns() // 1_000_000

    nanoseconds = staticmethod(time.monotonic_ns)
    wall_nanoseconds = staticmethod(time.time_ns)

    def sleep(self, ms: float) -> None:
        """Sleep; nothing for a time that is not positive."""
        if ms > 0:
            time.sleep(ms / 1000)


SYSTEM_CLOCK: Final = SystemClock()
