"""Makes the table ``audit`` of captures: reads every control frame by each decoder, and lists the differences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import CONTROL_APIS
from kproto.capture import WHOLE, CapturePoint, CaptureSummary
from kproto.capture.capture_points import point_name
from kproto.capture.read import problem_of, read_frames
from kproto.codec import get_codec
from kproto.errors import CaptureError
from kproto.tables.arrays import plain_text
from kproto.tables.decoders import AuditedBody, CodecDecoder, compare
from kproto.tables.files import open_file
from kproto.tables.schemas import TIME, column, described

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kproto.capture import Frame
    from kproto.tables.decoders import Decoder

AGREEMENTS: Final = frozenset({"equal", "both_reject", "incomplete", "bad_input"})
"""Outcomes other than a mismatch."""

AUDIT: Final = described(
    "Control frames that the decoders disagree on, a row each; and how many frames had every other outcome.",
    column("frame_id", pa.binary(), "The frame. Joins frames; null in a row that counts frames."),
    column("capture", pa.string(), "Capture point: as declared, or the file's name without rotation and compression."),
    column("ts", TIME, "When the frame's first byte passed (UTC, us); null in a row that counts."),
    column("api_key", pa.int16(), "4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata."),
    column("api_version", pa.int16(), "Version of the request; its response has the same."),
    column("direction", pa.string(), "request: controller to broker; response: broker to controller."),
    column(
        "outcome",
        pa.string(),
        "Mismatches: values_differ, one_rejects, reencode_differs. Else equal, both_reject, incomplete (not whole, so "
        "not read), or bad_input (a capture, or a piece of one, that cannot be read).",
    ),
    column("frames", pa.int64(), "How many frames the row is about: 1 of a mismatch."),
    column("field_path", pa.string(), "The first field that differs, or the first byte; null where none does."),
    column("differences", pa.int64(), "How many fields differ; null in a row that counts."),
    column("cython", pa.string(), "What the C-accelerated codec has there: JSON, or hexadecimal bytes."),
    column("construct", pa.string(), "What the reference has there."),
    column("kafka", pa.string(), "What Kafka's own classes have there; null where they were not asked."),
    column("error_cython", pa.string(), "Why the C-accelerated codec refuses it; null where it does not."),
    column("error_construct", pa.string(), "Why the reference refuses it."),
    column("error_kafka", pa.string(), "Why Kafka's own classes refuse it."),
    column("reason", pa.string(), "Why a capture or a piece of one cannot be read, in a row of each."),
)

_DECODERS: Final = ("cython", "construct", "kafka")
_TOGETHER: Final = 256
_TOGETHER_BYTES: Final = 4 << 20
"""The most frames, and the most bytes of them, that are read at a time."""


def codec_decoders() -> list[Decoder]:
    """kproto's two codecs."""
    return [CodecDecoder("cython", get_codec("cython")), CodecDecoder("construct", get_codec("construct"))]


def audit(
    captures: Iterable[str | CapturePoint],
    decoders: Sequence[Decoder] | None = None,
    *,
    ports: Collection[int] | None = None,
    sample: float = 1.0,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read every control frame of captures with each decoder, and write it again.

    Bodies are not shared between frames: the same body sent to a hundred brokers is read a hundred times.

    Args:
        captures: Capture points, or files, by path or URI.
        decoders: Two or more, named ``cython``, ``construct`` or ``kafka``; None for kproto's two codecs.
        ports: The brokers' listeners; None finds them from the traffic.
        sample: Share of the frames to read, by their ids: the same frames in every run.
        progress: Called with the bytes read of the current capture and its size, None if unknown.

    Yields:
        Batches of the schema ``AUDIT``: mismatches as they are found, and at the end of each capture its counts.
    """
    decoders = codec_decoders() if decoders is None else decoders
    for each in captures:
        point = CapturePoint(point_name(each), (each,)) if isinstance(each, str) else each
        counts: Counter[tuple[int, int, str, str]] = Counter()
        summary = CaptureSummary()
        try:
            whole = read_frames(
                point,
                ports=ports,
                apis=CONTROL_APIS,
                capture=point.name,
                progress=progress,
                summary=summary,
                opener=open_file,
            )
            for frames in _together(_sampled(whole, sample, counts)):
                rows = list(_mismatches(frames, decoders, counts))
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, AUDIT)
            problem = problem_of(point, summary, opener=open_file)
        except CaptureError as e:
            problem = str(e)
        reasons = [] if problem is None else [problem]
        reasons += [f"{bad.file}: {bad.reason}, at byte {bad.offset}" for bad in summary.bad_inputs]
        rows = [
            {
                "capture": plain_text(point.name),
                "outcome": "bad_input",
                "frames": 0,
                "reason": plain_text(reason),
            }
            for reason in reasons
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, AUDIT)
        names = ("api_key", "api_version", "direction", "outcome")
        rows = [
            {"capture": plain_text(point.name), **dict(zip(names, key, strict=True)), "frames": number}
            for key, number in sorted(counts.items())
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, AUDIT)


def _sampled(
    frames: Iterable[Frame], sample: float, counts: Counter[tuple[int, int, str, str]]
) -> Iterator[tuple[bytes, Frame]]:
    """The sampled whole frames with their ids; counts those that are not whole."""
    limit = int(sample * 2**64)
    for frame in frames:
        if frame.api_key is None or frame.api_version is None:
            continue  # a response whose request is not in the capture
        frame_id = frame.frame_id
        if int.from_bytes(frame_id[:8]) >= limit:
            continue
        if frame.status != WHOLE:
            counts[frame.api_key, frame.api_version, frame.direction, "incomplete"] += 1
        else:
            yield frame_id, frame


def _together(frames: Iterable[tuple[bytes, Frame]]) -> Iterator[list[tuple[bytes, Frame]]]:
    held: list[tuple[bytes, Frame]] = []
    size = 0
    for item in frames:
        held.append(item)
        size += len(item[1].content)
        if len(held) >= _TOGETHER or size >= _TOGETHER_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _mismatches(
    frames: Sequence[tuple[bytes, Frame]], decoders: Sequence[Decoder], counts: Counter[tuple[int, int, str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of the frames that the decoders read differently; count the others."""
    bodies = []
    for _frame_id, frame in frames:
        assert frame.api_key is not None
        assert frame.api_version is not None
        bodies.append(AuditedBody(frame.api_key, frame.api_version, frame.direction, bytes(frame.body)))
    readings = [
        dict(zip((d.name for d in decoders), found, strict=True))
        for found in zip(*(d.read(bodies) for d in decoders), strict=True)
    ]
    for (frame_id, frame), body, found in zip(frames, bodies, readings, strict=True):
        comparison = compare(body.data, found)
        if comparison.outcome in AGREEMENTS:
            counts[body.api_key, body.version, frame.direction, comparison.outcome] += 1
            continue
        yield {
            "frame_id": frame_id,
            "capture": plain_text(frame.connection.capture),
            "ts": frame.time_ns // 1000,
            "api_key": body.api_key,
            "api_version": body.version,
            "direction": frame.direction,
            "outcome": comparison.outcome,
            "frames": 1,
            "field_path": comparison.field_path,
            "differences": comparison.differences,
            **{name: plain_text(comparison.values.get(name)) for name in _DECODERS},
            **{f"error_{name}": plain_text(found[name].error) for name in _DECODERS if name in found},
        }
