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
    every: dict[tuple[int, Direction], BodyColumns] = {}
    heads, brokers = RowBuffer(PARTS["head"], batch_bytes), RowBuffer(PARTS["broker"], batch_bytes)

    def add_head(body_id: bytes, head: dict[str, Any]) -> None:
        heads.add((body_id, *map(head.get, _HEAD_NAMES)), ROW_BYTES)

    def take() -> Iterator[tuple[str, pa.RecordBatch]]:
        for columns in every.values():
            of_bodies, pieces = columns.take(batch_bytes)
            for of_body in of_bodies:
                add_head(*of_body)
            yield from ((columns.part, piece) for piece in pieces if piece.num_rows)
        for name, buffer in (("head", heads), ("broker", brokers)):
            yield from ((name, rows) for rows in buffer.take())

    for batch in batches:
        facts = [batch.column(name).to_pylist() for name in ("body_id", "api_key", "api_version", "direction")]
        payloads = (payload.as_buffer() for payload in batch.column("payload"))  # without copying them
        for body_id, api_key, version, direction, payload in zip(*facts, payloads, strict=True):
            if payload is None:
                continue
            columns = every.get((api_key, direction))
            if columns is None:
                columns = every[api_key, direction] = BodyColumns(api_key, direction, brokers, with_rows=states)
            try:
                columns.append(body_id, version, payload)
            except (DecodeError, UnsupportedVersion) as e:
                add_head(body_id, {"decode_error": plain_text(str(e))})
            # Rows take about twice the bytes of their bodies, more with long names; ``take`` cuts larger batches.
            size = 0
            for columns in every.values():
                size += columns.size
            if size >= batch_bytes // 2 or heads.full or brokers.full:
                yield from take()
    yield from take()
