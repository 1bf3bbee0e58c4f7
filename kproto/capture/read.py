"""Captures from files and other libraries -> ``frames`` and ``exchanges``."""

from __future__ import annotations

import heapq
import os
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kproto.api import CONTROL_APIS
from kproto.errors import CaptureError, first_reasons
from kproto.framing import DEFAULT_LIMIT

from .capture_points import CapturePoint, capture_points, in_order, point_name
from .growing import Growing
from .model import Exchange, Frame
from .ordering import TimeOrder
from .reader import CaptureReader
from .source import File, Source, check_begun, faults_of, file_name, is_file
from .summary import CaptureSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kproto.logs import LogReading

    from .collector import Event
    from .payloads import PayloadStore
    from .wanted import WantedApis

Captures: TypeAlias = "File | Growing | CapturePoint | Iterable[str | os.PathLike[str]] | Iterable[tuple[Any, ...]]"
"""Inputs of ``frames`` and ``exchanges``: a file, a directory, several files, or packets (time, bytes, link type)."""

_OPEN_FILES: Final = 200
"""The most capture points that are read side by side."""


def frames(
    captures: Captures,
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] | WantedApis | None = CONTROL_APIS,
    capture: str | None = None,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int | None], object] | None = None,
    summary: CaptureSummary | None = None,
    logs: LogReading | None = None,
) -> Iterator[Frame]:
    """The Kafka frames of a capture, undecoded, each as soon as it is whole.

    Args:
        captures: A file: a path, an open binary file, or the bytes of one. Several: a directory, an iterable of paths,
            or a ``CapturePoint``; those of one capture point are read as one capture, see ``capture_points``, and
            several capture points one after the other. Or packets: an iterable of (time, bytes, link type), where the
            time is in seconds since the epoch or, if it is an int, in nanoseconds, and 1 is Ethernet.
        ports: The listeners' ports; None finds them from the traffic.
        apis: API keys whose requests and responses are given; None for all.
        capture: Name of the capture point, part of the connections' ids; None takes the first file's name. Where it is
            given all files are of one capture point.
        limit: The largest frame in bytes; a larger one is passed over.
        progress: Called with (bytes read, size of the files or None) after each piece.
        summary: A fresh summary to be filled.
        logs: What logs do not say themselves, such as their zone.

    Raises:
        CaptureError: A file cannot be read, or is no capture. Damage within it only goes to the summary, and so does
            such a file of a directory that holds captures, too.
    """
    return read_frames(
        captures, ports=ports, apis=apis, capture=capture, limit=limit, progress=progress, summary=summary, logs=logs
    )


def read_frames(
    captures: Captures,
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] | WantedApis | None = CONTROL_APIS,
    capture: str | None = None,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int | None], object] | None = None,
    summary: CaptureSummary | None = None,
    opener: Callable[[str], IO[bytes]] | None = None,
    keeps_payloads: bool = True,
    payloads: PayloadStore | None = None,
    logs: LogReading | None = None,
) -> Iterator[Frame]:
    """``frames`` for the tables, which open files in stores and keep no payloads.

    Args:
        captures, ports, apis, capture, limit, progress, summary, logs: Arguments of ``frames``.
        opener: Opens a path; None: the file system does.
        keeps_payloads: Whether the memory of unanswered requests is bounded by giving up the oldest when their payloads
            reach 256 MiB. Otherwise the caller sets each frame's ``content`` to ``b""`` before taking the next frame.
        payloads: See ``CaptureReader``.
    """
    summary = CaptureSummary() if summary is None else summary
    for point in _points(captures, capture, summary):
        for events, _, _ in _read(
            point,
            CaptureReader(
                ports=ports,
                apis=apis,
                capture=point.name,
                limit=limit,
                summary=summary,
                keeps_payloads=keeps_payloads,
                payloads=payloads,
                logs=logs,
            ),
            progress,
            opener,
        ):
            for event in events:
                if isinstance(event, Frame):
                    yield event
                elif event.response is not None:
                    yield event.response


def exchanges(
    captures: Captures,
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] | WantedApis | None = CONTROL_APIS,
    capture: str | None = None,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int | None], object] | None = None,
    summary: CaptureSummary | None = None,
    logs: LogReading | None = None,
) -> Iterator[Exchange]:
    """Requests with their responses, in the order of the requests' times.

    Arguments and errors are those of ``frames``; several capture points are read side by side. From a pipe an exchange
    is given as soon as it is answered, or can be no more, rather than in order. A request without response and a
    response without request are given too, with their ``unmatched_reason``.
    """
    summary = CaptureSummary() if summary is None else summary
    readings = []
    for point in _points(captures, capture, summary):
        reader = CaptureReader(ports=ports, apis=apis, capture=point.name, limit=limit, summary=summary, logs=logs)
        readings.append(_exchanges(_read(point, reader, progress)))
    if len(readings) > _OPEN_FILES:
        yield from chain.from_iterable(readings)
    else:
        yield from heapq.merge(*readings, key=_time_ns)


