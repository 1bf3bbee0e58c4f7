"""The files of a metadata log: segments, snapshots, ``quorum-state``, of one node or of several.

``read`` makes one log of the files that ``finding.find`` found. Every node holds a copy of the same log: a batch that
several have counts once, and where two differ at an offset the higher epoch won; the other was cut off when that node
followed the new leader. What cannot be read is named as a fault, and nothing before or after it is lost.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.capture.source import Source
from kproto.errors import CaptureError, first_reasons
from kproto.metadata_log.batches import HEADER_BYTES, Fault, LogRecord, RecordBatch, batches_in
from kproto.metadata_log.finding import PACKED, SEGMENT, SNAPSHOT
from kproto.metadata_log.records import SnapshotFooterRecord, SnapshotHeaderRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kproto.metadata_log.finding import LogFiles

_LARGEST_STATE: Final = 1 << 20
_MOST_FAULTS: Final = 1000
_WINDOW: Final = 256 << 20
_LARGEST_BATCH: Final = 32 << 20
"""Bytes that are read behind the last that was written: a sparse copy may lack zeros at the end of a batch."""

_PACKED_TIMES: Final = 100
"""A packed file is unpacked to so many times its size, and a batch, at most: the CRC of each batch packs badly."""


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
            yield from batch.records()

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.end_offset:020}-{self.epoch:010}"


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


class FileEnd(NamedTuple):
    """Where reading of a file ended.

    Attributes:
        at: The bytes that were read; a batch that the file's end cuts begins there.
        last_at, header: Where the last batch before that begins, and its header, by which it is known again.
    """

    at: int = 0
    last_at: int = 0
    header: bytes = b""

    def after(self, batch: RecordBatch, at: int) -> FileEnd:
        """Return the end behind a batch that begins at a byte."""
        return FileEnd(at + len(batch.data), at, batch.data[:HEADER_BYTES])


class Divergence(NamedTuple):
    """A leader's answer to a replica whose log is not its own: cut it off.

    Attributes:
        leader_epoch: The epoch of the leader.
        replica_epoch: The epoch of the last record that the replica had.
        epoch, end_offset: The last epoch up to that one of which the leader has records, and the end of these.
    """

    leader_epoch: int
    replica_epoch: int
    epoch: int
    end_offset: int

    def cuts(self, batch: RecordBatch, certain: int) -> bool:
        """Whether the leader's log lacks a batch; the last leader that had it was that of the epoch ``certain``."""
        if certain >= self.leader_epoch:
            return False
        if batch.epoch == self.epoch:
            return batch.last_offset >= self.end_offset
        return self.epoch < batch.epoch <= self.replica_epoch


