"""The files of a metadata log: segments, snapshots, ``quorum-state``, of one node or of several.

``read`` makes one log of the files that ``finding.find`` found. Every node holds a copy of the same log: a batch that
several have counts once, and where two differ at an offset the higher epoch won; the other was cut off when that node
followed the new leader. What cannot be read is named as a fault, and nothing before or after it is lost.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.errors import CaptureError
from kproto.metadata_log.batches import Fault, LogRecord, RecordBatch, batches_in, records_of
from kproto.metadata_log.finding import SNAPSHOT
from kproto.metadata_log.image import Image
from kproto.metadata_log.records import MetadataRecord, SnapshotFooterRecord, SnapshotHeaderRecord, UnknownRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.metadata_log.finding import LogFiles

_LARGEST_STATE: Final = 1 << 20
_MOST_FAULTS: Final = 1000
_WINDOW: Final = 256 << 20


class LogFault(NamedTuple):
    """What is wrong with a piece of a log.

    Attributes:
        path: The file; empty: it is about the log as a whole.
        at, size: The bytes in the file; None: it is about offsets.
        reason: In one line.
    """

    path: str
    at: int | None
    size: int | None
    reason: str


@dataclass(slots=True)
class LogSnapshot:
    """A snapshot: the image of the log up to an offset.

    Attributes:
        end_offset, epoch: The first offset that it does not hold, and the epoch of the last that it does.
        path: A file that holds it.
        time_ms: The time of the last record it holds, ms since 1970; None: it does not say.
        batches: Its batches.
    """

    end_offset: int
    epoch: int
    path: str
    time_ms: int | None
    batches: list[RecordBatch]

    def records(self) -> Iterator[LogRecord]:
        """Yield its records."""
        for batch in self.batches:
            yield from records_of(batch)


class QuorumState(NamedTuple):
    """What a node's ``quorum-state`` says.

    Attributes:
        path: The file.
        leader_id: The leader; -1: the node knows none.
        leader_epoch: The epoch.
        voted_id: For whom the node voted in this epoch; -1: for nobody.
        voters: The voters, where the quorum's version is 0.
    """

    path: str
    leader_id: int
    leader_epoch: int
    voted_id: int
    voters: tuple[int, ...]


@dataclass(slots=True)
class MetadataLog:
    """A cluster's metadata log, as its files hold it.

    Attributes:
        batches: The batches of the log, each once, by offset.
        truncated: Batches that a node held and a higher epoch replaced, by offset, with the file.
        snapshots: Those that are whole, by end offset.
        states: What the nodes' ``quorum-state`` say.
        faults: What is wrong, the first 1000.
        fault_count: How much is wrong.
        gaps: The ranges of offsets that no file holds: first and last.
        file_batches: The number of batches in each file.
    """

    batches: list[RecordBatch] = field(default_factory=list)
    truncated: list[tuple[RecordBatch, str]] = field(default_factory=list)
    snapshots: list[LogSnapshot] = field(default_factory=list)
    states: list[QuorumState] = field(default_factory=list)
    faults: list[LogFault] = field(default_factory=list)
    fault_count: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    file_batches: dict[str, int] = field(default_factory=dict)

    def fault(self, path: str, at: int | None, size: int | None, reason: str) -> None:
        """Note that something is wrong."""
        self.fault_count += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(LogFault(path, at, size, reason))

    def records(self) -> Iterator[LogRecord]:
        """Yield the log's records in the order of their offsets."""
        for batch in self.batches:
            yield from records_of(batch)

    def base(self) -> LogSnapshot | None:
        """The snapshot that the fold begins with: the oldest from which the log goes on; None: the log has its start.

        Where the log does not go on from any, the newest.
        """
        if self.batches and self.batches[0].base_offset == 0:
            return None
        first = self.batches[0].base_offset if self.batches else 0
        usable = [snapshot for snapshot in self.snapshots if snapshot.end_offset >= first]
        return usable[0] if usable else self.snapshots[-1] if self.snapshots else None

    def image(self) -> Image:
        """Fold the whole log."""
        image = Image()
        for step in self.fold(image):
            for each in step.records:
                if isinstance(each.record, MetadataRecord | UnknownRecord) and not each.is_control:
                    for _change in step.image.apply(each.record):
                        pass
            image = step.image
        return image

    def fold(self, image: Image) -> Iterator[FoldStep]:
        """Yield what is to be folded, in order: the snapshot, if one is needed, and each batch after it.

        At a gap the image is forgotten, and made anew of a snapshot that was taken behind it, if there is one.
        """
        base = self.base()
        position = 0
        if base is not None:
            yield FoldStep(image, base, None, base.records())
            position = base.end_offset
        batches = self.batches
        at = bisect_left(batches, position, key=lambda batch: batch.last_offset) if base is not None else 0
        expected = position if base is not None else batches[0].base_offset if batches else 0
        for batch in batches[at:]:
            if batch.base_offset > expected:
                behind = [s for s in self.snapshots if expected < s.end_offset and s.end_offset >= batch.base_offset]
                image.forget()
                if behind and behind[0].end_offset <= batch.base_offset:
                    image = Image()
                    yield FoldStep(image, behind[0], None, behind[0].records())
            expected = batch.last_offset + 1
            yield FoldStep(image, None, batch, records_of(batch))


