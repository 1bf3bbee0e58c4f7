"""Record batches (format v2), as a log's files and the answers to Fetch hold them.

A batch has a header of 61 bytes, with a CRC32C over all that follows its place, and then its records. ``batches_in``
takes bytes from disk or wire: a length is checked against the bytes that are there before anything is made of it, a
batch whose CRC is wrong is passed over and named, and a compressed one is unpacked up to ``UNPACKED_MOST`` bytes.
Kafka's controllers do not compress the metadata log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from gzip import GzipFile
from io import BytesIO
from struct import Struct as Packed
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from kproto.errors import ConfigurationError, DecodeError, Malformed
from kproto.extras import install_command
from kproto.metadata_log.records import (
    MetadataRecord,
    UnknownRecord,
    decode_control_record,
    decode_record,
    varint,
    varint_bytes,
)

HEADER_BYTES: Final = 61
UNPACKED_MOST: Final = 16 << 20
"""The most bytes that a compressed batch is unpacked to. Kafka's own limit for a batch of metadata is 8 MiB."""

_HEADER: Final = Packed(">qiibIhiqqqhii")
_BEGIN: Final = Packed(">qii").unpack_from
_BEFORE_CRC: Final = Packed(">qiibI").pack
_AFTER_CRC: Final = Packed(">hiqqqhii").pack
_OVERHEAD: Final = 12
"""Bytes of the base offset and the length, which the length does not count."""
_CRC: Final = slice(17, 21)
_CRC_FROM: Final = 21
_LAST_DELTA: Final = slice(23, 27)
_LARGEST_OFFSET: Final = (1 << 63) - 1
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"
_NULL: Final = 1
"""The length of null, -1, as a varint."""
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\0"
_SNAPPY_HEADER: Final = 16


