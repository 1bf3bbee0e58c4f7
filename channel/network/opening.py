"""An opener of channels: it dials or takes sockets, and goes on until requests may pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.logs import get_logger

from . import sockets
from .channel import Channel
from .expiry import ChannelExpiry, Closing
from .sockets import Peer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from channel.clock import Clock
    from channel.errors import AuthenticationFailed

    from .channel_factory import ChannelFactory
    from .poller import Poller
    from .registry import ChannelRegistry
    from .traffic import Traffic
    from .transport import Address
    from .writing import ChannelWriter

__all__ = ["ChannelOpener"]

_log = get_logger(__name__)


class ChannelOpener:
    """Opens the channels of one selector, on the selector's thread.

    Args:
        dial: Begins to connect.
        factory: Makes channels on sockets.
        registry: Takes the new channels, and reports the progress of each.
        poller: Waits for events of the channels.
        expiry: Answers clients whose authentication failed, after a delay.
        traffic: Counts connections.
        writer: Writes a frame that has waited for the end of an authentication.
        clock: The source of time.
    """

    __slots__ = ("_clock", "_dial", "_expiry", "_factory", "_poller", "_registry", "_traffic", "_writer")

    def __init__(
        self,
        dial: Callable[[Address, int, int], tuple[socket.socket, bool]],
        factory: ChannelFactory,
        registry: ChannelRegistry,
        poller: Poller,
        expiry: ChannelExpiry,
        traffic: Traffic,
        writer: ChannelWriter,
        clock: Clock,
    ) -> None:
        self._dial = dial
        self._factory = factory
        self._registry = registry
        self._poller = poller
        self._expiry = expiry
        self._traffic = traffic
        self._writer = writer
        self._clock = clock

    def connect(
        self,
        channel_id: str,
        address: Address,
        send_buffer: int = -1,
        receive_buffer: int = -1,
        *,
        host: str | None = None,
        listener: str = "PLAINTEXT",
        checks_versions: bool = False,
    ) -> None:
        """Begin to connect. The selector's ``poll`` reports the established connection in ``connected``.

        Args:
            channel_id: The id of the new connection.
            address: An IP address as text, and a port.
            send_buffer, receive_buffer: Sizes of the socket's buffers in bytes, -1 for the system's.
            host: The host's name for the channel builder; the address if None.
            listener: The name of the peer's listener, for the channel builder.
            checks_versions: Whether the peer is to be asked for its versions before the connection is ready.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The address is invalid, the system refuses at once, or no transport can be put on the socket.
        """
        self._registry.ensure_new(channel_id)
        sock, at_once = self._dial(address, send_buffer, receive_buffer)
        channel = None
        try:
            peer = Peer(address[0] if host is None else host, address[1], listener, node_id=channel_id)
            channel = self._factory.channel(channel_id, sock, peer, checks_versions=checks_versions)
            self._registry.add(channel, self._clock.nanoseconds())
            if at_once:
                self._registry.immediate.append(channel)
        except BaseException:
            self._undo(channel, sock)
            raise

    def register(self, channel_id: str, sock: socket.socket, listener: str = "PLAINTEXT") -> Channel:
        """Take an accepted socket; it is closed if it cannot be taken.

        Raises:
            IllegalState: There is a connection of that name.
            OSError: The connection has ended already, or no transport can be put on the socket.
        """
        self._registry.ensure_new(channel_id)
        channel = None
        try:
            sockets.configure(sock)
            host, port = sock.getpeername()[:2] if sock.family != sockets.UNIX else ("", 0)
            channel = self._factory.channel(channel_id, sock, Peer(host, port, listener, accepted=True))
            channel.finish_connect()
            self._registry.add(channel, self._clock.nanoseconds())
        except BaseException:
            self._undo(channel, sock)
            raise
        self._traffic.opened(channel, accepted=True)
        if not channel.connection.usable:
            self._expiry.accepted(channel, self._clock.nanoseconds())
        return channel

    def _undo(self, channel: Channel | None, sock: socket.socket) -> None:
        """Remove all traces of a channel that could not be added."""
        if channel is not None:
            self._registry.take_back(channel)
        sock.close()

    def establish(self, channel: Channel, now: int) -> bool:
        """Go on with connecting, handshake and authentication; returns whether requests may pass now.

        Raises:
            AuthenticationFailed: One side rejected the other.
            OSError: The connection could not be made, or broke.
        """
        if not channel.connected:
            if not channel.finish_connect():
                return False
            self._registry.connected.append(channel.id)
            self._traffic.opened(channel, accepted=False)
        if not channel.connection.usable:
            with channel.lock:
                if not channel.prepare():
                    return False
                began = channel.begin_session(now)
            if began and channel.metrics is not None:
                channel.metrics.passed(channel.authenticator)
        if channel.metrics is not None and channel.cipher_information is None:
            channel.metrics.cipher_changed(channel, channel.transport.cipher_information)
        self._expiry.opening.forget(channel)
        self._registry.prepared.append(channel.id)
        if channel.connection.outgoing is not None:
            self._writer.started.append(channel)
        return True

    def refuse(self, channel: Channel, error: AuthenticationFailed, now: int) -> None:
        """End a connection whose authentication failed; a client is answered after the delay."""
        authenticator = channel.authenticator
        answers_late = authenticator is not None and authenticator.is_server and channel.transport.ready
        _log.warning("connection %s to %s: %s", channel.id, channel.transport.remote, error)
        if channel.metrics is not None:
            channel.metrics.refused(authenticator)
        channel.refused(error)
        if answers_late:
            self._poller.drop(channel)
            self._expiry.opening.forget(channel)
            self._expiry.refused.add(channel, now)
        else:
            self._registry.close(channel, Closing.GRACEFUL, now)
