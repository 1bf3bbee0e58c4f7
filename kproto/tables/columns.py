"""Decodes bodies of one API and direction into the columns of their partitions, straight from the codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.columns import ColumnsBuilder
from kproto.tables.batches import slices
from kproto.tables.schemas import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.types import Buffer

__all__ = ["BodyColumns", "Endpoint"]

Endpoint = tuple[int, str, int]
"""A broker's id, and the host and port of one of its listeners."""

_NAMES: Final = {"offline": "offline_replicas", "adding": "adding_replicas", "removing": "removing_replicas"}
"""Maps our column names to the protocol's longer names, which the codec uses."""


class BodyColumns:
    """Bodies appended since the last ``take``.

    Attributes:
        size: Their bytes.
        part: Their kind of rows in ``PARTS``: ``state`` for requests, ``error`` for responses.
    """

    def __init__(self, api_key: int, direction: str) -> None:
        kind: Literal["request", "response"] = "request" if direction == "req" else "response"
        self._api_key = api_key
        self._builder = ColumnsBuilder(api_key, kind)
        self._heads: list[tuple[bytes, dict[str, Any]]] = []
        self.part = "state" if direction == "req" else "error"
        self.size = 0

    def append(self, body_id: bytes, version: int, data: Buffer) -> list[Endpoint]:
        """Decode one body.

        Returns:
            The live brokers that it names, in order.

        Raises:
            DecodeError: The bytes are no such message; nothing of them is kept.
            UnsupportedVersion: The API has no such version.
        """
        rows = self._builder.append(version, data)
        message = self._builder.message
        self.size += memoryview(data).nbytes
        if self.part == "error":
            self._heads.append((body_id, {"error_code": message.error_code}))
            return []
        head = {
            "controller_id": message.controller_id,
            "controller_epoch": message.controller_epoch,
            "is_kraft": message.is_kraft_controller,
            "type": getattr(message, "type", 0),  # StopReplica has none
            "n_partitions": rows,
        }
        self._heads.append((body_id, head))
        if self._api_key != ApiKey.UPDATE_METADATA:
            return []
        return sorted((broker, e.host, e.port) for broker, ends, _rack in message.broker_endpoints for e in ends)

    def name_brokers(self, brokers_id: bytes) -> None:
        """Set which set of live brokers the last body names."""
        self._heads[-1][1]["brokers_id"] = brokers_id

    def take(self, limit: int) -> tuple[list[tuple[bytes, dict[str, Any]]], Iterator[pa.RecordBatch]]:
        """Return the bodies' heads, and their rows by the schemas of ``PARTS``, in batches of about ``limit``."""
        heads, self._heads = self._heads, []
        self.size = 0
        rows = pa.record_batch(self._builder.finish())
        if self.part == "error":
            rows = rows.filter(pc.not_equal(rows.column("error_code"), 0))
            _count(heads, "n_partition_errors", rows.column("frame"))
        else:
            _count(heads, "n_topics", _first_mentions(rows))
            if self._api_key == ApiKey.LEADER_AND_ISR:
                _add_common_replicas(heads, rows)
        ids = pa.array([body_id for body_id, _ in heads], pa.binary())
        pieces = slices(rows, _plain_size(rows), limit)
        return heads, (self._batch(piece, ids) for piece in pieces)

    def _batch(self, rows: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
        schema = PARTS[self.part]
        arrays = []
        for field in schema:
            name = _NAMES.get(field.name, field.name)
            if field.name == "body_id":
                arrays.append(ids.take(rows.column("frame")))
            elif field.name == "api_key":
                arrays.append(pa.repeat(pa.scalar(self._api_key, field.type), rows.num_rows))
            elif name in rows.schema.names:
                arrays.append(_plain(rows.column(name), field.type))
            else:
                arrays.append(pa.nulls(rows.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


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


def _first_mentions(rows: pa.RecordBatch) -> pa.Array:
    """Return each frame's number once for every topic in it."""
    frames, topics = rows.column("frame"), rows.column("topic").indices
    if rows.num_rows < 2:
        return frames
    # A topic's rows mostly follow each other, so that few names are left to compare.
    turns = pc.or_(pc.not_equal(frames[1:], frames[:-1]), pc.not_equal(topics[1:], topics[:-1]))
    starts = pa.concat_arrays([pa.array([True]), turns])
    mentions = pa.table({"frame": frames.filter(starts), "topic": topics.filter(starts)})
    return mentions.group_by(["frame", "topic"], use_threads=False).aggregate([]).column("frame")


def _add_common_replicas(heads: list[tuple[bytes, dict[str, Any]]], rows: pa.RecordBatch) -> None:
    """Put into each head the replicas that all partitions of its frame have in common."""
    replicas, frames = rows.column("replicas"), rows.column("frame")
    pairs = pa.table({"frame": frames.take(pc.list_parent_indices(replicas)), "replica": pc.list_flatten(replicas)})
    for pair in pairs.group_by(["frame", "replica"], use_threads=False).aggregate([([], "count_all")]).to_pylist():
        _body_id, head = heads[pair["frame"]]
        common = head.setdefault("common_replicas", [])
        if pair["count_all"] >= head["n_partitions"]:
            common.append(pair["replica"])


def _count(heads: list[tuple[bytes, dict[str, Any]]], name: str, frames: pa.Array) -> None:
    """Put into each head how often its frame occurs."""
    for _body_id, head in heads:
        head[name] = 0
    for found in pc.value_counts(frames).to_pylist():
        heads[found["values"]][1][name] = found["counts"]