class RawRecord(NamedTuple):
    """One record of a batch.

    Attributes:
        offset: Its offset in the log.
        time_ms: When it was written, by the clock of the leader, in ms since 1970.
        key, value: Its bytes, None for null.
    """

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class LogRecord(NamedTuple):
    """A record of the log, or of a snapshot.

    Attributes:
        offset: Its offset; in a snapshot, its place there.
        time_ms: When it was written, ms since 1970, by the clock of the leader.
        epoch: The epoch of the quorum; of a snapshot, that of the last record it holds.
        is_control: Whether the quorum wrote it for itself.
        record: The record; None: it cannot be read, and ``error`` says why.
    """

    offset: int
    time_ms: int
    epoch: int
    is_control: bool
    record: MetadataRecord | UnknownRecord | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The header of a batch, and its bytes.

    Attributes:
        base_offset, last_offset: The offsets of its first and last record.
        epoch: The epoch of the quorum whose leader wrote it.
        time_ms: The time of its newest record.
        is_control: Whether it holds control records.
        count: The number of its records.
        data: All its bytes, header included.
    """

    base_offset: int
    last_offset: int
    epoch: int
    time_ms: int
    is_control: bool
    count: int
    data: bytes

    @property
    def end_offset(self) -> int:
        """The first offset after it."""
        return self.last_offset + 1

    @property
    def crc(self) -> bytes:
        """The CRC of the batch as it was written."""
        return self.data[_CRC]

    def entries(self) -> Iterator[RawRecord]:
        """Yield the records.

        Raises:
            DecodeError: They cannot be read, or unpack to too much.
            ConfigurationError: They are compressed in a way that needs a package which is not installed.
        """
        (base, _length, _epoch, _magic, _crc, attributes, last, base_time, max_time, *_producer, count) = (
            _HEADER.unpack_from(self.data)
        )
        codec = attributes & _COMPRESSION
        records = _unpack(codec, self.data[HEADER_BYTES:]) if codec else self.data[HEADER_BYTES:]
        if not 0 <= count <= len(records):
            raise Malformed(f"a batch of {count} records in {len(records)} bytes", 57)
        fixed_time = max_time if attributes & _LOG_APPEND_TIME else None
        at = 0
        try:
            for _ in range(count):  # varints of one byte are read here, without a call: nearly all are
                length = records[at]
                if length < 0x80:
                    length, at = (length >> 1) ^ -(length & 1), at + 1
                else:
                    length, at = _signed(records, at)
                end = at + length
                if length < 0 or end > len(records):
                    raise Malformed(f"a record of {length} bytes, {len(records) - at} are left", HEADER_BYTES + at)
                time_delta = records[at + 1]
                if time_delta < 0x80:
                    time_delta, at = (time_delta >> 1) ^ -(time_delta & 1), at + 2
                else:
                    time_delta, at = _signed(records, at + 1)
                offset_delta, at = _signed(records, at)
                if not 0 <= offset_delta <= last:
                    raise Malformed(f"a record {offset_delta} beyond a batch of {last + 1} offsets", HEADER_BYTES + at)
                if records[at] == _NULL:
                    key, at = None, at + 1
                else:
                    key, at = _bytes(records, at, end)
                value, at = _bytes(records, at, end)
                at = end  # headers: metadata records have none
                yield RawRecord(
                    base + offset_delta, base_time + time_delta if fixed_time is None else fixed_time, key, value
                )
        except IndexError:
            raise Malformed("a record that ends early", HEADER_BYTES + at) from None

    def records(self) -> Iterator[LogRecord]:
        """Yield the records; one that cannot be read comes with the reason, and the others are read."""
        try:
            for entry in self.entries():
                record: MetadataRecord | UnknownRecord | None = None
                error = ""
                try:
                    if self.is_control:
                        record = decode_control_record(entry.key or b"", entry.value or b"")
                    else:
                        record = decode_record(entry.value or b"")
                except DecodeError as e:
                    error = str(e)
                yield LogRecord(entry.offset, entry.time_ms, self.epoch, self.is_control, record, error)
        except (DecodeError, ConfigurationError) as e:
            yield LogRecord(self.base_offset, self.time_ms, self.epoch, self.is_control, None, str(e))


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece of a log that holds no batch.

    Attributes:
        at: Where it begins, in bytes.
        size: Its bytes.
        reason: What is wrong, in one line.
        is_end: Whether it is a batch that the end of the bytes cuts, as in a file copied while it was written.
    """

    at: int
    size: int
    reason: str
    is_end: bool = False


def batches_in(data: bytes, *, partial_end: bool = False) -> Iterator[RecordBatch | Fault]:
    """Yield the batches of a log's bytes, and what lies between them that is none, in order.

    After damage the next batch is looked for: its CRC must hold. The CRCs computed in that search cover at most four
    times the bytes given.

    Args:
        data: A log file's bytes, or the records of an answer to Fetch.
        partial_end: Whether the last batch may be cut without being a fault, as brokers cut answers to Fetch.
    """
    at, size = 0, len(data)
    budget = 4 * size
    while at < size:
        found = _batch_at(data, at)
        if isinstance(found, RecordBatch):
            yield found
            at += len(found.data)
            continue
        next_at, budget = _next_batch(data, at + 1, budget)
        is_end = found.is_end and next_at >= size
        if data[at] == 0 and data.count(0, at, next_at) == next_at - at:
            if next_at < size:  # else space that was reserved for the file and never written
                yield Fault(at, next_at - at, f"{next_at - at:,} bytes of zeros")
        elif not (is_end and partial_end):
            yield Fault(at, next_at - at, found.reason, is_end)
        at = next_at


def _next_batch(data: bytes, at: int, budget: int) -> tuple[int, int]:
    """Find the next whole batch, or the end; also return what is left of the bytes that may be examined for that."""
    while budget > 0:
        at = data.find(_MAGIC, at + _MAGIC_AT) - _MAGIC_AT
        if at < 0 or at + HEADER_BYTES > len(data):
            break
        budget -= HEADER_BYTES
        if _is_plausible(data, at):
            budget -= int.from_bytes(data[at + 8 : at + 12], "big")
            if isinstance(_batch_at(data, at), RecordBatch):
                return at, budget
        at += 1
    return len(data), budget


