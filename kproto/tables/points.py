"""Finds the capture points in files, directories, patterns and URIs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kproto.capture import CapturePoint, capture_points
from kproto.capture.capture_points import in_order
from kproto.tables.files import expand, is_uri, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["points_of"]


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
