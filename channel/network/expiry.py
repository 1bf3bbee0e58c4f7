"""Time limits of channels: idle channels, frames that stop arriving, and failed authentications."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.logs import get_logger

from .channel import ChannelState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .channel import Channel

__all__ = ["ChannelExpiry", "Closing", "DelayedCloses", "IdleExpiry", "StalledFrames"]

_log = get_logger(__name__)

_SHARE: Final = 64


class IdleExpiry:
    """Connections in the order of their last use; at most one expires at a time."""

    __slots__ = ("_last_used", "_max_idle_ns", "_next_check_ns")

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._next_check_ns = now_ns + self._max_idle_ns
        self._last_used: OrderedDict[str, int] = OrderedDict()

    def touch(self, channel_id: str, now_ns: int) -> None:
        """Note that a connection has just been used."""
        self._last_used[channel_id] = now_ns
        self._last_used.move_to_end(channel_id)

    def remove(self, channel_id: str) -> None:
        """Forget a connection."""
        self._last_used.pop(channel_id, None)

    def oldest(self) -> str | None:
        """The least recently used connection."""
        return next(iter(self._last_used), None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the next call of ``expired``."""
        return max(0, (self._next_check_ns - now_ns) // 1_000_000 + 1)

    def expired(self, now_ns: int) -> str | None:
        """Return the connection that has been idle for longer than the limit, if any."""
        if now_ns <= self._next_check_ns:
            return None
        if not self._last_used:
            self._next_check_ns = now_ns + self._max_idle_ns
            return None
        channel_id, last = next(iter(self._last_used.items()))
        self._next_check_ns = last + self._max_idle_ns
        return channel_id if now_ns > self._next_check_ns else None


class StalledFrames:
    """Incomplete frames, of which a 64th, or the rest, must arrive in each interval.

    Without this limit a peer could announce a frame, send nothing, and hold its share of a memory pool for ever.

    Args:
        interval_ms: The interval.
    """

    __slots__ = ("_interval_ns", "_marks", "_next_check_ns")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ns = interval_ms * 1_000_000
        self._marks: dict[Channel, tuple[int, int]] = {}  # time of the next check, and bytes due by then
        self._next_check_ns = 0

    def __len__(self) -> int:
        return len(self._marks)

    def look(self, channel: Channel, now_ns: int) -> None:
        """Note the state of a channel's frame after a read."""
        unfinished = channel.connection.reader.bytes_read
        if not unfinished:
            self.forget(channel)
        elif not channel.watched:
            channel.watched = True
            self._mark(channel, now_ns)

    def _mark(self, channel: Channel, now_ns: int) -> None:
        reader = channel.connection.reader
        due = now_ns + self._interval_ns
        if not self._marks or due < self._next_check_ns:
            self._next_check_ns = due
        self._marks[channel] = (due, reader.bytes_read + max(1, reader.requested // _SHARE))

    def forget(self, channel: Channel) -> None:
        """Stop watching a channel."""
        channel.watched = False
        self._marks.pop(channel, None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the next check; call only if frames are incomplete."""
        return max(0, (self._next_check_ns - now_ns) // 1_000_000 + 1)

    def stalled(self, now_ns: int) -> list[Channel]:
        """Return the channels whose frames have stopped arriving; muted channels, which are not read, are left out."""
        found: list[Channel] = []
        if not self._marks or now_ns < self._next_check_ns:
            return found
        marks, self._marks = self._marks, {}
        for channel, (due, wanted) in marks.items():
            reader = channel.connection.reader
            if now_ns < due:
                self._marks[channel] = (due, wanted)
            elif reader.bytes_read >= wanted or channel.connection.muted:
                self._mark(channel, now_ns)
            else:
                channel.watched = False
                found.append(channel)
        self._next_check_ns = min((due for due, _ in self._marks.values()), default=0)
        return found


class DelayedCloses:
    """Refused connections in the order of their ends: the delay slows password guessing and blocks no other connection.

    Args:
        delay_ms: How long after the refusal a connection is answered and closed.
    """

    __slots__ = ("_delay_ns", "_due_ns")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ns = delay_ms * 1_000_000
        self._due_ns: dict[Channel, int] = {}

    def __len__(self) -> int:
        return len(self._due_ns)

    def __contains__(self, channel: object) -> bool:
        return channel in self._due_ns

    def add(self, channel: Channel, now_ns: int) -> None:
        """Add a connection, to be closed when the delay is over."""
        self._due_ns[channel] = now_ns + self._delay_ns

    def forget(self, channel: Channel) -> None:
        """Note that a connection has ended for another reason."""
        self._due_ns.pop(channel, None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time until the first close; call only if there are connections."""
        return max(0, -(-(next(iter(self._due_ns.values())) - now_ns) // 1_000_000))

    def due(self, now_ns: int) -> list[Channel]:
        """Remove and return the connections whose delay is over."""
        found = []
        for channel, due_ns in self._due_ns.items():
            if due_ns > now_ns:
                break
            found.append(channel)
        for channel in found:
            del self._due_ns[channel]
        return found


class Closing(Enum):
    """The way to close a connection.

    GRACEFUL first returns the frames that have arrived, NOTIFY only reports the end, DISCARD does not report it.
    """

    GRACEFUL = "graceful"
    NOTIFY = "notify"
    DISCARD = "discard"


class ChannelExpiry:
    """The time limits of one selector's channels.

    Args:
        max_idle_ms: Idle time after which a connection is closed; -1 for no limit.
        max_stall_ms: An interval in which more of an incomplete frame must arrive, and in which an accepted connection
            must complete its handshake and authentication; -1 for no limit.
        failed_authentication_delay_ms: Time from a client's refusal to the close of its connection.
        now_ns: Returns the present time.

    Attributes:
        idle: The channels' times of last use, None without an idle limit.
        stalled: The incomplete frames, None without a limit for them.
        failed_authentications: The channels of clients that failed to authenticate, and have not been answered yet.
        opening: The accepted channels over which no requests may pass yet.
    """

    __slots__ = ("failed_authentications", "idle", "opening", "stalled")

    def __init__(self, max_idle_ms: int, max_stall_ms: int, failed_authentication_delay_ms: int, now_ns: int) -> None:
        self.idle = IdleExpiry(max_idle_ms, now_ns) if max_idle_ms >= 0 else None
        self.stalled = StalledFrames(max_stall_ms) if max_stall_ms >= 0 else None
        self.failed_authentications = DelayedCloses(failed_authentication_delay_ms)
        self.opening = DelayedCloses(max_stall_ms)

    def limits_any(self) -> bool:
        """Whether any channel may have to be closed at some time."""
        return self.idle is not None or bool(self.stalled) or bool(self.failed_authentications) or bool(self.opening)

    def wait_ms(self, timeout_ms: int, now_ns: int) -> int:
        """Shorten a wait so that it does not pass the next limit."""
        if self.idle is not None and self.idle.oldest() is not None:
            timeout_ms = min(timeout_ms, self.idle.remaining_ms(now_ns))
        if self.failed_authentications:
            timeout_ms = min(timeout_ms, self.failed_authentications.remaining_ms(now_ns))
        if self.opening:
            timeout_ms = min(timeout_ms, self.opening.remaining_ms(now_ns))
        if self.stalled:
            timeout_ms = min(timeout_ms, self.stalled.remaining_ms(now_ns))
        return timeout_ms

    def accepted(self, channel: Channel, now_ns: int) -> None:
        """Note that a channel was accepted, and has to complete its handshake and authentication."""
        if self.stalled is not None:
            self.opening.add(channel, now_ns)

    def touch(self, channel: Channel, now_ns: int) -> None:
        """Note that a channel has just been used."""
        if self.idle is not None:
            self.idle.touch(channel.id, now_ns)

    def forget(self, channel: Channel) -> None:
        """Note that a channel has ended."""
        self.failed_authentications.forget(channel)
        self.opening.forget(channel)
        if self.idle is not None:
            self.idle.remove(channel.id)
        if self.stalled is not None:
            self.stalled.forget(channel)

    def oldest(self) -> str | None:
        """The id of the least recently used channel, None without an idle limit."""
        return self.idle.oldest() if self.idle is not None else None

    def expired(self, channels: Mapping[str, Channel], now_ns: int) -> Iterator[tuple[Channel, Closing]]:
        """Yield the open channels to be closed now, and the way to close them; answers failed authentications first."""
        for channel in self.failed_authentications.due(now_ns) if self.failed_authentications else ():
            if channel.authenticator is not None:
                with channel.lock:
                    channel.authenticator.send_failure()
            yield channel, Closing.NOTIFY
        channel_id = self.idle.expired(now_ns) if self.idle is not None else None
        if channel_id is not None and channel_id in channels:
            _log.debug("connection %s has been silent too long", channel_id)
            channels[channel_id].ended = ChannelState.EXPIRED
            yield channels[channel_id], Closing.GRACEFUL
        for channel in self.opening.due(now_ns) if self.opening else ():
            _log.info("%s has not completed its handshake in time; closing the connection", channel.transport.remote)
            yield channel, Closing.NOTIFY
        for channel in self.stalled.stalled(now_ns) if self.stalled else ():
            _log.warning(
                "%s announced %d bytes and has stopped sending them; closing the connection",
                channel.transport.remote, channel.connection.reader.requested,
            )  # fmt: skip
            yield channel, Closing.NOTIFY
