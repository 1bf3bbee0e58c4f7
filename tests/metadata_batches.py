"""Writes batches of metadata records, for tests of the metadata log."""

from kproto.metadata_log.batches import encode_batch
from kproto.metadata_log.records import MetadataRecord, UnknownRecord, encode_record


def batch_of(*records: MetadataRecord | UnknownRecord, base_offset: int = 0, epoch: int = 1) -> bytes:
    """A batch of metadata records."""
    return encode_batch([(None, encode_record(record)) for record in records], base_offset=base_offset, epoch=epoch)
