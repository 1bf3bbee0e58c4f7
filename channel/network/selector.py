"""A selector of many connections on one thread: connects, reads, writes, mutes, expires and closes without blocking.

One ``poll`` returns at most one received frame of each connection; further frames stay in order for the next poll.
"""

from __future__ import annotations

import logging
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
from .channel import Channel, ChannelState, Disconnection, KafkaConnection, MuteState, Phase, Receive
from .frames import UNLIMITED, Send, Window
from .selector_metrics import PollTimes
from .sockets import Peer
from .transport import EVENT_READ, EVENT_WRITE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .frames import MemoryPool
    from .recorder import Direction, Recorder
    from .request import ClientRequest
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder
    from .transport import Address, Bytes

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
                    channel.refuse()
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

    Bytes are counted as they move, frames when they are whole. A recorder that raises is not called again, which is
    logged: its failure must not end a connection.

    Args:
        recorder: Records every frame, None for no recording.
        clock: The source of the time of day.

    Attributes:
        recorder: The recorder, None once it has failed.
        thread: The thread of the selector's last poll.
    """

    __slots__ = ("_clock", "recorder", "thread")

    def __init__(self, recorder: Recorder | None, clock: Clock) -> None:
        self.recorder = recorder
        self.thread = 0
        self._clock = clock

    def opened(self, channel: Channel, *, accepted: bool) -> None:
        """Count a connection as established."""
        metrics = channel.metrics
        if metrics is not None:
            metrics.created.value += 1
            if accepted:
                metrics.client_changed(channel, ("unknown", "unknown"))
        if self.recorder is not None:
            ends = channel.transport
            try:
                self.recorder.opened(ends.local, ends.remote, self._clock.wall_nanoseconds(), initiator=not accepted)
            except Exception:  # noqa: BLE001
                self._stop()

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
            self._record("received", channel, (_length.pack(len(payload)), payload))

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
            self._record("sent", channel, send.buffers)

    def closed(self, channel: Channel) -> None:
        """Count a connection as closed."""
        metrics = channel.metrics
        if metrics is not None:
            metrics.closed.value += 1
            metrics.client_changed(channel, None)
            metrics.cipher_changed(channel, None)
        if self.recorder is not None and channel.connected:
            ends = channel.transport
            try:
                self.recorder.closed(ends.local, ends.remote, self._clock.wall_nanoseconds())
            except Exception:  # noqa: BLE001
                self._stop()

    def _record(self, direction: Direction, channel: Channel, buffers: Sequence[Bytes]) -> None:
        recorder, ends = self.recorder, channel.transport
        if recorder is None:
            return  # it has failed on another thread just now: the bytes are out, and their request counts as sent
        try:
            recorder.record(direction, ends.local, ends.remote, self._clock.wall_nanoseconds(), buffers, True)
        except Exception:  # noqa: BLE001
            self._stop()

    def flush(self) -> None:
        """Let the recorder write the frames of this round: before the selector waits, or from another thread."""
        try:
            if self.recorder is not None:
                self.recorder.flush()
        except Exception:  # noqa: BLE001
            self._stop()

    def _stop(self) -> None:
        _log.exception("the recorder failed; nothing more is recorded")
        self.recorder = None


class ChannelReader:
    """Reads at most one frame per poll from each channel of a selector; on the selector's thread alone.

    Args:
        traffic: Counts the bytes and frames that were read.
        clock: The time of sessions.
        recorded: Whether frames are recorded, so that a response must not be read before its request is recorded.
        pool: The pool that gives the buffers of frames, None for the heap.
        stalled: Watches incomplete frames, None without a limit for them.

    Attributes:
        completed: The frames that have been received since ``clear``.
        buffered: The channels with buffered bytes or frames on this side.
        out_of_memory: Whether the pool had no memory, so that channels have muted themselves.
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
        elif reader.lacks_memory:
            self.out_of_memory = True  # the connection muted itself: the pool had no memory
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

    def unmute(self, channel: Channel) -> bool:
        """Unmute a channel if its mute state allows; no event announces its buffered bytes."""
        if not channel.connection.maybe_unmute():
            return False
        if channel.has_buffered:
            self.buffered[channel] = None
            self.progressed = True
        return True

    def unmute_lacking_memory(self, channels: Iterable[Channel]) -> list[Channel]:
        """Once the pool has memory again, unmute and return the channels that lacked it."""
        if self.pool is not None and self.pool.out_of_memory:
            return []
        self.out_of_memory = False
        found = [each for each in channels if not each.connection.explicitly_muted and each.connection.muted]
        return [channel for channel in found if self.unmute(channel)]

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


