"""A replica's records in memory: whole record batches as a client wrote them, with a limit in bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

import crc32c

from kproto.error_codes import ErrorCode

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PLACE: Final = Struct(">qii")
_CHECKSUM_ENDS: Final = 21
_MAGIC: Final = 16
_TRANSACTIONAL_OR_CONTROL: Final = 0x30


class RecordsRefused(Exception):
    """The records of a Produce request cannot be appended.

    Attributes:
        code: The error code of the answer.
    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch of format 2. Replicas share it.

    Attributes:
        base_offset: The offset of its first record.
        count: The number of its records.
        leader_epoch: The epoch of the leader that appended it.
        max_timestamp: The largest timestamp of its records, in ms.
        data: The batch with header and records.
    """

    base_offset: int
    count: int
    leader_epoch: int
    max_timestamp: int
    data: bytes

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + self.count

    def at(self, offset: int, leader_epoch: int) -> Batch:
        """Return the batch at its place in a log; the checksum covers neither of the two fields."""
        place = _PLACE.pack(offset, len(self.data) - 12, leader_epoch)
        return replace(self, base_offset=offset, leader_epoch=leader_epoch, data=place + self.data[_PLACE.size :])


def read_batch(data: bytes | None) -> Batch:
    """Read the one batch of a Produce request's partition.

    Raises:
        RecordsRefused: It is damaged, of an older format, part of a transaction, or not one whole batch.
    """
    if not data or len(data) <= _MAGIC:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "there is no record batch")
    if data[_MAGIC] != 2:
        code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        raise RecordsRefused(code, f"message format {data[_MAGIC]}; an embedded broker stores format 2 alone")
    if len(data) < _HEADER.size:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, "the record batch ends within its header")
    _, length, _, _, checksum, attributes, last, _, max_timestamp, _, _, _, count = _HEADER.unpack_from(data)
    if length + 12 != len(data):
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"one batch of {length + 12} bytes in {len(data)} bytes")
    if crc32c.crc32c(data[_CHECKSUM_ENDS:]) != checksum:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the record batch is wrong")
    if count < 1 or last != count - 1:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"{count} records with a last offset delta of {last}")
    if attributes & _TRANSACTIONAL_OR_CONTROL:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "an embedded broker has no transactions")
    return Batch(0, count, -1, max_timestamp, data)


class RecordLog:
    """Batches in the order of their offsets; the oldest go once there are more bytes than the limit.

    The newest batch stays whatever its size. The caller serialises calls.

    Args:
        most_bytes: The limit in bytes.

    Attributes:
        start_offset: The offset of the first record that is left.
        end_offset: The offset of the next record.
        high_watermark: The offset below which consumers read.
        size: Bytes held.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._batches: deque[Batch] = deque()
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.size = 0

    def append(self, batch: Batch) -> None:
        """Append a batch whose base offset is the end offset."""
        if batch.base_offset != self.end_offset:
            raise ValueError(f"a batch at offset {batch.base_offset}, where the log ends at {self.end_offset}")
        self._batches.append(batch)
        self.size += len(batch.data)
        self.end_offset = batch.next_offset
        while self.size > self._most_bytes and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self.size -= len(oldest.data)
            self.start_offset = oldest.next_offset
        self.high_watermark = max(self.high_watermark, self.start_offset)

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark, to the end offset at most; it is never lowered."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))

    def read(self, offset: int, most_bytes: int, before: int) -> list[Batch]:
        """Return the batches from the one that holds ``offset``, below the offset ``before``; at least one if any."""
        batches = list(self._batches)
        first = max(bisect_right(batches, offset, key=lambda batch: batch.base_offset) - 1, 0)
        found: list[Batch] = []
        for batch in batches[first:]:
            if batch.next_offset > before or (found and len(batch.data) > most_bytes):
                break
            if batch.next_offset > offset:
                found.append(batch)
                most_bytes -= len(batch.data)
        return found

    def find_time(self, timestamp: int, before: int) -> Batch | None:
        """Return the first batch below ``before`` that has a record of this time in ms or later."""
        return next((b for b in self._batches if b.max_timestamp >= timestamp and b.next_offset <= before), None)

    def follow(self, leader: RecordLog) -> None:
        """Become a copy of the leader's log: drop what the leader does not have, append what is missing."""
        missing: list[Batch] = []
        for batch in reversed(leader._batches):
            while self._batches and self._batches[-1].next_offset > batch.next_offset:
                self._drop_newest()
            if self._batches and self._batches[-1] is batch:
                break
            missing.append(batch)
        else:
            if not self._batches or self.end_offset != leader.start_offset:
                self._batches.clear()
                self.size = 0
                self.start_offset = self.end_offset = leader.start_offset
        self.high_watermark = min(self.high_watermark, self.end_offset)
        for batch in reversed(missing):
            self.append(batch)
        self.advance(leader.high_watermark)

    def _drop_newest(self) -> None:
        dropped = self._batches.pop()
        self.size -= len(dropped.data)
        self.end_offset = dropped.base_offset
