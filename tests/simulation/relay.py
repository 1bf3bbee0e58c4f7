"""The process of a tap, over which clients send their requests to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.tap import Tap, TapMapping

from .scheduler import Process

if TYPE_CHECKING:
    from .cluster import Broker
    from .scheduler import World

__all__ = ["TapProcess"]

ADDRESS = "10.0.6.1"
CLOSE_S = 5.0


class _Recording:
    """Counts connections in place of a file; a ``Recorder``."""

    def __init__(self) -> None:
        self.open = 0

    def opened(self, *_: Any) -> None:
        """Note a connection."""
        self.open += 1

    def record(self, *_: Any) -> None:
        """Let bytes pass."""

    def closed(self, *_: Any) -> None:
        """Note the end of a connection."""
        self.open -= 1

    def flush(self) -> None:
        """Nothing waits."""


class TapProcess:
    """A tap with a listening port for each broker.

    Args:
        world: The scheduler.
        brokers: The brokers, whose ports it has too.
    """

    def __init__(self, world: World, brokers: list[Broker]) -> None:
        self._world = world
        self._brokers = brokers
        self._recording = _Recording()
        self._tap: Tap | None = None
        self.process = Process("tap", ADDRESS)
        self.address = ADDRESS

    def start(self) -> None:
        """Begin to relay, and wait until it does."""
        self._world.spawn("main", self._start, self.process)
        while self._tap is None:
            self._world.sleep(0.01)

    def _start(self) -> None:
        ports = [(broker.port, broker.address) for broker in self._brokers]
        tap = Tap([TapMapping((ADDRESS, port), (address, port)) for port, address in ports], self._recording)
        tap.start()
        self._tap = tap

    def close(self) -> None:
        """End the tap: it relayed, met no error, and nothing of it is left."""
        self._world.spawn("closing", self._close, self.process)
        end = self._world.elapsed_s() + 2 * CLOSE_S
        while self._tap is not None and not self._world.problems:
            self._world.sleep(0.1)
            if self._world.elapsed_s() > end:
                self._world.problem("the close of the tap does not return")

    def _close(self) -> None:
        world, tap = self._world, self._tap
        assert tap is not None
        if not tap.close(CLOSE_S):
            world.problem(f"the tap has not ended within {CLOSE_S:g} s")
        if tap.error or tap.recording_error:
            world.problem(f"the tap met {tap.error or tap.recording_error!r}")
        if not tap.connections:
            world.problem("no connection has passed the tap")
        if self._recording.open:
            world.problem(f"the recording misses the ends of {self._recording.open} connections")
        if self.process.sockets:
            world.problem(f"the tap is closed, and {len(self.process.sockets)} sockets are open")
        self._tap = None
