"""A socket server: any number of listening sockets and their connections on one thread.

The handler gets a connection's requests one at a time, in order: the next is read after the response has gone out.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import socket
import threading
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import IllegalState
from channel.logs import get_logger
from channel.threads import Startable, StoppableThread

from . import sockets
from .frames import MemoryPool, Send
from .selector import Selector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .channel import Channel, Receive
    from .recorder import Recorder
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder
    from .transport import Address, Bytes

_log = get_logger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a peer that has not authenticated."""

_SHORT: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip


def principal_of(channel: Channel) -> str:
    """Return ``User:`` and the SASL user, else the subject of the peer's certificate, else ``ANONYMOUS``.

    Kafka's default: the subject is in the form of RFC 2253, ``CN=kafka,OU=ops,O=example``.
    """
    if channel.authenticator is not None:
        user: str | None = channel.authenticator.user
        return ANONYMOUS if user is None else f"User:{user}"
    certificate = getattr(channel.transport, "peer_certificate", None)
    return f"User:{_subject(certificate)}" if certificate else ANONYMOUS


def _subject(certificate: dict[str, Any]) -> str:
    names = ("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in rdn) for rdn in certificate.get("subject", ()))
    return ",".join(reversed(list(names)))


def _escaped(value: str) -> str:
    text = "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text


def serialized_principal(principal: str) -> bytes:
    """Return a principal in Kafka's form of version 0: type, name, no delegation token, no tags.

    >>> serialized_principal("User:ANONYMOUS")
    b'\\x00\\x00\\x05User\\nANONYMOUS\\x00\\x00'
    """
    from kproto.reference.primitives import COMPACT_LENGTH  # with construct, which few brokers need

    kind, _, name = principal.partition(":")
    texts = (kind.encode(), name.encode())
    return b"\0\0" + b"".join(COMPACT_LENGTH.build(len(text)) + text for text in texts) + b"\0\0"


_ACCEPT_PAUSE_MS: Final = 100


@dataclass(eq=False, slots=True)
class AcceptedConnection:
    """An accepted connection.

    Attributes:
        id: The connection's name: both addresses and a number.
        listener: The listener that accepted it.
        remote: The address of the peer.
        principal: The principal of the peer; see ``principal_of``. Known from the first request on.
        receive: The unanswered request, None without one.
    """

    id: str
    listener: ListeningSocket
    remote: Address
    principal: str = ""
    receive: Receive | None = None

    def __str__(self) -> str:
        return self.id


class ReceivedRequest:
    """A received request frame. Exactly one of its methods must be called, from any thread, at any time.

    Until then its connection is not read, so that not even its end is noticed, and its bytes count against the budget.

    Attributes:
        payload: Header and body, without the length.
    """

    __slots__ = ("_answered", "_server", "connection", "payload")

    def __init__(self, server: SocketServer, connection: AcceptedConnection, payload: bytearray) -> None:
        self._server = server
        self._answered = False
        self.connection = connection
        self.payload = payload

    def respond(self, payload: Sequence[Bytes]) -> None:
        """Send the response: header and body in pieces, without the length; dropped if the connection has ended.

        Raises:
            IllegalState: It has been answered already.
        """
        self._end(partial(self._server.respond, self.connection, payload))

    def complete(self) -> None:
        """Send no response and read the connection's next request, as its sender expects none.

        Raises:
            IllegalState: It has been answered already.
        """
        self._end(partial(self._server.read_next, self.connection))

    def close_connection(self) -> None:
        """Close the connection without a response, as a broker does if it cannot read a request.

        Raises:
            IllegalState: It has been answered already.
        """
        self._end(partial(self._server.close_connection, self.connection))

    def _end(self, then: Callable[[], None]) -> None:
        if self._answered:
            raise IllegalState(f"a request of {self.connection} has been answered already")
        self._answered = True
        self._server.call_soon(then)


Handler: TypeAlias = "Callable[[ReceivedRequest], None]"
"""Takes each request, on the server's thread; an exception closes the connection."""


class ListeningSocket:
    """A listening socket and its accepted connections. ``SocketServer.listen`` makes it.

    Attributes:
        name: The listener's name, e.g. ``PLAINTEXT``.
        host, port: The listening address.
        connections: The open connections, by id (for the server's thread alone; other threads may take its ``len``).
    """

    def __init__(self, server: SocketServer, sock: socket.socket, handler: Handler, name: str) -> None:
        self._server = server
        self._sock = sock
        self._acceptor = sockets.Acceptor(sock, server.make_room)
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
        self._server.call(partial(self._set_paused, True))

    def resume(self) -> None:
        """Accept and read again."""
        self._server.call(partial(self._set_paused, False))

    def close(self) -> None:
        """Close the socket and all its connections at once, requests answered or not, as at the end of a process."""
        self._server.call(self._close)

    def _set_paused(self, paused: bool) -> None:
        self.paused = paused
        self._watch()
        change = self._server.selector.mute if paused else self._server.selector.unmute
        for connection in self.connections.values():
            # A connection with an unanswered request is muted; one that ended in the present poll has no channel.
            if connection.receive is None and self._server.selector.channel(connection.id) is not None:
                change(connection.id)

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._watch()
        self._sock.close()
        for connection in list(self.connections.values()):
            self._server.close_connection(connection)
        self._server.listeners.remove(self)

    def _watch(self, wanted: bool = True) -> None:
        """Accept connections, unless the socket is paused or closed, or this is not wanted."""
        wanted = wanted and not self.paused and not self.closed
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
                sock, remote = self._acceptor.accept()
            except BlockingIOError:
                return
            except sockets.OutOfDescriptors:
                self._watch(False)
                self._server.call_later(_ACCEPT_PAUSE_MS, self._watch)
                return
            except OSError:
                continue  # the client has disconnected, or was refused
            self._server.accepted(self, sock, remote)


_STOP_MS: Final = 10_000
_POLL_FAILED_MS: Final = 10


class SocketServer(StoppableThread, Startable):
    """Accepts connections, receives requests and sends responses on one thread, from ``start`` to ``close``.

    Args:
        name: Names the thread.
        config: Limits: ``max.connections``, ``max.connections.per.ip``, ``socket.request.max.bytes``,
            ``queued.max.request.bytes``, ``connections.max.idle.ms``; of ``security``:
            ``connection.failed.authentication.delay.ms``.
        clock: The source of time.
        recorder: Records every frame.
        channel_builder: Makes the transports of accepted sockets.

    Attributes:
        selector: Moves the bytes.
    """

    _life_level = logging.DEBUG

    def __init__(
        self,
        name: str,
        *,
        config: ChannelConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: SelectorMetrics | None = None,
        recorder: Recorder | None = None,
        channel_builder: ChannelBuilder = sockets.plaintext_channel,
    ) -> None:
        super().__init__(f"{name}-network-thread")
        self._config = config = config or ChannelConfig()
        self._clock = clock
        pool = None
        if config.queued_max_request_bytes > 0:
            pool = MemoryPool(config.queued_max_request_bytes, config.socket_request_max_bytes)
        self.selector = Selector(
            max_receive_size=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            max_stall_ms=config.receive_stall_max_ms,
            failed_authentication_delay_ms=config.security.connection_failed_authentication_delay_ms,
            clock=clock,
            metrics=metrics,
            pool=pool,
            channel_builder=channel_builder,
            recorder=recorder,
        )
        self.listeners: list[ListeningSocket] = []
        self._connections: dict[str, AcceptedConnection] = {}
        self._without_request: dict[str, AcceptedConnection] = {}  # the oldest first
        self._per_ip: Counter[str] = Counter()
        self._numbers = itertools.count()
        self._tasks: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._has_ended = False

    # ---- starting and ending -----------------------------------------------------------------------------------------

    def listen(
        self, handler: Handler, host: str = "127.0.0.1", port: int = 0, *, name: str = "PLAINTEXT"
    ) -> ListeningSocket:
        """Open a listening socket, before or after ``start``.

        Args:
            handler: Takes the requests of its connections.
            host: An address or a name of this machine.
            port: 0 for any free port, which ``ListeningSocket.port`` shows.
            name: The listener's name.

        Raises:
            ConfigurationError: The port is taken, or the host is not this machine's.
        """
        sock = sockets.listening_socket(host, port)
        listener = ListeningSocket(self, sock, handler, name)
        self.listeners.append(listener)
        self.call(listener._watch)
        return listener

    def close(self, timeout_s: float | None = _STOP_MS / 1000) -> bool:
        """Close every socket and wait for the thread to end. Harmless if closed.

        Returns:
            Whether the thread has ended within this time. If not, a line in the log says so, and it ends after the
            handler that blocks it.
        """
        return self.shutdown(timeout_s)

    def interrupt(self) -> None:
        """End a waiting poll."""
        self.selector.wakeup()

    def ended(self) -> None:
        """Make the last calls, and close every socket."""
        while self._tasks:
            self._guarded(self._tasks.popleft())
        for listener in list(self.listeners):
            self._guarded(listener._close)
        self._timers.clear()
        self.selector.close()
        self._has_ended = True

    def forget_in_child(self) -> None:
        """Count as closed in a forked child: connections and the thread are the parent's."""
        super().forget_in_child()
        if not self._has_ended:
            self._has_ended = True
            self.selector.abandon()
            for listener in self.listeners:
                listener.closed = True
                listener._sock.close()

    # ---- calls into the thread ---------------------------------------------------------------------------------------

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the server's thread: at once on that thread, soon from any other."""
        if threading.current_thread() is self:
            function()
        else:
            self._tasks.append(function)
            self.selector.wakeup()

    def call_later(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Call a function on the server's thread after a delay; never if the server is closed before."""
        due = self._clock.nanoseconds() + delay_ms * 1_000_000
        self.call_soon(lambda: heapq.heappush(self._timers, (due, next(self._numbers), function)))

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the server's thread, once, and return its result or raise its error."""
        if not self.is_alive() or threading.current_thread() is self:
            function()
            return
        done = threading.Event()
        failures: list[Exception] = []

        def run() -> None:
            try:
                function()
            except Exception as e:  # noqa: BLE001  (told to who called)
                failures.append(e)
            finally:
                done.set()

        self.call_soon(run)
        for _ in range(_STOP_MS // 100):
            is_alive = self.is_alive()  # checked first: an ending thread still makes the queued calls
            if done.wait(0.1 if is_alive else 0):
                if failures:
                    raise failures[0]
                return
            if not is_alive:
                function()
                return
        raise IllegalState(f"{self.name} does not answer: a handler blocks it")

    # ---- the thread --------------------------------------------------------------------------------------------------

    def do_work(self) -> None:
        """Poll once: hand out what has arrived, make the calls that are due, and send what can be sent."""
        selector = self.selector
        try:
            selector.poll(self._next_timer_ms())
        except Exception:  # noqa: BLE001
            # Neither one connection nor the system may end the service of all the others.
            _log.exception("a poll on %s failed", self.name)
            self._clock.sleep(_POLL_FAILED_MS)  # the poll may fail again at once
        for receive in selector.completed_receives:
            connection = self._connections.get(receive.source)
            if connection is not None:
                self._received(connection, receive)
        while self._tasks:
            self._guarded(self._tasks.popleft())
        while self._timers and self._timers[0][0] <= self._clock.nanoseconds():
            self._guarded(heapq.heappop(self._timers)[2])
        # Responses of this round go out now; where one is complete, its connection is read on: one change of events.
        selector.write_now()
        for send in selector.completed_sends:
            connection = self._connections.get(send.destination)
            if connection is not None:
                self.read_next(connection)
        for channel_id in selector.disconnected:  # by the poll, or by a write that failed just now
            self._forget(channel_id)

    def _next_timer_ms(self) -> int:
        if self._tasks:
            return 0
        return max(0, -(-(self._timers[0][0] - self._clock.nanoseconds()) // 1_000_000)) if self._timers else FOREVER

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # noqa: BLE001
            # One failing call must not end the service of all connections.
            _log.exception("a call on %s failed", self.name)

    # ---- connections -------------------------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """End the oldest connection without any request so far, else the least recently used; false if there is none.

        Whoever opens connections and sends nothing whole thus ends none that is in use.
        """
        connection = next(iter(self._without_request.values()), None)
        if connection is None:
            channel = self.selector.lowest_priority_channel()
            connection = None if channel is None else self._connections.get(channel.id)
        if connection is None:
            return False
        self.close_connection(connection)
        return True

    def accepted(self, listener: ListeningSocket, sock: socket.socket, remote: Address) -> None:
        """Take an accepted socket, or close it if there are too many connections."""
        full = len(self._connections) >= self._config.max_connections
        if full or self._per_ip[remote[0]] >= self._config.max_connections_per_ip:
            _log.debug("closed %s at %s: too many connections", remote, listener)
            sock.close()
            return
        connection_id = f"{listener.host}:{listener.port}-{remote[0]}:{remote[1]}-{next(self._numbers)}"
        try:
            self.selector.register(connection_id, sock, listener.name)
        except OSError as e:
            _log.debug("%s left before it was accepted: %s", remote, e)
            return
        connection = AcceptedConnection(connection_id, listener, remote)
        self._connections[connection_id] = listener.connections[connection_id] = connection
        self._without_request[connection_id] = connection
        self._per_ip[remote[0]] += 1

    def _received(self, connection: AcceptedConnection, receive: Receive) -> None:
        assert receive.payload is not None
        channel = self.selector.channel(connection.id)
        if channel is None:
            return
        self.selector.mute(connection.id)
        if not connection.principal:
            connection.principal = principal_of(channel)
            self._without_request.pop(connection.id, None)
        connection.receive = receive
        request = ReceivedRequest(self, connection, receive.payload)
        try:
            connection.listener.handler(request)
        except Exception:  # noqa: BLE001
            # Whatever the peer sent, or the handler did, only this connection ends by it.
            _log.exception("the handler of %s failed; closing %s", connection.listener, connection)
            self.close_connection(connection)

    def respond(self, connection: AcceptedConnection, payload: Sequence[Bytes]) -> None:
        """Send a response; it is dropped if its connection has ended."""
        if self.selector.channels.get(connection.id) is None:
            _log.debug("%s has gone; its answer is dropped", connection)
            self.close_connection(connection)
            return
        self.selector.send(Send.framed(connection.id, payload))

    def read_next(self, connection: AcceptedConnection) -> None:
        """Read the next request of a connection, as the previous one is complete."""
        self._release(connection)
        if not connection.listener.paused and self.selector.channel(connection.id) is not None:
            self.selector.unmute(connection.id)

    def _release(self, connection: AcceptedConnection) -> None:
        """Release a completed request: its bytes no longer count against the budget."""
        receive, connection.receive = connection.receive, None
        if receive is not None:
            receive.close()

    def close_connection(self, connection: AcceptedConnection) -> None:
        """Close a connection, its request answered or not."""
        self.selector.close_channel(connection.id)
        self._forget(connection.id)

    def _forget(self, connection_id: str) -> None:
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        self._without_request.pop(connection_id, None)
        self._release(connection)
        connection.listener.connections.pop(connection_id, None)
        self._per_ip[connection.remote[0]] -= 1
        if not self._per_ip[connection.remote[0]]:
            del self._per_ip[connection.remote[0]]
