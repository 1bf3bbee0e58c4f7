"""One connection: its transport, the frame going out, the frame coming in, and whether it is muted."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from channel.errors import AuthenticationFailed, IllegalState

from .frames import UNLIMITED, Receive, Send
from .transport import EVENT_READ, EVENT_WRITE, Address

if TYPE_CHECKING:
    from .memory import MemoryPool
    from .selector_metrics import NodeMetrics
    from .transport import Authenticator, Transport

__all__ = ["Channel", "ChannelState", "Disconnection", "MuteEvent", "MuteState"]


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
    """A channel that ended: the state it ended in, to whom it led, and the error of a failed authentication."""

    state: ChannelState
    remote: Address = ("", 0)
    error: AuthenticationFailed | None = None


class MuteState(Enum):
    """Whether a channel is read, and what it waits for if it is not."""

    NOT_MUTED = "not muted"
    MUTED = "muted"
    MUTED_AND_RESPONSE_PENDING = "muted, response pending"
    MUTED_AND_THROTTLED = "muted, throttled"
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = "muted, throttled, response pending"


class MuteEvent(Enum):
    """What happens to a muted channel of a server."""

    REQUEST_RECEIVED = "request received"
    RESPONSE_SENT = "response sent"
    THROTTLE_STARTED = "throttle started"
    THROTTLE_ENDED = "throttle ended"


_NEXT = {
    (MuteState.MUTED, MuteEvent.REQUEST_RECEIVED): MuteState.MUTED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED,
    (MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED_AND_THROTTLED,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.THROTTLE_STARTED): (
        MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING
    ),
    (MuteState.MUTED_AND_THROTTLED, MuteEvent.THROTTLE_ENDED): MuteState.MUTED,
    (MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, MuteEvent.THROTTLE_ENDED): (
        MuteState.MUTED_AND_RESPONSE_PENDING
    ),
}


class Channel:
    """A connection as the selector sees it. Used by the selector's thread alone.

    Attributes:
        interest: Which of ``EVENT_READ | EVENT_WRITE`` the selector should wait for.
        registered: Which it waits for now (the selector's own).
        dropped: It is waited for no more (the selector's own).
        state: How far it came.
    """

    __slots__ = (
        "_authenticator", "_pool", "_receive", "client_information", "closed", "connected", "dropped",
        "explicitly_muted", "has_completed_receive", "id", "interest", "max_receive_size", "mute_state", "node_metrics",
        "registered", "send", "state", "state_error", "transport",
    )  # fmt: skip

    def __init__(
        self,
        channel_id: str,
        transport: Transport,
        authenticator: Authenticator | None = None,
        max_receive_size: int = UNLIMITED,
        pool: MemoryPool | None = None,
    ) -> None:
        self.id = channel_id
        self.transport = transport
        self._authenticator = authenticator
        self.max_receive_size = max_receive_size
        self._pool = pool
        self._receive: Receive | None = None
        self.send: Send | None = None
        self.state = ChannelState.NOT_CONNECTED
        self.state_error: AuthenticationFailed | None = None
        self.mute_state = MuteState.NOT_MUTED
        self.explicitly_muted = False
        self.has_completed_receive = False
        self.connected = False
        self.closed = False
        self.interest = 0
        self.registered = 0
        self.dropped = False
        self.client_information: tuple[str, str] | None = None
        self.node_metrics: NodeMetrics | None = None

    def __repr__(self) -> str:
        return f"Channel({self.id}, {self.state.value}, {self.mute_state.value})"

    # ---- connecting --------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether requests may pass: handshake and authentication are over."""
        return self.transport.ready and (self._authenticator is None or self._authenticator.complete)

    def finish_connect(self) -> bool:
        """Look whether the connection stands; if so, wait for bytes instead.

        Raises:
            OSError: It could not be made.
        """
        self.connected = self.transport.finish_connect()
        if self.connected:
            self.interest = EVENT_READ
            self.state = ChannelState.READY if self.ready else ChannelState.AUTHENTICATE
        return self.connected

    def prepare(self) -> bool:
        """Go on with the handshake, then the authentication; tells whether both are over.

        Raises:
            AuthenticationFailed: One side does not accept the other; the state tells it too.
            OSError: The connection broke.
        """
        try:
            wanted = 0 if self.transport.ready else self.transport.handshake()
            if not wanted and self._authenticator is not None and not self._authenticator.complete:
                wanted = self._authenticator.authenticate()
        except AuthenticationFailed as e:
            self.state = ChannelState.AUTHENTICATION_FAILED
            self.state_error = e
            raise
        if wanted or not self.ready:
            self.interest = wanted or EVENT_READ
            return False
        self.state = ChannelState.READY
        self.interest = EVENT_READ | (EVENT_WRITE if self.send is not None else 0)
        return True

    # ---- sending -----------------------------------------------------------------------------------------------------

    def set_send(self, send: Send) -> None:
        """Take a frame to send.

        Raises:
            IllegalState: The one before has not gone out yet.
        """
        if self.send is not None:
            raise IllegalState(f"a send to {self.id} has not gone out yet: {self.send!r}")
        self.send = send

    def write(self) -> int:
        """Write what the transport takes now; tells how many bytes of the frame that was."""
        assert self.send is not None
        if self.send.remaining:
            return self.send.write_to(self.transport)
        self.transport.flush()
        return 0

    def maybe_complete_send(self) -> Send | None:
        """The frame, if it has gone out entirely, also from the transport."""
        send = self.send
        if send is None or send.remaining or self.transport.has_pending_writes:
            return None
        self.send = None
        self.interest &= ~EVENT_WRITE
        return send

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def read(self) -> int:
        """Read once; a channel that its pool refuses a buffer mutes itself.

        Raises:
            InvalidReceive, EOFError, OSError: The connection cannot be read on.
        """
        receive = self._receive
        if receive is None:
            receive = self._receive = Receive(self.id, self.max_receive_size, self._pool)
        count = receive.read_from(self.transport)
        if receive.payload is None and receive.requested >= 0 and self.transport.ready:
            self.mute()
        return count

    def maybe_complete_receive(self) -> Receive | None:
        """The frame, if all of it is there."""
        receive = self._receive
        if receive is None or not receive.complete:
            return None
        self._receive = None
        return receive

    @property
    def receive_started(self) -> bool:
        """Whether a frame is partly there."""
        return self._receive is not None and self._receive.bytes_read > 0

    # ---- muting ------------------------------------------------------------------------------------------------------

    @property
    def muted(self) -> bool:
        """Whether it is not read."""
        return self.mute_state is not MuteState.NOT_MUTED

    def mute(self) -> None:
        """Stop reading."""
        if self.mute_state is MuteState.NOT_MUTED:
            self.interest &= ~EVENT_READ
            self.mute_state = MuteState.MUTED

    def maybe_unmute(self) -> bool:
        """Read again, unless a response or a throttle is still due; tells whether it is read now."""
        if self.mute_state is MuteState.MUTED:
            if self.connected:
                self.interest |= EVENT_READ
            self.mute_state = MuteState.NOT_MUTED
        return self.mute_state is MuteState.NOT_MUTED

    def handle_mute_event(self, event: MuteEvent) -> None:
        """Note what happened while muted.

        Raises:
            IllegalState: It cannot happen in this state.
        """
        following = _NEXT.get((self.mute_state, event))
        if following is None:
            raise IllegalState(f"{event.value} cannot happen to channel {self.id}, which is {self.mute_state.value}")
        self.mute_state = following

    # ---- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the transport and give buffers back; harmless if closed."""
        if self.closed:
            return
        self.closed = True
        try:
            self.transport.close()
        finally:
            receive, self._receive = self._receive, None
            if receive is not None:
                receive.close()
            if self._authenticator is not None:
                self._authenticator.close()
