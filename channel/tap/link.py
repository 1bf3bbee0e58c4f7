"""A link through a tap: a client's connection, the connection to the node, and the bytes between the two."""

from __future__ import annotations

import contextlib
import select
from typing import TYPE_CHECKING, Final

from channel.network.transport import Address

if TYPE_CHECKING:
    from channel.clock import Clock
    from channel.network.recorder import Direction, Recorder
    from channel.network.tls import Transport

CHUNK: Final = 262_144
"""Bytes read from one connection in one call."""

_CHUNKS_IN_TURN: Final = 4
"""Number of reads from one connection before the tap goes on to the others."""

_OPENING_NS: Final = 30_000_000_000
"""Time in which both connections and their TLS handshakes must be complete."""

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class _ByteFlow:
    """The flow of bytes from one transport to the other.

    Attributes:
        source, target: The transports to read from and to write to.
        recorded_as: The direction as the recorder names it, seen from the client.
        pending: Bytes that were read and recorded, but not yet taken by the target.
        ended: Whether the source has ended its stream.
        finished: Whether the end of the stream has been passed on to the target.
    """

    __slots__ = ("ended", "finished", "pending", "recorded_as", "source", "target")

    def __init__(self, source: Transport, target: Transport, recorded_as: Direction) -> None:
        self.source = source
        self.target = target
        self.recorded_as: Direction = recorded_as
        self.pending = memoryview(b"")
        self.ended = False
        self.finished = False

    @property
    def is_blocked(self) -> bool:
        """Whether the target must take pending bytes before more are read."""
        return bool(self.pending) or self.target.has_pending_writes

    def write(self, data: memoryview) -> bool:
        """Write to the target, and keep bytes that it does not take as pending; returns whether all were written."""
        at = 0
        while at < len(data):
            count = self.target.write([data[at:] if at else data])
            if not count:
                break
            at += count
        if self.target.has_pending_writes:
            self.target.flush()
        # The rest is copied only if it lies in the buffer that the next read overwrites.
        rest = data[at:]
        self.pending = rest if data is self.pending or not rest else memoryview(bytes(rest))
        return not self.is_blocked


class Link:
    """A client's connection to the tap, and the tap's connection to the node for it. Never blocks.

    Bytes are relayed first and recorded next, before anything else is read: the recording holds every request that was
    answered, and delays no request.

    Args:
        client, node: The two connections, not yet open.
        client_address, node_address: The client's own address and the node's, as they appear in the recording.
        recorder: Takes what passes.
        clock: Time.

    Attributes:
        client, node, client_address, node_address: As given.
        opened: Whether both connections and their TLS handshakes are complete, so that payload may pass.
        deadline_ns: The time by which they must be complete.
        interests: Descriptor to the events that it was last registered for; kept by the caller.
        relayed: Bytes read from both ends so far.
    """

    __slots__ = (
        "_clock", "_flows", "_recorder", "client", "client_address", "deadline_ns", "interests", "node",
        "node_address", "opened", "relayed",
    )  # fmt: skip

    def __init__(
        self,
        client: Transport,
        node: Transport,
        client_address: Address,
        node_address: Address,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self.client = client
        self.node = node
        self.client_address = client_address
        self.node_address = node_address
        self.opened = False
        self.deadline_ns = clock.nanoseconds() + _OPENING_NS
        self.relayed = 0
        self.interests = {client.fileno(): 0, node.fileno(): 0}
        self._recorder = recorder
        self._clock = clock
        self._flows = (_ByteFlow(client, node, "sent"), _ByteFlow(node, client, "received"))

    # ---- opening and ending ------------------------------------------------------------------------------------------

    def open(self) -> dict[int, int]:
        """Finish the connection to the node, then both TLS handshakes; returns the events that they wait for.

        Raises:
            AuthenticationFailed: One side does not accept the other.
            OSError: A connection could not be made or broke.
        """
        wanted = {self.client.fileno(): 0, self.node.fileno(): 0}
        if not self.node.finish_connect():
            wanted[self.node.fileno()] = WRITE
            return wanted
        for transport in (self.node, self.client):
            if not transport.ready:
                wanted[transport.fileno()] = transport.handshake()
        if self.node.ready and self.client.ready:
            self.opened = True
            now = self._clock.wall_nanoseconds()
            self._recorder.opened(self.client_address, self.node_address, now, initiator=True)
        return wanted

    def close(self, *, reset: bool) -> None:
        """Close both connections, by a reset if ``reset`` is true, and record the end."""
        for transport in (self.client, self.node):
            if reset:
                transport.reset_on_close()
            with contextlib.suppress(OSError):
                transport.close()
        if self.opened:
            self._recorder.closed(self.client_address, self.node_address, self._clock.wall_nanoseconds())

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def relay(self, buffer: memoryview, readable: int | None) -> dict[int, int]:
        """Relay and record the bytes that can be read now.

        Args:
            buffer: Memory of any content, to read into.
            readable: The only descriptor with an event, if that event is readability alone; None for any other events.

        Returns:
            The events to wait for, by descriptor; none if both directions have ended.

        Raises:
            OSError: A connection broke.
        """
        for flow in self._flows:
            if readable is None or flow.source.fileno() == readable:
                self._move(flow, buffer)
        requests, responses = self._flows
        if requests.finished and responses.finished:
            return {}
        wanted = {self.client.fileno(): 0, self.node.fileno(): 0}
        for flow in self._flows:
            if flow.is_blocked:
                wanted[flow.target.fileno()] |= WRITE
            elif not flow.ended:
                wanted[flow.source.fileno()] |= READ
        return wanted

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether decrypted bytes are ready that no event will announce."""
        return any(flow.source.has_bytes_buffered and not flow.is_blocked and not flow.ended for flow in self._flows)

    def _move(self, flow: _ByteFlow, buffer: memoryview) -> None:
        """Relay the pending bytes, then those of the source, in a bounded number of reads."""
        for _ in range(_CHUNKS_IN_TURN):
            if flow.is_blocked and not flow.write(flow.pending):
                return
            if flow.ended:
                break
            try:
                count = flow.source.read_into(buffer)
            except EOFError:
                flow.ended = True
                break
            if not count:
                return
            self.relayed += count
            chunk = buffer[:count]
            now = self._clock.wall_nanoseconds()
            self._recorder.record(flow.recorded_as, self.client_address, self.node_address, now, [chunk])
            has_gone_out = flow.write(chunk)
            if not has_gone_out or (count < len(buffer) and not flow.source.has_bytes_buffered):
                return
        if flow.ended and not flow.finished and not flow.is_blocked:
            flow.target.end_writing()
            flow.finished = True
