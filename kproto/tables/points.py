"""Finds the capture points in files, directories, patterns and URIs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.capture import CapturePoint, capture_points
from kproto.capture.capture_points import in_order
from kproto.errors import ConfigurationError
from kproto.tables.files import expand, is_uri, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_CLUSTER: Final = "default"
"""The cluster of captures for which none was declared."""


def checked_cluster(cluster: str) -> str:
    """Return the name of a cluster.

    Raises:
        ConfigurationError: It is empty or has a slash.
    """
    if not cluster or "/" in cluster:
        raise ConfigurationError(f"{cluster!r} cannot name a cluster: choose a name without a slash, such as prod-eu")
    return cluster


def label_prefix(cluster: str) -> str:
    """Return what the labels of a cluster's capture points begin with."""
    return "" if cluster == DEFAULT_CLUSTER else f"{cluster}/"


def points_of(
    captures: Iterable[str],
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
) -> list[CapturePoint]:
    """Return the capture points in files, directories, patterns and URIs.

    Args:
        captures: The files.
        capture_point: All of them were recorded at this place, one after the other, whatever their names; None finds
            by names and times which were.
        cluster: The cluster whose brokers they show; the names of its capture points begin with it, and so all ids of
            frames and connections depend on it.

    Raises:
        CaptureError: A directory or pattern holds no capture; or one of several files of a named place is none.
        ConfigurationError: The cluster's name is empty or has a slash.
    """
    before = label_prefix(checked_cluster(cluster))
    absolute = (path if is_uri(path) else str(Path(path).absolute()) for path in expand(captures))
    points = capture_points(absolute, opener=open_file)
    if capture_point is None:
        return [CapturePoint(before + point.name, point.files) for point in points]
    files = [file for point in points for file in point.files]
    return [CapturePoint(before + capture_point, tuple(in_order(files, open_file)))]
