"""A writer of frames to channels: at once on the calling thread, or in the selector's next poll."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from channel.errors import IllegalState
from channel.logs import get_logger

from .channel import Channel, ChannelState
from .connection import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.clock import Clock

    from .frames import Send
    from .traffic import Traffic

__all__ = ["ChannelWriter"]

_log = get_logger(__name__)


class ChannelWriter:
    """Writes frames to the channels of one selector. Any thread may call ``start``, ``write_at_once`` and ``give_up``.

    Args:
        traffic: Counts the bytes and frames that have gone out.
        clock: The time, for the renewal of sessions.
        interest_changed: Called with a channel that waits for other events now.
        wakeup: Ends the selector's wait.

    Attributes:
        started: The channels with a new frame, which the next poll writes first.
        broken: The channels with a failed write, which the next poll closes.
        completed: The frames whose last byte has left in ``write``.
    """

    __slots__ = ("_clock", "_interest_changed", "_traffic", "_wakeup", "broken", "completed", "started")

    def __init__(
        self,
        traffic: Traffic,
        clock: Clock,
        interest_changed: Callable[[Channel], None],
        wakeup: Callable[[], None],
    ) -> None:
        self._traffic = traffic
        self._clock = clock
        self._interest_changed = interest_changed
        self._wakeup = wakeup
        self.started: list[Channel] = []
        self.broken: deque[Channel] = deque()
        self.completed: list[Send] = []

    def start(self, channel: Channel, send: Send) -> None:
        """Queue a frame, which the next poll writes.

        Raises:
            IllegalState: The channel is closed, or its last frame has not gone out yet. In the second case the next
                poll closes it.
        """
        with channel.lock:
            if channel.authenticator is not None:
                self._renew_if_due(channel)
            if self._take(channel, send):
                self.started.append(channel)

    def write_at_once(self, channel: Channel, send: Send) -> None:
        """Write a frame now; the selector writes the rest.

        Raises:
            IllegalState: As ``start``.
        """
        connection = channel.connection
        with channel.lock:
            if channel.authenticator is not None:
                self._renew_if_due(channel)
            if connection.usable and connection.outgoing is None and not channel.closed:
                connection.start(send)
            elif not self._take(channel, send) or not connection.usable:
                return
            try:
                count, whole = channel.write()
            except OSError as e:
                _log.debug("could not write to connection %s to %s: %s", channel.id, channel.transport.remote, e)
                self.give_up(channel)
                return
            self._traffic.wrote(channel, count, whole)
        if whole is None:
            self._interest_changed(channel)
            self._wakeup()

    def _take(self, channel: Channel, send: Send) -> bool:
        """Set a channel's next frame, under the channel's lock; returns whether it may be written now."""
        if channel.closed:
            raise IllegalState(f"there is no connection {send.destination} to send over any more")
        connection = channel.connection
        if connection.phase is Phase.CLOSING:
            channel.ended = ChannelState.FAILED_SEND
            if send.request is not None:
                connection.in_flight.add(send.request)  # the end of the connection returns the request
                send.request = None
            return False
        try:
            connection.start(send)
        except IllegalState:
            channel.ended = ChannelState.FAILED_SEND
            self.give_up(channel)
            raise
        return True

    def _renew_if_due(self, channel: Channel) -> None:
        """Begin to renew a client's session before its next request, under the channel's lock; the request waits."""
        authenticator, connection = channel.authenticator, channel.connection
        if authenticator is None or not authenticator.renews_ns:
            return
        now = self._clock.nanoseconds()
        if now >= authenticator.renews_ns and connection.phase is Phase.READY and connection.outgoing is None:
            channel.renew(now)
            self._interest_changed(channel)
            self._wakeup()

    def give_up(self, channel: Channel) -> None:
        """Let the next poll close a channel after a failed write."""
        channel.broken = True
        self.broken.append(channel)
        self._wakeup()

    def write(self, channel: Channel) -> bool:
        """Go on writing, on the selector's thread; False if the connection is broken."""
        try:
            with channel.lock:
                if not channel.connection.usable:
                    return True  # another thread has just begun to renew the session
                count, send = channel.write()
                self._traffic.wrote(channel, count, send)
        except OSError as e:
            _log.debug("could not write to connection %s to %s: %s", channel.id, channel.transport.remote, e)
            return False
        if send is not None:
            self.completed.append(send)
        return True
