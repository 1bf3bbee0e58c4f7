"""Makes table files of captures in three stages, each of which many tasks may do at once, in any process.

    gather   a scan -> a piece: its tables without brokers' ids, and its distinct bodies, staged on disk
    relate   a piece, and the brokers and epochs of all pieces -> files of requests, responses, errors, frames
    write_bodies   bodies that no other piece settles -> files of bodies and partition states

Between the stages the caller moves few rows: ``learn`` joins the facts of all pieces, and a copy of each distinct body
is chosen from the claims that ``relate`` makes. Each task writes into a directory of its own and returns the names of
its files: files of a failed task are ignored.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.pipeline.staging import StagedTables, read_bodies, read_staged
from kproto.tables.arrays import BATCH_BYTES, rows_of, slices, with_column
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.clusters import NODE
from kproto.tables.decoding import decode
from kproto.tables.places import place_of
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.reading import CHUNK_BYTES, TableReader, stretches
from kproto.tables.relations import broker_ids_of, wanted_partitions
from kproto.tables.schemas import BODIES, COUNTS, STAGED, TABLES
from kproto.tables.writing import TableFiles
from kproto.verdicts.epochs import Epochs
from kproto.verdicts.stale import epochs_in, learn_epochs
from kproto.verdicts.summary import ACCEPTED, Figures, first_accepted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

RELATED: Final = ("requests", "responses", "partition_errors", "frames")
"""The tables whose rows belong to a request each."""

SMALL_TABLES: Final = ("brokers", "live_brokers", "captures", "bad_inputs")
"""Tables with few rows for each capture, which are read directly from the pieces."""

CLAIMS: Final = pa.schema(
    [
        ("body_id", pa.binary()),
        ("kept", pa.bool_()),
        ("accepted_us", pa.int64()),
        ("ts_ns", pa.int64()),
        ("frame_id", pa.binary()),
        *STAGED,
    ]
)
"""The bodies of a piece: whether a wanted frame has it, when the first broker accepted it (null: none), when and in
which frame it was first sent, and where it is staged in this piece."""


DROPPED: Final = "dropped"
"""The requests of a piece, by frame, that are not written: other rows tell as much of them."""

_DAY_NS: Final = 86_400_000_000_000

CHOSEN: Final = ("body_id", "accepted_us", "ts_ns", "piece", "batch", "row")
"""The fields of a body that ``write_bodies`` needs."""


@dataclass(slots=True)
class StagedPart:
    """The rows of a part of the captures, staged by ``gather``.

    Attributes:
        path: Its directory.
        requests: The number of its requests.
        facts: Its facts about brokers' addresses.
        seen: The epochs in its requests, see ``epochs_in``.
        body_bytes: The bytes of its distinct bodies.
    """

    path: str
    requests: int
    facts: BrokerFacts
    seen: pa.Table
    body_bytes: int


@dataclass(slots=True)
class BrokersAndEpochs:
    """The brokers' addresses and the epochs of all pieces together; and ``Joiner.connections``."""

    directory: BrokerDirectory
    seen: Epochs
    connections: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class TaskOutput:
    """The files and figures of a task, or of several.

    Attributes:
        figures: The summary's figures of the rows.
        files: Rows by file, below the directory of each task.
        bodies: The number of distinct bodies that were settled.
        claims: The number of distinct bodies in the pieces that were related.
        histories: The tasks' files of distinct states, whose history is not in ``figures``, and the number of states.
        history_parts: The number of batches in each of those files: the n-th of all have the same partitions.
        addresses: Capture point, IP and port that the requests were sent to.
        spans: The first and the last time (us) in each file with times, by its path.
    """

    figures: Figures
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    bodies: int = 0
    claims: int = 0
    histories: dict[str, int] = field(default_factory=dict)
    history_parts: int = 0
    addresses: set[tuple[str, str, int]] = field(default_factory=set)
    spans: dict[str, list[int]] = field(default_factory=dict)

    def merge(self, other: TaskOutput) -> None:
        """Add the files and figures of other tasks."""
        self.figures.merge(other.figures)
        self.files |= other.files
        self.bodies += other.bodies
        self.claims += other.claims
        self.histories |= other.histories
        self.history_parts = max(self.history_parts, other.history_parts)
        self.addresses |= other.addresses
        self.spans |= other.spans


