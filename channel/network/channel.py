"""A channel: a connection, the transport that moves its bytes, and the authenticator between the two.

A ``KafkaConnection`` is one end of a Kafka connection as a state machine without I/O: bytes in, frames out, buffers to
send. It knows no socket, no thread and no time, so that every behaviour can be tested byte by byte.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from channel.errors import AuthenticationFailed, IllegalState
from channel.locks import guards_calls, guards_changes, new_lock

from .frames import UNLIMITED, FrameReader, Send, Window
from .request import InFlightRequests
from .transport import COMPUTING, EVENT_READ, EVENT_WRITE, Address

if TYPE_CHECKING:
    from .authenticator import SaslAuthenticator
    from .frames import MemoryPool
    from .request import ClientRequest
    from .selector_metrics import SelectorMetrics
    from .tls import Transport


class Phase(Enum):
    """The phase of a connection."""

    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    CLOSING = "closing"
    CLOSED = "closed"


_FORWARD: Final = (
    Phase.CONNECTING, Phase.HANDSHAKE, Phase.AUTHENTICATING, Phase.READY, Phase.CLOSING, Phase.CLOSED,
)  # fmt: skip
_NEXT: Final = {phase: frozenset(_FORWARD[at + 1 :]) for at, phase in enumerate(_FORWARD)} | {
    Phase.READY: frozenset({Phase.REAUTHENTICATING, Phase.CLOSING, Phase.CLOSED}),
    Phase.REAUTHENTICATING: frozenset({Phase.READY, Phase.CLOSING, Phase.CLOSED}),
}


class KafkaConnection:
    """A connection of a client or a server.

    Its phases; any may be passed over (plaintext has no handshake, an accepted connection is connected from the start),
    and a ready connection may authenticate again, while answers still arrive::

        CONNECTING -> HANDSHAKE -> AUTHENTICATING -> READY <-> REAUTHENTICATING
            |             |               |            |              |
            +-------------+---------------+-----+------+--------------+
                                                v
                                             CLOSING -> CLOSED

    Args:
        connection_id: The connection's name.
        max_receive_size: Largest payload that may arrive, in bytes; ``UNLIMITED`` for none.
        pool: The pool that accounts for arriving payloads, None for the heap.
        window: The shared buffer for small frames; None reads each length by itself.

    Attributes:
        pool: As given.
        phase: The connection's phase.
        reader: Cuts the arriving bytes into frames: read into ``reader.into``, then call ``received``.
        outgoing: The frame on its way out, None if there is none.
        in_flight: The requests that the peer has not answered yet.
        muted: Whether the connection is not read.
        explicitly_muted: Whether the owner muted the connection, and not the pool.
        usable: Whether requests and answers may pass: the connection is ready.
    """

    __slots__ = (
        "explicitly_muted", "id", "in_flight", "muted", "outgoing", "phase", "pool", "reader", "usable",
    )  # fmt: skip

    def __init__(
        self,
        connection_id: str,
        *,
        max_receive_size: int = UNLIMITED,
        pool: MemoryPool | None = None,
        window: Window | None = None,
    ) -> None:
        self.id = connection_id
        self.phase = Phase.CONNECTING
        self.usable = False
        self.pool = pool
        self.reader = FrameReader(max_receive_size, pool, window)
        self.outgoing: Send | None = None
        self.in_flight = InFlightRequests()
        self.muted = False
        self.explicitly_muted = False

    def __repr__(self) -> str:
        return f"KafkaConnection({self.id}, {self.phase.value}{', muted' * self.muted})"

    def enter(self, phase: Phase) -> None:
        """Go on to a later phase.

        Raises:
            IllegalState: The present phase does not lead to that phase.
        """
        if phase is not self.phase:
            if phase not in _NEXT[self.phase]:
                raise IllegalState(f"connection {self.id} cannot be {phase.value}: it is {self.phase.value}")
            self.phase = phase
            self.usable = phase is Phase.READY

    # ---- sending -----------------------------------------------------------------------------------------------------

    def start(self, send: Send) -> None:
        """Take a frame to send; a request in it is in flight from now on.

        Raises:
            IllegalState: The previous frame has not gone out yet.
        """
        if self.outgoing is not None:
            raise IllegalState(f"a send to {self.id} has not gone out yet: {self.outgoing!r}")
        self.outgoing = send
        if send.request is not None:
            self.in_flight.requests.append(send.request)
            send.request = None  # which knows its send: a cycle would keep each request until the collector comes

    def sent(self, count: int, *, pending: bool = False) -> Send | None:
        """Note that this many bytes of the pieces have been written.

        Args:
            count: The number of bytes.
            pending: Whether the transport holds back bytes that it has taken.

        Returns:
            The frame, if all of it has gone out.
        """
        send = self.outgoing
        if send is None:
            return None
        if count == send.remaining:
            send.remaining = 0
        else:
            send.written(count)
            return None
        if pending:
            return None
        send.completed = True
        self.outgoing = None
        return send

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def received(self, count: int) -> bytearray | None:
        """Take this many bytes that were read into ``reader.into``; returns the first whole frame, or None.

        The connection mutes itself if the pool has no memory for the frame.

        Raises:
            InvalidReceive: A frame's length is negative or above the limit.
        """
        reader = self.reader
        payload = reader.received(count)
        if reader.lacks_memory:
            self.muted = True
        return payload

    # ---- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> list[ClientRequest]:
        """End the connection: nothing is sent or received any more. Returns the unanswered requests, oldest first."""
        self.enter(Phase.CLOSED)
        self.outgoing = None
        self.reader.close()
        unanswered = list(self.in_flight.requests)
        self.in_flight.requests.clear()
        return unanswered


class ChannelState(Enum):
    """The progress of a channel; after its disconnection, the reason."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    EXPIRED = "expired"
    FAILED_SEND = "failed send"
    AUTHENTICATION_FAILED = "authentication failed"
    LOCAL_CLOSE = "local close"


