"""Scans captures for control frames, undecoded, with each distinct body once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture import WHOLE, CapturePoint, CaptureSummary, Frame
from kproto.capture.capture_points import point_name
from kproto.capture.collector import CAPTURE_ENDED
from kproto.capture.payloads import PayloadStore
from kproto.capture.read import problem_of, read_frames
from kproto.capture.reader import CaptureReader
from kproto.errors import CaptureError
from kproto.prefix import prefix_of
from kproto.tables import ids
from kproto.tables.arrays import BATCH_BYTES, RowBuffer, plain_text
from kproto.tables.files import open_file
from kproto.tables.schemas import COUNTS, SCAN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import pyarrow as pa

    from kproto.capture import Connection
    from kproto.capture.collector import Event
    from kproto.capture.model import Direction
    from kproto.logs import LogReading
    from kproto.tables.filters import Filters

_STANDARD_INPUT: Final = "-"

_ROW_BYTES: Final = 400
"""Estimated bytes of a row without its body."""

REMEMBERED: Final = 100_000
"""The most ids of known bodies that are kept, those that were used last; a body that was forgotten is given again."""

_MOST_CONNECTIONS: Final = 10_000
"""The most connections whose frames' common values are kept."""

MOST_WAITING: Final = 100_000
"""The most requests that wait for their responses; beyond it the oldest are given up as unanswered."""

_CUT: Final = (None, CAPTURE_ENDED)
"""The reasons for a missing response that tell of the capture alone."""

_NS_A_DAY: Final = 86_400 * 1_000_000_000


@dataclass(frozen=True)
class Selection:
    """The frames that a scan gives.

    Attributes:
        ports: The brokers' listeners; None finds them from the traffic.
        apis: The requests to give.
        since_ns: Only requests whose first byte passed at or after this moment, ns since 1970 UTC.
        until_ns: Only requests before this time.
        always: APIs whose requests are given whatever the other arguments say, e.g. UpdateMetadata, which names the
            brokers.
        logs: What logs do not say themselves.
    """

    ports: Collection[int] | None = None
    apis: Collection[int] = CONTROL_APIS
    since_ns: int | None = None
    until_ns: int | None = None
    always: Collection[int] = ()
    logs: LogReading | None = None

    @property
    def scanned(self) -> set[int]:
        """The APIs whose frames must be read."""
        return {*self.apis, *self.always}

    def takes(self, request: Frame) -> bool:
        """Whether a request, and its response with it, is given."""
        if request.api_key in self.always:
            return True
        return (
            request.api_key in self.apis
            and (self.since_ns is None or request.time_ns >= self.since_ns)
            and (self.until_ns is None or request.time_ns < self.until_ns)
        )


def scan_options(filters: Filters) -> dict[str, Any]:
    """Return the arguments of ``scan`` and ``Selection`` that read what tables with some filters are made of.

    UpdateMetadata is read always, since it names the brokers.
    """
    return {
        "ports": filters.ports,
        "apis": filters.apis or CONTROL_APIS,
        "since_ns": filters.since_ns,
        "until_ns": filters.until_ns,
        "always": {ApiKey.UPDATE_METADATA},
        "logs": filters.logs,
    }


