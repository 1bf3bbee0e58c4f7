"""The SASL authenticator of a channel: moves the frames of an authentication, and keeps the session that it begins."""

from __future__ import annotations

import contextlib
import os
import random
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from channel.errors import AuthenticationFailed, InvalidReceive

from .brief_threads import BriefThreads
from .frames import FrameReader
from .sasl import MOST_TOKEN_BYTES, SaslClient, SaslServer
from .transport import COMPUTING, EVENT_READ, EVENT_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tls import Transport
    from .transport import Bytes

_RENEW_FROM: Final = 0.85
_RENEW_SPREAD: Final = 0.10
"""A client renews its session at 85 to 95 % of its lifetime: early enough for the exchange, and not all at one time."""

_RENEWALS_APART_NS: Final = 1_000_000_000
"""A server lets a session be renewed once in a second."""


_computations: Final = BriefThreads("sasl-computation-thread", min(4, os.cpu_count() or 1))


class SaslAuthenticator:
    """Runs one side of a SASL exchange over a transport, without blocking.

    Before the first session a frame is read to its last byte and no further: the bytes behind it belong to the
    connection's first request or response. When the session is renewed, SASL frames arrive among the connection's
    other frames, and ``takes`` receives them.

    Args:
        transport: A transport whose handshake is over by the first call.
        side: The client's or the server's side of the exchange.

    Attributes:
        renewing: Whether the session is being renewed.
        renews_ns: The time from which a client renews its session before it sends a request; 0 for never.
        expires_ns: The time from which a server takes no request before the session is renewed; 0 for never.
        renewal_took_ns: The duration of the last renewal; None before the first.
        notify: Called from another thread when ``authenticate`` may go on after a computation. While it is None, tokens
            are computed within ``authenticate``.
    """

    __slots__ = (
        "_began_ns", "_computation", "_established", "_outgoing", "_reader", "_side", "_started", "_transport",
        "expires_ns", "notify", "renewal_took_ns", "renewing", "renews_ns",
    )  # fmt: skip

    def __init__(self, transport: Transport, side: SaslClient | SaslServer) -> None:
        self._transport = transport
        self._side: SaslClient | SaslServer | None = side
        self._outgoing: list[Bytes] = []
        self._reader = FrameReader(MOST_TOKEN_BYTES)
        self._started = False
        self._established = False
        self._began_ns: int | None = None
        self._computation: Future[bytes] | None = None
        self.notify: Callable[[], None] | None = None
        self.renewing = False
        self.renews_ns = 0
        self.expires_ns = 0
        self.renewal_took_ns: int | None = None

    @property
    def complete(self) -> bool:
        """Whether both sides have accepted each other, and the last frame of the exchange has gone out."""
        is_sending = bool(self._outgoing) or self._transport.has_pending_writes
        return self._side is not None and self._side.complete and not is_sending

    # ---- authenticating ----------------------------------------------------------------------------------------------

    def authenticate(self) -> int:
        """Go on with the exchange. A server whose client fails keeps the answer for ``send_failure``.

        Returns:
            Which of ``EVENT_READ | EVENT_WRITE`` the exchange waits for, or ``COMPUTING``; 0 when it is over.

        Raises:
            AuthenticationFailed: One side rejected the other.
            EOFError, OSError: The connection broke.
        """
        side = self._open_side()
        if not self._started:
            self._started = True
            self._send(side.start())
        while True:
            if isinstance(side, SaslServer) and side.failure is not None:
                raise side.failure
            if not self._sent():
                return EVENT_WRITE
            if side.complete:
                return 0
            if isinstance(side, SaslClient) and side.computation is not None:
                token = self._computed(side.computation)
                if token is None:
                    return COMPUTING
                self._send(side.computed(token))
                continue
            payload = None if self._established else self._received()
            if payload is None:
                return EVENT_READ
            self._send(side.receive(payload))

    def _computed(self, compute: Callable[[], bytes]) -> bytes | None:
        """Return the token of a computation, None while another thread computes it."""
        if self.notify is None:
            return compute()
        if self._computation is None:
            notify = self.notify
            self._computation = _computations.submit(compute)
            self._computation.add_done_callback(lambda _: notify())
        if not self._computation.done():
            return None
        done, self._computation = self._computation, None
        return done.result()

    def send_failure(self) -> None:
        """Send the failure to a client, as much of it as the transport takes at once."""
        with contextlib.suppress(OSError):
            self._sent()

    def _open_side(self) -> SaslClient | SaslServer:
        assert self._side is not None, "the authenticator is closed"
        return self._side

    def _send(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._outgoing += [len(payload).to_bytes(4, "big"), payload]

    def _sent(self) -> bool:
        while self._outgoing:
            count = self._transport.write(self._outgoing)
            if not count:
                return False
            while self._outgoing and count >= len(self._outgoing[0]):
                count -= len(self._outgoing.pop(0))
            if count:
                self._outgoing[0] = memoryview(self._outgoing[0])[count:]
        if self._transport.has_pending_writes:
            self._transport.flush()
        return not self._transport.has_pending_writes

    def _received(self) -> bytearray | None:
        """Return the next frame's payload; None while the frame is incomplete."""
        while count := self._transport.read_into(self._reader.into):
            try:
                payload = self._reader.received(count)
            except InvalidReceive as e:
                raise AuthenticationFailed(f"before the authentication is over, {e}") from None
            if payload is not None:
                return payload
        return None

    # ---- the session -------------------------------------------------------------------------------------------------

    @property
    def is_server(self) -> bool:
        """Whether this end has accepted the connection."""
        return isinstance(self._side, SaslServer)

    @property
    def user(self) -> str | None:
        """The user that this server has accepted; None at a client."""
        return self._side.user if isinstance(self._side, SaslServer) else None

    @property
    def renewable(self) -> bool:
        """Whether this is a server whose client can renew its session."""
        return isinstance(self._side, SaslServer) and self._side.renewable

    def begin_session(self, now_ns: int) -> bool:
        """Note that ``authenticate`` is over; returns whether a session has begun or was renewed.

        False after the answer to a SASL request that is not allowed now: the session stays as it was.
        """
        if self._established and not self.renewing:
            return False
        side = self._open_side()
        lifetime_ns = max(0, side.session_lifetime_ms) * 1_000_000  # as in Kafka, none where it is negative
        if lifetime_ns and isinstance(side, SaslServer):
            self.expires_ns = now_ns + lifetime_ns
        else:
            share = _RENEW_FROM + _RENEW_SPREAD * random.random()  # noqa: S311 - spreads load, keeps no secret
            self.renews_ns = now_ns + int(lifetime_ns * share) if lifetime_ns else 0
        if self.renewing and self._began_ns is not None:
            self.renewal_took_ns = now_ns - self._began_ns
        self._established = True
        self.renewing = False
        return True

    def renew(self, now_ns: int) -> None:
        """Begin to renew a client's session; ``authenticate`` goes on with the exchange."""
        self._began_ns = now_ns
        self.renewing = True
        self._send(self._open_side().start())

    def takes(self, payload: Bytes, now_ns: int) -> bool:
        """Take a frame if it renews the session; returns whether it did. ``authenticate`` sends the answer.

        Raises:
            AuthenticationFailed: The client is rejected now, or a server got a frame that is no SASL request.
        """
        side = self._open_side()
        if isinstance(side, SaslClient):
            if not self.renewing or not side.owns(payload):
                return False
        elif not self.renewing:
            if not side.owns(payload):
                return False
            may_renew = self._began_ns is None or now_ns - self._began_ns >= _RENEWALS_APART_NS
            if not side.begins(payload) or not may_renew:
                if self.expired(now_ns):
                    return False
                self._send(side.reject(payload))
                return True
            self.renew(now_ns)
        self._send(side.receive(payload))
        return True

    def expired(self, now_ns: int) -> bool:
        """Whether the session has lasted longer than the server allows."""
        return 0 < self.expires_ns < now_ns

    def close(self) -> None:
        """Forget this side of the exchange, and its secrets."""
        self._side = None
        if self._computation is not None:
            self._computation.cancel()
        self._outgoing.clear()
        self._reader.close()
