"""Many connections, one thread: connects, sends, receives, mutes, expires and closes without ever blocking in between.

One ``poll`` gives at most one received frame for each connection; what else has arrived stays in order for the next.
"""

from __future__ import annotations

import random
from typing import Any

from channel.errors import AuthenticationFailed
from channel.logs import get_logger

from .channel import Channel, ChannelState, Disconnection
from .connections import Closing, Connections
from .transport import EVENT_READ, EVENT_WRITE

__all__ = ["Selector"]

_log = get_logger(__name__)


class Selector(Connections):
    """Many connections on one thread. Everything but ``wakeup`` is for that thread alone.

    Arguments and attributes are those of ``Connections``.
    """

    def clear(self) -> None:
        """Drop the results of the last poll; connections that were closing get on with it."""
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        if self.completed_receives:
            for receive in self.completed_receives:
                channel = self.channels.get(receive.source) or self._closing.get(receive.source)
                if channel is not None:
                    channel.has_completed_receive = False
            self.completed_receives.clear()
        for channel_id, channel in list(self._closing.items()):
            failed = channel_id in self._failed_sends
            self._failed_sends.pop(channel_id, None)
            if failed or not self._read_closing(channel):
                del self._closing[channel_id]
                self._finish_close(channel, notify=True)
        for channel_id in self._failed_sends:
            self.disconnected[channel_id] = Disconnection(ChannelState.FAILED_SEND)
        self._failed_sends.clear()

    def poll(self, timeout_ms: int, *, for_sends: bool = True) -> None:
        """Do what can be done now, or else wait for something to do.

        Args:
            timeout_ms: How long to wait at most.
            for_sends: Return as soon as a frame has gone out. A caller that only waits for answers saves a round.

        Raises:
            ValueError: A negative timeout.
        """
        if timeout_ms < 0:
            raise ValueError(f"a poll of {timeout_ms} ms; it must be 0 or more")
        self.clear()
        if self._immediate or (self._progressed and self._buffered):
            timeout_ms = 0
        if self._out_of_memory and (self._pool is None or not self._pool.out_of_memory):
            self._out_of_memory = False
            for channel in self.channels.values():
                if channel.muted and not channel.explicitly_muted and channel.maybe_unmute():
                    self._interests.changed(channel)
        began = self._clock.nanoseconds()
        if self._writes:
            self.write_now()
        if self.disconnected or self.completed_receives or (for_sends and self.completed_sends):
            timeout_ms = 0
        self._progressed = False

        waited = self._clock.nanoseconds()
        if self._idle is not None and self.channels:
            timeout_ms = min(timeout_ms, self._idle.remaining_ms(waited))
        events = self._interests.select(timeout_ms)
        now = self._clock.nanoseconds()

        if events or self._immediate or self._buffered:
            self._process(events, now)
        else:
            self._progressed = True
        if self._idle is not None:
            self._close_oldest(now)
        if self._traffic is not None:
            self._traffic.polled(now - waited, waited - began + self._clock.nanoseconds() - now)

    def _process(self, events: list[tuple[Any, int]], now: int) -> None:
        immediate: list[Channel] = []
        buffered: list[Channel] = []
        if self._immediate:
            immediate, self._immediate = self._immediate, []
        if self._buffered:
            ready = {data for data, _ in events}
            buffered = [channel for channel in self._buffered if channel not in ready]
            self._buffered.clear()
        if self._pool is not None and self._pool.available < self._pool.size // 10:
            random.shuffle(events)  # let no connection always be the one that gets no memory
        for channel in buffered:
            self._process_channel(channel, EVENT_READ, now)
        for data, mask in events:
            if data.__class__ is Channel:
                self._process_channel(data, mask, now)
            else:
                data()  # the waker, or a listening socket
        for channel in immediate:
            self._process_channel(channel, 0, now)

    def _process_channel(self, channel: Channel, mask: int, now: int) -> None:
        if channel.closed or self.channels.get(channel.id) is not channel:
            return
        if self._idle is not None:
            self._idle.touch(channel.id, now)
        try:
            if not channel.connected and not self._finish_connect(channel):
                return
            if not channel.ready and not self._prepare(channel):
                return
            if (
                (mask & EVENT_READ or channel.transport.has_bytes_buffered)
                and not channel.has_completed_receive
                and not channel.muted
            ):
                self._read(channel)
            if channel.transport.has_bytes_buffered and not channel.explicitly_muted:
                self._buffered[channel] = None
            if mask & EVENT_WRITE and channel.send is not None:
                self._write(channel)
        except AuthenticationFailed as e:
            _log.warning("connection %s to %s: %s", channel.id, channel.transport.remote, e)
            if self._traffic is not None:
                self._traffic.not_authenticated()
            self._close(channel, Closing.GRACEFUL)
        except (OSError, EOFError) as e:
            _log.debug("connection %s to %s ended: %s", channel.id, channel.transport.remote, e)
            self._close(channel, Closing.GRACEFUL)
        except Exception:  # noqa: BLE001
            # A fault in one connection must not end the others; this one is closed and reported.
            _log.exception("connection %s to %s failed", channel.id, channel.transport.remote)
            self._close(channel, Closing.GRACEFUL)
        self._interests.changed(channel)

    def _finish_connect(self, channel: Channel) -> bool:
        if not channel.finish_connect():
            return False
        self.connected.append(channel.id)
        if self._traffic is not None:
            self._traffic.opened(channel, accepted=False)
        return True

    def _prepare(self, channel: Channel) -> bool:
        if not channel.prepare():
            return False
        if self._traffic is not None:
            self._traffic.authenticated()
        if channel.send is not None:
            self._writes.append(channel)
        return True

    def _write(self, channel: Channel) -> None:
        try:
            count = channel.write()
        except OSError as e:
            _log.debug("could not write to connection %s to %s: %s", channel.id, channel.transport.remote, e)
            self._close(channel, Closing.NOTIFY)
            return
        if count and self._traffic is not None:
            self._traffic.wrote(channel, count)
        send = channel.maybe_complete_send()
        if send is None:
            channel.interest |= EVENT_WRITE
            return
        self.completed_sends.append(send)
        if self._traffic is not None:
            self._traffic.sent(channel, send)

    def write_now(self) -> None:
        """Write new frames at once, which ``poll`` does too: there is nearly always room, and no event to wait for.

        What has gone out is added to ``completed_sends``.
        """
        writes, self._writes = self._writes, []
        for channel in writes:
            if channel.send is None or not channel.connected or not channel.ready or channel.closed:
                continue
            self._write(channel)
            self._interests.changed(channel)

    def _close_oldest(self, now: int) -> None:
        assert self._idle is not None
        channel_id = self._idle.expired(now)
        channel = self.channels.get(channel_id) if channel_id is not None else None
        if channel is not None:
            _log.debug("connection %s has been silent too long", channel.id)
            channel.state = ChannelState.EXPIRED
            self._close(channel, Closing.GRACEFUL)
