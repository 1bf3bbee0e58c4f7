"""Finds the files of metadata logs among other files, without importing what reads them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOPIC: Final = "__cluster_metadata"
DIRECTORY: Final = f"{TOPIC}-0"
_PACKING: Final = r"(?:\.(?:gz|bz2|xz|zst|zstd))"
SNAPSHOT: Final = re.compile(rf"(\d{{20}})-(\d{{10}})\.checkpoint{_PACKING}?")
SEGMENT: Final = re.compile(rf"\d{{20}}\.log{_PACKING}?")
"""The names of a log's files, packed or not."""

PACKED: Final = re.compile(rf".*{_PACKING}", re.S)
_LOG: Final = re.compile(rf".*\.log{_PACKING}?", re.S)
_QUORUM_STATE: Final = "quorum-state"
_MOST_DIRECTORIES: Final = 10_000
_HEADER_BYTES: Final = 61
_FORMAT_AT: Final = 16
_FORMAT: Final = 2
_LENGTH: Final = slice(8, 12)
_BEGINNING: Final = 1 << 16
"""Bytes of a file that are read at least, as its first batch may be damaged."""

_LARGEST_BATCH: Final = 16 << 20
"""Bytes of a first batch that are read; Kafka's own limit for a batch of metadata is 8 MiB."""


@dataclass(slots=True)
class LogFiles:
    """The files of one or more nodes' metadata logs.

    Attributes:
        segments, snapshots, states: Their paths.
    """

    segments: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.segments or self.snapshots)

    def paths(self) -> list[str]:
        """Segments and snapshots."""
        return [*self.segments, *self.snapshots]

    def growing(self) -> list[str]:
        """The segments that may grow: those that are not packed."""
        return [path for path in self.segments if not PACKED.fullmatch(path)]


def find(paths: Iterable[str | os.PathLike[str]]) -> tuple[LogFiles, list[str]]:
    """Part some paths into the files of metadata logs and the others.

    A directory counts if it is, or holds at any depth, a copy of ``__cluster_metadata-0``: it has that name, or
    a ``quorum-state`` or snapshots, or segments that begin with records of metadata. Other partitions' logs beside it
    are never opened as such. A file counts by its name: a snapshot's, or ``.log`` with metadata at its beginning; both
    may be packed.

    Returns:
        The files of metadata logs; and the paths that have none, with the directories that hold captures as well.
    """
    found, others = LogFiles(), []
    for each in paths:
        path = os.fspath(each)
        of_path = LogFiles()
        if path == "-" or "://" in path:
            pass
        elif Path(path).is_dir():
            for directory in _directories(Path(path)):
                _add_directory(directory, of_path)
            if of_path:
                from kproto.capture.capture_points import captures_in

                others += [path] if captures_in(Path(path)) else []
        elif SNAPSHOT.fullmatch(Path(path).name):
            of_path.snapshots.append(path)
        elif _LOG.fullmatch(path) and (_is_in_log(Path(path)) or is_log_file(path)):
            of_path.segments.append(path)
        elif Path(path).name == _QUORUM_STATE:
            of_path.states.append(path)
        if of_path or of_path.states:
            found.segments += of_path.segments
            found.snapshots += of_path.snapshots
            found.states += of_path.states
        else:
            others.append(path)
    if not found:
        others += found.states
        found.states.clear()
    return found, others


def _is_in_log(path: Path) -> bool:
    return path.absolute().parent.name == DIRECTORY and SEGMENT.fullmatch(path.name) is not None


def is_log_file(path: str | os.PathLike[str]) -> bool:
    """Whether the first batch of a file that is not damaged holds records of metadata."""
    from kproto.capture.source import Source

    try:
        with Source(path) as source:
            head = source.peek(_HEADER_BYTES)
            if len(head) < _HEADER_BYTES or head[_FORMAT_AT] != _FORMAT:
                return False
            length = int.from_bytes(head[_LENGTH], "big", signed=True)
            head = source.peek(min(max(length + _LENGTH.stop, _BEGINNING), _LARGEST_BATCH))
    except CaptureError:
        return False
    from kproto.metadata_log.batches import RecordBatch, batches_in
    from kproto.metadata_log.records import MetadataRecord

    for batch in batches_in(head):
        if isinstance(batch, RecordBatch):  # other logs have control batches, too, and values of any bytes
            return any(isinstance(each.record, MetadataRecord) for each in batch.records())
        if batch.is_end:
            return True
    return False


def _directories(root: Path) -> Iterator[Path]:
    """Yield a directory and those in it, the near ones first, by name, without following links."""
    found = [root]
    for directory in found:
        yield directory
        try:
            with os.scandir(directory) as entries:
                inside = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        found += inside[: _MOST_DIRECTORIES - len(found)]


def _add_directory(directory: Path, found: LogFiles) -> None:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=True))
    except OSError:
        return
    segments = [str(directory / name) for name in names if SEGMENT.fullmatch(name)]
    snapshots = [str(directory / name) for name in names if SNAPSHOT.fullmatch(name)]
    named = directory.name == DIRECTORY or _QUORUM_STATE in names or snapshots
    if not named and not (segments and is_log_file(segments[0])):
        return
    found.segments += segments
    found.snapshots += snapshots
    if _QUORUM_STATE in names and (segments or snapshots):
        found.states.append(str(directory / _QUORUM_STATE))
