"""Finds captures and plans the reading tasks: small capture points are read whole, large ones in parts."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from kproto.capture import CapturePoint, capture_points
from kproto.capture.capture_points import in_order
from kproto.capture.source import HEAD
from kproto.capture.splits import Split, is_splittable
from kproto.errors import CaptureError
from kproto.tables.files import expand, file_size, is_uri, open_file
from kproto.tables.splitting import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["SPLIT_BYTES", "plan", "points_of"]

SPLIT_BYTES: Final = 128 << 20
"""Bytes of a part of a file. A capture point of fewer than twice these bytes is read by one task."""

_PACKED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def points_of(captures: Iterable[str], capture_point: str | None = None) -> list[CapturePoint]:
    """Return the capture points in files, directories, patterns and URIs.

    Args:
        captures: The files.
        capture_point: All of them were recorded at this place, one after the other, whatever their names; None finds
            by names and times which were.

    Raises:
        CaptureError: A directory or pattern holds no capture; or one of several files of a named place is none.
    """
    absolute = (path if is_uri(path) else str(Path(path).absolute()) for path in expand(captures))
    points = capture_points(absolute, opener=open_file)
    if capture_point is None:
        return points
    files = [file for point in points for file in point.files]
    (ordered,) = in_order(files, one=True, opener=open_file) if len(files) > 1 else [files]
    return [CapturePoint(capture_point, tuple(ordered))]


def plan(
    points: Iterable[CapturePoint],
    split_bytes: int = SPLIT_BYTES,
    *,
    opener: Callable[[str], IO[bytes]] = open_file,
) -> tuple[list[CapturePoint], list[Part]]:
    """Choose the captures that are read in parts.

    Each file of a large capture point is a part; uncompressed files larger than ``split_bytes`` are cut into parts.

    Args:
        points: The capture points.
        split_bytes: About how large a part shall be; 0 reads every capture point by one task.
        opener: Opens a file.

    Returns:
        The capture points that are read whole, and the parts of the others.
    """
    whole: list[CapturePoint] = []
    parts: list[Part] = []
    for point in points:
        sizes = [_size(file) for file in point.files]
        splits: list[Split] = []
        if split_bytes and sum(sizes) >= 2 * split_bytes:
            heads = [_head(file, opener) for file in point.files]
            if all(is_splittable(head) or _is_packed(head) for head in heads):
                for file, size, head in zip(point.files, sizes, heads, strict=True):
                    splits += _splits(file, size, split_bytes) if is_splittable(head) else [Split(file)]
        if len(splits) < 2:
            whole.append(point)
        else:
            last = len(splits) - 1
            parts += [Part(point.name, n, split, n == last) for n, split in enumerate(splits)]
    return whole, parts


def _splits(file: str, size: int, split_bytes: int) -> Iterator[Split]:
    count = max(1, round(size / split_bytes))
    for n in range(count):
        yield Split(file, size * n // count, size * (n + 1) // count, size)


def _size(file: str) -> int:
    try:
        return file_size(file)
    except CaptureError:
        return 0  # reading the file reports the error


def _head(file: str, opener: Callable[[str], IO[bytes]]) -> bytes:
    try:
        with opener(file) as opened:
            return opened.read(HEAD)
    except OSError:
        return b""


def _is_packed(head: bytes) -> bool:
    return head.startswith(_PACKED)