def problem_of(
    captures: Captures, summary: CaptureSummary, *, opener: Callable[[str], IO[bytes]] | None = None
) -> str | None:
    """Explain in one line why a capture holds no control request; None if it holds any.

    Where ports were named and none of them carries Kafka, the capture is read again to name those that do.

    Args:
        captures: The files that were read, as in ``frames``.
        summary: As reading them left it.
        opener: See ``frames``.
    """
    problem = summary.problem()
    if problem is None or summary.ports is None or summary.kafka_connections:
        return problem
    whole = CaptureSummary()
    try:
        for _ in read_frames(captures, apis=(), capture=summary.file, summary=whole, opener=opener):
            pass
    except CaptureError:
        return problem
    if not whole.kafka_connections:
        return whole.problem() or problem
    named, found = (",".join(map(str, sorted(ports))) for ports in (summary.ports, whole.kafka_ports))
    return f"{summary.file}: no Kafka request on --ports {named}; ports that carry Kafka: {found}"


def _exchanges(reading: Iterator[_Read]) -> Iterator[Exchange]:
    order = TimeOrder()
    for events, now_ns, follows in reading:
        if not follows:
            yield from order.add(events, now_ns)
            continue
        for event in events:
            if isinstance(event, Exchange):
                yield event
    yield from order.end()


_Read: TypeAlias = "tuple[list[Event], int, bool]"
"""New frames and exchanges, the time in the capture, and whether the capture may still grow."""


class _Point(NamedTuple):
    """One capture point: its name, and its files or packets."""

    name: str
    files: Sequence[File] | Growing = ()
    packets: Iterable[tuple[Any, ...]] = ()


def _points(captures: Any, capture: str | None, summary: CaptureSummary) -> list[_Point]:
    """Sort the inputs into capture points; the summary gets the files of a directory that cannot be read."""
    if isinstance(captures, CapturePoint):
        return [_Point(capture or captures.name, captures.files)]
    if isinstance(captures, Growing):
        return [_Point(capture or captures.name, captures)]
    if is_file(captures):
        if not isinstance(captures, (str, os.PathLike)) or not Path(captures).is_dir():
            name = point_name(captures) if isinstance(captures, (str, os.PathLike)) else file_name(captures)
            return [_Point(name if capture is None else capture, [captures])]
        captures = _readable(capture_points([captures]), summary)
    items = iter(captures)
    first = next(items, None)
    if first is None or isinstance(first, tuple):
        packets = chain([] if first is None else [first], items)
        return [_Point("packets" if capture is None else capture, packets=packets)]
    points = capture_points(chain([first], items))
    if capture is not None:
        return [_Point(capture, in_order([file for point in points for file in point.files]))]
    return [_Point(point.name, point.files) for point in points]


def _readable(points: Sequence[CapturePoint], summary: CaptureSummary) -> list[str]:
    """List the files of capture points, but for those that cannot be read, which go to the summary.

    Raises:
        CaptureError: No file can be read.
    """
    files = [file for point in points for file in point.files]
    faults = faults_of(files)
    if len(faults) == len(files):
        raise CaptureError(first_reasons(faults.values()))
    for file, reason in faults.items():
        summary.reading = file_name(file)
        summary.bad(reason, 0)
    summary.reading = ""
    return [file for file in files if file not in faults]


def _read(
    point: _Point,
    reader: CaptureReader,
    progress: Callable[[int, int | None], object] | None,
    opener: Callable[[str], IO[bytes]] | None = None,
) -> Iterator[_Read]:
    """Read a capture point to its end."""
    summary = reader.summary
    only = _only_file(point)
    summary.file = summary.file or (point.name if only is None else file_name(only))
    yield from _read_files(point, reader, progress, opener)
    for time, data, link, *rest in point.packets:
        events = reader.packet(_nanoseconds(time), bytes(data), int(link), *rest)
        if events:
            yield events, reader.time_ns, False
    if not summary.format:
        summary.format = "packets"
    yield reader.end(), reader.time_ns, False


def _read_files(
    point: _Point,
    reader: CaptureReader,
    progress: Callable[[int, int | None], object] | None,
    opener: Callable[[str], IO[bytes]] | None,
) -> Iterator[_Read]:
    done, read, total, is_one = 0, 0, _total_size(point.files), _only_file(point) is not None

    def advanced(now: int, size: int | None) -> None:
        nonlocal read
        read = now
        assert progress is not None
        progress(done + now, size if is_one else total)

    for file in point.files:
        read = 0
        with Source(file, advanced if progress is not None else None, opener=opener) as source:
            reader.begin_file(source.name)
            begun = False
            while data := source.read():
                begun = True
                events = reader.feed(data)
                if events:
                    yield events, reader.time_ns, source.follows
            check_begun(source, begun=begun)
            events = reader.end_file(source.damage)
            done += read
            if events:
                yield events, reader.time_ns, source.follows


def _only_file(point: _Point) -> File | None:
    """The file of a capture point that has one, and will not have more."""
    return None if isinstance(point.files, Growing) or len(point.files) != 1 else point.files[0]


def _total_size(files: Sequence[File] | Growing) -> int | None:
    """The size of all files; None if one of them has no path."""
    if isinstance(files, Growing):
        return None
    try:
        return sum(os.stat(file).st_size for file in files if isinstance(file, (str, os.PathLike)))  # noqa: PTH116
    except OSError:
        return None  # opening the file reports the error


def _nanoseconds(time: Any) -> int:
    """A packet's time in ns, whether it is given in ns as an int or in seconds as a float or Decimal."""
    if isinstance(time, int):
        return time
    if isinstance(time, float):
        return round(time * 1_000_000) * 1000  # it is not exact beyond the microsecond
    return int(time * 1_000_000_000)


def _time_ns(exchange: Exchange) -> int:
    return exchange.time_ns