class Disconnection(NamedTuple):
    """The end of a channel.

    Attributes:
        state: The channel's last state, with the reason of its end.
        remote: The address of the peer.
        error: The error of a failed authentication, None for any other end.
        unanswered: The requests that were in flight, oldest first.
    """

    state: ChannelState
    remote: Address = ("", 0)
    error: AuthenticationFailed | None = None
    unanswered: tuple[ClientRequest, ...] = ()


_STATES = {
    Phase.CONNECTING: ChannelState.NOT_CONNECTED,
    Phase.HANDSHAKE: ChannelState.AUTHENTICATE,
    Phase.AUTHENTICATING: ChannelState.AUTHENTICATE,
}


class Channel:
    """Moves bytes between a connection and its transport.

    Only the selector's thread reads. Writing and closing are done under ``lock``, so that any thread may send.

    Args:
        connection: The state machine of the frames.
        transport: Moves the bytes.
        authenticator: Authenticates the two ends by SASL, None without SASL.

    Attributes:
        lock: Held while the transport is written to or closed.
        registered: The events that the selector waits for now (for the selector alone).
        has_completed_receive: Whether the present poll has received a frame on this channel (for the selector alone).
        awaited: The bytes of an incomplete frame that must have arrived at its next check, 0 for none (for the selector
            alone).
        ended: The reason of the channel's end, if its connection's phase does not show it.
        broken: Whether a write has failed, so that the selector will close the channel.
        closed: Whether the channel takes no more frames to send.
        metrics: The metrics that count this channel, None without metrics.
    """

    __slots__ = (
        "_wanted", "authentication_error", "authenticator", "awaited", "broken", "cipher_information",
        "client_information", "closed", "connected", "connection", "ended", "fd", "has_completed_receive", "id", "lock",
        "metrics", "registered", "transport", "unanswered",
    )  # fmt: skip

    def __init__(
        self, connection: KafkaConnection, transport: Transport, authenticator: SaslAuthenticator | None = None
    ) -> None:
        self.id = connection.id
        self.connection = connection
        self.transport = transport
        self.authenticator = authenticator
        self.lock = new_lock("channel")
        self.fd = -1
        self.registered = 0
        self.has_completed_receive = False
        self.awaited = 0
        self.connected = False
        self.broken = False
        self.closed = False
        self.ended: ChannelState | None = None
        self.authentication_error: AuthenticationFailed | None = None
        self.unanswered: list[ClientRequest] = []
        self.client_information: tuple[str, str] | None = None
        self.cipher_information: tuple[str, str] | None = None
        self.metrics: SelectorMetrics | None = None
        self._wanted = 0

    def __repr__(self) -> str:
        return f"Channel({self.id}, {self.state.value}{', muted' * self.connection.muted})"

    @property
    def state(self) -> ChannelState:
        """The channel's progress, or the reason of its end."""
        return self.ended or _STATES.get(self.connection.phase, ChannelState.READY)

    @property
    def interest(self) -> int:
        """The events that transport and connection want now: any of ``EVENT_READ | EVENT_WRITE``."""
        connection = self.connection
        if connection.usable:
            wanted = 0 if connection.muted else EVENT_READ
            return wanted | EVENT_WRITE if connection.outgoing is not None else wanted
        if self.authentication_error is not None:
            return 0
        if connection.phase is Phase.REAUTHENTICATING:
            events = 0 if connection.muted else EVENT_READ
            return events if self._wanted == COMPUTING else events | self._wanted & EVENT_WRITE
        if not self.connected:
            return EVENT_WRITE
        return 0 if self._wanted == COMPUTING else self._wanted or EVENT_READ

    @property
    def disconnection(self) -> Disconnection:
        """The end of this channel, for the selector's report."""
        return Disconnection(self.state, self.transport.remote, self.authentication_error, tuple(self.unanswered))

    # ---- connecting --------------------------------------------------------------------------------------------------

    def finish_connect(self) -> bool:
        """Check whether the TCP connection is established.

        Raises:
            OSError: It could not be made.
        """
        self.connected = self.transport.finish_connect()
        if self.connected:
            if not self.transport.ready:
                self.connection.enter(Phase.HANDSHAKE)
            elif self.authenticator is not None and not self.authenticator.complete:
                self.connection.enter(Phase.AUTHENTICATING)
            else:
                self.connection.enter(Phase.READY)
        return self.connected

    def has_sent(self, send: Send) -> bool:
        """Whether a frame has gone out whole. The caller holds ``lock``."""
        return send.completed

    def refuse(self) -> None:
        """Tell a client that its authentication has failed. The caller holds ``lock``."""
        assert self.authenticator is not None
        self.authenticator.send_failure()

    def begin_closing(self) -> None:
        """Take no more frames: what has arrived is read before the connection ends. The caller holds ``lock``."""
        self.connection.enter(Phase.CLOSING)

    def prepare(self) -> bool:
        """Go on with the handshake, then the authentication or its renewal; returns whether both are over.

        The caller holds ``lock``.

        Raises:
            AuthenticationFailed: One side rejected the other.
            OSError: The connection broke.
        """
        authenticator = self.authenticator
        wanted = 0 if self.transport.ready else self.transport.handshake()
        if not wanted and authenticator is not None and not authenticator.complete:
            if self.connection.phase is not Phase.REAUTHENTICATING:
                self.connection.enter(Phase.AUTHENTICATING)
            wanted = authenticator.authenticate()
        self._wanted = wanted
        if wanted or not self.transport.ready or not (authenticator is None or authenticator.complete):
            return False
        self.connection.enter(Phase.READY)
        return True

    def begin_session(self, now_ns: int) -> bool:
        """Note that the two ends have accepted each other; returns whether that is new. The caller holds ``lock``."""
        return self.authenticator is None or self.authenticator.begin_session(now_ns)

    def authentication_failed(self, error: AuthenticationFailed) -> None:
        """Note a failed authentication: the channel's state shows it, and the channel waits for no more events."""
        self.ended = ChannelState.AUTHENTICATION_FAILED
        self.authentication_error = error

    def renew(self, now_ns: int) -> None:
        """Begin to renew the session; no request goes out before the renewal is over. The caller holds ``lock``."""
        assert self.authenticator is not None
        self.connection.enter(Phase.REAUTHENTICATING)
        self.authenticator.renew(now_ns)
        self._wanted = EVENT_WRITE

    def renewal_takes(self, payload: bytearray, now_ns: int) -> bool:
        """Hand a frame to the authenticator if the frame renews the session; returns whether it does.

        The caller holds ``lock``, and goes on with ``prepare``.

        Raises:
            AuthenticationFailed: One side rejected the other.
        """
        assert self.authenticator is not None
        if not self.authenticator.takes(payload, now_ns):
            return False
        if self.connection.phase is not Phase.CLOSING:
            self.connection.enter(Phase.REAUTHENTICATING)
        return True

    # ---- sending -----------------------------------------------------------------------------------------------------

    def write(self) -> tuple[int, Send | None]:
        """Write as much as the transport takes now; returns the byte count, and the frame if it has gone out whole.

        The caller holds ``lock``.
        """
        connection, transport = self.connection, self.transport
        send = connection.outgoing
        if send is not None and send.remaining:
            count = transport.write(send.left)
        else:
            count = 0
            transport.flush()
        return count, connection.sent(count, pending=transport.has_pending_writes)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def read(self) -> tuple[int, bytearray | None]:
        """Take a frame that has arrived, or read once; returns the number of bytes read, and the frame if it is whole.

        Raises:
            InvalidReceive, EOFError, OSError: No more can be read from the connection.
        """
        connection = self.connection
        reader = connection.reader
        if reader.waiting:
            return 0, reader.next_frame()
        if reader.lacks_memory and not reader.allocate():
            connection.muted = True
            return 0, None
        begins = reader.requested < 0
        count = self.transport.read_into(reader.into)
        if not count:
            return 0, None
        payload = connection.received(count)
        if payload is None and begins and connection.pool is not None and reader.memory:
            more = self.transport.read_into(reader.into)  # the length was read alone
            if more:
                return count + more, connection.received(more)
        return count, payload

    @property
    def has_buffered(self) -> bool:
        """Whether bytes or frames are buffered on this side, which no event will announce."""
        return bool(self.connection.reader.waiting) or self.transport.has_bytes_buffered

    # ---- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the transport and give buffers back; harmless if closed.

        With requests in flight the connection is reset: otherwise the system would keep their bytes for a peer that
        cannot be reached for a while, and they could arrive after later requests on the next connection.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                if self.connection.in_flight:
                    self.transport.reset_on_close()
                self.transport.close()
            finally:
                self.ended = self.state
                self.unanswered = self.connection.close()
                if self.authenticator is not None:
                    self.authenticator.close()


guards_calls(
    Channel,
    "lock",
    "begin_closing",
    "begin_session",
    "has_sent",
    "prepare",
    "refuse",
    "renew",
    "renewal_takes",
    "write",
)
guards_changes(Channel, "lock", "closed")


class Receive:
    """A whole frame that has arrived.

    Args:
        channel: The channel that it has arrived on.
        payload: The frame without its length.
        pool: The pool that gave the payload's memory, None for the heap.
    """

    __slots__ = ("_pool", "channel", "payload")

    def __init__(self, channel: Channel, payload: bytearray, pool: MemoryPool | None = None) -> None:
        self.channel = channel
        self.payload: bytearray | None = payload
        self._pool = pool

    def __repr__(self) -> str:
        return f"Receive({'given back' if self.payload is None else len(self.payload)} bytes from {self.source})"

    @property
    def source(self) -> str:
        """The channel's id."""
        return self.channel.id

    def close(self) -> None:
        """Give the memory back to its pool; the payload must not be used any more."""
        payload, self.payload = self.payload, None
        if payload and self._pool is not None:
            self._pool.release(payload)
