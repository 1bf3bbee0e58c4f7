"""A relay between Kafka nodes that records what passes, without any right to capture packets.

Clients connect to the tap's listening addresses, the tap connects to the nodes behind them, and every byte goes on as
it came. What is recorded is what was received, in the order of its arrival, under the client's and the node's own
addresses, so that the recording reads like a capture of the two talking to each other.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from channel.addresses import parse_address, show_address
from channel.clock import SYSTEM_CLOCK, Clock
from channel.errors import AuthenticationFailed
from channel.logs import get_logger
from channel.network.sockets import Waker
from channel.network.tls import TlsTransport
from channel.network.transport import Address, PlaintextTransport, reset_on_close, socket_address
from channel.sasl_mask import SaslMask
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from channel.network.recorder import Direction, Recorder

__all__ = ["Mapping", "Tap"]

_log = get_logger(__name__)

_CHUNK: Final = 262_144
"""Bytes read from one connection in one call."""

_CHUNKS_IN_TURN: Final = 4
"""Reads from one connection before the others have their turn."""

_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_ACCEPT_PAUSE_S: Final = 0.05  # without free descriptors the listening socket stays readable

_Transport: TypeAlias = PlaintextTransport | TlsTransport


@dataclass(frozen=True, slots=True)
class Mapping:
    """Where the tap listens, and the node that it relays to.

    >>> Mapping.of("127.0.0.1:19092=kafka-1:9092")
    Mapping(listen=('127.0.0.1', 19092), upstream=('kafka-1', 9092))

    Attributes:
        listen: The tap's own host and port; port 0 for any free one, no host for all addresses of the machine.
        upstream: The node's host and port.
    """

    listen: Address
    upstream: Address

    @classmethod
    def of(cls, text: str) -> Self:
        """The mapping of a text ``LISTEN=UPSTREAM``, each ``HOST:PORT`` (``[::1]:9092`` for IPv6).

        Raises:
            ConfigurationError: It has another form.
        """
        listen, separator, upstream = text.partition("=")
        if not separator:
            raise ConfigurationError(f"no mapping: {text!r}; write LISTEN=UPSTREAM, as 127.0.0.1:19092=kafka-1:9092")
        if listen.strip().startswith(":"):
            listen = f"0.0.0.0{listen.strip()}"  # noqa: S104 - every address of the machine, as the user asked
        return cls(parse_address(listen), parse_address(upstream))

    def __str__(self) -> str:
        return f"{show_address(self.listen)}={show_address(self.upstream)}"


class _Direction:
    """Bytes on their way from one socket to the other.

    Attributes:
        source, target: Whence they come, whither they go.
        recorded_as: The direction as the recorder names it, seen from the client.
        pending: Bytes that were read and recorded and that the target has not taken yet.
        ended: The source will send no more.
        finished: The target has been told so.
    """

    __slots__ = ("ended", "finished", "pending", "recorded_as", "source", "target")

    def __init__(self, source: _Transport, target: _Transport, recorded_as: Direction) -> None:
        self.source = source
        self.target = target
        self.recorded_as: Direction = recorded_as
        self.pending = memoryview(b"")
        self.ended = False
        self.finished = False

    @property
    def is_blocked(self) -> bool:
        """Whether the target must take bytes before more are read."""
        return bool(self.pending) or self.target.has_pending_writes


class _Link:
    """One client's connection and the connection that was made for it to the node.

    Attributes:
        client, node: The two connections.
        client_address, node_address: The client's own address and the node's: those of the recording.
        requests, responses: The two directions.
        mask: Hides SASL secrets in the recording, if that is wanted.
        opened: Both connections stand and are past their TLS handshakes: payload passes.
    """

    __slots__ = (
        "client",
        "client_address",
        "interests",
        "mask",
        "node",
        "node_address",
        "opened",
        "requests",
        "responses",
    )

    def __init__(self, client: _Transport, node: _Transport, client_address: Address, node_address: Address) -> None:
        self.client = client
        self.node = node
        self.client_address = client_address
        self.node_address = node_address
        self.requests = _Direction(client, node, "sent")
        self.responses = _Direction(node, client, "received")
        self.opened = False
        self.mask: SaslMask | None = None
        self.interests = {client.fileno(): 0, node.fileno(): 0}


class Tap:
    """Relays connections and records them; one thread, from ``start`` to ``close``, or the caller's by ``run``.

    A node that does not read makes its client wait, and the other way round: nothing is dropped, and each direction of
    a connection holds at most 256 KiB in memory. A recording that fails (a full disk) is logged once; the traffic goes
    on.

    Args:
        mappings: Where to listen, and the node behind each.
        recorder: Takes what passes; the caller closes it.
        listener_tls: The TLS context for clients, None for plaintext. What is recorded is plaintext in any case.
        upstream_tls: The TLS context towards nodes, None for plaintext.
        mask_sasl: Write zeros for SASL tokens into the recording. What is relayed stays as it is.
        clock: Time.

    Attributes:
        listening: The address of each mapping, with the port that was chosen.
        relayed: Bytes read from clients and nodes.
        connections: Number of connections relayed so far.

    Raises:
        ConfigurationError: A listening address cannot be had, or a node's name cannot be resolved.
    """

    def __init__(
        self,
        mappings: Sequence[Mapping],
        recorder: Recorder,
        *,
        listener_tls: ssl.SSLContext | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        mask_sasl: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not mappings:
            raise ConfigurationError("nothing to relay: name at least one LISTEN=UPSTREAM")
        self._recorder = recorder
        self._listener_tls = listener_tls
        self._upstream_tls = upstream_tls
        self._mask_sasl = mask_sasl
        self._clock = clock
        self._buffer = memoryview(bytearray(_CHUNK))
        self._links: dict[int, _Link] = {}
        self._buffered: dict[_Link, None] = {}  # links with decrypted bytes, of which no event will tell
        self._listeners: dict[int, tuple[socket.socket, Mapping, Any]] = {}
        self._waker = Waker()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.relayed = 0
        self.connections = 0
        self.listening: list[Address] = []
        self._epoll = select.epoll()
        try:
            self._epoll.register(self._waker.fileno(), _READ)
            for mapping in mappings:
                self._listen(mapping)
        except BaseException:
            self._release()
            raise

    # ---- starting and ending -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Relay on a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="kproto-tap", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections and stop listening; waits for the thread. Harmless if closed."""
        if self._stopping:
            return
        self._stopping = True
        self._waker.wake()
        if self._thread is None:
            self._release()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether its thread relays."""
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> None:
        """Relay until ``close`` is called."""
        try:
            while not self._stopping:
                buffered, self._buffered = self._buffered, {}
                for descriptor, events in self._epoll.poll(0 if buffered else -1):
                    self._dispatch(descriptor, events)
                for link in buffered:
                    self._advance(link)
        finally:
            self._release()

    def _release(self) -> None:
        for link in set(self._links.values()):
            self._end(link)
        for sock, _, _ in self._listeners.values():
            sock.close()
        self._listeners.clear()
        self._epoll.close()
        self._waker.close()

    # ---- connections -------------------------------------------------------------------------------------------------

    def _listen(self, mapping: Mapping) -> None:
        host, port = mapping.upstream
        try:
            family, _, _, _, upstream = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as e:
            raise ConfigurationError(f"{mapping}: the host {host!r} cannot be resolved: {e}") from e
        try:
            listening = socket.getaddrinfo(*mapping.listen, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            sock = socket.create_server(listening[4][:2], family=listening[0], backlog=1024)
        except (OSError, UnicodeError) as e:
            why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
            raise ConfigurationError(
                f"{mapping}: cannot listen at {show_address(mapping.listen)}: {why.lower()}"
            ) from e
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, mapping, (family, upstream))
        self._epoll.register(sock.fileno(), _READ)
        self.listening.append(socket_address(sock.getsockname()))

    def _accept(self, sock: socket.socket, mapping: Mapping, family: int, upstream: Any) -> None:
        try:
            client, client_address = sock.accept()
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                _log.warning("cannot accept a connection at %s: %s", show_address(mapping.listen), e)
                time.sleep(_ACCEPT_PAUSE_S)
            return
        node = socket.socket(family, socket.SOCK_STREAM)
        for each in (client, node):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            node.connect(upstream)
        except BlockingIOError:
            pass
        except OSError as e:
            self._refuse(client, node, mapping, e)
            return
        near = _transport(client, self._listener_tls, server_side=True, host="")
        far = _transport(node, self._upstream_tls, server_side=False, host=mapping.upstream[0])
        link = _Link(near, far, socket_address(client_address), socket_address(upstream))
        link.mask = SaslMask() if self._mask_sasl else None
        near.finish_connect()
        for descriptor in link.interests:
            self._links[descriptor] = link
        self._watch(link, node.fileno(), _WRITE)

    def _refuse(self, client: socket.socket, node: socket.socket, mapping: Mapping, error: OSError) -> None:
        _log.warning("cannot connect to %s for %s: %s", show_address(mapping.upstream), mapping, error)
        reset_on_close(client)
        client.close()
        node.close()

    def _open(self, link: _Link) -> bool:
        """Finish the connection to the node, then both TLS handshakes; tells whether payload may pass."""
        wanted = {link.client.fileno(): 0, link.node.fileno(): 0}
        if not link.node.finish_connect():
            wanted[link.node.fileno()] = _WRITE
        else:
            for transport in (link.node, link.client):
                if not transport.ready:
                    wanted[transport.fileno()] = transport.handshake()
            if link.node.ready and link.client.ready:
                link.opened = True
                self.connections += 1
                now = self._clock.wall_nanoseconds()
                self._recorder.opened(link.client_address, link.node_address, now, initiator=True)
                return True
        for descriptor, events in wanted.items():
            self._watch(link, descriptor, events)
        return False

    def _watch(self, link: _Link, descriptor: int, events: int) -> None:
        former = link.interests[descriptor]
        if former == events:
            return
        link.interests[descriptor] = events
        if not events:
            self._epoll.unregister(descriptor)  # else the system would go on telling of a peer that has hung up
        elif not former:
            self._epoll.register(descriptor, events)
        else:
            self._epoll.modify(descriptor, events)

    def _end(self, link: _Link, *, reset: bool = False) -> None:
        for transport in (link.client, link.node):
            descriptor = transport.fileno()
            if self._links.pop(descriptor, None) is not None:
                self._watch(link, descriptor, 0)
                if reset:
                    transport.reset_on_close()
                with contextlib.suppress(OSError):
                    transport.close()
        if link.opened:
            self._recorder.closed(link.client_address, link.node_address, self._clock.wall_nanoseconds())

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def _dispatch(self, descriptor: int, events: int) -> None:
        if descriptor == self._waker.fileno():
            self._waker.drain()
            return
        listener = self._listeners.get(descriptor)
        if listener is not None:
            self._accept(listener[0], listener[1], *listener[2])
            return
        link = self._links.get(descriptor)
        if link is not None:  # else its other end was closed in this very turn
            self._advance(link)

    def _advance(self, link: _Link) -> None:
        if link.client.fileno() not in self._links:
            return
        try:
            if link.opened or self._open(link):
                self._relay(link)
        except (OSError, AuthenticationFailed) as e:
            level = logging.WARNING if not link.opened else logging.DEBUG
            names = show_address(link.client_address), show_address(link.node_address)
            _log.log(level, "the connection of %s to %s is ended: %s", *names, e)
            self._end(link, reset=True)

    def _relay(self, link: _Link) -> None:
        wanted = {link.client.fileno(): 0, link.node.fileno(): 0}
        for direction in (link.requests, link.responses):
            self._move(link, direction)
        if link.requests.finished and link.responses.finished:
            self._end(link)
            return
        for direction in (link.requests, link.responses):
            if direction.is_blocked:
                wanted[direction.target.fileno()] |= _WRITE
            elif not direction.ended:
                wanted[direction.source.fileno()] |= _READ
                if direction.source.has_bytes_buffered:
                    self._buffered[link] = None
        for descriptor, events in wanted.items():
            self._watch(link, descriptor, events)

    def _move(self, link: _Link, direction: _Direction) -> None:
        """Hand on what is pending, then what the source has, for a bounded number of reads."""
        for _ in range(_CHUNKS_IN_TURN):
            if direction.is_blocked and not self._write(direction, direction.pending):
                return
            if direction.ended:
                break
            try:
                count = direction.source.read_into(self._buffer)
            except EOFError:
                direction.ended = True
                break
            if not count:
                return
            self.relayed += count
            chunk = self._buffer[:count]
            now = self._clock.wall_nanoseconds()
            recorded = [chunk] if link.mask is None else link.mask.apply(direction.recorded_as, chunk)
            if recorded:
                self._recorder.record(direction.recorded_as, link.client_address, link.node_address, now, recorded)
            if not self._write(direction, chunk):
                return
            if count < len(self._buffer) and not direction.source.has_bytes_buffered:
                return
        if direction.ended and not direction.finished and not direction.is_blocked:
            direction.target.end_writing()
            direction.finished = True

    def _write(self, direction: _Direction, data: memoryview) -> bool:
        """Write to the target; what it does not take now is kept as pending. Tells whether all has gone out."""
        at = 0
        while at < len(data):
            count = direction.target.write([data[at:]])
            if not count:
                break
            at += count
        if direction.target.has_pending_writes:
            direction.target.flush()
        # What is left is copied only if it lies in the buffer that the next read fills.
        rest = data[at:]
        direction.pending = rest if data is direction.pending or not rest else memoryview(bytes(rest))
        return not direction.is_blocked


def _transport(sock: socket.socket, context: ssl.SSLContext | None, *, server_side: bool, host: str) -> _Transport:
    if context is None:
        return PlaintextTransport(sock, connected=False)
    return TlsTransport(sock, context, server_side=server_side, server_hostname=None if server_side else host)
