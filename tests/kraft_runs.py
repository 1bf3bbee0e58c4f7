"""Real KRaft runs of tests/data/kraft: each node's files, and every record as Kafka's own dump prints it."""

import gzip
import json
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from conftest import DATA

RUNS = ("kraft-3.9-a", "kraft-4.1-a")
NODES = {
    "kraft-3.9-a": (0, 1, 2, 1000),
    "kraft-4.1-a": (0, 1, 2, 3, 1000, 1001, 1002),
    "kraft-3.9-m": (0, 1, 2, 3000),
    "kraft-4.0-a": (0, 1, 2, 3, 1000, 1001, 1002),
    "kraft-4.1-c": (0, 1, 2, 1000, 1001, 1002),
    "kraft-4.1-d": (0, 1, 2, 1000),
    "kraft-3.9-h": (0, 1, 2, 1000, 1001, 1002),
}
HEALTHY = "kraft-3.9-h"
"""A run of the same program in which nothing fails: every node is restarted in turn by controlled shutdown, topics are
made, moved, configured and deleted. Its capture has the first election: a leader of 22 ms whose record was replaced."""
MADE = ("kraft-3.9-m", "kraft-4.0-a", "kraft-4.1-c", "kraft-4.1-d")
"""Runs of ``tools/real_kafka/kraft_scenario.py``: a migration from ZooKeeper; an upgrade from 3.9, in which a node has
lost the beginning of its log; a quorum whose voters change, of which the capture has the last 20 seconds; features that
are updated from 4.0 to 4.1, and a broker that is unregistered."""

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
def truth(run: str, *, of_snapshots: bool = False) -> tuple[dict[str, Any], ...]:
    """Every record of the longest log: offset, time_ms, epoch, type, version, data; a control record may lack data.

    Args:
        run: The run.
        of_snapshots: The records of that node's snapshots instead, each with the ``snapshot``'s name.
    """
    with gzip.open(DATA / "kraft" / f"{run}.truth.jsonl.gz", "rt") as file:
        rows = [row | row["data"] if row["type"] == "payload" else row for row in map(json.loads, file)]
    return tuple(row for row in rows if ("snapshot" in row) == of_snapshots)


def capture(run: str) -> Path:
    """The traffic of the controllers' listeners, without packets that carry nothing."""
    return DATA / "kraft" / f"{run}.pcap.gz"
