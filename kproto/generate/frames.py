"""Generates a fleet's frames as Arrow batches, event by event: any part of them alone, without a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from .expected import frame_row, payload_of, unmatched_reason
from .files import DEFAULT_MSS
from .schemas import FRAMES
from .traffic import steps
from .wire import FramePlanner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .fleet import PlannedFleet
    from .traffic import PlannedExchange

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
        Batches of the schema ``kproto.generate.schemas.FRAMES``.
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
