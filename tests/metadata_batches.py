"""Writes record batches as a controller does, for tests of the metadata log."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from kproto.metadata_log.records import MetadataRecord, UnknownRecord, encode_record

if TYPE_CHECKING:
    from collections.abc import Sequence


def batch_of(*records: MetadataRecord | UnknownRecord, base_offset: int = 0, epoch: int = 1) -> bytes:
    """A batch of metadata records."""
    return write_batch([(None, encode_record(record)) for record in records], base_offset=base_offset, epoch=epoch)


def write_batch(
    values: Sequence[tuple[bytes | None, bytes | None]],
    *,
    base_offset: int = 0,
    epoch: int = 1,
    time_ms: int = 1_800_000_000_000,
    control: bool = False,
) -> bytes:
    """Write a batch of records that are all of one time, uncompressed, as a controller does.

    Args:
        values: Key and value of each record.
        base_offset: The offset of the first.
        epoch: The epoch of the quorum.
        time_ms: When it was written, ms since 1970.
        control: Whether they are control records.
    """
    records = bytearray()
    for number, (key, value) in enumerate(values):
        body = bytearray(b"\x00")  # attributes
        body += _zigzag(0) + _zigzag(number)
        for part in (key, value):
            body += _zigzag(-1) if part is None else _zigzag(len(part)) + part
        body += _zigzag(0)
        records += _zigzag(len(body)) + body
    last = len(values) - 1
    attributes = 0x20 if control else 0
    after_crc = Struct(">hiqqqhii").pack(attributes, last, time_ms, time_ms, -1, -1, -1, len(values)) + records
    length = 49 + len(records)
    return Struct(">qiibI").pack(base_offset, length, epoch, 2, crc32c(bytes(after_crc))) + after_crc


def _zigzag(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
