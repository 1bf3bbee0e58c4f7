"""Time limits of channels: idle channels, channels whose frames stop arriving, and refused channels are closed."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from channel.logs import get_logger

from .channel import ChannelState
from .delayed_close import DelayedCloses
from .idle import IdleExpiry, StalledFrames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .channel import Channel

__all__ = ["ChannelExpiry", "Closing"]

_log = get_logger(__name__)


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
        refused: The channels whose clients were refused, and have not been answered yet.
        opening: The accepted channels over which no requests may pass yet.
    """

    __slots__ = ("idle", "opening", "refused", "stalled")

    def __init__(self, max_idle_ms: int, max_stall_ms: int, failed_authentication_delay_ms: int, now_ns: int) -> None:
        self.idle = IdleExpiry(max_idle_ms, now_ns) if max_idle_ms >= 0 else None
        self.stalled = StalledFrames(max_stall_ms) if max_stall_ms >= 0 else None
        self.refused = DelayedCloses(failed_authentication_delay_ms)
        self.opening = DelayedCloses(max_stall_ms)

    def limits_any(self) -> bool:
        """Whether any channel may have to be closed at some time."""
        return self.idle is not None or bool(self.stalled) or bool(self.refused) or bool(self.opening)

    def wait_ms(self, timeout_ms: int, now_ns: int) -> int:
        """Shorten a wait so that it does not pass the next limit."""
        if self.idle is not None and self.idle.oldest() is not None:
            timeout_ms = min(timeout_ms, self.idle.remaining_ms(now_ns))
        if self.refused:
            timeout_ms = min(timeout_ms, self.refused.remaining_ms(now_ns))
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
        self.refused.forget(channel)
        self.opening.forget(channel)
        if self.idle is not None:
            self.idle.remove(channel.id)
        if self.stalled is not None:
            self.stalled.forget(channel)

    def oldest(self) -> str | None:
        """The id of the least recently used channel, None without an idle limit."""
        return self.idle.oldest() if self.idle is not None else None

    def expired(self, channels: Mapping[str, Channel], now_ns: int) -> Iterator[tuple[Channel, Closing]]:
        """Yield the open channels to be closed now, and the way to close them; refused clients have been answered."""
        for channel in self.refused.due(now_ns) if self.refused else ():
            if channel.authenticator is not None:
                with channel.lock:
                    channel.authenticator.send_refusal()
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
