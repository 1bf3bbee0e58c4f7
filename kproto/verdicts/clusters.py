"""Finds out which captures in the same tables belong to one cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.schemas import column, described

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kproto.tables.stored import Reader

UPDATE_COLUMNS: Final = ("capture", "body_id", "controller_id", "controller_epoch")
"""The key of an update in a capture."""

CLUSTERS: Final = described(
    "Which capture belongs to which cluster.",
    column("capture", pa.string(), "Capture point."),
    column("captures", pa.int64(), "How many captures the cluster has."),
    column("cluster", pa.string(), "The cluster as declared; or its first capture by name, and how many more it has."),
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


def clusters_of(
    captures: Sequence[str], updates: pa.Table, declared: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the first capture, by name, of each capture's cluster.

    Captures whose cluster was declared belong to that. Of the others, captures that show the same update, of the same
    controller in the same epoch, belong to one cluster, and so do those that are linked through others. Partitions that
    differ in any epoch make another update, so captures of another cluster share none.

    Args:
        captures: The names of all captures.
        updates: The result of ``updates_in``.
        declared: The result of ``declared_clusters``.
    """
    declared = declared or {}
    first = {name: name for name in captures}

    def root(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    if len(captures) > 1:
        shown: dict[tuple[Any, ...], str] = {}
        every = [(capture, None) for capture in captures if capture in declared]
        sent = rows_of(updates, UPDATE_COLUMNS) if updates.num_rows else ()
        for capture, *update in [*every, *sent]:
            of = shown.setdefault((declared.get(capture), *update), capture)
            one, other = sorted((root(capture), root(of)))
            first[other] = one
    return {name: root(name) for name in captures}


def read_clusters(
    read: Reader, captures: Sequence[str] | None = None, declared: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return ``clusters_of`` the stored tables.

    Args:
        read: Reads them.
        captures: The names of all captures, if they are known.
        declared: The result of ``declared_clusters``, if it is known.
    """
    if captures is None:
        captures = sorted(
            {name for table in read("requests", ["capture"]) for name in pc.unique(table["capture"]).to_pylist()}
        )
    if declared is None:
        declared = declared_clusters(read)
    columns = (*UPDATE_COLUMNS, "api_key", "n_partitions", "error_code")
    undeclared = [capture for capture in captures if capture not in declared]
    updates = updates_in(read("requests", columns)) if len(undeclared) > 1 else CLUSTERS.empty_table()
    return clusters_of(captures, updates, declared)


def declared_clusters(read: Reader) -> dict[str, str]:
    """Return the cluster of each capture for which one was declared."""
    rows = (row for table in read("captures", ["capture", "cluster"]) for row in rows_of(table, ("capture", "cluster")))
    return {capture: cluster for capture, cluster in rows if cluster != DEFAULT_CLUSTER}


def read_cluster_names(read: Reader) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``read_clusters``, and the name of each capture's cluster.

    The name is as declared, or that of its first capture, and how many more it has.
    """
    declared = declared_clusters(read)
    clusters = read_clusters(read, declared=declared)
    sizes = Counter(clusters.values())
    names = {
        capture: declared.get(capture) or (first if sizes[first] == 1 else f"{first} and {sizes[first] - 1} more")
        for capture, first in clusters.items()
    }
    return clusters, names


def cluster_rows(read: Reader) -> pa.Table:
    """Return the table ``CLUSTERS`` of the stored tables."""
    clusters, names = read_cluster_names(read)
    sizes = Counter(clusters.values())
    rows = [(capture, sizes[clusters[capture]], name) for capture, name in names.items()]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, CLUSTERS.types, strict=True)], schema=CLUSTERS
    )
