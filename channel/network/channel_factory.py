"""A factory of channels on sockets: it makes connection, transport and authenticator, and attaches the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel import Channel
from .connection import Connection
from .frames import Window

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .memory import MemoryPool
    from .selector_metrics import SelectorMetrics
    from .sockets import ChannelBuilder, Peer

__all__ = ["ChannelFactory"]


class ChannelFactory:
    """Makes the channels of one selector, which share a window for small frames.

    Args:
        builder: Puts transports on sockets.
        metrics_of: Returns the metrics of a connection by its id.
        max_receive_size: Largest payload that is received, ``UNLIMITED`` for none.
        pool: The pool that gives the buffers of frames, None for the heap.
    """

    __slots__ = ("_builder", "_metrics_of", "_pool", "_window", "max_receive_size")

    def __init__(
        self,
        builder: ChannelBuilder,
        metrics_of: Callable[[str], SelectorMetrics | None],
        max_receive_size: int,
        pool: MemoryPool | None,
    ) -> None:
        self._builder = builder
        self._metrics_of = metrics_of
        self._pool = pool
        self._window = Window()
        self.max_receive_size = max_receive_size

    def channel(self, channel_id: str, sock: socket.socket, peer: Peer, *, checks_versions: bool = False) -> Channel:
        """Make a channel over a socket that is connecting, or connected.

        Raises:
            OSError: No transport can be put on the socket.
        """
        try:
            transport, authenticator = self._builder(sock, peer)
        except OSError:
            raise
        except Exception as e:
            raise OSError(f"no channel to {peer.host}:{peer.port} ({peer.listener}): {type(e).__name__}: {e}") from e
        connection = Connection(
            channel_id,
            max_receive_size=self.max_receive_size,
            pool=self._pool,
            window=self._window,
            checks_versions=checks_versions,
        )
        channel = Channel(connection, transport, authenticator)
        channel.metrics = self._metrics_of(channel_id)
        return channel