def scan(
    captures: Iterable[str | CapturePoint],
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] = CONTROL_APIS,
    since_ns: int | None = None,
    until_ns: int | None = None,
    always: Collection[int] = (),
    every_payload: bool = False,
    batch_bytes: int = BATCH_BYTES,
    logs: LogReading | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read captures once and give every control frame in them.

    A response is given if its request is. A response whose request is not in the capture names no
    API and is left out. Rows without a ``frame_id`` are notes of three kinds: one with ``request_frame_id`` and
    ``unmatched_reason`` is about a request that got no response; one with ``file`` and ``bad_input`` is about a piece
    of the file that could not be read, or, without an ``offset``, about a whole file that could not be read; one
    with ``facts`` is the row of ``CAPTURES`` about a file that was read.

    Args:
        captures: Capture points (``kproto.capture.capture_points`` groups files), or files, each of which is a capture
            point of its own, named by ``point_name``.
        ports, apis, since_ns, until_ns, always, logs: See ``Selection``.
        every_payload: Whether to give each frame's body; else a body is given with the earliest of its frames so far.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``SCAN``.
    """
    selection = Selection(ports, apis, since_ns, until_ns, always, logs)
    rows = ScanRows(batch_bytes, every_payload=every_payload)
    waiting: dict[bytes, Frame] = {}  # until the last capture: another one may hold the response to the same request
    payloads = PayloadStore()
    for each in captures:
        summary = CaptureSummary()
        point = CapturePoint(point_name(each), (each,)) if isinstance(each, str) else each
        rows.begin_capture()
        try:
            source = sys.stdin.buffer if each == _STANDARD_INPUT else point
            for frame in read_frames(
                source,
                ports=ports,
                apis=selection.scanned,
                capture=point.name,
                summary=summary,
                opener=open_file,
                keeps_payloads=False,
                payloads=payloads,
                logs=logs,
            ):
                request = frame.request or frame
                if request.direction == "request" and selection.takes(request):
                    rows.add_frame(frame)
                    known = waiting.pop(request.frame_id, None)
                    if request is frame:  # of copies, whichever is read first, one that shows why no response came
                        waiting[frame.frame_id] = known if known and known.unmatched_reason not in _CUT else frame
                    if len(waiting) > MOST_WAITING:
                        rows.add_unanswered(waiting.pop(next(iter(waiting))))
                    if rows.full:
                        yield from rows.take()
                frame.content = b""  # a controller has a full update in flight to each of a thousand brokers
        except CaptureError as e:
            rows.add_bad_input(summary.reading or point.name, point.with_path(str(e)))
        else:
            problem = summary.problem() if each == _STANDARD_INPUT else problem_of(point, summary, opener=open_file)
            rows.add_summary(summary, point, problem)
    for request in waiting.values():
        rows.add_unanswered(request)
    yield from rows.take()


class OpenRequests:
    """Requests whose outcome is not known yet: a request is given together with its outcome.

    Args:
        selection: The requests to give.
        waiting: Those of an earlier reading.

    Attributes:
        waiting: The requests, the oldest first.
    """

    def __init__(self, selection: Selection, waiting: Iterable[Frame] = ()) -> None:
        self.waiting = dict.fromkeys(waiting)
        self._selection = selection

    def settled(self, events: Iterable[Event]) -> Iterator[Event]:
        """Take the next frames and exchanges; yield the requests whose outcomes are among them, and these."""
        for event in events:
            if isinstance(event, Frame):
                if self._selection.takes(event):
                    self.waiting[event] = None
            elif event.request in self.waiting:
                del self.waiting[event.request]
                yield event.request
                yield event
                event.request.content = b""  # the connection remembers the request that was answered last


def new_reader(capture: str, selection: Selection) -> CaptureReader:
    """Return a reader of a capture point from its beginning."""
    return CaptureReader(ports=selection.ports, apis=selection.scanned, capture=capture, logs=selection.logs)


class _Way:
    """The values that all frames of a connection and direction have in common."""

    def __init__(self, connection: Connection, direction: Direction) -> None:
        source, target = connection.client, connection.server
        if direction == "response":
            source, target = target, source
        self.direction = direction
        self.capture = plain_text(connection.capture)
        self.conn_id = connection.conn_id
        self.flow = *source, *target


class ScanRows(RowBuffer):
    """Gathers frames, and notes of faults, into batches.

    Args:
        limit: About how many bytes a batch shall have.
        every_payload: See ``scan``.
    """

    def __init__(self, limit: int = BATCH_BYTES, *, every_payload: bool = False) -> None:
        super().__init__(SCAN, limit)
        self._every_payload = every_payload
        self._given: dict[bytes, tuple[int, int]] = {}  # bodies, when they were sent, and in which capture
        self._given_before: dict[bytes, tuple[int, int]] = {}  # those that were used before the younger ones
        self._captures = 0
        self._ways: dict[Connection, tuple[_Way, _Way]] = {}

    def begin_capture(self) -> None:
        """Begin another capture: its frames with a known body may be earlier, or as early."""
        self._captures += 1

    def add_event(self, event: Event) -> None:
        """Add the row of a request, of the response to one, or of the reason why there is none."""
        if isinstance(event, Frame):
            self.add_frame(event)
        elif event.response is not None:
            self.add_frame(event.response)
        elif event.request is not None:
            self.add_unanswered(event.request)

    def add_frame(self, frame: Frame) -> None:
        """Add a request, or a response to one."""
        assert frame.api_key is not None
        assert frame.api_version is not None
        way = self._way(frame)
        is_request = frame.direction == "request"
        body_id = payload = error = broker_epoch = request_frame_id = exchange_id = None
        size = _ROW_BYTES
        if frame.status != WHOLE:
            error = f"{frame.length - len(frame.content)} of {frame.length} bytes are not in the capture"
        else:
            body_id = ids.frame_body_id(frame, frame.api_key, frame.api_version)
            if self._every_payload or self.is_earliest(body_id, frame.time_ns):
                payload = bytes(frame.body)  # of a view pyarrow keeps hold for ever
                size += len(payload)
        if is_request:
            broker_epoch = _broker_epoch(frame)
            exchange_id = frame.exchange_id
        elif frame.request is not None:
            request_frame_id = frame.request.frame_id
            exchange_id = frame.request.exchange_id
        row = (
            frame.frame_id,
            way.capture,
            plain_text(frame.file),
            way.conn_id,
            way.flow,
            way.direction,
            frame.time_ns // 1000,
            frame.time_last_ns // 1000,
            frame.time_ns,
            frame.status,
            frame.api_key,
            frame.api_version,
            frame.correlation_id,
            plain_text(frame.client_id),
            frame.length,
            body_id,
            frame.time_ns // _NS_A_DAY,
            broker_epoch,
            exchange_id,
            request_frame_id,
            None,
            error,
            payload,
            None,
            None,
        )
        self.add(row, size)

    def _way(self, frame: Frame) -> _Way:
        ways = self._ways.get(frame.connection)
        if ways is None:
            if len(self._ways) >= _MOST_CONNECTIONS:
                self._ways.clear()
            ways = self._ways[frame.connection] = _Way(frame.connection, "request"), _Way(frame.connection, "response")
        return ways[frame.direction == "response"]

    def add_unanswered(self, request: Frame) -> None:
        """Add a row with the reason why a request has no response."""
        reason = request.unmatched_reason or "no response in the capture"
        self._add_note(request_frame_id=request.frame_id, unmatched_reason=reason)

    def add_summary(self, summary: CaptureSummary, point: CapturePoint, problem: str | None) -> None:
        """Add the counts of a capture, why it holds no control request if it holds none, and its faults."""
        self._add_note(capture=plain_text(point.name), file=plain_text(summary.file), facts=_facts(summary))
        if problem is not None:
            self.add_bad_input(summary.file, point.with_path(problem))
        for bad in summary.bad_inputs:
            self.add_bad_input(bad.file, bad.reason, bad.offset, bad.bytes_skipped)

    def add_bad_input(self, file: str, reason: str, offset: int | None = None, skipped: int | None = None) -> None:
        """Note a piece of a file that could not be read, or, without an offset, the whole file."""
        self._add_note(file=plain_text(file), bad_input=(plain_text(reason), offset, skipped))

    def _add_note(self, **values: Any) -> None:
        self.add(tuple(values.get(name) for name in SCAN.names), _ROW_BYTES)

    def is_earliest(self, body_id: bytes, time_ns: int) -> bool:
        """Whether this is the earliest frame with this body so far."""
        given = self._given.get(body_id)
        if given is None:
            given = self._given_before.get(body_id)
            if given is not None:
                self._remember(body_id, given)
        if given is not None and (given[0] < time_ns or given == (time_ns, self._captures)):
            return False
        self._remember(body_id, (time_ns, self._captures))
        return True

    def _remember(self, body_id: bytes, given: tuple[int, int]) -> None:
        """Remember a body; forget those that were not used since the younger half of all were."""
        if len(self._given) >= REMEMBERED // 2 and body_id not in self._given:
            self._given, self._given_before = {}, self._given
        self._given[body_id] = given


def _facts(summary: CaptureSummary) -> dict[str, Any]:
    """Return the row of ``CAPTURES`` about a file, without its names; structs as tuples of their fields."""
    return {
        "format": summary.format,
        "first_ts": summary.first_ns // 1000 if summary.first_ns else None,
        "last_ts": summary.last_ns // 1000 if summary.last_ns else None,
        **{name: getattr(summary, name) for name in COUNTS},
        "bad_inputs": summary.bad_input_count,
        "not_read": [*summary.all_not_read.items()],
        "losses": [
            (one.connection.conn_id, *one.connection.server, one.direction, one.kind, one.time_ns // 1000, one.length)
            for one in summary.first_losses()
        ],
        "senders": [(ip, broker, time_ns // 1000) for (ip, broker), time_ns in summary.senders.items()],
        "servers": [
            (*server, is_kafka)
            for is_kafka, servers in ((True, summary.kafka_listeners), (False, summary.undetected_servers))
            for server in servers
        ],
        "controller_events": [
            (
                event.kind, event.controller_id, event.broker_id, event.topic, event.partition,
                event.first_ns // 1000, event.last_ns // 1000, event.count,
            )
            for event in summary.controller_events
        ],
        "assumed_zone": summary.assumed_zone,
        "all_requests": [(*request, count) for request, count in sorted(summary.requests.items())],
    }  # fmt: skip


def _broker_epoch(frame: Frame) -> int | None:
    """Return a request's broker epoch; -1, Kafka's default, where the version has none; None if it is cut off."""
    assert frame.api_key is not None
    assert frame.api_version is not None
    prefix = prefix_of(frame.api_key, frame.api_version)
    if prefix is None:
        return None
    if prefix.broker_epoch_at is None:
        return -1
    at = frame.body_at + prefix.broker_epoch_at
    epoch = frame.start[at : at + 8]
    return int.from_bytes(epoch, "big", signed=True) if len(epoch) == 8 else None
