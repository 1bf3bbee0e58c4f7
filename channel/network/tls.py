"""A TLS transport: ciphertext on the socket, plaintext above, the handshake without blocking.

OpenSSL works on two memory buffers here, never on the socket, so that each socket call, each pending byte and each
alert is visible to the transport. That costs the same CPU as letting OpenSSL read the socket itself.
"""

from __future__ import annotations

import contextlib
import ssl
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from channel.errors import AuthenticationFailed
from channel.locks import guards, new_lock

from .transport import EVENT_READ, EVENT_WRITE, PlaintextTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from .transport import Bytes

_CIPHERTEXT: Final = 65_536
"""Most bytes of ciphertext that are taken from the socket in one call."""

_RECORD: Final = 16_709
"""Bytes of the largest TLS record: a smaller buffer is not read into directly."""

_PLAINTEXT: Final = 65_536
"""Most bytes of plaintext that one ``write`` encrypts, as ciphertext stays in memory if the peer is slow."""

_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors of a connection that broke, whatever the two ends think of each other."""

_receive, _send = PlaintextTransport.read_into, PlaintextTransport.write


class TlsState(Enum):
    """The state of a TLS connection."""

    NOT_INITIALIZED = "not initialized"
    HANDSHAKE = "handshake"
    HANDSHAKE_FAILED = "handshake failed"
    POST_HANDSHAKE = "post handshake"
    READY = "ready"
    CLOSING = "closing"


class TlsTransport(PlaintextTransport):
    """One TLS connection over a non-blocking socket. Safe for a reading and a writing thread at once.

    ``HANDSHAKE_FAILED`` lasts until the alert with the reason has been sent to the peer. ``POST_HANDSHAKE`` is TLS 1.3
    until the first data arrives: only then is it certain that the peer accepts our certificate, so an alert before the
    first data is a failed authentication.

    Args:
        sock: A non-blocking socket, connecting or connected.
        context: Certificates, trusted authorities, versions.
        server_side: Whether this end accepted the connection.
        server_hostname: The server's name for SNI and for the host name check; clients only.
        connected: Whether the socket is connected already.

    Attributes:
        local, remote: The two ends, once connected.
        has_pending_writes: Whether ciphertext has not gone out yet.
        has_bytes_buffered: Whether plaintext may be read without any event on the socket: not after a read that made no
            progress.
    """

    __slots__ = (
        "_alert_error", "_context", "_incoming", "_lock", "_outgoing", "_tls", "has_bytes_buffered",
        "has_pending_writes", "state",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        connected: bool = False,
    ) -> None:
        super().__init__(sock, connected=connected)
        self._context: ssl.SSLContext | None = context
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject
        if not server_side:
            self._begin(server_hostname)
        self._lock = new_lock("TLS connection")  # OpenSSL's connection is for one thread at a time
        self.has_pending_writes = False
        self.has_bytes_buffered = False
        self._alert_error: AuthenticationFailed | None = None
        self.state = TlsState.NOT_INITIALIZED

    def _begin(self, server_hostname: str | None = None) -> None:
        """Make OpenSSL's connection; it takes 48 KiB, so a server makes it when its client has sent something."""
        assert self._context is not None
        is_server = self._context.protocol is ssl.PROTOCOL_TLS_SERVER
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, is_server, server_hostname)
        self._context = None

    def __repr__(self) -> str:
        return f"TlsTransport({self.remote[0]}:{self.remote[1]}, {self.state.value})"

    @property
    def ready(self) -> bool:
        """Whether the handshake is over and payload may pass."""
        return self.state is TlsState.READY or self.state is TlsState.POST_HANDSHAKE

    @property
    def peer_certificate(self) -> dict[str, object] | None:
        """The peer's verified certificate as ``ssl`` decodes it; None if it sent none."""
        return dict(self._tls.getpeercert() or {}) or None if self._context is None else None

    # ---- handshake ---------------------------------------------------------------------------------------------------

    def handshake(self) -> int:
        """Go on with the handshake.

        Returns:
            Which of ``EVENT_READ | EVENT_WRITE`` the handshake waits for; 0 when it is over.

        Raises:
            AuthenticationFailed: One side rejected the other, and the alert has been sent to the peer.
            OSError: The connection broke; connecting again may help.
        """
        with self._lock:
            if self._alert_error is not None:
                return self._finish_alert(self._alert_error)
            if self.ready:
                return 0
            if not self._connected:
                return EVENT_WRITE
            self.state = TlsState.HANDSHAKE
            # Read before writing: if the peer rejected us, its alert gives the reason, while writing would only fail.
            room, received, ended = memoryview(bytearray(_RECORD)), 0, False
            try:
                received = _receive(self, room)
            except EOFError:
                ended = True
            self._incoming.write(room[:received])
            if self._context is not None:
                if not (received or ended):
                    return EVENT_READ
                self._begin()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_ciphertext()
                if ended:
                    raise ConnectionResetError("the peer closed the connection during the TLS handshake") from None
                return EVENT_WRITE if self.has_pending_writes else EVENT_READ
            except ssl.SSLError as e:
                if isinstance(e, _CUT_OFF):
                    raise ConnectionResetError(f"the TLS handshake was cut off: {e.reason or e}") from e
                self.state = TlsState.HANDSHAKE_FAILED
                self._alert_error = AuthenticationFailed(f"TLS handshake with {self._peer}: {_reason(e)}")
                self._alert_error.__cause__ = e
                return self._finish_alert(self._alert_error)
            self._send_ciphertext()
            if self.has_pending_writes:
                return EVENT_WRITE
            version, cipher = self._tls.version() or "unknown", self._tls.cipher()
            self.cipher_information = (cipher[0], version) if cipher is not None else None
            self.state = TlsState.POST_HANDSHAKE if version == "TLSv1.3" else TlsState.READY
            self.has_bytes_buffered = self._incoming.pending > 0
            return 0

    def _finish_alert(self, error: AuthenticationFailed) -> int:
        """Send the alert with the reason; raise the failure once the alert has gone out, or cannot go out."""
        with contextlib.suppress(OSError):
            self._send_ciphertext()
            if self.has_pending_writes:
                return EVENT_WRITE
        raise error

    @property
    def _peer(self) -> str:
        return f"{self.remote[0]}:{self.remote[1]}"

    # ---- payload -----------------------------------------------------------------------------------------------------

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt the bytes that have arrived, in however many records.

        Returns:
            The number of plaintext bytes written to the buffer; 0 if none has arrived yet.

        Raises:
            AuthenticationFailed: The peer rejected our certificate (in TLS 1.3 it does so after the handshake).
            EOFError: The peer will send no more.
            OSError: The connection broke, or the peer broke the protocol.
        """
        with self._lock:
            total, received, room = 0, 0, buffer[:0]
            try:
                while total < len(buffer):
                    rest = buffer[total:]
                    if not self.has_bytes_buffered:
                        if received < len(room):  # the socket had no more
                            break
                        # The ciphertext may lie where its plaintext will: OpenSSL copies it at once.
                        room = rest[:_CIPHERTEXT] if len(rest) >= _RECORD else memoryview(bytearray(_RECORD))
                        received = _receive(self, room)
                        if not received:
                            break
                        self._incoming.write(room[:received])
                    total += self._decrypt(rest)
                    self.has_bytes_buffered = self._incoming.pending > 0 or total == len(buffer)
            except (EOFError, OSError) as e:
                self.has_bytes_buffered = total > 0  # the next call meets the end, or the error, again
                if not total and isinstance(e, ssl.SSLError):
                    raise self._read_error(e) from e
                if not total:
                    raise
            if not total:
                self._send_ciphertext()  # reading may answer, for example a key update
            return total

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt the next record, or as much of it as the buffer takes; returns 0 if it has not arrived whole."""
        try:
            count: Any = self._tls.read(len(buffer), buffer)
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:
            count = 0
        if not count:
            raise EOFError("the peer has closed the connection")
        self.state = TlsState.READY
        return int(count)

    def _read_error(self, error: ssl.SSLError) -> Exception:
        if self.state is TlsState.POST_HANDSHAKE and not isinstance(error, _CUT_OFF):
            return AuthenticationFailed(f"TLS handshake with {self._peer}: {_reason(error)}")
        return ConnectionResetError(f"TLS connection with {self._peer}: {_reason(error)}")

    def write(self, buffers: Sequence[Bytes]) -> int:
        """Encrypt and send as much of the buffers as the socket takes now.

        While earlier ciphertext has not gone out, no more plaintext is taken, so that a slow peer costs bounded memory.

        Returns:
            The number of plaintext bytes taken; they may still be pending as ciphertext.

        Raises:
            OSError: The connection broke.
        """
        with self._lock:
            if self.has_pending_writes:
                self._send_ciphertext()
                if self.has_pending_writes:
                    return 0
            chunk = _joined(buffers)
            try:
                taken = self._tls.write(chunk) if chunk else 0
            except ssl.SSLError as e:
                raise ConnectionResetError(f"TLS connection with {self._peer}: {_reason(e)}") from e
            self._send_ciphertext()
            return taken

    def flush(self) -> None:
        """Send pending ciphertext.

        Raises:
            OSError: The connection broke.
        """
        with self._lock:
            self._send_ciphertext()

    # ---- ciphertext --------------------------------------------------------------------------------------------------

    def _send_ciphertext(self) -> None:
        """Send what OpenSSL has written; the rest that the socket does not take now is sent first the next time."""
        ciphertext = self._outgoing.read()
        if not ciphertext:
            return
        count = _send(self, (ciphertext,))  # an error ends the connection, and its pending bytes too
        self.has_pending_writes = count < len(ciphertext)
        if self.has_pending_writes:
            self._outgoing.write(memoryview(ciphertext)[count:])

    # ---- end ---------------------------------------------------------------------------------------------------------

    def end_writing(self) -> None:
        """Tell the peer that no more will be sent.

        Raises:
            OSError: The connection broke.
        """
        with self._lock:
            with contextlib.suppress(ssl.SSLError):  # OpenSSL waits for the peer's close_notify, which may never come
                self._tls.unwrap()
            self._send_ciphertext()

    def abandon(self) -> None:
        """Close a forked child's copy of the descriptor, without sending anything to the peer."""
        self.state = TlsState.CLOSING
        super().close()

    def close(self) -> None:
        """Send a close_notify if that needs no waiting, and close the socket; harmless if it is closed."""
        with self._lock:
            if self.state is TlsState.CLOSING:
                return
            established = self.ready
            self.state = TlsState.CLOSING
            try:
                if established and not self.has_pending_writes:
                    with contextlib.suppress(OSError, ValueError):  # SSLError is an OSError
                        self._tls.unwrap()
                with contextlib.suppress(OSError):
                    self._send_ciphertext()
            finally:
                super().close()


guards(TlsTransport, "_lock", "_alert_error", "_incoming", "_outgoing")


Transport: TypeAlias = PlaintextTransport | TlsTransport
"""A channel's transport."""


def _joined(buffers: Sequence[Bytes]) -> Bytes:
    """Return the first ``_PLAINTEXT`` bytes of the buffers as one; those of a single buffer are not copied."""
    if len(buffers) == 1:
        return memoryview(buffers[0])[:_PLAINTEXT]
    if sum(map(len, buffers)) <= _PLAINTEXT:
        return b"".join(buffers)
    pieces: list[memoryview] = []
    room = _PLAINTEXT
    for buffer in buffers:
        pieces.append(memoryview(buffer)[:room])
        room -= len(pieces[-1])
        if not room:
            break
    return b"".join(pieces)


def _reason(error: ssl.SSLError) -> str:
    """Describe an SSL error: OpenSSL's finding about the certificate, or its reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
