"""Control requests and responses as Arrow columns: one row for each partition, no Python object for it.

``decode_columns`` reads one message's partitions into columns, ``ColumnsBuilder`` those of many messages into one
batch, and ``encode_columns`` writes a request from columns. Libraries that know Arrow's PyCapsule interface (pyarrow,
polars, duckdb, pandas) use ``Columns`` without a copy. The C-accelerated codec has columns of LeaderAndIsr, StopReplica
and UpdateMetadata; in wheels without it the reference makes them with pyarrow.

>>> from kproto.columns import Columns, decode_columns, encode_columns
>>> from kproto.messages import UpdateMetadataRequest
>>> rows = Columns.from_sequences(6, topic=["orders", "orders"], partition=[0, 1], leader=[1, 2])
>>> body = encode_columns(UpdateMetadataRequest(controller_id=1), 8, rows)
>>> columns = decode_columns(6, 8, body)
>>> len(columns), columns.names[:4], columns.message.controller_id
(2, ('frame', 'topic', 'topic_id', 'partition'), 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .codec import get_codec

if TYPE_CHECKING:
    from ._codec import Columns, ColumnsBuilder, decode_columns, encode_batches, encode_columns

__all__ = ["Columns", "ColumnsBuilder", "decode_columns", "encode_batches", "encode_columns"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(get_codec("cython"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
