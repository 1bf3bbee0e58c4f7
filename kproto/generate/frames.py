"""Generates a fleet's frames as Arrow batches, event by event: any part of them alone, without a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from .bodies import encode_response, shared_body
from .files import DEFAULT_MSS
from .traffic import steps
from .wire import FramePlanner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .fleet import PlannedFleet
    from .traffic import PlannedExchange
    from .wire import PlannedFrame

_US: Final = 1000
_NS_A_DAY: Final = 86_400 * 1_000_000_000

_TEXT, _INT = pa.string(), pa.int32()
_FLOW = pa.struct([("src_ip", _TEXT), ("src_port", _INT), ("dst_ip", _TEXT), ("dst_port", _INT)])

FRAMES: Final = pa.schema(
    [
        (name, kind)
        for kind, names in (
            (pa.binary(), "frame_id conn_id body_id request_frame_id payload"),
            (_TEXT, "capture file direction client_id unmatched_reason error"),
            (_FLOW, "flow"),
            (pa.timestamp("us", tz="UTC"), "ts ts_last"),
            (pa.int64(), "ts_ns broker_epoch"),
            (pa.int8(), "status"),
            (pa.int16(), "api_key api_version"),
            (_INT, "correlation_id frame_len"),
            (pa.date32(), "date"),
        )
        for name in names.split()
    ]
)
"""Generated frames: the columns of ``frames``, and the facts that reading a capture would find beside them. A row
without ``frame_id`` gives the reason why the request ``request_frame_id`` has no response."""

_BATCH_BYTES: Final = 8 << 20
_ROW_BYTES: Final = 300


def frames(
    fleet: PlannedFleet, events: Collection[int], *, batch_bytes: int = _BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Generate the frames of some of a fleet's events: the same, whichever other events are generated with them.

    Earlier events are replayed without encoding. A frame's id is made of its correlation id, not of its offset in the
    stream, which needs all earlier frames encoded: ``frame_id`` differs from that of a capture, no other column
    does. A body is given with the first frame of an event that holds it.

    Args:
        fleet: The fleet.
        events: Numbers of its events, 0 for the first.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``FRAMES``.
    """
    wanted = set(events)
    last = max(wanted, default=-1)
    planner = FramePlanner(per_host=False, mss=DEFAULT_MSS, positions="correlation_id")
    rows: list[dict[str, Any]] = []
    size = 0
    for step in steps(fleet):
        if step.event.number > last:
            break
        if step.event.number not in wanted:
            continue
        given: set[bytes] = set()
        for exchange in step.exchanges:
            for row in _rows(planner, exchange, given):
                rows.append(row)
                size += _ROW_BYTES + len(row["payload"] or b"")
            if size >= batch_bytes:
                yield pa.RecordBatch.from_pylist(rows, FRAMES)
                rows, size = [], 0
        planner.forget()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, FRAMES)


_EMPTY: Final[dict[str, Any]] = dict.fromkeys(FRAMES.names)


def _rows(planner: FramePlanner, exchange: PlannedExchange, given: set[bytes]) -> Iterator[dict[str, Any]]:
    request, response = planner.record(exchange)
    if exchange.missed:
        return
    for frame in (request, None if exchange.answer_missed else response):
        if frame is None:
            yield _EMPTY | {"request_frame_id": request.frame_id, "unmatched_reason": unmatched_reason(exchange)}
            continue
        row = _EMPTY | frame_row(frame) | {"file": frame.capture}
        if frame is request:
            row["broker_epoch"] = exchange.broker_epoch
        else:
            row["request_frame_id"] = request.frame_id
        if frame.body_id not in given:
            given.add(frame.body_id)
            row["payload"] = payload_of(frame)
        yield row


def payload_of(frame: PlannedFrame) -> bytes:
    """Return a frame's body as it is sent."""
    content = frame.exchange.content
    if frame.direction == "response":
        return encode_response(content)
    return b"".join(shared_body(content).pieces(frame.exchange.broker_epoch))


def frame_row(frame: PlannedFrame) -> dict[str, Any]:
    """Return the row of ``frames`` about a frame."""
    exchange, connection = frame.exchange, frame.exchange.connection
    source, target = connection.client, connection.server
    if frame.direction == "response":
        source, target = target, source
    return {
        "frame_id": frame.frame_id,
        "capture": frame.capture,
        "conn_id": frame.conn_id,
        "flow": {"src_ip": source.ip, "src_port": source.port, "dst_ip": target.ip, "dst_port": target.port},
        "direction": frame.direction,
        "ts": frame.time_ns // _US,
        "ts_last": frame.last_ns // _US,
        "ts_ns": frame.time_ns,
        "status": 0,
        "api_key": int(exchange.content.api_key),
        "api_version": exchange.content.version,
        "correlation_id": exchange.correlation_id,
        "client_id": str(exchange.content.controller.id),
        "frame_len": frame.length,
        "body_id": frame.body_id,
        "date": frame.time_ns // _NS_A_DAY,
    }


def unmatched_reason(exchange: PlannedExchange) -> str:
    """Return why a request has no response, in the generator's own words."""
    return "the connection broke" if exchange.lost else "the capture missed the response"
