"""Folds what controllers told into the history of each partition: the one place that decides what changed, and when.

A history is the sequence of a partition's distinct states, by incarnation, in the order of epochs; clocks only date
them. Sets of states are reduced first: Arrow does that here, a ``groupBy`` in Spark. What begins and ends an
incarnation is decided in ``states``: of most partitions there is one, and columns suffice; the others are read state by
state.

The table ``changes`` is the whole history. Who led, when an ISR changed, what lasted how long, and a summary's counts
are selections from it.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import array_of, rows_of
from kproto.tables.schemas import INTS, TIME, column, described
from kproto.verdicts.stale import CLUSTER
from kproto.verdicts.states import BEING_DELETED, ISR_CHANGES, NO_LEADER, STATE_ORDER, Incarnations, isr_change

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

COUNTS: Final = ("leader_changes", "leader_lost", *(f"isr_{kind}s" for kind in ISR_CHANGES))

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
_DISTINCT: Final = ("life", "controller_epoch", *STATE_ORDER, "leader", "isr", "is_counted")
_ORDER: Final = ("life", *STATE_ORDER, "ts", "controller_epoch", "leader", "rank")
_COMPACT_ROWS: Final = 1 << 22
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
        self._counts: dict[tuple[str, int], dict[str, int]] = {}

    def add(self, states: pa.Table, places: pa.Array | None = None) -> None:
        """Add states.

        Args:
            states: Rows of ``partition_states`` with ``ts``: when the first broker was told each, in us since 1970.
            places: A number for each row; of equal states the row with the lowest is named by ``changes``.
        """
        told = pc.is_valid(states["leader"])
        if "api_key" in states.column_names:
            told = pc.and_(told, pc.not_equal(states["api_key"], int(ApiKey.STOP_REPLICA)))
        states = states.append_column("place", places if places is not None else _repeated(0, states.num_rows))
        if not pc.all(told).as_py():
            states = states.filter(told)
        for batch in states.to_batches():
            isr = _as_binary(batch.column("isr"))
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
        """Return the states, each once; of deleted partitions once a time, since others may follow the deletion."""
        if not self._states:
            return _ROWS.empty_table()
        every = pa.concat_tables(self._states)
        deleted = pc.unique(every["partition_key"].filter(pc.equal(every["leader"], BEING_DELETED)))
        keys = list(_KEYS)
        if len(deleted):
            cut = pc.if_else(pc.is_in(every["partition_key"], value_set=deleted), every["ts"], 0)
            every, keys = every.append_column("cut", cut), [*keys, "cut"]
        found = every.group_by(keys).aggregate([("ts", "min"), ("place", "min")])
        names = [name.removesuffix("_min") for name in found.column_names]
        self._states = [found.rename_columns(names).select(_ROWS.names)]
        self._rows = found.num_rows
        return self._states[0]

    def _by_life(self) -> tuple[pa.Table, list[tuple[int, int, int, int | None]]]:
        """Find the incarnation of each state.

        Returns:
            The states with a number ``life`` in place of the partition; and of each life the partition's key, the
            number of the topic's id, the incarnation and the time of the deletion.
        """
        every = self._reduced()
        ends = every.filter(pc.equal(every["leader"], BEING_DELETED))
        states = every.filter(pc.not_equal(every["leader"], BEING_DELETED)) if ends.num_rows else every
        keys = states.group_by("partition_key", use_threads=False).aggregate([("topic_id", "max")])
        ids = every.filter(pc.greater_equal(every["topic_id"], 0)).group_by("partition_key", use_threads=False)
        some = ids.aggregate([("topic_id", "min"), ("topic_id", "max")])
        several = some["partition_key"].filter(pc.not_equal(some["topic_id_min"], some["topic_id_max"]))
        deleted: dict[int, int] = {}
        if ends.num_rows:
            first = ends.group_by("partition_key", use_threads=False).aggregate([("ts", "min")])
            deleted = dict(rows_of(first, ("partition_key", "ts_min")))
            place = pc.index_in(states["partition_key"], value_set=first["partition_key"].combine_chunks())
            later = pc.fill_null(pc.greater(states["ts"], first["ts_min"].take(place)), False)
            nameless = pc.unique(every["partition_key"].filter(pc.less(every["topic_id"], 0)))
            more = pc.unique(states["partition_key"].filter(later))
            several = pa.chunked_array([*several.chunks, more.filter(pc.is_in(more, value_set=nameless))], pa.int64())
        apart = pc.unique(several)
        lives: list[tuple[int, int, int, int | None]] = [
            (key, topic_id, 0, deleted.get(key)) for key, topic_id in rows_of(keys, ("partition_key", "topic_id_max"))
        ]
        number = pc.index_in(states["partition_key"], value_set=keys["partition_key"].combine_chunks())
        states = states.append_column("life", number.cast(pa.int64()))
        if len(apart):
            mixed = pc.is_in(states["partition_key"], value_set=apart)
            marked = ends.append_column("life", _repeated(-1, ends.num_rows))
            marked = marked.filter(pc.is_in(marked["partition_key"], value_set=apart))
            read = self._read(pa.concat_tables([states.filter(mixed), marked]).sort_by("ts"), lives)
            states = pa.concat_tables([states.filter(pc.invert(mixed)), read])
        return states, lives

    def _read(self, rows: pa.Table, lives: list[tuple[int, int, int, int | None]]) -> pa.Table:
        """Read the states of some partitions one by one, in the order of time; add their incarnations to ``lives``."""
        ids = list(self._ids)
        found: dict[int, Incarnations] = defaultdict(Incarnations)
        of: list[Incarnation | None] = []
        names = ("partition_key", "topic_id", "leader", "ts", "is_new", *STATE_ORDER)
        for key, number, leader, ts, is_new, *epochs in rows_of(rows, names):
            topic_id = ids[number] if number >= 0 else None
            if leader == BEING_DELETED:
                found[key].end(topic_id, ts)
                of.append(None)
            else:
                of.append(found[key].of(topic_id, (epochs[0], epochs[1]), ts, is_new=is_new))
        numbers = {}
        for key, some in found.items():
            nameless = 0
            for life in some:
                numbers[id(life)] = len(lives)
                topic_id = life.topic_id
                number = -1 if topic_id is None else self._ids[topic_id]
                lives.append((key, number, 0 if number >= 0 else nameless, life.deleted))
                nameless += number < 0
        told = rows.filter(pc.not_equal(rows["leader"], BEING_DELETED))
        found_lives = array_of([numbers[id(life)] for life in of if life is not None], pa.int64())
        return told.set_column(told.column_names.index("life"), "life", found_lives)

    def _steps(self) -> tuple[pa.Table, list[tuple[int, int, int, int | None]]]:
        """Return the distinct states of each life in their order, with ``rank`` of their ISRs; and the lives."""
        states, lives = self._by_life()
        found = states.group_by(list(_DISTINCT)).aggregate([("ts", "min"), ("place", "min"), ("is_new", "max")])
        found = found.rename_columns([*_DISTINCT, "ts", "place", "is_new"])
        ranks = {number: rank for rank, (_isr, number) in enumerate(sorted(self._isrs.items()))}
        rank = array_of([ranks[number] for number in range(len(ranks))], pa.int32())
        found = found.append_column("rank", pc.fill_null(rank.take(_known(found["isr"])), -1))
        return _ordered(_with_isrs(found)), lives

    def counts(self, most: int) -> Counts:
        """Count the changes.

        Args:
            most: The number of partitions to list.

        Returns:
            Totals: ``partitions``, ``partitions_moved`` and one number a kind: ``leader_changes``, ``leader_lost`` (of
            these: to no leader), ``isr_shrinks``, ``isr_expands``, ``isr_swaps``. And the partitions with the most
            leader changes, each with ``topic``, ``partition`` and the same numbers.
        """
        steps, lives = self._steps()
        counts = self._counted(steps, lives)
        places = {(lives[life][0]) for life in pc.unique(steps["life"]).to_pylist()}
        totals = {kind: sum(count[kind] for count in counts.values()) for kind in COUNTS}
        moved = sum(count["leader_changes"] > 0 for count in counts.values())
        restless = [
            {"topic": topic, "partition": number, **count}
            for (topic, number), count in counts.items()
            if count["leader_changes"]
        ]
        return {"partitions": len(places), "partitions_moved": moved, **totals}, most_changed(restless, most)

    def _counted(
        self, steps: pa.Table, lives: Sequence[tuple[int, int, int, int | None]]
    ) -> dict[tuple[str, int], dict[str, int]]:
        """Count each partition's changes."""
        topics = list(self._topics)
        counts: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        counts.update({place: dict(count) for place, count in self._counts.items()})
        steps = _after_counted(steps)
        before, moved = _moves(steps)
        rows = steps.take(moved)
        led = pc.not_equal(before["leader"], rows["leader"])
        kinds = pa.table(
            {
                "life": rows["life"],
                "led": led,
                "lost": pc.and_(led, pc.equal(rows["leader"], NO_LEADER)),
                "isr": self._isr_changes(before["isr"], rows["isr"])[0],
            }
        )
        for row in kinds.group_by(kinds.column_names).aggregate([([], "count_all")]).to_pylist():
            key = lives[row["life"]][0]
            count = counts[topics[key >> 32], _signed(key)]
            for name, is_so in (("leader_changes", row["led"]), ("leader_lost", row["lost"])):
                count[name] += row["count_all"] if is_so else 0
            if row["isr"]:
                count[f"isr_{row['isr']}s"] += row["count_all"]
        return counts

    def _isr_changes(self, before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The kind of change from one ISR to the next, and the brokers that left and came, by the ISRs' numbers.

        All are null where an ISR is unknown or none was before, the kind is too where only the order differs.
        """
        isrs = [_brokers(isr) for isr in self._isrs]
        width = max(len(isrs), 1)
        known = pc.and_(pc.greater_equal(before, 0), pc.greater_equal(after, 0))
        pairs = pc.add(pc.multiply(before.cast(pa.int64()), width), after.cast(pa.int64()))
        pairs = pc.if_else(known, pairs, None)
        if isinstance(pairs, pa.ChunkedArray):
            pairs = pairs.combine_chunks()
        coded = pairs.dictionary_encode()
        kinds, removed, added = [], [], []
        for pair in coded.dictionary.to_pylist():
            old, new = isrs[pair // width], isrs[pair % width]
            kinds.append(isr_change(set(old), set(new)))
            removed.append([broker for broker in old if broker not in new])
            added.append([broker for broker in new if broker not in old])
        columns = (array_of(kinds, pa.string()), array_of(removed, INTS), array_of(added, INTS))
        kind, left, came = (values.take(coded.indices) for values in columns)
        return kind, left, came

    def changes(self, cluster: str, full: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the table ``CHANGES``.

        Args:
            cluster: The cluster's name.
            full: The states that were added, with ``replicas``.
            rows: The requests that told them: ``ts``, ``controller_id`` and ``frame_id``. A place that was given with a
                state is the number of such a row in the upper half, and that of a row of ``full`` in the lower.
        """
        steps, lives = self._steps()
        count = steps.num_rows
        if not count:
            return CHANGES.empty_table()
        life = steps["life"].combine_chunks()
        of = [array_of(list(values), kind) for values, kind in zip(zip(*lives, strict=True), _LIFE_TYPES, strict=True)]
        key, topic_id, incarnation, deleted = (values.take(life) for values in of)
        place = steps["place"].combine_chunks()
        told = full.select(["isr", "replicas"]).take(pc.bit_wise_and(place, 0xFFFFFFFF))
        request = rows.take(pc.shift_right(place, 32))
        is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(life[1:], life[:-1])])
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
            "topic": array_of(list(self._topics), pa.string()).take(pc.shift_right(key, 32)),
            "topic_id": array_of(list(self._ids), pa.binary()).take(_known(topic_id)),
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
        if self._rows <= most or self._reduced().num_rows <= most:
            return
        ends = self._reduced().filter(pc.equal(self._reduced()["leader"], BEING_DELETED))
        steps, lives = self._steps()
        self._counts = dict(self._counted(steps, lives))
        life = steps["life"].combine_chunks()
        keys, ids = (array_of([life[at] for life in lives], kind) for at, kind in ((0, pa.int64()), (1, pa.int32())))
        kept = steps.append_column("partition_key", keys.take(life)).append_column("topic_id", ids.take(life))
        kept = kept.set_column(kept.column_names.index("isr"), "isr", kept["rank"]).drop_columns("is_counted")
        self._isrs = {isr: number for number, isr in enumerate(sorted(self._isrs))}
        several = [key for key, count in Counter(life[0] for life in lives).items() if count > 1]
        changed, end = pc.not_equal(life[1:], life[:-1]), pa.array([True])
        begins = pc.is_in(kept["partition_key"], value_set=array_of(several, pa.int64()))
        begins = pc.and_(begins, pa.concat_arrays([end, changed]))
        place = ends.column_names.index("isr")
        self._states = [ends.set_column(place, "isr", _repeated(-1, ends.num_rows, pa.int32()))]
        for chosen, is_counted in ((pa.concat_arrays([changed, end]), True), (begins, False)):
            some = kept.filter(chosen)
            some = some.append_column("is_counted", pa.repeat(pa.scalar(is_counted), some.num_rows))
            self._states.append(some.select(_ROWS.names).cast(_ROWS))
        self._rows = sum(table.num_rows for table in self._states)
        self._compact_at = _COMPACT_ROWS

    def reduced(self) -> pa.Table:
        """Return the states, each once, of the schema ``REDUCED``: another history takes them for the whole."""
        rows = self._reduced()
        isrs = array_of([list(_brokers(isr)) for isr in self._isrs], INTS)
        columns: dict[str, Any] = {
            "topic": array_of(list(self._topics), pa.string()).take(pc.shift_right(rows["partition_key"], 32)),
            "topic_id": array_of(list(self._ids), pa.binary()).take(_known(rows["topic_id"])),
            "partition": _partitions(rows["partition_key"]),
            "isr": isrs.take(_known(rows["isr"])),
        }
        arrays = [columns[name] if name in columns else rows[name] for name in REDUCED.names]
        return pa.Table.from_arrays(
            [a.cast(field.type) for a, field in zip(arrays, REDUCED, strict=True)], schema=REDUCED
        )


