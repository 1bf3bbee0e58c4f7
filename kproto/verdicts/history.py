"""Folds what controllers told into the history of each partition: the one place that decides what changed, and when.

A history is the sequence of a partition's distinct states, by incarnation, in the order of epochs; clocks only date
them. Sets of states are reduced first: Arrow does that here, a ``groupBy`` in Spark. The rest are read state by state,
partition by partition; what begins and ends an incarnation is decided in ``states``.

The table ``changes`` is the whole history. Who led, when an ISR changed, what lasted how long, and a summary's counts
are selections from it.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from functools import lru_cache, reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import as_binary, numbers_in, rows_of, table_of
from kproto.tables.schemas import INTS, TIME, column, described
from kproto.verdicts.stale import CLUSTER
from kproto.verdicts.states import BEING_DELETED, NO_LEADER, STATE_ORDER, Incarnations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kproto.tables.stored import Reader
    from kproto.verdicts.states import Incarnation

PARTITION: Final = (
    CLUSTER,
    column("topic", pa.string(), "Topic."),
    column("topic_id", pa.binary(), "Topic id; null where the version has none."),
    column("partition", pa.int32(), "Partition."),
    column("incarnation", pa.int32(), "Number of the topic among those of its name that no topic id tells apart."),
)

_STATE: Final = (
    column("controller_epoch", pa.int32(), "Epoch of the controller that decided the state."),
    column("leader_epoch", pa.int32(), "Leader epoch."),
    column("partition_epoch", pa.int32(), "Partition epoch (ZooKeeper version)."),
    column("leader", pa.int32(), "Leader; -1 none."),
    column("isr", INTS, "In-sync replicas."),
    column("replicas", INTS, "All replicas."),
    column("ts", TIME, "When the first request with this state passed (UTC, us)."),
    column("controller_id", pa.int32(), "Controller that sent that request."),
    column("frame_id", pa.binary(), "That request's frame. Joins requests."),
    column("deleted_ts", TIME, "When a broker was first told of the deletion of the topic (UTC, us); null: none."),
)

STATES: Final = described("A partition's state.", *PARTITION, *_STATE)
"""The columns of a state."""

CHANGES: Final = described(
    "Each distinct state of a partition, when a controller first told any broker of it, and how it differs from the "
    "state before it.",
    *PARTITION,
    *_STATE,
    column("valid_to", TIME, "When a broker was first told of the next state, or of the deletion; null: it lasts."),
    column("former_leader", pa.int32(), "Leader of the state before; null: this is the first."),
    column("former_leader_epoch", pa.int32(), "Leader epoch of the state before."),
    column("former_partition_epoch", pa.int32(), "Partition epoch of the state before."),
    column("isr_change", pa.string(), "shrink, expand, or swap: some left while others came; null: no such change."),
    column("removed", INTS, "Brokers that left the ISR."),
    column("added", INTS, "Brokers that came into the ISR."),
)

TOLD: Final = pa.schema(
    [
        *(CHANGES.field(name) for name in ("topic", "topic_id", "partition", "controller_epoch", *STATE_ORDER)),
        *(CHANGES.field(name) for name in ("leader", "isr", "replicas")),
        pa.field("is_new", pa.bool_()),
    ]
)
"""The columns of ``partition_states`` of which a history is made; a summary needs no replicas."""

SENT_COLUMNS: Final = ("cluster", "body_id", "ts", "frame_id", "controller_id", "api_key", "error_code")
"""The columns of ``requests`` that tell when a state was told first."""

Counts = tuple[dict[str, int], list[dict[str, Any]]]
"""Totals, and the partitions whose leaders changed most, as ``History.counts`` gives them."""

_ISR_CHANGES: Final = {(True, False): "shrink", (False, True): "expand", (True, True): "swap"}
"""The kind of change of an ISR, by whether brokers left and whether brokers came; none where only the order differs."""

COUNTS: Final = ("leader_changes", "leader_lost", *(f"isr_{kind}s" for kind in _ISR_CHANGES.values()))

_ROWS: Final = pa.schema(
    [
        ("partition_key", pa.int64()), ("topic_id", pa.int32()), ("controller_epoch", pa.int32()),
        *((name, pa.int32()) for name in STATE_ORDER), ("leader", pa.int32()), ("isr", pa.int32()),
        ("is_new", pa.bool_()), ("is_counted", pa.bool_()), ("ts", pa.int64()), ("place", pa.int64()),
    ]
)  # fmt: skip
"""A state in short: ``partition_key`` holds the topic and the partition by number; ids and ISRs are numbered, -1 for
none. ``place`` orders the rows that are told in full elsewhere. The changes up to a state that ``is_counted`` are in
the counts already."""

_KEYS: Final = _ROWS.names[:-2]
_STEP: Final = (
    *STATE_ORDER, "ts", "controller_epoch", "leader", "isr", "is_counted", "row", "partition_key", "topic_id", "is_new",
)  # fmt: skip
"""The columns of a state by which it follows another, then its row among the reduced ones, and what tells its
incarnation."""

_Step = tuple[int, int, int, int, int, int, bool, int, int, int, bool]


class _Life(NamedTuple):
    """An incarnation: its partition, its topic's id and ``incarnation``, its deletion, and its states in order."""

    partition_key: int
    topic_id: int
    incarnation: int
    deleted: int | None
    steps: list[_Step]


