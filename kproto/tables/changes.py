"""Leader and ISR changes that the tables show: how each partition's states differ from those before."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey

__all__ = ["PartitionHistory"]

_PARTITION: Final = ["topic", "topic_id", "partition"]
_EPOCHS: Final = ["controller_epoch", "leader_epoch", "partition_epoch"]
_KEYS: Final = [*_PARTITION, *_EPOCHS, "leader", "isr"]
_COMPACT_ROWS: Final = 1 << 20
_DELETED: Final = -2
_NO_LEADER: Final = -1
_KINDS: Final = ("leader_changes", "leader_lost", "isr_shrinks", "isr_expands", "isr_swaps")


class PartitionHistory:
    """The distinct states of every partition, ordered by their epochs.

    The order is that of the epochs, not of time: clocks differ and requests are sent again. Memory grows with the
    number of distinct states: one a partition, and one a change.
    """

    def __init__(self) -> None:
        self._distinct: pa.Table | None = None
        self._fresh: list[pa.Table] = []
        self._fresh_rows = 0

    def add(self, states: pa.Table) -> None:
        """Take rows of ``partition_states`` that brokers accepted."""
        states = states.filter(
            pc.and_(pc.not_equal(states["api_key"], int(ApiKey.STOP_REPLICA)), pc.not_equal(states["leader"], _DELETED))
        )
        if not states.num_rows:
            return
        isr = pc.binary_join(states["isr"].cast(pa.list_(pa.string())), ",")
        self._fresh.append(states.select(_KEYS).set_column(len(_KEYS) - 1, "isr", isr))
        self._fresh_rows += states.num_rows
        if self._fresh_rows > max(_COMPACT_ROWS, self._distinct.num_rows if self._distinct else 0):
            self._compact()

    def _compact(self) -> pa.Table:
        tables = [*([self._distinct] if self._distinct is not None else []), *self._fresh]
        if self._fresh:
            self._distinct = pa.concat_tables(tables).group_by(_KEYS).aggregate([])
            self._fresh, self._fresh_rows = [], 0
        assert self._distinct is not None
        return self._distinct

    def changes(self, most: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Count the changes.

        Args:
            most: How many partitions to list.

        Returns:
            Totals: ``partitions``, ``partitions_moved`` and one number a kind: ``leader_changes``, ``leader_lost`` (of
            these: to no leader), ``isr_shrinks``, ``isr_expands``, ``isr_swaps``. And the partitions with the most
            leader changes, each with ``topic``, ``partition`` and the same numbers.
        """
        if self._distinct is None and not self._fresh:
            return dict.fromkeys(("partitions", "partitions_moved", *_KINDS), 0), []
        states = self._compact().sort_by([(name, "ascending") for name in _KEYS])
        counts: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_KINDS, 0))
        for topic, partition, before, after in _steps(states):
            count = counts[topic, partition]
            for kind in _kinds(before, after):
                count[kind] += 1
        totals = {kind: sum(count[kind] for count in counts.values()) for kind in _KINDS}
        partitions = states.group_by(["topic", "partition"]).aggregate([]).num_rows
        moved = sum(count["leader_changes"] > 0 for count in counts.values())
        restless = [(place, count) for place, count in counts.items() if count["leader_changes"]]
        restless.sort(key=lambda item: (-item[1]["leader_changes"], -item[1]["isr_shrinks"], item[0]))
        listed = [{"topic": topic, "partition": number, **count} for (topic, number), count in restless[:most]]
        return {"partitions": partitions, "partitions_moved": moved, **totals}, listed


_State = tuple[int, str]
"""Leader, and ISR as text."""


def _steps(states: pa.Table) -> list[tuple[str, int, _State, _State]]:
    """Topic, partition, state before and state after, where leader or ISR differ between neighbours of a partition."""
    earlier, later = states.slice(0, states.num_rows - 1), states.slice(1)
    if not later.num_rows:
        return []
    same = pc.equal(earlier["partition"], later["partition"])
    for name in ("topic", "topic_id"):
        same = pc.and_(same, pc.equal(earlier[name], later[name]))
    moved = pc.or_(pc.not_equal(earlier["leader"], later["leader"]), pc.not_equal(earlier["isr"], later["isr"]))
    rows = pc.and_(same, moved)
    before, after = earlier.filter(rows), later.filter(rows)
    names = ("topic", "partition", "leader", "isr")
    return [
        (topic, partition, (old_leader, old_isr), (leader, isr))
        for topic, partition, leader, isr, old_leader, old_isr in zip(
            *(after[name].to_pylist() for name in names),
            *(before[name].to_pylist() for name in ("leader", "isr")),
            strict=True,
        )
    ]


def _kinds(before: _State, after: _State) -> list[str]:
    """The kinds of change from one state to the next."""
    kinds = []
    if before[0] != after[0]:
        kinds.append("leader_changes")
        if after[0] == _NO_LEADER:
            kinds.append("leader_lost")
    old, new = (set(state[1].split(",")) - {""} for state in (before, after))
    if new < old:
        kinds.append("isr_shrinks")
    elif new > old:
        kinds.append("isr_expands")
    elif new != old:
        kinds.append("isr_swaps")
    return kinds