class ShownLog(NamedTuple):
    """What captures show of a log, or stored tables keep of it.

    Attributes:
        batches: By (epoch, base offset), each with the name of what showed it first.
        sent_in: The last epoch whose leader sent each of them, where it is a later one than its own.
        snapshots: Those that are whole, by end offset and epoch.
        diverged: Answers by which leaders told replicas to cut off their logs.
        states: What ``quorum-state`` files said that are not there any more.
    """

    batches: Mapping[tuple[int, int], tuple[RecordBatch, str]]
    sent_in: Mapping[tuple[int, int], int]
    snapshots: Mapping[tuple[int, int], LogSnapshot]
    diverged: Collection[Divergence] = ()
    states: Collection[QuorumState] = ()


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
        nothing: Why no file holds a record that can be read, and what to try; empty: some do, or captures.
        gaps: The ranges of offsets that no file holds: first and last.
        file_batches: The batches in each file.
        file_ends: Where reading of each file ended.
        sent_in: Of each batch, by (epoch, base offset), the newest epoch whose leader is known to have had it.
    """

    batches: list[RecordBatch] = field(default_factory=list)
    truncated: list[tuple[RecordBatch, str]] = field(default_factory=list)
    snapshots: list[LogSnapshot] = field(default_factory=list)
    states: list[QuorumState] = field(default_factory=list)
    faults: list[LogFault] = field(default_factory=list)
    fault_count: int = 0
    nothing: str = ""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    file_batches: dict[str, list[RecordBatch]] = field(default_factory=dict)
    file_ends: dict[str, FileEnd] = field(default_factory=dict)
    sent_in: dict[tuple[int, int], int] = field(default_factory=dict)

    def fault(self, path: str, at: int | None, size: int | None, reason: str) -> None:
        """Note that something is wrong."""
        self.fault_count += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(LogFault(path, at, size, reason))

    @property
    def lacks_beginning(self) -> bool:
        """Whether the log begins later than its first record, and no snapshot tells what was before."""
        first = self.batches[0].base_offset if self.batches else 0
        return first > 0 and not any(snapshot.end_offset >= first for snapshot in self.snapshots)

    def steps(self) -> Iterator[tuple[RecordBatch | LogSnapshot, bool]]:
        """Yield what is to be folded, in order, and whether the batches before it are missing.

        That is each batch, and each snapshot that tells what the batches do not. A snapshot comes where it was taken,
        and only after a gap or where the log lacks its beginning.
        """
        is_complete = bool(self.batches)
        position = 0
        snapshots = iter(self.snapshots)
        snapshot = next(snapshots, None)
        for batch in self.batches:
            after_gap = batch.base_offset > position
            is_complete = is_complete and not after_gap
            while snapshot is not None and snapshot.end_offset <= batch.base_offset:
                if not is_complete and snapshot.end_offset >= position:
                    yield snapshot, False
                    is_complete = snapshot.end_offset == batch.base_offset
                    after_gap = not is_complete
                snapshot = next(snapshots, None)
            yield batch, after_gap
            position = batch.end_offset
        while snapshot is not None:
            if snapshot.end_offset > position or (snapshot.end_offset == position and not is_complete):
                yield snapshot, False
                is_complete, position = True, snapshot.end_offset
            snapshot = next(snapshots, None)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(files: LogFiles, *shown: ShownLog | None) -> MetadataLog:
    """Read the files of a metadata log.

    Args:
        files: The files.
        shown: What captures show of the same log, and stored tables keep.

    Raises:
        CaptureError: A file cannot be opened.
    """
    log = MetadataLog()
    certain = log.sent_in
    held: dict[tuple[int, int], tuple[RecordBatch, str]] = {}

    def hold(batch: RecordBatch, path: str, epoch: int) -> None:
        key = batch.epoch, batch.base_offset
        known, where = held.setdefault(key, (batch, path))
        certain[key] = max(epoch, batch.epoch, certain.get(key, epoch))
        if known.crc != batch.crc:
            log.fault(
                path, None, None,
                f"the batch at offset {batch.base_offset} of epoch {batch.epoch} differs from that in {where}; are "
                "these logs of one cluster?",
            )  # fmt: skip

    copies: dict[str, list[tuple[RecordBatch, str]]] = {}
    for path in files.segments:
        batches = log.file_batches[path] = list(_file_batches(path, log))
        copy = str(Path(path).parent) if SEGMENT.fullmatch(Path(path).name) else path
        copies.setdefault(copy, []).extend((batch, path) for batch in batches)
    for held_by_one in copies.values():
        newest = max((batch.epoch for batch, _path in held_by_one), default=-1)
        for batch, path in held_by_one:
            hold(batch, path, newest)
    snapshots: dict[tuple[int, int], LogSnapshot] = {}
    known = [each for each in shown if each is not None]
    for each in known:
        for key, (batch, where) in each.batches.items():
            hold(batch, where, each.sent_in.get(key, batch.epoch))
        snapshots |= each.snapshots
    _settle(log, held, [one for each in known for one in each.diverged])
    for path in files.snapshots:
        snapshot = _read_snapshot(path, log)
        if snapshot is not None:
            snapshots.setdefault((snapshot.end_offset, snapshot.epoch), snapshot)
    log.snapshots = [snapshots[key] for key in sorted(snapshots)]
    log.states = [state for path in files.states if (state := _read_state(path, log)) is not None]
    log.states += [state for each in known for state in each.states]
    if log.lacks_beginning:
        begin = log.batches[0].base_offset
        log.fault("", None, None, f"the log begins at offset {begin}; no snapshot tells what was before")
    if files and not log.batches and not log.snapshots:
        damage = [f"{fault.path}: {fault.reason}" for fault in log.faults if fault.size is not None]
        damage = damage or [f"{path}: nothing was written to it" for path in files.paths()]
        log.nothing = (
            f"{first_reasons(damage, 1)}; no record of metadata can be read: name the copy of __cluster_metadata-0 of "
            "another node"
        )
    return log


def _settle(
    log: MetadataLog,
    held: dict[tuple[int, int], tuple[RecordBatch, str]],
    diverged: Collection[Divergence],
) -> None:
    """Order the batches; leave out those of leaders that lost; note the gaps.

    Two logs that share a record share all before it. So a node's copy of the log is that of the leader of the newest
    epoch in it, as is what that leader sends, and those of the newest leader go before all others: a batch of another
    copy counts where theirs has none, and where it keeps the epochs in their order.

    Args:
        log: Gets the batches; has of each the newest epoch whose leader had it.
        held: All batches by epoch and offset, each with where it was found.
        diverged: Answers by which leaders told replicas to cut off their logs.
    """
    by_offset, certain = attrgetter("base_offset", "epoch"), log.sent_in
    levels: dict[int, list[RecordBatch]] = {}
    lost: list[tuple[RecordBatch, str]] = []
    for key, (batch, path) in held.items():
        if any(one.cuts(batch, certain[key]) for one in diverged):
            lost.append((batch, path))
        else:
            levels.setdefault(certain[key], []).append(batch)
    kept: list[RecordBatch] = []
    for level in sorted(levels, reverse=True):
        fitting = []
        starts = [batch.base_offset for batch in kept]
        for batch in levels[level]:
            place = bisect_right(starts, batch.base_offset)
            before, after = kept[place - 1] if place else None, kept[place] if place < len(kept) else None
            if (before is None or (before.last_offset < batch.base_offset and before.epoch <= batch.epoch)) and (
                after is None or (batch.last_offset < after.base_offset and batch.epoch <= after.epoch)
            ):
                fitting.append(batch)
            else:
                lost.append(held[batch.epoch, batch.base_offset])
        kept = sorted(kept + fitting, key=by_offset)
    log.truncated = sorted(lost, key=lambda one: by_offset(one[0]))
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
    """Yield the batches of a file, packed or not; note what is none."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            begin, held = 0, b""
            end = log.file_ends[path] = FileEnd()
            is_packed = PACKED.fullmatch(path) is not None
            left = _PACKED_TIMES * file.seek(0, os.SEEK_END) if is_packed else _written(file.fileno())
            left += _LARGEST_BATCH
            file.seek(0)
            source = Source(file)
            while True:
                window = _window(source, min(_WINDOW, left))
                left -= len(window)
                is_last = len(window) < _WINDOW
                held += window
                at, rest = begin, len(held)
                for found in batches_in(held):
                    if isinstance(found, RecordBatch):
                        end = log.file_ends[path] = end.after(found, at)
                        at = end.at
                        yield found
                    elif found.is_end and not is_last:
                        rest = found.at
                    else:
                        at = begin + found.at + found.size
                        if not found.is_end:
                            end = log.file_ends[path] = end._replace(at=at)
                        _note(path, begin, found, log)
                if is_last:
                    break
                begin, held = begin + rest, held[rest:]
            if source.damage is not None or (is_packed and left <= 0 and source.read()):
                more = f"it unpacks to more than {_PACKED_TIMES} times its size; the rest is left out"
                log.fault(path, begin + len(held), 0, source.damage or more)
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None


