"""Requests that any broker may answer, passed frame by frame from a node that does not serve them to a live broker."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from channel.clock import FOREVER
from channel.config import ChannelConfig
from channel.errors import ClientClosed
from channel.locks import guards, new_lock
from channel.network.client import MetadataUpdater
from channel.network.node_client import new_client
from channel.network.request import ClientRequest, FrameRequest
from channel.network.secured import client_channels
from channel.network.server import ANONYMOUS
from channel.threads import Startable, StoppableThread
from channel.types import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.errors import AuthenticationFailed
    from channel.network.request import ClientResponse
    from channel.network.sockets import ChannelBuilder, Peer
    from channel.security import SecurityConfig
    from channel.types import SecurityProtocol

    ChannelsOf: TypeAlias = Callable[[str], ChannelBuilder | None]

_AT_ONCE: Final = 8
"""The number of requests that are passed on at a time."""

_MOST_WAITING: Final = 256
_MOST_KEPT: Final = 64
"""The number of connections that are kept for further requests."""

_ATTEMPTS: Final = 3
_ADDRESS_MS: Final = 3_000
_CONNECT_MS: Final = 12_000
"""The longest time to reach a broker, at all of its addresses, authentication included."""

_ANSWER_MS: Final = 60_000
_KEPT_MS: Final = 60_000
_LARGEST_ANSWER: Final = 100 * 1024 * 1024
_CLIENT: Final = "controller-relay"


def channels_of_clients(protocol: SecurityProtocol, security: SecurityConfig) -> ChannelsOf:
    """Return a function that makes the channels on which brokers take this node for one of its clients.

    Brokers decide by the principal of a connection what may be asked on it, so a client's request must not arrive on a
    connection of the node's own principal. With SASL the node authenticates as the client, whose password it knows.
    With TLS alone the node shows no certificate, as a client without one does; a client with a certificate cannot be
    spoken for.

    Args:
        protocol: The security protocol of the node's listener and of the brokers'.
        security: The node's settings, with the users that it accepts.

    Returns:
        A function that takes a principal, and returns the builder of its channels; None if the node cannot speak for
        the client.
    """
    if not protocol.uses_sasl:
        bare = dataclasses.replace(
            security, ssl_keystore_location=None, ssl_keystore_certificate_chain=None, ssl_keystore_key=None
        )
        anonymous = client_channels(protocol, bare, _CLIENT)
        return lambda principal: anonymous if principal == ANONYMOUS else None

    @functools.cache
    def of_user(principal: str) -> ChannelBuilder | None:
        user = principal.removeprefix("User:")
        password = security.users.get(user)
        if password is None:
            return None
        as_user = dataclasses.replace(security, sasl_username=user, sasl_password=password)
        return client_channels(protocol, as_user, _CLIENT)

    return of_user


@dataclasses.dataclass(eq=False, slots=True)
class _Line:
    """A connection to a broker, of which there may be several, on behalf of a client; its node's id is its own."""

    node: Node
    principal: str
    channels: ChannelBuilder


@dataclasses.dataclass(eq=False, slots=True)
class _Passage:
    """A frame on its way."""

    principal: str
    channels: ChannelBuilder
    frame: bytes
    answer: Callable[[bytes | None], None]
    brokers: list[Node] = dataclasses.field(default_factory=list)
    line: _Line | None = None
    deadline_ms: int = 0
    is_sent: bool = False


