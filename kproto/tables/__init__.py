"""Turns captures into Arrow tables by plain functions over pyarrow, without Spark.

    tables = kproto.tables.read("control.pcap")     # name -> pyarrow.Table; pandas, polars and DuckDB take them
    tables["requests"].to_pandas()

``scan`` reads captures into frames, ``decode`` turns distinct bodies into rows; ``kproto.pipeline`` runs the same two
on Spark. ``filters`` and ``brokers`` need no pyarrow: names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kproto.tables.brokers import BrokerDirectory
    from kproto.tables.decoding import decode
    from kproto.tables.filters import Filters
    from kproto.tables.reading import chunks, read
    from kproto.tables.scanning import scan
    from kproto.tables.schemas import (
        BAD_INPUTS,
        BODIES,
        BROKERS,
        CAPTURES,
        FRAMES,
        LIVE_BROKERS,
        PARTITION_ERRORS,
        PARTITION_STATES,
        PARTS,
        REQUESTS,
        RESPONSES,
        SCAN,
        TABLES,
        description,
    )

__all__ = [
    "BAD_INPUTS",
    "BODIES",
    "BROKERS",
    "CAPTURES",
    "FRAMES",
    "LIVE_BROKERS",
    "PARTITION_ERRORS",
    "PARTITION_STATES",
    "PARTS",
    "REQUESTS",
    "RESPONSES",
    "SCAN",
    "TABLES",
    "BrokerDirectory",
    "Filters",
    "chunks",
    "decode",
    "description",
    "read",
    "scan",
]

_HOMES = {
    "BrokerDirectory": "brokers",
    "Filters": "filters",
    "chunks": "reading",
    "decode": "decoding",
    "read": "reading",
    "scan": "scanning",
}
"""Maps a public name to the module that defines it, unless that is ``schemas``."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"kproto.tables.{_HOMES.get(name, 'schemas')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
