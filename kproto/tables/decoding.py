"""Decodes bodies into columns of their partitions, each body once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproto.errors import DecodeError, UnsupportedVersion
from kproto.tables.arrays import BATCH_BYTES, RowBuffer, plain_text
from kproto.tables.columns import ROW_BYTES, BodyColumns
from kproto.tables.schemas import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from kproto.capture.model import Direction

_HEAD_NAMES: Final = PARTS["head"].names[1:]


def decode(
    batches: Iterable[pa.RecordBatch],
    *,
    states: bool = True,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Decode bodies, each exactly once.

    A body that cannot be decoded has its ``head`` row too, with a ``decode_error``, and no other.

    Args:
        batches: Rows with the columns of the schema ``BODIES``, as ``scan`` gives them. Rows without a payload are
            passed over.
        states: Whether to give rows of the kind ``state``.
        batch_bytes: About how large a batch becomes.

    Yields:
        A kind of rows, one of ``PARTS``, and a batch of its schema. ``state`` makes the table ``partition_states``.
    """
    out = _Decoded(batch_bytes, states=states)
    for batch in batches:
        facts = [batch.column(name).to_pylist() for name in ("body_id", "api_key", "api_version", "direction")]
        payloads = (payload.as_buffer() for payload in batch.column("payload"))  # without copying them
        for body_id, api_key, version, direction, payload in zip(*facts, payloads, strict=True):
            if payload is None:
                continue
            out.add(body_id, api_key, version, direction, payload)
            if out.full:
                yield from out.take()
    yield from out.take()


class _Decoded:
    """The rows decoded since the last batch."""

    def __init__(self, limit: int, *, states: bool) -> None:
        self._limit = limit
        self._states = states
        self._columns: dict[tuple[int, Direction], BodyColumns] = {}
        self._heads = RowBuffer(PARTS["head"], limit)
        self._brokers = RowBuffer(PARTS["broker"], limit)

    def add(self, body_id: bytes, api_key: int, version: int, direction: Direction, payload: Any) -> None:
        columns = self._columns.get((api_key, direction))
        if columns is None:
            columns = BodyColumns(api_key, direction, self._brokers, with_rows=self._states)
            self._columns[api_key, direction] = columns
        try:
            columns.append(body_id, version, payload)
        except (DecodeError, UnsupportedVersion) as e:
            self._add_head(body_id, {"decode_error": plain_text(str(e))})

    def _add_head(self, body_id: bytes, head: dict[str, Any]) -> None:
        self._heads.add((body_id, *map(head.get, _HEAD_NAMES)), ROW_BYTES)

    @property
    def full(self) -> bool:
        # Rows take about twice the bytes of their bodies, more with long names; ``take`` cuts larger batches.
        size = 0
        for columns in self._columns.values():
            size += columns.size
        return size >= self._limit // 2 or self._heads.full or self._brokers.full

    def take(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for columns in self._columns.values():
            heads, pieces = columns.take(self._limit)
            for body_id, head in heads:
                self._add_head(body_id, head)
            for piece in pieces:
                if piece.num_rows:
                    yield columns.part, piece
        for name, buffer in (("head", self._heads), ("broker", self._brokers)):
            for batch in buffer.take():
                yield name, batch
