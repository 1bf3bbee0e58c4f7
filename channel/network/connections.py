"""The connections of a selector: how they are made, muted, read from and ended."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import IllegalState
from channel.logs import get_logger

from . import sockets
from .channel import Channel, ChannelState, Disconnection
from .frames import UNLIMITED, Receive, Send
from .idle import IdleExpiry
from .interests import Interests
from .traffic import Traffic
from .transport import EVENT_READ, EVENT_WRITE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .memory import MemoryPool
    from .recorder import Recorder
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder
    from .transport import Address

__all__ = ["Closing", "Connections"]

_log = get_logger(__name__)


class Closing(Enum):
    """How a connection is ended.

    GRACEFUL gives out first what has arrived, NOTIFY only reports the end, DISCARD not even that.
    """

    GRACEFUL = "graceful"
    NOTIFY = "notify"
    DISCARD = "discard"


class Connections:
    """What a ``Selector`` holds, and how it comes and goes. Not for more than one thread, but for ``wakeup``.

    Args:
        max_receive_size: Largest payload that is received, ``UNLIMITED`` for none.
        max_idle_ms: Connections silent for longer are closed; -1 for never.
        clock: Where time comes from.
        metrics: What to count, None for nothing.
        pool: Who gives the buffers of frames, None for the heap.
        channel_builder: Makes channels of sockets.
        recorder: Sees every frame that has passed, None for nobody.

    Attributes:
        completed_sends, completed_receives, connected, disconnected: What the last ``poll`` brought.
        channels: The open connections.
    """

    def __init__(
        self,
        *,
        max_receive_size: int = UNLIMITED,
        max_idle_ms: int = -1,
        clock: Clock = SYSTEM_CLOCK,
        metrics: SelectorMetrics | None = None,
        pool: MemoryPool | None = None,
        channel_builder: ChannelBuilder = sockets.plaintext_channel,
        recorder: Recorder | None = None,
    ) -> None:
        self._max_receive_size = max_receive_size
        self._clock = clock
        self._metrics = metrics
        self._pool = pool
        self._build = channel_builder
        self._traffic = None if metrics is None and recorder is None else Traffic(metrics, recorder, clock)
        self._idle = IdleExpiry(max_idle_ms, clock.nanoseconds()) if max_idle_ms >= 0 else None

        self.channels: dict[str, Channel] = {}
        self.completed_sends: list[Send] = []
        self.completed_receives: list[Receive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnection] = {}

        self._closing: dict[str, Channel] = {}
        self._immediate: list[Channel] = []
        self._buffered: dict[Channel, None] = {}
        self._writes: list[Channel] = []
        self._failed_sends: dict[str, None] = {}
        self._out_of_memory = False
        self._progressed = True  # so that the first poll looks at buffered bytes

        self._interests = Interests()
        self._waker = sockets.Waker()
        self._interests.register(self._waker, EVENT_READ, self._waker.drain)
        if metrics is not None:
            metrics.count_connections(lambda: len(self.channels))

    # ---- connections -------------------------------------------------------------------------------------------------

    def connect(self, channel_id: str, address: Address, send_buffer: int = -1, receive_buffer: int = -1) -> None:
        """Begin to connect. ``poll`` tells when the connection stands.

        Args:
            channel_id: What to call it.
            address: An IP address as text, and a port.
            send_buffer, receive_buffer: Sizes of the socket's buffers in bytes, -1 for the system's.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The address is none, or the system refuses at once.
        """
        self._ensure_new(channel_id)
        sock, target = sockets.new_socket(address)
        channel = None
        try:
            sockets.configure(sock, send_buffer, receive_buffer)
            at_once = sockets.begin_connect(sock, target)
            channel = self._build(channel_id, sock, self._max_receive_size, self._pool, accepted=False)
            channel.interest = 0 if at_once else EVENT_WRITE
            self._register(channel)
            if at_once:
                self._immediate.append(channel)  # no event will tell
        except BaseException:
            if channel is not None and self.channels.get(channel_id) is channel:
                del self.channels[channel_id]
                self._interests.drop(channel)
            sock.close()
            raise

    def register(self, channel_id: str, sock: socket.socket) -> Channel:
        """Take an accepted socket; it is closed if it cannot be taken.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: It is gone already.
        """
        self._ensure_new(channel_id)
        try:
            sockets.configure(sock)
            channel = self._build(channel_id, sock, self._max_receive_size, self._pool, accepted=True)
            channel.finish_connect()
            self._register(channel)
        except BaseException:
            self.channels.pop(channel_id, None)
            sock.close()
            raise
        if self._traffic is not None:
            self._traffic.opened(channel, accepted=True)
        return channel

    def listen(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Call ``on_ready`` in ``poll`` whenever this listening socket can be accepted from."""
        self._interests.register(sock, EVENT_READ, on_ready)

    def unlisten(self, sock: socket.socket) -> None:
        """Watch a listening socket no more; closing it is the caller's."""
        self._interests.unregister(sock)

    def _ensure_new(self, channel_id: str) -> None:
        if channel_id in self.channels:
            raise IllegalState(f"there is a connection {channel_id} already")
        if channel_id in self._closing:
            raise IllegalState(f"the last connection {channel_id} is still being closed")

    def _register(self, channel: Channel) -> None:
        self.channels[channel.id] = channel
        self._interests.changed(channel)
        self._interests.apply()
        if self._idle is not None:
            self._idle.touch(channel.id, self._clock.nanoseconds())

    def channel(self, channel_id: str) -> Channel | None:
        """An open connection, None if there is none of that name."""
        return self.channels.get(channel_id)

    def closing_channel(self, channel_id: str) -> Channel | None:
        """A connection that has ended but still has frames to give."""
        return self._closing.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        """Whether requests may pass over it."""
        channel = self.channels.get(channel_id)
        return channel is not None and channel.ready

    def lowest_priority_channel(self) -> Channel | None:
        """Which to close to make room: one that is closing, else the one used least recently, else any."""
        if self._closing:
            return next(iter(self._closing.values()))
        oldest = self._idle.oldest() if self._idle is not None else None
        if oldest is not None:
            return self.channels.get(oldest)
        return next(iter(self.channels.values()), None)

    def client_information(self, channel_id: str, name: str, version: str) -> None:
        """Note which client software a connection belongs to."""
        channel = self.channels.get(channel_id)
        if channel is not None and self._metrics is not None:
            self._metrics.client_changed(channel, (name, version))

    # ---- sending and muting ------------------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        """Take a frame for a connection; ``poll`` writes it.

        Raises:
            IllegalState: No such connection, or its last frame has not gone out yet. In the second case the
                connection is closed, and the next ``poll`` reports it with ``FAILED_SEND``.
        """
        channel = self.channels.get(send.destination)
        if channel is None:
            if send.destination in self._closing:
                self._failed_sends[send.destination] = None
                return
            raise IllegalState(f"there is no connection {send.destination} to send over")
        try:
            channel.set_send(send)
        except IllegalState:
            channel.state = ChannelState.FAILED_SEND
            self._failed_sends[channel.id] = None
            self._close(channel, Closing.DISCARD)
            raise
        self._writes.append(channel)

    def mute(self, channel_id: str) -> None:
        """Read this connection no more until ``unmute``."""
        channel = self._open_or_closing(channel_id)
        channel.mute()
        channel.explicitly_muted = True
        self._buffered.pop(channel, None)
        self._interests.changed(channel)

    def unmute(self, channel_id: str) -> bool:
        """Read this connection again if its mute state allows; tells whether it is read now."""
        channel = self._open_or_closing(channel_id)
        if not channel.maybe_unmute():
            return False
        channel.explicitly_muted = False
        if channel.transport.has_bytes_buffered:
            self._buffered[channel] = None
            self._progressed = True
        self._interests.changed(channel)
        return True

    def _open_or_closing(self, channel_id: str) -> Channel:
        channel = self.channels.get(channel_id) or self._closing.get(channel_id)
        if channel is None:
            raise IllegalState(f"there is no connection {channel_id}")
        return channel

    def wakeup(self) -> None:
        """End the present or next ``poll`` at once. Safe from any thread, also after ``close``."""
        self._waker.wake()

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _read(self, channel: Channel) -> None:
        count = channel.read()
        if count:
            self._progressed = True
            if self._traffic is not None:
                self._traffic.read(channel, count)
        if channel.muted:
            self._out_of_memory = True  # it muted itself: the pool had nothing for it
        receive = channel.maybe_complete_receive()
        if receive is not None:
            channel.has_completed_receive = True
            self.completed_receives.append(receive)
            if self._traffic is not None:
                self._traffic.received(channel, receive)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def close_channel(self, channel_id: str) -> None:
        """Close a connection from this side: it is not reported as disconnected. Harmless if there is none."""
        channel = self.channels.get(channel_id)
        if channel is not None:
            channel.state = ChannelState.LOCAL_CLOSE
            self._close(channel, Closing.DISCARD)
            return
        channel = self._closing.pop(channel_id, None)
        if channel is not None:
            self._finish_close(channel, notify=False)

    def close(self) -> None:
        """Close every connection and the selector; what fails is raised after all has been closed."""
        failures: list[BaseException] = []
        try:
            for channel_id in [*self.channels, *self._closing]:
                try:
                    self.close_channel(channel_id)
                except Exception as e:  # noqa: BLE001 - raised below, when the others are closed
                    failures.append(e)
        finally:
            self._waker.close()
            self._interests.close()
            if self._metrics is not None:
                self._metrics.close()
        if failures:
            raise failures[0]

    def _close(self, channel: Channel, mode: Closing) -> None:
        self._interests.drop(channel)
        self.channels.pop(channel.id, None)
        if channel.id in self.connected:
            self.connected.remove(channel.id)
        if mode is Closing.GRACEFUL and self._read_closing(channel):
            self._closing[channel.id] = channel
        else:
            self._finish_close(channel, notify=mode is not Closing.DISCARD)

    def _read_closing(self, channel: Channel) -> bool:
        """Read one more frame of a connection that has ended; tells whether there was one, or is one still unseen."""
        if channel.state is not ChannelState.READY:
            return False
        if channel.explicitly_muted or channel.has_completed_receive:
            return True
        try:
            self._read(channel)
        except (OSError, EOFError):
            return False
        return channel.has_completed_receive

    def _finish_close(self, channel: Channel, *, notify: bool) -> None:
        self._buffered.pop(channel, None)
        if channel in self._immediate:
            self._immediate.remove(channel)
        if self._idle is not None:
            self._idle.remove(channel.id)
        try:
            channel.close()
        finally:
            if self._traffic is not None:
                self._traffic.closed(channel)
            if notify:
                ended = Disconnection(channel.state, channel.transport.remote, channel.state_error)
                self.disconnected[channel.id] = ended
