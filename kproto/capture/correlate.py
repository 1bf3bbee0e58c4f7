"""Requests and responses of a connection, joined.

Responses come in the order of the requests, so a response also tells that earlier requests got none. Correlation ids
wrap and are used again: as long as no response was lost the oldest open request with that id is meant, after a loss the
newest.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS, ApiKey

from .model import Connection, Exchange, Frame
from .plausible import response_body_at
from .requests import RequestReader
from .responses import ResponseReader

if TYPE_CHECKING:
    from collections.abc import Collection

    from .model import Endpoint
    from .summary import CaptureSummary
    from .tcp import Half, TcpConnection

__all__ = ["Asked", "Collector", "Conversation"]

_HOPELESS_NS: Final = 60_000_000_000
"""A controller waits half a minute for a response; after so long nobody else waits for the request either."""

_OPEN_LIMIT: Final = 10_000
"""Requests of one connection that may wait for their responses."""

_WAITING_LIMIT: Final = 100
_WAITING_BYTES: Final = 4 << 20
_STRANGERS_BYTES: Final = 64 << 10
"""Responses whose request may still come (its segments are late), and their bytes; fewer where no request was seen."""

_LOOKED_FOR: Final = 64
"""So many open requests are looked for when the responses have lost their step."""

_TOKEN: Final = -1

_ENDED: Final = "the connection ended without a response"
_CAPTURE_ENDED: Final = "the capture ends before a response"
_PASSED_BY: Final = "the response is not in the capture: a later request was answered"
_NO_REQUEST: Final = "the request is not in the capture"


class Asked:
    """A request that waits for its response; ``frame`` is None where nobody wants it."""

    __slots__ = ("api_key", "api_version", "correlation_id", "epoch", "frame", "settled")

    def __init__(self, correlation_id: int, api_key: int, api_version: int, frame: Frame | None, epoch: int) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.api_version = api_version
        self.frame = frame
        self.epoch = epoch
        self.settled = False


class Collector:
    """What all conversations of a capture share, and where their frames and exchanges come out.

    Args:
        summary: Counts go there.
        file: Name of the file, for the frames.
        capture: Name of the capture point, for the connections.
        ports: The listeners' ports; None to find them.
        apis: API keys whose frames are wanted; None for all.
        limit: The largest frame in bytes.
        follows: Whether the capture may still grow.

    Attributes:
        frames: Frames as they become whole; whoever reads takes them out.
        exchanges: Exchanges as they are settled; whoever reads takes them out.
        listeners: Servers on which a Kafka request was seen.
        ending: Whether the capture has ended.
    """

    def __init__(
        self,
        summary: CaptureSummary,
        *,
        file: str,
        capture: str,
        ports: Collection[int] | None,
        apis: Collection[int] | None,
        limit: int,
        follows: bool,
    ) -> None:
        self.summary = summary
        self.follows = follows
        self.file = file
        self.capture = capture
        self.ports = None if ports is None else frozenset(ports)
        self.apis = None if apis is None else frozenset(map(int, apis))
        self.passable = frozenset(
            (int(api), version)
            for api in ApiKey
            for version in range(api.info.max_version + 1)
            if self.apis is not None and api not in self.apis
        )
        self.limit = limit
        self.listeners: set[Endpoint] = set()
        self.frames: list[Frame] = []
        self.exchanges: list[Exchange] = []
        self.ending = False
        self._open: list[tuple[int, int, Asked]] = []
        self._number = 0

    def opened(self, tcp: TcpConnection) -> None:
        """Take a new connection, if it is on a port that is wanted."""
        a, b = tcp.halves
        if self.ports is None or a.sender.port in self.ports or b.sender.port in self.ports:
            Conversation(self, tcp)

    def server_of(self, tcp: TcpConnection) -> Half | None:
        """Which side answers, as far as the handshake, the ports and earlier connections tell."""
        if tcp.client is not None:
            return tcp.client.peer
        a, b = tcp.halves
        if self.ports is not None and (a.sender.port in self.ports) != (b.sender.port in self.ports):
            return a if a.sender.port in self.ports else b
        if (a.sender in self.listeners) != (b.sender in self.listeners):
            return a if a.sender in self.listeners else b
        return None

    def opens(self, asked: Asked) -> None:
        """A wanted request begins to wait."""
        assert asked.frame is not None
        self._number += 1
        heapq.heappush(self._open, (asked.frame.time_ns, self._number, asked))
        self.frames.append(asked.frame)

    def oldest_open_ns(self, now_ns: int) -> int | None:
        """When the oldest request was sent that still waits, and may do so for long; None if none waits."""
        waiting = self._open
        while waiting and (waiting[0][2].settled or waiting[0][0] < now_ns - _HOPELESS_NS):
            heapq.heappop(waiting)
        return waiting[0][0] if waiting else None


class Conversation:
    """One connection: its two readers, and what is open between them.

    Attributes:
        connection: Its ends, once it is known which is which.
        client_id: The client id of its requests, None while none was seen.
        raw_tokens: Whether authentication tokens without a header may come.
        waiting: Responses whose request may still come.
        counted: Whether the summary knows of it.
    """

    connection: Connection

    def __init__(self, collector: Collector, tcp: TcpConnection) -> None:
        self._collector = collector
        self._summary = collector.summary
        self._tcp = tcp
        self._open: deque[Asked] = deque()
        self._ids: Counter[int] = Counter()
        self._epoch = 0  # rises when responses were lost
        self._has_wanted = False
        self._closed = 0
        self._waiting_bytes = 0
        self.is_stranger = True
        self.client_id: str | None = None
        self.raw_tokens = False
        self.waiting: list[Frame] = []
        self.counted = False
        self.file = collector.file
        self.limit = collector.limit
        self.wants_control = collector.apis is None or any(api in CONTROL_APIS for api in collector.apis)
        server = collector.server_of(tcp)
        in_step = tcp.client is not None
        if server is not None:
            server.peer.stream = RequestReader(self, in_step)
            server.stream = ResponseReader(self, in_step)
            self._set_sides(server.peer)
        else:
            for half in tcp.halves:
                half.stream = RequestReader(self, False)

    # ---- which side is which ----

    def _set_sides(self, client: Half) -> None:
        self._tcp.client = client
        self._client = client
        tcp = self._tcp
        self.connection = Connection(
            client.sender, client.peer.sender, tcp.opened_ns, self._collector.capture, saw_open=client.start is not None
        )

    def speaks_kafka(self, reader: RequestReader, client_id: str | None) -> None:
        """A request that can be trusted was found."""
        if self.is_stranger:
            self.is_stranger = False
            self._summary.kafka_connections += 1
            if self._tcp.client is None:
                client = next(half for half in self._tcp.halves if half.stream is reader)
                client.peer.stream = ResponseReader(self, False)
                self._set_sides(client)
            self._collector.listeners.add(self.connection.server)
        if self.client_id is None:
            self.client_id = client_id

    def is_tls(self) -> None:
        """The stream is encrypted."""
        self._summary.tls_connections += 1
        self.leave()

    def is_http(self) -> None:
        """The stream is a web client's."""
        self._summary.http_connections += 1
        self.leave()

    def leave(self) -> None:
        """Read this connection no more."""
        self.count()
        for half in self._tcp.halves:
            if isinstance(half.stream, (RequestReader, ResponseReader)):
                half.stream.stop()

    def count(self) -> None:
        """It has data."""
        if not self.counted:
            self.counted = True
            self._summary.connections += 1

    # ---- what is wanted ----

    def wants(self, api_key: int) -> bool:
        """Whether frames of this API are given out."""
        apis = self._collector.apis
        return apis is None or api_key in apis

    def passes(self, api_key: int, version: int) -> bool:
        """Whether this is an API and version of Kafka 3.9.1 that nobody wants."""
        return (api_key, version) in self._collector.passable

    def bad(self, reason: str, offset: int, skipped: int = 0) -> None:
        """Note a part of this connection that could not be used."""
        if not self.is_stranger:
            self._summary.bad(f"{self.connection.client} -> {self.connection.server}: {reason}", offset, skipped)

    def note_gap(self, length: int) -> None:
        """Count lost bytes."""
        if length and not self.is_stranger:
            self._summary.gaps += 1
            self._summary.gap_bytes += length

    # ---- requests ----

    def asked(self, correlation_id: int, api_key: int, api_version: int, frame: Frame | None) -> None:
        """The next request; ``frame`` if it is wanted."""
        self._summary.requests[api_key, api_version] += 1
        self.raw_tokens = api_key == ApiKey.SASL_HANDSHAKE and api_version == 0
        self._append(Asked(correlation_id, api_key, api_version, frame, self._epoch))

    def token(self) -> None:
        """An authentication token in place of a request."""
        self._append(Asked(0, _TOKEN, 0, None, self._epoch))

    def _append(self, asked: Asked) -> None:
        self._open.append(asked)
        if asked.api_key != _TOKEN:
            self._ids[asked.correlation_id] += 1
        if asked.frame is not None:
            self._has_wanted = True
            self._collector.opens(asked)
        if len(self._open) > _OPEN_LIMIT:
            self.unanswered(self._pop(), _PASSED_BY)

    def _pop(self) -> Asked:
        asked = self._open.popleft()
        if asked.api_key != _TOKEN:
            if self._ids[asked.correlation_id] == 1:
                del self._ids[asked.correlation_id]
            else:
                self._ids[asked.correlation_id] -= 1
        return asked

    def open_request(self, correlation_id: int) -> Asked | None:
        """The open request that a response with this id would answer."""
        if correlation_id not in self._ids:
            return None
        found = None
        for asked in self._open:
            if asked.correlation_id == correlation_id and asked.api_key != _TOKEN:
                found = asked
                if asked.epoch == self._epoch:
                    break
        return found

    def open_wanted(self) -> list[Asked]:
        """The newest open requests that are wanted."""
        return [asked for asked in self._open if asked.frame is not None][-_LOOKED_FOR:]

    # ---- responses ----

    def answered(self, correlation_id: int) -> Asked | None:
        """Take out the request that a response with this id answers; those before it got none."""
        found = self.open_request(correlation_id)
        if found is not None:
            while (asked := self._pop()) is not found:
                self.unanswered(asked, _PASSED_BY)
        return found

    def answer_token(self) -> bool:
        """Take out an authentication token, if that is what is answered next."""
        if self._open and self._open[0].api_key == _TOKEN:
            self._open.popleft()
            return True
        return False

    def responses_lost(self) -> None:
        """Which of the open requests were answered is not known any more."""
        self._epoch += 1

    def passed(self, asked: Asked | None) -> None:
        """A response that nobody wants."""
        if not self.is_stranger:
            self._summary.responses += 1
        if asked is not None and asked.frame is not None:
            self.unanswered(asked, _PASSED_BY)

    def keeps_unmatched(self, size: int) -> bool:
        """Whether a response of this size is kept though its request is not known."""
        if self._has_wanted:
            return True
        room = _STRANGERS_BYTES if self.is_stranger else _WAITING_BYTES
        return self._unsettled and self._waiting_bytes + size <= room

    @property
    def _unsettled(self) -> bool:
        """Whether a request may still come that was sent before what is read now."""
        reader = self._client.stream
        return self._client.troubled or (isinstance(reader, RequestReader) and reader.searching)

    def responded(self, asked: Asked | None, frame: Frame) -> None:
        """A wanted response, or one whose request is not known."""
        self._summary.responses += 1
        if asked is not None and asked.frame is not None:
            self._join(asked, asked.frame, frame)
        elif asked is None:
            self.waiting.append(frame)
            self._waiting_bytes += len(frame.payload)

    def settle(self) -> None:
        """Try again to find the requests of the responses that wait."""
        full = len(self.waiting) > _WAITING_LIMIT or self._waiting_bytes > _WAITING_BYTES
        later = self._unsettled and not full and self._closed < 2
        waiting, self.waiting, self._waiting_bytes = self.waiting, [], 0
        for frame in waiting:
            asked = self.answered(frame.correlation_id)
            if asked is not None:
                if asked.frame is not None:
                    self._join(asked, asked.frame, frame)
            elif later:
                self.waiting.append(frame)
                self._waiting_bytes += len(frame.payload)
            elif self._has_wanted:
                frame.unmatched_reason = _NO_REQUEST
                self._summary.unmatched_responses += 1
                self._collector.frames.append(frame)
                self._collector.exchanges.append(Exchange(None, frame))

    def _join(self, asked: Asked, request: Frame, response: Frame) -> None:
        asked.settled = True
        response.request = request
        response.api_key = asked.api_key
        response.api_version = asked.api_version
        response.client_id = request.client_id
        response.body_at = response_body_at(asked.api_key, asked.api_version, response.payload)
        self._collector.frames.append(response)
        self._collector.exchanges.append(Exchange(request, response))

    def unanswered(self, asked: Asked, reason: str) -> None:
        """This request got no response that is in the capture."""
        asked.settled = True
        if asked.frame is not None:
            asked.frame.unmatched_reason = reason
            self._summary.unmatched_requests += 1
            self._collector.exchanges.append(Exchange(asked.frame, None))

    # ---- the end ----

    def stream_closed(self) -> None:
        """One direction has ended; with the second all is settled."""
        self._closed += 1
        if self._closed == 2:
            if self.waiting:
                self.settle()
            while self._open:
                self.unanswered(self._pop(), _CAPTURE_ENDED if self._collector.ending else _ENDED)
