"""One end of a Kafka connection as a state machine without I/O: bytes in, frames out, buffers to send.

Nothing here knows a socket, a thread or the time, so that every behaviour can be tested byte by byte. A ``Channel``
moves the bytes between a connection and its transport.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from channel.errors import IllegalState

from .frames import UNLIMITED, FrameReader, Send, Window
from .request import InFlightRequests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .frames import MemoryPool
    from .request import ClientRequest
    from .transport import Bytes

__all__ = ["Connection", "MuteEvent", "MuteState", "Phase"]


class Phase(Enum):
    """The phase of a connection."""

    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    AUTHENTICATING = "authenticating"
    CHECKING_VERSIONS = "checking versions"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    CLOSING = "closing"
    CLOSED = "closed"


_FORWARD: Final = (
    Phase.CONNECTING, Phase.HANDSHAKE, Phase.AUTHENTICATING, Phase.CHECKING_VERSIONS, Phase.READY, Phase.CLOSING,
    Phase.CLOSED,
)  # fmt: skip
_NEXT: Final = {phase: frozenset(_FORWARD[at + 1 :]) for at, phase in enumerate(_FORWARD)} | {
    Phase.READY: frozenset({Phase.REAUTHENTICATING, Phase.CLOSING, Phase.CLOSED}),
    Phase.REAUTHENTICATING: frozenset({Phase.READY, Phase.CLOSING, Phase.CLOSED}),
}
_USABLE: Final = frozenset({Phase.CHECKING_VERSIONS, Phase.READY})


class MuteState(Enum):
    """Whether a connection is read, and the reasons for which it is not."""

    NOT_MUTED = "not muted"
    MUTED = "muted"
    MUTED_AND_RESPONSE_PENDING = "muted, response pending"
    MUTED_AND_THROTTLED = "muted, throttled"
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = "muted, throttled, response pending"


class MuteEvent(Enum):
    """An event that changes a server's muted connection."""

    REQUEST_RECEIVED = "request received"
    RESPONSE_SENT = "response sent"
    THROTTLE_STARTED = "throttle started"
    THROTTLE_ENDED = "throttle ended"


_MUTED: Final = {
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


class Connection:
    """A connection of a client or a server.

    Its phases; any may be passed over (plaintext has no handshake, an accepted connection is connected from the start,
    a server checks no versions), and a ready connection may authenticate again, while answers still arrive::

        CONNECTING -> HANDSHAKE -> AUTHENTICATING -> CHECKING_VERSIONS -> READY <-> REAUTHENTICATING
            |             |               |                 |               |              |
            +-------------+---------------+--------+--------+---------------+--------------+
                                                   v
                                                CLOSING -> CLOSED

    Args:
        connection_id: The connection's name.
        max_receive_size: Largest payload that may arrive, in bytes; ``UNLIMITED`` for none.
        pool: The pool that accounts for arriving payloads, None for the heap.
        window: The shared buffer for small frames; None reads each length by itself.
        checks_versions: Whether the peer is to be asked for its versions before the connection is ready.

    Attributes:
        phase: The connection's phase.
        reader: Cuts the arriving bytes into frames: read into ``reader.into``, then call ``received``.
        outgoing: The frame on its way out, None if there is none.
        in_flight: The requests that the peer has not answered yet.
        mute_state: Whether the connection is read.
        explicitly_muted: Whether the owner muted the connection, and not the pool.
        usable: Whether requests and answers may pass.
    """

    __slots__ = (
        "_pool", "checks_versions", "explicitly_muted", "id", "in_flight", "mute_state", "outgoing", "phase", "reader",
        "usable",
    )  # fmt: skip

    def __init__(
        self,
        connection_id: str,
        *,
        max_receive_size: int = UNLIMITED,
        pool: MemoryPool | None = None,
        window: Window | None = None,
        checks_versions: bool = False,
    ) -> None:
        self.id = connection_id
        self.checks_versions = checks_versions
        self.phase = Phase.CONNECTING
        self.usable = False
        self._pool = pool
        self.reader = FrameReader(max_receive_size, pool, window)
        self.outgoing: Send | None = None
        self.in_flight = InFlightRequests(connection_id)
        self.mute_state = MuteState.NOT_MUTED
        self.explicitly_muted = False

    def __repr__(self) -> str:
        return f"Connection({self.id}, {self.phase.value}, {self.mute_state.value})"

    def enter(self, phase: Phase) -> None:
        """Go on to a later phase.

        Raises:
            IllegalState: The present phase does not lead to that phase.
        """
        if phase is not self.phase:
            if phase not in _NEXT[self.phase]:
                raise IllegalState(f"connection {self.id} cannot be {phase.value}: it is {self.phase.value}")
            self.phase = phase
            self.usable = phase in _USABLE

    def established(self) -> None:
        """Note that handshake and authentication are over."""
        renewed = self.phase is Phase.REAUTHENTICATING
        self.enter(Phase.CHECKING_VERSIONS if self.checks_versions and not renewed else Phase.READY)

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

    @property
    def pieces(self) -> Sequence[Bytes]:
        """The buffers to write next."""
        return () if self.outgoing is None else self.outgoing.left

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
            self.mute()
        return payload

    @property
    def pool(self) -> MemoryPool | None:
        """The pool that accounts for arriving payloads."""
        return self._pool

    # ---- muting ------------------------------------------------------------------------------------------------------

    @property
    def muted(self) -> bool:
        """Whether the connection is not read."""
        return self.mute_state is not MuteState.NOT_MUTED

    def mute(self) -> None:
        """Stop reading."""
        if self.mute_state is MuteState.NOT_MUTED:
            self.mute_state = MuteState.MUTED

    def maybe_unmute(self) -> bool:
        """Read again, unless a response or a throttle is still due; returns whether the connection is read now."""
        if self.mute_state is MuteState.MUTED:
            self.mute_state = MuteState.NOT_MUTED
        return self.mute_state is MuteState.NOT_MUTED

    def handle_mute_event(self, event: MuteEvent) -> None:
        """Take an event of a muted connection.

        Raises:
            IllegalState: The event cannot happen in this state.
        """
        following = _MUTED.get((self.mute_state, event))
        if following is None:
            raise IllegalState(f"{event.value} cannot happen to channel {self.id}, which is {self.mute_state.value}")
        self.mute_state = following

    # ---- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> list[ClientRequest]:
        """End the connection: nothing is sent or received any more. Returns the unanswered requests, oldest first."""
        self.enter(Phase.CLOSED)
        self.outgoing = None
        self.reader.close()
        return self.in_flight.clear_all()
