"""Decodes bodies of one API and direction into the columns of their partitions, straight from the codec."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.columns import ColumnsBuilder
from kproto.logs.reading import UNKNOWN, UNKNOWN_IDS
from kproto.tables.arrays import RowBuffer, plain_text, slices, with_column
from kproto.tables.schemas import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture.model import Direction
    from kproto.types import Buffer

ROW_BYTES: Final = 64
"""Estimated bytes of a body's head, or of a broker's listener."""

_REMEMBERED: Final = 1000
"""The most sets of live brokers whose bytes are kept: the same set stands in almost every UpdateMetadata."""


class BodyColumns:
    """Bodies appended since the last ``take``.

    Args:
        api_key, direction: Of the bodies.
        brokers: Takes the live brokers that bodies name, each set of them once.
        with_rows: Whether to keep the rows of requests' partitions; else their heads alone.

    Attributes:
        size: The bytes of the bodies whose rows are kept.
        part: Their kind of rows in ``PARTS``: ``state`` for requests, ``error`` for responses.
    """

    def __init__(self, api_key: int, direction: Direction, brokers: RowBuffer, *, with_rows: bool = True) -> None:
        self._api_key = api_key
        self._builder = ColumnsBuilder(api_key, direction)
        self._heads: list[tuple[bytes, dict[str, Any]]] = []
        self._with_rows = with_rows or direction == "response"
        self._name_brokers = api_key == ApiKey.UPDATE_METADATA and direction == "request"
        self._brokers = brokers
        self._known_brokers: dict[bytes, bytes] = {}  # the names of sets by their bytes
        self._given_brokers: set[bytes] = set()
        self.part = "state" if direction == "request" else "error"
        self.size: int = 0

    def append(self, body_id: bytes, version: int, data: Buffer) -> None:
        """Decode one body.

        Raises:
            DecodeError: The bytes are no such message; nothing of them is kept.
            UnsupportedVersion: The API has no such version.
        """
        builder = self._builder
        rows = builder.append(version, data)
        message = builder.message
        head: dict[str, Any]
        if self.part == "error":
            head = {"error_code": message.error_code}
        else:
            head = {
                "controller_id": message.controller_id,
                "controller_epoch": message.controller_epoch,
                "is_kraft_controller": message.is_kraft_controller,
                "type": getattr(message, "type", 0),  # StopReplica has none
                "n_topics": builder.topic_count,
                "n_partitions": rows,
            }
            if self._api_key == ApiKey.LEADER_AND_ISR and rows:
                head["common_replicas"] = builder.common_replicas
        self._heads.append((body_id, head))
        if self._with_rows:
            self.size += memoryview(data).nbytes
        else:
            builder.drop_last()
        if self._name_brokers:
            head["brokers_id"] = self._brokers_id(version, message)

    def _brokers_id(self, version: int, message: Any) -> bytes | None:
        """Return the name of the set of live brokers, None of no broker; give a new set's listeners in order."""
        unread = getattr(message, "_unread_brokers", None)  # the reference has read them
        wire = None if unread is None else b"%d:%b" % (version, unread)
        brokers_id = self._known_brokers.get(wire) if wire is not None else None
        if brokers_id is not None:
            return brokers_id
        brokers = sorted(
            (broker, e.host, e.port, e.listener) for broker, ends, _rack in message.broker_endpoints for e in ends
        )
        if not brokers:
            return None
        brokers_id = blake2b(repr(brokers).encode("utf-8", "replace"), digest_size=16).digest()
        if wire is not None:
            if len(self._known_brokers) >= _REMEMBERED:
                self._known_brokers.clear()
            self._known_brokers[wire] = brokers_id
        if brokers_id not in self._given_brokers:
            self._given_brokers.add(brokers_id)
            for broker, host, port, listener in brokers:
                self._brokers.add((brokers_id, broker, plain_text(host), port, plain_text(listener)), ROW_BYTES)
        return brokers_id

    def take(self, limit: int) -> tuple[list[tuple[bytes, dict[str, Any]]], Iterator[pa.RecordBatch]]:
        """Return the bodies' heads, and their rows by the schemas of ``PARTS``, in batches of about ``limit``."""
        heads, self._heads = self._heads, []
        self.size = 0
        if not self._with_rows:
            return heads, iter(())
        rows = pa.record_batch(self._builder.finish())
        if self.part == "error":
            rows = rows.filter(pc.not_equal(rows.column("error_code"), 0))
            _count(heads, "n_partition_errors", rows.column("frame"))
        ids = pa.array([body_id for body_id, _ in heads], pa.binary())
        pieces = slices(rows, _plain_size(rows), limit)
        return heads, (self._batch(piece, ids) for piece in pieces)

    def _batch(self, rows: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
        schema = PARTS[self.part]
        arrays = []
        for field in schema:
            if field.name == "body_id":
                arrays.append(ids.take(rows.column("frame")))
            elif field.name == "api_key":
                arrays.append(pa.repeat(pa.scalar(self._api_key, field.type), rows.num_rows))
            elif field.name in rows.schema.names:
                arrays.append(_plain(rows.column(field.name), field.type))
            else:
                arrays.append(pa.nulls(rows.num_rows, field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return _told(batch) if self.part == "state" and self._api_key != ApiKey.STOP_REPLICA else batch


def _told(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Put null where a log did not tell a value, see ``kproto.logs.state_lines``."""
    for name in ("isr", "replicas"):
        column = rows.column(name)
        values = column.flatten()
        if not len(values) or pc.min(values).as_py() != UNKNOWN:
            continue
        marked = pc.if_else(pc.equal(pc.list_value_length(column), len(UNKNOWN_IDS)), column, None)
        unknown = pa.repeat(pa.scalar(True), len(column))
        for place, mark in enumerate(UNKNOWN_IDS):
            unknown = pc.and_(unknown, pc.fill_null(pc.equal(pc.list_element(marked, place), mark), False))
        rows = with_column(rows, name, pc.if_else(unknown, None, column))
        if name == "replicas":
            epochs = rows.column("partition_epoch")
            rows = with_column(
                rows, "partition_epoch", pc.if_else(pc.and_(unknown, pc.equal(epochs, UNKNOWN)), None, epochs)
            )
    return rows


def _plain(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert a column of the codec for Spark: no dictionaries, no fixed sizes, list items called ``element``."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == wanted else column.cast(wanted)


def _plain_size(rows: pa.RecordBatch) -> int:
    """Estimate the bytes of rows when each has its topic's name in full."""
    topics = rows.column("topic")
    lengths = pc.binary_length(topics.dictionary).take(topics.indices)
    return int(pc.sum(lengths).as_py() or 0) + int(rows.nbytes) + 24 * int(rows.num_rows)


def _count(heads: list[tuple[bytes, dict[str, Any]]], name: str, frames: pa.Array) -> None:
    """Put into each head how often its frame occurs."""
    for _body_id, head in heads:
        head[name] = 0
    for found in pc.value_counts(frames).to_pylist():
        heads[found["values"]][1][name] = found["counts"]
