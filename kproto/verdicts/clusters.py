"""Finds out which captures in the same tables belong to one cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of
from kproto.tables.schemas import column, described

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kproto.tables.stored import Reader

__all__ = ["CLUSTERS", "UPDATE_COLUMNS", "cluster_names", "cluster_rows", "clusters_of", "read_clusters", "updates_in"]

UPDATE_COLUMNS: Final = ("capture", "body_id", "controller_id", "controller_epoch")
"""What names an update in a capture."""

CLUSTERS: Final = described(
    "Which capture belongs to which cluster.",
    column("capture", pa.string(), "Capture point."),
    column("captures", pa.int64(), "How many captures the cluster has."),
    column("cluster", pa.string(), "The cluster's first capture by name, and how many more it has."),
)


def updates_in(requests: Iterable[pa.Table]) -> pa.Table:
    """Reduce rows of ``requests`` to the metadata updates of each capture that name partitions, each once.

    Args:
        requests: With the columns ``UPDATE_COLUMNS``, ``api_key``, ``n_partitions`` and ``error_code``.
    """
    found: pa.Table | None = None
    for table in requests:
        updates = pc.equal(table["api_key"], int(ApiKey.UPDATE_METADATA))
        accepted = pc.equal(pc.fill_null(table["error_code"], 0), 0)
        some = pc.and_kleene(pc.and_(updates, accepted), pc.greater(table["n_partitions"], 0))
        rows = table.filter(some).select(UPDATE_COLUMNS)
        rows = rows if found is None else pa.concat_tables([found, rows])
        found = rows.group_by(list(UPDATE_COLUMNS), use_threads=False).aggregate([])
    assert found is not None
    return found


def clusters_of(captures: Sequence[str], updates: pa.Table) -> dict[str, str]:
    """Return the first capture, by name, of each capture's cluster.

    Captures that show the same update, of the same controller in the same epoch, belong to one cluster, and so do those
    that are linked through others. Partitions that differ in any epoch make another update, so captures of another
    cluster share none.

    Args:
        captures: The names of all captures.
        updates: As ``updates_in`` gives it.
    """
    first = {name: name for name in captures}

    def root(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    if len(captures) > 1:
        shown: dict[tuple[Any, ...], str] = {}
        for capture, *update in rows_of(updates, UPDATE_COLUMNS):
            one, other = sorted((root(capture), root(shown.setdefault(tuple(update), capture))))
            first[other] = one
    return {name: root(name) for name in captures}


def read_clusters(read: Reader, captures: Sequence[str] | None = None) -> dict[str, str]:
    """Return ``clusters_of`` the stored tables.

    Args:
        read: Reads them.
        captures: The names of all captures, if they are known.
    """
    if captures is None:
        captures = sorted(
            {name for table in read("requests", ["capture"]) for name in pc.unique(table["capture"]).to_pylist()}
        )
    columns = (*UPDATE_COLUMNS, "api_key", "n_partitions", "error_code")
    updates = updates_in(read("requests", columns)) if len(captures) > 1 else CLUSTERS.empty_table()
    return clusters_of(captures, updates)


def cluster_names(clusters: dict[str, str]) -> dict[str, str]:
    """Return the name of each capture's cluster: its first capture, and how many more it has."""
    sizes = Counter(clusters.values())
    return {
        capture: first if sizes[first] == 1 else f"{first} and {sizes[first] - 1} more"
        for capture, first in clusters.items()
    }


def cluster_rows(clusters: dict[str, str]) -> pa.Table:
    """Return the table ``CLUSTERS``, from what ``clusters_of`` gives."""
    sizes = Counter(clusters.values())
    rows = [(capture, sizes[clusters[capture]], name) for capture, name in cluster_names(clusters).items()]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, CLUSTERS.types, strict=True)], schema=CLUSTERS
    )
