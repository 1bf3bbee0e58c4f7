"""The registry of a selector's channels, until the last frame that is read after a channel's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.errors import AuthenticationFailed, IllegalState

from .channel import Channel, ChannelState, Disconnection
from .connection import Phase
from .expiry import Closing

if TYPE_CHECKING:
    from .expiry import ChannelExpiry
    from .poller import Poller
    from .reading import ChannelReader
    from .traffic import Traffic

__all__ = ["ChannelRegistry"]


class ChannelRegistry:
    """Channels by id: open channels, and closing channels, which have ended but still have received frames.

    Args:
        poller: Waits for events of open channels.
        reader: Reads the frames that a closing channel still has.
        traffic: Counts the ends of channels.
        expiry: The time limits of channels.

    Attributes:
        open: The open channels.
        closing: The channels that have ended and still have received frames.
        immediate: The channels that were connected at once, which no event announces.
        connected: The channels that were connected since ``clear``.
        prepared: The channels that completed handshake and authentication since ``clear``.
        disconnected: The channels that have ended since ``clear``, and the way they ended.
    """

    def __init__(self, poller: Poller, reader: ChannelReader, traffic: Traffic, expiry: ChannelExpiry) -> None:
        self._poller = poller
        self._reader = reader
        self._traffic = traffic
        self._expiry = expiry
        self.open: dict[str, Channel] = {}
        self.closing: dict[str, Channel] = {}
        self.immediate: list[Channel] = []
        self.connected: list[str] = []
        self.prepared: list[str] = []
        self.disconnected: dict[str, Disconnection] = {}

    # ---- looking up --------------------------------------------------------------------------------------------------

    def find(self, channel_id: str) -> Channel:
        """A channel, open or closing.

        Raises:
            IllegalState: No channel has that id.
        """
        channel = self.open.get(channel_id) or self.closing.get(channel_id)
        if channel is None:
            raise IllegalState(f"there is no connection {channel_id}")
        return channel

    def ensure_new(self, channel_id: str) -> None:
        """Refuse an id that is in use.

        Raises:
            IllegalState: A channel has that id, or the last one with it is still being closed.
        """
        if channel_id in self.open:
            raise IllegalState(f"there is a connection {channel_id} already")
        if channel_id in self.closing:
            raise IllegalState(f"the last connection {channel_id} is still being closed")

    def all(self) -> list[Channel]:
        """Return every channel, open or closing; from any thread."""
        return [*self.open.values(), *self.closing.values()]

    def lowest_priority(self) -> Channel | None:
        """Choose a channel to close to make room: one that is closing, else the least recently used, else any."""
        if self.closing:
            return next(iter(self.closing.values()))
        oldest = self._expiry.oldest()
        if oldest is not None:
            return self.open.get(oldest)
        return next(iter(self.open.values()), None)

    # ---- taking ------------------------------------------------------------------------------------------------------

    def add(self, channel: Channel, now: int) -> None:
        """Take a new channel.

        Raises:
            OSError: The system refuses to watch its socket.
        """
        self.open[channel.id] = channel
        self._poller.update(channel)
        self._expiry.touch(channel, now)
        if channel.metrics is not None:
            channel.metrics.connections += 1

    def take_back(self, channel: Channel) -> None:
        """Remove all traces of a channel that could not be added."""
        self._poller.drop(channel)
        if self.open.get(channel.id) is channel:
            del self.open[channel.id]

    # ---- ending ------------------------------------------------------------------------------------------------------

    def clear(self, now: int) -> None:
        """Forget the recent events; closing channels go on to close."""
        self.connected.clear()
        self.prepared.clear()
        self.disconnected.clear()
        if self.closing:
            for channel_id, channel in list(self.closing.items()):
                if channel.ended is ChannelState.FAILED_SEND or not self._read_on(channel, now):
                    del self.closing[channel_id]
                    self._finish(channel, notify=True)

    def close(self, channel: Channel, mode: Closing, now: int) -> None:
        """End an open channel."""
        self._poller.drop(channel)
        if self.open.pop(channel.id, None) is not None and channel.metrics is not None:
            channel.metrics.connections -= 1
        if channel.id in self.connected:
            self.connected.remove(channel.id)
        if channel.id in self.prepared:
            self.prepared.remove(channel.id)
        if mode is Closing.GRACEFUL and self._read_on(channel, now):
            with channel.lock:
                channel.connection.enter(Phase.CLOSING)
            self.closing[channel.id] = channel
        else:
            self._finish(channel, notify=mode is not Closing.DISCARD)

    def discard(self, channel_id: str, now: int) -> Channel | None:
        """End a channel, open or closing, without a report; returns the channel, None if there is none."""
        channel = self.open.get(channel_id)
        if channel is not None:
            channel.ended = ChannelState.LOCAL_CLOSE
            self.close(channel, Closing.DISCARD, now)
            return channel
        channel = self.closing.pop(channel_id, None)
        if channel is not None:
            self._finish(channel, notify=False)
        return channel

    def _read_on(self, channel: Channel, now: int) -> bool:
        """Read one more frame of an ended connection; returns whether there was one, or one is still to be taken."""
        if channel.state is not ChannelState.READY:
            return False
        if channel.connection.explicitly_muted or channel.has_completed_receive:
            return True
        try:
            self._reader.read(channel, now)
        except (OSError, EOFError, AuthenticationFailed):
            return False
        return channel.has_completed_receive

    def _finish(self, channel: Channel, *, notify: bool) -> None:
        self._reader.buffered.pop(channel, None)
        if channel in self.immediate:
            self.immediate.remove(channel)
        self._expiry.forget(channel)
        try:
            channel.close()
        finally:
            self._traffic.closed(channel)
            if notify:
                self.disconnected[channel.id] = channel.disconnection

    def abandon(self) -> None:
        """Close a forked child's copies of the descriptors; the parent's connections go on."""
        for channel in self.all():
            channel.transport.abandon()
        self.open.clear()
        self.closing.clear()
