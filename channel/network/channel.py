"""A channel: a connection, the transport that moves its bytes, and the authenticator between the two."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from channel.errors import AuthenticationFailed
from channel.locks import new_lock

from .connection import MuteState, Phase
from .transport import COMPUTING, EVENT_READ, EVENT_WRITE, Address

if TYPE_CHECKING:
    from .connection import Connection
    from .frames import MemoryPool, Send
    from .request import ClientRequest
    from .selector_metrics import NodeMetrics, SelectorMetrics
    from .transport import Authenticator, Transport

__all__ = ["Channel", "ChannelState", "Disconnection", "Receive"]


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
        ended: The reason of the channel's end, if its connection's phase does not show it.
        broken: Whether a write has failed, so that the selector will close the channel.
        closed: Whether the channel takes no more frames to send.
        authentication_error: The error of a failed authentication.
        metrics, node_metrics: The metrics that count this channel, None without metrics.
    """

    __slots__ = (
        "_wanted", "authentication_error", "authenticator", "broken", "cipher_information", "client_information",
        "closed", "connected",
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
        self.lock = new_lock("channel")
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
        self.cipher_information: tuple[str, str] | None = None
        self.metrics: SelectorMetrics | None = None
        self.node_metrics: NodeMetrics | None = None
        self._wanted = 0

    def __repr__(self) -> str:
        return f"Channel({self.id}, {self.state.value}, {self.connection.mute_state.value})"

    @property
    def state(self) -> ChannelState:
        """The channel's progress, or the reason of its end."""
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
            events = EVENT_READ if connection.mute_state is MuteState.NOT_MUTED else 0
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
                self.connection.established()
        return self.connected

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
        self.connection.established()
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
            connection.mute()
            return 0, None
        begins = reader.requested < 0
        count = self.transport.read_into(reader.into)
        if not count:
            return 0, None
        payload = reader.received(count)
        if reader.lacks_memory:
            connection.mute()
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
