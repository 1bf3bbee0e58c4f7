"""A selector of many connections on one thread: connects, reads, writes, mutes, expires and closes without blocking.

One ``poll`` returns at most one received frame of each connection; further frames stay in order for the next poll.
"""

from __future__ import annotations

import logging
import math
import random
import select
import struct
from collections import OrderedDict, deque
from enum import Enum
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import AuthenticationFailed, IllegalState
from channel.locks import guards_calls
from channel.logs import PeerLines, get_logger
from channel.threads import close_all

from . import sockets
from .channel import Channel, ChannelState, Disconnection, KafkaConnection, Phase, Receive
from .frames import UNLIMITED, Send, Window
from .selector_metrics import PollTimes
from .sockets import Peer
from .transport import EVENT_READ, EVENT_WRITE, socket_address

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .frames import MemoryPool
    from .recorder import Direction, GuardedRecorder, Recorder
    from .request import ClientRequest
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder
    from .transport import Address, Bytes

_log = get_logger(__name__)

_SHARE: Final = 64
"""The share of an incomplete frame that must arrive in each interval is one of so many."""


class Deadlines:
    """Channels in the order in which they are due: each the same time after it was added, or added again.

    Args:
        delay_ms: The time from ``add`` to the channel's end; -1 for none, so that no channel is taken.
    """

    __slots__ = ("_delay_ns", "_due_ns", "_next_ns")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ns = delay_ms * 1_000_000
        self._next_ns = 0  # no channel is due before
        self._due_ns: OrderedDict[Channel, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._due_ns)

    def __contains__(self, channel: object) -> bool:
        return channel in self._due_ns

    def add(self, channel: Channel, now_ns: int) -> None:
        """Take a channel, or give one that was taken the whole time again."""
        if self._delay_ns >= 0:
            due_ns = now_ns + self._delay_ns
            if not self._due_ns:
                self._next_ns = due_ns
            self._due_ns[channel] = due_ns
            self._due_ns.move_to_end(channel)

    def forget(self, channel: Channel) -> None:
        """Drop a channel, if it was taken."""
        self._due_ns.pop(channel, None)

    def first(self) -> Channel | None:
        """The channel that is due first."""
        return next(iter(self._due_ns), None)

    def remaining_ms(self, now_ns: int) -> int:
        """Return the time before which no channel is due; call only if there are channels."""
        return max(0, -(-(self._next_ns - now_ns) // 1_000_000))

    def due(self, now_ns: int, most: float = math.inf) -> list[Channel]:
        """Drop and return the channels that are due, or the first of them."""
        found: list[Channel] = []
        while self._due_ns and len(found) < most:
            channel, due_ns = next(iter(self._due_ns.items()))
            if due_ns > now_ns:
                self._next_ns = due_ns
                break
            del self._due_ns[channel]
            found.append(channel)
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

    Without a limit for incomplete frames a peer could announce a frame, send nothing, and hold its share of a memory
    pool for ever.

    Args:
        max_idle_ms: Idle time after which a connection is closed; -1 for no limit.
        max_stall_ms: An interval in which a 64th of an incomplete frame, or its rest, must arrive, and in which an
            accepted connection must complete its handshake and authentication; -1 for no limit.
        failed_authentication_delay_ms: Time from a client's refusal to the answer and the close of its connection: it
            slows password guessing and blocks no other connection.

    Attributes:
        idle: The channels since their last use.
        stalled: The channels with incomplete frames.
        failed_authentications: The channels of clients that failed to authenticate, and have not been answered yet.
        opening: The accepted channels over which no requests may pass yet.
    """

    __slots__ = ("failed_authentications", "idle", "opening", "stalled")

    def __init__(self, max_idle_ms: int, max_stall_ms: int, failed_authentication_delay_ms: int) -> None:
        self.idle = Deadlines(max_idle_ms)
        self.stalled = Deadlines(max_stall_ms)
        self.failed_authentications = Deadlines(failed_authentication_delay_ms)
        self.opening = Deadlines(max_stall_ms)

    def wait_ms(self, timeout_ms: int, now_ns: int) -> int:
        """Shorten a wait so that it does not pass the next limit."""
        for limit in (self.idle, self.stalled, self.failed_authentications, self.opening):
            if limit._due_ns:
                timeout_ms = min(timeout_ms, limit.remaining_ms(now_ns))
        return timeout_ms

    def look(self, channel: Channel, now_ns: int) -> None:
        """Note the state of a channel's frame after a read."""
        if not channel.connection.reader.bytes_read:
            channel.awaited = 0
            self.stalled.forget(channel)
        elif not channel.awaited:
            self._await_more(channel, now_ns)

    def _await_more(self, channel: Channel, now_ns: int) -> None:
        reader = channel.connection.reader
        channel.awaited = reader.bytes_read + max(1, reader.requested // _SHARE)
        self.stalled.add(channel, now_ns)

    def forget(self, channel: Channel) -> None:
        """Note that a channel has ended."""
        for limit in (self.idle, self.stalled, self.failed_authentications, self.opening):
            limit.forget(channel)

    def expired(self, channels: Mapping[str, Channel], now_ns: int) -> Iterator[tuple[Channel, Closing]]:
        """Yield the open channels to be closed now, and the way to close them; answers failed authentications first.

        Of idle channels one expires at a time. Muted channels, which are not read, do not stall.
        """
        for channel in self.failed_authentications.due(now_ns):
            if channel.authenticator is not None:
                with channel.lock:
                    channel.refuse()
            yield channel, Closing.NOTIFY
        for channel in self.idle.due(now_ns, 1):
            if channel.id in channels:
                _log.debug("connection %s has been silent too long", channel.id)
                channel.ended = ChannelState.EXPIRED
                yield channel, Closing.GRACEFUL
        for channel in self.opening.due(now_ns):
            _log.info("%s has not completed its handshake in time; closing the connection", channel.transport.remote)
            yield channel, Closing.NOTIFY
        for channel in self.stalled.due(now_ns):
            reader = channel.connection.reader
            if reader.bytes_read >= channel.awaited or channel.connection.muted:
                self._await_more(channel, now_ns)
                continue
            _log.warning(
                "%s announced %d bytes and has stopped sending them; closing the connection",
                channel.transport.remote, reader.requested,
            )  # fmt: skip
            yield channel, Closing.NOTIFY


_LONGEST: Final = 2**31 - 1  # longest wait of the system in ms; a longer one has no time limit


class Poller:
    """Waits for events of channels, and of other descriptors with a callback each.

    ``changed`` may be called from any thread, everything else by the selector's thread alone.

    Args:
        system: Waits; ``select.epoll`` if None.

    Attributes:
        channels: The registered channels, by descriptor.
        callbacks: The callbacks of other descriptors.
    """

    __slots__ = ("_changed", "_system", "callbacks", "changed", "channels")

    def __init__(self, system: select.epoll | None = None) -> None:
        self._system: Any = select.epoll() if system is None else system
        self._changed: deque[Channel] = deque()
        self.changed = self._changed.append
        self.channels: dict[int, Channel] = {}
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever the descriptor is readable."""
        self._system.register(fd, select.EPOLLIN)
        self.callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop watching the descriptor."""
        del self.callbacks[fd]
        self._system.unregister(fd)

    def apply(self) -> None:
        """Register the changed interests of channels with the system. Raises ``OSError`` if it refuses a descriptor."""
        while self._changed:
            self.update(self._changed.popleft())

    def update(self, channel: Channel) -> None:
        """Register a channel's present interest with the system."""
        wanted, registered = channel.interest, channel.registered
        if wanted == registered or channel.closed:
            return
        if registered:
            if wanted:
                self._system.modify(channel.fd, wanted)
            else:
                del self.channels[channel.fd]
                self._system.unregister(channel.fd)
        else:
            channel.fd = channel.transport.fileno()
            self._system.register(channel.fd, wanted)
            self.channels[channel.fd] = channel
        channel.registered = wanted

    def drop(self, channel: Channel) -> None:
        """Stop waiting for a channel whose descriptor is still open."""
        if channel.registered:
            channel.registered = 0
            del self.channels[channel.fd]
            self._system.unregister(channel.fd)

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait for events; returns the ready descriptors with their events."""
        if self._changed:
            self.apply()
        ready: list[tuple[int, int]] = self._system.poll(timeout_ms / 1000 if timeout_ms <= _LONGEST else None)
        return ready

    def close(self) -> None:
        """Close the system's poller."""
        self._system.close()


_length = struct.Struct(">i")


class Traffic:
    """Reports bytes and frames to the metrics of their channel and to the recorder.

    Bytes are counted as they move, frames when they are whole.

    Args:
        recorder: Records every frame, None for no recording.
        clock: The source of the time of day.

    Attributes:
        recorder: The recorder, whose faults end no connection.
        thread: The thread of the selector's last poll.
    """

    __slots__ = ("_clock", "recorder", "thread")

    def __init__(self, recorder: Recorder | None, clock: Clock) -> None:
        self.recorder: GuardedRecorder | None = None
        self.thread = 0
        self._clock = clock
        if recorder is not None:
            from .recorder import GuardedRecorder  # with a checksum's library, which few selectors need

            self.recorder = GuardedRecorder(recorder)

    def opened(self, channel: Channel, *, accepted: bool) -> None:
        """Count a connection as established."""
        metrics, ends = channel.metrics, channel.transport
        if metrics is not None:
            metrics.created.value += 1
            if accepted:
                metrics.client_changed(channel, ("unknown", "unknown"))
        if self.recorder is not None:
            self.recorder.opened(ends.local, ends.remote, self._clock.wall_nanoseconds(), initiator=not accepted)

    def read(self, channel: Channel, count: int, payload: bytearray | None) -> None:
        """Count received bytes, and the frame that they complete."""
        metrics = channel.metrics
        if metrics is not None:
            if count:
                metrics.reads += 1
                metrics.incoming.value += count
            if payload is not None:
                metrics.responses.value += 1
        if payload is not None and self.recorder is not None:
            self._record(channel, "received", (_length.pack(len(payload)), payload))

    def wrote(self, channel: Channel, count: int, send: Send | None) -> None:
        """Count sent bytes, and the frame that they complete."""
        metrics = channel.metrics
        if metrics is not None:
            if count:
                metrics.writes += 1
                metrics.outgoing.value += count
            if send is not None:
                metrics.requests.value += 1
                if send.size > metrics.request_size_max:
                    metrics.request_size_max = send.size
        if send is not None and self.recorder is not None:
            self._record(channel, "sent", send.buffers)

    def closed(self, channel: Channel) -> None:
        """Count a connection as closed."""
        metrics, ends = channel.metrics, channel.transport
        if metrics is not None:
            metrics.closed.value += 1
            metrics.client_changed(channel, None)
            metrics.cipher_changed(channel, None)
        if self.recorder is not None and channel.connected:
            self.recorder.closed(ends.local, ends.remote, self._clock.wall_nanoseconds())

    def _record(self, channel: Channel, direction: Direction, buffers: Sequence[Bytes]) -> None:
        assert self.recorder is not None
        ends = channel.transport
        self.recorder.record(direction, ends.local, ends.remote, self._clock.wall_nanoseconds(), buffers, True)

    def flush(self) -> None:
        """Let the recorder write the frames of this round: before the selector waits, or from another thread."""
        if self.recorder is not None:
            self.recorder.flush()


guards_calls(Traffic, "lock", "_record", "wrote")


class ChannelReader:
    """Reads at most one frame per poll from each channel of a selector; on the selector's thread alone.

    Args:
        traffic: Counts the bytes and frames that were read.
        clock: The time of sessions.
        recorded: Whether frames are recorded, so that a response must not be read before its request is recorded.
        pool: The pool that gives the buffers of frames, None for the heap.
        expiry: Watches incomplete frames.

    Attributes:
        completed: The frames that have been received since ``clear``.
        buffered: The channels with buffered bytes or frames on this side.
        out_of_memory: Whether the pool had no memory, so that channels have muted themselves.
        progressed: Whether reading those channels again may make progress.
    """

    __slots__ = (
        "_clock", "_expiry", "_recorded", "_traffic", "buffered", "completed", "out_of_memory", "pool", "progressed",
    )  # fmt: skip

    def __init__(
        self,
        traffic: Traffic,
        clock: Clock,
        *,
        recorded: bool,
        pool: MemoryPool | None,
        expiry: ChannelExpiry,
    ) -> None:
        self._clock = clock
        self._traffic = traffic
        self._recorded = recorded
        self.pool = pool
        self._expiry = expiry
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
        elif reader.lacks_memory:
            self.out_of_memory = True  # the connection muted itself: the pool had no memory
        if count and (reader.bytes_read or channel.awaited):
            self._expiry.look(channel, now)

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

    def unmute(self, channel: Channel) -> None:
        """Read a channel again; no event announces its buffered bytes."""
        channel.connection.muted = False
        if channel.has_buffered:
            self.buffered[channel] = None
            self.progressed = True

    def unmute_lacking_memory(self, channels: Iterable[Channel]) -> list[Channel]:
        """Once the pool has memory again, unmute and return the channels that lacked it."""
        if self.pool is not None and self.pool.out_of_memory:
            return []
        self.out_of_memory = False
        found = [each for each in channels if not each.connection.explicitly_muted and each.connection.muted]
        for channel in found:
            self.unmute(channel)
        return found

    @property
    def short_of_memory(self) -> bool:
        """Whether less than a tenth of the pool is left, so that channels must be read in no fixed order."""
        return self.pool is not None and self.pool.available < self.pool.size // 10


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
        channel.lock.acquire()  # compiled, ``with`` takes longer
        try:
            if channel.authenticator is not None:
                self._renew_if_due(channel)
            if connection.usable and connection.outgoing is None and not channel.closed:
                connection.start(send)
            elif not self._take(channel, send) or not connection.usable:
                return
            count, whole = channel.write()
            self._traffic.wrote(channel, count, whole)
        except OSError as e:
            _log.debug("could not write to connection %s to %s: %s", channel.id, channel.transport.remote, e)
            self.give_up(channel)
            return
        finally:
            channel.lock.release()
        if self._traffic.recorder is not None and get_ident() != self._traffic.thread:
            self._traffic.flush()
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
                connection.in_flight.requests.append(send.request)  # the end of the connection returns the request
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


guards_calls(ChannelWriter, "lock", "_renew_if_due", "_take")


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
        channels: The open connections, by id.
        closing: The connections that have ended, and still have received frames.
        polled_ns: The time at which the wait of the last ``poll`` ended, in ns of the clock.
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
        system: select.epoll | None = None,
        dial: Callable[[Address, int, int], tuple[socket.socket, bool]] = sockets.dial,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._polls = polls or (metrics.polls if metrics is not None else PollTimes(clock))
        self._metrics_of = metrics_of or (lambda _: metrics)
        self._builder = channel_builder
        self._tell = PeerLines(_log)
        self._dial = dial
        self._max_receive_size = max_receive_size
        self._window = Window()
        self._traffic = traffic = Traffic(recorder, clock)
        self._expiry = ChannelExpiry(max_idle_ms, max_stall_ms, failed_authentication_delay_ms)
        self._poller = Poller(system)
        self._waker = sockets.Waker()
        self._poller.watch(self._waker.fileno(), self._waker.drain)
        self.writer = ChannelWriter(traffic, clock, self._poller.changed, self._waker.wake)
        self._reader = ChannelReader(traffic, clock, recorded=recorder is not None, pool=pool, expiry=self._expiry)

        self._computed: deque[Channel] = deque()
        self._immediate: list[Channel] = []  # connected at once, which no event announces
        self.channels: dict[str, Channel] = {}
        self.closing: dict[str, Channel] = {}
        self.connected: list[str] = []
        self.prepared: list[str] = []
        self.disconnected: dict[str, Disconnection] = {}
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
    ) -> None:
        """Begin to connect. ``poll`` reports the established connection in ``connected``.

        Args:
            channel_id: The id of the new connection.
            address: An IP address as text, and a port.
            send_buffer, receive_buffer: Sizes of the socket's buffers in bytes, -1 for the system's.
            host: The host's name for the channel builder; the address if None.
            listener: The name of the peer's listener, for the channel builder.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The address is invalid, the system refuses at once, or no transport can be put on the socket.
        """
        self._ensure_new(channel_id)
        sock, at_once = self._dial(address, send_buffer, receive_buffer)
        channel = None
        try:
            peer = Peer(address[0] if host is None else host, address[1], listener, node_id=channel_id)
            channel = self._new_channel(channel_id, sock, peer)
            self._add(channel)
            if at_once:
                self._immediate.append(channel)
        except BaseException:
            self._undo(channel, sock)
            raise
        if channel.authenticator is not None:
            channel.authenticator.notify = partial(self._resume, channel)

    def _resume(self, channel: Channel) -> None:
        """Go on with an authentication whose next token has been computed, from any thread."""
        self._computed.append(channel)
        self._waker.wake()

    def register(self, channel_id: str, sock: socket.socket, listener: str = "PLAINTEXT") -> Channel:
        """Take an accepted socket; it is closed if it cannot be taken.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The connection has ended already, or no transport can be put on the socket.
        """
        self._ensure_new(channel_id)
        channel = None
        try:
            sockets.configure(sock)
            host, port = socket_address(sock.getpeername())
            channel = self._new_channel(channel_id, sock, Peer(host, port, listener, accepted=True))
            channel.finish_connect()
            self._add(channel)
        except BaseException:
            self._undo(channel, sock)
            raise
        self._traffic.opened(channel, accepted=True)
        if not channel.connection.usable:
            self._expiry.opening.add(channel, self._clock.nanoseconds())
        return channel

    def _new_channel(self, channel_id: str, sock: socket.socket, peer: Peer) -> Channel:
        """Make a channel over a socket that is connecting, or connected.

        Raises:
            OSError: No transport can be put on the socket.
        """
        try:
            transport, authenticator = self._builder(sock, peer)
        except OSError:
            raise
        except Exception as e:
            raise OSError(f"no channel to {peer.host}:{peer.port} ({peer.listener}): {type(e).__name__}: {e}") from e
        connection = KafkaConnection(
            channel_id,
            max_receive_size=self._max_receive_size,
            pool=self._reader.pool,
            window=self._window,
        )
        channel = Channel(connection, transport, authenticator)
        channel.metrics = self._metrics_of(channel_id)
        return channel

    def _ensure_new(self, channel_id: str) -> None:
        if channel_id in self.channels:
            raise IllegalState(f"there is a connection {channel_id} already")
        if channel_id in self.closing:
            raise IllegalState(f"the last connection {channel_id} is still being closed")

    def _add(self, channel: Channel) -> None:
        """Take a new channel.

        Raises:
            OSError: The system refuses to watch its socket.
        """
        self.channels[channel.id] = channel
        self._poller.update(channel)
        self._expiry.idle.add(channel, self._clock.nanoseconds())
        if channel.metrics is not None:
            channel.metrics.connections += 1

    def _undo(self, channel: Channel | None, sock: socket.socket) -> None:
        """Remove all traces of a channel that could not be added."""
        if channel is not None:
            self._poller.drop(channel)
            self.channels.pop(channel.id, None)
        sock.close()

    def _establish(self, channel: Channel, now: int) -> bool:
        """Go on with connecting, handshake and authentication; returns whether requests may pass now.

        Raises:
            AuthenticationFailed: One side rejected the other.
            OSError: The connection could not be made, or broke.
        """
        if not channel.connected:
            if not channel.finish_connect():
                return False
            self.connected.append(channel.id)
            self._traffic.opened(channel, accepted=False)
        if not channel.connection.usable:
            with channel.lock:
                if not channel.prepare():
                    return False
                began = channel.begin_session(now)
            if began and channel.metrics is not None:
                channel.metrics.authentication_succeeded(channel.authenticator)
        if channel.metrics is not None and channel.cipher_information is None:
            channel.metrics.cipher_changed(channel, channel.transport.cipher_information)
        self._expiry.opening.forget(channel)
        self.prepared.append(channel.id)
        if channel.connection.outgoing is not None:
            self.writer.started.append(channel)
        return True

    def _fail_authentication(self, channel: Channel, error: AuthenticationFailed, now: int) -> None:
        """End a connection whose authentication failed; a client is answered after the delay."""
        authenticator = channel.authenticator
        answers_late = authenticator is not None and authenticator.is_server and channel.transport.ready
        self._tell(logging.WARNING, "connection %s to %s: %s", channel.id, channel.transport.remote, error)
        if channel.metrics is not None:
            channel.metrics.authentication_failed(authenticator)
        channel.authentication_failed(error)
        if answers_late:
            self._poller.drop(channel)
            self._expiry.opening.forget(channel)
            self._expiry.failed_authentications.add(channel, now)
        else:
            self._close(channel, Closing.GRACEFUL)

    def listen(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Call ``on_ready`` in ``poll`` whenever this listening socket can be accepted from."""
        self._poller.watch(sock.fileno(), on_ready)

    def unlisten(self, sock: socket.socket) -> None:
        """Stop watching a listening socket; the caller closes it."""
        self._poller.unwatch(sock.fileno())

    def channel(self, channel_id: str) -> Channel | None:
        """Return a connection, open or closing; None if there is none."""
        return self.channels.get(channel_id) or self.closing.get(channel_id)

    def all_channels(self) -> list[Channel]:
        """Return every connection, open or closing; from any thread."""
        return [*self.channels.values(), *self.closing.values()]

    def _find(self, channel_id: str) -> Channel:
        channel = self.channel(channel_id)
        if channel is None:
            raise IllegalState(f"there is no connection {channel_id}")
        return channel

    def lowest_priority_channel(self) -> Channel | None:
        """Choose a connection to close to make room: one that is closing, else the least recently used, else any."""
        closing = next(iter(self.closing.values()), None)
        return closing or self._expiry.idle.first() or next(iter(self.channels.values()), None)

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
        self.writer.start(self._find(send.destination), send)

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
        channel = self._find(channel_id)
        channel.connection.muted = channel.connection.explicitly_muted = True
        self._reader.buffered.pop(channel, None)
        self._poller.changed(channel)

    def unmute(self, channel_id: str) -> None:
        """Read this connection again."""
        channel = self._find(channel_id)
        self._reader.unmute(channel)
        channel.connection.explicitly_muted = False
        self._poller.changed(channel)

    # ---- polling -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop the results of the last poll; closing connections go on to close."""
        self.completed_sends.clear()
        if self.completed_receives:
            self._reader.clear()
        self.connected.clear()
        self.prepared.clear()
        self.disconnected.clear()
        if self.closing:
            for channel_id, channel in list(self.closing.items()):
                if channel.ended is ChannelState.FAILED_SEND or not self._read_remaining(channel):
                    del self.closing[channel_id]
                    self._finish(channel, notify=True)
        if self.writer.broken:
            self._close_broken()

    def _close_broken(self) -> None:
        broken = self.writer.broken
        while broken:
            channel = broken.popleft()
            if not channel.closed and self.channels.get(channel.id) is channel:
                self._close(channel, Closing.NOTIFY)

    def poll(self, timeout_ms: int, for_sends: bool = True) -> None:
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
            for regained in reader.unmute_lacking_memory(self.channels.values()):
                self._poller.changed(regained)
        if self.writer.started:
            self.write_now()
        if (
            self._immediate
            or (reader.progressed and reader.buffered)
            or self.disconnected
            or self.completed_receives
            or (for_sends and self.completed_sends)
        ):
            timeout_ms = 0
        reader.progressed = False

        polls = self._polls
        before = self._clock.nanoseconds()
        timeout_ms = self._expiry.wait_ms(timeout_ms, before)
        if self._traffic.recorder is not None:
            self._traffic.thread = get_ident()
            self._traffic.flush()
        events = self._poller.wait(timeout_ms)
        now = self._clock.nanoseconds()
        polls.selects.value += 1
        polls.io_ns += before - self.polled_ns
        polls.io_wait_ns += now - before
        self.polled_ns = now

        if self._immediate or reader.buffered:
            self._process_unannounced(events, now)
        elif not events:
            reader.progressed = True
        if reader.pool is not None and reader.short_of_memory:
            random.shuffle(events)  # so that no connection is always the one without memory
        channels, callbacks = self._poller.channels, self._poller.callbacks
        for fd, mask in events:
            channel = channels.get(fd)
            if channel is not None:
                self._process(channel, mask, now)
            elif fd in callbacks:
                callbacks[fd]()  # the waker, or a listening socket
        while self._computed:
            self._process(self._computed.popleft(), 0, now)
        if self.writer.broken:
            self._close_broken()
        if self._expiry.wait_ms(1, now) == 0:  # an authentication may have failed just now
            for channel, how in self._expiry.expired(self.channels, now):
                self._close(channel, how)

    def _process_unannounced(self, events: list[tuple[int, int]], now: int) -> None:
        """Go on with channels that no event announces: connected at once, or with buffered bytes."""
        immediate, self._immediate = self._immediate, []
        buffered, self._reader.buffered = self._reader.buffered, {}
        announced = {fd for fd, _ in events}
        for channel in buffered:
            if (
                channel.fd not in announced or not channel.registered
            ) and channel not in self._expiry.failed_authentications:
                self._process(channel, EVENT_READ, now)
        for channel in immediate:
            self._process(channel, 0, now)

    def _process(self, channel: Channel, mask: int, now: int) -> None:
        """Handle a channel's event or buffered bytes; a fault ends this channel alone."""
        if channel.closed:
            return
        connection = channel.connection
        self._expiry.idle.add(channel, now)
        try:
            if connection.usable or connection.phase is _REAUTHENTICATING or self._establish(channel, now):
                if not channel.has_completed_receive and not connection.muted:
                    if mask & ~EVENT_WRITE or channel.has_buffered:
                        self._reader.read(channel, now)
                    if (connection.reader.waiting or channel.transport.has_bytes_buffered) and (
                        not connection.explicitly_muted
                    ):
                        self._reader.buffered[channel] = None
                if connection.phase is _REAUTHENTICATING:
                    self._establish(channel, now)
                if mask & EVENT_WRITE and connection.outgoing is not None:
                    self._write(channel)
        except AuthenticationFailed as e:
            self._fail_authentication(channel, e, now)
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
                or connection.muted
            ) and channel.interest != channel.registered:
                self._poller.changed(channel)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def close_channel(self, channel_id: str) -> list[ClientRequest]:
        """Close a connection from this side, without a report in ``disconnected``. Harmless if there is none.

        Returns:
            Its unanswered requests, oldest first.
        """
        channel = self.channels.get(channel_id)
        if channel is not None:
            channel.ended = ChannelState.LOCAL_CLOSE
            self._close(channel, Closing.DISCARD)
            return channel.unanswered
        channel = self.closing.pop(channel_id, None)
        if channel is None:
            return []
        self._finish(channel, notify=False)
        return channel.unanswered

    def close(self) -> None:
        """Close every connection and the selector; an error is raised after all have been closed."""
        ends: list[Callable[[], object]] = [partial(self.close_channel, each.id) for each in self.all_channels()]
        ends += [self._traffic.flush, self._waker.close, self._poller.close]
        close_all(*ends, *([] if self._metrics is None else [self._metrics.close]))

    def abandon(self) -> None:
        """Close a forked child's copies of all descriptors; the parent's connections go on."""
        self._waker.abandon()
        self._poller.close()
        for channel in self.all_channels():
            channel.transport.abandon()
        self.channels.clear()
        self.closing.clear()

    def _close(self, channel: Channel, mode: Closing) -> None:
        """End an open channel."""
        self._poller.drop(channel)
        if self.channels.pop(channel.id, None) is not None and channel.metrics is not None:
            channel.metrics.connections -= 1
        for events in (self.connected, self.prepared):
            if channel.id in events:
                events.remove(channel.id)
        if mode is Closing.GRACEFUL and self._read_remaining(channel):
            with channel.lock:
                channel.begin_closing()
            self.closing[channel.id] = channel
        else:
            self._finish(channel, notify=mode is not Closing.DISCARD)

    def _read_remaining(self, channel: Channel) -> bool:
        """Read one more frame of an ended connection; returns whether there was one, or one is still to be taken."""
        if channel.state is not ChannelState.READY:
            return False
        if channel.connection.explicitly_muted or channel.has_completed_receive:
            return True
        try:
            self._reader.read(channel, self.polled_ns)
        except (OSError, EOFError, AuthenticationFailed):
            return False
        return channel.has_completed_receive

    def _finish(self, channel: Channel, *, notify: bool) -> None:
        self._reader.buffered.pop(channel, None)
        if channel in self._immediate:
            self._immediate.remove(channel)
        self._expiry.forget(channel)
        try:
            channel.close()
        except OSError as e:  # as in Kafka, it counts as closed, and costs no other connection
            _log.warning("connection %s to %s could not be closed cleanly: %s", channel.id, channel.transport.remote, e)
        finally:
            self._traffic.closed(channel)
            if notify:
                self.disconnected[channel.id] = channel.disconnection
