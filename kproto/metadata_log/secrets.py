"""Hides secrets in metadata records: credentials, delegation tokens, and configurations whose names say so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kproto.errors import ConfigurationError, DecodeError
from kproto.metadata_log.batches import rewritten
from kproto.metadata_log.records import (
    ConfigRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)

if TYPE_CHECKING:
    from kproto.metadata_log.batches import RecordBatch
    from kproto.metadata_log.records import MetadataRecord, UnknownRecord

HIDDEN: Final = "(hidden)"

_SECRET: Final = re.compile(
    r"password|passwd|secret|jaas|credential|token|ssl\.keystore\.(key|certificate)|ssl\.truststore\.certificates"
    r"|(access|private|api)[._-]?key",
    re.I,
)
_BYTES: Final = b""


def is_secret_config(name: str) -> bool:
    """Whether a configuration's name says that it holds a secret: a password, a key, JAAS, and the like."""
    return _SECRET.search(name) is not None


def without_secrets(record: MetadataRecord | UnknownRecord) -> MetadataRecord | UnknownRecord:
    """Return the record, or a copy of it without its secret fields."""
    if isinstance(record, ConfigRecord):
        if record.value and is_secret_config(record.name):
            return record.replace(value=HIDDEN, version=record.version)
    elif isinstance(record, UserScramCredentialRecord):
        return record.replace(salt=_BYTES, stored_key=_BYTES, server_key=_BYTES, version=record.version)
    elif isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return record.replace(token_id=HIDDEN, version=record.version)
    return record


def stored_bytes(batch: RecordBatch) -> bytes:
    """Return the bytes of a batch without secrets: as they are if it has none, else with its records written anew."""
    if batch.is_control:
        return batch.data
    values: list[tuple[bytes | None, bytes | None]] = []
    hides = False
    try:
        for entry in batch.entries():
            value = entry.value or b""
            try:
                record = decode_record(value)
                shown = without_secrets(record)
                if shown is not record:
                    value, hides = encode_record(shown), True
            except DecodeError:
                pass  # it comes with the same reason when it is read again
            values.append((entry.key, value))
    except (DecodeError, ConfigurationError):
        return batch.data
    return rewritten(batch, values) if hides else batch.data
