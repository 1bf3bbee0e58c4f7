"""A relay between Kafka nodes that records their traffic, without any right to capture packets.

Clients connect to the tap's listening addresses, the tap connects to the nodes behind them, and every byte is relayed
unchanged. The recording holds the received bytes in the order of their arrival, under the client's and the node's own
addresses, so that it reads like a capture of a direct connection between client and node.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from channel.addresses import parse_address, show_address
from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import AuthenticationFailed
from channel.logs import PeerLines, get_logger
from channel.network import sockets
from channel.network.recorder import GuardedRecorder
from channel.network.sockets import Acceptor, OutOfDescriptors, Waker, configure, dial, listening_socket
from channel.network.tls import TlsTransport
from channel.network.transport import Address, PlaintextTransport, reset_on_close, socket_address
from channel.threads import LoopThread, Startable
from kproto.errors import ConfigurationError

from .link import CHUNK, OPENING_NS, READ, Link, NodeUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.recorder import Recorder
    from channel.network.tls import Transport


@dataclass(frozen=True, slots=True)
class TapMapping:
    """A listening address of the tap, and the node that it relays to.

    >>> TapMapping.of("127.0.0.1:19092=kafka-1:9092")
    TapMapping(listen=('127.0.0.1', 19092), upstream=('kafka-1', 9092))

    Attributes:
        listen: The tap's own host and port; port 0 for any free one, no host for all addresses of the machine.
        upstream: The node's host and port.
    """

    listen: Address
    upstream: Address

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a mapping ``LISTEN=UPSTREAM``, each ``HOST:PORT`` (``[::1]:9092`` for IPv6).

        Raises:
            ConfigurationError: The text is not ``LISTEN=UPSTREAM``.
        """
        listen, separator, upstream = text.partition("=")
        if not separator:
            raise ConfigurationError(f"no mapping: {text!r}; write LISTEN=UPSTREAM, as 127.0.0.1:19092=kafka-1:9092")
        if listen.strip().startswith(":"):
            listen = f"0.0.0.0{listen.strip()}"  # noqa: S104 - every address of the machine, as the user asked
        return cls(parse_address(listen), parse_address(upstream))

    def __str__(self) -> str:
        return f"{show_address(self.listen)}={show_address(self.upstream)}"


_log = get_logger(__name__)

_ACCEPT_PAUSE_S: Final = 0.05  # without free descriptors the listening socket stays readable


TlsContext: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext]


class _Listener(NamedTuple):
    """A listening socket of the tap.

    Attributes:
        addresses: The node's, as its name was looked up last.
        refusing: Those of them that took no connection when last tried.
    """

    sock: socket.socket
    mapping: TapMapping
    acceptor: Acceptor
    addresses: list[Address]
    refusing: set[Address]


@dataclass(eq=False, slots=True)
class _Attempt:
    """A client's connection that is not linked with its node yet.

    Attributes:
        deadline_ns: The time by which the node's name must be looked up.
        left: The node's addresses that are left to try.
    """

    client: socket.socket
    client_address: Address
    listener: _Listener
    deadline_ns: int
    left: deque[Address] = field(default_factory=deque)