def _is_plausible(data: bytes, at: int) -> bool:
    """Whether a header could begin here: its length fits, and its epoch and offsets are no nonsense."""
    base: int
    base, length, epoch = _BEGIN(data, at)
    return base >= 0 and epoch >= 0 and HEADER_BYTES - _OVERHEAD <= length <= len(data) - at - _OVERHEAD


def _batch_at(data: bytes, at: int) -> RecordBatch | Fault:
    left = len(data) - at
    if left < HEADER_BYTES:
        return Fault(at, left, f"a batch that is cut after {left} bytes", is_end=True)
    base, length, epoch, magic, crc, attributes, last, _base_time, max_time, _id, _pe, _sequence, count = (
        _HEADER.unpack_from(data, at)
    )
    if magic != _MAGIC[0]:
        return Fault(at, left, f"no batch of format 2 (the format byte is {magic})")
    if length < HEADER_BYTES - _OVERHEAD or base < 0 or last < 0 or base + last > _LARGEST_OFFSET:
        return Fault(at, left, f"a batch of {length} bytes at offset {base}")
    if length > left - _OVERHEAD:
        return Fault(at, left, f"a batch of {length + _OVERHEAD:,} bytes of which {left:,} are there", is_end=True)
    whole = data[at : at + _OVERHEAD + length]
    if crc32c(memoryview(whole)[_CRC_FROM:]) != crc:
        return Fault(at, len(whole), f"the batch at offset {base} does not match its CRC")
    return RecordBatch(base, base + last, epoch, max_time, bool(attributes & _CONTROL), count, whole)


def stored_batch(data: bytes) -> RecordBatch:
    """Return the batch of bytes that ``kproto.metadata_log.secrets.stored_bytes`` made, whose CRC it does not check.

    Raises:
        Malformed: They hold no header.
    """
    if len(data) < HEADER_BYTES:
        raise Malformed(f"a batch of {len(data)} bytes", 0)
    base, _length, epoch, _magic, _crc, attributes, last, _base_time, max_time, *_producer, count = _HEADER.unpack_from(
        data
    )
    return RecordBatch(base, base + last, epoch, max_time, bool(attributes & _CONTROL), count, data)


def rewritten(batch: RecordBatch, values: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
    """Write a batch with other records of its time; offsets and CRC stay, so that it is known as the same one."""
    data = bytearray(
        encode_batch(
            values, base_offset=batch.base_offset, epoch=batch.epoch, time_ms=batch.time_ms, control=batch.is_control
        )
    )
    for kept in (_CRC, _LAST_DELTA):
        data[kept] = batch.data[kept]
    return bytes(data)


def encode_batch(
    values: Sequence[tuple[bytes | None, bytes | None]],
    *,
    base_offset: int = 0,
    epoch: int = 1,
    time_ms: int = 1_800_000_000_000,
    control: bool = False,
) -> bytes:
    """Write a batch of records of one time, uncompressed, as a controller does.

    Args:
        values: Key and value of each record.
        base_offset: The offset of the first.
        epoch: The epoch of the quorum.
        time_ms: When it was written, ms since 1970.
        control: Whether they are control records.
    """
    records = bytearray()
    for number, (key, value) in enumerate(values):
        body = bytearray(b"\x00\x00")  # attributes; the time is the batch's
        body += _signed_bytes(number)
        for part in (key, value):
            body += _signed_bytes(-1) if part is None else _signed_bytes(len(part)) + part
        body += b"\x00"  # headers
        records += _signed_bytes(len(body)) + body
    after_crc = (
        _AFTER_CRC(_CONTROL if control else 0, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values)) + records
    )
    length = HEADER_BYTES - _OVERHEAD + len(records)
    return _BEFORE_CRC(base_offset, length, epoch, _MAGIC[0], crc32c(after_crc)) + after_crc


