"""A listening socket, its accepted connections, and their requests. ``SocketServer`` makes and runs them."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from channel.errors import IllegalState
from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .channel import Channel, Receive
    from .selector import Selector
    from .transport import Address, Bytes

__all__ = ["AcceptedConnection", "Handler", "Listener", "NetworkThread", "ReceivedRequest"]

_log = get_logger(__name__)

_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_PAUSE_MS: Final = 100


class NetworkThread(Protocol):
    """The part of a server that its listeners and requests call.

    Attributes:
        listeners: The open listeners.
        selector: Moves the bytes.
    """

    listeners: list[Listener]
    selector: Selector

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the server's thread, and return its result."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the server's thread."""

    def call_later(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Call a function on the server's thread after a delay."""

    def accepted(self, listener: Listener, sock: socket.socket, remote: Address) -> None:
        """Take an accepted socket."""

    def channel(self, connection: AcceptedConnection) -> Channel | None:
        """Return the channel of a connection, which may have ended with requests still to be read."""

    def respond(self, connection: AcceptedConnection, payload: Sequence[Bytes]) -> None:
        """Send an answer."""

    def read_on(self, connection: AcceptedConnection) -> None:
        """Read the next request."""

    def close_connection(self, connection: AcceptedConnection) -> None:
        """Close a connection."""


class AcceptedConnection:
    """An accepted connection.

    Attributes:
        id: The connection's name: both addresses and a number.
        listener: The listener that accepted it.
        local, remote: The addresses of the two ends.
        context: The handler's own data for the connection, e.g. the client's software name.
        principal: Who the peer is; see ``principal_of``. Known from the first request on.
    """

    __slots__ = ("context", "id", "in_work", "listener", "local", "principal", "receive", "remote")

    def __init__(self, connection_id: str, listener: Listener, local: Address, remote: Address) -> None:
        self.id = connection_id
        self.listener = listener
        self.local = local
        self.remote = remote
        self.context: Any = None
        self.principal = ""
        self.in_work = False
        self.receive: Receive | None = None

    def __str__(self) -> str:
        return self.id


class ReceivedRequest:
    """A received request frame. Exactly one of its methods must be called, from any thread, at any time.

    Until then its connection is not read, so that not even its end is noticed, and its bytes count against the budget.

    Attributes:
        connection: The connection that it arrived on.
        payload: Header and body, without the length.
        received_ns: The time of its arrival, in ns of the server's clock.
    """

    __slots__ = ("_answered", "_server", "connection", "payload", "received_ns")

    def __init__(
        self, server: NetworkThread, connection: AcceptedConnection, payload: bytearray, received_ns: int
    ) -> None:
        self._server = server
        self._answered = False
        self.connection = connection
        self.payload = payload
        self.received_ns = received_ns

    def respond(self, payload: Sequence[Bytes]) -> None:
        """Send the response: header and body in pieces, without the length; dropped if the connection has ended.

        Raises:
            IllegalState: It has been answered already.
        """
        self._answer()
        self._server.call_soon(lambda: self._server.respond(self.connection, payload))

    def no_response(self) -> None:
        """Read the connection's next request, without a response to this one.

        Raises:
            IllegalState: It has been answered already.
        """
        self._answer()
        self._server.call_soon(lambda: self._server.read_on(self.connection))

    def close_connection(self) -> None:
        """Close the connection without a response, as a broker does if it cannot read a request.

        Raises:
            IllegalState: It has been answered already.
        """
        self._answer()
        self._server.call_soon(lambda: self._server.close_connection(self.connection))

    def _answer(self) -> None:
        if self._answered:
            raise IllegalState(f"a request of {self.connection} has been answered already")
        self._answered = True


Handler: TypeAlias = "Callable[[ReceivedRequest], None]"
"""Takes each request, on the server's thread; an exception closes the connection."""


class Listener:
    """A listening socket and its accepted connections. ``SocketServer.listen`` makes it.

    Attributes:
        name: The listener's name, e.g. ``PLAINTEXT``.
        host, port: The listening address.
        connections: The open connections, by id (for the server's thread alone; other threads may take its ``len``).
    """

    def __init__(self, server: NetworkThread, sock: socket.socket, handler: Handler, name: str) -> None:
        self._server = server
        self._sock = sock
        self._listening = False
        self.handler = handler
        self.name = name
        self.host, self.port = sock.getsockname()[:2]
        self.connections: dict[str, AcceptedConnection] = {}
        self.paused = False
        self.closed = False

    def __str__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"

    def pause(self) -> None:
        """Stop accepting and reading until ``resume``; responses still go out. Returns once the pause has begun."""
        self._server.call(self._pause)

    def resume(self) -> None:
        """Accept and read again."""
        self._server.call(self._resume)

    def close(self) -> None:
        """Close the socket and all its connections at once, requests answered or not, as at the end of a process."""
        self._server.call(self._close)

    def abandon(self) -> None:
        """Close a forked child's copy of the socket."""
        self.closed = True
        self._sock.close()

    def _pause(self) -> None:
        self.paused = True
        self._watch(False)
        for connection in self._idle():
            self._server.selector.mute(connection.id)

    def _resume(self) -> None:
        self.paused = False
        self._watch(not self.closed)
        for connection in self._idle():
            self._server.selector.unmute(connection.id)

    def _idle(self) -> list[AcceptedConnection]:
        """List the connections without an unanswered request, except those that ended in the present poll."""
        return [c for c in self.connections.values() if not c.in_work and self._server.channel(c) is not None]

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._watch(False)
        self._sock.close()
        for connection in list(self.connections.values()):
            self._server.close_connection(connection)
        self._server.listeners.remove(self)

    def _watch(self, wanted: bool) -> None:
        if wanted == self._listening:
            return
        self._listening = wanted
        if wanted:
            self._server.selector.listen(self._sock, self._accept)
        else:
            self._server.selector.unlisten(self._sock)

    def _accept(self) -> None:
        """Accept all waiting connections. Without free descriptors, pause: the event would repeat at once."""
        while not self.paused and not self.closed:
            try:
                sock, remote = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno in _NO_DESCRIPTORS:
                    _log.error("%s cannot accept: %s; raise the limit of open files", self, e)
                    self._watch(False)
                    self._server.call_later(_ACCEPT_PAUSE_MS, lambda: self._watch(not self.paused and not self.closed))
                    return
                continue  # the client has disconnected
            self._server.accepted(self, sock, (str(remote[0]), int(remote[1])))
