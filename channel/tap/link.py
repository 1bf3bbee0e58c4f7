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

CHUNK: Final = 245_760
"""Bytes read from one connection in one call: four segments of a recording."""

_CHUNKS_IN_TURN: Final = 4
"""Number of reads from one connection before the tap goes on to the others."""

OPENING_NS: Final = 30_000_000_000
"""Time in which both connections and their TLS handshakes must be complete, and first the node's name looked up."""

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class NodeUnreachable(OSError):
    """The address of a node took no connection."""


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

    @property
    def events_of_source(self) -> int:
        """The events of the source to wait for."""
        return 0 if self.ended or self.is_blocked else READ

    @property
    def events_of_target(self) -> int:
        """The events of the target to wait for."""
        return WRITE if self.is_blocked else 0

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
        return not rest and not self.target.has_pending_writes


class Link:
    """A client's connection to the tap, and the tap's connection to the node for it. Never blocks.

    Bytes are recorded first and relayed next: a tap that is killed has recorded all that either end has received.

    Args:
        client, node: The two connections, not yet open.
        client_address, node_address: The client's own address and the node's, as they appear in the recording.
        recorder: Takes what passes.
        epoll: Waits for the events of both connections.

    Attributes:
        is_connected: Whether the node has taken the connection.
        opened: Whether both connections and their TLS handshakes are complete, so that payload may pass.
        finished: Whether both directions have ended.
        deadline_ns: The time by which the link must be opened.
        events: The descriptors of both connections, and the events that are waited for.
        relayed: Bytes read from both ends so far.
        is_answered: Whether the node has sent anything.
    """

    __slots__ = (
        "_client", "_clock", "_epoll", "_flows", "_node", "_recorder", "_requests", "_responses", "client_address",
        "deadline_ns", "events", "finished", "is_answered", "is_connected", "node_address", "opened", "relayed",
    )  # fmt: skip

    def __init__(
        self,
        client: Transport,
        node: Transport,
        client_address: Address,
        node_address: Address,
        recorder: Recorder,
        clock: Clock,
        epoll: select.epoll,
    ) -> None:
        self._client = client
        self._node = node
        self.client_address = client_address
        self.node_address = node_address
        self.is_connected = False
        self.opened = False
        self.finished = False
        self.deadline_ns = clock.nanoseconds() + OPENING_NS
        self.relayed = 0
        self.is_answered = False
        self.events = {client.fileno(): 0, node.fileno(): 0}
        self._recorder = recorder
        self._clock = clock
        self._epoll = epoll
        self._requests = _ByteFlow(client, node, "sent")
        self._responses = _ByteFlow(node, client, "received")
        self._flows = {client.fileno(): self._requests, node.fileno(): self._responses}
        self._wait_for(0, WRITE)

    # ---- opening and ending ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Finish both connections, then both TLS handshakes.

        Raises:
            NodeUnreachable: The node's address takes no connection.
            AuthenticationFailed: One side does not accept the other.
            OSError: A connection broke.
        """
        self._client.finish_connect()  # raises if the client has reset its connection before it was accepted
        try:
            self.is_connected = self._node.finish_connect()
        except OSError as e:
            raise NodeUnreachable(*e.args) from e
        if not self.is_connected:
            return
        node = 0 if self._node.ready else self._node.handshake()
        client = 0 if self._client.ready else self._client.handshake()
        if self._node.ready and self._client.ready:
            self.opened = True
            self._recorder.opened(self.client_address, self.node_address, self._clock.wall_nanoseconds())
        else:
            self._wait_for(client, node)

    def _wait_for(self, *events: int) -> None:
        """Wait for these events of the client's connection and of the node's."""
        for (descriptor, former), wanted in zip(self.events.items(), events, strict=True):
            if wanted == former:
                continue
            self.events[descriptor] = wanted
            if not wanted:
                self._epoll.unregister(descriptor)  # else epoll would report a peer that has hung up again and again
            elif not former:
                self._epoll.register(descriptor, wanted)
            else:
                self._epoll.modify(descriptor, wanted)

    def close_node(self) -> None:
        """Close the connection to the node alone: another link takes the client's."""
        self.finished = True
        self._wait_for(0, 0)
        self._node.close()

    def close(self, *, reset: bool) -> None:
        """Close both connections, by a reset if ``reset`` is true, and record the end."""
        self.finished = True
        self._wait_for(0, 0)
        for transport in (self._client, self._node):
            if reset:
                transport.reset_on_close()
            with contextlib.suppress(OSError):
                transport.close()
        if self.opened:
            self._recorder.closed(self.client_address, self.node_address, self._clock.wall_nanoseconds())

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def relay(self, buffer: memoryview, readable: int | None) -> bool:
        """Relay and record the bytes that can be read now.

        Args:
            buffer: Memory of any content, to read into.
            readable: The only descriptor with an event, if that event is readability alone; None for any other events.

        Returns:
            Whether decrypted bytes are ready that no event will announce.

        Raises:
            OSError: A connection broke.
        """
        if readable is not None:
            flow = self._flows[readable]
            if self._move(flow, buffer):
                return flow.source.has_bytes_buffered
        else:
            for flow in self._flows.values():
                self._move(flow, buffer)
        requests, responses = self._requests, self._responses
        self.finished = requests.finished and responses.finished
        self._wait_for(
            requests.events_of_source | responses.events_of_target,
            responses.events_of_source | requests.events_of_target,
        )
        return any(flow.source.has_bytes_buffered and flow.events_of_source for flow in self._flows.values())

    def _move(self, flow: _ByteFlow, buffer: memoryview) -> bool:
        """Relay the pending bytes, then those of the source, in a bounded number of reads.

        Returns:
            Whether the flow goes on when its source is readable: it has not ended, and its target takes bytes.
        """
        for _ in range(_CHUNKS_IN_TURN):
            if flow.is_blocked and not flow.write(flow.pending):
                return False
            if flow.ended:
                break
            try:
                count = flow.source.read_into(buffer)
            except EOFError:
                flow.ended = True
                break
            if not count:
                return True
            self.relayed += count
            self.is_answered = self.is_answered or flow is self._responses
            chunk = buffer[:count]
            now = self._clock.wall_nanoseconds()
            self._recorder.record(flow.recorded_as, self.client_address, self.node_address, now, [chunk])
            has_gone_out = flow.write(chunk)
            if not has_gone_out:
                return False
            if count < len(buffer) and not flow.source.has_bytes_buffered:
                return True
        if flow.ended and not flow.finished and not flow.is_blocked:
            flow.target.end_writing()
            flow.finished = True
        return not flow.ended