def gather(
    batches: Iterable[pa.RecordBatch], directory: Place, filters: Filters, cluster: str = DEFAULT_CLUSTER
) -> StagedPart:
    """Stage a scan.

    Args:
        batches: Of the schema ``SCAN``. A body's first frame here has its payload; requests come before responses.
        directory: Where pieces go; the piece makes a directory of its own in it.
        filters: The requests to keep. Brokers are filtered later, when their ids are known.
        cluster: The declared cluster of the captures.
    """
    path = directory / f"piece-{uuid.uuid4().hex}"
    staged = StagedTables(path)
    facts = BrokerFacts()
    reader = TableReader(replace(filters, brokers=frozenset()), facts, states=False, cluster=cluster)
    bodies = _StagedBodies(staged, str(path))
    requests = 0
    seen: list[pa.Table] = []
    for stretch, last in stretches(batches, CHUNK_BYTES):
        tables = reader.tables(stretch, last=last)
        bodies.add(reader.given)
        for name in (*RELATED, *SMALL_TABLES):
            staged.write(name, _one_batch(tables[name]))
        requests += tables["requests"].num_rows
        seen.append(tables["requests"])
        seen = [epochs_in(seen)]
    body_bytes = bodies.close()
    staged.close()
    return StagedPart(str(path), requests, facts, seen[0], body_bytes)


class _StagedBodies:
    """Stages the distinct bodies of a piece; remembers the frame in which each was first sent."""

    def __init__(self, staged: StagedTables, piece: str) -> None:
        self._staged = staged
        self._piece = piece
        self._batches = 0
        self._first: dict[bytes, tuple[int, bytes, dict[str, Any]]] = {}

    def add(self, given: pa.Table) -> None:
        """Add bodies as ``first_bodies`` gives them."""
        keys = list(rows_of(given, ("body_id", "ts_ns", "frame_id")))
        known = [self._first.get(body_id) for body_id, *_sent in keys]
        fresh = [row for row, key in enumerate(keys) if (of := known[row]) is None or key[1:] < of[:2]]
        bodies = given.select(BODIES.names)
        batch = _one_batch(bodies if len(fresh) == len(keys) else bodies.take(pa.array(fresh, pa.int64())))
        done = 0
        for part in slices(batch, batch.nbytes, BATCH_BYTES):
            self._staged.write("bodies", part)
            for row, size in enumerate(pc.binary_length(part.column("payload")).to_pylist()):
                body_id, ts_ns, frame_id = keys[fresh[done + row]]
                place = {"piece": self._piece, "batch": self._batches, "row": row, "bytes": size}
                self._first[body_id] = ts_ns, frame_id, place
            done += part.num_rows
            self._batches += 1

    def close(self) -> int:
        """Stage the claims, of which no body is known to be kept or accepted yet; return the bytes of the bodies."""
        first = self._first.values()
        columns = [
            pa.array(self._first, pa.binary()),
            pa.repeat(pa.scalar(False), len(first)),
            pa.nulls(len(first), pa.int64()),
            pa.array([ts_ns for ts_ns, _frame, _place in first], pa.int64()),
            pa.array([frame_id for _ts, frame_id, _place in first], pa.binary()),
            *pa.array([place for _ts, _frame, place in first], STAGED).flatten(),
        ]
        claims = pa.Table.from_arrays(columns, schema=CLAIMS)
        in_place = claims.sort_by([(name, "ascending") for name in ("piece", "batch", "row")])
        self._staged.write("claims", _one_batch(in_place))
        return sum(place["bytes"] for _ts, _frame, place in first)


def learn(pieces: Iterable[StagedPart], filters: Filters, earlier: Iterable[BrokerFacts] = ()) -> BrokersAndEpochs:
    """Join the facts of all pieces, and of captures that were read ``earlier``.

    Raises:
        ConfigurationError: The ids that the user gave contradict the traffic.
    """
    pieces = list(pieces)
    directory = BrokerDirectory(filters.broker_ids)
    BrokerFacts.joined([*earlier, *(piece.facts for piece in pieces)]).teach(directory)
    seen = Epochs()
    for piece in pieces:
        found = piece.seen
        if filters.brokers:
            anywhere = pa.repeat(pa.scalar(""), found.num_rows)
            sent = found.append_column("ts", found["first"]).append_column("capture", anywhere)
            targets = broker_ids_of(directory, sent)
            found = found.filter(pc.is_in(targets, value_set=_ids(filters.brokers)))
        learn_epochs(seen, found)
    return BrokersAndEpochs(directory, seen)


