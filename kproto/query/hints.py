"""Explains answers: why there are no rows, and what the times of captures on several hosts are worth."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import duckdb

from kproto.errors import ConfigurationError
from kproto.text import there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.tables.filters import Filters

_NAMED: Final = 3
"""The number of names that a hint lists."""


@contextmanager
def explained_by_duckdb(cause: str = "the tables cannot be read: ") -> Iterator[None]:
    """Turn DuckDB's errors, at a query or at a damaged or vanished file, into errors of one line.

    Args:
        cause: The words before DuckDB's own.

    Raises:
        ConfigurationError: In these words; of a table that is not there, with the command that lists the tables.
    """
    try:
        yield
    except duckdb.Error as e:
        said, is_ours, _trace = str(e).strip().splitlines()[0].partition(" Detail: Python exception")
        if is_ours:  # it was raised while DuckDB read a table that is computed
            raise ConfigurationError(said.partition(" failed: ")[2].partition(": ")[2].rstrip(".")) from None
        if isinstance(e, duckdb.CatalogException):
            said = said.rstrip("!") + ("; kproto tables lists the tables" if "Table with name" in said else "")
        raise ConfigurationError(cause + said) from None


def comparison(tables: duckdb.DuckDBPyConnection) -> str:
    """Say over which captures brokers were compared, or why they could not be.

    Returns:
        The sentence; empty where one capture shows several brokers.
    """
    captures, largest, brokers = tables.execute("""
        WITH shown AS (
            SELECT cluster, count(DISTINCT capture) AS captures FROM clusters GROUP BY cluster
        ), compared AS (
            SELECT c.captures, count(DISTINCT q.broker_id) AS brokers
            FROM requests q JOIN shown c ON c.cluster = q.cluster GROUP BY c.cluster, c.captures
        )
        SELECT coalesce(sum(captures), 0), coalesce(max(captures), 0), coalesce(max(brokers), 0) FROM compared
    """).fetchone() or (0, 0, 0)
    if largest > 1 and brokers != 1:
        return (
            f"brokers are compared over {largest} captures of one cluster; between hosts, lag is as exact as what they "
            "share tells of their clocks: some milliseconds"
        )
    if brokers != 1:
        return ""
    shown = "the capture shows one broker" if captures == 1 else "the captures show one broker"
    return f"{shown}, so none can be compared; capture on the controller's host, or on all brokers at the same time"


def down(tables: duckdb.DuckDBPyConnection) -> str:
    """Name the brokers that are down at the end: what they are not sent is not missed.

    Returns:
        The sentence; empty where none is.
    """
    rows = tables.execute(
        "SELECT broker, strftime(down_since, '%Y-%m-%dT%H:%M:%S.%fZ') FROM brokers_down ORDER BY broker"
    ).fetchall()
    listed = [f"broker {broker} since {since}" for broker, since in rows[:_NAMED]]
    if len(rows) > _NAMED:
        listed.append(f"{len(rows) - _NAMED} more")
    return f"down at the end, and told nothing: {', '.join(listed)}" if rows else ""


def strangers(tables: duckdb.DuckDBPyConnection) -> str:
    """Say that what ``diff`` compares may be two clusters: no partition is in both, or no topic has the same id.

    Returns:
        The sentence; empty where a topic is in both.
    """
    shared, same = tables.execute("""
        SELECT count(*), count(*) FILTER (coalesce(s.topic_id = o.topic_id, true))
        FROM spans s JOIN other_states o ON o.cluster = s.cluster AND o.topic = s.topic AND o.partition = s.partition
    """).fetchone() or (0, 0)
    if same:
        return ""
    which = "no topic of both has the same id" if shared else "no partition is in both"
    return f"{which}: are they of one cluster?"


def absent(tables: duckdb.DuckDBPyConnection, filters: Filters) -> Iterator[str]:
    """Name each topic, partition, broker and controller of filters that no request in the tables has."""
    for topic in (*filters.topics, *sorted({topic for topic, _ in filters.partitions})):
        condition = "topic GLOB ?" if topic in filters.topics else "topic = ?"
        if not tables.execute(f"SELECT 1 FROM partition_states WHERE {condition} LIMIT 1", [topic]).fetchall():  # noqa: S608
            known = _values(tables, "topic", "partition_states")
            yield f"no topic {topic!r} is in the tables; {there(get_close_matches(topic, known, _NAMED) or known)}"
    for topic, partition in sorted(filters.partitions):
        found = tables.execute(
            "SELECT count(DISTINCT partition), bool_or(partition = ?) FROM partition_states WHERE topic = ?",
            [partition, topic],
        ).fetchone()
        if found is not None and found[0] and not found[1]:
            yield f"no partition {topic}-{partition} is in the tables; they have {found[0]} of this topic"
    for kind, wanted in ("broker", filters.brokers), ("controller", filters.controllers):
        known = _values(tables, f"{kind}_id", "requests") if wanted else []
        for number in sorted(wanted.difference(map(int, known))):
            yield f"no {kind} {number} is in the tables; {there(known)}"


def _values(tables: duckdb.DuckDBPyConnection, column: str, table: str) -> list[str]:
    select = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1"  # noqa: S608
    return [str(value) for (value,) in tables.execute(select).fetchall()]
