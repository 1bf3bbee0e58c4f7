"""A reader of frames from channels, which tracks the channels whose buffered bytes no event announces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel import Channel, ChannelState, Receive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel.clock import Clock

    from .idle import StalledFrames
    from .memory import MemoryPool
    from .traffic import Traffic

__all__ = ["ChannelReader"]


class ChannelReader:
    """Reads at most one frame per poll from each channel of a selector; on the selector's thread alone.

    Args:
        traffic: Counts the bytes and frames that were read.
        clock: The time of sessions.
        recorded: Whether frames are recorded, so that a response must not be read before its request is recorded.
        pool: The pool that gives the buffers of frames, None for the heap.
        stalled: Watches incomplete frames, None without a limit for them.

    Attributes:
        pool: The pool.
        completed: The frames that have been received since ``clear``.
        buffered: The channels with buffered bytes or frames on this side.
        out_of_memory: Whether the pool has refused memory, so that channels have muted themselves.
        progressed: Whether reading those channels again may make progress.
    """

    __slots__ = (
        "_clock", "_recorded", "_stalled", "_traffic", "buffered", "completed", "out_of_memory", "pool", "progressed",
    )  # fmt: skip

    def __init__(
        self,
        traffic: Traffic,
        clock: Clock,
        *,
        recorded: bool,
        pool: MemoryPool | None,
        stalled: StalledFrames | None,
    ) -> None:
        self._clock = clock
        self._traffic = traffic
        self._recorded = recorded
        self.pool = pool
        self._stalled = stalled
        self.out_of_memory = False
        self.completed: list[Receive] = []
        self.buffered: dict[Channel, None] = {}
        self.progressed = True  # so that the first poll looks at buffered bytes

    def clear(self) -> None:
        """Forget the received frames, so that their channels may give another each."""
        for receive in self.completed:
            receive.channel.has_completed_receive = False
        self.completed.clear()

    def read(self, channel: Channel, now: int) -> None:
        """Read once.

        Raises:
            AuthenticationFailed: One side rejected the other in a renewal.
            InvalidReceive, EOFError, OSError: No more can be read from the connection.
        """
        if channel.authenticator is not None:
            count, payload = self._read_session(channel)
        elif self._recorded:
            with channel.lock:  # or a response could be recorded before its request, which another thread has sent
                count, payload = channel.read()
                self._traffic.read(channel, count, payload)
        else:
            count, payload = channel.read()
            self._traffic.read(channel, count, payload)
        reader = channel.connection.reader
        if count:
            self.progressed = True
        if payload is not None:
            self.progressed = True  # a frame may have been read together with the one before it
            channel.has_completed_receive = True
            self.completed.append(Receive(channel, payload, self.pool))
        elif reader.refused:
            self.out_of_memory = True  # the connection muted itself: the pool refused it memory
        if count and self._stalled is not None and (reader.bytes_read or channel.watched):
            self._stalled.look(channel, now)

    def _read_session(self, channel: Channel) -> tuple[int, bytearray | None]:
        """Read from a channel whose SASL session can be renewed; the tokens of a renewal are not recorded.

        Raises:
            AuthenticationFailed: One side rejected the other in a renewal.
            ConnectionAbortedError: The peer's session has expired, and the frame is a request.
            EOFError, OSError: The connection cannot be read on.
        """
        authenticator = channel.authenticator
        assert authenticator is not None
        with channel.lock:
            count, payload = channel.read()
            if payload is not None:
                now = self._clock.nanoseconds()  # the poll may have begun long before these bytes arrived
                is_renewal = channel.renewal_takes(payload, now)
                has_expired = not is_renewal and authenticator.expired(now)
                if is_renewal or has_expired:
                    if self.pool is not None and payload:
                        self.pool.release(payload)
                    self.progressed = True
                    payload = None
                if has_expired:
                    channel.ended = ChannelState.EXPIRED
                    if channel.metrics is not None:
                        channel.metrics.expired.value += 1
                    raise ConnectionAbortedError("a request has come though the SASL session has expired")
            self._traffic.read(channel, count, payload)
        return count, payload

    def read_again(self, channel: Channel) -> bool:
        """Unmute a channel if its mute state allows; no event announces its buffered bytes."""
        if not channel.connection.maybe_unmute():
            return False
        if channel.has_buffered:
            self.buffered[channel] = None
            self.progressed = True
        return True

    def refused(self, channels: Iterable[Channel]) -> list[Channel]:
        """Once the pool has memory again, unmute and return the channels that it had refused."""
        if self.pool is not None and self.pool.out_of_memory:
            return []
        self.out_of_memory = False
        found = [each for each in channels if not each.connection.explicitly_muted and each.connection.muted]
        return [channel for channel in found if self.read_again(channel)]

    @property
    def short_of_memory(self) -> bool:
        """Whether less than a tenth of the pool is left, so that channels must be read in no fixed order."""
        return self.pool is not None and self.pool.available < self.pool.size // 10
