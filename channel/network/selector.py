"""A selector of many connections on one thread: connects, reads, writes, mutes, expires and closes without blocking.

One ``poll`` returns at most one received frame of each connection; further frames stay in order for the next poll.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import AuthenticationFailed
from channel.logs import get_logger

from . import sockets
from .channel import Channel
from .channel_factory import ChannelFactory
from .connection import MuteState, Phase
from .expiry import ChannelExpiry, Closing
from .frames import UNLIMITED, Send
from .opening import ChannelOpener
from .poller import Poller, SystemPoller
from .reading import ChannelReader
from .registry import ChannelRegistry
from .selector_metrics import PollTimes
from .traffic import Traffic
from .transport import EVENT_READ, EVENT_WRITE
from .writing import ChannelWriter

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .memory import MemoryPool
    from .recorder import Recorder
    from .request import ClientRequest
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder
    from .transport import Address

__all__ = ["Closing", "Selector"]

_log = get_logger(__name__)
_NOT_MUTED: Final = MuteState.NOT_MUTED
_REAUTHENTICATING: Final = Phase.REAUTHENTICATING


class Selector:
    """Runs many connections on one thread; other threads may call ``wakeup`` and ``send`` alone.

    Args:
        max_receive_size: Largest payload that is received, ``UNLIMITED`` for none.
        max_idle_ms: Idle time after which a connection is closed; -1 for no limit.
        max_stall_ms: An interval in which a 64th of an incomplete frame must arrive; -1 for no limit.
        clock: The source of time.
        metrics: The metrics of all connections, None for none.
        metrics_of: Returns the metrics of a connection by its id, instead of ``metrics``.
        polls: Takes the times of polls; those of ``metrics`` if None.
        failed_authentication_delay_ms: The time after which a client that fails to authenticate by SASL is answered,
            and its connection is closed.
        pool: The pool that gives the buffers of frames, None for the heap.
        channel_builder: Puts transports on sockets.
        recorder: Records every frame, None for no recording.
        system: Waits for events; ``select.epoll`` if None.
        dial: Begins to connect.

    Attributes:
        completed_sends: The frames whose last byte has left in the last ``poll``.
        completed_receives: The frames that the last ``poll`` has received.
        connected: The connections that the last ``poll`` has connected.
        prepared: The connections that completed handshake and authentication in the last ``poll``.
        disconnected: The connections that have ended, and the way they ended.
        channels: The open connections.
        polled_ns: When the wait of the last ``poll`` ended, in ns of the clock.
        writer: Writes frames to the channels, from any thread.
    """

    def __init__(
        self,
        *,
        max_receive_size: int = UNLIMITED,
        max_idle_ms: int = -1,
        max_stall_ms: int = -1,
        failed_authentication_delay_ms: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        metrics: SelectorMetrics | None = None,
        metrics_of: Callable[[str], SelectorMetrics | None] | None = None,
        polls: PollTimes | None = None,
        pool: MemoryPool | None = None,
        channel_builder: ChannelBuilder = sockets.plaintext_channel,
        recorder: Recorder | None = None,
        system: SystemPoller | None = None,
        dial: Callable[[Address, int, int], tuple[socket.socket, bool]] = sockets.dial,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._polls = polls or (metrics.polls if metrics is not None else PollTimes(clock))
        self._factory = ChannelFactory(channel_builder, metrics_of or (lambda _: metrics), max_receive_size, pool)
        traffic = Traffic(recorder, clock)
        self._expiry = ChannelExpiry(max_idle_ms, max_stall_ms, failed_authentication_delay_ms, clock.nanoseconds())
        self._poller = Poller(system)
        self._waker = sockets.Waker()
        self._poller.watch(self._waker.fileno(), self._waker.drain)
        self.writer = ChannelWriter(traffic, clock, self._poller.changed, self._waker.wake)
        self._reader = ChannelReader(
            traffic, clock, recorded=recorder is not None, pool=pool, stalled=self._expiry.stalled
        )

        self._computed: deque[Channel] = deque()
        self._registry = ChannelRegistry(self._poller, self._reader, traffic, self._expiry)
        self._opener = ChannelOpener(
            dial, self._factory, self._registry, self._poller, self._expiry, traffic, self.writer, clock
        )

        self.channels = self._registry.open
        self.connected = self._registry.connected
        self.prepared = self._registry.prepared
        self.disconnected = self._registry.disconnected
        self.completed_sends = self.writer.completed
        self.completed_receives = self._reader.completed
        self.polled_ns = clock.nanoseconds()

    # ---- connections -------------------------------------------------------------------------------------------------

    def connect(
        self,
        channel_id: str,
        address: Address,
        send_buffer: int = -1,
        receive_buffer: int = -1,
        *,
        host: str | None = None,
        listener: str = "PLAINTEXT",
        checks_versions: bool = False,
    ) -> None:
        """Begin to connect; see ``ChannelOpener.connect``. ``poll`` reports the connection in ``connected``."""
        self._opener.connect(
            channel_id, address, send_buffer, receive_buffer,
            host=host, listener=listener, checks_versions=checks_versions,
        )  # fmt: skip
        channel = self.channels[channel_id]
        if channel.authenticator is not None:
            channel.authenticator.notify = partial(self._resume, channel)

    def _resume(self, channel: Channel) -> None:
        """Go on with an authentication whose next token has been computed, from any thread."""
        self._computed.append(channel)
        self._waker.wake()

    def register(self, channel_id: str, sock: socket.socket, listener: str = "PLAINTEXT") -> Channel:
        """Take an accepted socket; see ``ChannelOpener.register``."""
        return self._opener.register(channel_id, sock, listener)

    def listen(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Call ``on_ready`` in ``poll`` whenever this listening socket can be accepted from."""
        self._poller.watch(sock.fileno(), on_ready)

    def unlisten(self, sock: socket.socket) -> None:
        """Stop watching a listening socket; the caller closes it."""
        self._poller.unwatch(sock.fileno())

    def channel(self, channel_id: str) -> Channel | None:
        """Return an open connection, None if no open connection has this id."""
        return self.channels.get(channel_id)

    def closing_channel(self, channel_id: str) -> Channel | None:
        """Return a connection that has ended and still has received frames."""
        return self._registry.closing.get(channel_id)

    def all_channels(self) -> list[Channel]:
        """Return every connection, open or closing; from any thread."""
        return self._registry.all()

    def is_channel_ready(self, channel_id: str) -> bool:
        """Whether requests may pass over the connection."""
        channel = self.channels.get(channel_id)
        return channel is not None and channel.connection.usable

    def lowest_priority_channel(self) -> Channel | None:
        """Choose a connection to close to make room: one that is closing, else the least recently used, else any."""
        return self._registry.lowest_priority()

    def client_information(self, channel_id: str, name: str, version: str) -> None:
        """Note the client software of a connection."""
        channel = self.channels.get(channel_id)
        if channel is not None and channel.metrics is not None:
            channel.metrics.client_changed(channel, (name, version))

    def wakeup(self) -> None:
        """End the present or next ``poll`` at once. Safe from any thread, also after ``close``."""
        self._waker.wake()

    # ---- sending and muting ------------------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        """Take a frame for a connection; ``poll`` writes it.

        Raises:
            IllegalState: No such connection, or its last frame has not gone out yet. In the second case the
                connection is closed, and the next ``poll`` reports it with ``FAILED_SEND``.
        """
        self.writer.start(self._registry.find(send.destination), send)

    def write_now(self) -> None:
        """Write new frames without a ``poll``: sockets nearly always take them at once.

        Frames that have gone out are added to ``completed_sends``.
        """
        writes, self.writer.started = self.writer.started, []
        for channel in writes:
            if channel.connection.outgoing is not None and channel.connection.usable and not channel.broken:
                self._write(channel)
                if channel.interest != channel.registered:
                    self._poller.changed(channel)

    def _write(self, channel: Channel) -> None:
        if not self.writer.write(channel):
            self._close(channel, Closing.NOTIFY)

    def mute(self, channel_id: str) -> None:
        """Stop reading this connection until ``unmute``."""
        channel = self._registry.find(channel_id)
        channel.connection.mute()
        channel.connection.explicitly_muted = True
        self._reader.buffered.pop(channel, None)
        self._poller.changed(channel)

    def unmute(self, channel_id: str) -> bool:
        """Read this connection again if its mute state allows; returns whether it is read now."""
        channel = self._registry.find(channel_id)
        if not self._reader.read_again(channel):
            return False
        channel.connection.explicitly_muted = False
        self._poller.changed(channel)
        return True

    # ---- polling -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop the results of the last poll; closing connections go on to close."""
        self.completed_sends.clear()
        if self.completed_receives:
            self._reader.clear()
        self._registry.clear(self.polled_ns)
        if self.writer.broken:
            self._close_broken()

    def _close_broken(self) -> None:
        broken = self.writer.broken
        while broken:
            channel = broken.popleft()
            if not channel.closed and self.channels.get(channel.id) is channel:
                self._close(channel, Closing.NOTIFY)

    def poll(self, timeout_ms: int, *, for_sends: bool = True) -> None:
        """Do the work that is due now, or wait for an event.

        Args:
            timeout_ms: The longest wait.
            for_sends: Whether to return as soon as a frame has gone out; false saves a round if only responses matter.

        Raises:
            ValueError: A negative timeout.
            OSError: The system's wait failed.
        """
        if timeout_ms < 0:
            raise ValueError(f"a poll of {timeout_ms} ms; it must be 0 or more")
        self.clear()
        reader = self._reader
        if reader.out_of_memory:
            for refused in reader.refused(self.channels.values()):
                self._poller.changed(refused)
        if self.writer.started:
            self.write_now()
        if (
            self._registry.immediate
            or (reader.progressed and reader.buffered)
            or self.disconnected
            or self.completed_receives
            or (for_sends and self.completed_sends)
        ):
            timeout_ms = 0
        reader.progressed = False

        polls = self._polls
        before = self._clock.nanoseconds()
        limits = self._expiry.limits_any()
        if limits:
            timeout_ms = self._expiry.wait_ms(timeout_ms, before)
        events = self._poller.wait(timeout_ms)
        now = self._clock.nanoseconds()
        polls.selects.value += 1
        polls.io_ns += before - self.polled_ns
        polls.io_wait_ns += now - before
        self.polled_ns = now

        if self._registry.immediate or reader.buffered:
            self._process_unannounced(events, now)
        elif not events:
            reader.progressed = True
        if reader.pool is not None and reader.short_of_memory:
            random.shuffle(events)  # so that no connection is always the one without memory
        ready, callbacks = self._poller.channels.get, self._poller.callbacks
        for fd, mask in events:
            channel = ready(fd)
            if channel is not None:
                self._process(channel, mask, now)
            elif fd in callbacks:
                callbacks[fd]()  # the waker, or a listening socket
        while self._computed:
            self._process(self._computed.popleft(), 0, now)
        if self.writer.broken:
            self._close_broken()
        if limits or self._expiry.refused:  # a client may have been refused just now
            for channel, how in self._expiry.expired(self.channels, now):
                self._close(channel, how)

    def _process_unannounced(self, events: list[tuple[int, int]], now: int) -> None:
        """Go on with channels that no event announces: connected at once, or with buffered bytes."""
        registry = self._registry
        immediate, registry.immediate = registry.immediate, []
        buffered, self._reader.buffered = self._reader.buffered, {}
        announced = {fd for fd, _ in events}
        for channel in buffered:
            if (channel.fd not in announced or not channel.registered) and channel not in self._expiry.refused:
                self._process(channel, EVENT_READ, now)
        for channel in immediate:
            self._process(channel, 0, now)

    def _process(self, channel: Channel, mask: int, now: int) -> None:
        """Handle a channel's event or buffered bytes; a fault ends this channel alone."""
        if channel.closed:
            return
        connection = channel.connection
        if self._expiry.idle is not None:
            self._expiry.idle.touch(channel.id, now)
        try:
            if connection.usable or connection.phase is _REAUTHENTICATING or self._opener.establish(channel, now):
                if not channel.has_completed_receive and connection.mute_state is _NOT_MUTED:
                    if mask & ~EVENT_WRITE or channel.has_buffered:
                        self._reader.read(channel, now)
                    if (connection.reader.waiting or channel.transport.has_bytes_buffered) and (
                        not connection.explicitly_muted
                    ):
                        self._reader.buffered[channel] = None
                if connection.phase is _REAUTHENTICATING:
                    self._opener.establish(channel, now)
                if mask & EVENT_WRITE and connection.outgoing is not None:
                    self._write(channel)
        except AuthenticationFailed as e:
            self._opener.refuse(channel, e, now)
        except (OSError, EOFError) as e:
            _log.debug("connection %s to %s ended: %s", channel.id, channel.transport.remote, e)
            self._close(channel, Closing.GRACEFUL)
        except Exception:  # noqa: BLE001
            # A fault in one connection must not end the others; this one is closed and reported.
            _log.exception("connection %s to %s failed", channel.id, channel.transport.remote)
            self._close(channel, Closing.GRACEFUL)
        else:
            if (
                channel.registered != EVENT_READ
                or not connection.usable
                or connection.outgoing is not None
                or connection.mute_state is not _NOT_MUTED
            ) and channel.interest != channel.registered:
                self._poller.changed(channel)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def close_channel(self, channel_id: str) -> list[ClientRequest]:
        """Close a connection from this side, without a report in ``disconnected``. Harmless if there is none.

        Returns:
            Its unanswered requests, oldest first.
        """
        channel = self._registry.discard(channel_id, self.polled_ns)
        return [] if channel is None else channel.unanswered

    def close(self) -> None:
        """Close every connection and the selector; an error is raised after all have been closed."""
        failures: list[BaseException] = []
        try:
            for channel in self._registry.all():
                try:
                    self.close_channel(channel.id)
                except Exception as e:  # noqa: BLE001 - raised below, when the others are closed
                    failures.append(e)
        finally:
            self._waker.close()
            self._poller.close()
            if self._metrics is not None:
                self._metrics.close()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Close a forked child's copies of all descriptors; the parent's connections go on."""
        self._waker.abandon()
        self._poller.close()
        self._registry.abandon()

    def _close(self, channel: Channel, mode: Closing) -> None:
        self._registry.close(channel, mode, self.polled_ns)
