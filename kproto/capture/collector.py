"""Packets of one capture point -> frames and exchanges: the conversation of each connection, and the stages before it.

A conversation knows which side is the client; it has two cutters, and joins requests and their responses.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from .borders import Border, pack_segment
from .cutter import (
    AuthenticationToken,
    BadFrame,
    Gap,
    Matcher,
    OtherProtocol,
    PartialStart,
    PendingRequest,
    RequestCutter,
    RequestInStream,
    ResponseCutter,
    ResponseInStream,
    ResponsesLost,
)
from .detection import FrameHeader, is_convincing, is_known_request, read_request_header, response_body_at
from .fragments import Fragments
from .link import ACK, RST, SYN, endpoints, reverse, segment, ticks_of
from .model import GAP, WHOLE, Connection, Exchange, Frame
from .payloads import PayloadStore
from .reassembly import NEVER, SET_NS, UNKNOWN, Reassembler, advance
from .summary import StreamLoss
from .wanted import WantedApis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .cutter import Chunk, FrameCutter, StreamItem
    from .link import Segment
    from .model import Direction, Endpoint
    from .pcap import Packet
    from .reassembly import Stream, StreamEvent, TcpConnection
    from .summary import CaptureSummary, LossKind

Event = Frame | Exchange
"""The output of a conversation: a request's frame once it is whole, an exchange once it is settled."""

Side: TypeAlias = int
"""0 for the sender of a connection's first packet, 1 for the other one."""

_PAIR: Final = struct.Struct(">ii").unpack_from

_UNMATCHED_FRAMES: Final = 100
_UNMATCHED_BYTES: Final = 4 << 20
_UNMATCHED_BYTES_BEFORE_REQUESTS: Final = 64 << 10
"""The most responses that wait for a late request, and their bytes; fewer where no request was seen."""

_MOST_DOUBTFUL: Final = 100
"""The most requests that may be of another protocol, as their server has said nothing yet."""

_UNLIMITED: Final = 1 << 62

_COPY_NS: Final = 100_000_000
"""Within this time the copy of a packet passes that is seen before and after its addresses are translated."""

_KEPT_BEGINNINGS: Final = 1000

_ENDED: Final = "the connection ended without a response"
CAPTURE_ENDED: Final = "the capture ends before a response"
"""Why a request has no response, where a later recording may hold it."""
_PASSED_BY: Final = "the response is not in the capture: a later request was answered"
_NO_REQUEST: Final = "the request is not in the capture"
_GIVEN_UP: Final = "too much was waiting for its response: kproto gave it up"


