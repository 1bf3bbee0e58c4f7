"""A channel: a connection, the transport that moves its bytes, and the authenticator between the two."""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from channel.errors import AuthenticationFailed

from .connection import MuteState, Phase
from .transport import EVENT_READ, EVENT_WRITE, Address

if TYPE_CHECKING:
    from .connection import Connection
    from .frames import Send
    from .memory import MemoryPool
    from .request import ClientRequest
    from .selector_metrics import NodeMetrics, SelectorMetrics
    from .transport import Authenticator, Transport

__all__ = ["Channel", "ChannelState", "Disconnection", "Receive"]


class ChannelState(Enum):
    """How far a channel came; once it is disconnected, why."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticate"
    READY = "ready"
    EXPIRED = "expired"
    FAILED_SEND = "failed send"
    AUTHENTICATION_FAILED = "authentication failed"
    LOCAL_CLOSE = "local close"


class Disconnection(NamedTuple):
    """How a channel ended.

    Attributes:
        state: The state it ended in.
        remote: Where it led.
        error: Why authentication failed, None if it did not.
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

    Reading is the selector's thread's own. Whatever writes or closes holds ``lock``, so that any thread may send.

    Args:
        connection: What is said.
        transport: What moves the bytes.
        authenticator: Proves who the two ends are, None if nobody asks.

    Attributes:
        lock: Held by whoever writes to the transport, or closes it.
        registered: The events that the selector waits for now (the selector's own).
        has_completed_receive: Whether the present poll has given a frame of it (the selector's own).
        ended: Why it ended, if its phase does not tell.
        broken: Whether writing to it has failed, so that the selector is to close it.
        closed: Whether nothing may be sent any more.
        authentication_error: Why authentication failed.
        metrics, node_metrics: What is counted, None for nothing.
    """

    __slots__ = (
        "_wanted", "authentication_error", "authenticator", "broken", "client_information", "closed", "connected",
        "connection", "ended", "fd", "has_completed_receive", "id", "lock", "metrics", "node_metrics", "registered",
        "transport", "unanswered", "watched",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, transport: Transport, authenticator: Authenticator | None = None
    ) -> None:
        self.id = connection.id
        self.connection = connection
        self.transport = transport
        self.authenticator = authenticator
        self.lock = threading.Lock()
        self.fd = -1
        self.registered = 0
        self.has_completed_receive = False
        self.watched = False
        self.connected = False
        self.broken = False
        self.closed = False
        self.ended: ChannelState | None = None
        self.authentication_error: AuthenticationFailed | None = None
        self.unanswered: list[ClientRequest] = []
        self.client_information: tuple[str, str] | None = None
        self.metrics: SelectorMetrics | None = None
        self.node_metrics: NodeMetrics | None = None
        self._wanted = 0

    def __repr__(self) -> str:
        return f"Channel({self.id}, {self.state.value}, {self.connection.mute_state.value})"

    @property
    def state(self) -> ChannelState:
        """How far it came, or why it ended."""
        return self.ended or _STATES.get(self.connection.phase, ChannelState.READY)

    @property
    def ready(self) -> bool:
        """Whether requests may pass: handshake and authentication are over."""
        return self.connection.usable

    @property
    def interest(self) -> int:
        """The events that transport and connection want now: any of ``EVENT_READ | EVENT_WRITE``."""
        connection = self.connection
        if connection.usable:
            wanted = EVENT_READ if connection.mute_state is MuteState.NOT_MUTED else 0
            return wanted | EVENT_WRITE if connection.outgoing is not None else wanted
        if self.authentication_error is not None:
            return 0
        if connection.phase is Phase.REAUTHENTICATING:
            return (EVENT_READ if connection.mute_state is MuteState.NOT_MUTED else 0) | self._wanted & EVENT_WRITE
        if not self.connected:
            return EVENT_WRITE
        return self._wanted or EVENT_READ

    @property
    def disconnection(self) -> Disconnection:
        """How it ended."""
        return Disconnection(self.state, self.transport.remote, self.authentication_error, tuple(self.unanswered))

    # ---- connecting --------------------------------------------------------------------------------------------------

    def finish_connect(self) -> bool:
        """Look whether the connection stands.

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
                self.connection.established()
        return self.connected

    def prepare(self) -> bool:
        """Go on with the handshake, then the authentication, also to renew it; tells whether both are over.

        The caller holds ``lock``.

        Raises:
            AuthenticationFailed: One side does not accept the other.
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
        self.connection.established()
        return True

    def begin_session(self, now_ns: int) -> bool:
        """Note that the two ends have accepted each other; tells whether that is new. The caller holds ``lock``."""
        return self.authenticator is None or self.authenticator.begin_session(now_ns)

    def refused(self, error: AuthenticationFailed) -> None:
        """Note that one side does not accept the other: the state tells it, and no event is waited for any more."""
        self.ended = ChannelState.AUTHENTICATION_FAILED
        self.authentication_error = error

    def renew(self, now_ns: int) -> None:
        """Begin to renew the session; no request goes out before that is over. The caller holds ``lock``."""
        assert self.authenticator is not None
        self.connection.enter(Phase.REAUTHENTICATING)
        self.authenticator.renew(now_ns)
        self._wanted = EVENT_WRITE

    def renewal_takes(self, payload: bytearray, now_ns: int) -> bool:
        """Hand a frame to the authenticator if it renews the session; tells whether it does.

        The caller holds ``lock``, and goes on with ``prepare``.

        Raises:
            AuthenticationFailed: One side does not accept the other any more.
        """
        assert self.authenticator is not None
        if not self.authenticator.takes(payload, now_ns):
            return False
        if self.connection.phase is not Phase.CLOSING:
            self.connection.enter(Phase.REAUTHENTICATING)
        return True

    # ---- sending -----------------------------------------------------------------------------------------------------

    def write(self) -> tuple[int, Send | None]:
        """Write what the transport takes now; tells how many bytes that was, and the frame if all of it has gone out.

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
        """Take a frame that has arrived, or read once; tells how many bytes were read, and a whole frame.

        Raises:
            InvalidReceive, EOFError, OSError: The connection cannot be read on.
        """
        connection = self.connection
        reader = connection.reader
        if reader.waiting:
            return 0, reader.next_frame()
        if reader.refused and not reader.allocate():
            connection.mute()
            return 0, None
        begins = reader.requested < 0
        count = self.transport.read_into(reader.into)
        if not count:
            return 0, None
        payload = reader.received(count)
        if reader.refused:
            connection.mute()
        if payload is None and begins and connection.pool is not None and reader.memory:
            more = self.transport.read_into(reader.into)  # the length was read alone
            if more:
                return count + more, connection.received(more)
        return count, payload

    @property
    def has_buffered(self) -> bool:
        """Whether bytes or frames wait on this side, so that no event will announce them."""
        return bool(self.connection.reader.waiting) or self.transport.has_bytes_buffered

    @property
    def receive_started(self) -> bool:
        """Whether a frame is partly there."""
        return self.connection.reader.bytes_read > 0

    # ---- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the transport and give buffers back; harmless if closed.

        With requests in flight the connection is reset: else the system would go on delivering their bytes to a peer
        that cannot be reached for a while, and they could arrive after later requests on the next connection.
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