def _window(source: Source, size: int) -> bytes:
    """The next bytes of a file, as many as there are up to a size."""
    pieces: list[bytes] = []
    while size > 0 and (piece := source.read()):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _written(descriptor: int) -> int:
    """The bytes of a file before the space at its end that was reserved and never written, where the system tells."""
    end = 0
    try:
        while True:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as e:
        return end if e.errno == errno.ENXIO else sys.maxsize
    except AttributeError:  # Windows
        return sys.maxsize


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
    batches = log.file_batches[path] = list(_file_batches(path, log))
    end_offset, epoch = int(name[1]), int(name[2])
    snapshot = snapshot_of(end_offset, epoch, path, batches)
    if log.fault_count != before or snapshot is None or end_offset >= 1 << 63 or epoch >= 1 << 31:
        log.fault(path, None, None, "the snapshot is not whole; it is left out")
        return None
    return snapshot


def snapshot_of(end_offset: int, epoch: int, path: str, batches: list[RecordBatch]) -> LogSnapshot | None:
    """Return the snapshot that batches make; None: they do not end as a snapshot does."""
    time_ms = None
    is_ended = False
    for batch in batches:
        if batch.is_control:
            for each in batch.records():
                if isinstance(each.record, SnapshotHeaderRecord):
                    time_ms = each.record.last_contained_log_timestamp
                is_ended = is_ended or isinstance(each.record, SnapshotFooterRecord)
    return LogSnapshot(end_offset, epoch, path, time_ms, batches) if is_ended else None


def _int32(value: object) -> int:
    if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
        raise ValueError("no int32")
    return value


def _read_state(path: str, log: MetadataLog) -> QuorumState | None:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_STATE)
        json_state = json.loads(text)
        return QuorumState(
            path, _int32(json_state["leaderId"]), _int32(json_state["leaderEpoch"]),
            _int32(json_state.get("votedId", -1)),
            tuple(_int32(voter["voterId"]) for voter in json_state.get("currentVoters") or ()),
        )  # fmt: skip
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.fault(path, None, None, "no quorum-state that can be read")
        return None
