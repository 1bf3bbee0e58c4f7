"""Captures -> frames: what was sent, undecoded, each distinct body once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproto import capture
from kproto.api import CONTROL_APIS
from kproto.capture import WHOLE, CapturePoint, CaptureSummary
from kproto.errors import CaptureError
from kproto.prefix import prefix_of
from kproto.tables import ids
from kproto.tables.batches import BATCH_BYTES, RowBuffer, plain_text
from kproto.tables.schemas import SCAN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import pyarrow as pa

    from kproto.capture import Frame

__all__ = ["scan"]

_STANDARD_INPUT: Final = "-"

_ROW_BYTES: Final = 400
"""About what a row without its body takes."""

_REMEMBERED: Final = 1_000_000
"""Ids of bodies already given. Beyond it a body may be given twice, which costs space, not truth."""

_WAITING_BYTES: Final = 64 << 20
"""Requests that still wait for their answer: past this the oldest are given up as unanswered."""

_NS_A_DAY: Final = 86_400 * 1_000_000_000


def scan(
    captures: Iterable[str | CapturePoint],
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] = CONTROL_APIS,
    since_ns: int | None = None,
    until_ns: int | None = None,
    always: Collection[int] = (),
    on_capture: Callable[[int], object] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Read captures once and give every control frame in them.

    Responses follow their request: they are given if it is. A response whose request is not in the capture names no
    API and is left out. Rows without a ``frame_id`` are notes of three kinds: one with ``request_frame_id`` and
    ``unmatched_reason`` is about a request that got no response; one with ``file`` and ``bad_input`` is about a piece
    of the file that could not be used, or, without an ``offset``, about a file that holds nothing to use at all; one
    with ``facts`` is the row of ``CAPTURES`` about a file that was read.

    Args:
        captures: Capture points (``kproto.capture.capture_points`` groups files), or files, each of which is a capture
            point of its own, named as the file is.
        ports: The brokers' listeners; None finds them from the traffic.
        apis: Which requests to give.
        since_ns: Only requests whose first byte passed at or after this moment, ns since 1970 UTC.
        until_ns: Only requests before this one.
        always: APIs whose requests are given whatever the filters say, e.g. UpdateMetadata, which names the brokers.
        on_capture: Told the number of captures read (1) before each; counts work done, for instance in an accumulator.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``SCAN``.
    """
    rows = _ScanRows(batch_bytes)
    for each in captures:
        summary = CaptureSummary()
        point = CapturePoint(Path(each).name, (each,)) if isinstance(each, str) else each
        rows.begin_capture()
        if on_capture is not None:
            on_capture(1)
        try:
            source = sys.stdin.buffer if each == _STANDARD_INPUT else point
            for frame in capture.frames(
                source, ports=ports, apis={*apis, *always}, capture=point.name, summary=summary
            ):
                request = frame.request or frame
                if request.direction != "req":
                    continue
                in_time = (since_ns is None or request.time_ns >= since_ns) and (
                    until_ns is None or request.time_ns < until_ns
                )
                if (request.api_key in apis and in_time) or request.api_key in always:
                    rows.add_frame(frame)
                    if rows.full:
                        yield from rows.take()
        except CaptureError as e:
            rows.add_bad_input(summary.reading or point.name, _with_path(str(e), point))
        else:
            rows.add_summary(summary, point)
        rows.give_up_waiting()
    yield from rows.take()


