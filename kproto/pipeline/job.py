"""Recordings -> tables on disk: each is read once, the states of each distinct body are written once.

A later run into the same directory reads what is new to the tables: recordings of other content, whatever their names,
and what known ones have grown by. It writes their files, and a manifest that lists the former files too. Recordings of
one place are joined by their connections, in whatever order they come.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import kproto
from kproto.capture import BadInput
from kproto.capture.capture_points import capture_files
from kproto.capture.copies import within_others
from kproto.capture.file_ends import FileEnds
from kproto.capture.summary import KRAFT_TRAFFIC
from kproto.errors import CaptureError, ConfigurationError
from kproto.pipeline.captures import gather_parts, selection_of
from kproto.pipeline.changed import ChangedTables
from kproto.pipeline.facts import changes_ids, facts_as_bytes, stored_facts
from kproto.pipeline.metadata_log import LogPlan, is_of_log, logs_among, make_log, plan_log, without_logs
from kproto.pipeline.settling import settle, without_superseded
from kproto.pipeline.stages import SMALL_TABLES, gather, learn, merged_rows, small_table, with_connections
from kproto.pipeline.staging import read_staged
from kproto.pipeline.tasks import SETTLED_ON_DRIVER, count_changes, make_tables
from kproto.tables.arrays import plain_text, rows_of, with_column
from kproto.tables.brokers import BrokerFacts
from kproto.tables.files import expand, open_file
from kproto.tables.filters import Filters
from kproto.tables.joining import MENDED, Edge, Joiner, border_rows, borders_of, going_on, matched
from kproto.tables.known import KnownTable
from kproto.tables.places import MANIFEST, place_of, read_whole, write_whole
from kproto.tables.points import DEFAULT_CLUSTER, checked_cluster
from kproto.tables.reading import last_listing, shows_kraft, why_nothing, without_kraft_note
from kproto.tables.recordings import Known, read_together
from kproto.tables.relations import JUDGED_BY, broker_ids_of, judged_together
from kproto.tables.schemas import KNOWN, SCAN
from kproto.tables.stored import (
    SUMMARY,
    StoredTables,
    current_tables,
    read_parquet,
    readable,
    stored_pieces,
    whole_table,
)
from kproto.verdicts.states import micros
from kproto.verdicts.summary import SUMMARY_COLUMNS, summarize, summary_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kproto.pipeline.output import OutputDirectory
    from kproto.pipeline.stages import StagedPart, TaskOutput
    from kproto.tables.brokers import BrokerDirectory
    from kproto.tables.places import Place
    from kproto.tables.recordings import PartRead, PartToRead

_NO_IDS: Final = pa.array([], pa.binary())

_TOLD: Final = ("frame_id", "response_frame_id", "body_id")

_LABELLED: Final = ("requests", "responses", "partition_errors", "frames", "brokers", "captures")


@dataclass(slots=True)
class Run:
    """The result of a run.

    Attributes:
        inputs: The captures.
        rows: Table -> rows that the tables have.
        captures_read: The number of recordings that were read.
        bodies_decoded: Distinct bodies, whose states were each written once.
        bad_inputs: Pieces of captures that could not be read, of those that this run read, or of all if it read none;
            without an offset: captures without any request.
        summary: The result of ``kproto.verdicts.summarize`` of all tables, or of what the run added, where it was given
            new captures alone.
        seconds: Wall time.
        copies: Files whose content stands in another one, and that one.
        expired: Requests that were not added, since their days have expired.
        notes: What else was left out, and why, a line each.
    """

    inputs: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    captures_read: int = 0
    bodies_decoded: int = 0
    bad_inputs: list[BadInput] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    copies: dict[str, str] = field(default_factory=dict)
    expired: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Plan:
    """What a run has to do.

    Attributes:
        stored: The tables to which it adds; None: it makes tables anew.
        known: The recordings that the tables hold then.
        parts: What is read.
        ends: Those of the files that were looked at.
        copies: See ``Run``.
        labels: For labels of stored rows (cluster, capture) those that they get.
        knows_some: Whether the tables hold some of the captures already.
        log: The metadata log whose tables are made, if captures show one or its files are named; None: the tables keep
            it as they have it.
        names_log: Whether files of it are named.
        notes: See ``Run``; of the log.
    """

    stored: StoredTables | None
    known: Known
    parts: list[PartToRead]
    ends: FileEnds
    copies: dict[str, str]
    labels: dict[tuple[str, str], tuple[str, str]]
    knows_some: bool
    log: LogPlan | None
    names_log: bool
    notes: list[str]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.stored is not None and not (self.parts or self.known.is_changed or self.labels or self.log)


def analyze(
    spark: SparkSession,
    captures: Sequence[str],
    out: OutputDirectory,
    *,
    filters: Filters | None = None,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    whole_summary: bool = True,
    on_step: Callable[[str], object] = lambda _step: None,
) -> Run:
    """Make the tables of some captures, or add captures to tables.

    Args:
        spark: The session. Its executors must see the captures and ``out`` under the same paths.
        captures: Files, directories, patterns, URIs; files of KRaft's metadata log are found among them.
        out: The directory for the tables.
        filters: The requests to keep; None keeps all control requests.
        capture_point: The label of all captures; None makes it of their names.
        cluster: The cluster whose brokers the captures show.
        whole_summary: Whether a run that adds captures, and is given some of the former ones too, sums up all tables.
        on_step: Called with a short description of each step.

    Raises:
        CaptureError: None of the captures holds a wanted control request; says why.
        ConfigurationError: ``out`` cannot be written to, or its tables cannot be added to.
    """
    started = time.monotonic()
    filters = filters or Filters()
    with out.writing():
        plan = _plan(captures, out, filters, capture_point, cluster)
        if plan.is_empty:
            return _as_stored(captures, plan)
        job = _Job(spark, out, plan, filters, on_step, Run(list(captures), copies=plan.copies))
        if plan.labels:
            job.relabel(plan.labels)
        if plan.parts:
            grown = {part.recording.cluster for part in plan.parts}
            job.add(plan.parts, grown.pop() if len(grown) == 1 else cluster)
        if plan.names_log or job.shows_kraft:
            job.run.notes = plan.notes
            if plan.log:
                job.add_log(plan.log, cluster)
        job.commit(started, whole_summary=whole_summary and plan.knows_some)
    return job.run


def unchanged(
    captures: Sequence[str],
    out: OutputDirectory,
    filters: Filters | None = None,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
) -> Run | None:
    """The run whose tables ``out`` holds, if they hold these captures as they are today, read with the same filters.

    Raises:
        ConfigurationError: The tables there cannot be read, and are not to be overwritten.
    """
    try:
        with readable(out.path):
            plan = _plan(captures, out, filters or Filters(), capture_point, cluster)
            return _as_stored(captures, plan) if plan.is_empty else None
    except FileNotFoundError:
        return None  # another run has just written other ones: a run of one's own waits for it


def _plan(
    captures: Sequence[str],
    out: OutputDirectory,
    filters: Filters,
    capture_point: str | None,
    cluster: str,
) -> _Plan:
    checked_cluster(cluster)
    logs, captures = logs_among(captures)
    files = capture_files(expand(captures), unfinished=False) if captures or not logs else []
    stored = _stored(out, filters)
    known = Known(stored)
    ends = FileEnds(open_file)
    copies, _overlaps = within_others(known.changed(files), ends)
    knows_some = any(map(known.recording_of, files))
    parts = known.parts_to_read(files, cluster, capture_point, copies)
    labels = known.labels_for(files, cluster, capture_point)
    log, notes = None, list[str]()
    if logs or parts:
        recorded = {file: each for file in files if (each := known.recording_of(file)) is not None}
        log, notes = plan_log(logs, recorded, stored, cluster, is_more_shown=bool(parts or labels))
    return _Plan(stored, known, parts, ends, copies, labels, knows_some, log, bool(logs), notes)


def _stored(out: OutputDirectory, filters: Filters) -> StoredTables | None:
    """The tables to which a run adds; None if there are none, or if they are to be overwritten."""
    if out.overwrite or not (out.path / MANIFEST).exists():
        return None
    try:
        stored = current_tables(out.path)
    except ConfigurationError as e:
        raise ConfigurationError(f"{e}; or give up these tables and make new ones: --overwrite") from None
    if stored.facts.get("filters") != _named(filters):
        raise ConfigurationError(
            f"the tables in {out.path} were made with other filters: choose another directory with --out, or give up "
            "these tables and make new ones with --overwrite"
        )
    return stored


def _named(filters: Filters) -> str:
    return repr(sorted((name, _plain(value)) for name, value in asdict(filters).items()))


def _plain(value: Any) -> Any:
    """A filter's value in an order that is the same in every process."""
    if isinstance(value, dict):
        return sorted(value.items())
    return sorted(value) if isinstance(value, frozenset) else value


