"""Captures -> tables on disk: each capture is read once, the states of each distinct body are written once.

A later run into the same directory adds the captures that are new to the tables: it writes their files, and a manifest
that lists the former files too. A rotated capture goes on from the state behind its former files. Only where a capture
has changed, or where new ones tell other broker ids for former addresses, all are read again.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import kproto
from kproto import tables
from kproto.capture import BadInput, CapturePoint
from kproto.errors import CaptureError
from kproto.pipeline.captures import gather_captures, gather_growing
from kproto.pipeline.output import move_files
from kproto.pipeline.previous_run import ChangedInputs, PreviousRun, fingerprint, store_facts
from kproto.pipeline.splitting import SPLIT_BYTES
from kproto.pipeline.stages import SMALL_TABLES, learn, merged_rows, small_table
from kproto.pipeline.tasks import GrowingPoint, count_changes, make_tables
from kproto.tables.arrays import plain_text
from kproto.tables.filters import Filters
from kproto.tables.places import place_of, remove_tree
from kproto.tables.points import DEFAULT_CLUSTER, continued_captures, points_of
from kproto.tables.reading import why_nothing
from kproto.tables.stored import (
    BROKER_FACTS,
    OPEN,
    SCHEMA,
    SUMMARY,
    StoredTables,
    current_tables,
    read_parquet,
    stored_pieces,
    table_dataset,
)
from kproto.tables.writing import write_table
from kproto.verdicts.summary import SUMMARY_COLUMNS, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kproto.pipeline.output import OutputDirectory
    from kproto.pipeline.stages import TaskOutput
    from kproto.pipeline.tasks import CarriedPart
    from kproto.tables.places import Place


@dataclass(slots=True)
class Run:
    """The result of a run.

    Attributes:
        inputs: The captures.
        rows: Table -> rows written.
        captures_read: The number of capture points that were read.
        bodies_decoded: Distinct bodies, whose states were each written once.
        bad_inputs: Pieces of captures that could not be read, of those that this run read, or of all if it read none;
            without an offset: captures without any request.
        summary: The result of ``kproto.verdicts.summarize`` of all tables, or of what the run added, where it was given
            new captures alone.
        seconds: Wall time.
        gone: Files that no longer exist, and whose rows the tables keep.
        continued: The result of ``continued_captures``, of the captures that were read.
    """

    inputs: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    captures_read: int = 0
    bodies_decoded: int = 0
    bad_inputs: list[BadInput] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    gone: list[str] = field(default_factory=list)
    continued: dict[str, str] = field(default_factory=dict)


def analyze(
    spark: SparkSession,
    captures: Sequence[str],
    out: OutputDirectory,
    *,
    filters: Filters | None = None,
    split_bytes: int = SPLIT_BYTES,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    whole_summary: bool = True,
    on_step: Callable[[str], object] = lambda _step: None,
) -> Run:
    """Make the tables of some captures, or add captures to tables.

    Args:
        spark: The session. Its executors must see the captures and ``out`` under the same paths.
        captures: Files, directories, patterns, URIs.
        out: The directory for the tables.
        filters: The requests to keep; None keeps all control requests.
        split_bytes: Captures of twice this size or more are read in parts of about this size; 0: never.
        capture_point: The place where all captures were recorded, one after the other; None finds it by their names.
        cluster: The cluster whose brokers the captures show.
        whole_summary: Whether a run that adds captures, and is given some of the former ones too, sums up all tables.
        on_step: Called with a short description of each step.

    Raises:
        CaptureError: None of the captures holds a wanted control request; says why.
        ConfigurationError: ``out`` cannot be written to, or its tables cannot be added to; or rows would be lost whose
            captures are gone.
    """
    started = time.monotonic()
    filters = filters or Filters()
    points = points_of(captures, capture_point, cluster, unfinished=False)  # a file that is renamed would be gone
    with out.writing():
        if (same := unchanged(captures, out, filters, capture_point, cluster)) is not None:
            return same
        inputs = fingerprint(points, filters)
        former = PreviousRun.of(out, cluster)
        run = Run(list(captures))
        clusters = {point.name: cluster for point in points}
        if former:
            changes = former.changes(points, inputs, alone=out.overwrite)
            inputs["points"] = changes.points
            clusters = former.stored.facts["clusters"] | clusters
            job = _Job(spark, out, former.stored, filters, split_bytes, on_step, run)
            if changes.new and job.add(changes.new, cluster, former, changes):
                run.gone = changes.gone
                is_all = whole_summary and len(changes.new) < len(points)
                job.commit(inputs, clusters, started, whole_summary=is_all)
                return run
            former.check_not_lost(out, changes)
            named = {point.name: point for point in points}
            points = [
                named.get(name) or CapturePoint(name, tuple(file for file, *_ in files))
                for name, files in changes.points.items()
            ]
        job = _Job(spark, out, None, filters, split_bytes, on_step, run)
        job.make(points, clusters)
        job.commit(inputs, clusters, started)
    return run


def unchanged(
    captures: Sequence[str],
    out: OutputDirectory,
    filters: Filters | None = None,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
) -> Run | None:
    """The run whose tables ``out`` holds, if they hold these captures as they are today, read with the same filters.

    Captures that are gone since then, and whose rows are kept, do not count as a change.

    Raises:
        ConfigurationError: The tables there cannot be read, and are not to be overwritten.
    """
    filters = filters or Filters()
    former = PreviousRun.of(out, cluster)
    if former is None:
        return None
    points = points_of(captures, capture_point, cluster, unfinished=False)  # a file that is renamed would be gone
    changes = former.changes(points, fingerprint(points, filters), alone=out.overwrite)
    if changes.new != []:
        return None
    said = former.stored.facts
    return Run(
        list(captures),
        said["tables"],
        bodies_decoded=said["bodies_decoded"],
        bad_inputs=_bad_inputs(table_dataset(former.stored, "bad_inputs").to_table()),
        summary=former.summary(),
        seconds=said["seconds"],
        gone=changes.gone,
    )


class _Job:
    """One run: reads capture points, and writes their files beside those of a former run, or alone.

    Args:
        spark: The session.
        out: The output directory, in ``writing``.
        stored: The tables to which the run adds; None: it makes tables anew.
        filters: The requests to keep.
        split_bytes: See ``analyze``.
        on_step: Called with a short description of each step.
        run: Is filled.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: OutputDirectory,
        stored: StoredTables | None,
        filters: Filters,
        split_bytes: int,
        on_step: Callable[[str], object],
        run: Run,
    ) -> None:
        self.run = run
        self._spark = spark
        self._out = out
        self._id = out.run.name
        self._work = out.run / "tasks"
        self._filters = filters
        self._split_bytes = split_bytes
        self._on_step = on_step
        self._adds = stored is not None
        facts = stored.facts if stored else {}
        self._stored = stored or StoredTables(out.run, {}, {})
        self._generations: list[dict[str, str]] = list(facts.get("generations", []))
        self._open: dict[str, dict[str, Any]] = dict(facts.get("open", {}))
        self._replaced: list[str] = []
        self._moves: dict[str, Place] = {}
        self._figures: dict[str, Any] | None = None
        run.rows = dict(facts.get("tables", dict.fromkeys(tables.TABLES, 0)))
        run.bodies_decoded = facts.get("bodies_decoded", 0)

    def make(self, points: Sequence[CapturePoint], clusters: Mapping[str, str]) -> None:
        """Make all tables, of each cluster after the other."""
        names = dict.fromkeys(clusters[point.name] for point in points)
        for name in names:
            self.add([point for point in points if clusters[point.name] == name], name)
        if not self.run.rows["requests"]:
            bad = table_dataset(self._stored, "bad_inputs").to_table()
            raise CaptureError(why_nothing(bad.to_pylist()))
        if len(names) > 1:
            self._figures = None
        for name, schema in tables.TABLES.items():
            if not self._stored.paths(name):  # readers find its columns
                self._write(name, schema.empty_table(), "empty")

    def add(
        self,
        points: Sequence[CapturePoint],
        cluster: str,
        former: PreviousRun | None = None,
        changes: ChangedInputs | None = None,
    ) -> bool:
        """Make the files of some more captures of one cluster; False if the former ones must be read again.

        They must if the new captures tell other ids for their brokers, or if a capture cannot be continued.
        """
        self._on_step("reading captures")
        self.run.captures_read += len(points)
        growing = self._growing(points, changes)
        gathered = (
            gather_growing(self._spark, growing, self._work, self._filters, self._split_bytes, cluster)
            if growing
            else None
        )
        if gathered is None and changes and changes.continued:
            remove_tree(self._work)
            self.run.captures_read -= len(points)
            return False
        shared, parts = gathered or ([], [])  # if none has an earlier state, all are read in the ordinary way
        carried = {part.name for part in parts}
        others = [point for point in points if point.name not in carried]
        pieces = (
            gather_captures(self._spark, others, self._work, self._filters, self._split_bytes, cluster)
            if others
            else []
        )
        plain = [piece.path for piece in pieces]
        pieces += [*shared, *(piece for part in parts for piece in (part.settled, part.open))]
        facts = [piece.facts for piece in pieces]
        if former and not former.holds_beside(facts, self._filters):
            remove_tree(self._work)
            self.run.captures_read -= len(points)
            return False
        if not self._adds and not any(piece.rows["requests"] for piece in pieces) and not self._stored.rows:
            raise CaptureError(why_nothing(small_table([piece.path for piece in pieces], "bad_inputs").to_pylist()))
        knowledge = learn(pieces, self._filters, [former.facts] if former else [])
        self._on_step("writing tables")
        known = self._stored if self._stored.rows else None
        made = make_tables(self._spark, pieces, self._work, knowledge, self._filters, known)
        self.run.bodies_decoded += made.bodies
        of_open: dict[str, list[str]] = {}
        for folder, files in made.files.items():
            self._keep(place_of(folder), files)
            of_open.setdefault(place_of(folder).parent.name, []).extend(files)
        small = self._small(plain, [piece.path for piece in pieces])
        of_shared = small_table([piece.path for piece in shared], "brokers")
        of_parts = [self._small_of(part, of_shared) for part in parts]
        every = {
            name: pa.concat_tables([table, *(own[name] for own in of_parts if name in own)])
            for name, table in small.items()
        }
        self._note_bad(every["bad_inputs"])
        self._note_continued(every["captures"].to_pylist(), cluster)
        generation = f"{self._id}-{len(self._generations)}"
        for name, table in small.items():
            self._write(name, table, generation)
        for number, (part, own) in enumerate(zip(parts, of_parts, strict=True)):
            written = [self._write(name, table, f"{generation}-{number}") for name, table in own.items()]
            self._carry(part, [*of_open.get(f"{OPEN}-{number}", ()), *written], f"{OPEN}-{generation}-{number}")
        self._figures = _summary(self._spark, made, every)
        self._on_step("summing up")
        file = f"{BROKER_FACTS}-{self._id}-{len(self._generations)}.json"
        store_facts(self._stored.run / file, facts, made.addresses)
        self._generations.append({"id": self._id, "cluster": cluster, "facts": file})
        if not self._adds:
            move_files(self._moves, self._stored.run)
            self._moves.clear()
            remove_tree(self._work)
        return True

    def _growing(self, points: Sequence[CapturePoint], changes: ChangedInputs | None) -> list[GrowingPoint]:
        """The capture points whose state is kept for their next files: rotated ones."""
        growing = []
        for point in points:
            if changes and point.name in changes.continued:
                known = self._open[point.name]
                files = tuple(file for file, *_ in changes.points[point.name])
                state = str(self._stored.run / known["state"])
                growing.append(GrowingPoint(CapturePoint(point.name, files), point.files, state))
            elif len(point.files) > 1:
                growing.append(GrowingPoint(point, point.files, None))
        return growing

    def _small_of(self, part: CarriedPart, shared: pa.Table) -> dict[str, pa.Table]:
        """The rows about a capture point that its next files change.

        Args:
            part: The capture point.
            shared: Brokers in files that were read in parts, of any capture points.
        """
        small = {name: small_table([part.open.path], name) for name in ("captures", "bad_inputs")}
        known = self._open.get(part.name, {"files": []})["files"]
        stored = [read_parquet(self._stored.run / file) for file in known if file.startswith("brokers/")]
        brokers = small_table([part.settled.path, part.open.path], "brokers")
        shared = shared.filter(pc.equal(shared["capture"], plain_text(part.name)))
        return small | {"brokers": merged_rows("brokers", pa.concat_tables([brokers, shared, *stored]))}

    def _carry(self, part: CarriedPart, files: list[str], state: str) -> None:
        """Put what is open of a capture point in the place of what was."""
        if known := self._open.pop(part.name, None):
            for file in known["files"]:
                rows = self._stored.rows.pop(file, 0)
                self.run.rows[file.partition("/")[0]] -= rows
                self._replaced.append(file)
            self._replaced.append(known["state"])
        if part.state is not None:
            (self._stored.run / state).write_bytes(part.state)
            self._open[part.name] = {"state": state, "files": files, "last_ns": part.last_ns}

    def _small(self, plain: list[str], every: list[str]) -> dict[str, pa.Table]:
        """The small tables of pieces, without the sets of live brokers that are stored.

        Args:
            plain: The pieces of capture points that are read once.
            every: All pieces, which may have sets of live brokers.
        """
        small = {name: small_table(every if name == "live_brokers" else plain, name) for name in SMALL_TABLES}
        known = table_dataset(self._stored, "live_brokers").to_table(columns=["live_brokers_id"])["live_brokers_id"]
        sets = small["live_brokers"]
        small["live_brokers"] = sets.filter(pc.invert(pc.is_in(sets["live_brokers_id"], value_set=known)))
        return small

    def _note_bad(self, rows: pa.Table) -> None:
        self.run.bad_inputs = sorted(
            [*self.run.bad_inputs, *_bad_inputs(rows)], key=lambda row: (row.file, row.offset or -1)
        )

    def _note_continued(self, read: list[dict[str, Any]], cluster: str) -> None:
        """Note which of the captures that were read may go on where another one of their cluster ends."""
        if any(row["partial_starts"] or row["unmatched_responses"] for row in read):
            stored = table_dataset(self._stored, "captures").to_table(filter=pc.field("cluster") == cluster)
            names = {row["capture"] for row in read}
            found = continued_captures([*stored.to_pylist(), *read])
            self.run.continued |= {name: before for name, before in found.items() if name in names}

    def _write(self, name: str, table: pa.Table, part: str) -> str:
        """Write a table's file: where a run adds files, aside until its commit."""
        path = f"{name}/part-{part}.zstd.parquet"
        folder = self._out.run / "small" if self._adds else self._stored.run
        write_table(folder / path, name, table)
        self._keep(folder, {path: table.num_rows})
        return path

    def _keep(self, folder: Place, files: Mapping[str, int]) -> None:
        """Note files below a directory for the manifest, and that they are to be moved."""
        for path, rows in files.items():
            self._stored.rows[path] = rows
            self.run.rows[path.partition("/")[0]] += rows
            if folder != self._stored.run:
                self._moves[path] = folder

    def commit(
        self, inputs: Mapping[str, Any], clusters: Mapping[str, str], started: float, *, whole_summary: bool = True
    ) -> None:
        """Publish the tables.

        Args:
            inputs: The state of all captures that they hold.
            clusters: The cluster of each capture point.
            started: The time at which the run began, by the monotonic clock.
            whole_summary: Whether the run's summary is that of all tables.
        """
        run, summary = self.run, self._stored.run / SUMMARY
        if not self._adds:
            run.summary = self._figures or summarize(stored_pieces(self._stored, SUMMARY_COLUMNS))
            _store_summary(summary, run.summary)
        run.seconds = time.monotonic() - started
        manifest = {
            "schema": SCHEMA,
            "kproto": kproto.__version__,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "inputs": run.inputs,
            "tables": run.rows,
            "bodies_decoded": run.bodies_decoded,
            "seconds": round(run.seconds, 3),
            **inputs,
            "clusters": dict(clusters),
            "generations": self._generations,
            "open": self._open,
            "files": self._stored.rows,
        }
        if not self._adds:
            self._out.publish(manifest)
            return
        summary.unlink(missing_ok=True)
        self._out.append(self._stored.run, self._moves, manifest)
        for file in self._replaced:
            (self._stored.run / file).unlink(missing_ok=True)
        if whole_summary:
            self._on_step("summing up")
            run.summary = summarize(stored_pieces(current_tables(self._out.path), SUMMARY_COLUMNS))
            _store_summary(summary, run.summary)
        else:
            run.summary = self._figures or {}


def _store_summary(file: Place, summary: dict[str, Any]) -> None:
    file.write_text(json.dumps(summary, ensure_ascii=False) + "\n", encoding="utf-8")


def _bad_inputs(table: pa.Table) -> list[BadInput]:
    rows = (BadInput(**row) for row in table.to_pylist())
    return sorted(rows, key=lambda row: (row.file, row.offset or -1))


def _summary(spark: SparkSession, made: TaskOutput, small: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Sum up all tasks' receipts."""
    figures = made.figures
    for changes in count_changes(spark, made):
        figures.add_changes(changes)
    figures.add(small)
    return figures.rows()