class _ScanRows(RowBuffer):
    """Frames on their way into batches, and the requests among them that wait for an answer."""

    def __init__(self, limit: int) -> None:
        super().__init__(SCAN, limit)
        self._given: set[bytes] = set()
        self._waiting: dict[bytes, Frame] = {}
        self._waiting_bytes = 0

    def begin_capture(self) -> None:
        """Give bodies again: which occurrence is the first must not depend on what else this process reads."""
        self._given.clear()

    def add_frame(self, frame: Frame) -> None:
        assert frame.api_key is not None
        assert frame.api_version is not None
        connection = frame.connection
        frame_id = _frame_id(frame)
        source, target = connection.client, connection.server
        if frame.direction == "resp":
            source, target = target, source
        body_id = payload = error = broker_epoch = request_frame_id = None
        if frame.status != WHOLE:
            error = f"{frame.length - len(frame.payload)} of {frame.length} bytes are not in the capture"
        else:
            body = frame.body
            body_id = ids.body_id(frame.api_key, frame.api_version, frame.direction, body)
            if body_id not in self._given:
                self._remember(body_id)
                payload = bytes(body)
        if frame.direction == "req":
            broker_epoch = _broker_epoch(frame)
            self._wait(frame_id, frame)
        elif frame.request is not None:
            request_frame_id = _frame_id(frame.request)
            self._answered(request_frame_id)
        row = (
            frame_id,
            plain_text(connection.capture),
            plain_text(frame.file),
            connection.conn_id,
            {"src_ip": source.ip, "src_port": source.port, "dst_ip": target.ip, "dst_port": target.port},
            frame.direction,
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
            request_frame_id,
            None,
            error,
            payload,
            None,
            None,
        )
        self.add(row, _ROW_BYTES + (len(payload) if payload else 0))

    def add_summary(self, summary: CaptureSummary, point: CapturePoint) -> None:
        self._add_note(capture=plain_text(point.name), file=plain_text(summary.file), facts=_facts(summary))
        problem = summary.problem()
        if problem is not None:
            self.add_bad_input(summary.file, _with_path(problem, point))
        for bad in summary.bad_inputs:
            self.add_bad_input(bad.file, bad.reason, bad.offset, bad.bytes_skipped)

    def add_bad_input(self, file: str, reason: str, offset: int | None = None, skipped: int | None = None) -> None:
        note = {"reason": plain_text(reason), "offset": offset, "bytes_skipped": skipped}
        self._add_note(file=plain_text(file), bad_input=note)

    def give_up_waiting(self) -> None:
        """The capture is over: what still waits was not answered in it."""
        while self._waiting:
            self._give_up(next(iter(self._waiting)))

    def _wait(self, frame_id: bytes, frame: Frame) -> None:
        self._waiting[frame_id] = frame
        self._waiting_bytes += len(frame.payload)
        while self._waiting_bytes > _WAITING_BYTES:
            self._give_up(next(iter(self._waiting)))

    def _answered(self, frame_id: bytes) -> Frame | None:
        frame = self._waiting.pop(frame_id, None)
        if frame is not None:
            self._waiting_bytes -= len(frame.payload)
        return frame

    def _give_up(self, frame_id: bytes) -> None:
        frame = self._answered(frame_id)
        reason = frame.unmatched_reason if frame else None
        self._add_note(request_frame_id=frame_id, unmatched_reason=reason or "no response in the capture")

    def _add_note(self, **values: Any) -> None:
        self.add(tuple(values.get(name) for name in SCAN.names), _ROW_BYTES)

    def _remember(self, body_id: bytes) -> None:
        if len(self._given) >= _REMEMBERED:
            self._given.clear()
        self._given.add(body_id)


def _with_path(reason: str, point: CapturePoint) -> str:
    """A reason that begins with a file's name, with its whole path instead."""
    for path in point.files:
        name = Path(path).name
        if reason.startswith(f"{name}: "):
            return path + reason.removeprefix(name)
    return reason


def _facts(summary: CaptureSummary) -> dict[str, Any]:
    """The row of ``CAPTURES`` about a file, without its names."""
    return {
        "format": summary.format,
        "packets": summary.packets,
        "first_ts": summary.first_ns // 1000 if summary.packets else None,
        "last_ts": summary.last_ns // 1000 if summary.packets else None,
        "connections": summary.connections,
        "kafka_connections": summary.kafka_connections,
        "tls_connections": summary.tls_connections,
        "gaps": summary.gaps,
        "gap_bytes": summary.gap_bytes,
        "cut_packets": summary.cut_packets,
        "ip_fragments": summary.ip_fragments,
        "bad_checksums": summary.bad_checksums,
        "unmatched_responses": summary.unmatched_responses,
        "bad_inputs": summary.bad_input_count,
        "all_requests": [
            {"api_key": api, "api_version": version, "requests": count}
            for (api, version), count in sorted(summary.requests.items())
        ],
    }


def _frame_id(frame: Frame) -> bytes:
    return ids.frame_id(frame.connection.capture, frame.connection.conn_id, frame.direction, frame.offset)


def _broker_epoch(frame: Frame) -> int | None:
    """The epoch that the request names; -1, as Kafka has it, where its version has none; None if it is cut off."""
    assert frame.api_key is not None
    assert frame.api_version is not None
    prefix = prefix_of(frame.api_key, frame.api_version)
    if prefix is None:
        return None
    if prefix.broker_epoch_at is None:
        return -1
    epoch = frame.body[prefix.broker_epoch_at : prefix.broker_epoch_at + 8]
    return int.from_bytes(epoch, "big", signed=True) if len(epoch) == 8 else None
