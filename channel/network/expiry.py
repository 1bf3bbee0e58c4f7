"""Channels that must end by time: silent ones, those whose frames stop arriving, and refused ones."""

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
    """How a connection is ended.

    GRACEFUL gives out first what has arrived, NOTIFY only reports the end, DISCARD not even that.
    """

    GRACEFUL = "graceful"
    NOTIFY = "notify"
    DISCARD = "discard"


class ChannelExpiry:
    """The time limits of one selector's channels.

    Args:
        max_idle_ms: Connections silent for longer end; -1 for never.
        max_stall_ms: A frame that has begun must go on arriving in each such interval; -1 for no limit.
        failed_authentication_delay_ms: How long after its refusal a client's connection ends.
        now_ns: The time.

    Attributes:
        idle: When channels were used last, None if they may be silent.
        stalled: The frames that are incomplete, None if they may stay so.
        refused: The channels whose clients are still to be told that they are refused.
    """

    __slots__ = ("idle", "refused", "stalled")

    def __init__(self, max_idle_ms: int, max_stall_ms: int, failed_authentication_delay_ms: int, now_ns: int) -> None:
        self.idle = IdleExpiry(max_idle_ms, now_ns) if max_idle_ms >= 0 else None
        self.stalled = StalledFrames(max_stall_ms) if max_stall_ms >= 0 else None
        self.refused = DelayedCloses(failed_authentication_delay_ms)

    def wait_ms(self, timeout_ms: int, now_ns: int) -> int:
        """How long a wait may last: as long as it wants to, but not past the next limit."""
        if self.idle is not None and self.idle.oldest() is not None:
            timeout_ms = min(timeout_ms, self.idle.remaining_ms(now_ns))
        if self.refused:
            timeout_ms = min(timeout_ms, self.refused.remaining_ms(now_ns))
        if self.stalled:
            timeout_ms = min(timeout_ms, self.stalled.remaining_ms(now_ns))
        return timeout_ms

    def touch(self, channel: Channel, now_ns: int) -> None:
        """Note that a channel is used now."""
        if self.idle is not None:
            self.idle.touch(channel.id, now_ns)

    def forget(self, channel: Channel) -> None:
        """Note that a channel has ended."""
        self.refused.forget(channel)
        if self.idle is not None:
            self.idle.remove(channel.id)
        if self.stalled is not None:
            self.stalled.forget(channel)

    def oldest(self) -> str | None:
        """The id of the channel that was used least recently, None if nobody notes it."""
        return self.idle.oldest() if self.idle is not None else None

    def expired(self, channels: Mapping[str, Channel], now_ns: int) -> Iterator[tuple[Channel, Closing]]:
        """The open channels that are to be closed now, and how; refused clients have been told so."""
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
        for channel in self.stalled.stalled(now_ns) if self.stalled else ():
            _log.warning(
                "%s announced %d bytes and has stopped sending them; closing the connection",
                channel.transport.remote, channel.connection.reader.requested,
            )  # fmt: skip
            yield channel, Closing.NOTIFY
