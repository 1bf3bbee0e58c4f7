"""A TLS transport: ciphertext on the socket, plaintext above, the handshake without blocking.

OpenSSL works on two memory buffers here, never on the socket, so that each socket call, each pending byte and each
alert is visible to the transport. That costs the same CPU as letting OpenSSL read the socket itself.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from channel.errors import AuthenticationFailed
from channel.locks import new_lock

from .transport import EVENT_READ, EVENT_WRITE, PlaintextTransport, SocketTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from .transport import Bytes

_CIPHERTEXT: Final = 65_536
"""Bytes of ciphertext taken from the socket in one call."""

_thread = threading.local()
"""The buffer into which the connections of a thread read their ciphertext; OpenSSL copies it at once."""

_PLAINTEXT: Final = 65_536
"""Most bytes of plaintext that one ``write`` encrypts, as ciphertext stays in memory if the peer is slow."""

_RECORD: Final = 16_384
"""Largest plaintext of one TLS record: shorter buffers are joined up to this size, longer ones are not copied."""


class TlsState(Enum):
    """The state of a TLS connection."""

    NOT_INITIALIZED = "not initialized"
    HANDSHAKE = "handshake"
    HANDSHAKE_FAILED = "handshake failed"
    POST_HANDSHAKE = "post handshake"
    READY = "ready"
    CLOSING = "closing"


class TlsTransport(SocketTransport):
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
        state: The state of the connection.
        local, remote: The two ends, once connected.
    """

    __slots__ = (
        "_alert_error", "_ciphertext", "_context", "_ended", "_incoming", "_lock", "_may_have_more", "_outgoing",
        "_tls", "state",
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
        self._ciphertext: Bytes = b""
        self._ended = False
        self._may_have_more = False
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

    @property
    def version(self) -> str | None:
        """The protocol that was agreed on, for example ``TLSv1.3``; None before the handshake."""
        return self._tls.version() if self._context is None else None

    @property
    def cipher_information(self) -> tuple[str, str] | None:
        """The cipher suite and the protocol that were agreed on, by OpenSSL's names; None before the handshake."""
        found = self._tls.cipher() if self._context is None else None
        return None if found is None else (found[0], self._tls.version() or "unknown")

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
            if self.state is TlsState.HANDSHAKE_FAILED:
                return self._finish_alert()
            if self.ready:
                return 0
            if not self._connected:
                return EVENT_WRITE
            self.state = TlsState.HANDSHAKE
            # Read before writing: if the peer rejected us, its alert gives the reason, while writing would only fail.
            received = self._receive_ciphertext()
            ended = received < 0
            if self._context is not None:
                if not received:
                    return EVENT_READ
                self._begin()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_ciphertext()
                if ended:
                    raise ConnectionResetError("the peer closed the connection during the TLS handshake") from None
                return EVENT_WRITE if self._ciphertext else EVENT_READ
            except ssl.SSLError as e:
                return self._handshake_failed(e)
            self._send_ciphertext()
            if self._ciphertext:
                return EVENT_WRITE
            self.state = TlsState.POST_HANDSHAKE if self._tls.version() == "TLSv1.3" else TlsState.READY
            self._may_have_more = self._incoming.pending > 0
            return 0

    def _handshake_failed(self, error: ssl.SSLError) -> int:
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
            raise ConnectionResetError(f"the TLS handshake was cut off: {error.reason or error}") from error
        self.state = TlsState.HANDSHAKE_FAILED
        self._alert_error = AuthenticationFailed(f"TLS handshake with {self._peer}: {_reason(error)}")
        self._alert_error.__cause__ = error
        return self._finish_alert()

    def _finish_alert(self) -> int:
        """Send the alert with the reason; raise the failure once the alert has gone out, or cannot go out."""
        assert self._alert_error is not None
        with contextlib.suppress(OSError):
            self._send_ciphertext()
            if self._ciphertext:
                return EVENT_WRITE
        raise self._alert_error

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
            received = 0
            # Decrypting before there is anything to decrypt would cost an exception.
            if not (self._may_have_more or self._ended):
                received = self._receive_ciphertext()
                if received < 0:
                    raise EOFError("the peer has closed the connection")
            total = 0
            while True:
                try:
                    count = int(self._tls.read(len(buffer) - total, buffer[total:] if total else buffer))
                except ssl.SSLWantReadError:
                    self._may_have_more = False
                    count = -1
                except ssl.SSLZeroReturnError:
                    count = 0
                except ssl.SSLError as e:
                    if total:
                        self._may_have_more = True  # the next call meets the error again
                        return total
                    self._read_failed(e)
                if not count:  # the peer's close_notify, which the next call meets again
                    self._may_have_more = True
                    if total:
                        return total
                    raise EOFError("the peer has closed the connection")
                if count > 0:
                    total += count
                    self.state = TlsState.READY
                    if total == len(buffer):
                        self._may_have_more = True
                        return total
                    # A buffer that is not full holds the whole rest of a record.
                    if self._incoming.pending:
                        continue
                    self._may_have_more = False
                    if total and received < _CIPHERTEXT:
                        return total
                received = self._receive_ciphertext()
                if received < 0:
                    if total:
                        return total
                    raise EOFError("the peer has closed the connection")
                if not received:
                    self._send_ciphertext()  # reading may answer, for example a key update
                    return total

    def _read_failed(self, error: ssl.SSLError) -> NoReturn:
        if self.state is TlsState.POST_HANDSHAKE and not isinstance(error, (ssl.SSLEOFError, ssl.SSLSyscallError)):
            raise AuthenticationFailed(f"TLS handshake with {self._peer}: {_reason(error)}") from error
        raise ConnectionResetError(f"TLS connection with {self._peer}: {_reason(error)}") from error

    def write(self, buffers: Sequence[Bytes]) -> int:
        """Encrypt and send as much of the buffers as the socket takes now.

        While earlier ciphertext has not gone out, no more plaintext is taken, so that a slow peer costs bounded memory.

        Returns:
            The number of plaintext bytes taken; they may still be pending as ciphertext.

        Raises:
            OSError: The connection broke.
        """
        with self._lock:
            if self._ciphertext or self._outgoing.pending:
                self._send_ciphertext()
                if self._ciphertext:
                    return 0
            taken = 0
            try:
                for chunk in _records(buffers):
                    taken += self._tls.write(chunk)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as e:
                raise ConnectionResetError(f"TLS connection with {self._peer}: {_reason(e)}") from e
            self._send_ciphertext()
            return taken

    @property
    def has_pending_writes(self) -> bool:
        """Whether ciphertext has not gone out yet."""
        return bool(self._ciphertext) or self._outgoing.pending > 0

    def flush(self) -> None:
        """Send pending ciphertext.

        Raises:
            OSError: The connection broke.
        """
        with self._lock:
            self._send_ciphertext()

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether plaintext may be read without any event on the socket: not after a read that made no progress."""
        return self._may_have_more

    # ---- ciphertext --------------------------------------------------------------------------------------------------

    def _receive_ciphertext(self) -> int:
        """Read ciphertext; returns the number of bytes, 0 if there are none now, -1 at the end of the stream."""
        if self._ended:
            return -1
        try:
            buffer = _thread.buffer
        except AttributeError:
            buffer = _thread.buffer = memoryview(bytearray(_CIPHERTEXT))
        try:
            count = self._sock.recv_into(buffer)
        except BlockingIOError:
            return 0
        if not count:
            self._ended = True
            self._incoming.write_eof()
            return -1
        self._incoming.write(buffer[:count])
        return count

    def _send_ciphertext(self) -> None:
        while True:
            waiting = self._ciphertext or self._outgoing.read()
            if not waiting:
                return
            try:
                count = self._sock.send(waiting)
            except BlockingIOError:
                count = 0
            # On another error the connection is lost, and its pending bytes too.
            if count < len(waiting):
                self._ciphertext = memoryview(waiting)[count:]
                if not count:
                    return
            else:
                self._ciphertext = b""
                if not self._outgoing.pending:
                    return

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
        self._sock.close()

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
                self._sock.close()


Transport: TypeAlias = PlaintextTransport | TlsTransport
"""A channel's transport."""


def _records(buffers: Sequence[Bytes]) -> list[Bytes]:
    """Take at most ``_PLAINTEXT`` bytes of the buffers; neighbours that fit into one TLS record are joined."""
    total = sum(map(len, buffers))
    if total <= _RECORD:
        return [b"".join(buffers)] if total else []
    chunks: list[Bytes] = []
    small: list[Bytes] = []
    joined, left = 0, _PLAINTEXT
    for buffer in buffers:
        if len(buffer) > left:
            buffer = memoryview(buffer)[:left]
        if not buffer:
            continue
        left -= len(buffer)
        if joined + len(buffer) > _RECORD and small:
            chunks.append(b"".join(small))
            small, joined = [], 0
        if len(buffer) >= _RECORD:
            chunks.append(buffer)
        else:
            small.append(buffer)
            joined += len(buffer)
        if not left:
            break
    if small:
        chunks.append(b"".join(small))
    return chunks


def _reason(error: ssl.SSLError) -> str:
    """Describe an SSL error: OpenSSL's finding about the certificate, or its reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