class Conversation:
    """One connection: its bytes -> its frames and exchanges.

    Args:
        tcp: Its segments.
        server: The end that answers, if the handshake or the ports tell; None to find out.
        wanted: The APIs whose frames are given.
        limit, capture, summary, keeps_payloads, payloads: See ``Collector``.

    Attributes:
        connection: Client and server, once it is known which is which.
        client: The end that is the client, None while that is unknown.
        protocol: ``kafka``, ``TLS``, ``HTTP`` or ``unknown``; None until it is recognised.
        file: Name of the file with the newest packet, which frames carry.
        ending: Whether the capture has ended.
        held: Bytes kept here: incomplete frames, requests without response, responses without request.
    """

    def __init__(
        self,
        tcp: TcpConnection,
        server: Side | None,
        *,
        wanted: WantedApis,
        limit: int,
        capture: str,
        summary: CaptureSummary,
        keeps_payloads: bool = True,
        payloads: PayloadStore | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self.client: Side | None = None
        self.protocol: Literal["kafka", "TLS", "HTTP", "unknown"] | None = None
        self.file = ""
        self.ending = False
        self.held: int = 0
        self._tcp = tcp
        self._senders = senders = endpoints(tcp.flow)
        self._handshake = tcp.client is not None
        self._wanted = wanted
        self._limit = limit
        self._capture = capture
        self._summary = summary
        self._matcher = Matcher(keeps_payloads=keeps_payloads)
        self._unmatched: list[Frame] = []
        self._unmatched_bytes = 0
        self._has_wanted = False
        self._request_hole = False
        self._has_data = False
        self._is_new = True  # no exchange is complete yet
        self._ended = 0
        self._first_ns = self._second_ns = tcp.opened_ns  # time of the last bytes that each side sent
        self._noted: set[tuple[Direction, LossKind]] = set()
        self._partial_starts: list[tuple[Side, int]] = []
        self._answers_fit = False  # the server's first bytes are an answer to the first request
        self._doubtful: list[RequestInStream] = []  # first requests that may be of another protocol
        self._cutters: list[RequestCutter | ResponseCutter] = []
        if server is None:
            self._cutters = [RequestCutter(wanted, limit, aligned=False, payloads=payloads) for _ in senders]
        else:
            requests = RequestCutter(wanted, limit, aligned=self._handshake, payloads=payloads)
            self._set_sides(0 if server else 1, requests)

    @property
    def server(self) -> Endpoint:
        """The server; while it is unknown, the side with the lower port."""
        if self.connection is not None:
            return self.connection.server
        return min(self._senders, key=lambda end: end.port)

    @property
    def is_over(self) -> bool:
        """Whether both sides have ended."""
        return self._ended == 2

    def passes(self, side: Side, offset: int, buffer: bytes, begin: int, end: int, time_ns: int) -> bool:
        """Take the next bytes that one side sent if they complete nothing; else ``feed`` must take them."""
        cutter = self._cutters[side]
        held = cutter.held_bytes
        if not self._has_data or self._unmatched or not cutter.passes(offset, buffer, begin, end, time_ns):
            return False
        self.held += cutter.held_bytes - held
        if side:
            self._second_ns = time_ns
        else:
            self._first_ns = time_ns
        return True

    def feed(
        self, side: Side, offset: int, buffer: bytes, begin: int, end: int, time_ns: int, *, request_hole: bool = False
    ) -> list[Event]:
        """Take the next bytes that one side sent.

        Args:
            side: The side that sent them.
            offset: Their stream offset.
            buffer: The buffer that holds them.
            begin, end: The bytes' place in the buffer.
            time_ns: Time of their packet.
            request_hole: Whether earlier bytes of the client are missing now and may still come.
        """
        events: list[Event] = []
        self._request_hole = request_hole
        if not self._has_data:
            self._count_data()
        if side != self.client:
            start = buffer[begin : min(begin + 8, end)]
            if self._cutters[1 - side].searching and not self._doubtful:
                self._find_answered(side, start, end - begin, events)
            elif self.protocol is None and self._handshake and self.client is not None and not offset:
                self._hear_server(side, start, events)
        cutter = self._cutters[side]
        if offset + end - begin > cutter.skip_to:
            if side != self.client and isinstance(cutter, ResponseCutter):
                cutter.unmatched_bytes = _UNLIMITED if self._has_wanted else self._spare_bytes()
            self._cut(side, cutter, [(offset, buffer, begin, end, time_ns)], events)
        if self._unmatched:
            self._match_again(events)
        if side:
            self._second_ns = time_ns
        else:
            self._first_ns = time_ns
        self._count_held()
        return events

    def lost(self, side: Side, offset: int, length: int) -> list[Event]:
        """Note that bytes of one side are lost."""
        events: list[Event] = []
        if length:
            self._count_data()
        cutter = self._cutters[side]
        if offset + length > cutter.skip_to:
            for cut in cutter.lost(offset, length):
                self._handle(side, cut, events)
        self._count_held()
        return events

    def end(self, side: Side) -> list[Event]:
        """Note the end of one side's stream; after the end of both, requests without response are given up."""
        events: list[Event] = []
        self._ended += 1
        first = self._ended == 1
        if first and self._cutters[side].searching:
            return events  # its last frame may be found by what the other side still sends
        if not first and self.client is not None:
            self._look_again(1 - self.client, events)
        for each in (side,) if first else (1 - side, side):
            for cut in self._cutters[each].end():
                self._handle(each, cut, events)
        if self._ended == 2:
            self._believe([cut for cut in self._doubtful if not cut.status or cut.header.client_id], events)
            self._match_again(events)
            for request in self._matcher.end():
                self._unanswered(request, CAPTURE_ENDED if self.ending else _ENDED, events)
            self._count_partial_starts()
        self._count_held()
        return events

    def go_on_in(self, summary: CaptureSummary, payloads: PayloadStore, capture: str) -> None:
        """Count in another summary, keep the payloads that begin from now on in another store, take another label."""
        self._summary = summary
        self._capture = capture
        if self.connection is not None and self.connection.capture != capture:
            assert self.connection.conn_id  # it stays as it is
            self.connection.capture = capture
        for cutter in self._cutters:
            if isinstance(cutter, RequestCutter):
                cutter.use(payloads)

    def give_up_held(self) -> list[Event]:
        """Give up everything that is kept: frames with a gap, requests without response, responses without request."""
        events: list[Event] = []
        self._believe(self._doubtful, events)
        for side in (0, 1):
            cutter = self._cutters[side]
            if cutter.held_bytes:
                self._summary.given_up["frames"] += 1
                if self.connection is not None:
                    self._note_loss(side, "given up", cutter.held_bytes)
            for cut in cutter.give_up_held():
                self._handle(side, cut, events)
        for request in self._matcher.end():
            if request.frame is not None:
                self._summary.given_up["requests"] += 1
            self._unanswered(request, _GIVEN_UP, events)
        unmatched, self._unmatched, self._unmatched_bytes = self._unmatched, [], 0
        for frame in unmatched:
            self._summary.given_up["responses"] += 1
            self._without_request(frame, events)
        self._count_held()
        return events

    # ---- cuts ----

    def _cut(self, side: Side, cutter: FrameCutter, todo: list[Chunk], events: list[Event]) -> None:
        while todo:
            for cut in cutter.feed(todo):
                self._handle(side, cut, events)

    def _handle(self, side: Side, cut: StreamItem, events: list[Event]) -> None:
        kind = type(cut)
        if kind is RequestInStream:
            self._request(side, cut, events)  # type: ignore[arg-type]  # its type was looked at
        elif kind is ResponseInStream:
            self._response(cut, events)  # type: ignore[arg-type]
        elif isinstance(cut, AuthenticationToken):
            if side == self.client:
                self._add(PendingRequest(0, None, 0), events)
            else:
                self._matcher.answer_token()
        elif isinstance(cut, ResponsesLost):
            self._matcher.responses_lost()
        elif isinstance(cut, PartialStart):
            self._partial_starts.append((side, cut.length))
        elif isinstance(cut, OtherProtocol):
            self.protocol = cut.protocol
            for cutter in self._cutters:
                cutter.stop()
        elif self.protocol != "kafka":  # bytes of another protocol are no loss
            if isinstance(cut, BadFrame) and side == self.client:  # nor is what the server said so far an answer
                self._cutters[1 - side].begin_anew()
        elif isinstance(cut, Gap):
            self._summary.gaps += 1
            self._summary.gap_bytes += cut.length
            self._note_loss(side, "gap", cut.length)
        elif isinstance(cut, BadFrame):
            connection = self.connection
            assert connection is not None
            reason = f"{connection.client} -> {connection.server}: {cut.reason}"
            self._summary.bad(reason, cut.offset, cut.skipped, self.file)
            self._note_loss(side, "unreadable", cut.skipped)

    def _count_partial_starts(self) -> None:
        """Count the sides that the capture shows from the middle of a frame on, once the connection is over.

        Only connections with wanted requests count; and those to a known listener that were not recognised at all,
        since the frame that began before the capture may have been the only one.
        """
        if self.protocol is None:
            self._summary.undetected(self.server)
        if self.client is None or (self.protocol != "kafka" and self.protocol is not None):
            return
        found = dict(self._partial_starts)
        for side, cutter in enumerate(self._cutters):
            if cutter.begins_inside:
                found.setdefault(side, cutter.searched)
        if self._has_wanted or (self.protocol is None and self.client in found):
            for side, length in found.items():
                self._summary.partial_starts += 1
                self._note_loss(side, "partial start", length, self._tcp.opened_ns)

    def _note_loss(self, side: Side, kind: LossKind, length: int, time_ns: int | None = None) -> None:
        """Note the first loss of a kind on each side of the connection."""
        assert self.connection is not None
        direction: Direction = "request" if side == self.client else "response"
        if (direction, kind) in self._noted:
            return
        self._noted.add((direction, kind))
        if time_ns is None:
            time_ns = self._second_ns if side else self._first_ns
        self._summary.lost(StreamLoss(self.connection, direction, kind, time_ns, length))

    def _set_sides(self, client: Side, requests: RequestCutter) -> None:
        responses = ResponseCutter(self._wanted, self._limit, self._matcher, aligned=self._handshake)
        if self._cutters:
            responses.follow_sizes_of(self._cutters[1 - client])
        self.client = client
        self._cutters = [responses, requests] if client else [requests, responses]
        self.connection = Connection(
            self._senders[client],
            self._senders[1 - client],
            self._tcp.opened_ns,
            self._capture,
            saw_open=self._handshake,
        )

    def _hear_server(self, side: Side, start: bytes, events: list[Event]) -> None:
        """Judge a guess by the first bytes that the server says, where the handshake was seen.

        A server of Kafka's speaks when it was asked, and repeats the correlation id. If it does not, the connection is
        of another protocol; if it does, a request that was only a guess is one.
        """
        requests = self._cutters[1 - side]
        assert isinstance(requests, RequestCutter)
        ids = {cut.header.correlation_id for cut in self._doubtful} or requests.begun_ids
        if ids is None or self._request_hole:
            return
        size, correlation_id = _PAIR(start.ljust(8))
        if not ids or (len(start) == 8 and not (4 <= size <= self._limit and correlation_id in ids)):
            self._doubtful.clear()
            self._handle(side, OtherProtocol("unknown"), events)
        else:
            self._answers_fit = True
            self._believe(self._doubtful, events)

    def _find_answered(self, side: Side, start: bytes, length: int, events: list[Event]) -> None:
        """Take up the other side's last request, if this segment is its answer."""
        size, correlation_id = _PAIR(start.ljust(8))
        if len(start) == 8 and 4 <= size <= self._limit and size + 4 >= length:
            self._look_again(1 - side, events, correlation_id)
            self._believe(self._doubtful, events)

    def _look_again(self, side: Side, events: list[Event], answered: int | None = None) -> None:
        """Search what one side has sent once more: for the request that is answered, or for the last answers."""
        todo: list[Chunk] = []
        for cut in self._cutters[side].look_again(todo, answered):
            self._handle(side, cut, events)
        self._cut(side, self._cutters[side], todo, events)

    def _believe(self, cuts: list[RequestInStream], events: list[Event]) -> None:
        """Take requests that were in doubt."""
        found, self._doubtful = cuts[:], []
        for cut in found:
            assert self.client is not None
            self._request(self.client, cut, events, is_sure=True)

    def _request(self, side: Side, cut: RequestInStream, events: list[Event], is_sure: bool = False) -> None:
        if self.protocol is None:
            is_sure = is_sure or self._answers_fit or not self._handshake or self.client is None
            if not is_sure and is_convincing(cut.header, cut.payload):
                self._believe([*self._doubtful, cut], events)
                return
            if not is_sure:
                self._doubtful.append(cut)
                if len(self._doubtful) > _MOST_DOUBTFUL:
                    self._believe(self._doubtful, events)
                return
            self.protocol = "kafka"
            if self.client is None:
                cutter = self._cutters[side]
                assert isinstance(cutter, RequestCutter)
                self._set_sides(side, cutter)
        header = cut.header
        self._summary.requests[header.api_key, header.api_version] += 1
        if header.sender >= 0 and self.connection is not None:
            self._summary.sent_by(self.connection.client, self.connection.server, header.sender, cut.first_ns)
        frame = None
        if cut.payload is not None:
            assert self.connection is not None
            frame = Frame(
                self.connection,
                "request",
                cut.offset,
                cut.first_ns,
                cut.last_ns,
                GAP if cut.status else WHOLE,
                header.size,
                cut.payload,
                header.api_key,
                header.api_version,
                header.correlation_id,
                header.client_id,
                header.body_at,
                self.file,
                self._sequence(side, cut.offset),
            )
            self._has_wanted = True
            events.append(frame)
        self._add(PendingRequest(header.correlation_id, header.api_key, header.api_version, frame), events)

    def _sequence(self, side: Side, offset: int) -> int:
        """The sequence number at a stream offset of one side."""
        return (self._tcp.streams[side].first + offset) & 0xFFFFFFFF

    def _add(self, request: PendingRequest, events: list[Event]) -> None:
        oldest = self._matcher.add(request)
        if oldest is not None:
            self._summary.given_up["requests"] += oldest.frame is not None
            self._unanswered(oldest, _GIVEN_UP, events)

    def _response(self, cut: ResponseInStream, events: list[Event]) -> None:
        self._summary.responses += self.protocol == "kafka" or cut.payload is not None
        request = cut.request
        if request is not None and request.pending:
            for passed_by in self._matcher.answer(request):
                self._unanswered(passed_by, _PASSED_BY, events)
            if self._is_new:
                self._is_new = False
                self._tcp.has_begun()
        else:
            request = None
        if cut.payload is None:
            if request is not None:
                self._unanswered(request, _PASSED_BY, events)
            return
        assert self.connection is not None
        frame = Frame(
            self.connection,
            "response",
            cut.offset,
            cut.first_ns,
            cut.last_ns,
            GAP if cut.status else WHOLE,
            cut.size,
            cut.payload,
            None,
            None,
            cut.correlation_id,
            None,
            min(4, len(cut.payload)),
            self.file,
            self._sequence(0 if self.client else 1, cut.offset),
        )
        if request is None:
            self._unmatched.append(frame)
            self._unmatched_bytes += len(frame.payload)
        else:
            self._join(request, frame, events)

    # ---- requests and responses without the other ----

    def _join(self, request: PendingRequest, response: Frame, events: list[Event]) -> None:
        asked = request.frame
        if asked is None or request.api_key is None:
            return
        response.request = asked
        response.api_key = request.api_key
        response.api_version = request.api_version
        response.client_id = asked.client_id
        response.body_at = response_body_at(request.api_key, request.api_version, response.payload)
        events.append(Exchange(asked, response))

    def _unanswered(self, request: PendingRequest, reason: str, events: list[Event]) -> None:
        if request.frame is not None:
            request.frame.unmatched_reason = reason
            self._summary.unmatched_requests += 1
            events.append(Exchange(request.frame, None))

    def _without_request(self, response: Frame, events: list[Event]) -> None:
        if self._has_wanted:
            response.unmatched_reason = _NO_REQUEST
            self._summary.unmatched_responses += 1
            events.append(Exchange(None, response))

    @property
    def _request_may_come(self) -> bool:
        """Whether an earlier request may still come, because its segments are late."""
        if self.client is None:
            return False
        return self._request_hole or self._cutters[self.client].searching

    def _spare_bytes(self) -> int:
        """The number of further bytes of unmatched responses that may be kept."""
        if self._has_wanted:
            return _UNLIMITED
        if not self._request_may_come:
            return -1
        limit = _UNMATCHED_BYTES if self.protocol == "kafka" else _UNMATCHED_BYTES_BEFORE_REQUESTS
        return limit - self._unmatched_bytes

    def _match_again(self, events: list[Event]) -> None:
        """Search the pending requests for those of the unmatched responses."""
        full = len(self._unmatched) > _UNMATCHED_FRAMES or self._unmatched_bytes > _UNMATCHED_BYTES
        later = self._request_may_come and not full and self._ended < 2
        unmatched, self._unmatched, self._unmatched_bytes = self._unmatched, [], 0
        for frame in unmatched:
            request = self._matcher.find(frame.correlation_id)
            if request is not None:
                for passed_by in self._matcher.answer(request):
                    self._unanswered(passed_by, _PASSED_BY, events)
                self._join(request, frame, events)
            elif later:
                self._unmatched.append(frame)
                self._unmatched_bytes += len(frame.payload)
            else:
                self._without_request(frame, events)

    def _count_data(self) -> None:
        if not self._has_data:
            self._has_data = True
            self._summary.connections += 1

    def _count_held(self) -> None:
        first, second = self._cutters
        held = self._matcher.held_bytes + self._unmatched_bytes + first.held_bytes + second.held_bytes
        if first.searching or second.searching:
            held += first.searched_bytes + second.searched_bytes
        if self._doubtful:
            held += sum([len(cut.payload) if cut.payload is not None else 0 for cut in self._doubtful])
        self.held = held


_LONGEST_NS: Final = 1 << 46
"""By at most so much in all clocks are taken to be set: most of a day."""

_WAIT_NS: Final = 10_000_000_000
_MOST_WAITING: Final = 1 << 12
"""How long, and how many, packets behind a leap in time wait for one that tells whether the clock was set."""

_LATEST_NS: Final = NEVER - (1 << 52)
"""No later time is corrected."""

_MOST_BEGUN: Final = 50_000
"""The most connections that are over whose beginnings are kept."""

MOST_HELD: Final = 256 << 20
"""The most bytes kept in all conversations together; beyond it those kept for longest are given up."""


def _sequences_of(segment: Segment) -> tuple[int, int]:
    """The sequence number of a segment's own direction, and that of the other one, -1 where it shows none."""
    return segment.sequence, segment.acknowledged if segment.flags & ACK else UNKNOWN


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
        payloads: See ``CaptureReader``.

    Attributes:
        time_ns: Time of the packet read last, ns since the epoch.
        behind_ns: By how much the recorder's clock was set back meanwhile; negative: put forward.
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
        self.time_ns: int = 0
        self._newest_ns = 0
        self.behind_ns = 0
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
        # Of the newest connections, by the place and bytes of their first data: its stream, and when it passed.
        self._beginnings: dict[tuple[int, int, bytes], tuple[Stream, int]] = {}
        self._begun: dict[TcpConnection, Connection | None] = {}  # those that are over

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
        summary, fragments = self._summary, self._fragments
        time_ns, count, newest_ns, behind_ns = self.time_ns, summary.packets, self._newest_ns, self.behind_ns
        least_ns = SET_NS
        waiting: list[tuple[int, Segment]] = []
        told: dict[bytes, int] = {}
        for time_ns, link, buffer, start, stop, on_wire in packets:
            if behind_ns and -behind_ns < time_ns < _LATEST_NS:
                time_ns += behind_ns
            if not count:
                newest_ns = summary.first_ns = time_ns
            count += 1
            found = segment(time_ns, link, buffer, start, stop, on_wire, fragments, summary)
            if found is None:
                continue
            if waiting and (not -least_ns <= time_ns - waiting[0][0] <= _WAIT_NS or len(waiting) == _MOST_WAITING):
                newest_ns, told = self._take(waiting, newest_ns, events), {}
            ahead_ns = time_ns - newest_ns
            if -least_ns <= ahead_ns <= least_ns and not waiting:
                if ahead_ns > 0:
                    newest_ns = time_ns
                self._segment(time_ns, found, events)
                continue
            set_ns = self._set_by(time_ns, found, newest_ns, told) if time_ns < _LATEST_NS else 0
            waiting.append((time_ns, found))
            if set_ns != NEVER:
                if set_ns:
                    self._note_set(count - len(waiting) + 1, set_ns)
                    time_ns -= set_ns
                    behind_ns -= set_ns
                    self.behind_ns = behind_ns
                newest_ns = self._take(waiting, newest_ns, events, set_ns)
                told = {}
        if waiting:
            newest_ns = self._take(waiting, newest_ns, events)
        summary.packets = count
        self._newest_ns = newest_ns
        self.time_ns = summary.last_ns = time_ns
        return events

    def _take(self, waiting: list[tuple[int, Segment]], newest_ns: int, events: list[Event], set_ns: int = 0) -> int:
        """Take the segments that waited; return the newest time."""
        for time_ns, found in waiting:
            newest_ns = max(newest_ns, time_ns - set_ns)
            self._segment(time_ns - set_ns, found, events)
        waiting.clear()
        return newest_ns

    def _segment(self, time_ns: int, found: Segment, events: list[Event]) -> None:
        reassembler = self._reassembler
        stream = reassembler.in_order(time_ns, found)
        if stream is None:
            self._stream_events(reassembler.segment(time_ns, found), events)
        elif found.on_wire:
            offset = stream.offset - found.on_wire
            self._stream_event(stream, offset, found.buffer, found.begin, found.end, time_ns, False, events)

    def _set_by(self, time_ns: int, found: Segment, newest_ns: int, told: dict[bytes, int]) -> int:
        """By how much the recorder's clock was set before a packet; 0: not at all; ``NEVER``: others may tell.

        The clocks of two senders tell, as one of them may have stood still. Where they show none, a connection that
        goes on in a time that has passed does: it has the bytes that follow, or acknowledges what came last. Packets of
        files that were joined in another order do neither.

        Args:
            time_ns, found: The packet.
            newest_ns: The newest time so far.
            told: What the packets behind that told, by sender.
        """
        stream = self._reassembler.stream(found.flow)
        if stream is None:
            return NEVER
        set_ns = stream.set_by(time_ns, found)
        if set_ns == NEVER:
            is_next = found.sequence == stream.next and not stream.held_bytes
            if found.on_wire == 0:
                is_next &= stream.peer.active_ns > stream.active_ns and found.acknowledged == stream.peer.next
            if is_next and max(stream.active_ns, stream.peer.active_ns) - time_ns > SET_NS:
                set_ns = time_ns - newest_ns
            elif max(stream.ticks, ticks_of(found)) < 0 and not found.flags & (SYN | RST):
                set_ns = 0
        elif set_ns:
            width = (len(found.flow) - 4) // 2
            told[found.flow[:width]] = set_ns
            if len(told) == 1 and found.flow[:width] != found.flow[width : 2 * width]:
                return NEVER
            if abs(max(told.values()) - min(told.values())) > SET_NS:
                return 0
        is_far = set_ns != NEVER and (abs(self.behind_ns - set_ns) > _LONGEST_NS or set_ns > time_ns)
        return 0 if is_far else set_ns

    def was_set(self, time_ns: int, found: Segment) -> bool:
        """Whether the recorder's clock was set before a packet, by its sender's clock."""
        stream = self._reassembler.stream(found.flow)
        return stream is not None and stream.set_by(time_ns, found) not in (0, NEVER)

    def _note_set(self, number: int, set_ns: int) -> None:
        way = "set back" if set_ns < 0 else "put forward"
        told = (
            f"times from here on: the clock was {way} by {abs(set_ns) / 1e9:.1f} s, they are told as if it had gone on"
        )
        self._summary.bad(told, number)

    def add_segment(self, time_ns: int, found: Segment) -> list[Event]:
        """Take the next TCP segment, from a packet that was counted elsewhere."""
        events: list[Event] = []
        self.time_ns = time_ns
        self._stream_events(self._reassembler.segment(time_ns, found), events)
        return events

    def keep_beginnings(self) -> None:
        """Keep how the connections begin that began before the recording, for ``begun_before``."""
        self._reassembler.keeps_beginnings = True

    def begun_before(self) -> list[tuple[Border, list[bytes]]]:
        """How Kafka connections that began before the recording stand as it begins, and their first segments there."""
        strays: dict[bytes, list[tuple[int, Segment]]] = {}
        for time_ns, each in self._reassembler.strays:
            strays.setdefault(min(each.flow, reverse(each.flow)), []).append((time_ns, each))
        begun: list[tuple[bytes, list[tuple[int, Segment]], bytes, bool]] = []
        for connection in (*self._begun, *self._conversations):
            segments = connection.begun if connection.begun is not None else connection.beginning
            if segments:
                conversation = self._conversations.get(connection)
                known = self._begun.get(connection) or (conversation and conversation.connection)
                ended = strays.pop(min(connection.flow, reverse(connection.flow)), [])
                segments = [each for each in ended if each[0] <= segments[0][0]] + segments
                begun.append((connection.flow, segments, known.conn_id if known else b"", connection.begun is not None))
        begun += ((some[0][1].flow, some, b"", False) for some in strays.values())
        found = []
        for flow, segments, conn_id, is_sure in begun:
            first_ns, first = segments[0]
            border = Border(first.flow, _sequences_of(first), first_ns, conn_id, is_sure)
            border = border if first.flow == flow else border.turned
            found.append((border, [pack_segment(time_ns, each, flow) for time_ns, each in segments]))
        return found

    def endings(self) -> list[Border]:
        """How connections stand now that may go on behind the recording."""
        found = []
        for connection in (*self._conversations, *self._reassembler.handshakes(self.time_ns)):
            first, second = connection.streams
            conversation = self._conversations.get(connection)
            if connection.over or first.ignored or (conversation and conversation.protocol not in (None, "kafka")):
                continue
            known = conversation and conversation.connection
            is_sure = connection.client is not None or (conversation is not None and not conversation._is_new)
            found.append(
                Border(
                    connection.flow,
                    (first.next, second.next),
                    max(first.active_ns, second.active_ns),
                    known.conn_id if known else b"",
                    is_sure,
                )
            )
        return found

    def adopt(self, other: Collector, flow: bytes) -> bool:
        """Go on with a flow's connection that another collector has read so far; its counts go to this one's summary.

        Args:
            other: Of the same capture point, under whatever label; it reads nothing more.
            flow: The flow.

        Returns:
            Whether there was one.
        """
        if (connection := self._reassembler.adopt(other._reassembler, flow)) is None:
            return False
        if (conversation := other._conversations.get(connection)) is not None:
            self._conversations[connection] = conversation
            conversation.go_on_in(self._summary, self._payloads, self._capture)
            if conversation.held:
                self._count_held(conversation, [])
        self.time_ns = max(self.time_ns, other.time_ns)
        return True

    def connection(self, flow: bytes) -> Connection | None:
        """Client and server of a flow's connection, None while they are not known."""
        stream = self._reassembler.stream(flow)
        conversation = self._conversations.get(stream.connection) if stream is not None else None
        return conversation.connection if conversation is not None else None

    def end(self) -> list[Event]:
        """End the capture; return the remaining frames and exchanges."""
        events: list[Event] = []
        self._fragments.end()
        for conversation in self._conversations.values():
            conversation.ending = True
        self._stream_events(self._reassembler.end(self.time_ns), events)
        if not self._summary.connections:  # what ends in it tells where it was recorded; either end may be the server
            for _time_ns, each in self._reassembler.strays:
                for end in endpoints(each.flow):
                    self._summary.undetected(end)
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
            if buffer is not None and self._is_copy(stream, offset, buffer[begin:end], time_ns):
                self._summary.copied_connections += 1
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
                if (connection.begun or connection.beginning) and len(self._begun) < _MOST_BEGUN:
                    self._begun[connection] = conversation.connection
        if conversation.protocol is not protocol:
            self._recognised(connection, conversation)
        if events:
            out += events
        if conversation.held or conversation in self._holding:
            self._count_held(conversation, out)

    def _is_wanted(self, connection: TcpConnection) -> bool:
        """Whether a connection is on a port that is wanted."""
        return self._ports is None or any(end.port in self._ports for end in endpoints(connection.flow))

    def _is_copy(self, stream: Stream, offset: int, data: bytes, time_ns: int) -> bool:
        """Whether a connection's first data is that of another one, seen under other addresses a moment ago.

        A translation of addresses keeps the sequence numbers and the bytes. Recordings may begin each connection with
        the same numbers, and clients with the same bytes: so the other connection must not be answered yet, and one end
        be the same: the client's, as far as an opening or a request tells, where the ports of the other ends differ. It
        may be further: several segments pass before the first of them is translated.
        """
        key = advance(stream.first, offset), stream.peer.next, data[:64]
        other, before_ns = self._beginnings.pop(key, (stream, 0))
        self._beginnings[key] = stream, time_ns
        if len(self._beginnings) > _KEPT_BEGINNINGS:
            del self._beginnings[next(iter(self._beginnings))]
        if time_ns - before_ns > _COPY_NS or other.peer.offset != stream.peer.offset:
            return False
        self._beginnings[key] = other, before_ns
        flows = (each.connection.flow_of(each) for each in (stream, other))
        (source, target), (source_2, target_2) = map(endpoints, flows)
        if (source == source_2) == (target == target_2):
            return False
        ports = {target.port, target_2.port} if source == source_2 else {source.port, source_2.port}
        client = stream.connection.client
        if client is None:
            header = read_request_header(data, 0, len(data))
            client = stream if isinstance(header, FrameHeader) and is_known_request(header, self._limit) else None
        return len(ports) == 1 or client is None or (client is stream) == (source == source_2)

    def _conversation(self, connection: TcpConnection) -> Conversation:
        return Conversation(
            connection,
            self._server_of(connection),
            wanted=self._wanted,
            limit=self._limit,
            capture=self._capture,
            summary=self._summary,
            keeps_payloads=self._keeps_payloads,
            payloads=self._payloads,
        )

    def _server_of(self, connection: TcpConnection) -> Side | None:
        """The server, if the handshake or the ports tell; else None."""
        if connection.client is not None:
            return connection.client.peer.side
        first, second = endpoints(connection.flow)
        if self._ports is not None and (first.port in self._ports) != (second.port in self._ports):
            return 0 if first.port in self._ports else 1
        return None

    def _recognised(self, connection: TcpConnection, conversation: Conversation) -> None:
        """Note a connection's protocol; a connection of another protocol than Kafka is no longer read."""
        saw_open = connection.client is not None
        self._summary.recognised(conversation.protocol, conversation.server, saw_open=saw_open)
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