class Tap(Startable):
    """Relays connections and records them on a thread of its own, from ``start`` to ``close``.

    A node that does not read makes its client wait, and vice versa: no byte is dropped, and each direction of a
    connection holds at most 256 KiB in memory. A recording that fails (a full disk) is logged once; relaying goes on.
    The name of a node is looked up for each connection. Its addresses are tried in turn, each for 30 s at most; a
    connection that is not established on both sides by then, with its TLS handshakes, is reset.

    Args:
        mappings: The listening addresses, and the node behind each.
        recorder: Takes the relayed bytes; the caller closes it.
        listener_tls: The TLS context for clients, or a function that returns it for each connection; None for
            plaintext. The recording is plaintext in any case.
        upstream_tls: The same towards nodes.

    Attributes:
        listening: The address of each mapping, with the port that was chosen.
        connections: Number of connections relayed so far.

    Raises:
        ConfigurationError: A listening address is not available, a node's name cannot be resolved, or the tap would
            relay to itself.
    """

    def __init__(
        self,
        mappings: Sequence[TapMapping],
        recorder: Recorder,
        *,
        listener_tls: TlsContext | None = None,
        upstream_tls: TlsContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not mappings:
            raise ConfigurationError("nothing to relay: name at least one LISTEN=UPSTREAM")
        self._recorder = GuardedRecorder(recorder)
        self._tell = PeerLines(_log)
        self._listener_tls = listener_tls
        self._upstream_tls = upstream_tls
        self._clock = clock
        self._buffer = memoryview(bytearray(CHUNK))
        self._links: dict[int, Link] = {}
        self._by_use: dict[Link, None] = {}  # the least recently used first
        self._unanswered: dict[Link, None] = {}  # those whose node has sent nothing yet, the oldest first
        self._resolution = sockets.NameResolution()
        self._looked_up: deque[tuple[_Attempt, Sequence[str] | OSError]] = deque()
        self._unresolved: dict[_Attempt, None] = {}  # those whose name is being looked up, the oldest first
        self._opening: dict[Link, _Attempt] = {}  # links that are not opened, the oldest first
        self._buffered: dict[Link, None] = {}  # links with decrypted bytes, which no event will announce
        self._listeners: dict[int, _Listener] = {}
        self._waker = Waker()
        self._thread = LoopThread("kproto-tap", self._relay_once, interrupt=self._waker.wake, ended=self._release)
        self._relayed = 0  # over links that have ended
        self.connections = 0
        self.listening: list[Address] = []
        self._epoll = select.epoll()
        try:
            self._epoll.register(self._waker.fileno(), READ)
            for mapping in mappings:
                self._listen(mapping)
            for listener in self._listeners.values():
                self._refuse_loop(listener)
        except BaseException:
            self._release()
            raise

    # ---- starting and ending -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to relay."""
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> bool:
        """End all connections and stop listening; waits for the thread, at most this long. Harmless if closed.

        Returns:
            Whether the thread has ended; a line in the log says if not.
        """
        return self._thread.shutdown(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether the tap's thread is running."""
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the tap, None while it runs and after ``close``."""
        return self._thread.error

    @property
    def recording_error(self) -> Exception | None:
        """The first error that the recorder raised; the recording is incomplete from then on."""
        return self._recorder.error

    @property
    def relayed(self) -> int:
        """Bytes read from clients and nodes so far."""
        return self._relayed + sum(link.relayed for link in set(self._links.copy().values()))

    def _relay_once(self) -> None:
        buffered, self._buffered = self._buffered, {}
        for descriptor, events in self._epoll.poll(0 if buffered else self._until_deadline()):
            self._dispatch(descriptor, events)
        for link in buffered:
            if not link.finished:
                self._advance(link)
        while self._looked_up:
            self._resolved(*self._looked_up.popleft())
        if self._opening or self._unresolved:
            self._end_overdue()

    def _release(self) -> None:
        for attempt in self._unresolved:
            attempt.client.close()
        self._unresolved.clear()
        for link in set(self._links.values()):
            self._end(link)
        for listener in self._listeners.values():
            listener.sock.close()
        self._listeners.clear()
        self._epoll.close()
        self._waker.close()

    # ---- connections -------------------------------------------------------------------------------------------------

    def _listen(self, mapping: TapMapping) -> None:
        host, port = mapping.upstream
        try:
            addresses = [(address, port) for address in sockets.resolve(host)]
        except OSError as e:
            raise ConfigurationError(f"{mapping}: the host {host!r} cannot be resolved: {e.strerror or e}") from e
        sock = listening_socket(*mapping.listen, backlog=1024)
        self._listeners[sock.fileno()] = _Listener(sock, mapping, Acceptor(sock, self._make_room), addresses, set())
        self._epoll.register(sock.fileno(), READ)
        self.listening.append(socket_address(sock.getsockname()))

    def _refuse_loop(self, listener: _Listener) -> None:
        """Raise if connections to a listening address could come back to it."""
        reached: set[int] = set()
        ahead = self._serving(listener)
        while ahead:
            reached |= ahead
            ahead = {further for each in ahead for further in self._serving(self._listeners[each])} - reached
        if listener.sock.fileno() in reached:
            raise ConfigurationError(
                f"{listener.mapping} leads back to the tap's own listening address, so that each connection would "
                "make another without end; name the node's own address behind the equals sign"
            )

    def _serving(self, listener: _Listener) -> set[int]:
        """The listening sockets that would take a connection to one of a node's addresses."""
        return {
            fd
            for fd, other in self._listeners.items()
            if any(_serves(other.sock, address) for address in listener.addresses)
        }

    def _accept(self, listener: _Listener) -> None:
        try:
            client, client_address = listener.acceptor.accept()
        except OutOfDescriptors:
            time.sleep(_ACCEPT_PAUSE_S)
        except OSError:
            pass  # there is none, it has ended, or it was refused
        else:
            attempt = _Attempt(client, client_address, listener, self._clock.nanoseconds() + OPENING_NS)
            self._unresolved[attempt] = None

            def resolved(result: Sequence[str] | OSError) -> None:
                self._looked_up.append((attempt, result))
                self._waker.wake()

            self._resolution.start(listener.mapping.upstream[0], resolved)

    def _resolved(self, attempt: _Attempt, result: Sequence[str] | OSError) -> None:
        """Take the addresses of a client's node; those that took no connection before are tried last."""
        if attempt not in self._unresolved:
            return  # it has ended meanwhile
        del self._unresolved[attempt]
        listener = attempt.listener
        try:
            if isinstance(result, OSError):
                raise result
            listener.addresses[:] = [(address, listener.mapping.upstream[1]) for address in result]
            self._refuse_loop(listener)
        except (OSError, ConfigurationError) as e:
            self._give_up(attempt, listener.mapping.upstream, e)
            return
        listener.refusing.intersection_update(listener.addresses)
        attempt.left.extend(sorted(listener.addresses, key=listener.refusing.__contains__))
        self._dial(attempt)

    def _dial(self, attempt: _Attempt) -> None:
        """Link a client with the next of its node's addresses that can be dialled; reset it if there is none."""
        client, listener = attempt.client, attempt.listener
        while True:
            address, node = attempt.left.popleft(), None
            try:
                configure(client)
                node, _ = dial(address, -1, -1)
                near = _transport(client, self._listener_tls, server_side=True, host="")
                far = _transport(node, self._upstream_tls, server_side=False, host=listener.mapping.upstream[0])
                link = Link(near, far, attempt.client_address, address, self._recorder, self._clock, self._epoll)
            except (OSError, ValueError) as e:  # a ValueError for a name that TLS does not take
                if node is not None:
                    node.close()
                listener.refusing.add(address)
                if attempt.left:
                    continue
                self._give_up(attempt, address, e)
                return
            self._opening[link] = attempt
            self._links |= dict.fromkeys(link.events, link)
            self._by_use[link] = self._unanswered[link] = None
            return

    def _give_up(self, attempt: _Attempt, address: Address, why: Exception) -> None:
        names = show_address(attempt.client_address), show_address(address)
        self._tell(logging.WARNING, "the connection of %s to %s is ended: %s", *names, why)
        reset_on_close(attempt.client)
        attempt.client.close()

    def _make_room(self) -> bool:
        """End the oldest link without any answer so far, else the least recently used; false if there is none."""
        attempt = next(iter(self._unresolved), None)
        if attempt is not None and not self._unanswered:
            self._resolved(attempt, ConnectionRefusedError("there are too many connections"))
            return True
        link = next(iter(self._unanswered or self._by_use), None)
        if link is not None:
            self._end(link, reset=True)
        return link is not None

    def _until_deadline(self) -> float:
        """Return the time in seconds until the oldest link must be opened or its name known, -1 if all are."""
        deadlines_ns = [link.deadline_ns for link in islice(self._opening, 1)]
        deadlines_ns += [attempt.deadline_ns for attempt in islice(self._unresolved, 1)]
        return max(0.0, (min(deadlines_ns) - self._clock.nanoseconds()) / 1e9) if deadlines_ns else -1

    def _end_overdue(self) -> None:
        now = self._clock.nanoseconds()
        for attempt in [each for each in self._unresolved if each.deadline_ns <= now]:
            self._resolved(attempt, TimeoutError("its name was not looked up in time"))
        for link in [each for each in self._opening if each.deadline_ns <= now]:
            kind = TimeoutError if link.is_connected else NodeUnreachable
            self._fail(link, kind("it was not established in time"))

    def _fail(self, link: Link, why: Exception) -> None:
        """Reset both connections of a link, or dial the node's next address if this one took no connection."""
        if isinstance(why, NodeUnreachable):
            attempt = self._opening[link]
            self._forget(link)
            link.close_node()
            attempt.listener.refusing.add(link.node_address)
            if attempt.left:
                self._dial(attempt)
            else:
                self._give_up(attempt, link.node_address, why)
            return
        level = logging.DEBUG if link.opened else logging.WARNING
        names = show_address(link.client_address), show_address(link.node_address)
        self._tell(level, "the connection of %s to %s is ended: %s", *names, why)
        self._end(link, reset=True)

    def _end(self, link: Link, *, reset: bool = False) -> None:
        self._forget(link)
        self._relayed += link.relayed
        link.close(reset=reset)

    def _forget(self, link: Link) -> None:
        self._opening.pop(link, None)
        self._by_use.pop(link, None)
        self._unanswered.pop(link, None)
        for descriptor in link.events:
            self._links.pop(descriptor, None)

    # ---- events ------------------------------------------------------------------------------------------------------

    def _dispatch(self, descriptor: int, events: int) -> None:
        link = self._links.get(descriptor)
        if link is not None:
            self._by_use[link] = self._by_use.pop(link)
            self._advance(link, descriptor if events == READ else None)
        elif descriptor in self._listeners:
            self._accept(self._listeners[descriptor])
        elif descriptor == self._waker.fileno():  # else a link that was closed while this batch of events was handled
            self._waker.drain()

    def _advance(self, link: Link, readable: int | None = None) -> None:
        try:
            if link in self._opening:
                link.open()
                if not link.opened:
                    return
                readable = None
                self.connections += 1
                self._opening.pop(link).listener.refusing.discard(link.node_address)
            if link.relay(self._buffer, readable):
                self._buffered[link] = None
            if link.is_answered:  # perhaps while it was accepted
                self._unanswered.pop(link, None)
            if link.finished:
                self._end(link)
        except (OSError, AuthenticationFailed) as e:
            self._fail(link, e)
        except Exception:  # noqa: BLE001 - a fault in one connection must not end the others
            _log.exception("the connection of %s is ended", show_address(link.client_address))
            self._end(link, reset=True)


def _serves(listening: socket.socket, address: Any) -> bool:
    """Whether a connection to this address would be accepted by the listening socket."""
    host, port = listening.getsockname()[:2]
    if port != address[1]:
        return False
    if host == address[0]:
        return True
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    if host != "::" and (host != "0.0.0.0" or family == socket.AF_INET6):  # noqa: S104 - compared, not listened at
        return False
    with socket.socket(family) as probe, contextlib.suppress(OSError):
        probe.bind((address[0], 0))  # takes an address of this machine alone
        return True
    return False


def _transport(sock: socket.socket, context: TlsContext | None, *, server_side: bool, host: str) -> Transport:
    if context is None:
        return PlaintextTransport(sock, connected=False)
    if not isinstance(context, ssl.SSLContext):
        context = context()
    return TlsTransport(sock, context, server_side=server_side, server_hostname=None if server_side else host)
