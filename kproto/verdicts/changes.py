"""Finds leader and ISR changes: the differences between consecutive states of each partition."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of
from kproto.verdicts.states import (
    BEING_DELETED,
    ISR_CHANGES,
    NO_LEADER,
    STATE_ORDER,
    Incarnation,
    Incarnations,
    isr_change,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPOCHS: Final = [*STATE_ORDER, "controller_epoch"]
_COMPACT_ROWS: Final = 1 << 22
_KINDS: Final = ("leader_changes", "leader_lost", *(f"isr_{kind}s" for kind in ISR_CHANGES))
_STATES: Final = pa.schema(
    [
        ("partition_key", pa.int64()),
        *((name, pa.int32()) for name in _EPOCHS),
        ("leader", pa.int32()),
        ("isr", pa.int32()),
        ("ts", pa.int64()),
        ("is_counted", pa.bool_()),
    ]
)
"""A state in short: ``partition_key`` holds the number of the topic and the partition, ``isr`` is the ISR's number.
The changes up to a state that ``is_counted`` are in ``PartitionHistory``'s counts already. The times tell incarnations
apart; those of partitions that were not deleted may be 0."""

_ORDER: Final = _STATES.names[:-2]
_ID_BYTES: Final = 16

Changes = tuple[dict[str, int], list[dict[str, Any]]]
"""Totals, and the partitions whose leaders changed most, as ``PartitionHistory.changes`` gives them."""


class PartitionHistory:
    """The states of every partition, ordered by their epochs.

    The order is that of the epochs, not of time: clocks differ and requests are sent again. Memory grows with the
    number of distinct states: one a partition, and one a change; ``limit`` bounds it. A later incarnation of a
    topic without id is kept like another topic of that name, with the incarnation's number in place of the id.
    """

    def __init__(self) -> None:
        self._topics: dict[tuple[str, bytes], int] = {}
        self._isrs: dict[bytes, int] = {}
        self._states: list[pa.Table] = []
        self._rows = 0
        self._compact_at = _COMPACT_ROWS
        self._counts: dict[tuple[str, int], dict[str, int]] = {}

    def __len__(self) -> int:
        """The number of states kept, of which some may be equal."""
        return self._rows

    def add(self, states: pa.Table) -> None:
        """Add rows of ``partition_states``, with ``ts``: when the first broker accepted each, in us since 1970."""
        told = pc.not_equal(states["api_key"], int(ApiKey.STOP_REPLICA))
        if not pc.all(told).as_py():
            states = states.filter(told)
        for batch in states.select(["topic", "topic_id", "partition", *_EPOCHS, "leader", "isr", "ts"]).to_batches():
            topics = _numbers(batch.column("topic"), batch.column("topic_id"), self._topics)
            key = _partition_key(topics, batch.column("partition"))
            isrs = _as_binary(batch.column("isr")).dictionary_encode()
            known = self._isrs
            numbers = [known.setdefault(isr, len(known)) for isr in isrs.dictionary.to_pylist()]
            isr = pa.array(numbers, pa.int32()).take(isrs.indices)
            columns = [key, *(batch.column(name) for name in (*_EPOCHS, "leader")), isr, batch.column("ts")]
            counted = pa.repeat(pa.scalar(False), batch.num_rows)
            self._append(pa.Table.from_arrays([*columns, counted], schema=_STATES))

    def merge(self, other: PartitionHistory) -> None:
        """Add all states of another history."""
        if not other._states and not other._counts:
            return
        topics = pa.array([self._topics.setdefault(t, len(self._topics)) for t in other._topics], pa.int64())
        isrs = pa.array([self._isrs.setdefault(isr, len(self._isrs)) for isr in other._isrs], pa.int32())
        for table in other._states:
            key = table["partition_key"]
            topic = pc.shift_left(topics.take(pc.shift_right(key, 32)), 32)
            key = pc.bit_wise_or(topic, pc.bit_wise_and(key, 0xFFFFFFFF))
            columns = [key, *table.columns[1:-3], isrs.take(table["isr"]), table["ts"], table["is_counted"]]
            self._append(pa.Table.from_arrays(columns, schema=_STATES))
        _add_counts(self._counts, other._counts)

    def split(self, count: int) -> list[PartitionHistory]:
        """Split the history by partitions: each partition's states are in the same part in every process."""
        parts = [PartitionHistory() for _ in range(count)]
        table = pa.concat_tables(self._states or [_STATES.empty_table()]).combine_chunks()
        places = [crc32(name.encode("utf-8", "replace")) for name, _topic_id in self._topics]
        place = pa.array(places, pa.int64()).take(pc.shift_right(table["partition_key"], 32))
        place = pc.add(place, pc.bit_wise_and(table["partition_key"], 0xFFFFFFFF))
        place = pc.subtract(place, pc.multiply(pc.divide(place, count), count)).combine_chunks()
        order = pc.sort_indices(place)
        sizes = {found["values"]: found["counts"] for found in pc.value_counts(place).to_pylist()}
        at = 0
        for number, part in enumerate(parts):
            rows = sizes.get(number, 0)
            own = table.take(order.slice(at, rows))  # a copy: a slice is pickled with all rows of its table
            isrs = own["isr"].combine_chunks().dictionary_encode()
            named = pa.array(self._isrs, pa.binary()).take(isrs.dictionary)
            part._topics = dict(self._topics)
            part._isrs = {isr: n for n, isr in enumerate(named.to_pylist())}
            part._append(own.set_column(own.column_names.index("isr"), "isr", isrs.indices))
            at += rows
        if parts:
            parts[0]._counts = self._counts
        return parts

    def _append(self, states: pa.Table) -> None:
        if states.num_rows:
            self._states.append(states)
            self._rows += states.num_rows
            if self._rows > self._compact_at:
                self._compact_at = max(_COMPACT_ROWS, 2 * self._compact().num_rows)

    def _compact(self) -> pa.Table:
        """Return all states, each once; of deleted partitions once a time."""
        if len(self._states) > 1:
            every = pa.concat_tables(self._states)
            deleted = pc.unique(every["partition_key"].filter(pc.equal(every["leader"], BEING_DELETED)))
            times = pc.if_else(pc.is_in(every["partition_key"], value_set=deleted), every["ts"], 0)
            every = every.set_column(every.column_names.index("ts"), "ts", times)
            self._states = [every.group_by(every.column_names).aggregate([])]
            self._rows = self._states[0].num_rows
        return self._states[0] if self._states else _STATES.empty_table()

    def changes(self, most: int) -> Changes:
        """Count the changes.

        Args:
            most: The number of partitions to list.

        Returns:
            Totals: ``partitions``, ``partitions_moved`` and one number a kind: ``leader_changes``, ``leader_lost`` (of
            these: to no leader), ``isr_shrinks``, ``isr_expands``, ``isr_swaps``. And the partitions with the most
            leader changes, each with ``topic``, ``partition`` and the same numbers.
        """
        if not self._states:
            return dict.fromkeys(("partitions", "partitions_moved", *_KINDS), 0), []
        states, _turns, counts = self._counted()
        names = [name for name, _topic_id in self._topics]
        totals = {kind: sum(count[kind] for count in counts.values()) for kind in _KINDS}
        moved = sum(count["leader_changes"] > 0 for count in counts.values())
        restless = [(place, count) for place, count in counts.items() if count["leader_changes"]]
        restless.sort(key=lambda item: _rank(*item))
        listed = [{"topic": topic, "partition": number, **count} for (topic, number), count in restless[:most]]
        partitions = {(names[key >> 32], key & 0xFFFFFFFF) for key in pc.unique(states["partition_key"]).to_pylist()}
        return {"partitions": len(partitions), "partitions_moved": moved, **totals}, listed

    def _counted(self) -> tuple[pa.Table, pa.Table, dict[tuple[str, int], dict[str, int]]]:
        """The states in order, those that end or begin an incarnation, and each partition's changes.

        The states have the rank of their ISR instead of its number.
        """
        isrs = sorted(self._isrs)
        ranks = {isr: rank for rank, isr in enumerate(isrs)}
        rank = pa.array([ranks[isr] for isr in self._isrs], pa.int32())
        states = pa.concat_tables(self._states)
        states = states.set_column(states.column_names.index("isr"), "isr", rank.take(states["isr"]))
        states, turns = self._by_incarnation(states)
        states = _after_counted(_ordered(states.drop_columns("ts")))
        names = [name for name, _topic_id in self._topics]
        counts: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_KINDS, 0))
        _add_counts(counts, self._counts)
        for key, kinds, steps in _steps(states, isrs):
            count = counts[names[key >> 32], _signed(key)]
            for kind in kinds:
                count[kind] += steps
        return states, turns, counts

    def _by_incarnation(self, states: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Bring the states of topics without ids under the keys of their incarnations.

        Returns:
            The states but for those of deletions; and those that say a deletion or begin an incarnation after one.
        """
        ends = pc.equal(states["leader"], BEING_DELETED)
        turns = states.filter(ends)
        if turns.num_rows:
            states = states.filter(pc.invert(ends))
        topics = list(self._topics)
        names = _of_several_incarnations(states, turns, topics)
        if not names:
            return states, turns
        numbers = [
            at for at, (name, topic_id) in enumerate(topics) if name in names and len(topic_id) in (0, _ID_BYTES)
        ]
        apart = pc.is_in(pc.shift_right(states["partition_key"], 32), value_set=pa.array(numbers, pa.int64()))
        some = pa.concat_tables([states.filter(apart), turns]).sort_by("ts")
        lives: dict[tuple[str, int], Incarnations] = defaultdict(Incarnations)
        found: list[tuple[str, int, Incarnation | None]] = []
        begins: list[int] = []
        for key, leader, ts, *epochs in rows_of(some, ("partition_key", "leader", "ts", *STATE_ORDER)):
            name, topic_id = topics[key >> 32]
            of, life = lives[name, key & 0xFFFFFFFF], None
            if leader == BEING_DELETED:
                of.end(topic_id or None, ts)
            else:
                known = len(of)
                life = of.of(topic_id or None, (epochs[0], epochs[1]), ts)
                if 0 < known < len(of):
                    begins.append(len(found))
            found.append((name, key & 0xFFFFFFFF, life))
        turns = pa.concat_tables([turns, some.take(pa.array(begins, pa.int64()))])
        keys = []
        numbered = {id(life): number for of in lives.values() for number, life in enumerate(of)}
        for name, partition, life in found:
            if life is not None:
                number = numbered[id(life)]
                topic = name, life.topic_id or (b"%d" % number if number else b"")
                keys.append(self._topics.setdefault(topic, len(self._topics)) << 32 | partition)
        some = some.filter(pc.not_equal(some["leader"], BEING_DELETED))
        some = some.set_column(0, "partition_key", pa.array(keys, pa.int64()))
        return pa.concat_tables([states.filter(pc.invert(apart)), some]), turns

    def limit(self, most: int) -> None:
        """Beyond ``most`` distinct states count their changes, and keep the newest state of each partition alone.

        States that are added later with lower epochs than those are left out.
        """
        if self._rows <= most or self._compact().num_rows <= most:
            return
        states, turns, counts = self._counted()
        key = states["partition_key"].combine_chunks()
        is_last = pc.not_equal(key[:-1], key[1:]).to_pylist()
        states = states.filter(pa.array([*is_last, True]))
        self._counts = dict(counts)
        self._isrs = {isr: number for number, isr in enumerate(sorted(self._isrs))}
        columns = [*states.columns[:-1], pa.repeat(pa.scalar(0), states.num_rows), pa.repeat(True, states.num_rows)]
        self._states = [pa.Table.from_arrays(columns, schema=_STATES), turns]
        self._rows = states.num_rows + turns.num_rows
        self._compact_at = _COMPACT_ROWS


def _of_several_incarnations(states: pa.Table, turns: pa.Table, topics: list[tuple[str, bytes]]) -> set[str]:
    """The topics that have states without id which were told after a deletion, or whose id came with later states."""
    without_id = {name for name, topic_id in topics if not topic_id}
    found = without_id & {name for name, topic_id in topics if len(topic_id) == _ID_BYTES}
    if found:
        numbers = pc.unique(pc.shift_right(states["partition_key"], 32)).to_pylist()
        found &= {topics[number][0] for number in numbers if not topics[number][1]}
    if without_id and turns.num_rows:
        ended = turns.group_by("partition_key").aggregate([("ts", "min")])
        since = ended["ts_min"].take(pc.index_in(states["partition_key"], value_set=ended["partition_key"]))
        later = pc.unique(states["partition_key"].filter(pc.greater(states["ts"], since))).to_pylist()
        found.update(topics[key >> 32][0] for key in later if not topics[key >> 32][1])
    return found


def _add_counts(counts: dict[tuple[str, int], dict[str, int]], more: dict[tuple[str, int], dict[str, int]]) -> None:
    for place, kinds in more.items():
        known = counts.setdefault(place, dict.fromkeys(_KINDS, 0))
        for kind, number in kinds.items():
            known[kind] += number


def merged(parts: list[Changes], most: int) -> Changes:
    """Merge the changes of histories that have no partition in common."""
    totals = dict.fromkeys(("partitions", "partitions_moved", *_KINDS), 0)
    listed: list[dict[str, Any]] = []
    for part_totals, part_listed in parts:
        listed += part_listed
        for name, count in part_totals.items():
            totals[name] += count
    listed.sort(key=lambda row: _rank((row["topic"], row["partition"]), row))
    return totals, listed[:most]


def _rank(place: tuple[str, int], count: dict[str, Any]) -> tuple[Any, ...]:
    """The partitions whose leaders changed most come first."""
    return -count["leader_changes"], -count["isr_shrinks"], place


def _numbers(names: pa.Array, ids: pa.Array, known: dict[tuple[str, bytes], int]) -> pa.Array:
    """The number of each row's topic; topics that are not ``known`` are added."""
    (of_name, names), (of_id, ids) = _encoded(names), _encoded(ids)
    ids = [b"" if topic_id == bytes(_ID_BYTES) else topic_id for topic_id in ids]
    width = max(len(ids), 1)
    pairs = pc.add(pc.multiply(of_name.cast(pa.int64()), width), of_id.cast(pa.int64())).dictionary_encode()
    numbers = [
        known.setdefault((names[pair // width], ids[pair % width]), len(known)) for pair in pairs.dictionary.to_pylist()
    ]
    return pa.array(numbers, pa.int64()).take(pairs.indices)


def _encoded(column: pa.Array) -> tuple[pa.Array, list[Any]]:
    """Number the values of a column in which equal ones mostly follow each other: the numbers, and their values.

    Runs are found by comparing neighbours, which costs less than to hash every row.
    """
    runs = pc.run_end_encode(column)
    values = runs.values.dictionary_encode()
    numbers = pa.RunEndEncodedArray.from_arrays(runs.run_ends, values.indices)
    return pc.run_end_decode(numbers), values.dictionary.to_pylist()


def _partition_key(topics: pa.Array, partitions: pa.Array) -> pa.Array:
    """Topic number in the upper half, the partition's 32 bits in the lower."""
    return pc.bit_wise_or(pc.shift_left(topics, 32), pc.bit_wise_and(partitions.cast(pa.int64()), 0xFFFFFFFF))


def _signed(key: int) -> int:
    partition = key & 0xFFFFFFFF
    return partition - (1 << 32) if partition >> 31 else partition


def _as_binary(lists: pa.Array) -> pa.Array:
    """Convert lists of int32 to the bytes of their items, which compare and hash faster than lists."""
    offsets = pc.multiply(lists.offsets, pa.scalar(4, pa.int32()))
    items = lists.values
    values = items.buffers()[1]
    start = items.offset * 4
    data = values.slice(start) if values is not None else pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(), len(lists), [None, offsets.buffers()[1], data])


def _ordered(states: pa.Table) -> pa.Table:
    """Bring together the states of each partition, sorted by epochs, then by their other columns.

    They mostly come in the order of their epochs, so that few partitions are left to sort by more than the partition.
    """
    states = states.combine_chunks()
    if states.num_rows:  # numbers without gaps are sorted by counting them
        numbers = states["partition_key"].chunk(0).dictionary_encode().indices
        states = states.take(pc.sort_indices(numbers))
    if states.num_rows < 2:
        return states
    earlier, later = states.slice(0, states.num_rows - 1), states.slice(1)
    same, early = pc.equal(earlier["partition_key"], later["partition_key"]), None
    for name in reversed(_ORDER[1:]):
        less = pc.less(later[name], earlier[name])
        early = less if early is None else pc.or_(less, pc.and_(pc.equal(later[name], earlier[name]), early))
    keys = pc.unique(later["partition_key"].filter(pc.and_(same, early)))
    if not len(keys):
        return states
    mixed = pc.is_in(states["partition_key"], value_set=keys)
    sorted_ones = states.filter(mixed).sort_by([(name, "ascending") for name in _ORDER])
    return pa.concat_tables([states.filter(pc.invert(mixed)), sorted_ones]).combine_chunks()


def _after_counted(states: pa.Table) -> pa.Table:
    """Leave out the states before the one up to which the changes of a partition are counted.

    Args:
        states: In order.
    """
    if not pc.any(states["is_counted"]).as_py():
        return states
    rows = pa.array(range(states.num_rows), pa.int64())
    counted = rows.filter(states["is_counted"].combine_chunks())
    key = states["partition_key"].combine_chunks()
    begin = counted.take(pc.index_in(key, value_set=key.take(counted)))
    return states.filter(pc.fill_null(pc.greater_equal(rows, begin), True))


def _steps(states: pa.Table, isrs: list[bytes]) -> Iterator[tuple[int, list[str], int]]:
    """Return partition, kinds of change and counts, where leader or ISR differ between neighbouring states.

    Args:
        states: In order.
        isrs: The bytes of the ISRs by number.
    """
    earlier, later = states.slice(0, max(states.num_rows - 1, 0)), states.slice(1)
    led = pc.not_equal(earlier["leader"], later["leader"])
    moved = pc.or_(led, pc.not_equal(earlier["isr"], later["isr"]))
    rows = pc.and_(pc.equal(earlier["partition_key"], later["partition_key"]), moved)
    before, after = (side["isr"].filter(rows).combine_chunks().cast(pa.int64()) for side in (earlier, later))
    width = max(len(isrs), 1)
    pairs = pc.add(pc.multiply(before, width), after).dictionary_encode()
    kind_of = [isr_change(_ids(isrs[pair // width]), _ids(isrs[pair % width])) for pair in pairs.dictionary.to_pylist()]
    steps = pa.table(
        {
            "key": later["partition_key"].filter(rows),
            "led": led.filter(rows),
            "lost": pc.and_(led, pc.equal(later["leader"], NO_LEADER)).filter(rows),
            "isr": pa.array(kind_of, pa.string()).take(pairs.indices),
        }
    )
    for row in steps.group_by(steps.column_names).aggregate([([], "count_all")]).to_pylist():
        kinds = [name for name, is_so in (("leader_changes", row["led"]), ("leader_lost", row["lost"])) if is_so]
        yield row["key"], kinds + [f"isr_{row['isr']}s"] * bool(row["isr"]), row["count_all"]


def _ids(isr: bytes) -> set[int]:
    return set(struct.unpack(f"={len(isr) // 4}i", isr))