def _signed_bytes(value: int) -> bytes:
    """Write a zigzag varint."""
    return varint_bytes((value << 1) ^ (value >> 63))


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint; also return the place after it.

    Raises:
        DecodeError: It has more than ten bytes.
        IndexError: The bytes end.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise Malformed("a varint of more than ten bytes", HEADER_BYTES + at)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _signed(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise Malformed(f"a field of {length} bytes, {end - at} are left", HEADER_BYTES + at)
    return data[at : at + length], at + length


def _unpack(codec: int, packed: bytes) -> bytes:
    unpack = _UNPACKERS.get(codec)
    if unpack is None:
        raise ConfigurationError(f"a batch is compressed with method {codec}, which Kafka 4.1 does not have")
    return unpack(packed)


def _too_much() -> Malformed:
    return Malformed(f"a batch that unpacks to more than {UNPACKED_MOST:,} bytes", HEADER_BYTES)


def _read_most(kind: str, opened: Callable[[], Any], *errors: type[Exception]) -> bytes:
    """Read what a batch unpacks to from a stream that is opened here, no more than ``UNPACKED_MOST`` bytes."""
    try:
        with opened() as stream:
            data: bytes = stream.read(UNPACKED_MOST + 1)
    except errors as e:
        raise Malformed(f"{kind} batch that cannot be unpacked ({e})", HEADER_BYTES) from None
    if len(data) > UNPACKED_MOST:
        raise _too_much()
    return data


def _gunzip(packed: bytes) -> bytes:
    return _read_most("a gzip", lambda: GzipFile(fileobj=BytesIO(packed)), OSError, EOFError, zlib.error)


def _arrow(codec: str) -> Any:
    """Return pyarrow, whose codecs read snappy and LZ4."""
    try:
        import pyarrow
    except ImportError:
        raise _missing(codec, "pyarrow", "tables") from None
    return pyarrow


def _missing(codec: str, package: str, extra: str) -> ConfigurationError:
    return ConfigurationError(
        f"a batch is compressed with {codec}, for which the {package} package is missing; {install_command(extra)}"
    )


def _unsnap(packed: bytes) -> bytes:
    """Unpack snappy: the blocks that Java's library frames, or one bare block, as librdkafka writes."""
    pa = _arrow("snappy")
    unpack = pa.Codec("snappy").decompress
    blocks: list[bytes] = []
    total = at = 0
    while at < len(packed):
        if packed.startswith(_SNAPPY_MAGIC, at):
            at += _SNAPPY_HEADER
            continue
        size = len(packed)
        if blocks or at:
            size = int.from_bytes(packed[at : at + 4], "big")
            at += 4
        block = packed[at : at + size]
        at += size
        if at > len(packed):
            raise Malformed("a snappy batch that is cut", HEADER_BYTES)
        try:
            length, _end = varint(block, 0)
            total += length
            if total <= UNPACKED_MOST:
                blocks.append(unpack(block, length, asbytes=True) if length else b"")
        except (OSError, pa.ArrowInvalid, Malformed) as e:
            raise Malformed(f"a snappy batch that cannot be unpacked ({e})", HEADER_BYTES) from None
        if total > UNPACKED_MOST:
            raise _too_much()
    return b"".join(blocks)


def _unlz4(packed: bytes) -> bytes:
    pa = _arrow("lz4")
    return _read_most(
        "an lz4", lambda: pa.CompressedInputStream(pa.BufferReader(packed), "lz4"), OSError, pa.ArrowInvalid
    )


def _unzstd(packed: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise _missing("zstd", "zstandard", "zstd") from None
    engine = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    return _read_most("a zstd", lambda: engine.stream_reader(packed), zstandard.ZstdError)


_UNPACKERS: Final[dict[int, Callable[[bytes], bytes]]] = {1: _gunzip, 2: _unsnap, 3: _unlz4, 4: _unzstd}
