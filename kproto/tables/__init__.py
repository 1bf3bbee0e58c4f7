"""Captures as Arrow tables: plain functions from record batches to record batches, no Spark.

``scan`` reads captures into frames, ``decode`` turns distinct bodies into what they say; ``kproto.pipeline`` runs the
same two on Spark and adds what is relational.
"""

from __future__ import annotations

from kproto.tables.decode import decode, part
from kproto.tables.scan import scan
from kproto.tables.schemas import (
    BODIES,
    DECODED,
    FRAMES,
    PARTITION_ERRORS,
    PARTITION_STATES,
    REQUESTS,
    RESPONSES,
    SCAN,
    TABLES,
)

__all__ = [
    "BODIES",
    "DECODED",
    "FRAMES",
    "PARTITION_ERRORS",
    "PARTITION_STATES",
    "REQUESTS",
    "RESPONSES",
    "SCAN",
    "TABLES",
    "decode",
    "part",
    "scan",
]