def _as_stored(captures: Sequence[str], plan: _Plan) -> Run:
    assert plan.stored is not None
    said = plan.stored.facts
    return Run(
        list(captures),
        plan.stored.counts(),
        bodies_decoded=said.get("bodies_decoded", 0),
        bad_inputs=_bad_inputs(whole_table(plan.stored, "bad_inputs")),
        summary=_summary_of(plan.stored),
        seconds=said.get("seconds", 0.0),
        copies=plan.copies,
        notes=plan.notes,
    )


def _summary_of(stored: StoredTables) -> dict[str, Any]:
    """The summary of tables: as it was stored, or computed from them where captures were added since."""
    try:
        return summary_from(read_whole(stored.run / SUMMARY))
    except (OSError, ValueError):
        return summarize(stored_pieces(stored, SUMMARY_COLUMNS))


class _Job:
    """One run: reads recordings, writes their files beside those of a former run, or alone, and fills a ``Run``."""

    def __init__(
        self,
        spark: SparkSession,
        out: OutputDirectory,
        plan: _Plan,
        filters: Filters,
        on_step: Callable[[str], object],
        run: Run,
    ) -> None:
        self.run = run
        self._spark = spark
        self._out = out
        self._id = out.run.name
        self._work = out.run / "tasks"
        self.shows_kraft = False
        self._plan = plan
        self._known = plan.known
        self._filters = filters
        self._on_step = on_step
        self._adds = plan.stored is not None
        self._new = ChangedTables(
            plan.stored or StoredTables(out.run, {}, {"base": out.run.name}), out.run, out.run / "small"
        )
        self._stored = self._new.tables
        facts = self._stored.facts
        self._facts: dict[str, str] = facts.setdefault("facts", {})
        self._logs: dict[str, Any] = facts.setdefault("logs", {})
        self._begun = set[bytes]()  # the ids of stored connections that may go on from an earlier part
        self._figures: dict[str, Any] | None = None
        run.bodies_decoded = facts.get("bodies_decoded", 0)

    def add(self, parts: Sequence[PartToRead], cluster: str) -> None:
        """Read parts of recordings of one cluster, and make their files."""
        self._on_step("reading captures")
        self.run.captures_read += len({part.recording for part in parts})
        parts, reads, pieces, joiner = self._read(parts, cluster)
        again = self._read_again(parts, reads)
        logs = self._read_again([part for part in parts if part.in_order], reads)
        taken_back = joiner.taken_back | self._told_otherwise(logs, pieces)
        paths = [piece.path for piece in pieces]
        self.shows_kraft = shows_kraft(small_table(paths, "captures"))
        may_lack = self._adds or self._plan.names_log or self.shows_kraft
        if not may_lack and not any(piece.requests for piece in pieces):
            raise CaptureError(why_nothing(small_table(paths, "bad_inputs").to_pylist()))
        former = stored_facts(self._stored.run, self._facts.get(cluster))
        knowledge = learn(pieces, self._filters, [former])
        knowledge.connections = joiner.connections
        self._on_step("writing tables")
        watermark_us = _midnight_us(self._stored.facts.get("watermarks", {}).get(cluster))
        settled = settle(pieces, self._stored, self._new.spans, watermark_us, taken_back, crosses=joiner.crosses)
        self.run.expired += settled.expired
        made = make_tables(
            self._spark, pieces, self._work, knowledge, self._filters, self._stored if self._adds else None
        )
        for file, table in without_superseded(self._stored, settled) if settled.superseded else ():
            self._new.rewrite(file, table)
        self._name_connections(joiner.connections)
        self._set_broker_ids(former, knowledge.directory, cluster)
        self.run.bodies_decoded += made.bodies
        for folder, files in made.files.items():
            self._new.keep(place_of(folder), files, made.spans)
        small = self._small(pieces, parts, joiner, watermark_us, made if settled.expired else None, again)
        if cluster in self._facts:
            self._new.drop_beside({self._facts[cluster]})
        facts = BrokerFacts.joined([former, *(piece.facts for piece in pieces)])
        facts.addresses |= made.addresses
        self._facts[cluster] = f"brokers-{uuid.uuid4().hex}"
        write_whole(self._work / self._facts[cluster], facts_as_bytes(facts))
        self._new.keep_beside(self._facts[cluster], self._work)
        made.figures.changes = count_changes(self._spark, made)
        made.figures.add(small)
        self._figures = made.figures.rows()
        self._on_step("summing up")
        self._know_bodies(made)
        if taken_back:
            self._new.forget_bodies()

    def add_log(self, plan: LogPlan, cluster: str) -> None:
        """Make the tables of a metadata log in the place of those that it had."""
        self._on_step("reading the metadata log")
        files = [self._stored.place(file) for file in without_logs(self._stored).paths("requests")]
        columns = ["ts", "live_brokers_id", "is_kraft_controller"]
        last_us = max((last_listing(read_parquet(file, columns)) for file in files), default=0)
        made = make_log(self._spark, plan, self._work, self._filters, cluster, live_from_us=last_us)
        if made.rows:
            for file in [file for file in self._stored.rows if is_of_log(file, plan.replaced)]:
                self._new.drop(file)
            for name in plan.replaced:
                del self._logs[name]
            self._new.keep(self._work, made.rows, made.spans)
            self._logs[cluster] = plan.held_with(made.shown_by).to_json()
        for file in without_logs(self._stored).paths("bad_inputs") if made.shown_by else ():
            table = read_parquet(self._stored.place(file))
            wanted = without_kraft_note(table)
            if wanted.num_rows < table.num_rows:
                self._new.rewrite(file, wanted)
        if not self._stored.counts()["requests"]:
            raise CaptureError(why_nothing(made.bad_inputs.to_pylist()))
        self.run.bad_inputs = [
            bad for bad in self.run.bad_inputs if bad.offset is not None or KRAFT_TRAFFIC not in bad.reason
        ]
        self.run.bad_inputs += _bad_inputs(made.bad_inputs)
        self._figures = None

    def _read(
        self, parts: Sequence[PartToRead], cluster: str
    ) -> tuple[Sequence[PartToRead], list[PartRead], list[StagedPart], Joiner]:
        """Read parts and join them; where it shows that a recorder's clock was set, read all of its place in order."""
        pieces, reads = gather_parts(
            self._spark, read_together(parts, self._plan.ends), self._work, self._filters, cluster
        )
        joined = self._join(parts, reads, pieces, cluster)
        if isinstance(joined, set):
            return self._read(self._known.in_order(parts, joined), cluster)
        for read in reads:
            self._known.note(read)
        return parts, reads, pieces, joined

    def _join(
        self, parts: Sequence[PartToRead], reads: Sequence[PartRead], pieces: list[StagedPart], cluster: str
    ) -> Joiner | set[str]:
        """Join the parts that were read with one another and with those of former runs.

        Returns:
            What joined them; or the places where parts were read by clocks that were set, which must be read in order.
        """
        ordered = {part.recording.place for part in parts if part.in_order}
        if places := {read.recording.place for read in reads if read.recording.was_set} - ordered:
            return places
        ends: list[Edge] = []
        begins: list[Edge] = []
        made: dict[str, Place] = {}
        for read in reads:
            if read.edges is None:
                continue
            place = place_of(read.edges)
            name = place.name
            made[name] = place
            label, point = read.recording.capture, read.recording.place
            ends += [Edge(name, label, border, point, state=name) for border in read.ends]
            begins += [Edge(name, label, border, point, file=read.file) for border in read.begins]

        def load(name: str) -> bytes | None:
            if name not in made and name not in self._new.beside:
                return None  # no file of these tables
            try:
                return read_whole(made.get(name) or self._stored.run / name)
            except (OSError, ValueError):
                return None

        def store(edges: bytes) -> str:
            place = self._work / f"edges-{uuid.uuid4().hex}"
            write_whole(place, edges)
            made[place.name] = place
            return place.name

        known = KnownTable(self._stored, "known_borders")
        joiner = Joiner(selection_of(self._filters), load, store)
        joiner.ends, joiner.begins = ends, begins
        looked, joined = set[bytes](), SCAN.empty_table()
        former = stale = KNOWN["known_borders"].empty_table()
        if ordered:  # they are read anew
            former = stale = known.rows(map(os.fsencode, ordered), "place")
        former_begins: list[Edge] = []
        while wanted := going_on(joiner.ends, [*joiner.begins, *former_begins]) - looked:
            looked |= wanted
            near = pa.concat_tables([known.rows(wanted, "at"), known.rows(wanted, "back_at")])
            near = near.filter(pc.invert(pc.is_in(near["id"], value_set=former["id"].combine_chunks())))
            if not near.num_rows and joined.num_rows:
                continue  # nothing goes on where it was joined
            former = pa.concat_tables([former, near]).group_by(near.column_names, use_threads=False).aggregate([])
            others = former.filter(pc.invert(pc.is_in(former["id"], value_set=stale["id"].combine_chunks())))
            former_ends, former_begins = borders_of(others)
            self._begun = {begin.border.conn_id for begin in former_begins}
            joiner = Joiner(selection_of(self._filters), load, store)
            joiner.ends, joiner.begins = [*former_ends, *ends], [*former_begins, *begins]
            if places := joiner.places_set() - ordered:
                return places
            if matched(joiner.ends, joiner.begins):
                joined = pa.Table.from_batches(joiner.join(joiner.ends, joiner.begins), SCAN)
        if joined.num_rows:
            shown = pc.unique(joined["capture"]).drop_null().to_pylist()
            clusters = self._known.clusters_of(shown)
            of_cluster: dict[str, list[str | None]] = {}
            for label in shown:
                of_cluster.setdefault(clusters.get(label, cluster), [None]).append(label)  # notes have no label
            if len(of_cluster) > 1:  # a body stands with its first frame, which may be of another cluster
                given = joined.filter(pc.is_valid(joined["payload"]))
                first = pc.index_in(joined["body_id"], value_set=given["body_id"].combine_chunks())
                joined = with_column(joined, "payload", given["payload"].take(first))
            for name, ours in of_cluster.items():
                rows = joined.filter(pc.is_in(joined["capture"], value_set=pa.array(ours, pa.string())))
                pieces.append(gather(rows.to_batches(), self._work, self._filters, name))
        needed = {end.state for end in joiner.ends} | {begin.part for begin in joiner.begins}
        for name in needed & made.keys():
            self._new.keep_beside(name, made[name].parent)
        left = set(former["edges"].to_pylist()) - needed
        elsewhere = known.rows(left, "edges")
        elsewhere = elsewhere.filter(pc.invert(pc.is_in(elsewhere["id"], value_set=former["id"].combine_chunks())))
        self._new.drop_beside(left - set(elsewhere["edges"].to_pylist()))
        rows = border_rows(joiner.ends, joiner.begins)
        gone_ids = set(former["id"].to_pylist()) - set(rows["id"].to_pylist())
        self._new.know("known_borders", pa.concat_tables([rows, known.marks(gone_ids)]))
        return joiner

    def _read_again(self, parts: Sequence[PartToRead], reads: Sequence[PartRead]) -> pa.Array:
        """Return the labels and names of stored files of which this run has read all anew, by these parts."""
        whole = {part.recording.id for part in parts if not part.begin}
        read = {each.recording.id for each in reads if each.recording.length} & whole
        at: dict[str, set[str]] = {}
        for name, has in (self._known.names_of(read) if read & self._known.held else {}).items():
            for each in has & self._known.recordings.keys():
                at.setdefault(f"{self._known.recordings[each].capture}\0{name}", set()).add(each)
        keys = [key for key, has in at.items() if has <= read]
        return pa.array(keys, pa.string())

    def _told_otherwise(self, again: pa.Array, pieces: Sequence[StagedPart]) -> set[tuple[bytes, bytes | None]]:
        """Return the stored requests of files that were read again of which they tell otherwise now, and responses."""
        if not len(again):
            return set()
        read = small_table([each.path for each in pieces], "captures")
        labels = pc.list_element(pc.split_pattern(again, "\0"), 0)
        since = pc.min(read.filter(pc.is_in(read["capture"], value_set=labels))["first_ts"])
        places = map(self._stored.place, self._stored.paths("frames"))
        frames = (read_parquet(place, ["frame_id", "capture", "file"]) for place in places)
        ids = [each["frame_id"].filter(pc.is_in(_file_keys(each), value_set=again)).combine_chunks() for each in frames]
        staged = [batch for each in pieces for batch in read_staged(place_of(each.path), "requests")]
        requests = pa.Table.from_batches(staged)
        told, exchanges = _told(requests), requests["exchange_id"].combine_chunks()
        found: set[tuple[bytes, bytes | None]] = set()
        for file in self._stored.paths("requests"):
            rows = read_parquet(self._stored.place(file), [*_TOLD, "exchange_id", "ts"])
            # What is neither as late as what was read nor told again, at another time, is of a file that is gone.
            told_again = pc.is_in(rows["exchange_id"], value_set=exchanges)
            rows = rows.filter(pc.or_kleene(told_again, pc.greater_equal(rows["ts"], since)))
            rows = rows.filter(pc.is_in(rows["frame_id"], value_set=pa.concat_arrays([*ids, _NO_IDS])))
            rows = rows.filter(pc.invert(pc.is_in(_told(rows), value_set=told)))
            found.update(zip(rows["frame_id"].to_pylist(), rows["response_frame_id"].to_pylist(), strict=True))
        return found

    def _know_bodies(self, made: TaskOutput) -> None:
        """Note which bodies the tasks wrote."""
        files = [place_of(folder) / file for folder, names in made.files.items() for file in names]
        ids = [read_parquet(file, ["body_id"]) for file in files if file.parent.parent.name == "bodies"]
        if ids and self._stored.counts()["bodies"] <= SETTLED_ON_DRIVER:
            self._new.know("known_bodies", pa.concat_tables(ids).cast(KNOWN["known_bodies"]))

    def _small(
        self,
        pieces: Sequence[StagedPart],
        parts: Sequence[PartToRead],
        joiner: Joiner,
        watermark_us: int,
        written: TaskOutput | None,
        again: pa.Array,
    ) -> dict[str, pa.Table]:
        """Write the tables with few rows; return those of the pieces.

        Of lists of brokers those are written that requests which the tasks have ``written`` name; None: all.
        """
        paths = [piece.path for piece in pieces]
        small = {name: small_table(paths, name) for name in SMALL_TABLES}
        known = whole_table(self._stored, "live_brokers", ["live_brokers_id"])["live_brokers_id"]
        sets = small["live_brokers"]
        sets = sets.filter(pc.invert(pc.is_in(sets["live_brokers_id"], value_set=known)))
        if written is not None:
            files = [(folder, file) for folder, names in written.files.items() for file in names]
            ids = [
                read_parquet(place_of(folder) / file, ["live_brokers_id"])["live_brokers_id"].combine_chunks()
                for folder, file in files
                if file.startswith("requests/")
            ]
            sets = sets.filter(pc.is_in(sets["live_brokers_id"], value_set=pa.concat_arrays([*ids, _NO_IDS])))
        small["live_brokers"] = sets
        if sets.num_rows:
            self._write("live_brokers", sets)
        self._write_anew("brokers", lambda former: merged_rows("brokers", pa.concat_tables([former, small["brokers"]])))
        self._write_captures(small["captures"], joiner, watermark_us, again)

        def judged(bad_inputs: pa.Table) -> pa.Table:
            if bad_inputs["offset"].null_count == 0:
                return bad_inputs
            return judged_together(bad_inputs, whole_table(self._stored, "captures", [*JUDGED_BY]))

        self._write_anew(
            "bad_inputs",
            lambda former: judged(pa.concat_tables([self._without_mended(former, parts), small["bad_inputs"]])),
        )
        small["bad_inputs"] = judged(small["bad_inputs"])
        self.run.bad_inputs = _bad_inputs(small["bad_inputs"])
        small["captures"] = _joined_captures(small["captures"], joiner)
        return small

    def _write_anew(self, name: str, changed: Callable[[pa.Table], pa.Table]) -> None:
        """Write a table of few rows anew, if they change."""
        others = without_logs(self._stored)
        former = whole_table(others, name)
        table = changed(former)
        files = others.paths(name)
        if not files or not table.equals(former):
            for file in files:
                self._new.drop(file)
            self._write(name, table)

    def _write_captures(self, rows: pa.Table, joiner: Joiner, watermark_us: int, again: pa.Array) -> None:
        """Add rows of ``captures``, together with the stored ones of their files, and with files that are as small.

        Those of files that were read ``again`` go.
        """
        changed = {*_file_keys(rows).to_pylist(), *again.to_pylist(), *("\0".join(each) for each in joiner.files)}
        changed, renamed = pa.array(changed, pa.string()), pa.array(joiner.connections, pa.binary())
        for file in sorted(without_logs(self._stored).paths("captures"), reverse=True):
            if self._stored.rows[file] > 2 * rows.num_rows:
                stored = read_parquet(self._stored.place(file), ["capture", "file", "losses"])
                of_losses = pc.struct_field(pc.list_flatten(stored["losses"]), "conn_id")
                found = (pc.is_in(_file_keys(stored), value_set=changed), pc.is_in(of_losses, value_set=renamed))
                if not any(pc.any(each).as_py() for each in found):
                    continue
            stored = read_parquet(self._stored.place(file), rows.column_names)
            rows = pa.concat_tables([stored.filter(pc.invert(pc.is_in(_file_keys(stored), value_set=again))), rows])
            self._new.drop(file)
        table = with_connections(_joined_captures(merged_rows("captures", rows), joiner), joiner.connections)
        late = pc.less(table["last_ts"].cast(pa.int64()), watermark_us)
        self._write("captures", table.filter(pc.invert(pc.fill_null(late, False))))

    def _without_mended(self, bad_inputs: pa.Table, parts: Sequence[PartToRead]) -> pa.Table:
        """Return rows of ``bad_inputs`` but those of files that are whole now: they have grown, or were no captures."""
        held = {part.recording.id for part in parts} & self._known.held
        named = self._known.names_of(held) if bad_inputs.num_rows else {}
        ends: dict[str, int] = {}
        for part in parts:
            names = [name for name, has in named.items() if part.recording.id in has]
            if part.recording.id in held and (part.begin or all(len(named[name]) == 1 for name in names)):
                ends |= {name: min(part.begin, ends.get(name, part.begin)) for name in names}
        unread = tuple(f"{plain_text(part.file)}:" for part in parts)
        keep = [
            row["offset"] < ends.get(row["file"], 1 << 62)
            if row["offset"] is not None
            else not row["reason"].startswith(unread)
            for row in bad_inputs.to_pylist()
        ]
        return bad_inputs.filter(pa.array(keep, pa.bool_()))

    def _name_connections(self, ids: Mapping[bytes, bytes]) -> None:
        """Give stored rows the ids of connections of which an earlier part is known now."""
        renamed = pa.array(ids.keys() & self._begun, pa.binary())
        for file in [
            file for name in ("requests", "responses", "frames") for file in self._stored.paths(name) if len(renamed)
        ]:
            found = read_parquet(self._stored.place(file), ["conn_id"])["conn_id"]
            if pc.any(pc.is_in(found, value_set=renamed)).as_py():
                self._new.rewrite(file, with_connections(read_parquet(self._stored.place(file)), ids))
        borders = KnownTable(self._stored, "known_borders").rows(renamed, "conn_id")
        self._new.know("known_borders", with_connections(borders, ids))

    def _set_broker_ids(self, former: BrokerFacts, directory: BrokerDirectory, cluster: str) -> None:
        """Give stored requests the broker ids that all recordings together tell, where these are others now."""
        if not changes_ids(former, directory, self._filters):
            return
        for file in self._stored.paths("requests"):
            table = read_parquet(self._stored.place(file))
            ids = broker_ids_of(directory, table)
            here = pc.equal(table["cluster"], cluster)
            column = pc.if_else(here, ids, table["broker_id"])
            if not column.equals(table["broker_id"]):
                self._new.rewrite(file, with_column(table, "broker_id", column))

    def relabel(self, labels: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Give stored rows other labels."""
        of_frames: dict[bytes, tuple[str, str] | None] = {}
        for name in _LABELLED:
            for file in self._stored.paths(name):
                table = read_parquet(self._stored.place(file))
                if "capture" in table.column_names:
                    found = [labels.get(key) for key in rows_of(table, ("cluster", "capture"))]
                else:
                    found = [of_frames.get(frame) for frame in table["frame_id"].to_pylist()]
                if name == "requests":
                    of_frames |= zip(table["frame_id"].to_pylist(), found, strict=True)
                if any(found):
                    for place, column in enumerate(("cluster", "capture")):
                        if column in table.column_names:
                            values = pa.array([each and each[place] for each in found], pa.string())
                            table = with_column(table, column, pc.coalesce(values, table[column]))
                    self._new.rewrite(file, table)
        captures = {former: capture for (_, former), (_, capture) in labels.items()}
        known = KnownTable(self._stored, "known_borders")
        rows = known.rows(captures, "capture")
        named = [captures[each] for each in rows["capture"].to_pylist()]
        self._new.know("known_borders", with_column(rows, "capture", pa.array(named, pa.string())))

    def _write(self, name: str, table: pa.Table) -> None:
        self._new.write(f"{name}/part-{self._id}.zstd.parquet", table)

    def commit(self, started: float, *, whole_summary: bool) -> None:
        """Publish the tables of a run that has ``started`` then, and sum up: all of them, or what it has added."""
        run = self.run
        for name, rows in self._known.rows().items():
            self._new.know(name, rows)
        run.seconds = time.monotonic() - started
        self._new.publish(
            self._out,
            self._stored.run,
            kproto=kproto.__version__,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
            inputs=run.inputs,
            bodies_decoded=run.bodies_decoded,
            seconds=round(run.seconds, 3),
            filters=_named(self._filters),
        )
        run.rows = self._stored.counts()
        for file in self._new.dropped:
            (self._stored.run / file).unlink(missing_ok=True)
        figures = None if whole_summary and self._adds else self._figures
        are_of_part = self._adds and figures is not None
        if figures is None:
            self._on_step("summing up")
            figures = summarize(stored_pieces(current_tables(self._out.path), SUMMARY_COLUMNS))
        run.summary = figures
        if not are_of_part:
            write_whole(self._stored.run / SUMMARY, (json.dumps(figures, ensure_ascii=False) + "\n").encode())


def _midnight_us(day: str | None) -> int:
    if day is None:
        return -(1 << 63) + 1
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) * 1_000_000


def _file_keys(captures: pa.Table) -> pa.ChunkedArray:
    """The capture point and the file of each row."""
    return pc.binary_join_element_wise(captures["capture"], captures["file"], "\0")


def _told(requests: pa.Table) -> pa.Array:
    """What each row tells: the request, its response and its body."""
    ids = [requests[name].fill_null(b"") for name in _TOLD]
    return pc.binary_join_element_wise(*ids, b"").combine_chunks()


def _joined_captures(captures: pa.Table, joiner: Joiner) -> pa.Table:
    """Rows of ``captures`` without what is not lost, as connections go on from an earlier recording, or part of it."""
    joined = pc.is_in(_file_keys(captures), value_set=pa.array(["\0".join(each) for each in joiner.files], pa.string()))
    rows = captures.filter(joined).to_pylist()
    for row in rows:
        key = row["capture"], row["file"]
        row |= {name: max(row[name] + joiner.counts[key][name], 0) for name in MENDED}
        lost = [
            each for each in row["losses"] if each["kind"] == "partial start" and each["conn_id"] in joiner.files[key]
        ]
        row["partial_starts"] -= len(lost)
        filled = joiner.filled.get(key, ())
        lost += [
            each
            for each in row["losses"]
            if each["kind"] == "gap" and (each["conn_id"], each["direction"], micros(each["ts"])) in filled
        ]
        row["losses"] = [each for each in row["losses"] if each not in lost]
    return pa.concat_tables([captures.filter(pc.invert(joined)), pa.Table.from_pylist(rows, captures.schema)])


def _bad_inputs(table: pa.Table) -> list[BadInput]:
    rows = (BadInput(**row) for row in table.to_pylist())
    return sorted(rows, key=lambda row: (row.file, row.offset or -1))