guards_calls(ChannelWriter, "lock", "_renew_if_due", "_take")


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
                if channel.ended is ChannelState.FAILED_SEND or not self._read_remaining(channel, now):
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
        if mode is Closing.GRACEFUL and self._read_remaining(channel, now):
            with channel.lock:
                channel.begin_closing()
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

    def _read_remaining(self, channel: Channel, now: int) -> bool:
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
        except OSError as e:  # as in Kafka, it counts as closed, and costs no other connection
            _log.warning("connection %s to %s could not be closed cleanly: %s", channel.id, channel.transport.remote, e)
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
        """Begin to connect. ``poll`` reports the established connection in ``connected``.

        Args:
            channel_id: The id of the new connection.
            address: An IP address as text, and a port.
            send_buffer, receive_buffer: Sizes of the socket's buffers in bytes, -1 for the system's.
            host: The host's name for the channel builder; the address if None.
            listener: The name of the peer's listener, for the channel builder.
            checks_versions: Whether the peer is to be asked for its versions before the connection is ready.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The address is invalid, the system refuses at once, or no transport can be put on the socket.
        """
        self._registry.ensure_new(channel_id)
        sock, at_once = self._dial(address, send_buffer, receive_buffer)
        channel = None
        try:
            peer = Peer(address[0] if host is None else host, address[1], listener, node_id=channel_id)
            channel = self._new_channel(channel_id, sock, peer, checks_versions=checks_versions)
            self._registry.add(channel, self._clock.nanoseconds())
            if at_once:
                self._registry.immediate.append(channel)
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
        self._registry.ensure_new(channel_id)
        channel = None
        try:
            sockets.configure(sock)
            host, port = sock.getpeername()[:2] if sock.family != sockets.UNIX else ("", 0)
            channel = self._new_channel(channel_id, sock, Peer(host, port, listener, accepted=True))
            channel.finish_connect()
            self._registry.add(channel, self._clock.nanoseconds())
        except BaseException:
            self._undo(channel, sock)
            raise
        self._traffic.opened(channel, accepted=True)
        if not channel.connection.usable:
            self._expiry.accepted(channel, self._clock.nanoseconds())
        return channel

    def _new_channel(
        self, channel_id: str, sock: socket.socket, peer: Peer, *, checks_versions: bool = False
    ) -> Channel:
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
            checks_versions=checks_versions,
        )
        channel = Channel(connection, transport, authenticator)
        channel.metrics = self._metrics_of(channel_id)
        return channel

    def _undo(self, channel: Channel | None, sock: socket.socket) -> None:
        """Remove all traces of a channel that could not be added."""
        if channel is not None:
            self._registry.take_back(channel)
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
            self._registry.connected.append(channel.id)
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
        self._registry.prepared.append(channel.id)
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
            self._registry.close(channel, Closing.GRACEFUL, now)

    def listen(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Call ``on_ready`` in ``poll`` whenever this listening socket can be accepted from."""
        self._poller.watch(sock.fileno(), on_ready)

    def unlisten(self, sock: socket.socket) -> None:
        """Stop watching a listening socket; the caller closes it."""
        self._poller.unwatch(sock.fileno())

    def closing_channel(self, channel_id: str) -> Channel | None:
        """Return a connection that has ended and still has received frames."""
        return self._registry.closing.get(channel_id)

    def all_channels(self) -> list[Channel]:
        """Return every connection, open or closing; from any thread."""
        return self._registry.all()

    def lowest_priority_channel(self) -> Channel | None:
        """Choose a connection to close to make room: one that is closing, else the least recently used, else any."""
        closing, oldest = self._registry.closing, self._expiry.oldest()
        if closing or oldest is None:
            return next(iter((closing or self.channels).values()), None)
        return self.channels.get(oldest)

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
        if not self._reader.unmute(channel):
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
        if self._traffic.recorder is not None:
            self._traffic.thread = get_ident()
            self._traffic.flush()
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
        if limits or self._expiry.failed_authentications:  # an authentication may have failed just now
            for channel, how in self._expiry.expired(self.channels, now):
                self._close(channel, how)

    def _process_unannounced(self, events: list[tuple[int, int]], now: int) -> None:
        """Go on with channels that no event announces: connected at once, or with buffered bytes."""
        registry = self._registry
        immediate, registry.immediate = registry.immediate, []
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
        if self._expiry.idle is not None:
            self._expiry.idle.touch(channel.id, now)
        try:
            if connection.usable or connection.phase is _REAUTHENTICATING or self._establish(channel, now):
                if not channel.has_completed_receive and connection.mute_state is _NOT_MUTED:
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
        ends: list[Callable[[], object]] = [partial(self.close_channel, each.id) for each in self._registry.all()]
        ends += [self._traffic.flush, self._waker.close, self._poller.close]
        close_all(*ends, *([] if self._metrics is None else [self._metrics.close]))

    def abandon(self) -> None:
        """Close a forked child's copies of all descriptors; the parent's connections go on."""
        self._waker.abandon()
        self._poller.close()
        self._registry.abandon()

    def _close(self, channel: Channel, mode: Closing) -> None:
        self._registry.close(channel, mode, self.polled_ns)