_COMPACT_ROWS: Final = 1 << 22
_MANY: Final = 1 << 16
_NO_ID: Final = bytes(16)


class History:
    """The states of every partition of a cluster. Memory grows with the number of distinct states; see ``limit``."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._ids: dict[bytes, int] = {}
        self._isrs: dict[bytes, int] = {}
        self._states: list[pa.Table] = []
        self._rows = 0
        self._compact_at = _COMPACT_ROWS
        self._counts: Counter[tuple[int, str]] = Counter()

    def add(self, states: pa.Table, places: pa.Array | None = None) -> None:
        """Add states.

        Args:
            states: Rows of ``partition_states`` with ``ts``: when the first broker was told each, in us since 1970.
            places: A number for each row; of equal states the row with the lowest is named by ``changes``.
        """
        told = pc.is_valid(states["leader"])
        if "api_key" in states.column_names:
            told = pc.and_(told, pc.not_equal(states["api_key"], int(ApiKey.STOP_REPLICA)))
        states = states.append_column("place", pa.repeat(0, states.num_rows) if places is None else places)
        if not pc.all(told).as_py():
            states = states.filter(told)
        for batch in states.to_batches():
            isr = batch.column("isr")
            is_coded = pa.types.is_dictionary(isr.type)
            isr = pa.DictionaryArray.from_arrays(isr.indices, as_binary(isr.dictionary)) if is_coded else as_binary(isr)
            columns = [
                _partition_key(_numbered(batch.column("topic"), self._topics), batch.column("partition")),
                _ids_numbered(batch.column("topic_id"), self._ids),
                *(pc.fill_null(batch.column(name), -1) for name in ("controller_epoch", *STATE_ORDER, "leader")),
                _numbered(isr, self._isrs, runs=False).cast(pa.int32()),
                pc.fill_null(batch.column("is_new"), False),
                pa.repeat(pa.scalar(False), batch.num_rows),
                batch.column("ts"),
                batch.column("place"),
            ]
            self._append(pa.Table.from_arrays(columns, schema=_ROWS))

    def _append(self, states: pa.Table) -> None:
        if states.num_rows:
            self._states.append(states)
            self._rows += states.num_rows
            if self._rows > self._compact_at:
                self._compact_at = max(_COMPACT_ROWS, 2 * self._reduced().num_rows)

    def _reduced(self) -> pa.Table:
        """Return the states, each once, with ISRs numbered in their order.

        Those of deleted partitions are there once a time, since others may follow the deletion.
        """
        if not self._states:
            return _ROWS.empty_table()
        every = pa.concat_tables(self._states)
        deleted = pc.unique(every["partition_key"].filter(pc.equal(every["leader"], BEING_DELETED)))
        keys = list(_KEYS)
        if len(deleted):
            cut = pc.if_else(pc.is_in(every["partition_key"], value_set=deleted), every["ts"], 0)
            every, keys = every.append_column("cut", cut), [*keys, "cut"]
        found = _each_once(every, keys)
        ranks = {isr: rank for rank, isr in enumerate(sorted(self._isrs))}
        ranked = pa.array([ranks[isr] for isr in self._isrs], pa.int32()).take(_known(found["isr"]))
        self._isrs = ranks
        self._states = [found.set_column(_KEYS.index("isr"), "isr", pc.fill_null(ranked, -1))]
        self._rows = found.num_rows
        return self._states[0]

    def _lives(self, rows: pa.Table) -> Iterator[_Life]:
        """Yield the incarnations of the partitions in reduced rows; those of one partition follow each other."""
        ids = [*self._ids, None]  # the last is that of -1
        rows = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        rows = rows.sort_by([(name, "ascending") for name in ("partition_key", "ts", "place")]).select(_STEP)
        for key, told in groupby(rows_of(rows), itemgetter(8)):
            lives = Incarnations()
            found: dict[Incarnation, dict[tuple[int, ...], _Step]] = defaultdict(dict)
            life, of = None, -1
            for step in told:
                epoch, version, ts, controller, leader, isr, is_counted, _row, _key, topic_id, is_new = step
                if leader == BEING_DELETED:
                    lives.end(ids[topic_id], ts)
                    continue
                if life is None or topic_id != of or life.deleted is not None:  # else it goes on
                    life, of = lives.of(ids[topic_id], (epoch, version), ts, is_new=is_new), topic_id
                    states = found[life]
                states.setdefault((epoch, version, controller, leader, isr, is_counted), step)
            nameless = 0
            for life in lives:
                of = -1 if life.topic_id is None else self._ids[life.topic_id]
                yield _Life(key, of, 0 if of >= 0 else nameless, life.deleted, _in_order(found[life].values()))
                nameless += of < 0

    def counts(self, most: int) -> Counts:
        """Count the changes.

        Args:
            most: The number of partitions to list.

        Returns:
            Totals: ``partitions``, ``partitions_moved`` and one number a kind: ``leader_changes``, ``leader_lost`` (of
            these: to no leader), ``isr_shrinks``, ``isr_expands``, ``isr_swaps``. And the partitions with the most
            leader changes, each with ``topic``, ``partition`` and the same numbers.
        """
        counts = Counter(self._counts)
        plain, rest = self._by_need(self._reduced())
        self._count(plain, plain["partition_key"].combine_chunks(), counts)
        partitions = {life.partition_key for life in self._counted(rest, counts) if life.steps}
        partitions.update(pc.unique(plain["partition_key"]).to_pylist())
        of_each: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        totals = dict.fromkeys(COUNTS, 0)
        for (key, kind), count in counts.items():
            of_each[key][kind] = count
            totals[kind] += count
        topics = list(self._topics)
        restless = [
            {"topic": topics[key >> 32], "partition": _signed(key), **count}
            for key, count in of_each.items()
            if count["leader_changes"]
        ]
        known = {"partitions": len(partitions), "partitions_moved": len(restless)}
        return known | totals, most_changed(restless, most)

    @staticmethod
    def _by_need(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Split reduced rows: partitions whose epochs alone tell the order of their states, sorted, and all others.

        Most have one topic id and one state an epoch: to read them state by state takes five times as long.
        """
        rows = rows.sort_by([(name, "ascending") for name in ("partition_key", *STATE_ORDER)])
        key, topic_id, leader, isr = (
            rows[name].combine_chunks() for name in ("partition_key", "topic_id", "leader", "isr")
        )
        same = {name: pc.equal(rows[name][1:], rows[name][:-1]).combine_chunks() for name in _KEYS}
        is_other = pc.invert(reduce(pc.and_, (same[name] for name in ("controller_epoch", "leader", "isr"))))
        is_tied = reduce(pc.and_, (is_other, *(same[name] for name in STATE_ORDER)))
        odd = pc.and_(same["partition_key"], pc.or_(pc.invert(same["topic_id"]), is_tied))
        unsure = reduce(
            pc.or_,
            [
                rows["is_counted"].combine_chunks(),
                pc.less(topic_id, 0),
                pc.less(isr, 0),
                pc.equal(leader, BEING_DELETED),
            ],
        )
        found = pc.unique(pa.concat_arrays([key[1:].filter(odd), key.filter(unsure)]))
        is_rest = pc.is_in(key, value_set=found)
        return rows.filter(pc.invert(is_rest)), rows.filter(is_rest)

    def _counted(self, rows: pa.Table, counts: Counter[tuple[int, str]]) -> Iterator[_Life]:
        """Yield the incarnations in reduced rows; at the end their changes are in the counts."""
        numbers, lived = array("q"), array("q")
        for number, life in enumerate(self._lives(rows)):
            begin = next((place for place, step in enumerate(life.steps) if step[6]), 0)
            numbers.extend(step[7] for step in life.steps[begin:])
            lived.extend([number] * (len(life.steps) - begin))
            yield life
        self._count(rows.take(pa.array(numbers, pa.int64())), pa.array(lived, pa.int64()), counts)

    def _count(self, steps: pa.Table, lived: pa.Array, counts: Counter[tuple[int, str]]) -> None:
        """Add changes to the counts, by partition and kind: of states in order, and the incarnation of each."""
        within = pc.equal(lived[1:], lived[:-1])
        key, leader, isr = (steps[name].combine_chunks() for name in ("partition_key", "leader", "isr"))
        moved = pc.and_(within, pc.not_equal(leader[1:], leader[:-1]))
        kind, _removed, _added = self._isr_changes(isr[:-1].filter(within), isr[1:].filter(within))
        kinds = {"leader_changes": moved, "leader_lost": pc.and_(moved, pc.equal(leader[1:], NO_LEADER))}
        of_kind = {name: key[1:].filter(mask) for name, mask in kinds.items()}
        of_kind |= {
            f"isr_{name}s": key[1:].filter(within).filter(pc.equal(kind, name)) for name in _ISR_CHANGES.values()
        }
        for name, keys in of_kind.items():
            for found in pc.value_counts(keys).to_pylist():
                counts[found["values"], name] += found["counts"]

    def _isr_changes(self, before: pa.Array, after: pa.Array) -> Iterator[pa.Array]:
        """The kind of change from one ISR to the next, and the brokers that left and came, by the ISRs' numbers.

        All are null where an ISR is unknown or none was before, the kind is too where only the order differs.
        """
        isrs = list(self._isrs)
        width = max(len(isrs), 1)
        known = pc.and_(pc.greater_equal(before, 0), pc.greater_equal(after, 0))
        pairs = pc.add(pc.multiply(before.cast(pa.int64()), width), after.cast(pa.int64()))
        coded = pc.if_else(known, pairs, None).dictionary_encode()
        found = [_isr_change(isrs[pair // width], isrs[pair % width]) for pair in coded.dictionary.to_pylist()]
        for place, kind in enumerate((pa.string(), INTS, INTS)):
            yield pa.array([change[place] for change in found], kind).take(coded.indices)

    def changes(self, cluster: str, full: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the table ``CHANGES``.

        Args:
            cluster: The cluster's name.
            full: The states that were added, with ``replicas``.
            rows: The requests that told them: ``ts``, ``controller_id`` and ``frame_id``. A place that was given with a
                state is the number of such a row in the upper half, and that of a row of ``full`` in the lower.
        """
        lives, steps_of, numbers = [], array("q"), array("q")
        states = self._reduced()
        for number, life in enumerate(self._lives(states)):
            lives.append(life[:-1])
            steps_of.extend([number] * len(life.steps))
            numbers.extend(step[7] for step in life.steps)
        count = len(numbers)
        if not count:
            return CHANGES.empty_table()
        steps = states.take(pa.array(numbers, pa.int64()))
        lived = pa.array(steps_of, pa.int64())
        of = [pa.array(list(values), kind) for values, kind in zip(zip(*lives, strict=True), _LIFE_TYPES, strict=True)]
        key, topic_id, incarnation, deleted = (values.take(lived) for values in of)
        place = steps["place"].combine_chunks()
        told = full.select(["isr", "replicas"]).take(pc.bit_wise_and(place, 0xFFFFFFFF))
        request = rows.take(pc.shift_right(place, 32))
        is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(lived[1:], lived[:-1])])
        former = {
            name: pc.if_else(is_first, None, _shifted(steps[name].combine_chunks()))
            for name in ("leader", *STATE_ORDER, "isr")
        }
        kind, removed, added = self._isr_changes(pc.fill_null(former["isr"], -1), steps["isr"].combine_chunks())
        ts = steps["ts"].combine_chunks()
        following = pc.if_else(_next(is_first), None, _next(ts))
        epochs = {name: steps[name].combine_chunks() for name in ("controller_epoch", *STATE_ORDER, "leader")}
        columns: dict[str, Any] = {
            "cluster": pa.repeat(pa.scalar(cluster), count),
            "topic": pa.array(list(self._topics), pa.string()).take(pc.shift_right(key, 32)),
            "topic_id": pa.array(list(self._ids), pa.binary()).take(_known(topic_id)),
            "partition": _partitions(key),
            "incarnation": incarnation,
            **epochs,
            "partition_epoch": _known(epochs["partition_epoch"]),
            "isr": told["isr"].combine_chunks(),
            "replicas": told["replicas"].combine_chunks(),
            "ts": ts,
            "controller_id": request["controller_id"].combine_chunks(),
            "frame_id": request["frame_id"].combine_chunks(),
            "deleted_ts": deleted,
            "valid_to": pc.min_element_wise(following, deleted),
            "former_leader": former["leader"],
            "former_leader_epoch": former["leader_epoch"],
            "former_partition_epoch": former["partition_epoch"],
            "isr_change": kind,
            "removed": removed,
            "added": added,
        }
        return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in CHANGES], schema=CHANGES)

    def limit(self, most: int) -> None:
        """Beyond ``most`` distinct states count their changes, and keep the newest state of each incarnation alone.

        States that are added later with lower epochs than those are left out.
        """
        states = None if self._rows <= most else self._reduced()
        if states is None or states.num_rows <= most:
            return
        kept: list[tuple[int, int, bool]] = []
        for _key, group in groupby(self._counted(states, self._counts), itemgetter(0)):
            lives = list(group)
            for life in lives:
                if life.steps:
                    kept.append((life.steps[-1][7], life.topic_id, True))
                    if len(lives) > 1:  # its begin tells it from the one before
                        kept.append((life.steps[0][7], life.topic_id, False))
        chosen = table_of(kept, _KEPT)
        some = states.take(chosen["row"])
        for name in ("topic_id", "is_counted"):
            some = some.set_column(_KEYS.index(name), name, chosen[name])
        self._states = [states.filter(pc.equal(states["leader"], BEING_DELETED)), some]
        self._rows = sum(table.num_rows for table in self._states)
        self._compact_at = _COMPACT_ROWS

    def reduced(self) -> pa.Table:
        """Return the states, each once, of the schema ``REDUCED``: another history takes them for the whole."""
        rows = self._reduced().combine_chunks()
        key = rows["partition_key"].combine_chunks()
        columns = {"partition": _partitions(key).cast(pa.int32())}
        for name, numbers, values in (
            ("topic", pc.shift_right(key, 32).cast(pa.int32()), self._topics),
            ("topic_id", _known(rows["topic_id"].combine_chunks()), self._ids),
            ("isr", _known(rows["isr"].combine_chunks()), map(numbers_in, self._isrs)),
        ):
            of = pa.array(list(values), REDUCED.field(name).type.value_type)
            columns[name] = pa.DictionaryArray.from_arrays(numbers, of)
        arrays = [columns[name] if name in columns else rows[name] for name in REDUCED.names]
        return pa.Table.from_arrays(arrays, schema=REDUCED)


_CODED: Final = ("topic", "topic_id", "isr")
REDUCED: Final = pa.schema(
    [
        *(
            pa.field(each.name, pa.dictionary(pa.int32(), each.type)) if each.name in _CODED else each
            for each in TOLD
            if each.name != "replicas"
        ),
        pa.field("ts", pa.int64()),
    ]
)
"""States with the time at which the first broker was told of each, in us since 1970; names and ISRs once each."""

_LIFE_TYPES: Final = (pa.int64(), pa.int32(), pa.int32(), pa.int64())
_KEPT: Final = pa.schema([("row", pa.int64()), ("topic_id", pa.int32()), ("is_counted", pa.bool_())])


def most_changed(rows: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the first of partitions with their counts, those first whose leaders changed most."""
    order = lambda row: (-row["leader_changes"], -row["isr_shrinks"], row["topic"], row["partition"])  # noqa: E731
    return sorted(rows, key=order)[:most]


def changes(read: Reader) -> pa.Table:
    """Return the table ``CHANGES`` of resolved rows."""
    requests = pa.concat_tables(read("requests", SENT_COLUMNS))
    return changes_of(requests, pa.concat_tables(read("partition_states", ("body_id", "api_key", *TOLD.names))))


def changes_of(requests: pa.Table, states: pa.Table) -> pa.Table:
    """Return the table ``CHANGES``.

    Args:
        requests: Rows of ``requests`` with ``SENT_COLUMNS``; those that no broker refused count.
        states: Rows of ``partition_states`` with ``body_id``, ``api_key`` and the columns of ``TOLD``.
    """
    states = states.filter(pc.is_valid(states["leader"]))
    wanted = pc.and_(pc.is_valid(requests["body_id"]), pc.equal(pc.fill_null(requests["error_code"], 0), 0))
    sent = requests.filter(pc.and_(wanted, pc.is_in(requests["api_key"], value_set=_TELLING)))
    tables = [CHANGES.empty_table()]
    for cluster in pc.unique(sent["cluster"]).to_pylist():
        first = sent.filter(pc.equal(sent["cluster"], cluster)) if cluster is not None else sent
        first = first.sort_by([("ts", "ascending"), ("frame_id", "ascending")])
        first = first.append_column("row", pa.array(range(first.num_rows), pa.int64()))
        rows = first.group_by("body_id", use_threads=False).aggregate([("row", "min")])
        at = pc.index_in(states["body_id"], value_set=rows["body_id"].combine_chunks())
        row = rows["row_min"].take(at)
        told = states if not row.null_count else states.filter(pc.is_valid(row))
        tables.append(folded(cluster, told, first, row.drop_null().combine_chunks()))
    return pa.concat_tables(tables)


def folded(cluster: str, states: pa.Table, requests: pa.Table, numbers: pa.Array) -> pa.Table:
    """Return the table ``CHANGES`` of a cluster.

    Args:
        cluster: Its name.
        states: The states, with the columns of ``TOLD``.
        requests: The requests in their order: ``ts``, ``frame_id``, ``controller_id``.
        numbers: The row of the first request that told each state.
    """
    history = History()
    states = states.select(TOLD.names).combine_chunks()
    times = requests["ts"].cast(pa.int64()).combine_chunks()
    places = pc.bit_wise_or(pc.shift_left(numbers.cast(pa.int64()), 32), pa.array(range(len(numbers)), pa.int64()))
    history.add(states.append_column("ts", times.take(numbers)), places)
    return history.changes(cluster, states, requests)


_TELLING: Final = pa.array([int(ApiKey.FETCH), int(ApiKey.LEADER_AND_ISR), int(ApiKey.UPDATE_METADATA)], pa.int16())


def _numbered(values: pa.Array, known: dict[Any, int], *, runs: bool = True) -> pa.Array:
    """Number values; those that are not ``known`` are added; null is -1.

    Args:
        values: Text or bytes, or a dictionary of them.
        known: Takes new values.
        runs: Whether equal values mostly follow each other: to compare neighbours costs less than to hash every row.
    """
    if runs and not pa.types.is_dictionary(values.type):
        ends = pc.run_end_encode(values)
        numbers = _numbered(ends.values, known, runs=False)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends.run_ends, numbers))
    coded = values.dictionary_encode()
    numbers = pa.array([known.setdefault(value, len(known)) for value in coded.dictionary.to_pylist()], pa.int64())
    found = numbers.take(coded.indices)
    return pc.fill_null(found, -1) if found.null_count else found


def _each_once(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Return rows that differ in their keys, each with its least place and time.

    Those of some partitions tell whether most differ: such are sorted then, which takes a third of the time.
    """
    some = rows.filter(pc.equal(pc.bit_wise_and(rows["partition_key"], 15), 0)) if rows.num_rows > _MANY else rows[:0]
    if 4 * some.group_by(keys).aggregate([]).num_rows <= 3 * some.num_rows:
        found = rows.group_by(keys).aggregate([("ts", "min"), ("place", "min")])
        return found.rename_columns([name.removesuffix("_min") for name in found.column_names]).select(_ROWS.names)
    order = dict.fromkeys(("partition_key", *STATE_ORDER, *keys, "place", "ts"), "ascending")
    rows = rows.combine_chunks().sort_by(list(order.items()))
    is_same = reduce(pc.and_, (pc.equal(rows[name][1:], rows[name][:-1]).combine_chunks() for name in keys))
    return rows.filter(pa.concat_arrays([pa.array([True]), pc.invert(is_same)])).select(_ROWS.names)


def _ids_numbered(ids: pa.Array, known: dict[bytes, int]) -> pa.Array:
    """Number topic ids; none, or one of zeros, is -1."""
    if not pa.types.is_dictionary(ids.type):
        ids = pc.if_else(pc.equal(ids, pa.scalar(_NO_ID, ids.type)), None, ids)
    return _numbered(ids, known).cast(pa.int32())


def _shifted(values: pa.Array) -> pa.Array:
    """Return the value before each; that before the first is the first."""
    return pa.concat_arrays([values[:1], values[:-1]])


def _next(values: pa.Array) -> pa.Array:
    """Return the value after each; after the last there is none."""
    return pa.concat_arrays([values[1:], pa.nulls(1, values.type)])


def _partition_key(topics: pa.Array, partitions: pa.Array) -> pa.Array:
    """Topic number in the upper half, the partition's 32 bits in the lower."""
    return pc.bit_wise_or(pc.shift_left(topics, 32), pc.bit_wise_and(partitions.cast(pa.int64()), 0xFFFFFFFF))


def _known(numbers: pa.Array) -> pa.Array:
    """Return numbers with null in place of negative ones."""
    return pc.if_else(pc.less(numbers, 0), None, numbers)


def _partitions(keys: pa.Array) -> pa.Array:
    """The partitions in keys."""
    numbers = pc.bit_wise_and(keys, 0xFFFFFFFF)
    return pc.if_else(pc.greater(numbers, 0x7FFFFFFF), pc.subtract(numbers, 1 << 32), numbers)


def _signed(key: int) -> int:
    partition = key & 0xFFFFFFFF
    return partition - (1 << 32) if partition >> 31 else partition


def _in_order(states: Collection[_Step]) -> list[_Step]:
    """Sort the states of an incarnation, without those whose ISR one log does not print where another does.

    A state without a partition epoch is the same as any of its leader's epoch.
    """
    if min((step[5] for step in states), default=0) >= 0:
        return sorted(states)
    printed = [(epoch, version, leader) for epoch, version, _ts, _by, leader, isr, *_ in states if isr >= 0]
    known = {*printed, *((epoch, -1, leader) for epoch, _version, leader in printed)}
    return sorted(step for step in states if step[5] >= 0 or (*step[:2], step[4]) not in known)


@lru_cache(1 << 14)
def _isr_change(before: bytes, after: bytes) -> tuple[str | None, list[int], list[int]]:
    """The kind of change from one ISR to the next, the brokers that left, and those that came."""
    old, new = numbers_in(before), numbers_in(after)
    left, came = [broker for broker in old if broker not in new], [broker for broker in new if broker not in old]
    return _ISR_CHANGES.get((bool(left), bool(came))), left, came