REDUCED: Final = pa.schema([*(field for field in TOLD if field.name != "replicas"), pa.field("ts", pa.int64())])
"""States with the time at which the first broker was told of each, in us since 1970."""

_LIFE_TYPES: Final = (pa.int64(), pa.int32(), pa.int32(), pa.int64())


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
        first = first.append_column("row", array_of(range(first.num_rows), pa.int64()))
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
    places = pc.bit_wise_or(pc.shift_left(numbers.cast(pa.int64()), 32), array_of(range(len(numbers)), pa.int64()))
    history.add(states.append_column("ts", times.take(numbers)), places)
    return history.changes(cluster, states, requests)


_TELLING: Final = pa.array([int(ApiKey.FETCH), int(ApiKey.LEADER_AND_ISR), int(ApiKey.UPDATE_METADATA)], pa.int16())


def _numbered(values: pa.Array, known: dict[Any, int], *, runs: bool = True) -> pa.Array:
    """Number values; those that are not ``known`` are added; null is -1.

    Args:
        values: Text or bytes.
        known: Takes new values.
        runs: Whether equal values mostly follow each other: to compare neighbours costs less than to hash every row.
    """
    if runs:
        ends = pc.run_end_encode(values)
        numbers = _numbered(ends.values, known, runs=False)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends.run_ends, numbers))
    coded = values.dictionary_encode()
    numbers = array_of([known.setdefault(value, len(known)) for value in coded.dictionary.to_pylist()], pa.int64())
    found = numbers.take(coded.indices)
    return pc.fill_null(found, -1) if found.null_count else found