class FoldStep(NamedTuple):
    """A snapshot or a batch that is next in the fold.

    Attributes:
        image: The image to apply its records to.
        snapshot, batch: One of them.
        records: Its records.
    """

    image: Image
    snapshot: LogSnapshot | None
    batch: RecordBatch | None
    records: Iterator[LogRecord]


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(files: LogFiles) -> MetadataLog:
    """Read the files of a metadata log.

    Raises:
        CaptureError: A file cannot be opened.
    """
    log = MetadataLog()
    held: dict[tuple[int, int], tuple[RecordBatch, str]] = {}
    for path in files.segments:
        count = 0
        for batch in _file_batches(path, log):
            count += 1
            known = held.setdefault((batch.epoch, batch.base_offset), (batch, path))
            if known[0].data[_CRC] != batch.data[_CRC]:
                log.fault(
                    path, None, None,
                    f"the batch at offset {batch.base_offset} of epoch {batch.epoch} differs from that in {known[1]}; "
                    "are these logs of one cluster?",
                )  # fmt: skip
        log.file_batches[path] = count
    _settle(log, held)
    snapshots: dict[tuple[int, int], LogSnapshot] = {}
    for path in files.snapshots:
        snapshot = _read_snapshot(path, log)
        if snapshot is not None:
            snapshots.setdefault((snapshot.end_offset, snapshot.epoch), snapshot)
    log.snapshots = [snapshots[key] for key in sorted(snapshots)]
    log.states = [state for path in files.states if (state := _read_state(path, log)) is not None]
    first = log.batches[0].base_offset if log.batches else None
    if first and log.base() is None:
        log.fault(
            "", None, None,
            f"the log begins at offset {first}, and no snapshot tells what was before; add the .checkpoint files",
        )  # fmt: skip
    return log


_CRC: Final = slice(17, 21)


def _settle(log: MetadataLog, held: dict[tuple[int, int], tuple[RecordBatch, str]]) -> None:
    """Order the batches; leave out those that a higher epoch replaced; note the gaps."""
    begins: dict[int, int] = {}
    for epoch, base in held:
        begins[epoch] = min(base, begins.get(epoch, base))
    replaced_from: dict[int, int] = {}
    lowest: int | None = None
    for epoch in sorted(begins, reverse=True):
        if lowest is not None:
            replaced_from[epoch] = lowest
        lowest = begins[epoch] if lowest is None else min(lowest, begins[epoch])
    kept = []
    for key in sorted(held, key=lambda key: (key[1], key[0])):
        batch, path = held[key]
        end = replaced_from.get(batch.epoch)
        if end is not None and batch.last_offset >= end:
            log.truncated.append((batch, path))
        else:
            kept.append(batch)
    if log.truncated:
        first, path = log.truncated[0]
        log.fault(
            path, None, None,
            f"{len(log.truncated):,} batches from offset {first.base_offset} of epoch {first.epoch} on were replaced "
            "by a later leader's: this node wrote or followed a log that lost",
        )  # fmt: skip
    expected = kept[0].base_offset if kept else 0
    for batch in kept:
        if batch.base_offset > expected:
            log.gaps.append((expected, batch.base_offset - 1))
            log.fault("", None, None, f"no file holds the offsets {expected} to {batch.base_offset - 1}")
        elif batch.base_offset < expected:
            log.fault("", None, None, f"two batches hold offset {batch.base_offset}; the second is left out")
            continue
        expected = batch.last_offset + 1
        log.batches.append(batch)


def _file_batches(path: str, log: MetadataLog) -> Iterator[RecordBatch]:
    """Yield the batches of a file; note what is none."""
    try:
        with Path(path).open("rb") as file:
            begin, held = 0, b""
            while True:
                window = file.read(_WINDOW)
                is_last = len(window) < _WINDOW
                held += window
                rest = len(held)
                for found in batches_in(held):
                    if isinstance(found, RecordBatch):
                        yield found
                    elif found.is_end and not is_last:
                        rest = found.at
                    else:
                        _note(path, begin, found, log)
                if is_last:
                    return
                begin, held = begin + rest, held[rest:]
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None


def _note(path: str, begin: int, found: Fault, log: MetadataLog) -> None:
    reason = found.reason
    if found.is_end:
        reason += "; the file was copied while it was written, or is cut"
    log.fault(path, begin + found.at, found.size, reason)


def _read_snapshot(path: str, log: MetadataLog) -> LogSnapshot | None:
    name = SNAPSHOT.fullmatch(Path(path).name)
    if name is None:
        return None
    before = log.fault_count
    batches = list(_file_batches(path, log))
    log.file_batches[path] = len(batches)
    time_ms = None
    is_ended = False
    for batch in batches:
        if batch.is_control:
            for each in records_of(batch):
                if isinstance(each.record, SnapshotHeaderRecord):
                    time_ms = each.record.last_contained_log_timestamp
                is_ended = is_ended or isinstance(each.record, SnapshotFooterRecord)
    if log.fault_count != before or not is_ended:
        log.fault(path, None, None, "the snapshot is not whole; it is left out")
        return None
    return LogSnapshot(int(name[1]), int(name[2]), path, time_ms, batches)


def _read_state(path: str, log: MetadataLog) -> QuorumState | None:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_STATE)
        json_state = json.loads(text)
        return QuorumState(
            path, int(json_state["leaderId"]), int(json_state["leaderEpoch"]), int(json_state.get("votedId", -1)),
            tuple(int(voter["voterId"]) for voter in json_state.get("currentVoters") or ()),
        )  # fmt: skip
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.fault(path, None, None, "no quorum-state that can be read")
        return None
