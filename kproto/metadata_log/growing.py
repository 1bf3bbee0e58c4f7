"""A metadata log whose files grow, as those of a running controller do."""

from __future__ import annotations

import time
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.errors import CaptureError
from kproto.metadata_log.batches import Fault, batches_in
from kproto.metadata_log.files import FileEnd, LogFault, read
from kproto.metadata_log.finding import find
from kproto.metadata_log.folding import FoldedLog, LogFold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kproto.metadata_log.batches import RecordBatch

_LIST_S: Final = 1.0
"""Seconds between two looks into the directories for new files."""

_SHARE: Final = 0.05
"""The share of the time that reading the whole log again may take."""

_PIECE: Final = 32 << 20
"""The most bytes of a file that are read at once behind what was read before; a batch is never that large."""


class GrowingLog:
    """Reads a metadata log once, and then what is written to it.

    What goes on in the log where it ended is folded on. Anything else, as the log of a later leader that replaces the
    end of this one, batches that come after a gap, or a snapshot that may tell what is lacking, has the whole log read
    again, for a twentieth of the time.

    Args:
        paths: Files of the log, or directories of them, of one node or of several.

    Attributes:
        folded: What the log says; the batches, spans and epochs are those since the last ``read``.
        is_whole: Whether the last ``read`` was of the whole log.
        faults, fault_count: What was wrong when the whole log was read, and how much.
        next_offset: The offset of the next record.
        epoch: The epoch of the last record.
        time_ms: The time of the newest record, ms since 1970.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.folded: FoldedLog = FoldedLog()
        self.faults: list[LogFault] = []
        self.fault_count = 0
        self.is_whole = False
        self.next_offset = 0
        self.epoch = self.time_ms = -1
        self._paths = paths
        self._fold = LogFold()
        self._ends: dict[str, FileEnd] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._snapshots: set[str] = set()
        self._is_partial = False
        self._list_at = self._again_at = self._whole_at = 0.0

    def read(self) -> bool:
        """Read what is new; return whether there is anything.

        Raises:
            CaptureError: A file cannot be opened at first.
        """
        self.is_whole = False
        if not self._whole_at:
            return self._read_all()
        self.folded.batches[:] = self._fold.waiting()
        self.folded.brokers.clear()
        self.folded.epochs.clear()
        try:
            return self._read_on()
        except (CaptureError, OSError):  # a file was deleted between two looks; the next look tells
            return False

    def _read_on(self) -> bool:
        if self._again_at and time.monotonic() >= self._again_at:
            return self._read_all()
        if time.monotonic() >= self._list_at:
            self._list_at = time.monotonic() + _LIST_S
            files, _others = find(self._paths)
            for path in files.growing():
                self._ends.setdefault(path, FileEnd())
            if self._is_partial and self._snapshots < {*files.snapshots}:
                self._want_all()
        found = [batch for path in self._ends for batch in self._added(path)]
        return self._go_on(sorted(found, key=attrgetter("base_offset", "epoch")))

    def _go_on(self, batches: Sequence[RecordBatch]) -> bool:
        before = self.next_offset
        for batch in batches:
            if batch.base_offset == self.next_offset and batch.epoch >= self.epoch:
                self._fold.add(batch)
                self._ended(batch)
            elif batch.base_offset > self.next_offset or batch.epoch > self.epoch:
                self._want_all()
        return self.next_offset > before

    def _added(self, path: str) -> list[RecordBatch]:
        """The batches that were added to a file since it was read."""
        try:
            stat = Path(path).stat()
        except FileNotFoundError:  # Kafka deletes old segments; what they told stays
            self._seen.pop(path, None)
            return []
        end, seen = self._ends[path], (stat.st_size, stat.st_mtime_ns)
        if self._seen.get(path) == seen:
            return []
        with Path(path).open("rb") as file:
            file.seek(end.last_at)
            if stat.st_size < end.at or file.read(len(end.header)) != end.header:
                self._want_all()
                return []
            file.seek(end.at)
            data = file.read(_PIECE)
        if end.at + len(data) >= stat.st_size:
            self._seen[path] = seen
        made: list[RecordBatch] = []
        for found in batches_in(data):
            if not isinstance(found, Fault):
                made.append(found)
                end = end.after(found, end.at)
            elif not found.is_end:
                end = end._replace(at=end.at + found.size)
                self._want_all()
        self._ends[path] = end
        return made

    def _want_all(self) -> None:
        self._again_at = self._again_at or self._whole_at

    def _read_all(self) -> bool:
        began = time.monotonic()
        files, _others = find(self._paths)
        if self._whole_at and not files:  # they were moved away; what they told stays
            return False
        log = read(files)
        self._seen.clear()
        self._fold = LogFold()
        self.folded = self._fold.run(log)
        self.faults, self.fault_count, self.is_whole = log.faults, log.fault_count, True
        self._ends = {path: log.file_ends[path] for path in files.growing()}
        self._snapshots, self._is_partial = {*files.snapshots}, log.lacks_beginning or bool(log.gaps)
        self.next_offset, self.epoch, self.time_ms = 0, -1, -1
        for snapshot in log.snapshots[-1:]:
            self.next_offset, self.epoch = snapshot.end_offset, snapshot.epoch
            self.time_ms = -1 if snapshot.time_ms is None else snapshot.time_ms
        for batch in log.batches[-1:]:
            if batch.last_offset >= self.next_offset - 1:
                self._ended(batch)
        self._again_at, now = 0.0, time.monotonic()
        self._whole_at = now + (now - began) / _SHARE
        self._list_at = now + _LIST_S
        return True

    def _ended(self, batch: RecordBatch) -> None:
        self.next_offset, self.epoch = batch.last_offset + 1, batch.epoch
        self.time_ms = max(self.time_ms, batch.time_ms)