class _Ends(MetadataUpdater):
    """Notes the connections that have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes_left: list[str] = []

    def handle_server_disconnect(self, now: int, node_id: str, error: AuthenticationFailed | None) -> None:
        self.nodes_left.append(node_id)


class FrameRelay(StoppableThread, Startable):
    """Passes frames to brokers over connections that it keeps, and their answers back; ``start`` to ``close``.

    A frame goes to another address or broker if one cannot be reached, but never twice. A connection takes one frame at
    a time, of one client's principal.

    Args:
        name: The thread's name.
        brokers: Returns the brokers that can be asked; called on the relay's thread.
        channels_of: Makes the channels for a client; see ``channels_of_clients``.
    """

    def __init__(self, name: str, brokers: Callable[[], Sequence[Node]], channels_of: ChannelsOf) -> None:
        super().__init__(name)
        self._brokers = brokers
        self._channels_of = channels_of
        self._lock = new_lock("frame relay")
        self._waiting: deque[_Passage] = deque()
        self._is_over = False
        self._under_way: dict[_Passage, None] = {}
        self._lines: dict[str, _Line] = {}
        self._idle: dict[_Line, None] = {}  # the least recently used first
        self._numbers = itertools.count()
        self._ends = _Ends()
        self._client = new_client(
            ChannelConfig(receive_max=_LARGEST_ANSWER),
            self._channel,
            self._ends,
            _CLIENT,
            max_idle_ms=_KEPT_MS,
            max_in_flight=1,
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
            request_timeout_ms=_ANSWER_MS,
            setup_timeout_ms=_ADDRESS_MS,
            setup_timeout_max_ms=_ADDRESS_MS,
            discover_versions=False,
        )

    # ---- for any thread

    def __call__(self, principal: str, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Pass a client's request on, without its size; ``answer`` takes the response, or None.

        It is called on the relay's thread; at once, with None, if the node cannot speak for the client, if too many
        frames wait, or if the relay has ended.
        """
        channels = self._channels_of(principal)
        if channels is not None:
            with self._lock:
                is_taken = not self._is_over and len(self._waiting) < _MOST_WAITING
                if is_taken:
                    self._waiting.append(_Passage(principal, channels, frame, answer))
            if is_taken:
                self._client.wakeup()
                return
        answer(None)

    def interrupt(self) -> None:
        """End a waiting poll."""
        self._client.initiate_close()

    def ended(self) -> None:
        """Close the connections; no frame that waits is answered."""
        with self._lock:
            self._is_over = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._client.close()
        for each in [*self._under_way, *waiting]:
            self._answer(each, None)
        self._idle.clear()
        self._lines.clear()

    def forget_in_child(self) -> None:
        """Count as ended in a forked child."""
        super().forget_in_child()
        self._lock = new_lock("frame relay")
        with self._lock:
            self._is_over = True
            self._waiting.clear()
        self._client.abandon()

    # ---- on its thread

    def do_work(self) -> None:
        """Begin with frames that wait, go on with those that look for a broker, and take answers."""
        begun = self._begin()
        try:
            if begun:
                self._client.poll(0)  # a kept connection may have ended
            self._drop_ended()
            for each in [*self._under_way, *begun]:
                if not each.is_sent:
                    self._go_on(each)
            deadlines = [each.deadline_ms for each in self._under_way if not each.is_sent]
            now = self._client.clock.milliseconds()
            self._client.poll(max(0, min(deadlines) - now) if deadlines else FOREVER)
        except ClientClosed:
            return

    def _begin(self) -> list[_Passage]:
        with self._lock:
            count = min(_AT_ONCE - len(self._under_way), len(self._waiting))
            begun = [self._waiting.popleft() for _ in range(count)]
        self._under_way |= dict.fromkeys(begun)
        for each in begun:
            each.brokers = random.sample(brokers := list(self._brokers()), min(_ATTEMPTS, len(brokers)))
        return begun

    def _drop_ended(self) -> None:
        for node_id in self._ends.nodes_left:
            line = self._lines.get(node_id)
            if line in self._idle:
                self._drop(line)
        self._ends.nodes_left.clear()

    def _go_on(self, passage: _Passage) -> None:
        """Send a frame if its connection is ready; else try the next address or broker, if the present one failed."""
        client = self._client
        while True:
            now = client.clock.milliseconds()
            if passage.line is None:
                if not passage.brokers:
                    self.log.warning("a request is not passed on: no live broker can be reached")
                    self._answer(passage, None)
                    return
                passage.line = self._line_to(passage.brokers.pop(), passage)
                passage.deadline_ms = now + _CONNECT_MS
            node = passage.line.node
            error = client.authentication_error(node)
            has_failed = client.connection_failed(node) and not client.has_untried_address(node)
            if error is None and not has_failed and now < passage.deadline_ms:
                if client.ready(node):  # it begins to connect, if need be
                    self._send(passage, passage.line, now)
                elif client.connection_failed(node):
                    continue
                return
            if error is not None:
                passage.brokers.clear()  # the others would reject the client, too
            self.log.warning("no request can be passed to %s:%d: %s", node.host, node.port, error or "not connected")
            self._drop(passage.line)
            passage.line = None

    def _send(self, passage: _Passage, line: _Line, now: int) -> None:
        request, done = FrameRequest(passage.frame), partial(self._done, passage, line)
        self._client.send(
            ClientRequest(line.node.key, request, request.correlation_id, now, _ANSWER_MS, done, passed=True)
        )
        passage.is_sent = True

    def _line_to(self, broker: Node, passage: _Passage) -> _Line:
        """Return the connection for a client that was used last and is ready, or a new one."""
        for line in reversed(self._idle):
            node = line.node
            if (node.host, node.port, line.principal) == (broker.host, broker.port, passage.principal):
                del self._idle[line]
                if self._client.is_ready(node):
                    return line
                self._drop(line)
                break
        node = Node(next(self._numbers), broker.host, broker.port, listener=broker.listener)
        line = self._lines[node.key] = _Line(node, passage.principal, passage.channels)
        return line

    def _channel(self, sock: Any, peer: Peer) -> Any:
        return self._lines[peer.node_id].channels(sock, peer)

    def _drop(self, line: _Line) -> None:
        self._idle.pop(line, None)
        del self._lines[line.node.key]
        self._client.forget_node(line.node.key)

    def _done(self, passage: _Passage, line: _Line, response: ClientResponse) -> None:
        payload = response.body
        if payload is None:
            self.log.warning("a request to %s:%d: %s", line.node.host, line.node.port, response.failure)
        elif payload[:4] != passage.frame[4:8]:
            self.log.warning("%s:%d answers another request than was passed on", line.node.host, line.node.port)
            payload = None
        if payload is None:
            self._drop(line)
        else:
            self._idle[line] = None
            if len(self._idle) > _MOST_KEPT:
                self._drop(next(iter(self._idle)))
        self._answer(passage, payload)

    def _answer(self, passage: _Passage, payload: bytes | None) -> None:
        self._under_way.pop(passage, None)
        try:
            passage.answer(payload)
        except Exception:
            self.log.exception("an answer could not be passed back")


guards(FrameRelay, "_lock", "_is_over", "_waiting")