def relate(piece: str, directory: Place, knowledge: BrokersAndEpochs, filters: Filters) -> tuple[TaskOutput, pa.Table]:
    """Write a piece's requests, responses, partition errors and frames, into a directory of the task's own in another.

    Returns:
        The task's files and figures; and the piece's ``CLAIMS``.
    """
    path = directory / f"task-{uuid.uuid4().hex}"
    files = TableFiles(path)
    dropped = [batch["frame_id"] for batch in read_staged(place_of(piece) / DROPPED, DROPPED)]
    left_out = pa.concat_arrays(dropped) if dropped else pa.array([], pa.binary())
    figures = Figures(knowledge.seen)
    accepted: list[pa.Table] = []
    kept: set[bytes] = set()
    addresses: set[tuple[str, str, int]] = set()
    for batches in zip(*(read_staged(place_of(piece), name) for name in RELATED), strict=True):
        tables = {name: pa.Table.from_batches([b]) for name, b in zip(RELATED, batches, strict=True)}
        tables = {name: with_connections(table, knowledge.connections) for name, table in tables.items()}
        tables = _with_brokers(without_requests(tables, left_out), knowledge.directory, filters)
        for name, table in tables.items():
            files.write(name, table)
        addresses.update(rows_of(tables["requests"], NODE))
        accepted.append(figures.add(tables))
        kept.update(pc.unique(tables["frames"]["body_id"]).drop_null().to_pylist())
    claims = pa.Table.from_batches(read_staged(place_of(piece), "claims"), CLAIMS)
    first = first_accepted(accepted)
    columns = {
        "kept": pc.is_in(claims["body_id"], value_set=pa.array(kept, pa.binary())),
        "accepted_us": first["ts"].take(pc.index_in(claims["body_id"], value_set=first["body_id"].combine_chunks())),
    }
    for name, column in columns.items():
        claims = with_column(claims, name, column)
    figures.requests.forget_epochs()
    made = TaskOutput(figures, {str(path): files.close()}, claims=claims.num_rows, addresses=addresses)
    made.spans = files.spans
    return made, claims


def without_requests(tables: Mapping[str, pa.Table], ids: pa.Array) -> dict[str, pa.Table]:
    """Return the related tables without some requests and all that belongs to them.

    A response of theirs that answers another request too belongs to that one.
    """
    if not len(ids):
        return dict(tables)
    requests = tables["requests"]
    theirs = pc.is_in(requests["frame_id"], value_set=ids)
    answers = requests.filter(theirs)["response_frame_id"].combine_chunks().drop_null()
    of_others = requests.filter(pc.invert(theirs))["response_frame_id"].combine_chunks()
    answers = answers.filter(pc.invert(pc.is_in(answers, value_set=of_others)))
    of_frames = pa.concat_arrays([ids, answers])
    return {
        name: table.filter(pc.invert(pc.is_in(table["frame_id"], value_set=of_frames if name == "frames" else ids)))
        for name, table in tables.items()
    }


def with_connections(table: pa.Table, connections: Mapping[bytes, bytes]) -> pa.Table:
    """Return rows with the ids of connections as the earliest recordings of these have them."""
    if connections and "losses" in table.column_names:
        losses = table["losses"].to_pylist()
        for loss in chain.from_iterable(losses):
            loss["conn_id"] = connections.get(loss["conn_id"], loss["conn_id"])
        return with_column(table, "losses", pa.array(losses, table.schema.field("losses").type))
    if not connections or "conn_id" not in table.column_names:
        return table
    former = table["conn_id"]
    at = pc.index_in(former, value_set=pa.array(connections, pa.binary()))
    column = pc.coalesce(pa.array(connections.values(), pa.binary()).take(at.combine_chunks()), former.combine_chunks())
    return with_column(table, "conn_id", column)


def _with_brokers(tables: dict[str, pa.Table], directory: BrokerDirectory, filters: Filters) -> dict[str, pa.Table]:
    """Add the ids of the receiving brokers, and keep the wanted brokers alone."""
    ids = broker_ids_of(directory, tables["requests"])
    tables["requests"] = with_column(tables["requests"], "broker_id", ids)
    if not filters.brokers:
        return tables
    others = pc.invert(pc.is_in(ids, value_set=_ids(filters.brokers)))
    return without_requests(tables, tables["requests"].filter(others)["frame_id"].combine_chunks())


def _ids(brokers: Iterable[int]) -> pa.Array:
    return pa.array(sorted(brokers), pa.int32())