def _ids_numbered(ids: pa.Array, known: dict[bytes, int]) -> pa.Array:
    """Number topic ids; none, or one of zeros, is -1."""
    ids = pc.if_else(pc.equal(ids, pa.scalar(_NO_ID, ids.type)), None, ids)
    return _numbered(ids, known).cast(pa.int32())


def _repeated(number: int, count: int, kind: pa.DataType | None = None) -> pa.Array:
    return pa.repeat(pa.scalar(number, kind or pa.int64()), count)


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


def _as_binary(lists: pa.Array) -> pa.Array:
    """Convert lists of int32 to the bytes of their items, which compare and hash faster than lists."""
    offsets = pc.multiply(lists.offsets, pa.scalar(4, pa.int32()))
    items = lists.values
    values = items.buffers()[1]
    start = items.offset * 4
    data = values.slice(start) if values is not None else pa.py_buffer(b"")
    found = pa.Array.from_buffers(pa.binary(), len(lists), [None, offsets.buffers()[1], data])
    return pc.if_else(pc.is_valid(lists), found, None) if lists.null_count else found


def _brokers(isr: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(isr) // 4}i", isr)


def _with_isrs(steps: pa.Table) -> pa.Table:
    """Leave out states whose ISR is not known where it is known of the same state: one log prints it, another does not.

    A state without a partition epoch is the same as any of its leader's epoch.
    """
    unknown = steps.filter(pc.less(steps["isr"], 0))
    if not unknown.num_rows:
        return steps
    known = steps.filter(pc.greater_equal(steps["isr"], 0))
    keys = ["life", "leader", *STATE_ORDER]
    is_dated = pc.greater_equal(unknown["partition_epoch"], 0)
    left = [
        rows.join(known.select(same), same, join_type="left anti")
        for rows, same in ((unknown.filter(is_dated), keys), (unknown.filter(pc.invert(is_dated)), keys[:-1]))
    ]
    return pa.concat_tables([known, *left])


def _ordered(steps: pa.Table) -> pa.Table:
    """Sort the states of each life by epochs, then by their other columns.

    They mostly come in the order of their epochs, so that few lives are left to sort by more than the life.
    """
    steps = steps.combine_chunks()
    if steps.num_rows < 2:
        return steps
    steps = steps.take(pc.sort_indices(steps["life"]))
    earlier, later = steps.slice(0, steps.num_rows - 1), steps.slice(1)
    early = None
    for name in reversed(_ORDER[1:]):
        less = pc.less(later[name], earlier[name])
        early = less if early is None else pc.or_(less, pc.and_(pc.equal(later[name], earlier[name]), early))
    lives = pc.unique(later["life"].filter(pc.and_(pc.equal(earlier["life"], later["life"]), early)))
    if not len(lives):
        return steps
    mixed = pc.is_in(steps["life"], value_set=lives)
    sorted_ones = steps.filter(mixed).sort_by([(name, "ascending") for name in _ORDER])
    return pa.concat_tables([steps.filter(pc.invert(mixed)), sorted_ones]).combine_chunks()


def _after_counted(steps: pa.Table) -> pa.Table:
    """Leave out the states before the one up to which the changes of a life are counted."""
    if not pc.any(steps["is_counted"]).as_py():
        return steps
    rows = array_of(range(steps.num_rows), pa.int64())
    counted = rows.filter(steps["is_counted"].combine_chunks())
    life = steps["life"].combine_chunks()
    begin = counted.take(pc.index_in(life, value_set=life.take(counted)))
    return steps.filter(pc.fill_null(pc.greater_equal(rows, begin), True))


def _moves(steps: pa.Table) -> tuple[pa.Table, pa.Array]:
    """The states before those whose leader or ISR differs from theirs, and the numbers of these."""
    earlier, later = steps.slice(0, max(steps.num_rows - 1, 0)), steps.slice(1)
    moved = pc.or_(pc.not_equal(earlier["leader"], later["leader"]), pc.not_equal(earlier["isr"], later["isr"]))
    rows = pc.and_(pc.equal(earlier["life"], later["life"]), moved)
    numbers = array_of(range(1, steps.num_rows), pa.int64()).filter(rows.combine_chunks())
    return earlier.filter(rows), numbers
