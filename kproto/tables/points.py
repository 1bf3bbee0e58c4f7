"""Finds the capture points in files, directories, patterns and URIs."""

from __future__ import annotations

from bisect import bisect_right
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kproto.capture import CapturePoint, capture_points
from kproto.capture.capture_points import in_order
from kproto.errors import ConfigurationError
from kproto.tables.files import expand, is_uri, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_CLUSTER: Final = "default"
"""The cluster of captures for which none was declared."""

_PAUSE: Final = timedelta(seconds=60)
"""The longest time between the packets of two files of one place that ``continued_captures`` finds."""


def points_of(
    captures: Iterable[str],
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    *,
    unfinished: bool = True,
) -> list[CapturePoint]:
    """Return the capture points in files, directories, patterns and URIs.

    Args:
        captures: The files.
        capture_point: All of them were recorded at this place, one after the other, whatever their names; None finds
            by names and times which were.
        cluster: The cluster whose brokers they show; the names of its capture points begin with it, and so all ids of
            frames and connections depend on it.
        unfinished: See ``capture_points``.

    Raises:
        CaptureError: A directory or pattern holds no capture; or one of several files of a named place is none.
        ConfigurationError: The cluster's name is empty or has a slash.
    """
    if not cluster or "/" in cluster:
        raise ConfigurationError(f"{cluster!r} cannot name a cluster: choose a name without a slash, such as prod-eu")
    absolute = (path if is_uri(path) else str(Path(path).absolute()) for path in expand(captures))
    points = capture_points(absolute, opener=open_file, unfinished=unfinished)
    before = "" if cluster == DEFAULT_CLUSTER else f"{cluster}/"
    if capture_point is None:
        return [CapturePoint(before + point.name, point.files) for point in points]
    files = [file for point in points for file in point.files]
    (ordered,) = in_order(files, one=True, opener=open_file) if len(files) > 1 else [files]
    return [CapturePoint(before + capture_point, tuple(ordered))]


def continued_captures(captures: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the captures that may go on where another one ends, with the name of that other one.

    They begin in the middle of connections, soon after the other one's last packet: perhaps files of one place whose
    names do not tell it, so that the frames between them are lost.

    Args:
        captures: Rows of the table ``captures`` of one cluster.
    """
    rows = sorted((row for row in captures if row["packets"]), key=lambda row: row["last_ts"])
    ends = [row["last_ts"] for row in rows]
    found = {}
    for row in rows:
        if row["partial_starts"] or row["unmatched_responses"]:
            at = bisect_right(ends, row["first_ts"]) - 1
            if at >= 0 and rows[at] is row:  # all of its packets have one time
                at -= 1
            if at >= 0 and ends[at] >= row["first_ts"] - _PAUSE:
                found[row["capture"]] = rows[at]["capture"]
    return found
