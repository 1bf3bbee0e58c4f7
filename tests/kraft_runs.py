"""Real KRaft runs of tests/data/kraft: each node's files, and every record as Kafka's own dump prints it."""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from conftest import DATA

RUNS = ("kraft-3.9-a", "kraft-4.1-a")
NODES = {"kraft-3.9-a": (0, 1, 2, 1000), "kraft-4.1-a": (0, 1, 2, 3, 1000, 1001, 1002)}

_PLACE = tempfile.TemporaryDirectory(prefix="kproto-kraft-")


@cache
def metadata(run: str, node: int | None = None) -> Path:
    """The directory of a node's files, or that of all nodes; nothing in it may be changed."""
    place = Path(_PLACE.name) / run
    if not place.exists():
        with tarfile.open(DATA / "kraft" / f"{run}.metadata.tar.xz") as tar:
            tar.extractall(place, filter="data")
    return place if node is None else place / f"node{node}"


@cache
def truth(run: str) -> tuple[dict[str, Any], ...]:
    """Every record of the longest log: offset, time_ms, epoch, type, version, data; a control record may lack data."""
    rows = []
    with gzip.open(DATA / "kraft" / f"{run}.truth.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            rows.append(row | row["data"] if row["type"] == "payload" else row)
    return tuple(rows)


def capture(run: str) -> Path:
    """The traffic of the controllers' listeners, without packets that carry nothing."""
    return DATA / "kraft" / f"{run}.pcap.gz"