def chosen_of(claims: pa.Table) -> list[dict[str, Any]]:
    """Return the rows that ``write_bodies`` takes, from the claims of one piece."""
    return claims.filter(claims["kept"]).select(CHOSEN).to_pylist()  # type: ignore[no-any-return]


def write_bodies(chosen: Iterable[Mapping[str, Any]], directory: Place, filters: Filters) -> TaskOutput:
    """Write bodies, rows with the columns ``CHOSEN``, each once among all tasks, and the partition states in them."""
    path = directory / f"task-{uuid.uuid4().hex}"
    files = TableFiles(path)
    made = TaskOutput(Figures())
    chosen = list(chosen)
    times = [{"body_id": row["body_id"], "ts": row["accepted_us"]} for row in chosen]
    accepted = pa.Table.from_pylist(times, schema=ACCEPTED)
    by_day: dict[int, list[Mapping[str, Any]]] = {}
    for row in chosen:
        by_day.setdefault(row["ts_ns"] // _DAY_NS, []).append(row)
    for number, of_day in sorted(by_day.items()):
        day = pa.scalar(number, pa.date32()).cast(pa.string()).as_py()
        for batch in read_bodies(of_day):
            bodies = pa.Table.from_batches([batch])
            files.write("bodies", bodies, day)
            made.bodies += bodies.num_rows
            requests = bodies.filter(pc.equal(bodies["direction"], "request"))
            for kind, rows in decode(requests.to_batches()):
                if kind == "state":
                    states = wanted_partitions(pa.Table.from_batches([rows]), filters)
                    files.write("partition_states", states, day)
                    made.figures.add_states(states, accepted)
    made.files[str(path)] = files.close()
    return made


def small_table(pieces: Iterable[str], name: str) -> pa.Table:
    """Return one of ``SMALL_TABLES``, of all pieces."""
    schema = TABLES[name]
    table = pa.Table.from_batches([batch for piece in pieces for batch in read_staged(place_of(piece), name)], schema)
    return merged_rows(name, table)


def merged_rows(name: str, table: pa.Table) -> pa.Table:
    """Return rows of one of ``SMALL_TABLES`` from several places, each once."""
    schema = TABLES[name]
    if name == "brokers":
        keys = [column for column in schema.names if column != "first_ts"]
        first = table.group_by(keys, use_threads=False).aggregate([("first_ts", "min")])
        table = first.rename_columns([*keys, "first_ts"]).select(schema.names).cast(schema)
    elif name == "captures":
        table = _merged_captures(table)
    elif name == "live_brokers":
        table = table.group_by(schema.names, use_threads=False).aggregate([]).cast(schema)
    return table


_MOST_SERVERS: Final = 2000


def _merged_captures(table: pa.Table) -> pa.Table:
    """The rows of ``captures`` with one for each label and file: what files have grown by was read by itself."""
    key = pc.binary_join_element_wise(table["cluster"], table["capture"], table["file"], "\0")
    counts = pc.value_counts(key.combine_chunks())
    several = pc.is_in(key, value_set=counts.field("values").filter(pc.greater(counts.field("counts"), 1)))
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in table.filter(several).to_pylist():
        key = row["cluster"], row["capture"], row["file"]
        known = found.setdefault(key, row)
        if known is row:
            continue
        known |= {name: known[name] + row[name] for name in COUNTS if None not in (known[name], row[name])}
        known["first_ts"] = min(filter(None, (known["first_ts"], row["first_ts"])), default=None)
        known["last_ts"] = max(filter(None, (known["last_ts"], row["last_ts"])), default=None)
        for name in ("losses", "senders", "controller_events"):
            known[name] = [*(known[name] or ()), *(row[name] or ())]
        both = [*(known["servers"] or ()), *(row["servers"] or ())]
        known["servers"] = [*{tuple(one.values()): one for one in both}.values()][:_MOST_SERVERS]
        known["assumed_zone"] = bool(known["assumed_zone"] or row["assumed_zone"])
        known |= {name: _added(known[name], row[name]) for name in ("not_read", "all_requests")}
    merged = pa.Table.from_pylist([*found.values()], table.schema)
    return pa.concat_tables([table.filter(pc.invert(several)), merged])


def _added(*lists: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Rows that end with a number, those that are else equal as one."""
    totals: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for row in chain.from_iterable(filter(None, lists)):
        *key, (count, number) = row.items()
        totals[*key, (count, 0)] += number
    return [dict(key) | {key[-1][0]: number} for key, number in sorted(totals.items())]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch, even if it is empty."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
