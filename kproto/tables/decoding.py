"""Bodies -> what they say: each is decoded once, into columns."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.errors import DecodeError, UnsupportedVersion
from kproto.tables.batches import BATCH_BYTES, RowBuffer, plain_text
from kproto.tables.columns import BodyColumns
from kproto.tables.schemas import DECODED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.tables.columns import Endpoint

__all__ = ["decode", "part"]

_HEAD_BYTES: Final = 64


def decode(
    batches: Iterable[pa.RecordBatch],
    *,
    on_body: Callable[[int], object] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Decode bodies, each exactly once.

    A body that cannot be decoded has its ``head`` row too, with a ``decode_error``, and no other.

    Args:
        batches: Of the schema ``BODIES``.
        on_body: Told the number of bodies decoded (1) after each; counts work done, for instance in an accumulator.
        batch_bytes: About how large a batch becomes.

    Yields:
        Batches of the schema ``DECODED``.
    """
    out = _Decoded(batch_bytes)
    for batch in batches:
        columns = (batch.column(name) for name in ("body_id", "api_key", "api_version", "direction", "payload"))
        for body_id, api_key, version, direction, payload in zip(*columns, strict=True):
            out.add(body_id.as_py(), api_key.as_py(), version.as_py(), direction.as_py(), payload.as_buffer())
            if on_body is not None:
                on_body(1)
            if out.full:
                yield from out.take()
    yield from out.take()


def part(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """One kind of row out of ``decode``'s: ``head``, ``state``, ``error`` or ``broker``, as columns behind ``body_id``.

    ``part(..., "state")`` is the table ``partition_states``.
    """
    for batch in batches:
        rows = batch.filter(batch.column(name).is_valid())
        if rows.num_rows:
            struct = rows.column(name)
            names = [field.name for field in struct.type]
            yield pa.RecordBatch.from_arrays([rows.column("body_id"), *struct.flatten()], names=["body_id", *names])


class _Decoded:
    """What was decoded since the last batch."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._columns: dict[tuple[int, str], BodyColumns] = {}
        self._heads = RowBuffer(_rows_of("head"), limit)
        self._brokers = RowBuffer(_rows_of("broker"), limit)
        self._known_brokers: set[bytes] = set()

    def add(self, body_id: bytes, api_key: int, version: int, direction: str, payload: Any) -> None:
        columns = self._columns.get((api_key, direction))
        if columns is None:
            columns = self._columns[api_key, direction] = BodyColumns(api_key, direction)
        try:
            brokers = columns.append(body_id, version, payload)
        except (DecodeError, UnsupportedVersion) as e:
            self._heads.add((body_id, {"decode_error": plain_text(str(e))}), _HEAD_BYTES)
            return
        if brokers:
            columns.name_brokers(self._add_brokers(body_id, brokers))

    def _add_brokers(self, body_id: bytes, brokers: list[Endpoint]) -> bytes:
        """A set of live brokers stands in a thousand bodies: it is given with the first, and named by the others."""
        brokers_id = blake2b(repr(brokers).encode("utf-8", "replace"), digest_size=16).digest()
        if brokers_id not in self._known_brokers:
            self._known_brokers.add(brokers_id)
            for broker_id, host, port in brokers:
                where = {"host": plain_text(host), "port": port}
                self._brokers.add((body_id, {"brokers_id": brokers_id, "broker_id": broker_id, **where}), _HEAD_BYTES)
        return brokers_id

    @property
    def full(self) -> bool:
        # Rows take about twice what their bodies do, more with long names; ``take`` cuts what has become too large.
        return self._heads.full or self._brokers.full or sum(c.size for c in self._columns.values()) >= self._limit // 2

    def take(self) -> Iterator[pa.RecordBatch]:
        for columns in self._columns.values():
            heads, pieces = columns.take(self._limit)
            for body_id, head in heads:
                self._heads.add((body_id, head), _HEAD_BYTES)
            for body_ids, values in pieces:
                yield _decoded(body_ids, columns.part, values)
        for name, buffer in (("head", self._heads), ("broker", self._brokers)):
            for batch in buffer.take():
                yield _decoded(batch.column(0), name, batch.column(1))


def _rows_of(name: str) -> pa.Schema:
    return pa.schema([DECODED.field("body_id"), DECODED.field(name)])


def _decoded(body_ids: pa.Array, name: str, values: pa.Array) -> pa.RecordBatch:
    arrays = [
        body_ids if f.name == "body_id" else values if f.name == name else pa.nulls(len(body_ids), f.type)
        for f in DECODED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=DECODED)
