"""Compares tables with the expected tables of a generated fleet."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kproto.generate.schemas import EXPECTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

ANY_REASON = "unmatched_reason"
"""Columns in the generator's own words: only whether they are null is compared."""

STORED = ("requests", "responses", "partition_errors", "partition_states", "frames", "bodies", "brokers")


def assert_rows(name: str, found: pa.Table, wanted: pa.Table) -> None:
    """The same rows in any order, each as often; columns that the expected table lacks are not compared."""
    names = EXPECTED[name].names
    for column in names:
        assert found.schema.field(column).type == wanted.schema.field(column).type, f"{name}.{column}"
    here, there = (Counter(_plain(row) for row in table.select(names).to_pylist()) for table in (found, wanted))
    only_found, only_wanted = here - there, there - here
    assert not only_found | only_wanted, (
        f"{name}: {only_found.total()} rows too many, e.g. {_one(only_found, names)}; "
        f"{only_wanted.total()} are missing, e.g. {_one(only_wanted, names)}"
    )


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    if ANY_REASON in row:
        row[ANY_REASON] = row[ANY_REASON] is not None
    return tuple(_hashable(value) for value in row.values())


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list) else value


def _one(rows: Counter[tuple[Any, ...]], names: Iterable[str]) -> Any:
    return dict(zip(names, next(iter(rows)), strict=True)) if rows else "none"
