"""Packets of one capture point -> frames and exchanges: runs the stages between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .conversation import Conversation
from .fragments import Fragments
from .link import endpoints, segment
from .payloads import PayloadStore
from .reassembly import Reassembler
from .wanted import WantedApis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .conversation import Event, Side
    from .link import Segment
    from .model import Connection, Endpoint
    from .pcap import Packet
    from .summary import CaptureSummary
    from .tcp import Stream, StreamEvent, TcpConnection

__all__ = ["MOST_HELD", "Collector", "IdlePoint"]

MOST_HELD: Final = 256 << 20
"""The most bytes kept in all conversations together; beyond it those kept for longest are given up."""


class IdlePoint(NamedTuple):
    """A moment at which a connection is between two exchanges, without a byte or request that waits for another.

    Attributes:
        flow: Addresses and ports, the client's first.
        requests: Sequence number of the client's next byte.
        requests_at: Its stream offset.
        responses: Sequence number of the server's next byte.
        responses_at: Its stream offset.
        requests_ns: When the client's last byte before it passed, ns since the epoch.
        responses_ns: When the server's did.
        faults: The number of gaps, bad frames and responses without request before.
    """

    flow: bytes
    requests: int
    requests_at: int
    responses: int
    responses_at: int
    requests_ns: int
    responses_ns: int
    faults: int


class Collector:
    """All connections of a capture point.

    Args:
        summary: Counts go there.
        capture: Name of the capture point, part of the connections' ids.
        ports: The listeners' ports; None to find them.
        apis: API keys whose frames are wanted; None for all. Or the ``WantedApis`` themselves.
        limit: The largest frame in bytes.
        most_held: The most bytes kept in all conversations together.
        keeps_payloads: Whether requests keep their payloads until they are answered. Else the caller takes a request's
            payload from its frame when it gets the frame, and then empties it.
        payloads: As of ``CaptureReader``.

    Attributes:
        time_ns: Time of the packet read last, ns since the epoch.
    """

    def __init__(
        self,
        summary: CaptureSummary,
        *,
        capture: str,
        ports: Collection[int] | None,
        apis: Collection[int] | WantedApis | None,
        limit: int,
        most_held: int = MOST_HELD,
        keeps_payloads: bool = True,
        payloads: PayloadStore | None = None,
    ) -> None:
        self.time_ns = 0
        self._summary = summary
        self._capture = capture
        self._ports = None if ports is None else frozenset(ports)
        summary.ports = self._ports
        self._wanted = apis if isinstance(apis, WantedApis) else WantedApis(apis)
        self._limit = limit
        self._most_held = most_held
        self._keeps_payloads = keeps_payloads
        self._fragments = Fragments(summary)
        self._reassembler = Reassembler(summary)
        self._conversations: dict[TcpConnection, Conversation] = {}
        self._holding: dict[Conversation, int] = {}  # bytes kept, the longest kept first
        self._held = 0
        self._payloads = PayloadStore() if payloads is None else payloads

    @property
    def file(self) -> str:
        """Name of the file that the packets are from."""
        return self._reassembler.file

    @file.setter
    def file(self, name: str) -> None:
        self._reassembler.file = name

    def packets(self, packets: Iterable[Packet]) -> list[Event]:
        """Take the next packets of the capture; return the frames and exchanges that they complete."""
        events: list[Event] = []
        summary, fragments, reassembler = self._summary, self._fragments, self._reassembler
        time_ns, count = self.time_ns, summary.packets
        for time_ns, link, buffer, start, stop, on_wire in packets:
            if not count:
                summary.first_ns = time_ns
            count += 1
            found = segment(time_ns, link, buffer, start, stop, on_wire, fragments, summary)
            if found is None:
                continue
            stream = reassembler.in_order(time_ns, found)
            if stream is None:
                self._stream_events(reassembler.segment(time_ns, found), events)
            elif found.on_wire:
                offset = stream.offset - found.on_wire
                self._stream_event(stream, offset, found.buffer, found.begin, found.end, time_ns, False, events)
        summary.packets = count
        self.time_ns = summary.last_ns = time_ns
        return events

    def add_segment(self, time_ns: int, found: Segment) -> list[Event]:
        """Take the next TCP segment, from a packet that was counted elsewhere."""
        events: list[Event] = []
        self.time_ns = time_ns
        self._stream_events(self._reassembler.segment(time_ns, found), events)
        return events

    def idle_point(self, flow: bytes) -> IdlePoint | None:
        """Where the connection of a flow rests, None if it does not."""
        stream = self._reassembler.stream(flow)
        conversation = self._conversations.get(stream.connection) if stream is not None else None
        boundaries = conversation.boundaries if conversation is not None else None
        if stream is None or conversation is None or conversation.client is None or boundaries is None:
            return None
        client = stream.connection.streams[conversation.client]
        server = client.peer
        if not (client.is_even and server.is_even) or boundaries != (client.offset, server.offset):
            return None
        requests_ns, responses_ns = conversation.last_ns
        return IdlePoint(
            stream.connection.flow_of(client),
            client.next,
            client.offset,
            server.next,
            server.offset,
            requests_ns,
            responses_ns,
            conversation.faults,
        )

    def go_to(self, begin: IdlePoint, end: IdlePoint, *, has_wanted: bool) -> None:
        """Let a resting connection rest at a later place: the exchanges between the two are read elsewhere.

        Args:
            begin: Where it rests.
            end: Where it shall rest; its stream offsets count from those of ``begin``.
            has_wanted: Whether there is a wanted request among those exchanges.
        """
        stream = self._reassembler.stream(begin.flow)
        assert stream is not None
        conversation = self._conversations[stream.connection]
        requests_at = begin.requests_at + end.requests_at
        responses_at = begin.responses_at + end.responses_at
        stream.go_to(end.requests, requests_at)
        stream.peer.go_to(end.responses, responses_at)
        conversation.go_to(requests_at, responses_at, (end.requests_ns, end.responses_ns), has_wanted=has_wanted)

    def connection(self, flow: bytes) -> Connection | None:
        """Client and server of a flow's connection, None while they are not known."""
        stream = self._reassembler.stream(flow)
        conversation = self._conversations.get(stream.connection) if stream is not None else None
        return conversation.connection if conversation is not None else None

    def is_ignored(self, flow: bytes) -> bool:
        """Whether nothing more is read of a flow's connection."""
        stream = self._reassembler.stream(flow)
        return stream is not None and stream.ignored and stream.peer.ignored

    def end(self) -> list[Event]:
        """End the capture; return the remaining frames and exchanges."""
        events: list[Event] = []
        self._fragments.end()
        for conversation in self._conversations.values():
            conversation.ending = True
        self._stream_events(self._reassembler.end(self.time_ns), events)
        return events

    def _stream_events(self, known: Sequence[StreamEvent], events: list[Event]) -> None:
        more = len(known)
        for stream, offset, buffer, begin, end, time_ns in known:
            more -= 1
            self._stream_event(stream, offset, buffer, begin, end, time_ns, more > 0, events)

    def _stream_event(
        self, stream: Stream, offset: int, buffer: bytes | None, begin: int, end: int, time_ns: int, more: bool,
        out: list[Event],
    ) -> None:  # fmt: skip
        """Handle a ``StreamEvent``; ``more`` says whether others were caused by the same segment."""
        connection = stream.connection
        conversation = self._conversations.get(connection)
        if conversation is None:
            if offset < 0:
                stream.ended_unread = True
                return
            if stream.ignored:
                return
            if not self._is_wanted(connection):
                self._reassembler.ignore(connection)
                return
            conversation = self._conversations[connection] = self._conversation(connection)
            if stream.peer.ended_unread:
                conversation.end(stream.peer.side)
        conversation.file = connection.file
        protocol = conversation.protocol
        if buffer is not None:
            if conversation.passes(stream.side, offset, buffer, begin, end, time_ns):
                if conversation.held or conversation in self._holding:
                    self._count_held(conversation, out)
                return
            client = conversation.client
            request_hole = more or (client is not None and connection.streams[client].has_hole)
            events = conversation.feed(stream.side, offset, buffer, begin, end, time_ns, request_hole=request_hole)
        elif offset >= 0:
            events = conversation.lost(stream.side, offset, end)
        else:
            events = conversation.end(stream.side)
            if conversation.is_over:
                del self._conversations[connection]
        if conversation.protocol is not protocol:
            self._recognised(connection, conversation)
        if events:
            out += events
        if conversation.held or conversation in self._holding:
            self._count_held(conversation, out)

    def _is_wanted(self, connection: TcpConnection) -> bool:
        """Whether a connection is on a port that is wanted."""
        if self._ports is None:
            return True
        return any(end.port in self._ports for end in endpoints(connection.flow))

    def _conversation(self, connection: TcpConnection) -> Conversation:
        senders = endpoints(connection.flow)
        return Conversation(
            senders,
            connection.opened_ns,
            handshake=connection.client is not None,
            server=self._server_of(connection, senders),
            wanted=self._wanted,
            limit=self._limit,
            capture=self._capture,
            summary=self._summary,
            keeps_payloads=self._keeps_payloads,
            payloads=self._payloads,
        )

    def _server_of(self, connection: TcpConnection, senders: tuple[Endpoint, Endpoint]) -> Side | None:
        """The server, if the handshake or the ports tell; else None."""
        if connection.client is not None:
            return connection.client.peer.side
        first, second = senders
        if self._ports is not None and (first.port in self._ports) != (second.port in self._ports):
            return 0 if first.port in self._ports else 1
        return None

    def _recognised(self, connection: TcpConnection, conversation: Conversation) -> None:
        """Note a connection's protocol; a connection of another protocol than Kafka is no longer read."""
        self._summary.recognised(conversation.protocol, conversation.server)
        if conversation.protocol != "kafka":
            self._reassembler.ignore(connection)

    def _count_held(self, conversation: Conversation, events: list[Event]) -> None:
        """Count a conversation's kept bytes, and hold all conversations to the limit."""
        self._held += conversation.held - self._holding.get(conversation, 0)
        if conversation.held:
            self._holding[conversation] = conversation.held
        else:
            del self._holding[conversation]
        payloads, most = self._payloads, self._most_held
        if self._held + payloads.held_bytes > most:
            payloads.forget()
        while self._held + payloads.held_bytes > most and self._holding:
            oldest = next(iter(self._holding))
            events += oldest.give_up_held()
            self._held -= self._holding.pop(oldest)
