"""SASL over a transport: moves the frames of an authentication before any request passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.errors import AuthenticationFailed

from .sasl import SaslClient, SaslServer
from .transport import EVENT_READ, EVENT_WRITE

if TYPE_CHECKING:
    from .transport import Bytes, Transport

__all__ = ["SaslAuthenticator"]

_MOST_BYTES: Final = 65_536
"""A peer that is not known yet may announce no longer frame."""


class SaslAuthenticator:
    """Lets one side of SASL talk over a transport, without blocking.

    A frame is read to its last byte and no further: what follows belongs to the connection's first request or answer. A
    server that refuses its client sends the answer that says so before it fails.

    Args:
        transport: A transport whose handshake is over by the first call.
        side: The client's or the server's side of the exchange.
    """

    __slots__ = ("_frame", "_into", "_outgoing", "_side", "_started", "_transport")

    def __init__(self, transport: Transport, side: SaslClient | SaslServer) -> None:
        self._transport = transport
        self._side: SaslClient | SaslServer | None = side
        self._outgoing: list[Bytes] = []
        self._started = isinstance(side, SaslServer)
        self._frame = bytearray(4)
        self._into = memoryview(self._frame)

    @property
    def complete(self) -> bool:
        """Whether both sides have accepted each other, and all that proves it has gone out."""
        return self._side is not None and self._side.complete and not self._is_sending

    @property
    def _is_sending(self) -> bool:
        return bool(self._outgoing) or self._transport.has_pending_writes

    def authenticate(self) -> int:
        """Go on.

        Returns:
            Which of ``EVENT_READ | EVENT_WRITE`` it waits for; 0 when it is over.

        Raises:
            AuthenticationFailed: One side does not accept the other.
            EOFError, OSError: The connection broke.
        """
        side = self._side
        assert side is not None, "authenticate() after close()"
        if isinstance(side, SaslClient) and not self._started:
            self._started = True
            self._send(side.start())
        while True:
            if not self._sent():
                return EVENT_WRITE
            if isinstance(side, SaslServer) and side.failure is not None:
                raise side.failure
            if side.complete:
                return 0
            payload = self._received()
            if payload is None:
                return EVENT_READ
            self._send(side.receive(payload))

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

    def _received(self) -> bytes | None:
        """The next frame's payload; None if it is not whole yet."""
        while self._into:
            count = self._transport.read_into(self._into)
            if not count:
                return None
            self._into = self._into[count:]
            if not self._into and len(self._frame) == 4:
                size = int.from_bytes(self._frame, "big", signed=True)
                if not 0 <= size <= _MOST_BYTES:
                    raise AuthenticationFailed(f"a frame of {size} bytes before the authentication is over")
                whole = bytearray(4 + size)
                whole[:4] = self._frame
                self._frame, self._into = whole, memoryview(whole)[4:]
        payload = bytes(self._frame[4:])
        self._frame = bytearray(4)
        self._into = memoryview(self._frame)
        return payload

    def close(self) -> None:
        """Forget the side, and with it its secrets."""
        self._side = None
        self._outgoing.clear()
